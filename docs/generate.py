"""Generates the parts of the docs that come from the source, and the explorer page's types.

In: the installed package. Out: the text of every page with such parts. `python docs/generate.py`
writes the pages; a test fails if one of them is stale.
"""

import ast
import re
import runpy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

DOCS = Path(__file__).parent
PAGE_TYPES = DOCS.parent / "src/headwise/explorer/static/types.d.ts"
COMMANDS = """# Commands

This page shows what `--help` prints for every command. A mistake prints one sentence on standard
error and exits with code 2; Ctrl-C exits with 130. With `--json`, nothing but JSON goes to standard
output.

Some names mean different things in different commands:

- `--text` is a file for `scan`, `importance`, `prune` and `compare` (`-` reads standard input), and
  the sentence itself for `trace` and `report`.
- `--heads` names heads for `trace` and `prune` (`"L2H0 L2H3"`), and is a count for `plan show`.
- A *cut plan* says which heads `prune` removes (`prune --plan plan.json`); `headwise plan` says
  what heads cost.
- `--pairs` of `patch` is a file of prompts, and `--clean` and `--corrupted` are prompts themselves.
- `headwise compare` runs two models on text; `headwise plan compare` computes what several cost.

`headwise --skip-check COMMAND ...` skips the [comparison of watched with unwatched
outputs](watch.md#the-check).

The options of `scan`, `patch`, `prune` and `sweep` are fields of settings objects in Python. The
pages [Scan](scan.md#settings), [Patch](patch.md#settings), [Prune](prune.md#settings) and
[Sweep](sweep.md#settings) show how the names correspond.
"""
PLAIN = {"COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb"}
"""Environment for help texts: plain text, as wide as the site shows without a scroll bar."""


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its heading."""
    ruled = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "".join("| " + " | ".join(row) + " |\n" for row in ruled)


def code(*names: str) -> str:
    """Names as inline code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def columns() -> str:
    """Every column of a scan and its description."""
    from headwise.measures.counter import MEASURES
    from headwise.scans.tables import DERIVED_COLUMNS

    rows = [
        (f"`{column}`", words, f"`{name}`")
        for name, made in MEASURES.items()
        for column, words in made.columns.items()
    ]
    rows += [(f"`{column}`", words, "") for column, words in DERIVED_COLUMNS.items()]
    return table(("column", "meaning", "measure"), *rows)


def names() -> str:
    """Every public name and the first paragraph of its docstring."""
    import inspect

    import headwise

    rows = [("name", "what it is")]
    shown = [name for name in headwise.__all__ if name not in ("__version__", "nn")]
    for name in [*shown, "nn.MultiheadAttention", "nn.swap"]:
        value = headwise.nn if name.startswith("nn.") else headwise
        said = inspect.getdoc(getattr(value, name.removeprefix("nn."))) or ""
        rows.append((f"`headwise.{name}`", said.partition("\n\n")[0].replace("\n", " ")))
    return table(*rows)


def refused() -> str:
    """Attention modules that heads cannot be cut from, and why."""
    from headwise.models.families import FAMILIES

    rows = [(code(name), row.refusal) for row in FAMILIES if row.refusal for name in row.classes]
    return table(("attention module", "why"), *rows)


def returned() -> str:
    """Attention modules whose attention weights are read from their return values."""
    from headwise.models.families import FAMILIES

    rows = [row for row in FAMILIES if row.returns_weights]
    return f"{code(*sorted({name for row in rows for name in row.classes}))}\n"


def coverage() -> dict[str, Any]:
    """The functions and the rows of the benchmark that runs every model type."""
    made = runpy.run_path(str(DOCS.parent / "benchmarks" / "coverage_table.py"))
    made["setting"], made["rows"] = made["read"]()
    return made


def totals() -> str:
    """How many model types can be watched, scanned, silenced and cut."""
    made = coverage()
    heading, *rows = made["totals"](made["rows"])
    return table((f"transformers {made['setting']['transformers']}", *heading[1:]), *rows)


