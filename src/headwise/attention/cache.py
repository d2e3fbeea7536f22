"""Caches: keys and values of positions already seen, so that each is projected once.

In: the keys and values of new positions. Out: those of every position that is still cached, the new
ones last, so that the last query is at the last key. A cache computes no attention; it has two
tensors and counts, and serves one layer.

While gradients are recorded, new and old keys are joined into fresh tensors, because the backward
pass may need the old ones as they were; otherwise new keys are written in place.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.checks import whole_number
from headwise.errors import CacheError


@runtime_checkable
class Cache(Protocol):
    """The methods of a cache that the layer calls."""

    seen: int
    """Positions appended so far, including those no longer cached."""
    window: int | None
    """How many of the last positions are cached; None = all."""

    def belong_to(self, layer: object) -> None:
        """Serve this layer from now on; raise CacheError if it has positions of another layer."""

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will return when `new` ones are added."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add new keys and values; return those of every cached position."""


class KeyValueCache:
    """Base class of the caches: two tensors with room to grow and a count of their positions."""

    window: int | None = None

    def __init__(self) -> None:
        """Start empty; the first `append` decides batch, heads, sizes, dtype and device."""
        self.seen = 0
        self.held = 0
        self.keys: Float[Tensor, "batch kv_heads room d_key"] | None = None
        self.values: Float[Tensor, "batch kv_heads room d_value"] | None = None
        self.owner: int | None = None
        self.is_recorded = False
        """Whether a backward pass may still need the cached tensors unchanged."""

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the owner: a copy may serve a copy of the layer."""
        return self.__dict__ | {"owner": None}

    def belong_to(self, layer: object) -> None:
        """Serve this layer from now on; raise CacheError if it has positions of another layer."""
        if self.held and self.owner not in (None, id(layer)):
            raise CacheError(
                f"this cache has {self.held} positions of another layer: "
                "give every layer its own cache"
            )
        self.owner = id(layer)

    def __len__(self) -> int:
        """Positions cached now."""
        return self.held

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will return when `new` ones are added."""
        return self.held + new

    def room_for(self, needed: int) -> int:
        """Positions to allocate when `needed` must fit."""
        raise NotImplementedError

    def append(
        self,
        keys: Float[Tensor, "batch kv_heads new d_key"],
        values: Float[Tensor, "batch kv_heads new d_value"],
    ) -> tuple[
        Float[Tensor, "batch kv_heads key d_key"], Float[Tensor, "batch kv_heads key d_value"]
    ]:
        """Add new keys and values; return those of every cached position, the new ones last."""
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
                self.keys = self._move(self.keys, self._make_room(keys, total))
                self.values = self._move(self.values, self._make_room(values, total))
                self.is_recorded = False
            self.keys[:, :, self.held : total] = keys
            self.values[:, :, self.held : total] = values
        self.held, self.seen = total, self.seen + new
        return self.keys[:, :, :total], self.values[:, :, :total]

    def crop(self, length: int) -> None:
        """Forget every position from `length` on, as after a rejected guess."""
        length = whole_number("length", length)
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
                    f"rows run from {int(rows.min())} to {int(rows.max())}: this cache has "
                    f"sequences 0..{batch - 1}"
                )
            with _outside_inference():
                self.keys, self.values = self.keys[rows], self.values[rows]

    def reset(self) -> None:
        """Forget all positions; keep the memory for input of the same sizes.

        Memory that gradients depend on is freed.
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
                f"{old.device}: it cannot take {list(new.shape)} {new.dtype} on {new.device}; "
                "reset it, or use another"
            )

    def _make_room(self, like: Tensor, needed: int) -> Tensor:
        batch, heads, _, width = like.shape
        with _outside_inference():
            return like.new_empty(batch, heads, self.room_for(needed), width)

    def _move(self, old: Tensor, roomy: Tensor) -> Tensor:
        roomy[:, :, : self.held] = old[:, :, : self.held]
        return roomy


def _outside_inference() -> AbstractContextManager[object]:
    """A context whose tensors can also be written to outside `torch.inference_mode`."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()  # the mode cannot be changed inside a graph
    return torch.inference_mode(False)


class GrowingCache(KeyValueCache):
    """Keeps every position; room doubles as it fills, so that a step costs the same on average."""

    def room_for(self, needed: int) -> int:
        """Twice what is needed, and some to begin with."""
        return max(2 * needed, 64)


class FixedCache(KeyValueCache):
    """Keeps up to `capacity` positions in memory allocated once."""

    def __init__(self, capacity: int) -> None:
        """Room for `capacity` positions, allocated at the first `append`."""
        super().__init__()
        self.capacity = whole_number("capacity", capacity, least=1)

    def room_for(self, needed: int) -> int:
        """The capacity; `append` raises CacheError beyond it."""
        return self.capacity

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """`KeyValueCache.append`; raises CacheError if the capacity is exceeded."""
        needed = self.held + keys.shape[2]
        if needed > self.capacity:
            raise CacheError(
                f"this cache has room for {self.capacity} positions and holds {self.held}; "
                f"{keys.shape[2]} more do not fit"
            )
        return super().append(keys, values)


class RollingCache(KeyValueCache):
    """Keeps only the last `window` positions: all that a causal layer with that window can see."""

    window: int

    def __init__(self, window: int) -> None:
        """Keep `window - 1` positions beside each new one."""
        super().__init__()
        self.window = whole_number("window", window, least=1)

    def room_for(self, needed: int) -> int:
        """Twice the window, so that old positions are moved away only once per window."""
        return max(2 * self.window, needed)

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will return: all that the new ones may see."""
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
                f"cannot crop to {length}: a window of {self.window} needs positions that are gone"
            )
        super().crop(length)
