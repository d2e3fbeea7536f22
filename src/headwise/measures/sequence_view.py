"""View: some rows of one sequence's weights, and all that a measure may need to know about them.

In: a sequence of a call and its layout. Out: tiles of weights, small enough for the processor's
cache, each visited once. The measures turn them into numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.attention.bias import bias_tile
from headwise.measures.row_layout import RowLayout
from headwise.watching.sequence_weights import SequenceWeights, Tile

LEAST_LOG = -87.0
"""Smallest log of a weight, 1e-38, which changes no sum: the exponential of smaller logs, which
float32 cannot represent, takes thirty times as long."""
AT_ONCE = 2048
"""Rows that are multiplied by the output projection at a time."""


class Scratch:
    """Memory for one tile, reused by all views: allocating it costs more than filling it."""

    _rooms: Tensor | None = None

    def rooms(self, numbers: int, like: Tensor) -> Float[Tensor, "two numbers"]:
        """Memory for `numbers` numbers, twice; overwrites earlier contents."""
        rooms, kind = self._rooms, (like.dtype, like.device)
        if rooms is None or rooms.shape[1] < numbers or (rooms.dtype, rooms.device) != kind:
            self._rooms = rooms = like.new_empty(2, numbers)
        return rooms


@dataclass(frozen=True, eq=False)
class TileWeights:
    """The weights of a tile, and their logs."""

    logs: Float[Tensor, "heads query key"]
    weights: Float[Tensor, "heads query key"]
    span: slice
    """The tile's rows among those of the view."""
    block: Tile


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceView:
    """Rows of one sequence's attention in one layer."""

    sequence: SequenceWeights
    layout: RowLayout
    output_roots: Float[Tensor, "heads d_value width"] | None
    """Per head, a matrix that gives vectors the same lengths as its part of the projection."""
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
        """Whether each row may see one key, which may be outside the sequence."""
        if not self.layout.has_mask:
            low, high = self.layout.seen_range
            return ((keys >= low) & (keys < high))[None]
        inside = (keys >= 0) & (keys < self.layout.num_keys)
        place = torch.where(inside, keys, 0)[None, :, None]
        is_allowed = self.allowed.gather(2, place.expand(len(self.allowed), -1, 1))[..., 0]
        return is_allowed & inside

    @cached_property
    def allowed(self) -> Bool[Tensor, "#heads query key"]:
        """Whether each row may see each key, for layouts with a mask."""
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
        """All weights of the rows, one tile at a time; each tile overwrites the last."""
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
    """Length of each row after a matrix; multiplies a few rows at a time to save memory."""
    parts = rows.split(AT_ONCE, dim=-2)
    return torch.cat([torch.linalg.vector_norm(part @ roots, dim=-1) for part in parts], -1)


def positive(tensor: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The tensor with 1 instead of 0, as a divisor where the dividend is 0 too."""
    return tensor.masked_fill(tensor == 0, 1)
