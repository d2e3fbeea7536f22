"""One table as terminal text, HTML and Markdown: same cells, escaped for each."""

import io
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from headwise.drawing.html import Html
from headwise.drawing.table import Table

TABLE = Table(
    "Sizes <of> [red]m[/red]",
    ("what", "before", "[b]after"),
    (("heads | <i>", "72", "50"), ("[/INST]", "1,200", "7")),
    frozenset({"before", "[b]after"}),
)


def print_rich(table: Table, **options: bool) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(table.to_rich(**options))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_terminal_shows_cells_as_they_are_and_aligns_numbers_right() -> None:
    title, header, rule, *rows = print_rich(TABLE)
    assert title == "Sizes <of> [red]m[/red]"
    assert rows[0].strip().startswith("heads | <i>  ") and rows[1].strip().startswith("[/INST]")
    assert set(rule.strip()) == {"─"}
    assert header.index("before") + len("before") == rows[0].index("72") + 2
    assert len(rows[0]) == len(rows[1]) == len(header)


def test_unruled_table_has_no_rule() -> None:
    assert len(print_rich(TABLE, is_ruled=False)) == len(print_rich(TABLE)) - 1


def test_style_colours_the_cells_with_its_text() -> None:
    table = Table("", ("role",), (("sink",), ("broad",))).to_rich(styles={"sink": "red"})
    assert [cell.style for cell in table.columns[0].cells] == ["red", ""]


def test_html_is_well_formed_escaped_and_marks_numbers() -> None:
    root = ET.fromstring(TABLE.to_html())
    caption = root.find(".//caption/span")
    assert caption is not None and caption.text == TABLE.title
    assert [cell.text for cell in root.findall(".//thead//th")] == list(TABLE.columns)
    rows = [tuple(cell.text for cell in row) for row in root.findall(".//tbody/tr")]
    assert rows == list(TABLE.rows)
    assert {cell.get("class") for cell in root.findall(".//tbody//td")} == {"n"}
    assert {cell.get("scope") for cell in root.findall(".//tbody//th")} == {"row"}


def test_html_cells_are_not_escaped_twice() -> None:
    text = Table("", ("a", "b"), (("x", Html("<b>y</b>")),)).to_html()
    assert "<td><b>y</b></td>" in text and "<caption>" not in text


def test_html_of_no_rows_is_empty() -> None:
    assert Table("Sizes", ("a",), ()).to_html() == ""


def test_markdown_escapes_pipes_and_aligns_numbers() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "| what | before | [b]after |",
        "|---|---:|---:|",
        r"| heads \| <i> | 72 | 50 |",
        "| [/INST] | 1,200 | 7 |",
    ]


def test_row_with_too_few_cells_fails() -> None:
    with pytest.raises(AssertionError):
        Table("", ("a", "b"), (("x",),))