def outcomes() -> str:
    """Model types by what works."""
    made = coverage()
    return table(
        ("what works", "types", "which"),
        *(
            (works, str(len(types)), code(*types))
            for works, types in made["outcomes"](made["rows"]).items()
        ),
    )


def obstacles() -> str:
    """Why a step does not work, with the model types."""
    made = coverage()
    rows = [("not", "because", "types", "which")]
    for step in ("watched", "scanned", "silenced", "cut"):
        for why, types in made["reasons"](made["rows"], step, ("refused",)).items():
            rows.append((step, why, str(len(types)), code(*types)))
    return table(*rows)


def known() -> str:
    """Sizes of every known model, and how many of its parameters are in attention."""
    from headwise.planning.known_models import KNOWN
    from headwise.planning.plans import plan

    sizes_of = ("name", "d_model", "heads", "KV heads", "d_key", "layers")
    heading = (*sizes_of, "attention parameters", "share of the model")
    rows = [heading]
    for name, one in KNOWN.items():
        shape, costs = one.shape, plan(name)
        attention = costs.model_parameters
        share = "" if one.total is None else f"{attention / one.total:.0%}"
        sizes = (shape.d_model, shape.num_heads, shape.num_kv_heads, shape.d_key, shape.num_layers)
        rows.append((f"`{name}`", *(f"{size:,}" for size in sizes), in_short(attention), share))
    return table(*rows)


def in_short(count: int) -> str:
    """A number of parameters, to three digits."""
    unit, size = ("G", 1e9) if count >= 1e9 else ("M", 1e6)
    digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
    return f"{count / size:.{digits}f} {unit}"


def helps() -> Iterator[tuple[str, str]]:
    """Every command and the output of its --help."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from headwise.cli import app

    def show(words: list[str]) -> tuple[str, str]:
        shown = CliRunner(env=PLAIN).invoke(app, [*words, "--help"], prog_name="headwise")
        lines = "\n".join(line.rstrip() for line in shown.output.splitlines())
        return " ".join(["headwise", *words]), lines.strip("\n")

    yield show([])
    for name, command in getattr(get_command(app), "commands", {}).items():
        yield show([name])
        for inner in getattr(command, "commands", {}):
            yield show([name, inner])


def modules() -> str:
    """Every folder and module of the package, with the first paragraph of its docstring."""
    source = DOCS.parent / "src" / "headwise"
    folders = sorted({file.parent for file in source.rglob("*.py")})
    parts = []
    for folder in folders:
        is_root = folder == source
        title = "headwise/" if is_root else f"{folder.relative_to(source).as_posix()}/"
        rows = [
            (f"`{file.name}`", first_sentence(file))
            for file in sorted(folder.glob("*.py"))
            if file.name != "__init__.py"
        ]
        summary = "Small modules that everything may use." if is_root else ""
        summary = summary or first_sentence(folder / "__init__.py")
        listed = "\n" + table(("module", "what it does"), *rows) if rows else ""
        parts.append(f"### {title}\n\n{summary}\n{listed}")
    return "\n" + "\n".join(parts) + "\n"


def first_sentence(file: Path) -> str:
    """The first paragraph of a module's docstring, as one line."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def commands() -> str:
    """The page with the help text of every command."""
    parts = [COMMANDS]
    parts += [f"## {name}\n\n```text\n{shown}\n```\n" for name, shown in helps()]
    return "\n".join(parts)


def baseline_shares(
    sentences: Sequence[Any],
    relation: str,
    reading: Any,
    *,
    is_causal: bool = False,
    counts_letters: bool = False,
) -> dict[str, float]:
    """Share of the questions each baseline answers correctly; empty if there are no questions.

    With `counts_letters`, the longest word is the one with the most letters.
    """
    from headwise.probes.accuracy import BASELINES
    from headwise.probes.scoring import baseline_hits, make_question

    hits = []
    for sentence in sentences:
        sizes = [len(word) for word in sentence.words] if counts_letters else None
        for arc in sentence.arcs:
            question = make_question(arc, reading, len(sentence.words), is_causal=is_causal)
            if arc.relation == relation and question is not None:
                hits.append(baseline_hits(question, sizes))
    means = (sum(column) / len(column) for column in zip(*hits, strict=True))
    return dict(zip(BASELINES, means, strict=True)) if hits else {}


