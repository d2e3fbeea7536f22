"""Importance and cuts as tables and sentences, for the terminal and for the report."""

import math
from collections.abc import Iterator

from rich.markup import escape

from headwise.drawing.table import Table
from headwise.formats import (
    format_count,
    format_large_count,
    format_number,
    format_size,
    format_with_error,
)
from headwise.heads import HeadId
from headwise.pruning.importance.importance_tables import Importance
from headwise.pruning.importance.workload import ABLATIONS
from headwise.pruning.record import OWN_TEXT, PruneRecord
from headwise.pruning.selection.curve import Curve

MOST_HEADS = 12
"""Number of heads shown at either end of a long list."""
SIZES = {
    "heads": ("heads", format_large_count),
    "kv_heads": ("KV heads", format_large_count),
    "parameters": ("parameters", format_large_count),
    "attention_parameters": ("attention parameters", format_large_count),
    "bytes": ("bytes", format_size),
    "cache_bytes_per_token": ("KV cache per token", format_size),
    "attention_multiply_adds": ("attention multiply-adds", format_large_count),
}
"""Sizes of a model that a cut changes: their names, and how to format them."""


def importance_title(importance: Importance) -> str:
    """The model, the objective, its loss and the number of examples, in rich markup."""
    about = importance.table.about
    return (
        f"[bold]{escape(about['model'])}[/bold], {about['objective']} {about['loss']:z.4f} on "
        f"{format_count(about['examples'], 'example')}"
    )


TABLE_TITLES = {
    "zero": "Loss that silencing each head adds (zero)",
    "mean": "Loss that replacing each head's output by its mean adds (mean)",
    "michel": "Michel's score of each head (michel)",
    "fisher": "Fisher information of each head (fisher)",
    "expected": "Loss that cutting each head is expected to add (expected)",
}
"""Titles of a table of heads that is sorted by each measure."""


def importance_table(importance: Importance) -> Table | None:
    """Heads by their first measure, smallest first; a long list loses its middle.

    None if no measure has one number per head.
    """
    measures = [name for name in TABLE_TITLES if name in importance.measures]
    if not measures:
        return None
    first, *others = measures
    rows: list[tuple[str, ...]] = []
    for _, row in importance.table.df.sort_values(first).iterrows():
        head = HeadId(row["layer"], row["head"], row["stack"])
        error = row[f"{first}_se"]
        shown = f"{row[first]:.2g}" + (f" ± {error:.1g}" if math.isfinite(error) else "")
        rows.append((str(head), shown, *(f"{row[name]:.2g}" for name in others)))
    if len(rows) > 2 * MOST_HEADS:
        rows[MOST_HEADS:-MOST_HEADS] = [("...", *[""] * len(measures))]
    return Table(f"{TABLE_TITLES[first]}, smallest first", ("head", *measures), rows, measures)


def left_out_lines(importance: Importance) -> list[str]:
    """Measures taken on fewer tokens, or not at all, in a large model; with the options for all."""
    about, lines = importance.table.about, list[str]()
    tokens, exact_tokens = about.get("tokens", 0), about.get("exact_tokens", 0)
    names = [name for name in ABLATIONS if name in importance.measures]
    if names and exact_tokens < tokens:
        lines.append(
            f"Measured on {exact_tokens:,} of {tokens:,} tokens, because it takes a pass per head: "
            f"{', '.join(names)}. --exact-tokens {tokens} reads all."
        )
    if left_out := about.get("left_out"):
        lines.append(
            f"Not measured, because they take long in a large model: {', '.join(left_out)}. "
            "--measures all includes them."
        )
    return lines


def stand_in_lines(importance: Importance) -> list[str]:
    """Groups of heads that can replace each other, one per line, and the heads not tested."""
    if "stand_ins" not in importance.measures:
        return []
    found = "Heads that can replace each other:" if importance.groups else "No stand-ins found."
    lines = [found, *(f"  {group}" for group in importance.groups)]
    if untested := importance.table.about.get("stand_ins_untested"):
        lines.append(f"Not tested for stand-ins: {untested}.")
    return lines


