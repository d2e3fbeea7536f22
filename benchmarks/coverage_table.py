"""The coverage table: rows by model type, their totals, and the reasons for what does not work.

In: rows from coverage.py. Out: results/coverage.json, with one line per type, and tables of totals
and reasons for the terminal and for docs/families.md. Imports neither torch nor headwise.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Fields = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "coverage.json"
LENS = Path(__file__).parent / "results" / "transformer_lens.json"
STEPS = ("watched", "padded", "generated", "scanned", "silenced", "cut")
BAD = ("wrong", "failed")


def compact(row: Fields) -> Fields:
    """A row as it is recorded: the sentence only where a step does not work."""
    outcomes = {
        step: [one["state"], one["why"]] if one["state"] != "yes" else ["yes"]
        for step, one in row["outcomes"].items()
        if one["state"]
    }
    names = ("type", "model", "inputs", "why_not_built", "attention", "sites", "left_out")
    return {name: row[name] for name in names if row[name]} | outcomes


def write(path: Path, setting: Mapping[str, str], rows: Iterable[Fields]) -> None:
    """Write the table as JSON, with one row per line."""
    lines = ",\n".join(json.dumps(row) for row in sorted(rows, key=lambda row: row["type"]))
    path.write_text(f'{{"setting": {json.dumps(setting)},\n"rows": [\n{lines}\n]}}\n', "utf-8")


def read(path: Path = RESULTS) -> tuple[dict[str, str], list[Fields]]:
    """The setting and the rows of the recorded table."""
    record = json.loads(path.read_text("utf-8"))
    return record["setting"], record["rows"]


def lens_types(path: Path = LENS) -> tuple[str, set[str]]:
    """TransformerLens's version, and the model types of the architectures that it lists."""
    record = json.loads(path.read_text("utf-8"))
    return record["version"], set(record["types"])


def state(row: Fields, step: str) -> str:
    """How a step ended; "" if it was not reached or does not apply."""
    return str(row.get(step, [""])[0])


def is_equal(row: Fields) -> bool:
    """Whether outputs are the same while the model is watched, padded or not."""
    return state(row, "watched") == "yes" and state(row, "padded") in ("yes", "")


def is_bad(row: Fields) -> bool:
    """Whether any step gives a wrong result or ends in a traceback."""
    return any(state(row, step) in BAD for step in STEPS)


COUNTS: tuple[tuple[str, Callable[[Fields], bool]], ...] = (
    ("model types", lambda row: True),
    ("built as a tiny random model that runs", lambda row: "model" in row),
    ("with attention", lambda row: "attention" in row),
    ("watched, outputs equal", is_equal),
    ("of these, with some attention left out", lambda row: is_equal(row) and "left_out" in row),
    ("writing text from a cache, logits equal", lambda row: state(row, "generated") == "yes"),
    ("scanned", lambda row: state(row, "scanned") == "yes"),
    ("silenced", lambda row: state(row, "silenced") == "yes"),
    ("cut, equal to silencing", lambda row: state(row, "cut") == "yes"),
    ("wrong, or ends in a traceback", is_bad),
)


def totals(rows: Sequence[Fields]) -> list[tuple[str, ...]]:
    """Counts over all types, and over those that TransformerLens lists; a heading is first."""
    version, listed = lens_types()
    shared = [row for row in rows if row["type"] in listed]
    table: list[tuple[str, ...]] = [("", "all types", f"listed by TransformerLens {version}")]
    for words, counts in COUNTS:
        table.append((words, *(f"{sum(map(counts, some)):,}" for some in (rows, shared))))
    return table


def works(row: Fields) -> str:
    """What works for a type, in words."""
    if is_bad(row):
        return "wrong"
    if not is_equal(row):
        return "nothing"
    return ", ".join(
        step for step in ("watched", "scanned", "silenced", "cut") if state(row, step) == "yes"
    )


def outcomes(rows: Iterable[Fields]) -> dict[str, list[str]]:
    """Types with attention by what works, the commonest first."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if "attention" in row:
            found.setdefault(works(row), []).append(row["type"])
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def reason(why: str) -> str:
    """The part of a sentence that is the same for other models."""
    why = re.sub(r"^.*?cannot be \w+( here)?: (its attention )?", "", why)
    why = re.sub(r"^\w+ \([\w.]+\): ", "", why)
    why = re.sub(r"^[\w.]+ \(\w+\) cannot be \w+: ", "", why)
    why = re.sub(r" ?\([^)]*\)", "", why)
    why = re.sub(r"\bL\d+\b", "L", why)
    why = re.sub(r"\d[\d.e-]*", "N", why)
    return why.partition("; docs/")[0].strip()


def reasons(rows: Iterable[Fields], step: str, states: Sequence[str]) -> dict[str, list[str]]:
    """Types by the reason why a step ended so, the commonest reason first."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if state(row, step) in states:
            found.setdefault(reason(row[step][1]), []).append(row["type"])
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def plain_text(rows: Sequence[Fields]) -> str:
    """Totals, and every reason with its types, as plain text."""
    lines = [f"{words:40} {all_types:>10} {lens:>8}" for words, all_types, lens in totals(rows)]
    for step in STEPS:
        for states in (BAD, ("refused",)):
            for why, types in reasons(rows, step, states).items():
                ended = "refused" if states == ("refused",) else "wrong or failed"
                lines += ["", f"{step} {ended}: {why} ({len(types)})", f"    {' '.join(types)}"]
    missing = [row for row in rows if "model" not in row]
    lines += ["", f"not built ({len(missing)})"]
    lines += [f"    {row['type']}: {row['why_not_built']}" for row in missing]
    return "\n".join(lines)
