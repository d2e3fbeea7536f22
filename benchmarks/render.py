"""Tables from a benchmark's JSON, for the terminal and the README.

`python benchmarks/render.py` puts the last run's table between the README's two markers.
"""

import json
import re
from pathlib import Path
from typing import Any

from harness import Result
from rich.table import Table


def read_json(path: Path) -> tuple[dict[str, object], list[Result]]:
    """Setting and results of a run."""
    record = json.loads(path.read_text(encoding="utf-8"))
    return record["setting"], [Result(**row) for row in record["results"]]


HEADINGS = (
    "",
    "task",
    "size",
    "dtype",
    "pass",
    "headwise",
    "best peer",
    "its time",
    "ratio",
    "of peak",
)
RIVALS = ("nn.MultiheadAttention", "torch sdpa, dense mask", "enable_gqa", "repeated keys")


def cells(row: Result) -> list[str]:
    """One row in words."""
    ours, theirs = row.median["headwise"], row.median[row.best_peer]
    return [
        row.level,
        row.kind,
        row.size,
        row.dtype,
        "fwd+bwd" if row.is_training else "fwd",
        f"{ours:.3g} ms ±{row.spread['headwise']:.0%}",
        row.best_peer,
        f"{theirs:.3g} ms ±{row.spread[row.best_peer]:.0%}",
        f"{row.ratio_to_best:.2f}",
        "" if row.share_of_peak is None else f"{row.share_of_peak:.0%}",
    ]


def as_table(record: tuple[dict[str, object], list[Result]]) -> Table:
    """The whole run for the terminal."""
    setting, results = record
    words = ", ".join(f"{name} {value}" for name, value in setting.items() if value)
    table = Table(title=words, title_style="dim")
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=True)
    for row in results:
        table.add_row(*cells(row))
    return table


def as_markdown(record: tuple[dict[str, object], list[Result]]) -> str:
    """The whole run as a Markdown table."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *(cells(row) for row in record[1])]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


HERE = Path(__file__).parent
RESULTS = HERE / "results" / "layer.json"
README = HERE.parent / "README.md"
MARKED = re.compile(r"(<!-- layer.json: -->\n).*?(<!-- :layer.json -->)", re.DOTALL)


def for_readme(record: tuple[dict[str, object], list[Result]]) -> str:
    """The run in the README's words: the claims, then every row, folded away."""
    setting, _ = record
    words = ", ".join(f"{name} {value}" for name, value in setting.items() if value)
    claims = "\n".join(f"- {line}" for line in targets(record))
    return (
        f"{claims}\n\n<details><summary>Every row</summary>\n\n{as_markdown(record)}\n\n"
        f"{words}\n\n</details>\n"
    )


def in_readme(text: str, record: tuple[dict[str, object], list[Result]]) -> str:
    """The README's text with this run between its markers."""
    return MARKED.sub(lambda found: found[1] + for_readme(record) + found[2], text)


def targets(record: tuple[dict[str, object], list[Result]]) -> list[str]:
    """What the run says of the claims made for headwise, a line each."""
    results = record[1]
    lines = []
    worst = max(results, key=lambda row: row.ratio_to_best)
    over = [row for row in results if row.ratio_to_best > 1.05]
    lines.append(
        f"ratio to the best peer: largest {worst.ratio_to_best:.2f} "
        f"({worst.level} {worst.kind} {worst.size} {worst.dtype}); {len(over)} of {len(results)} "
        "rows over 1.05"
    )
    for row in results:
        times = row.median
        where = f"{row.level} {row.kind} {row.size} {row.dtype}"
        if row.is_training or row.dtype != "float32":
            continue
        if row.kind in ("full", "causal") and row.size in ("1 x 2,048", "1 x 8,192"):
            lines.append(f"{where}: {row.share_of_peak:.0%} of the matrix-multiply peak")
        for rival in RIVALS:
            if rival in times and ("8,192" in row.size or row.kind == "ragged"):
                gain = times[rival] / times["headwise"]
                lines.append(f"{where}: {gain:.1f}x faster than {rival}")
        if "read" in times:
            cost = times["headwise"] / times["read"]
            lines.append(f"{where}: {cost:.1f}x the time of reading the cache once")
    return lines


SCAN = HERE / "results" / "scan.json"
SCAN_MARKED = re.compile(r"(<!-- scan.json: -->\n).*?(<!-- :scan.json -->)", re.DOTALL)


