"""A HeadTable in the terminal: a letter a head, the strongest heads of each role, a summary.

In: a HeadTable. Out: rich tables and lines of text. It decides no role; it shows those it is given.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from headwise.formats import format_count
from headwise.heads import HeadRow, HeadTable
from headwise.probes.accuracy import best_heads
from headwise.roles import ROLES, UNKNOWN_ROLE

HEADS_A_LINE = 32
"""A layer with more heads goes on in a further line: 32 cells of 2 and a label fit 80 columns."""
HEADS_OF_THREE = 24
"""Up to so many heads, a cell of 3 characters leaves room for every head's number."""
FIGURES = ("score", "threshold", "baseline")


NONE, MORE = "·", "+"


def overview(table: HeadTable) -> Group:
    """What the table was made of, how many heads have which role, and the grid of each stack."""
    summary = [Text(line) for line in summary_lines(table)]
    grids = [part for stack in table.stacks for part in (Text(), head_grid(table, stack))]
    return Group(*summary, *grids)


def as_text(table: HeadTable) -> str:
    """The overview in plain characters, as wide as the terminal."""
    screen = Console(color_system=None)
    with screen.capture() as shown:
        screen.print(overview(table))
    return "\n".join(line.rstrip() for line in shown.get().splitlines())


def head_grid(table: HeadTable, stack: str = "") -> Table:
    """Layers down, heads across, in each cell the letter of the head's first role; a legend below.

    `P+` has more roles than the first, `·` has none, and where there is no head the cell is blank.
    """
    rows = table.of_stack(stack)
    places = zip(rows["layer"].tolist(), rows["head"].tolist(), strict=True)
    roles: dict[tuple[int, int], tuple[str, ...]] = dict(
        zip(places, rows["roles"].tolist(), strict=True)
    )
    num_heads = int(rows["head"].max()) + 1
    grid = _empty_grid(min(num_heads, HEADS_A_LINE))
    for layer in dict.fromkeys(rows["layer"].tolist()):
        for start in range(0, num_heads, HEADS_A_LINE):
            heads = range(start, min(start + HEADS_A_LINE, num_heads))
            label = f"+{start} " if start else f"L{layer} "
            grid.add_row(Text(label), *(_cell(roles.get((layer, head))) for head in heads))
    whole = Table.grid()
    if name := rows["stack"].iloc[0]:
        whole.add_row(Text(name, style="bold"))
    whole.add_row(grid)
    whole.add_row(_legend(list(roles.values())))
    return whole


def _empty_grid(num_heads: int) -> Table:
    """Columns for a label and the heads; narrow cells leave room for every fourth number only."""
    width = 3 if num_heads <= HEADS_OF_THREE else 2
    step = 1 if width == 3 else 4
    grid = Table(box=None, padding=0, pad_edge=False, header_style="dim")
    grid.add_column("", style="dim", no_wrap=True)
    for head in range(num_heads):
        grid.add_column("" if head % step else str(head), width=width, no_wrap=True)
    return grid


def _cell(roles: tuple[str, ...] | None) -> Text:
    if roles is None:
        return Text("")
    if not roles:
        return Text(NONE, style="dim")
    role = ROLES.get(roles[0], UNKNOWN_ROLE)
    return Text(role.letter + MORE * (len(roles) > 1), style=role.terminal_colour)


def _legend(cells: list[tuple[str, ...]]) -> Text:
    """The letters that the grid uses, and no others."""
    first = {roles[0] for roles in cells if roles}
    entries = [
        (role.letter, role.terminal_colour, role.name)
        for role in ROLES.values()
        if role.name in first
    ]
    if unknown := sorted(first - ROLES.keys()):
        entries.append((UNKNOWN_ROLE.letter, UNKNOWN_ROLE.terminal_colour, ",".join(unknown)))
    if not all(cells):
        entries.append((NONE, "dim", "none"))
    if any(len(roles) > 1 for roles in cells):
        entries.append((MORE, "", "more"))
    return Text("  ").join(
        Text.assemble((letter, colour), f"={meaning}") for letter, colour, meaning in entries
    )


def strongest(table: HeadTable, per_role: int = 3) -> Table:
    """For each role the heads that have it most, with the score that gave it and what it must beat.

    The threshold is what a score must reach, the baseline what it is without any such habit.
    Figures and details that the table does not hold are left out.
    """
    rows = _strongest_rows(table, per_role)
    shown = [name for name in (*FIGURES, "detail") if any(row[name] for row in rows)]
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("role", "head", *shown):
        drawn.add_column(name, justify="right" if name in FIGURES else "left")
    for row in rows:
        colour = ROLES.get(row["role"], UNKNOWN_ROLE).terminal_colour
        cells = [Text(row[name]) for name in ("head", *shown)]
        drawn.add_row(Text(row["role"], style=colour), *cells)
    return drawn


def _strongest_rows(table: HeadTable, per_role: int) -> list[dict[str, str]]:
    """Cells by column; those of one role stand together, the largest score first."""
    rows = []
    for role in table.held_roles:
        for head in strongest_of(table, role, per_role):
            figures = {name: _figure(head.get(f"{role}_{name}")) for name in FIGURES}
            detail = str(head.get(f"{role}_detail", ""))
            rows.append({"role": role, "head": str(head.name), **figures, "detail": detail})
    return rows


