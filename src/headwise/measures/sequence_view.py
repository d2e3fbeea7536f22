"""Views: the measured rows of one sequence, the keys they may see, and their weights in a layer.

In: one sequence in a call, with positions and tokens. Out: a `RowLayout`, which all layers share,
and a `SequenceView`: one layer's weights in tiles small enough for the processor's cache.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.attention.bias import bias_tile
from headwise.attention.rules import Band
from headwise.reading.batch import KeyTokens
from headwise.watching.sequence_weights import SequenceWeights, Tile

Made = TypeVar("Made")

TILE_NUMBERS = 1 << 20
"""Maximum number of weights in a tile, over all heads: 4 MiB in float32."""
TILE_ROWS, TILE_KEYS = 128, 1024
"""Maximum rows and keys per tile; small tiles contain fewer hidden keys of a causal model."""
LEAST_LOG = -87.0
"""Lower limit for log-weights: a weight of 1e-38 changes no sum, and smaller ones, which are
subnormal in float32, take thirty times as long to compute."""
AT_ONCE = 2048
"""Number of rows to multiply by a head's matrix at a time, to save memory."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowLayout:
    """Rows of one sequence and the keys they may see; with a mask, valid for one layer only."""

    rows: Int[Tensor, " query"]
    """Positions of the measured queries, in order."""
    num_heads: int
    num_queries: int
    num_keys: int
    band: Band
    has_mask: bool
    """Whether anything other than the band may hide keys."""
    tokens: KeyTokens | None
    """Tokens of the keys; None if the keys are not tokens, as in an image."""
    is_cross: bool
    """Whether queries and keys are from different sequences, so that distances are undefined."""
    is_silent: Bool[Tensor, " key"] | None = None
    """Which keys are silence; None if they are not parts of a sound."""
    _cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        sequence: SequenceWeights,
        rows: Int[Tensor, " query"],
        tokens: KeyTokens | None,
        *,
        is_cross: bool = False,
        is_silent: Bool[Tensor, " key"] | None = None,
    ) -> "RowLayout":
        """The layout for `rows` of a sequence."""
        return cls(
            rows=rows,
            num_heads=sequence.num_heads,
            num_queries=sequence.num_queries,
            num_keys=sequence.num_keys,
            band=sequence.band,
            has_mask=sequence.has_mask,
            tokens=tokens,
            is_cross=is_cross,
            is_silent=is_silent,
        )

    def once(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """The result of `make()`, computed on the first call with this name and cached."""
        if name not in self._cache:
            self._cache[name] = make()
        result: Made = self._cache[name]
        return result

    @property
    def is_causal(self) -> bool:
        """Whether no query sees a key after its own position."""
        return self.band.after == 0

    @property
    def row_weight(self) -> float:
        """Number of the sequence's rows that each measured row represents."""
        return self.num_queries / len(self.rows)

    @cached_property
    def places(self) -> Int[Tensor, " query"]:
        """Position of each measured query among the keys."""
        return self.rows + self.band.offset

    @cached_property
    def seen_range(self) -> tuple[Int[Tensor, " query"], Int[Tensor, " query"]]:
        """First key that each row sees, and the key after its last one; only without a mask."""
        return self.band.range_of(self.rows, self.num_keys)

    @cached_property
    def blocks(self) -> list[tuple[slice, Tile]]:
        """Tiles that cover every key the rows may see, each with the slice of rows it covers."""
        width = min(self.num_keys, TILE_KEYS)
        fitting = max(1, TILE_NUMBERS // (self.num_heads * width))
        size, blocks = min(len(self.rows), TILE_ROWS, fitting), []
        for start in range(0, len(self.rows), size):
            rows = self.rows[start : start + size]
            low, high = self.band.keys_of(int(rows[0]), int(rows[-1]), self.num_keys)
            for key in range(low, high, TILE_KEYS):
                block = Tile(rows, key, min(key + TILE_KEYS, high), self.band)
                blocks.append((slice(start, start + len(rows)), block))
        return blocks


class Scratch:
    """Memory for one tile, reused by all views: allocating it takes longer than filling it."""

    _rooms: Tensor | None = None

    def rooms(self, numbers: int, like: Tensor) -> Float[Tensor, "two numbers"]:
        """Two buffers of at least `numbers` numbers each, which all callers share."""
        rooms, kind = self._rooms, (like.dtype, like.device)
        if rooms is None or rooms.shape[1] < numbers or (rooms.dtype, rooms.device) != kind:
            self._rooms = rooms = like.new_empty(2, numbers)
        return rooms


@dataclass(frozen=True, eq=False)
class TileWeights:
    """A tile's weights and their logs."""

    logs: Float[Tensor, "heads query key"]
    weights: Float[Tensor, "heads query key"]
    span: slice
    """Indices of the tile's rows among the view's rows."""
    block: Tile


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceView:
    """One layer's attention for the measured rows of one sequence."""

    sequence: SequenceWeights
    layout: RowLayout
    output_roots: Float[Tensor, "heads d_value width"] | None
    """A matrix per head that gives vectors the same length as the output projection does."""
    scratch: Scratch = field(default_factory=Scratch, repr=False)

    def zeros(self) -> Float[Tensor, "heads query"]:
        """A zero for each head and row."""
        return self.sequence.mixed.new_zeros(self.layout.num_heads, len(self.layout.rows))

    @cached_property
    def seen(self) -> Float[Tensor, "#heads query"]:
        """Number of keys that each row may see."""
        if self.layout.has_mask:
            return self.allowed.sum(-1).to(self.sequence.mixed.dtype)
        low, high = self.layout.seen_range
        return (high - low).to(self.sequence.mixed.dtype)[None]

    def sees_at_least(self, keys: int) -> Bool[Tensor, " query"]:
        """Which rows may see at least `keys` keys."""
        return self.layout.once(("sees", keys), lambda: (self.seen >= keys).all(0))

    def sees(self, keys: Int[Tensor, " query"]) -> Bool[Tensor, "#heads query"]:
        """Whether each row may see its key in `keys`, which may be outside the sequence."""
        if not self.layout.has_mask:
            low, high = self.layout.seen_range
            return ((keys >= low) & (keys < high))[None]
        inside = (keys >= 0) & (keys < self.layout.num_keys)
        place = torch.where(inside, keys, 0)[None, :, None]
        is_allowed = self.allowed.gather(2, place.expand(len(self.allowed), -1, 1))[..., 0]
        return is_allowed & inside

    @cached_property
    def allowed(self) -> Bool[Tensor, "#heads query key"]:
        """Whether each row may see each key; only for layouts with a mask."""
        assert self.sequence.computation is not None
        bias = bias_tile(self.sequence.computation, self.layout.rows, 0, self.layout.num_keys)
        assert bias is not None
        return bias[0] > -torch.inf

    def count_seen(
        self, marked: Bool[Tensor, "kind key"]
    ) -> Float[Tensor, "kind one_or_heads query"]:
        """Number of keys of each kind that each row may see."""
        dtype = self.sequence.mixed.dtype
        if self.layout.has_mask:
            return torch.einsum("nk,hqk->nhq", marked.to(dtype), self.allowed.to(dtype))
        so_far = torch.nn.functional.pad(marked.cumsum(1), (1, 0))
        low, high = self.layout.seen_range
        return (so_far[:, high] - so_far[:, low])[:, None].to(dtype)

    @cached_property
    def value_norms(self) -> Float[Tensor, "heads key"] | None:
        """Length of each key's value after the head's part of the output projection."""
        return value_lengths(self.sequence, self.output_roots)

    def tiles(self) -> Iterator[TileWeights]:
        """All weights of the rows, one tile at a time; each tile overwrites the previous one."""
        blocks = self.layout.blocks
        largest = max((len(block.rows) * block.width for _, block in blocks), default=0)
        rooms = self.scratch.rooms(self.layout.num_heads * largest, self.sequence.mixed)
        for span, block in blocks:
            logs = self.sequence.log_weights(block, rooms[0]).clamp_(min=LEAST_LOG)
            weights = torch.exp(logs, out=rooms[1][: logs.numel()].view(logs.shape))
            yield TileWeights(logs, weights, span, block)


def value_lengths(
    sequence: SequenceWeights, roots: Float[Tensor, "heads d_value width"] | None
) -> Float[Tensor, "heads key"] | None:
    """Length of each key's value after each head's part of the output projection, if known."""
    values = sequence.values
    if values is None or roots is None:
        return None
    shared = roots.unflatten(0, (values.shape[0], -1))
    return lengths_after(values[:, None], shared).flatten(0, 1)


def lengths_after(
    rows: Float[Tensor, "... row d_value"], roots: Float[Tensor, "... d_value width"]
) -> Float[Tensor, "... row"]:
    """Length of each row after multiplication by `roots`."""
    parts = rows.split(AT_ONCE, dim=-2)
    return torch.cat([torch.linalg.vector_norm(part @ roots, dim=-1) for part in parts], -1)


def positive(tensor: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The tensor with 1 in place of 0, as a divisor of numbers that are 0 there as well."""
    return tensor.masked_fill(tensor == 0, 1)
