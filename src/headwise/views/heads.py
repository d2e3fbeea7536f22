"""HeadTables and relations for the terminal: a grid of roles, the strongest heads, a summary.

Roles are decided in headwise.scans.role_decisions.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from headwise.drawing.table import Table
from headwise.formats import format_count, format_number, join_words
from headwise.head_table import HeadRow, HeadTable
from headwise.probes.accuracy import MIN_ARCS, best_heads
from headwise.probes.templates import AGREEMENT
from headwise.roles import ROLES, UNKNOWN_ROLE

HEADS_PER_LINE = 32
"""Layers with more heads use several lines: 32 cells of 2 characters and a label fit 80 columns."""
WIDE_CELLS = 24
"""Up to this many heads, cells are 3 characters wide: enough to number every head."""
SCORE_COLUMNS = ("score", "threshold", "baseline")
NONE, MORE = "·", "+"
SOURCES = ("natural", "controlled", "balanced", "treebank")
"""Sources of sentences with gold relations."""
UNSTABLE = "*"
"""Marks a head that only one half of the sentences would choose."""
HALVES_DIFFER = (
    "the two halves of the sentences choose different heads or readings; found and baseline are "
    "means over both"
)


def overview(table: HeadTable) -> Group:
    """The summary and the grid of each stack."""
    summary = [Text(line) for line in summary_lines(table)]
    grids = [part for stack in table.stacks for part in (Text(), head_grid(table, stack))]
    return Group(*summary, *grids)


def as_text(table: HeadTable) -> str:
    """The overview in plain characters, as wide as the terminal."""
    console = Console(color_system=None)
    with console.capture() as capture:
        console.print(overview(table))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def head_grid(table: HeadTable, stack: str = "") -> Group:
    """A grid with a row per layer and a column per head, and a legend.

    A cell shows the letter of the head's first role: `P+` if it has more roles, `·` if it has none.
    A blank cell means that the layer has no such head.
    """
    rows = table.of_stack(stack)
    columns = (rows[name].tolist() for name in ("layer", "head", "roles"))
    roles = {(layer, head): names for layer, head, names in zip(*columns, strict=True)}
    grid = cell_grid({place: _cell(names) for place, names in roles.items()})
    name = rows["stack"].iloc[0]
    return Group(*([Text(name, style="bold")] if name else []), grid, _legend(roles.values()))


def cell_grid(cells: Mapping[tuple[int, int], Text]) -> RichTable:
    """A row per layer and a column per head, from cells of up to two characters by both numbers."""
    num_heads = max(head for _, head in cells) + 1
    width, step = (3, 1) if num_heads <= WIDE_CELLS else (2, 4)  # narrow cells: number every 4th
    grid = RichTable(box=None, padding=0, pad_edge=False, header_style="dim")
    grid.add_column("", style="dim", no_wrap=True)
    for head in range(min(num_heads, HEADS_PER_LINE)):
        grid.add_column("" if head % step else str(head), width=width, no_wrap=True)
    for layer in dict.fromkeys(layer for layer, _ in cells):
        for start in range(0, num_heads, HEADS_PER_LINE):
            heads = range(start, min(start + HEADS_PER_LINE, num_heads))
            label = f"+{start} " if start else f"L{layer} "
            grid.add_row(Text(label), *(cells.get((layer, head), Text("")) for head in heads))
    return grid


def _cell(roles: tuple[str, ...]) -> Text:
    if not roles:
        return Text(NONE, style="dim")
    role = ROLES.get(roles[0], UNKNOWN_ROLE)
    return Text(role.letter + MORE * (len(roles) > 1), style=role.terminal_colour)


def _legend(cells: Collection[tuple[str, ...]]) -> Text:
    """A legend of the letters that the grid uses."""
    first = {roles[0] for roles in cells if roles}
    known = [role for name, role in ROLES.items() if name in first]
    entries = [(role.letter, role.terminal_colour, role.name) for role in known]
    if unknown := sorted(first - ROLES.keys()):
        entries.append((UNKNOWN_ROLE.letter, UNKNOWN_ROLE.terminal_colour, ",".join(unknown)))
    if not all(cells):
        entries.append((NONE, "dim", "none"))
    if any(len(roles) > 1 for roles in cells):
        entries.append((MORE, "", "more"))
    return Text("  ").join(
        Text.assemble((letter, colour), f"={meaning}") for letter, colour, meaning in entries
    )


def strongest(table: HeadTable, per_role: int = 3) -> RichTable:
    """The heads with the largest scores for each role, with their baseline and their evidence.

    The baseline is the score of a head without the habit. Columns without any value are left out.
    """
    cells = [
        (
            *(role, str(head.name), format_number(head.get(f"{role}_score"))),
            *(format_number(head.get(f"{role}_baseline")), describe_evidence(head, role)),
            str(head.get(f"{role}_detail", "")),
        )
        for role in table.held_roles
        for head in strongest_of(table, role, per_role)
    ]
    numbers = ("score", "baseline", "95% range")
    columns = ("role", "head", *numbers, "detail")
    used = [at for at in range(len(columns)) if at < 2 or any(row[at] for row in cells)]
    rows = [tuple(row[at] for at in used) for row in cells]
    colours = {role: ROLES.get(role, UNKNOWN_ROLE).terminal_colour for role in table.held_roles}
    scores = Table("", [columns[at] for at in used], rows, numbers)
    return scores.to_rich(is_ruled=False, styles=colours)


def score_cells(head: HeadRow, role: str) -> tuple[str, ...]:
    """The head's score, threshold and baseline as text; empty for missing numbers."""
    return tuple(format_number(head.get(f"{role}_{name}")) for name in SCORE_COLUMNS)