def best_baseline_share(
    sentences: Sequence[Any], relation: str, *, is_causal: bool = False
) -> float:
    """Largest share of the questions that any baseline answers correctly in any reading."""
    from headwise.probes.scoring import READINGS

    return max(
        share
        for reading in READINGS
        for share in baseline_shares(sentences, relation, reading, is_causal=is_causal).values()
    )


def baselines() -> str:
    """Accuracy of the baselines on the built-in sentences."""
    from headwise.probes.accuracy import BASELINES, OFFSETS
    from headwise.probes.builtin import RELATIONS, builtin_sentences

    sentences = builtin_sentences()
    heading = ("relation", "sentences", "chance", "best offset", "first", "last", "nearest")
    rows: list[tuple[str, ...]] = [(*heading, "any reading", "if causal")]
    for relation in RELATIONS:
        arcs = [arc for sentence in sentences for arc in sentence.arcs if arc.relation == relation]
        shares = baseline_shares(sentences, relation, "dependent")
        if arcs[0].candidates:
            chance = sum(1 / len(arc.candidates) for arc in arcs) / len(arcs)
            cells = [f"{chance:.0%}", "", *(f"{shares[name]:.0%}" for name in BASELINES[-3:])]
        else:
            offset = max(BASELINES[: len(OFFSETS)], key=shares.__getitem__)
            ends = (f"{shares[name]:.0%}" for name in ("first word", "last word"))
            cells = ["", f"{offset.removeprefix('offset ')}: {shares[offset]:.0%}", *ends, ""]
        best = (
            f"{best_baseline_share(sentences, relation, is_causal=is_causal):.0%}"
            for is_causal in (False, True)
        )
        rows.append((relation, str(len(arcs)), *cells, *best))
    return table(*rows)


def natural_baselines() -> str:
    """Accuracy of the baselines on natural sentences, and on the controlled ones beside them."""
    from headwise.probes.accuracy import BASELINES, MIN_ARCS, OFFSETS
    from headwise.probes.builtin import builtin_sentences
    from headwise.probes.natural import balanced_sentences, natural_sentences
    from headwise.probes.relation_names import CONTROLLED

    natural, controlled = (*natural_sentences(), *balanced_sentences()), builtin_sentences()
    arcs = Counter(arc.relation for sentence in natural for arc in sentence.arcs)
    names = ("best offset", "first", "last", "nearest", "longest nearby")
    rows: list[tuple[str, ...]] = [("relation", "arcs", *names, "best, controlled")]
    for relation in sorted(arcs, key=lambda name: -arcs[name]):
        if arcs[relation] < MIN_ARCS:
            continue
        shares = baseline_shares(natural, relation, "dependent")
        has_candidates = shares["nearest candidate"] > 0
        offset = max(BASELINES[: len(OFFSETS)], key=shares.__getitem__)
        ends = BASELINES[-3:-1] if has_candidates else ("first word", "last word")
        letters = baseline_shares(natural, relation, "dependent", counts_letters=True)
        longest = max(share for name, share in letters.items() if "within" in name)
        cells = [
            "" if has_candidates else f"{offset.removeprefix('offset ')}: {shares[offset]:.0%}",
            *(f"{shares[name]:.0%}" for name in ends),
            f"{shares['nearest candidate']:.0%}" if has_candidates else "",
            "" if has_candidates else f"{longest:.0%}",
        ]
        twin = CONTROLLED.get(relation)
        best = baseline_shares(controlled, twin, "dependent").values() if twin else ()
        rows.append(
            (f"`{relation}`", f"{arcs[relation]:,}", *cells, f"{max(best):.0%}" if twin else "")
        )
    return table(*rows)


PLAIN_TYPES = {str: "string", bytes: "string", bool: "boolean", int: "number", float: "number"}
"""TypeScript names of Python types; bytes are sent as base64."""