def layers_table(importance: Importance) -> Table | None:
    """The cost of keeping only one head in a layer, one layer at a time; None if not measured."""
    if importance.layers is None:
        return None
    unit = str(importance.table.about.get("unit", "quality"))
    rows = [
        (
            str(row["layer"]),
            str(row["heads"]),
            str(row["best"]),
            format_with_error(row["added"], row["added_se"]),
            str(row["shown"]),
        )
        for _, row in importance.layers.iterrows()
    ]
    title = "One head left in a layer, its other heads silent"
    columns = ("layer", "heads", "best head", "loss added", unit)
    return Table(title, columns, rows, ["heads", "loss added", unit])


def size_rows(record: PruneRecord) -> Iterator[tuple[str, str, str, float]]:
    """Name, size before, size after and share left, for each nonzero size of the uncut model."""
    for name, (words, format_value) in SIZES.items():
        before, after = getattr(record.before, name), getattr(record.after, name)
        if before:
            yield words, format_value(before), format_value(after), after / before


def sizes_table(record: PruneRecord) -> Table:
    """The model's sizes before and after the cut, and the share removed."""
    columns = ("", "before", "after", "removed")
    rows = [(*sizes, f"{1 - left:.1%}") for *sizes, left in size_rows(record)]
    return Table("Size", columns, rows, columns[1:])


def quality_table(record: PruneRecord) -> Table:
    """Scores on held-out text; "-" for a score that is NaN."""
    quality = record.quality
    scores = {
        "uncut": quality.uncut,
        "cut": quality.cut,
        "cut and refitted": quality.refitted,
        "every head silent": quality.floor,
    }
    if quality.random:
        scores[f"same number at random, mean of {len(quality.random)}"] = quality.random_mean
    rows = [
        (name, format_number(score.value, 4) or "-", format_number(score.loss, 4) or "-")
        for name, score in scores.items()
        if score is not None
    ]
    if quality.random:
        values = [score.value for score in quality.random if not math.isnan(score.value)]
        for name, extreme in (("  lowest", min), ("  highest", max)):
            rows.append((name, format_number(extreme(values, default=None), 4) or "-", ""))
    columns = ("", quality.unit, "loss")
    return Table("On held-out text", columns, rows, columns[1:])


def held_out_line(record: PruneRecord) -> str:
    """A line about the text that the scores were measured on."""
    part = record.text.measured_on
    noun = "sentences" if record.quality.unit == "cosine" else "passages"
    source = "your text" if record.text.source == OWN_TEXT else record.text.source
    return f"Held-out text: {part.examples:,} {noun} from {source}, {part.tokens:,} tokens."


def curve_table(curve: Curve) -> Table:
    """Quality by method and number of heads cut; curve.csv also has the range of random cuts."""
    methods = tuple(dict.fromkeys(curve.points.method))
    rows = []
    for cut, points in curve.points.groupby("cut", sort=True):
        quality = dict(zip(points["method"], points["quality"], strict=True))
        cells = (f"{quality[name]:.4g}" if name in quality else "-" for name in methods)
        rows.append((f"{cut} ({points['share'].iloc[0]:.0%})", *cells))
    return Table(f"{curve.unit} against heads cut", ("cut", *methods), rows, methods)


def speed_table(record: PruneRecord) -> Table:
    """The time that each model takes, one row per batch size."""
    rows = [
        (
            f"{speed.batch} x {speed.positions} tokens",
            f"{speed.before:.3f} s",
            f"{speed.after:.3f} s",
            f"{speed.ratio:.2f} ± {speed.spread:.2f}",
        )
        for speed in record.speed
    ]
    columns = ("batch", "before", "after", "times as fast")
    title = "Time of one forward pass; the two models took turns"
    return Table(title, columns, rows, columns[1:])
