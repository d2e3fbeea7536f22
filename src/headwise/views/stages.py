"""A progress bar for work of several stages, each of which counts its own steps."""

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)


class Stages:
    """Told of a stage and its steps, shows a bar while there is a terminal to show it on."""

    def __init__(self, console: Console) -> None:
        """Nothing shown yet."""
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
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