def scan_markdown(record: dict[str, Any]) -> str:
    """What measuring costs, a row a length and a way."""
    heading = ("tokens", "way", "seconds", "times plain", "peak memory", "times plain")
    lines: list[tuple[str, ...]] = [heading, ("---",) * len(heading)]
    for row in record["results"]:
        for name in row["seconds"]:
            lines.append(
                (
                    f"{row['length']:,}",
                    name,
                    f"{row['seconds'][name]:.3g} ±{row['spread'][name]:.0%}",
                    f"{row['time_ratio'][name]:.2f}",
                    f"{row['memory'][name] / 2**20:,.0f} MiB",
                    f"{row['memory_ratio'][name]:.2f}",
                )
            )
    for length, found in record.get("lens", {}).items():
        if "seconds" in found:
            memory = f"{found['memory'] / 2**20:,.0f} MiB"
            name = "TransformerLens run_with_cache"
            lines.append((f"{int(length):,}", name, f"{found['seconds']:.3g}", "", memory, ""))
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    longest = record.get("longest")
    if longest:
        text += (
            f"\n\n{longest['length']:,} tokens, 512 rows: {longest['seconds']:.0f} s; eager "
            f"weights would take {longest['eager_bytes'] / 1e9:.0f} GB."
        )
    return f"{text}\n"


def in_readme_scan(text: str, record: dict[str, Any]) -> str:
    """The README's text with this run between its markers."""
    return SCAN_MARKED.sub(lambda found: found[1] + scan_markdown(record) + found[2], text)


PRUNE = {name: HERE / "results" / f"prune-{name}.json" for name in ("minilm", "smollm2")}
PRUNE_MARKED = re.compile(r"(<!-- prune.json: -->\n).*?(<!-- :prune.json -->)", re.DOTALL)


def markdown(lines: list[tuple[str, ...]]) -> str:
    """A table; the first line is its heading."""
    ruled = [lines[0], ("---",) * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


def quality_markdown(record: dict[str, Any]) -> str:
    """A method a row, a share of heads a column."""
    rows = [*record.get("choose", []), *record.get("refit", [])]
    shares = sorted({row["share"] for row in rows})
    is_embedding = record["unit"] == "cosine"
    found = {(row["method"], row["share"]): row for row in rows}
    lines: list[tuple[str, ...]] = [("method", *(f"{share:.0%} cut" for share in shares))]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for share in shares:
            row = found.get((method, share))
            other = "" if row is None else (row["neighbours"] if is_embedding else row["ratio"])
            if row is None:
                cells.append("")
            elif is_embedding:
                cells.append(f"{row['score']:.3f} / {other:.0%}")
            else:
                cells.append(f"{row['score']:.1f} ({other:.2f}x)")
        lines.append((method, *cells))
    return markdown(lines)


def speed_markdown(record: dict[str, Any]) -> str:
    """How much faster a cut model is, beside what was taken away."""
    gone = {
        proof["share"]: 1
        - proof["after"]["attention_multiply_adds"] / proof["before"]["attention_multiply_adds"]
        for proof in record["proofs"]
    }
    lines: list[tuple[str, ...]] = [
        ("heads cut", "attention multiply-adds gone", "batch", "before", "after", "times as fast")
    ]
    for row in record["speed"]:
        lines.append(
            (
                f"{row['share']:.0%}",
                f"{gone[row['share']]:.0%}",
                f"{row['batch']} x {row['positions']}",
                f"{row['before']:.3f} s",
                f"{row['after']:.3f} s",
                f"{row['ratio']:.2f} ±{row['spread']:.2f}",
            )
        )
    return markdown(lines)


def prune_markdown(records: dict[str, dict[str, Any]]) -> str:
    """Quality, speed and cost of cutting the two models."""
    parts = []
    for name, record in records.items():
        what = (
            "mean cosine to the uncut model's embeddings / sentences that keep their nearest "
            "neighbour"
            if record["unit"] == "cosine"
            else f"perplexity (times the uncut model's {record['uncut']:.1f})"
        )
        parts.append(f"`{name}`, {what}, on {record['examples']:,} held-out examples:")
        parts.append(quality_markdown(record))
        if "speed" in record:
            parts.append(speed_markdown(record))
        if "importance" in record:
            seconds = (f"{what} {taken:.1f} s" for what, taken in record["importance"].items())
            parts.append(f"Importance on the same text: {', '.join(seconds)}.")
    return "\n\n".join(parts) + "\n"


def in_page_prune(text: str, records: dict[str, dict[str, Any]]) -> str:
    """A page's text with these runs between its markers."""
    return PRUNE_MARKED.sub(lambda found: found[1] + prune_markdown(records) + found[2], text)


def prune_records() -> dict[str, dict[str, Any]]:
    """The last runs."""
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in PRUNE.items()
        if path.exists()
    }


if __name__ == "__main__":
    page = in_readme(README.read_text(encoding="utf-8"), read_json(RESULTS))
    page = in_readme_scan(page, json.loads(SCAN.read_text(encoding="utf-8")))
    README.write_text(in_page_prune(page, prune_records()), encoding="utf-8")
