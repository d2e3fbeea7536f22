"""A progress bar for long work: tokens done, tokens per second, time left."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
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


class ProgressBar:
    """Told of tokens, shows a bar while there is a terminal to show it on."""

    def __init__(self, console: Console) -> None:
        """Nothing shown yet."""
        self.progress = Progress(
            TextColumn("scanning"),
            BarColumn(),
            MofNCompleteColumn(),
            Rate(""),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
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
