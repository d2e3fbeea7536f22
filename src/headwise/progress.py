"""Progress: how long work reports how far it is, and how a caller stops it."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Called with a stage, the steps done and the steps in all; may raise StopWork."""

    def __call__(self, stage: str, done: int, total: int, /) -> None:
        """Report that `done` of `total` steps of `stage` are complete."""


class StopWork(Exception):
    """Raised inside a progress callback to stop the work; nothing catches it on the way out."""


def no_progress(stage: str, done: int, total: int, /) -> None:
    """Ignore progress."""
