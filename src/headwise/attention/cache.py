"""Caches: keys and values of positions already seen, so that each is projected once.

In: the keys and values of new positions. Out: those of every position that is still held, the new
ones last, so that the last query stands at the last key. A cache knows no attention; it holds two
tensors and counts, and serves one layer.

While gradients are recorded new keys are joined with the old into fresh tensors, since the backward
pass may need the old ones as they were; otherwise they are written in place.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.errors import CacheError


@runtime_checkable
class Cache(Protocol):
    """What the layer asks of a cache."""

    seen: int
    """Positions appended so far, also those no longer held."""
    window: int | None
    """How many of the last positions are held; None = all."""

    def belong_to(self, layer: object) -> None:
        """Serve the layer from now on; raise where positions of another one are held."""

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will give when `new` ones are added."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of every position held, after the new ones have been added."""


class KeyValueCache:
    """Two tensors with room to grow and a count of what they hold; what all caches are made of."""

    window: int | None = None

    def __init__(self) -> None:
        """Nothing held; the first `append` decides batch, heads, sizes, dtype and device."""
        self.seen = 0
        self.held = 0
        self.keys: Float[Tensor, "batch kv_heads room d_key"] | None = None
        self.values: Float[Tensor, "batch kv_heads room d_value"] | None = None
        self.owner: int | None = None
        self.is_recorded = False
        """Whether a backward pass may still need what is held as it is."""

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the owner: a copy may serve a copy of the layer."""
        return self.__dict__ | {"owner": None}

    def belong_to(self, layer: object) -> None:
        """Serve the layer from now on; raise where positions of another one are held."""
        if self.held and self.owner not in (None, id(layer)):
            raise CacheError(
                f"this cache holds {self.held} positions of another layer: "
                "give every layer a cache of its own"
            )
        self.owner = id(layer)

    def __len__(self) -> int:
        """Positions held now."""
        return self.held

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will give when `new` ones are added."""
        return self.held + new

    def room_for(self, needed: int) -> int:
        """Positions to make room for when `needed` must fit."""
        raise NotImplementedError

    def append(
        self,
        keys: Float[Tensor, "batch kv_heads new d_key"],
        values: Float[Tensor, "batch kv_heads new d_value"],
    ) -> tuple[
        Float[Tensor, "batch kv_heads key d_key"], Float[Tensor, "batch kv_heads key d_value"]
    ]:
        """Keys and values of every position held, the new ones last."""
        new = keys.shape[2]
        self._check(keys, values)
        total = self.held + new
        if self.keys is None or self.values is None:
            self.keys, self.values = self._make_room(keys, total), self._make_room(values, total)
        if torch.is_grad_enabled():
            self.keys = torch.cat([self.keys[:, :, : self.held], keys], 2)
            self.values = torch.cat([self.values[:, :, : self.held], values], 2)
            self.is_recorded = True
        else:
            if total > self.keys.shape[2] or self.is_recorded:
                self.keys = self._moved(self.keys, self._make_room(keys, total))
                self.values = self._moved(self.values, self._make_room(values, total))
                self.is_recorded = False
            self.keys[:, :, self.held : total] = keys
            self.values[:, :, self.held : total] = values
        self.held, self.seen = total, self.seen + new
        return self.keys[:, :, :total], self.values[:, :, :total]

    def crop(self, length: int) -> None:
        """Forget every position from `length` on, as after a rejected guess."""
        check_whole("length", length)
        if not self.seen - self.held <= length <= self.seen:
            raise CacheError(
                f"cannot crop to {length}: {self.held} of {self.seen} positions are held, so give "
                f"a length in {self.seen - self.held}..{self.seen}"
            )
        self.held -= self.seen - length
        self.seen = length

    def reorder(self, rows: Int[Tensor, " batch"]) -> None:
        """Put sequence `rows[i]` in the place of sequence `i`, as beam search does."""
        if self.keys is not None and self.values is not None:
            batch = len(self.keys)
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < batch:
                raise CacheError(
                    f"rows run from {int(rows.min())} to {int(rows.max())}; this cache holds "
                    f"sequences 0..{batch - 1}"
                )
            with outside_inference():
                self.keys, self.values = self.keys[rows], self.values[rows]

    def reset(self) -> None:
        """Forget everything; keep the memory for input of the same sizes.

        Memory that gradients hang on is let go.
        """
        self.seen = self.held = 0
        if self.keys is not None and self.values is not None:
            if self.keys.requires_grad or self.values.requires_grad:
                self.keys = self.values = None

    def _check(self, keys: Tensor, values: Tensor) -> None:
        if self.keys is None or self.values is None:
            return
        for name, old, new in (("keys", self.keys, keys), ("values", self.values, values)):
            fits = old.shape[:2] == new.shape[:2] and old.shape[3] == new.shape[3]
            if fits and (old.dtype, old.device) == (new.dtype, new.device):
                continue
            if not self.held:
                self.keys = self.values = None
                return
            batch, heads, _, width = old.shape
            raise CacheError(
                f"this cache holds {name} {[batch, heads, self.held, width]} {old.dtype} on "
                f"{old.device}; got {list(new.shape)} {new.dtype} on {new.device}: reset it, or "
                "take another"
            )

    def _make_room(self, like: Tensor, needed: int) -> Tensor:
        batch, heads, _, width = like.shape
        with outside_inference():
            return like.new_empty(batch, heads, self.room_for(needed), width)

    def _moved(self, old: Tensor, roomy: Tensor) -> Tensor:
        roomy[:, :, : self.held] = old[:, :, : self.held]
        return roomy