def describe_evidence(head: HeadRow, role: str) -> str:
    """For a role that rests on sentences, the 95% interval of the score; otherwise empty."""
    low, high = (head.get(f"{role}_{name}", math.nan) for name in ("low", "high"))
    return "" if math.isnan(low) else f"{low:.0%} to {high:.0%}"


def strongest_of(table: HeadTable, role: str, count: int) -> list[HeadRow]:
    """Up to `count` heads with a role, the largest score first, heads without a score last."""

    def rank(head: HeadRow) -> tuple[bool, float]:
        score = head.get(f"{role}_score", math.nan)
        return math.isnan(score), -score

    return sorted((table[head] for head in table.with_role(role)), key=rank)[:count]


def summary_lines(table: HeadTable) -> list[str]:
    """The model and the text, the number of heads, and the number of heads per role."""
    about, untested = table.about, table.untested_roles
    tokens = about.get("tokens")
    origin = [
        str(about.get("model") or ""),
        f"revision {about['revision']}" if about.get("revision") else "",
        format_count(tokens, "token") if isinstance(tokens, int) else "",
    ]
    lines = [
        ", ".join(filter(None, origin)),
        f"{format_count(len(table), 'head')} in {format_count(table.num_layers, 'layer')}",
        role_counts(table),
        _untested_line(untested, about.get("unmeasured")),
    ]
    moved = [
        f"a cut model, whose heads have new numbers: {layer}H{new} was {layer}H{old} before the cut"
        for layer, old_numbers in about.get("loaded", {}).get("kept", {}).items()
        for new, old in enumerate(old_numbers)
        if new != old
    ]
    return list(filter(None, [*lines, *unmeasured_lines(about), *moved[:1]]))


def unmeasured_lines(about: Mapping[str, Any]) -> list[str]:
    """A line for each reason why parts of the model are not in the table, with their names."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in dict_in(about, "left_out").items():
        by_reason.setdefault(str(reason), []).append(name)
    return [f"left out: {join_words(names)} ({reason})" for reason, names in by_reason.items()]


def _untested_line(roles: tuple[str, ...], reason: object) -> str:
    if reason:
        return f"syntactic, semantic and coreference roles are not measured: {reason}"
    return f"not tested: {', '.join(roles)}" if roles else ""


def role_counts(table: HeadTable) -> str:
    """Number of heads for each role that any head has, and number of heads without a role."""
    counts = [f"{role} {len(table.with_role(role))}" for role in table.held_roles]
    return ", ".join([*counts, f"no role {len(table.without_role)}"])


def leaders(relations: pd.DataFrame) -> Group:
    """The strongest head for each relation that some head finds, and notes on the columns."""
    best = best_of_each(relations)
    best = best[(best["source"] != "controlled") | (best["relation"] == AGREEMENT)]
    rows = [
        (
            row["label"],
            row["marked"],
            row["reading"],
            f"{row['held_out_accuracy']:.1%}",
            f"{row['held_out_baseline']:.1%}",
            f"{row['accuracy']:.1%}",
            f"{row['low']:.0%} to {row['high']:.0%}",
            f"{row['arcs']:,}",
        )
        for _, row in best[best["counts"]].iterrows()
    ]
    numbers = ("found", "baseline", "on all", "95% range", "arcs")
    columns = ("relation", "head", "reading", *numbers)
    notes = [
        "found, baseline: the head and the baseline that are best on one half of the sentences, "
        "measured on the other half; on all: the named head on every sentence, which is "
        "optimistic because the head was chosen there."
    ]
    if not best[best["counts"]]["is_stable"].all():
        notes.append(f"{UNSTABLE} {HALVES_DIFFER}.")
    if not rows:
        notes = []
    if missed := best[~best["counts"]]["label"].tolist():
        notes.append(f"No head beats its baseline clearly: {', '.join(missed)}.")
    return Group(
        *([Table("", columns, rows, numbers).to_rich(is_ruled=False)] if rows else []), *notes
    )


def best_of_each(relations: pd.DataFrame) -> pd.DataFrame:
    """`best_heads` for every source, plus `source`, `label` and `marked` (head, * if unstable).

    Leaves out relations with fewer than MIN_ARCS arcs, which say nothing about a head.
    """
    frames = []
    enough = relations[relations["arcs"] >= MIN_ARCS]
    for source, rows in (enough if len(enough) else relations).groupby("source", sort=False):
        best = best_heads(rows, head="name")
        best["source"] = source
        best["label"] = best["relation"] + (
            "" if source in ("natural", "balanced") else f" ({source})"
        )
        best["marked"] = best["name"].where(best["is_stable"], best["name"] + UNSTABLE)
        frames.append(best)
    return pd.concat(frames, ignore_index=True)


def skipped_sentences(about: Mapping[str, Any]) -> list[str]:
    """A line that says how many gold sentences were not read, and why; empty if all were read."""
    counts, settings = dict_in(about, "counts"), dict_in(about, "settings")
    skipped, read = (
        sum(counts.get(f"{source}_{kind}", 0) for source in SOURCES)
        for kind in ("unusable", "sentences")
    )
    if not skipped:
        return []
    length = settings.get("length")
    limit = "the model" if length is None else f"a length of {format_count(length, 'token')}"
    return [
        f"{skipped:,} of {format_count(skipped + read, 'sentence')} with known relations "
        f"{'was' if skipped == 1 else 'were'} left out: too long for {limit}, or with a word "
        "that has no token."
    ]


def dict_in(about: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`about[name]` if that is a dictionary, otherwise an empty one."""
    value = about.get(name)
    return value if isinstance(value, dict) else {}
