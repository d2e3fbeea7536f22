"""What commands share: the terminal, and files written aside."""

from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import OptionError
from headwise.files import write_aside

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def quiet_console(*, is_stderr: bool = False, width: int | None = None) -> "Console":
    """A terminal that colours nothing but what is asked for; a width is believed to be its own."""
    from rich.console import Console

    return Console(stderr=is_stderr, highlight=False, width=width)


def show_table(console: "Console", table: "Table") -> None:
    """A table whose figures are whole: it goes beyond the edge of too narrow a terminal.

    Columns of words become as narrow as their longest word before that.
    """
    from rich.measure import Measurement, measure_renderables

    wide = console.options.update(max_width=WIDEST)
    words = [
        measure_renderables(console, wide, [column.header, *column.cells])
        for column in table.columns
        if column.justify != "right" and not column.no_wrap
    ]
    spare = sum(one.maximum - one.minimum for one in words)
    needed = Measurement.get(console, wide, table).maximum - spare
    (console if needed <= console.width else quiet_console(width=needed)).print(table)


WIDEST = 10_000
"""Columns that no table has."""


def say(console: "Console", line: str) -> None:
    """One line as it is: paths in it are neither broken nor read as markup."""
    console.print(line, markup=False, soft_wrap=True)


def check_new(path: Path, ending: str, *, force: bool) -> None:
    """Refuse a file that cannot be written, or should not be, before any work is done."""
    if path.is_dir():
        raise OptionError(f"{path} is a folder: give the name of a file")
    if path.suffix.lower() not in ("", ending):
        raise OptionError(
            f"{path} has the ending of another format: give a name that ends in {ending}"
        )
    if path.exists() and not force:
        raise OptionError(f"{path} already exists: choose another name, or give --force")
    if not path.parent.is_dir():
        raise OptionError(f"there is no folder {path.parent}: make it first, or choose another")


def write_new(path: Path, text: str, ending: str, *, force: bool) -> None:
    """Write beside the place and move there; what is there already stays unless it is forced."""
    check_new(path, ending, force=force)
    write_aside(path, text)
