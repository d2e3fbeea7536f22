"""Characters: the task of predicting the next character of real text.

In contrast to the tasks on random symbols, nobody knows in advance which heads this one needs.
"""

import functools
import hashlib
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headwise.errors import OptionError
from headwise.files import read_text
from headwise.sweeps.task import NOWHERE, SweepTask, TaskExamples, TaskShape

HELD_OUT = 0.1
"""Share of the text that is held out from training, taken from its end."""
DEFAULT_SIZE = 1_000_000
"""Number of characters to use from Python's library."""


@dataclass(frozen=True)
class Characters(SweepTask):
    """Predict the next character."""

    name: ClassVar[str] = "characters"
    layers: ClassVar[int] = 2

    text: str = ""
    """Path to a text file; if empty, the task uses the source code of Python's standard library."""
    length: int = 64
    alphabet: int = 96
    """How many of the most frequent characters to distinguish; all others become one symbol."""

    def __post_init__(self) -> None:
        """Read the text; raise OptionError if it is too short to hold anything out."""
        self.check_least(2, "length", "alphabet")
        size = len(self.full_text)
        if HELD_OUT * size < 2 * self.length:
            least = int(2 * self.length / HELD_OUT) + 1
            name = self.text or "the text of Python's library"
            raise OptionError(
                f"{name} has {size:,} characters, but length {self.length} needs at least "
                f"{least:,}: give a longer text or a smaller length"
            )

    @functools.cached_property
    def full_text(self) -> str:
        """The text as it was when the task was created; later changes to the file are ignored."""
        return read_text(self.text) if self.text else library_text()

    @property
    def shape(self) -> TaskShape:
        """Symbols and answers are the alphabet plus one symbol for all other characters."""
        symbols = self.alphabet + 1
        return TaskShape(("next",), symbols, symbols, self.length)

    @property
    def best_guess(self) -> float:
        """Share of the most frequent character in the held-out part."""
        _, held_out = self.parts
        return float(held_out.bincount().max()) / len(held_out)

    @functools.cached_property
    def parts(self) -> tuple[Int[Tensor, " trained"], Int[Tensor, " held_out"]]:
        """The text to train on and the held-out end, as numbers: characters' ranks by frequency."""
        codes = np.frombuffer(self.full_text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        counts = np.bincount(codes, minlength=sys.maxunicode + 1)
        known = np.argsort(-counts, kind="stable")[: min(self.alphabet, np.count_nonzero(counts))]
        numbers = np.full(len(counts), self.alphabet)
        numbers[known] = np.arange(len(known))
        border = int(len(codes) * (1 - HELD_OUT))
        text = torch.from_numpy(numbers[codes])
        return text[:border], text[border:]

    @property
    def layers_needed(self) -> int:
        """One layer: a model of any depth can learn from text."""
        return 1

    def digest(self) -> str:
        """Digest of the text, because a file may change."""
        return hashlib.sha256(self.full_text.encode("utf-8", "surrogatepass")).hexdigest()

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> TaskExamples:
        """Windows at random positions in the text."""
        part = self.parts[held_out]
        starts = torch.randint(len(part) - self.length, (count,), generator=random)
        windows = part[starts[:, None] + torch.arange(self.length + 1)]
        answers = windows[:, 1:, None]
        return TaskExamples(windows[:, :-1, None], answers, torch.full_like(answers, NOWHERE))


@functools.cache
def library_text() -> str:
    """The start of the source code of Python's library, with its files in alphabetical order."""
    text = ""
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if len(text) < DEFAULT_SIZE:
            text += file.read_text(encoding="utf-8", errors="replace") + "\n"
    if not text:
        raise OptionError("Python's library has no source files here: set text to a file's path")
    return text[:DEFAULT_SIZE]
