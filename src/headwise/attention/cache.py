"""Caches: keys and values of positions already seen, so that each is projected only once.

The newest position comes last, so that the last query is at the last key. While gradients are
recorded, new and old keys are joined into fresh tensors, because the backward pass may need the old
ones unchanged; otherwise new keys are written in place.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.checks import whole_number
from headwise.errors import CacheError


class KeyValueCache:
    """Base class of the caches, each for one layer: two tensors with room to spare."""

    window: int | None = None
    """How many of the latest positions are cached; None = all."""

    def __init__(self) -> None:
        """Start empty; the first `append` sets batch, heads, sizes, dtype and device."""
        self.seen = self.length = 0  # positions appended so far, and cached now
        self.keys: Float[Tensor, "batch kv_heads room d_key"] | None = None
        self.values: Float[Tensor, "batch kv_heads room d_value"] | None = None
        self.owner: int | None = None
        self.is_recorded = False
        """Whether a backward pass may still need the cached tensors unchanged."""

    def __getstate__(self) -> dict[str, Any]:
        """State without the owner, so that a copy can serve a copy of the layer."""
        return self.__dict__ | {"owner": None}

    def belong_to(self, layer: object) -> None:
        """Bind the cache to `layer`; raise CacheError if it has positions from another layer."""
        if self.length and self.owner not in (None, id(layer)):
            raise CacheError(
                f"this cache already holds {self.length} positions from another layer: "
                "give every layer its own cache"
            )
        self.owner = id(layer)

    def __len__(self) -> int:
        return self.length

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will return if it is given `new` ones."""
        return self.length + new

    def append(
        self,
        keys: Float[Tensor, "batch kv_heads new d_key"],
        values: Float[Tensor, "batch kv_heads new d_value"],
    ) -> tuple[
        Float[Tensor, "batch kv_heads key d_key"], Float[Tensor, "batch kv_heads key d_value"]
    ]:
        """Add new keys and values; return those of all cached positions, new ones last."""
        self._check(keys, values)
        total = self.length + keys.shape[2]
        self.keys, self.values = self._join(self.keys, keys), self._join(self.values, values)
        self.is_recorded = torch.is_grad_enabled()
        self.length, self.seen = total, self.seen + keys.shape[2]
        return self.keys[:, :, :total], self.values[:, :, :total]

    def _join(self, old: Tensor | None, new: Tensor) -> Tensor:
        cached = new[:, :, :0] if old is None else old[:, :, : self.length]
        if torch.is_grad_enabled():
            return torch.cat([cached, new], 2)
        batch, heads, count, width = new.shape
        total = self.length + count
        if old is None or total > old.shape[2] or self.is_recorded:
            with _outside_inference():
                old = new.new_empty(batch, heads, self._room_for(total), width)
            old[:, :, : self.length] = cached
        old[:, :, self.length : total] = new
        return old

    def _room_for(self, needed: int) -> int:
        """Number of positions to allocate so that `needed` fit."""
        return max(2 * needed, 64)

    def crop(self, length: int) -> None:
        """Drop every position from `length` on, for example after rejecting speculative tokens."""
        length = whole_number("length", length)
        if not self.seen - self.length <= length <= self.seen:
            raise CacheError(
                f"cannot crop to {length}: {self.length} of {self.seen} positions are cached; "
                f"give a length in {self.seen - self.length}..{self.seen}"
            )
        self.length -= self.seen - length
        self.seen = length

    def reorder(self, rows: Int[Tensor, " batch"]) -> None:
        """Replace sequence `i` with sequence `rows[i]`, as beam search does."""
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
        """Drop all positions; keep the memory for reuse, unless a backward pass may need it."""
        self.seen = self.length = 0
        if self.is_recorded:
            self.keys = self.values = None

    def _check(self, keys: Tensor, values: Tensor) -> None:
        if self.keys is None or self.values is None:
            return
        for name, old, new in (("keys", self.keys, keys), ("values", self.values, values)):
            fits = old.shape[:2] == new.shape[:2] and old.shape[3] == new.shape[3]
            if fits and (old.dtype, old.device) == (new.dtype, new.device):
                continue
            if not self.length:
                self.keys = self.values = None
                return
            batch, heads, _, width = old.shape
            raise CacheError(
                f"this cache has {name} {[batch, heads, self.length, width]} {old.dtype} on "
                f"{old.device}: it cannot append {list(new.shape)} {new.dtype} on {new.device}; "
                "reset it, or use another cache"
            )


def _outside_inference() -> AbstractContextManager[object]:
    """A context whose new tensors stay writable after `torch.inference_mode` ends."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()  # the mode cannot be changed inside a compiled graph
    return torch.inference_mode(False)


class GrowingCache(KeyValueCache):
    """Keeps every position; capacity doubles when full, so the mean cost per step is constant."""


class FixedCache(KeyValueCache):
    """Keeps up to `capacity` positions in memory that is allocated once."""

    def __init__(self, capacity: int) -> None:
        """Start empty; memory for `capacity` positions is allocated at the first `append`."""
        super().__init__()
        self.capacity = whole_number("capacity", capacity, least=1)

    def _room_for(self, needed: int) -> int:
        return self.capacity

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append as `KeyValueCache` does; raise CacheError if the capacity is exceeded."""
        needed = self.length + keys.shape[2]
        if needed > self.capacity:
            raise CacheError(
                f"this cache has room for {self.capacity} positions and holds {self.length}; "
                f"{keys.shape[2]} more do not fit"
            )
        return super().append(keys, values)


class RollingCache(KeyValueCache):
    """Keeps only the last `window` positions: all that a causal layer with that window can see."""

    window: int

    def __init__(self, window: int) -> None:
        """Start empty; `window` includes the newest position."""
        super().__init__()
        self.window = whole_number("window", window, least=1)

    def _room_for(self, needed: int) -> int:
        return max(2 * self.window, needed)  # so that old positions are removed once per window

    def length_after(self, new: int) -> int:
        """Number of keys that `append` will return: all that the new positions may see."""
        return min(self.length, self.window - 1) + new

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add new keys and values; return them after up to `window - 1` earlier ones."""
        self._check(keys, values)
        new = keys.shape[2]
        num_old = self.length_after(0)
        if self.keys is not None and self.values is not None:
            is_full = self.length + new > self.keys.shape[2]
            if is_full and num_old < self.length:
                last = slice(self.length - num_old, self.length)
                self.keys, self.values = self.keys[:, :, last], self.values[:, :, last]
                self.length = num_old
        all_keys, all_values = super().append(keys, values)
        first = self.length - num_old - new
        return all_keys[:, :, first:], all_values[:, :, first:]

    def crop(self, length: int) -> None:
        """Drop every position from `length` on; raise CacheError if too few would remain."""
        forgotten = self.seen - self.length
        if forgotten and length - forgotten < self.window - 1:
            raise CacheError(
                f"cannot crop to {length}: a window of {self.window} needs positions that were "
                "already removed"
            )
        super().crop(length)
