"""Importance and cuts in the terminal.

In: what was measured of heads, and of a model before and after a cut. Out: rich tables and lines.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from headwise.formats import format_count, format_large_count, format_size
from headwise.heads import HeadId

SHOWN = 12
"""Heads shown at either end of a long list."""
MEASURES = ("zero", "mean", "michel", "fisher", "expected")


def table_of(title: str, columns: tuple[str, ...], *, first: str = "") -> Table:
    """An empty table: names at the left, numbers at the right."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def importance_line(about: Mapping[str, Any]) -> str:
    """What was measured, of which model, and on how much."""
    return (
        f"[bold]{escape(about['model'])}[/bold], {about['objective']} {about['loss']:z.4f} on "
        f"{format_count(about['examples'], 'example')}"
    )


def importance_table(df: pd.DataFrame) -> Table:
    """Heads by what the loss gains when they are silent, least first, the middle left out."""
    ranked = df.sort_values("zero")
    table = table_of(
        "Loss that each head adds when it is silent (zero), smallest first",
        MEASURES,
        first="head",
    )
    for place, (_, row) in enumerate(ranked.iterrows()):
        if SHOWN <= place < len(ranked) - SHOWN:
            if place == SHOWN:
                table.add_row("...")
            continue
        head = HeadId(row["layer"], row["head"], row["stack"])
        first, *others = (f"{row[name]:.2g}" for name in MEASURES)  # of the others no error: narrow
        first += give_or_take(row[f"{MEASURES[0]}_se"])
        table.add_row(str(head), first, *others)
    return table


def give_or_take(error: float) -> str:
    """A standard error, to be put behind a figure; nothing where one example allows none."""
    return f" ± {error:.1g}" if math.isfinite(error) else ""


def layers_table(layers: pd.DataFrame, unit: str) -> Table:
    """What it costs to leave one head in a layer, one layer at a time."""
    table = table_of(
        "One head left in a layer, all its others silent",
        ("heads", "best head", "loss added", unit),
        first="layer",
    )
    for _, row in layers.iterrows():
        added = f"{row['added']:.4f}{give_or_take(row['added_se'])}"
        table.add_row(row["layer"], str(row["heads"]), row["best"], added, row["shown"])
    return table


def sizes_table(sizes: Mapping[str, Mapping[str, int]]) -> Table:
    """Before and after a cut, and what is gone."""
    before, after = sizes["before"], sizes["after"]
    table = table_of("What is gone", ("before", "after", "gone"))
    for words, was, now, left in size_rows((name, before[name], after[name]) for name in before):
        table.add_row(words, was, now, f"{1 - left:.1%}")
    return table


SIZES = {
    "heads": ("heads", format_large_count),
    "kv_heads": ("KV heads", format_large_count),
    "parameters": ("parameters", format_large_count),
    "attention_parameters": ("attention parameters", format_large_count),
    "bytes": ("bytes", format_size),
    "cache_bytes_per_token": ("KV cache of a token", format_size),
    "attention_multiply_adds": ("attention multiply-adds", format_large_count),
}
"""Sizes of a model that a cut changes: what each is called, and how it is written."""


def size_rows(
    sizes: Iterable[tuple[str, float, float]],
) -> Iterator[tuple[str, str, str, float]]:
    """Of every size its name, before and after in words, and the share that is left."""
    known = {name: (before, after) for name, before, after in sizes if before}
    for name, (words, say) in SIZES.items():
        if name in known:
            before, after = known[name]
            yield words, say(int(before)), say(int(after)), after / before


def quality_table(quality: Mapping[str, Any], unit: str) -> Table:
    """What the model scores on held-out text; "-" for what is no finite number."""
    table = table_of("On held-out text", (unit, "loss"))
    for name in ("uncut", "cut", "refitted", "floor"):
        found = quality.get(name)
        if found is not None:
            table.add_row(SAID.get(name, name), figure(found[unit]), figure(found["loss"]))
    randoms = [one[unit] for one in quality["random"]]
    if randoms:
        mean, known = quality["random_mean"], [one for one in randoms if one is not None]
        name = f"as many at random, mean of {len(randoms)}"
        table.add_row(name, figure(mean[unit]), figure(mean["loss"]))
        table.add_row("  from", figure(min(known, default=None)), "")
        table.add_row("  to", figure(max(known, default=None)), "")
    return table


def figure(value: float | None) -> str:
    """A score or a loss; JSON has none for what is infinite."""
    return "-" if value is None else f"{value:z.4f}"


SAID = {
    "refitted": "cut and refitted",
    "floor": "every head silent",
}
"""Models of a cut in other words than their names."""


def held_out_line(text: Mapping[str, Any], unit: str) -> str:
    """Which text the figures were measured on."""
    held = text["measured_on"]
    what = "sentences" if unit == "cosine" else "passages"
    whose = "of your text" if text["source"] == "given" else f"of {text['source']}"
    return f"That text: {held['examples']:,} {what} {whose}, {held['tokens']:,} tokens."


def curve_table(points: pd.DataFrame, unit: str) -> Table:
    """Quality of every method at every cut; curve.csv has the range of random cuts, too."""
    methods = list(dict.fromkeys(points.method))
    table = table_of(f"{unit} against heads cut", tuple(methods), first="cut")
    for cut, rows in points.groupby("cut", sort=True):
        by_method = {row.method: row for row in rows.itertuples()}
        cells = [cell(by_method.get(method)) for method in methods]
        share = float(rows["share"].iloc[0])
        table.add_row(f"{cut} ({share:.0%})", *cells)
    return table


def cell(row: Any) -> str:
    """A point of a curve; of random cuts the mean."""
    return "-" if row is None else f"{row.quality:.4g}"


def speed_lines(speeds: list[dict[str, Any]]) -> Iterator[str]:
    """How much faster the cut model is."""
    for one in speeds:
        yield (
            f"batch {one['batch']} x {one['positions']} tokens: {one['before']:.3g} s before, "
            f"{one['after']:.3g} s after, {one['ratio']:.2f} ± {one['spread']:.2f} times as fast"
        )
