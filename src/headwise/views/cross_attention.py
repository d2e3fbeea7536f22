"""Heads of cross-attention for the terminal: the measures that make sense between two sequences."""

from rich.table import Table as RichTable

from headwise.drawing.table import Table
from headwise.formats import format_number
from headwise.head_table import HeadTable

SHOWN = 8
"""Number of heads to show, those whose peaks keep the order of the other sequence first."""
TITLES = {
    "peak_order": "peak moves on",
    "peak": "mean peak",
    "confidence": "largest weight",
    "normalised_entropy": "entropy",
    "silence": "on silence",
    "uniform_silence": "equal weights",
}
"""Titles of the columns; one without any value is left out."""


def cross_attention(table: HeadTable) -> RichTable | None:
    """The heads that look at another sequence, the most orderly first; None if there are none."""
    if "peak_order" not in table.df:
        return None
    rows = table.df[table.df["peak"].notna()]
    if rows.empty:
        return None
    rows = rows.sort_values("peak_order", ascending=False, kind="stable").head(SHOWN)
    columns = [name for name in TITLES if name in rows and rows[name].notna().any()]
    names = [str(table.heads[int(index)]) for index in rows.index]
    cells = [
        (name, *(format_number(row[column]) for column in columns))
        for name, (_, row) in zip(names, rows.iterrows(), strict=True)
    ]
    titles = [TITLES[column] for column in columns]
    return Table("", ["cross-attention", *titles], cells, titles).to_rich(is_ruled=False)
