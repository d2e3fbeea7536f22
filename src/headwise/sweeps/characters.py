"""Characters: the next letter of real text, with nothing planted in it.

What it needs is not known: that is why it is here, beside the tasks of which it is. The text is a
file of the user's; without one, the sources of Python's own library, which are on every machine.
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
from headwise.sweeps.task import NOWHERE, Examples, SweepTask, check_at_least

HELD_OUT = 0.1
"""Of the text, its end: never trained on."""
DEFAULT_SIZE = 1_000_000
"""Characters of Python's library that are read."""


@dataclass(frozen=True)
class Characters(SweepTask):
    """Predict the next character."""

    name: ClassVar[str] = "characters"
    layers: ClassVar[int] = 2

    text: str = ""
    """Path of a text file; empty for the sources of Python's library."""
    length: int = 64
    alphabet: int = 96
    """The most frequent characters; all others are one."""

    def __post_init__(self) -> None:
        """Read the text, once for all; refuse one that is too short to hold anything out."""
        check_at_least(2, length=self.length, alphabet=self.alphabet)
        size = len(self.whole)
        if HELD_OUT * size < 2 * self.length:
            name = self.text or "the text of Python's library"
            need = int(2 * self.length / HELD_OUT) + 1
            raise OptionError(
                f"{name} has {size:,} characters, and length {self.length} takes at least "
                f"{need:,}: give a longer text or a smaller length"
            )

    @functools.cached_property
    def whole(self) -> str:
        """The text as it was when the task was made; what the file holds later is not read."""
        return read_text(self.text) if self.text else library_text()

    @property
    def questions(self) -> tuple[str, ...]:
        """The one question."""
        return ("next",)

    @property
    def num_symbols(self) -> int:
        """The alphabet, and one for the rest."""
        return self.alphabet + 1

    @property
    def num_answers(self) -> int:
        """The same."""
        return self.alphabet + 1

    @property
    def best_guess(self) -> float:
        """Share of the most frequent character in what is held out."""
        _, held_out = self.parts
        return float(held_out.bincount().max()) / len(held_out)

    @property
    def parts(self) -> tuple[Int[Tensor, " trained"], Int[Tensor, " held_out"]]:
        """The characters as numbers: those to train on, and the end that is held out."""
        whole = numbered(self.whole, self.alphabet)
        border = int(len(whole) * (1 - HELD_OUT))
        return whole[:border], whole[border:]

    @property
    def positions(self) -> int:
        """Length of a window."""
        return self.length

    @property
    def layers_needed(self) -> int:
        """One: text can be learned from by any model."""
        return 1

    def digest(self) -> str:
        """Of the text that was read: a file may change under its name."""
        return hashlib.sha256(self.whole.encode("utf-8", "surrogatepass")).hexdigest()

    def examples(self, count: int, random: torch.Generator, *, held_out: bool) -> Examples:
        """Windows of the text at random places."""
        part = self.parts[held_out]
        starts = torch.randint(len(part) - self.length, (count,), generator=random)
        windows = part[starts[:, None] + torch.arange(self.length + 1)]
        answers = windows[:, 1:, None]
        return Examples(windows[:, :-1, None], answers, torch.full_like(answers, NOWHERE))


@functools.lru_cache(maxsize=4)
def numbered(text: str, alphabet: int) -> Int[Tensor, " character"]:
    """The characters of a text as numbers; of equally frequent ones the lower code comes first."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    counts = np.bincount(codes, minlength=sys.maxunicode + 1)
    known = np.argsort(-counts, kind="stable")[: min(alphabet, np.count_nonzero(counts))]
    numbers = np.full(len(counts), alphabet)
    numbers[known] = np.arange(len(known))
    return torch.from_numpy(numbers[codes])


@functools.cache
def library_text() -> str:
    """Sources of Python's library with their documentation strings, in the order of their names."""
    parts, size = [], 0
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(file.read_text(encoding="utf-8", errors="replace"))
        size += len(parts[-1])
        if size >= DEFAULT_SIZE:
            break
    if not parts:
        raise OptionError("Python's library has no sources here: give a text")
    return "\n".join(parts)[:DEFAULT_SIZE]