def strongest_of(table: HeadTable, role: str, count: int) -> list[HeadRow]:
    """Heads that have a role, the largest score first; those without a score last."""

    def weakness(head: HeadRow) -> float:
        score = float(head.get(f"{role}_score", math.nan))
        return math.inf if math.isnan(score) else -score

    return sorted((table[head] for head in table.with_role(role)), key=weakness)[:count]


def _figure(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}"


def summary_lines(table: HeadTable) -> list[str]:
    """Of what the table was made, how many heads it has, and how many of them have each role."""
    about = table.about
    made = [str(about["model"])] if about.get("model") else []
    made += [f"revision {about['revision']}"] if about.get("revision") else []
    made += [format_count(about["tokens"], "token")] if isinstance(about.get("tokens"), int) else []
    counts = [f"{role} {len(table.with_role(role))}" for role in table.held_roles]
    untested = table.untested_roles
    return [
        *([", ".join(made)] if made else []),
        f"{format_count(len(table), 'head')} in {format_count(table.num_layers, 'layer')}",
        ", ".join([*counts, f"no role {len(table.without_role)}"]),
        *([f"not tested: {', '.join(untested)}"] if untested else []),
        *renumbered(about),
    ]


def renumbered(about: Mapping[str, Any]) -> list[str]:
    """That a cut model's heads have new numbers, with the first one that has."""
    for layer, kept in about.get("loaded", {}).get("kept", {}).items():
        for now, before in enumerate(kept):
            if now != before:
                return [
                    "a cut model, whose heads have new numbers: "
                    f"{layer}H{now} was {layer}H{before} before the cut"
                ]
    return []


SHOWN = {
    "relation": "relation",
    "name": "head",
    "reading": "reading",
    "held_out_accuracy": "found",
    "held_out_baseline": "baseline",
    "accuracy": "on all",
    "interval": "95% range",
    "arcs": "arcs",
}


SOURCES = ("probe", "treebank")
"""Where sentences with gold relations come from."""


UNSTABLE = "*"
"""Behind a head that one half of the sentences would not have chosen."""


OF_TWO = (
    "the two halves of the sentences choose different heads or readings, and found and baseline "
    "are the means of both"
)


def leaders(relations: pd.DataFrame) -> Table:
    """For each relation its strongest head: how often it finds the partner, beside the baseline.

    `found` and `baseline` are of the head chosen in one half of the sentences, judged in the other.
    """
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for title in SHOWN.values():
        is_text = title in ("relation", "head", "reading")
        drawn.add_column(title, justify="left" if is_text else "right")
    for _, row in best_of_each(relations).iterrows():
        drawn.add_row(
            Text(row["label"]),
            Text(row["marked"]),
            row["reading"],
            f"{row['held_out_accuracy']:.1%}",
            f"{row['held_out_baseline']:.1%}",
            f"{row['accuracy']:.1%}",
            f"{row['low']:.0%} to {row['high']:.0%}",
            f"{row['arcs']:,}",
        )
    return drawn


def notes(relations: pd.DataFrame) -> list[str]:
    """What the figures of `leaders` are."""
    said = [
        "found, baseline: of the head and the baseline that lead in one half of the sentences, "
        "judged in the other; on all: the head named, on every sentence, flattered by the choice."
    ]
    if not best_of_each(relations)["is_stable"].all():
        said.append(f"{UNSTABLE} {OF_TWO}.")
    return said


def best_of_each(relations: pd.DataFrame) -> pd.DataFrame:
    """`best_heads` of every source; `label` names the relation, `marked` the head with its mark."""
    names = relations.drop_duplicates("head").set_index("head")["name"]
    frames = []
    for source, rows in relations.groupby("source", sort=False):
        best = best_heads(rows.drop(columns=["source", "name"]))
        behind = "" if source == "probe" else f" ({source})"
        marks = [("" if is_stable else UNSTABLE) for is_stable in best["is_stable"]]
        best["label"] = [f"{relation}{behind}" for relation in best["relation"]]
        best["marked"] = [f"{names[h]}{mark}" for h, mark in zip(best["head"], marks, strict=True)]
        frames.append(best)
    return pd.concat(frames, ignore_index=True)


def left_out(about: Mapping[str, Any]) -> list[str]:
    """How many sentences with gold relations could not be read, and why; nothing if all could."""
    counts, settings = (
        part if isinstance(part, Mapping) else {}
        for part in (about.get("counts"), about.get("settings"))
    )
    out, read = (
        sum(counts.get(f"{source}_{kind}", 0) for source in SOURCES)
        for kind in ("unusable", "sentences")
    )
    if not out:
        return []
    length = settings.get("length")
    room = "the model" if length is None else f"a length of {format_count(length, 'token')}"
    return [
        f"{out:,} of {format_count(out + read, 'sentence')} with known relations "
        f"{'was' if out == 1 else 'were'} left out: too long for {room}, or with a word without "
        "a token."
    ]
