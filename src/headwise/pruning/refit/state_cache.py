"""State cache: block outputs for many batches, kept in memory up to a limit, then on disk.

In: one state per batch, a tensor or a tuple of tensors. Out: the same states. The amount of text
that a refit can use is therefore limited by disk space, not by memory.
"""

import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

ROOM = 1 << 28
"""Maximum bytes a cache keeps in memory. A refit has two caches, or four for an encoder-decoder."""


class StateCache:
    """States by index; each is None until it is set."""

    def __init__(self, count: int, *, room: int = ROOM) -> None:
        """Prepare for `count` states, and keep at most `room` bytes of them in memory."""
        self.states: list[Any] = [None] * count
        self.room, self.used = room, [0] * count
        self.folder: TemporaryDirectory[str] | None = None

    def __getitem__(self, number: int) -> Any:
        state = self.states[number]
        return torch.load(state) if isinstance(state, Path) else state

    def __setitem__(self, number: int, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        size = sum(part.nbytes for part in parts if isinstance(part, Tensor))
        self.used[number] = 0
        if sum(self.used) + size <= self.room:
            self.used[number], self.states[number] = size, state
            return
        if self.folder is None:
            self.folder = TemporaryDirectory(prefix="headwise-")
            weakref.finalize(self, self.folder.cleanup)
        self.states[number] = Path(self.folder.name) / f"{number}.pt"
        torch.save(state, self.states[number])
