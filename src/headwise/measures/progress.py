"""Progress: who is told how far a scan has come."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Reporter(Protocol):
    """Told of tokens as they are read."""

    def start(self, tokens: int) -> None:
        """The work begins; so many tokens in all."""

    def advance(self, tokens: int) -> None:
        """So many more tokens are done."""

    def stop(self) -> None:
        """The work has ended, or was stopped."""


class Quiet:
    """Tells nobody."""

    def start(self, tokens: int) -> None:
        """Nothing."""

    def advance(self, tokens: int) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""
