"""State cache: outputs of blocks for many batches, in memory up to a limit, then on disk.

In: one state per batch, a tensor or a tuple of tensors. Out: the same states. So disk space, not
memory, limits how much text a refit can read.
"""

import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

ROOM = 1 << 28
"""Bytes that a cache keeps in memory. A refit has two caches, or four with encoder and decoder."""


class StateCache:
    """States by number; None until they are set."""

    def __init__(self, count: int, *, room: int = ROOM) -> None:
        """Make room for `count` states, of which `room` bytes stay in memory."""
        self.states: list[Any] = [None] * count
        self.room, self.used = room, [0] * count
        self.folder: TemporaryDirectory[str] | None = None

    def __getitem__(self, number: int) -> Any:
        """The state with this number."""
        state = self.states[number]
        return state.read() if isinstance(state, SpilledState) else state

    def __setitem__(self, number: int, state: Any) -> None:
        """Replace the state with this number."""
        self.used[number] = 0
        size = sum(tensor.nbytes for tensor in _tensors(state).values())
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
        """Write the state to `path`."""
        tensors = _tensors(state)
        self.path, self.is_tuple = path, isinstance(state, tuple)
        self.device = next((str(tensor.device) for tensor in tensors.values()), "cpu")
        parts = state if isinstance(state, tuple) else (state,)
        self.others = [None if isinstance(part, Tensor) else part for part in parts]
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)

    def read(self) -> Any:
        """The state, read from disk."""
        tensors = load_file(self.path, device=self.device)
        parts = tuple(tensors.get(str(place), part) for place, part in enumerate(self.others))
        return parts if self.is_tuple else parts[0]


def _tensors(state: Any) -> dict[str, Tensor]:
    parts = state if isinstance(state, tuple) else (state,)
    return {str(place): part for place, part in enumerate(parts) if isinstance(part, Tensor)}
