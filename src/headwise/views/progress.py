"""Progress bars: one for a known number of tokens, one for work of several stages."""

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
from rich.text import Text


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


class Stages:
    """Told of a stage and its steps, shows the stage that is under way."""

    def __init__(self, console: Console) -> None:
        """Nothing shown yet."""
        self.progress = bar_on(console)
        self.stage = ""
        self.task: TaskID | None = None

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
        if self.task is not None and (stage != self.stage or done <= 1):
            self.progress.remove_task(self.task)
            self.task = None
        if self.task is None:
            self.task = self.progress.add_task(stage, total=total)
        self.stage = stage
        self.progress.update(self.task, completed=done, total=total)
