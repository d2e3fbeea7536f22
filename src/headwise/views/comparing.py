"""A comparison of two models as tables and sentences, for the terminal and for the report."""

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from rich.markup import escape

from headwise.comparing.comparison import ALL_REGISTERS, Comparison, TextComparison
from headwise.drawing.table import Table
from headwise.formats import MOST_DECIMALS, format_count


def comparison_title(comparison: Comparison) -> str:
    """The names of both models, in rich markup."""
    before, after = (
        escape(model.name) for model in (comparison.model_before, comparison.model_after)
    )
    return f"[bold]{after}[/bold] compared with [bold]{before}[/bold]"


def texts_table(comparison: Comparison) -> Table:
    """Quality of both models and their agreement, one row per kind of text."""
    texts = comparison.texts
    columns = {name: _cells(texts, column) for name, column in _text_columns(comparison).items()}
    rows = list(zip((text.name for text in texts), *columns.values(), strict=True))
    return Table("Quality and agreement", ("", *columns), rows, list(columns))


class _Column(NamedTuple):
    """A column of estimates: their field, their unit, and the fewest decimals to show."""

    field: str
    unit: str = ""
    decimals: int = 3


def _text_columns(comparison: Comparison) -> dict[str, _Column]:
    """The columns that apply to a comparison, by their names."""
    first, unit = comparison.texts[0], comparison.unit
    columns: dict[str, _Column] = {}
    if unit == "perplexity":
        columns["before"] = _Column("quality_before", decimals=1)
        columns["after"] = _Column("quality_after", decimals=1)
        columns["ratio"] = _Column("ratio")
    elif first.loss_before is not None:
        columns["before"] = _Column("loss_before")
        columns["after"] = _Column("loss_after")
        columns["difference"] = _Column("loss_added")
    elif unit == "cosine":
        columns["cosine to before"] = _Column("quality_after")
    if first.agreement is not None:
        noun = "token" if unit == "perplexity" else "class"
        columns[f"same {noun}"] = _Column("agreement", "%", 1)
    if first.divergence is not None:
        columns["divergence"] = _Column("divergence")
    if first.neighbours_kept is not None:
        name = f"{comparison.num_neighbours} nearest kept"
        columns[name] = _Column("neighbours_kept", "%", 1)
    return columns


def _cells(texts: Sequence[TextComparison], column: _Column) -> list[str]:
    """Estimates with their errors, all with the decimals that the smallest error needs."""
    scale = 100 if column.unit == "%" else 1
    pairs = [
        (scale * value, scale * error) for value, error in map(attrgetter(column.field), texts)
    ]
    errors = [error for _, error in pairs if 0 < error < math.inf]
    needed = -math.floor(math.log10(min(errors))) if errors else 0
    decimals = min(MOST_DECIMALS, max(column.decimals, needed))
    return [
        f"{value:z.{decimals}f}"
        + (f" ± {error:.{decimals}f}" if math.isfinite(error) else "")
        + column.unit
        for value, error in pairs
    ]


def reading_line(comparison: Comparison) -> str:
    """A line about the text that was read and about the figures after each ±."""
    examples = sum(text.examples for text in comparison.texts if text.name != ALL_REGISTERS)
    noun = "sentence" if comparison.unit == "cosine" else "passage"
    line = (
        f"Measured by {comparison.objective} on {format_count(examples, noun)}, at most "
        f"{comparison.max_tokens:,} tokens of each kind of text. ± is one standard error"
    )
    if comparison.unit == "perplexity":
        line += "; that of the ratio is from paired differences"
    return f"{line}."
