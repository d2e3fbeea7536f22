"""Task: what the models of a sweep are to learn, with the truth of every answer known.

In: settings of a task. Out: sequences, what is to be said at each position, and where the answer
to it stands. A task knows nothing of models.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.checks import whole_number

NOTHING = -100
"""An answer that is not asked for: torch's own mark for positions without a loss."""
NOWHERE = -1
"""A place of an answer that is not known."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Sequences, what is asked at each of their positions, and where the answers stand."""

    symbols: Int[Tensor, "batch position symbol"]
    """One or several symbols a position: their embeddings are added."""
    answers: Int[Tensor, "batch position question"]
    """`NOTHING` where nothing is asked."""
    places: Int[Tensor, "batch position question"]
    """Position that holds the answer; `NOWHERE` where there is no such one."""

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.symbols)

    def __getitem__(self, part: slice) -> "Examples":
        """Some of the sequences."""
        return Examples(self.symbols[part], self.answers[part], self.places[part])


@dataclass(frozen=True)
class SweepTask(ABC):
    """A task with its settings; the defaults are those of the documentation."""

    name: ClassVar[str]
    layers: ClassVar[int] = 1
    """Layers that a model has unless others are asked for."""

    @property
    @abstractmethod
    def questions(self) -> tuple[str, ...]:
        """Names of what is asked at a position."""

    @property
    @abstractmethod
    def num_symbols(self) -> int:
        """How many symbols there are."""

    @property
    @abstractmethod
    def num_answers(self) -> int:
        """How many answers a question may have."""

    @property
    def best_guess(self) -> float:
        """Accuracy of the best guess that reads nothing; here all answers are equally frequent."""
        return 1 / self.num_answers

    @property
    @abstractmethod
    def positions(self) -> int:
        """Length of a sequence."""

    @property
    def layers_needed(self) -> int:
        """Layers without which it cannot be learned."""
        return self.layers

    @abstractmethod
    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> Examples:
        """So many sequences; held-out ones are drawn apart from those that are trained on.

        Where settings allow few sequences, some of them are met in training all the same.
        """

    def digest(self) -> str:
        """What tells the data apart that the settings only name; nothing where they say it all."""
        return ""

    def settings(self) -> dict[str, Any]:
        """The settings by name, as JSON can hold them."""
        return asdict(self)


def last_before(
    matches: Bool[Tensor, "batch position other"],
) -> Int[Tensor, "batch position"]:
    """The last earlier position that matches each; `NOWHERE` where none does."""
    size = matches.shape[-1]
    numbers = torch.arange(1, size + 1)
    return (matches.tril(-1) * numbers).amax(-1) - 1


def read_at(
    symbols: Int[Tensor, "batch position"], places: Int[Tensor, "batch position"]
) -> Int[Tensor, "batch position"]:
    """What stands at each place; `NOTHING` where there is none."""
    found = symbols.gather(1, places.clamp(min=0))
    return found.masked_fill(places == NOWHERE, NOTHING)


def check_at_least(least: int, **values: int) -> None:
    """Raise where a setting is smaller than it can be."""
    for name, value in values.items():
        whole_number(name, value, least=least)
