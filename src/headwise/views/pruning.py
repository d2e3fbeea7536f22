"""Importance and cuts as tables and sentences, for the terminal and for the report."""

import math
from collections.abc import Iterator

from rich.markup import escape

from headwise.comparing.comparison import Comparison
from headwise.drawing.table import Table
from headwise.formats import (
    format_count,
    format_large_count,
    format_size,
    format_with_error,
    join_words,
)
from headwise.heads import HeadId
from headwise.pruning.importance.importance_tables import Importance
from headwise.pruning.importance.workload import ABLATIONS
from headwise.pruning.record import PruneRecord, Score
from headwise.pruning.selection.curve import Curve

MOST_HEADS = 12
"""Number of heads shown at either end of a long list."""
CORRECTIONS = {"bias": "biases corrected", "full": "refitted", "wide": "refitted widely"}
"""Names in a table for the values of `Quality.correction`."""
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


def size_rows(record: PruneRecord | Comparison) -> Iterator[tuple[str, str, str, float]]:
    """Name, size before, size after and share left, for each nonzero size of the first model."""
    for name, (words, format_value) in SIZES.items():
        before, after = getattr(record.before, name), getattr(record.after, name)
        if before:
            yield words, format_value(before), format_value(after), after / before


def sizes_table(record: PruneRecord | Comparison) -> Table:
    """Sizes before and after the cut, or of two models, and the share removed."""
    columns = ("", "before", "after", "removed")
    rows = [(*sizes, f"{1 - left:.1%}") for *sizes, left in size_rows(record)]
    return Table("Size", columns, rows, columns[1:])


def quality_table(record: PruneRecord) -> Table:
    """Scores with standard errors on held-out text, beside other text if the user gave the text."""
    quality, other = record.quality, record.quality.other
    columns = ["", "on your text" if record.text.is_given else quality.unit]
    columns += [] if other is None else ["on other text"]
    texts = [quality.scores] if other is None else [quality.scores, other]
    rows = [("uncut", *(score_cell(text.uncut) for text in texts))]
    rows.append(("cut", *(score_cell(text.cut) for text in texts)))
    if quality.correction != "none":
        name = CORRECTIONS[quality.correction]
        rows.append((f"cut, {name}", *(score_cell(text.final) for text in texts)))
    blank = [""] * (len(texts) - 1)
    if quality.floor is not None:
        rows.append(("every head silent", score_cell(quality.floor), *blank))
    if quality.random_median is not None:
        ends = {"  best": quality.random[0], "  worst": quality.random[-1]}
        name = f"same number at random, median of {len(quality.random)}"
        for words, score in ({name: quality.random_median} | ends).items():
            rows.append((words, score_cell(score), *blank))
    title = f"{quality.unit.capitalize()} on text that decided nothing"
    return Table(title, columns, rows, columns[1:])


def score_cell(score: Score) -> str:
    """A score with its standard error; "-" if it is NaN."""
    return "-" if math.isnan(score.value) else score.text


def register_table(record: PruneRecord) -> Table:
    """Scores before and after the cut on every register; the one that suffers most comes first."""
    quality = record.quality
    registers = {**quality.registers, **quality.other_registers}
    ranked = sorted(
        registers, key=lambda name: registers[name].uncut.loss - registers[name].final.loss
    )
    rows = [
        (name, score_cell(registers[name].uncut), score_cell(registers[name].final))
        for name in ranked
    ]
    columns = ("register", "uncut", "result")
    return Table(f"{quality.unit.capitalize()} by register", columns, rows, columns[1:])


def cut_warnings(record: PruneRecord) -> list[str]:
    """Plain warnings about a cut that is no better than chance, or that harms other text more."""
    quality, warnings = record.quality, []
    if not quality.beats_random:
        advice = "" if record.method == "named" else ": choose on more text, or cut fewer heads"
        warnings.append(
            f"The result is not clearly better than the same number of heads cut at random{advice}."
        )
    if quality.is_dropped:
        warnings.append("No correction was kept: none helped on every kind of text.")
    if quality.other is not None:
        here, there = (
            scores.final.loss - scores.uncut.loss for scores in (quality.scores, quality.other)
        )
        if there > 2 * max(here, 0.0) and there - here > 2 * quality.other.final.loss_se:
            warnings.append(
                "Other text suffers much more than yours: use this model only for text like yours."
            )
    return warnings


def held_out_line(record: PruneRecord) -> str:
    """A line about the text that the scores were measured on."""
    part = record.text.report
    noun = "sentences" if record.quality.unit == "cosine" else "passages"
    if record.settings.keeps_texts_whole:
        noun = "examples"
    source = "your text" if record.text.is_given else join_words(part.registers)
    return f"Measured on {part.examples:,} {noun} of {source}, {part.tokens:,} tokens."


def curve_table(curve: Curve) -> Table:
    """Quality by method and number of heads cut; curve.csv also has the range of random cuts."""
    methods = tuple(dict.fromkeys(curve.points.method))
    rows = []
    for cut, points in curve.points.groupby("cut", sort=True):
        quality = dict(zip(points["method"], points["quality"], strict=True))
        cells = (f"{quality[name]:.4g}" if name in quality else "-" for name in methods)
        rows.append((f"{cut} ({points['share'].iloc[0]:.0%})", *cells))
    return Table(f"{curve.unit} against heads cut", ("cut", *methods), rows, methods)


def speed_table(record: PruneRecord | Comparison) -> Table:
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
