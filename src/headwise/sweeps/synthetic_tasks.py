"""Three tasks on random symbols: Relations, Recall and Brackets; docs/sweep.md describes them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.sweeps.task import NO_ANSWER, NOWHERE, SweepTask, TaskExamples, TaskShape

Letters = Int[Tensor, "batch position"]


def _back(letters: Letters, steps: int) -> Letters:
    places = torch.arange(letters.shape[1]) - steps
    return places.clamp(min=NOWHERE).expand_as(letters)


def _last_equal(letters: Letters) -> Letters:
    """Position of the most recent letter that equals the one at each position."""
    is_earlier_equal = (letters[:, :, None] == letters[:, None]).tril(-1)
    return (is_earlier_equal * torch.arange(1, letters.shape[1] + 1)).amax(-1) - 1


def _largest(letters: Letters) -> Letters:
    """Position of the largest letter before each position; the last of them if there is a tie."""
    size = letters.shape[1]
    ranks = letters * size + torch.arange(size)
    best = ranks.cummax(1).values[:, :-1] % size
    return torch.nn.functional.pad(best, (1, 0), value=NOWHERE)


def _after_equal(letters: Letters) -> Letters:
    """Position after the most recent equal letter; a model needs two layers to find it."""
    places = _last_equal(letters)
    after = torch.where(places == NOWHERE, NOWHERE, places + 1)
    return torch.where(after < torch.arange(letters.shape[1]), after, NOWHERE)


def _read_at(symbols: Letters, places: Letters) -> Letters:
    """The symbol at each position in `places`; `NO_ANSWER` for `NOWHERE`."""
    answers = symbols.gather(1, places.clamp(min=0))
    return answers.masked_fill(places == NOWHERE, NO_ANSWER)


@dataclass(frozen=True)
class Relations(SweepTask):
    """Report several earlier letters at every position.

    Each relation needs its own attention pattern, but a head has only one: if it attends to four
    positions, it returns a blend of four letters. The letters are random, so none can be guessed.
    """

    name: ClassVar[str] = "relations"

    relations: int = 4
    """Number of relations, in the order of `RELATIONS`."""
    letters: int = 64
    classes: int = 8
    length: int = 16

    def __post_init__(self) -> None:
        whole_number("relations", self.relations, least=1, most=len(RELATIONS))
        self.check_least(2, "letters", "classes", "length")
        for name in self.shape.questions:
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
        return 2 if "followed" in self.shape.questions else self.layers

    @property
    def shape(self) -> TaskShape:
        """One question per relation; symbols and answers are letters."""
        return TaskShape(
            questions=tuple(RELATIONS)[: self.relations],
            num_symbols=self.letters,
            num_answers=self.letters,
            length=self.length,
        )

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> TaskExamples:
        """Random letters; by default there are too many sequences for one to be drawn twice."""
        letters = torch.randint(self.letters, (count, self.length), generator=random)
        relations = [RELATIONS[name] for name in self.shape.questions]
        places = torch.stack([find(self, letters) for find in relations], -1)
        answers = [_read_at(letters, place) for place in places.unbind(-1)]
        return TaskExamples(letters[..., None], torch.stack(answers, -1), places)


RELATIONS: dict[str, Callable[[Relations, Letters], Letters]] = {
    "previous": lambda _, letters: _back(letters, 1),
    "first": lambda _, letters: _back(letters, 1).clamp(max=0),
    "class": lambda task, letters: _last_equal(letters % task.classes),
    "second": lambda _, letters: _back(letters, 2),
    "largest": lambda _, letters: _largest(letters),
    "third": lambda _, letters: _back(letters, 3),
    "followed": lambda _, letters: _after_equal(letters),
}
"""For each relation, a function that returns where the answer is, for every position."""
SHORTEST = {"second": 3, "third": 4, "followed": 3}
"""Length of the shortest sequence that has an answer, for relations that need more than two."""


@dataclass(frozen=True)
class Recall(SweepTask):
    """Find the value of a key among `pairs` pairs."""

    name: ClassVar[str] = "recall"

    pairs: int = 16
    keys: int = 64
    """Number of keys to draw from; all keys in a sequence differ."""
    values: int = 16

    def __post_init__(self) -> None:
        self.check_least(2, "pairs", "values")
        if self.pairs > self.keys:
            raise OptionError(
                f"pairs is {self.pairs}: it must be at most keys, which is {self.keys}",
                option="pairs",
            )

    @property
    def shape(self) -> TaskShape:
        """First every pair, then every key with a symbol that asks for its value."""
        return TaskShape(
            questions=("value",),
            num_symbols=self.keys + self.values + 1,
            num_answers=self.values,
            length=2 * self.pairs,
        )

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> TaskExamples:
        """Pairs in random order, then all their keys in another random order."""
        keys = torch.rand(count, self.keys, generator=random).argsort(1)[:, : self.pairs]
        values = torch.randint(self.values, (count, self.pairs), generator=random)
        order = torch.rand(count, self.pairs, generator=random).argsort(1)
        pairs = torch.stack([keys, self.keys + values], -1)
        sign = torch.full_like(keys, self.keys + self.values)
        questions = torch.stack([keys.gather(1, order), sign], -1)
        no_answers = torch.full_like(keys, NO_ANSWER)
        answers = torch.cat([no_answers, values.gather(1, order)], 1)
        places = torch.cat([torch.full_like(keys, NOWHERE), order], 1)
        return TaskExamples(torch.cat([pairs, questions], 1), answers[..., None], places[..., None])


@dataclass(frozen=True)
class Brackets(SweepTask):
    """Name the opening bracket of every closing bracket; brackets nest up to `depth` deep."""

    name: ClassVar[str] = "brackets"
    layers: ClassVar[int] = 2

    labels: int = 8
    """Number of different opening brackets; there is only one closing bracket."""
    depth: int = 4
    length: int = 32

    def __post_init__(self) -> None:
        self.check_least(2, "labels", "length")
        self.check_least(1, "depth")

    @property
    def shape(self) -> TaskShape:
        """Symbols are opening brackets and the closing bracket; answers are opening brackets."""
        return TaskShape(
            questions=("partner",),
            num_symbols=self.labels + 1,
            num_answers=self.labels,
            length=self.length,
        )

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> TaskExamples:
        """Random sequences in which a bracket opens or closes at every position."""
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
        answers = _read_at(labels, places)
        return TaskExamples(symbols[..., None], answers[..., None], places[..., None])
