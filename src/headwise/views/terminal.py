"""Progress bars: one for a known number of tokens, one for work of several stages."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from headwise.errors import OptionError
from headwise.files import write_aside


class Rate(TextColumn):
    """Tokens per second."""

    def render(self, task: object) -> Text:
        """The speed of the last seconds, or nothing yet."""
        speed = getattr(task, "speed", None)
        return Text(f"{speed:,.0f} tokens/s" if speed else "")


def bar_on(console: Console, *more: ProgressColumn) -> Progress:
    """A bar that is shown while there is a terminal to show it on, and then taken away."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *more,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class ProgressBar:
    """Told of tokens, shows how many are done, how fast, and the time left."""

    def __init__(self, console: Console) -> None:
        """Nothing shown yet."""
        self.progress = bar_on(console, Rate(""))
        self.task: TaskID | None = None

    def start(self, tokens: int) -> None:
        """Show an empty bar for so many tokens."""
        self.progress.start()
        self.task = self.progress.add_task("scanning", total=tokens)

    def advance(self, tokens: int) -> None:
        """Move on."""
        if self.task is not None:
            self.progress.advance(self.task, tokens)

    def stop(self) -> None:
        """Take the bar away."""
        self.progress.stop()


SECONDS_BETWEEN_LINES = 30.0
"""After which a stage that still goes on is named again where there is no terminal."""


class Stages:
    """Told of a stage and its steps, shows the stage that is under way.

    On a terminal by a bar; elsewhere, if it `tells`, by a line for every stage and for every half
    minute. A stage of no steps is a remark, and stays on the screen.
    """

    def __init__(
        self,
        console: Console,
        *,
        tells: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing shown yet."""
        self.clock = clock
        self.tells = tells and not console.is_terminal
        self.progress = bar_on(console)
        self.stage, self.done = "", 0
        self.task: TaskID | None = None
        self.named: set[str] = set()
        self.told = clock()

    def __enter__(self) -> "Stages":
        """Begin."""
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self.progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """A stage has come so far; a new one, or the same anew, gets a bar of its own."""
        if not total:
            self.say(stage)
            return
        if self.tells:
            self.tell(stage, done, total)
        if self.task is not None and (stage != self.stage or done < self.done):
            self.progress.remove_task(self.task)
            self.task = None
        if self.task is None:
            self.task = self.progress.add_task(stage, total=total)
        self.stage, self.done = stage, done
        self.progress.update(self.task, completed=done, total=total)

    def tell(self, stage: str, done: int, total: int) -> None:
        """Say how far a stage is, if it is a new one or nothing was said for long."""
        if stage in self.named and self.clock() - self.told < SECONDS_BETWEEN_LINES:
            return
        is_new = stage not in self.named and not done
        self.say(stage if is_new else f"{stage}, {done:,} of {total:,}")
        self.named.add(stage)
        self.told = self.clock()

    def say(self, words: str) -> None:
        """A line that stays."""
        self.progress.console.print(f"headwise: {words}", markup=False, soft_wrap=True)


def quiet_console(*, is_stderr: bool = False, width: int | None = None) -> "Console":
    """A terminal that colours nothing but what is asked for; a width is believed to be its own."""
    from rich.console import Console

    return Console(stderr=is_stderr, highlight=False, width=width)


def show_table(console: Console, table: Table) -> None:
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
