"""Table: columns and rows of text, rendered for a terminal, an HTML page or Markdown."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwise.drawing.html import Html, scrolling, tag

if TYPE_CHECKING:
    from rich.table import Table as RichTable

FULL_ROWS, FULL_COLUMNS = 20, 16
"""Largest matrix that is shown in full, in a terminal and on a page."""


def is_small(rows: int, columns: int) -> bool:
    """Whether a matrix of this size is shown in full."""
    return rows <= FULL_ROWS and columns <= FULL_COLUMNS


@dataclass(frozen=True)
class Table:
    """A titled table of text. The first cell of a row names the row.

    >>> table = Table("Sizes", ("", "before"), [("heads", "72")], ["before"])
    >>> print(table.to_markdown())
    |  | before |
    |---|---:|
    | heads | 72 |
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    numeric: Collection[str] = ()
    """Columns of numbers, which are right-aligned."""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), "one cell per column"

    def to_rich(
        self, *, is_ruled: bool = True, styles: Mapping[str, str] | None = None
    ) -> "RichTable":
        """A rich table, with a rule below the header or a dim header.

        `styles` maps the texts of cells to rich styles.
        """
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(self.title, style="bold") if self.title else None,
            title_justify="left",
            box=SIMPLE_HEAD if is_ruled else None,
            header_style="bold" if is_ruled else "dim",
            pad_edge=False,
            collapse_padding=is_ruled,
        )
        for column in self.columns:
            if column in self.numeric:
                table.add_column(Text(column), justify="right", no_wrap=True)
            else:
                table.add_column(Text(column))
        for row in self.rows:
            table.add_row(*(Text(cell, style=(styles or {}).get(cell, "")) for cell in row))
        return table

    def to_html(self) -> Html:
        """An HTML table that scrolls sideways on a narrow screen; empty if there are no rows."""
        if not self.rows:
            return Html("")
        classes = [{"class_": "n"} if name in self.numeric else {} for name in self.columns]
        head = (
            tag("th", column, scope="col", **class_)
            for column, class_ in zip(self.columns, classes, strict=True)
        )
        body = []
        for name, *cells in self.rows:
            pairs = zip(cells, classes[1:], strict=True)
            numbers = (tag("td", cell, **class_) for cell, class_ in pairs)
            body.append(tag("tr", tag("th", name, scope="row"), *numbers))
        caption = tag("caption", tag("span", self.title)) if self.title else ""
        parts = [caption, tag("thead", tag("tr", *head)), tag("tbody", *body)]
        return scrolling(self.title, tag("table", *parts, class_="data"))

    def to_markdown(self) -> str:
        """The table in Markdown, without its title."""
        rule = "".join("---:|" if column in self.numeric else "---|" for column in self.columns)
        lines = [
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
            for row in (self.columns, *self.rows)
        ]
        return "\n".join([lines[0], f"|{rule}", *lines[1:]])
