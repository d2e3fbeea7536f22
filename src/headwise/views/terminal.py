"""Terminal output: consoles, tables that never cut off numbers, progress, and new files."""

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement, measure_renderables
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable
from rich.text import Text

from headwise.drawing.table import Table
from headwise.errors import OptionError
from headwise.files import write_aside

SECONDS_BETWEEN_LINES = 30.0
"""Without a terminal, a running stage prints a line this often."""
WIDEST = 10_000
"""Wider than any table."""


def quiet_console(*, is_stderr: bool = False, width: int | None = None) -> Console:
    """A console with automatic highlighting turned off; `width` overrides the terminal's."""
    return Console(stderr=is_stderr, highlight=False, width=width)


def say(console: Console, line: str) -> None:
    """Print one line unchanged: neither wrapped nor parsed as markup, so that paths stay intact."""
    console.print(line, markup=False, soft_wrap=True)


def show_table(console: Console, table: Table | RichTable) -> None:
    """Print a table in full. If it does not fit, only columns of text shrink, at most to a word."""
    table = table.to_rich() if isinstance(table, Table) else table
    wide = console.options.update(max_width=WIDEST)
    text_widths = [
        measure_renderables(console, wide, [column.header, *column.cells])
        for column in table.columns
        if column.justify != "right" and not column.no_wrap
    ]
    spare = sum(width.maximum - width.minimum for width in text_widths)
    needed = Measurement.get(console, wide, table).maximum - spare
    (console if needed <= console.width else quiet_console(width=needed)).print(table)


def check_new(path: Path, suffix: str, *, force: bool) -> None:
    """Raise OptionError if the file cannot be written, or exists and `force` is False."""
    if path.is_dir():
        raise OptionError(f"{path} is a folder: give the name of a file")
    if path.suffix.lower() not in ("", suffix):
        raise OptionError(f"{path} ends in {path.suffix}: give a name that ends in {suffix}")
    if path.exists() and not force:
        raise OptionError(f"{path} already exists: choose another name, or replace it with --force")
    if not path.parent.is_dir():
        raise OptionError(f"folder {path.parent} does not exist: create it, or choose another")


def write_new(path: Path, text: str, suffix: str, *, force: bool) -> None:
    """Write a file atomically, after the checks in `check_new`."""
    check_new(path, suffix, force=force)
    write_aside(path, text)


class ProgressDisplay:
    """A `headwise.progress.Progress` and context manager that shows the running stage.

    A terminal shows a bar. Elsewhere, if `prints_lines`, each stage prints a line when it starts
    and every half minute. A stage with a total of 0 is a remark, which stays on the screen. If
    `unit` names the steps, the bar also shows their number per second.
    """

    def __init__(
        self,
        console: Console,
        *,
        prints_lines: bool = False,
        unit: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._clock = console, clock
        self._prints_lines = prints_lines and not console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            *([_Rate()] if unit else []),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", visible=False, unit=unit)
        self._stage, self._done = "", 0
        self._announced: set[str] = set()
        self._last_line = clock()

    def __enter__(self) -> "ProgressDisplay":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show `done` of `total` steps; a new or restarted stage resets the bar."""
        if not total:
            say(self._console, f"headwise: {stage}")
            return
        is_new = stage not in self._announced
        is_due = is_new or self._clock() - self._last_line >= SECONDS_BETWEEN_LINES
        if self._prints_lines and is_due:
            count = "" if is_new and not done else f", {done:,} of {total:,}"
            say(self._console, f"headwise: {stage}{count}")
            self._announced.add(stage)
            self._last_line = self._clock()
        if stage != self._stage or done < self._done:
            self._bar.reset(self._task, description=stage, visible=True)
        self._stage, self._done = stage, done
        self._bar.update(self._task, completed=done, total=total)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} {task.fields['unit']}/s" if task.speed else "")
