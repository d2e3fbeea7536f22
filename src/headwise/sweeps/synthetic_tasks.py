"""Three tasks on random symbols: Relations, Recall and Brackets.

Settings and a generator go in, Examples come out. docs/sweep.md describes the tasks and results.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.sweeps.task import (
    NO_ANSWER,
    NOWHERE,
    Examples,
    SweepTask,
    last_before,
    read_at,
)

Letters = Int[Tensor, "batch position"]


def _back(letters: Letters, steps: int) -> Letters:
    """Position `steps` before each."""
    places = torch.arange(letters.shape[1]) - steps
    return places.clamp(min=NOWHERE).expand_as(letters)


def _first(letters: Letters) -> Letters:
    """The first position of the sequence."""
    places = torch.zeros_like(letters)
    places[:, 0] = NOWHERE  # nothing is asked at the first position itself
    return places


def _same_class(letters: Letters, classes: int) -> Letters:
    """Position of the last earlier letter of the same class: its number modulo `classes`."""
    letters = letters % classes
    return last_before(letters[:, :, None] == letters[:, None])


def _largest(letters: Letters) -> Letters:
    """Position of the largest earlier letter; the last one among equals."""
    size = letters.shape[1]
    ranks = letters * size + torch.arange(size)
    best = ranks.cummax(1).values[:, :-1] % size
    return torch.nn.functional.pad(best, (1, 0), value=NOWHERE)


def _followed(letters: Letters) -> Letters:
    """Position after the last equal letter. Needs two layers: no key knows what was before it."""
    places = last_before(letters[:, :, None] == letters[:, None])
    after = torch.where(places == NOWHERE, NOWHERE, places + 1)
    return torch.where(after < torch.arange(letters.shape[1]), after, NOWHERE)


@dataclass(frozen=True)
class Relations(SweepTask):
    """Report several earlier letters at every position.

    Each relation needs its own attention pattern. One softmax gives one pattern: if it attends to
    four positions, it returns a blend of four letters. The letters are random, so that nothing can
    be guessed.
    """

    name: ClassVar[str] = "relations"

    relations: int = 4
    """Number of relations, in the order of `RELATIONS`."""
    letters: int = 64
    classes: int = 8
    length: int = 16

    def __post_init__(self) -> None:
        """Check every setting."""
        whole_number("relations", self.relations, least=1, most=len(RELATIONS))
        self.check_least(2, "letters", "classes", "length")
        for name in self.questions:
            least = SHORTEST.get(name, 2)
            if self.length < least:
                raise OptionError(
                    f"length is {self.length}: the relation {name} needs at least {least}; use a "
                    "larger length or fewer relations",
                    option="length",
                )

    @property
    def layers_needed(self) -> int:
        """One layer; two for the relation `followed`."""
        return 2 if "followed" in self.questions else self.layers

    @property
    def questions(self) -> tuple[str, ...]:
        """Names of the relations."""
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
        """Random letters; by default there are too many sequences to draw one twice."""
        letters = torch.randint(self.letters, (count, self.length), generator=random)
        places = torch.stack([RELATIONS[name](self, letters) for name in self.questions], -1)
        answers = [read_at(letters, place) for place in places.unbind(-1)]
        return Examples(letters[..., None], torch.stack(answers, -1), places)


RELATIONS: dict[str, Callable[[Relations, Letters], Letters]] = {
    "previous": lambda _, letters: _back(letters, 1),
    "first": lambda _, letters: _first(letters),
    "class": lambda task, letters: _same_class(letters, task.classes),
    "second": lambda _, letters: _back(letters, 2),
    "largest": lambda _, letters: _largest(letters),
    "third": lambda _, letters: _back(letters, 3),
    "followed": lambda _, letters: _followed(letters),
}
"""Position of each relation's answer, for every position of some sequences."""
SHORTEST = {"second": 3, "third": 4, "followed": 3}
"""Shortest sequence in which a relation is asked, if two positions are not enough."""


@dataclass(frozen=True)
class Recall(SweepTask):
    """Find the value of a key among `pairs` pairs."""

    name: ClassVar[str] = "recall"

    pairs: int = 16
    keys: int = 64
    """Number of keys to draw from; all keys of one sequence differ."""
    values: int = 16

    def __post_init__(self) -> None:
        """Check every setting."""
        self.check_least(2, "pairs", "values")
        if self.pairs > self.keys:
            raise OptionError(
                f"pairs is {self.pairs}: it must be at most keys, which is {self.keys}",
                option="pairs",
            )

    @property
    def questions(self) -> tuple[str, ...]:
        """The one question."""
        return ("value",)

    @property
    def num_symbols(self) -> int:
        """Keys, values, and a sign that asks for a value."""
        return self.keys + self.values + 1

    @property
    def num_answers(self) -> int:
        """The values."""
        return self.values

    @property
    def positions(self) -> int:
        """Every pair, then every key again."""
        return 2 * self.pairs

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> Examples:
        """Pairs in random order, then all their keys in another."""
        keys = torch.rand(count, self.keys, generator=random).argsort(1)[:, : self.pairs]
        values = torch.randint(self.values, (count, self.pairs), generator=random)
        order = torch.rand(count, self.pairs, generator=random).argsort(1)
        pairs = torch.stack([keys, self.keys + values], -1)
        sign = torch.full_like(keys, self.keys + self.values)
        questions = torch.stack([keys.gather(1, order), sign], -1)
        no_answers = torch.full_like(keys, NO_ANSWER)
        answers = torch.cat([no_answers, values.gather(1, order)], 1)
        places = torch.cat([torch.full_like(keys, NOWHERE), order], 1)
        return Examples(torch.cat([pairs, questions], 1), answers[..., None], places[..., None])


@dataclass(frozen=True)
class Brackets(SweepTask):
    """Name the partner of every closing bracket, nested up to `depth`."""

    name: ClassVar[str] = "brackets"
    layers: ClassVar[int] = 2

    labels: int = 8
    """Number of kinds of opening brackets; there is one closing bracket."""
    depth: int = 4
    length: int = 32

    def __post_init__(self) -> None:
        """Check every setting."""
        self.check_least(2, "labels", "length")
        self.check_least(1, "depth")

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
        """Random walks: at every position a bracket opens or closes, as the depth allows."""
        rows = torch.arange(count)
        depth = torch.zeros(count, dtype=torch.long)
        opened_at = torch.zeros(count, self.depth + 1, dtype=torch.long)
        labels = torch.randint(self.labels, (count, self.length), generator=random)
        wishes = torch.rand(count, self.length, generator=random) < 0.5
        symbols, places = labels.clone(), torch.full_like(labels, NOWHERE)
        for position in range(self.length):
            closes = (wishes[:, position] & (depth > 0)) | (depth == self.depth)
            places[:, position] = torch.where(closes, opened_at[rows, depth], NOWHERE)
            symbols[:, position] = torch.where(closes, self.labels, labels[:, position])
            depth = torch.where(closes, depth - 1, depth + 1)
            opened_at[rows, depth] = torch.where(closes, opened_at[rows, depth], position)
        answers = read_at(labels, places)
        return Examples(symbols[..., None], answers[..., None], places[..., None])
