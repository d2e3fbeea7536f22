"""SweepTask, the base class of the tasks that a sweep's models learn.

A task turns its settings into TaskExamples. It knows nothing about models.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.checks import whole_number

NO_ANSWER = -100
"""Answer to a question that is not asked: the label that torch's losses ignore."""
NOWHERE = -1
"""Marks an answer that cannot be read from any position."""


@dataclass(frozen=True, eq=False)
class TaskExamples:
    """Sequences, the answers at each of their positions, and where the answers can be read."""

    symbols: Int[Tensor, "batch position symbol"]
    """One or several symbols per position; their embeddings are added."""
    answers: Int[Tensor, "batch position question"]
    """Index of each answer; -100 (`NO_ANSWER`) where nothing is asked."""
    places: Int[Tensor, "batch position question"]
    """Position at which each answer can be read; -1 (`NOWHERE`) if there is no such position."""

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, part: slice) -> "TaskExamples":
        return TaskExamples(self.symbols[part], self.answers[part], self.places[part])


@dataclass(frozen=True)
class TaskShape:
    """A task's questions, and the sizes that a model for the task needs."""

    questions: tuple[str, ...]
    """Names of the questions at each position."""
    num_symbols: int
    num_answers: int
    """Number of different answers to a question."""
    length: int
    """Number of positions in a sequence."""


@dataclass(frozen=True)
class SweepTask(ABC):
    """A task for a sweep; its fields are its settings."""

    name: ClassVar[str]
    layers: ClassVar[int] = 1
    """Default number of layers in a model for this task."""

    @property
    @abstractmethod
    def shape(self) -> TaskShape:
        """The questions, and the numbers of symbols, answers and positions."""

    @property
    def best_guess(self) -> float:
        """Accuracy of the best guess without the input; by default, that of a random guess."""
        return 1 / self.shape.num_answers

    @property
    def layers_needed(self) -> int:
        """Smallest number of layers with which a model can learn the task."""
        return self.layers

    @abstractmethod
    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> TaskExamples:
        """Draw `count` sequences, for training or held out.

        If the settings allow only a few different ones, training may contain held-out sequences.
        """

    def digest(self) -> str:
        """Digest of data that the settings only refer to, such as a file; otherwise empty."""
        return ""

    def settings(self) -> dict[str, Any]:
        """The settings by name, as JSON values."""
        return asdict(self)

    def check_least(self, least: int, *names: str) -> None:
        """Raise OptionError unless these settings are whole numbers of at least `least`."""
        for name in names:
            whole_number(name, getattr(self, name), least=least)
