"""Progress: how a long task reports how far along it is, and how a caller stops it."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Callback for a stage, its steps done and its total steps; may raise StopWork."""

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """Report that `done` of `total` steps of `stage` are complete."""


class StopWork(Exception):
    """Raised inside a progress callback to stop the work; it propagates to the caller."""


def no_progress(stage: str, done: int, total: int, /) -> None:
    """Ignore progress."""
