"""State cache: block outputs for many batches, kept in memory up to a limit, then on disk.

In: one state per batch, a tensor or a tuple of tensors. Out: the same states. This way, disk space,
not memory, limits how much text a refit can use.
"""

import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor

ROOM = 1 << 28
"""Maximum bytes a cache keeps in memory. A refit has two caches, or four for an encoder-decoder."""


class SpilledState(NamedTuple):
    """A state on disk."""

    path: Path
    device: str
    others: tuple[Any, ...]
    """The state's parts, with None in place of each tensor."""
    is_tuple: bool


class StateCache:
    """States by index; each is None until it is set."""

    def __init__(self, count: int, *, room: int = ROOM) -> None:
        """Prepare for `count` states, and keep at most `room` bytes of them in memory."""
        self.states: list[Any] = [None] * count
        self.room, self.used = room, [0] * count
        self.folder: TemporaryDirectory[str] | None = None

    def __getitem__(self, number: int) -> Any:
        state = self.states[number]
        if not isinstance(state, SpilledState):
            return state
        tensors = load_file(state.path, device=state.device)
        parts = tuple(tensors.get(str(place), part) for place, part in enumerate(state.others))
        return parts if state.is_tuple else parts[0]

    def __setitem__(self, number: int, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        tensors = {str(i): part for i, part in enumerate(parts) if isinstance(part, Tensor)}
        size = sum(tensor.nbytes for tensor in tensors.values())
        self.used[number] = 0
        if sum(self.used) + size <= self.room:
            self.used[number], self.states[number] = size, state
            return
        if self.folder is None:
            self.folder = TemporaryDirectory(prefix="headwise-")
            weakref.finalize(self, self.folder.cleanup)
        path = Path(self.folder.name) / f"{number}.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
        device = next((str(tensor.device) for tensor in tensors.values()), "cpu")
        others = tuple(None if isinstance(part, Tensor) else part for part in parts)
        self.states[number] = SpilledState(path, device, others, isinstance(state, tuple))
