"""Relations: every position reports several things at once, each of which stands somewhere else.

What it needs: for each relation a pattern of attention of its own. One softmax gives one pattern;
if it looks at four places, it brings back one blend of four letters. What can still be told of them
depends on how many letters there are and how wide the values: see docs/sweep.md.

The letters are random, so that nothing can be guessed. A letter's class is its number modulo the
number of classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.errors import OptionError
from headwise.sweeps.task import (
    NOTHING,
    NOWHERE,
    Examples,
    SweepTask,
    check_at_least,
    last_before,
    read_at,
)

Letters = Int[Tensor, "batch position"]


def back(letters: Letters, steps: int) -> Letters:
    """So many positions before."""
    places = torch.arange(letters.shape[1]) - steps
    return places.clamp(min=NOWHERE).expand_as(letters)


def first(letters: Letters) -> Letters:
    """The beginning of the sequence."""
    places = torch.zeros_like(letters)
    places[:, 0] = NOWHERE  # the first one need not look for itself
    return places


def same_class(letters: Letters, classes: int) -> Letters:
    """The last earlier letter of the same class."""
    kinds = letters % classes
    return last_before(kinds[:, :, None] == kinds[:, None])


def largest(letters: Letters) -> Letters:
    """The largest letter so far; of equals the last, and not the position itself."""
    size = letters.shape[1]
    ranks = letters * size + torch.arange(size)
    best = ranks.cummax(1).values[:, :-1] % size
    return torch.nn.functional.pad(best, (1, 0), value=NOWHERE)


def followed(letters: Letters) -> Letters:
    """What followed the last equal letter: takes two layers, for no key knows what stood before."""
    places = last_before(letters[:, :, None] == letters[:, None])
    after = torch.where(places == NOWHERE, NOWHERE, places + 1)
    return torch.where(after < torch.arange(letters.shape[1]), after, NOWHERE)


@dataclass(frozen=True)
class Relations(SweepTask):
    """Report several things at every position."""

    name: ClassVar[str] = "relations"

    relations: int = 4
    """How many, in the order of `RELATIONS`."""
    letters: int = 64
    classes: int = 8
    length: int = 16

    def __post_init__(self) -> None:
        """Refuse what cannot be asked."""
        if not 1 <= self.relations <= len(RELATIONS):
            raise OptionError(
                f"relations is {self.relations}: choose from 1 to {len(RELATIONS)}, which are "
                f"{', '.join(RELATIONS)}",
                option="relations",
            )
        check_at_least(2, letters=self.letters, classes=self.classes, length=self.length)
        for name in self.questions:
            least = SHORTEST.get(name, 2)
            if self.length < least:
                raise OptionError(
                    f"length is {self.length}, and {name} is asked of sequences of {least} and "
                    "more: give a larger length or fewer relations",
                    option="length",
                )

    @property
    def layers_needed(self) -> int:
        """One; two for what followed."""
        return 2 if "followed" in self.questions else self.layers

    @property
    def questions(self) -> tuple[str, ...]:
        """The relations asked for."""
        return tuple(RELATIONS)[: self.relations]

    @property
    def num_symbols(self) -> int:
        """The letters."""
        return self.letters

    @property
    def num_answers(self) -> int:
        """The letters."""
        return self.letters

    @property
    def positions(self) -> int:
        """Length of a sequence."""
        return self.length

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> Examples:
        """Random letters; of the default ones there are too many to meet a sequence twice."""
        letters = torch.randint(self.letters, (count, self.length), generator=random)
        places = torch.stack([RELATIONS[name](self, letters) for name in self.questions], -1)
        answers = [read_at(letters, places[..., one]) for one in range(self.relations)]
        return Examples(letters[..., None], torch.stack(answers, -1), places)


RELATIONS: dict[str, Callable[[Relations, Letters], Letters]] = {
    "previous": lambda _, letters: back(letters, 1),
    "first": lambda _, letters: first(letters),
    "class": lambda task, letters: same_class(letters, task.classes),
    "second": lambda _, letters: back(letters, 2),
    "largest": lambda _, letters: largest(letters),
    "third": lambda _, letters: back(letters, 3),
    "followed": lambda _, letters: followed(letters),
}
"""Where the answer of each relation stands, for every position of some sequences."""
SHORTEST = {"second": 3, "third": 4, "followed": 3}
"""Length from which on a relation is asked for, where two are not enough."""


@dataclass(frozen=True)
class Recall(SweepTask):
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
            raise OptionError(
                f"pairs is {self.pairs}, and there are {self.keys} keys to draw from",
                option="pairs",
            )

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


@dataclass(frozen=True)
class Brackets(SweepTask):
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
