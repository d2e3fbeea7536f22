"""Recall: pairs of a key and a value are shown, then keys alone, and their values are asked for.

What it needs: one pattern of attention, and a head wide enough to tell the keys apart. Scores of a
head are products of vectors of d_key numbers, so that a matrix of scores has at most the rank d_key
(Bhojanapalli et al. 2020, https://arxiv.org/abs/2002.07028): with few numbers and many keys, some
pairs lie too close to each other for a softmax to choose between.

A pair stands at one position, so that one layer is enough.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from headwise.errors import OptionError
from headwise.sweeps.task import NOTHING, NOWHERE, Examples, Task, check_at_least


@dataclass(frozen=True)
class Recall(Task):
    """Find the value of a key among so many pairs."""

    name: ClassVar[str] = "recall"

    pairs: int = 16
    keys: int = 64
    """How many keys there are to draw from; in one sequence all are different."""
    values: int = 16

    def __post_init__(self) -> None:
        """Refuse more pairs than there are keys."""
        check_at_least(2, pairs=self.pairs, values=self.values)
        if self.pairs > self.keys:
            raise OptionError(f"pairs is {self.pairs}, and there are {self.keys} keys to draw from")

    @property
    def questions(self) -> tuple[str, ...]:
        """The one question."""
        return ("value",)

    @property
    def num_symbols(self) -> int:
        """Keys, values, and a sign that a value is asked for."""
        return self.keys + self.values + 1

    @property
    def num_answers(self) -> int:
        """The values."""
        return self.values

    @property
    def positions(self) -> int:
        """Every pair, and every key once more."""
        return 2 * self.pairs

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> Examples:
        """Pairs in random order, then all their keys in another."""
        keys = torch.rand(count, self.keys, generator=random).argsort(1)[:, : self.pairs]
        values = torch.randint(self.values, (count, self.pairs), generator=random)
        order = torch.rand(count, self.pairs, generator=random).argsort(1)
        shown = torch.stack([keys, self.keys + values], -1)
        sign = torch.full_like(keys, self.keys + self.values)
        asked = torch.stack([keys.gather(1, order), sign], -1)
        nothing = torch.full_like(keys, NOTHING)
        answers = torch.cat([nothing, values.gather(1, order)], 1)
        places = torch.cat([torch.full_like(keys, NOWHERE), order], 1)
        return Examples(torch.cat([shown, asked], 1), answers[..., None], places[..., None])