def page_types() -> str:
    """TypeScript interfaces for the server's answers, which the explorer's page reads."""
    from headwise.explorer.api_types import ANSWERS
    from headwise.explorer.lesson.figures import AnswerVerdict, LessonAnswer

    interfaces: dict[str, str] = {}
    for answer in (*ANSWERS, LessonAnswer, AnswerVerdict):
        add_interface(answer, interfaces)
    start = "/** Answers of the server. Generated by docs/generate.py: do not edit. */\n"
    return "\n".join([start, *(interfaces[name] for name in sorted(interfaces))])


def add_interface(answer: type[Any], interfaces: dict[str, str]) -> None:
    """Add a dataclass's interface, and the interfaces of its field types."""
    if answer.__name__ in interfaces:
        return
    interfaces[answer.__name__] = ""
    hints = get_type_hints(answer)
    lines = [
        f"  {field.name}: {page_type(hints[field.name], interfaces)};" for field in fields(answer)
    ]
    interfaces[answer.__name__] = "\n".join(
        [f"export interface {answer.__name__} {{", *lines, "}", ""]
    )


def page_type(hint: Any, interfaces: dict[str, str]) -> str:
    """The TypeScript type that corresponds to a Python type."""
    kind, parts = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        add_interface(hint, interfaces)
        return hint.__name__
    if kind is Literal:
        return " | ".join(f'"{value}"' for value in parts)
    if kind in (Union, UnionType):
        return " | ".join(page_type(part, interfaces) for part in parts)
    if kind is list:
        inner = page_type(parts[0], interfaces)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind is dict:
        return f"Record<string, {page_type(parts[1], interfaces)}>"
    return "null" if hint is NoneType else PLAIN_TYPES[hint]


def roles() -> str:
    """Every role and its meaning."""
    from headwise.roles import ROLES

    return table(("role", "meaning"), *((f"`{name}`", ROLES[name].meaning) for name in ROLES))


def builtin_examples() -> str:
    """One built-in sentence per relation."""
    from headwise.probes.builtin import RELATIONS, builtin_sentences

    rows = [("relation", "sentence", "dependent", "governor")]
    by_relation = {
        sentence.arcs[0].relation: sentence
        for sentence in builtin_sentences(per_relation=1, seed=7)
    }
    for relation in RELATIONS:
        words, arc = by_relation[relation].words, by_relation[relation].arcs[0]
        rows.append((f"`{relation}`", " ".join(words), words[arc.dependent], words[arc.governor]))
    return table(*rows)


def prompt_tasks() -> str:
    """Every built-in prompt task of `headwise patch`, with its first pair."""
    from headwise.patching.tasks import TASKS

    rows = [("task", "asks for", "pairs", "for masked models", "a clean prompt", "answer, instead")]
    for task in TASKS.values():
        pair, masked = task.pairs[0], len(task.masked)
        answers = f"{pair.answer}, {pair.instead}"
        numbers = (str(len(task.pairs)), str(masked) if masked else "")
        rows.append((f"`{task.name}`", task.description, *numbers, pair.clean, answers))
    return table(*rows)


MARKED = {
    "patch.md": [prompt_tasks],
    "api.md": [names],
    "measures.md": [columns],
    "families.md": [totals, outcomes, obstacles, returned, refused],
    "plan.md": [known],
    "probes.md": [natural_baselines, builtin_examples, baselines],
    "table.md": [roles],
    "architecture.md": [modules],
}


def pages() -> dict[Path, str]:
    """The current text of every page that has generated parts."""
    found = {DOCS / "commands.md": commands(), PAGE_TYPES: page_types()}
    for name, parts in MARKED.items():
        text = (DOCS / name).read_text(encoding="utf-8")
        for part in parts:
            mark = part.__name__
            marked = re.compile(f"(<!-- {mark}: -->\n).*?(<!-- :{mark} -->)", re.DOTALL)
            made = part()
            text, count = marked.subn(lambda at, made=made: f"{at[1]}{made}{at[2]}", text)  # type: ignore[misc]
            assert count == 1, f"{name} has no markers for {mark}"
        found[DOCS / name] = text
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path.name)