def check_whole(name: str, number: object) -> None:
    """Raise unless this is a whole number."""
    if not hasattr(number, "__index__"):
        raise CacheError(f"{name} is {number!r}: give a whole number")


def outside_inference() -> AbstractContextManager[object]:
    """Where tensors are made that can be written to after `torch.inference_mode`, too."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()  # the mode cannot be changed inside a graph
    return torch.inference_mode(False)


class GrowingCache(KeyValueCache):
    """Holds every position; room doubles as it fills, so that a step costs the same on average."""

    def room_for(self, needed: int) -> int:
        """Twice what is needed, and some to begin with."""
        return max(2 * needed, 64)


class FixedCache(KeyValueCache):
    """Holds up to `capacity` positions in memory allocated once."""

    def __init__(self, capacity: int) -> None:
        """Room for `capacity` positions, taken at the first `append`."""
        super().__init__()
        check_whole("capacity", capacity)
        if capacity < 1:
            raise CacheError(f"capacity is {capacity}: it must be at least 1")
        self.capacity = capacity

    def room_for(self, needed: int) -> int:
        """The capacity; `append` refuses what is more."""
        return self.capacity

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of every position held; raises when the capacity is exceeded."""
        needed = self.held + keys.shape[2]
        if needed > self.capacity:
            raise CacheError(
                f"this cache has room for {self.capacity} positions and holds {self.held}; "
                f"{keys.shape[2]} more do not fit"
            )
        return super().append(keys, values)


class RollingCache(KeyValueCache):
    """Holds the last `window` positions only: all that a causal layer with that window can see."""

    window: int

    def __init__(self, window: int) -> None:
        """Remembers `window - 1` positions beside each new one."""
        super().__init__()
        check_whole("window", window)
        if window < 1:
            raise CacheError(f"window is {window}: it must be at least 1")
        self.window = window

    def room_for(self, needed: int) -> int:
        """Twice the window, so that old positions are moved away only once per window."""
        return max(2 * self.window, needed)

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will give: those that the first new one may see, and it."""
        return min(self.held, self.window - 1) + new

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the last positions before the new ones, and the new ones."""
        self._check(keys, values)
        new = keys.shape[2]
        kept = self.length_after(0)
        if self.keys is not None and self.values is not None:
            is_full = self.held + new > self.keys.shape[2]
            if is_full and kept < self.held:
                last = slice(self.held - kept, self.held)
                self.keys, self.values = self.keys[:, :, last], self.values[:, :, last]
                self.held = kept
        all_keys, all_values = super().append(keys, values)
        first = self.held - kept - new
        return all_keys[:, :, first:], all_values[:, :, first:]

    def crop(self, length: int) -> None:
        """Forget every position from `length` on; raises if too few are left to fill the window."""
        forgotten = self.seen - self.held
        if forgotten and length - forgotten < self.window - 1:
            raise CacheError(
                f"cannot crop to {length}: a window of {self.window} needs positions already let go"
            )
        super().crop(length)
