"""Brackets: every closing bracket reports the label of the opening one that it closes.

What it needs: depth first, then the last opening bracket of the same depth. To know its depth, a
position has to look at everything before it at once, evenly; to find its partner, at one place.
That is two layers, and in the second a head that is sharp.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from headwise.sweeps.task import NOWHERE, Examples, Task, check_at_least, read_at


@dataclass(frozen=True)
class Brackets(Task):
    """Match brackets up to some depth."""

    name: ClassVar[str] = "brackets"
    layers: ClassVar[int] = 2

    labels: int = 8
    """Kinds of opening brackets; closing ones are all alike."""
    depth: int = 4
    length: int = 32

    def __post_init__(self) -> None:
        """Refuse brackets that cannot be told apart or nested."""
        check_at_least(2, labels=self.labels, length=self.length)
        check_at_least(1, depth=self.depth)

    @property
    def questions(self) -> tuple[str, ...]:
        """The one question."""
        return ("partner",)

    @property
    def num_symbols(self) -> int:
        """Every opening bracket, and the closing one."""
        return self.labels + 1

    @property
    def num_answers(self) -> int:
        """The labels."""
        return self.labels

    @property
    def positions(self) -> int:
        """Length of a sequence."""
        return self.length

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> Examples:
        """Random walks: at every position one opens or closes, as depth allows."""
        rows = torch.arange(count)
        depth = torch.zeros(count, dtype=torch.long)
        opened_at = torch.zeros(count, self.depth + 1, dtype=torch.long)
        labels = torch.randint(self.labels, (count, self.length), generator=random)
        wishes = torch.rand(count, self.length, generator=random) < 0.5
        symbols, places = labels.clone(), torch.full_like(labels, NOWHERE)
        for at in range(self.length):
            closes = (wishes[:, at] & (depth > 0)) | (depth == self.depth)
            places[:, at] = torch.where(closes, opened_at[rows, depth], NOWHERE)
            symbols[:, at] = torch.where(closes, self.labels, labels[:, at])
            depth = torch.where(closes, depth - 1, depth + 1)
            opened_at[rows, depth] = torch.where(closes, opened_at[rows, depth], at)
        answers = read_at(labels, places)
        return Examples(symbols[..., None], answers[..., None], places[..., None])
