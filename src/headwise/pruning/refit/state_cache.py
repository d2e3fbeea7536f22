"""Shelf: what blocks gave for many batches, in memory while there is room, else on disk.

In: a state a batch, a tensor or a tuple of tensors. Out: the same. So the amount of text that a
refit reads is bounded by the disk, not by memory.
"""

import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

ROOM = 1 << 28
"""Bytes that a shelf keeps in memory: there are two, or four for an encoder and a decoder."""


class StateCache:
    """States by number; None before they are set."""

    def __init__(self, count: int, *, room: int = ROOM) -> None:
        """Places for so many states, none of them set."""
        self.states: list[Any] = [None] * count
        self.room, self.used = room, [0] * count
        self.folder: TemporaryDirectory[str] | None = None

    def __getitem__(self, number: int) -> Any:
        """The state of that number."""
        state = self.states[number]
        return state.read() if isinstance(state, SpilledState) else state

    def __setitem__(self, number: int, state: Any) -> None:
        """Keep a state instead of the one before."""
        self.used[number] = 0
        size = sum(one.numel() * one.element_size() for one in tensors_of(state))
        if sum(self.used) + size <= self.room:
            self.used[number], self.states[number] = size, state
            return
        if self.folder is None:
            self.folder = TemporaryDirectory(prefix="headwise-")
            weakref.finalize(self, self.folder.cleanup)
        self.states[number] = SpilledState(Path(self.folder.name) / f"{number}.safetensors", state)


class SpilledState:
    """A state on disk."""

    def __init__(self, path: Path, state: Any) -> None:
        """Write it."""
        self.path, self.is_tuple = path, isinstance(state, tuple)
        self.device = next((str(one.device) for one in tensors_of(state)), "cpu")
        parts = state if isinstance(state, tuple) else (state,)
        self.others = [None if isinstance(one, Tensor) else one for one in parts]
        found = {
            str(place): one.contiguous()
            for place, one in enumerate(parts)
            if isinstance(one, Tensor)
        }
        save_file(found, path)

    def read(self) -> Any:
        """Read it back."""
        found = load_file(self.path, device=self.device)
        parts = tuple(found.get(str(place), one) for place, one in enumerate(self.others))
        return parts if self.is_tuple else parts[0]


def tensors_of(state: Any) -> list[Tensor]:
    """The tensors of a state."""
    parts = state if isinstance(state, tuple) else (state,)
    return [one for one in parts if isinstance(one, Tensor)]
