"""View: some rows of one sequence's weights, and everything a measure may want to know of them.

In: a sequence of a call, the rows to measure, and what is known of the tokens. Out: tiles of
weights, small enough for the processor's cache, each seen once and then gone. Which numbers are
made of them is the measures' business.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.watching.calls import Sequence

TILE_NUMBERS = 1 << 21
"""Weights in a tile at most, over all heads: 8 MiB in float32."""
TILE_ROWS, TILE_KEYS = 128, 2048
"""Rows and keys of a tile at most; of a causal triangle's edge, the smaller the less is wasted."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyFacts:
    """What is known of the tokens of one sequence, padding left out."""

    ids: Int[Tensor, " key"]
    is_special: Bool[Tensor, " key"]
    is_punctuation: Bool[Tensor, " key"]


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """Rows of one sequence's attention in one layer."""

    sequence: Sequence
    rows: Int[Tensor, " query"]
    """Positions of the measured queries, in order."""
    tokens: KeyFacts | None
    """Of the keys; None where there are none, as in a picture."""
    output_weight: Float[Tensor, "concat d_model"] | None
    is_cross: bool = False
    """Whether queries and keys are of different sequences: then no distance joins them."""

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.sequence.num_heads

    @property
    def num_keys(self) -> int:
        """Keys of the sequence."""
        return self.sequence.num_keys

    @cached_property
    def is_run(self) -> bool:
        """Whether the rows are neighbours."""
        return int(self.rows[-1]) - int(self.rows[0]) == len(self.rows) - 1

    @cached_property
    def places(self) -> Int[Tensor, " query"]:
        """Key position of each measured query."""
        return self.rows + self.sequence.offset

    @cached_property
    def head_weights(self) -> Float[Tensor, "heads d_value d_model"] | None:
        """Each head's part of the output projection."""
        if self.output_weight is None:
            return None
        parts: Tensor = self.output_weight.to(self.sequence.mixed.dtype)
        return parts.unflatten(0, (self.num_heads, -1))

    @cached_property
    def head_grams(self) -> Float[Tensor, "heads d_value d_value"] | None:
        """`Wo Wo^T` of each head: lengths after the projection without computing it."""
        return None if self.head_weights is None else self.head_weights @ self.head_weights.mT

    @cached_property
    def value_norms(self) -> Float[Tensor, "heads key"] | None:
        """Length of each key's value after the head's part of the output projection."""
        values, grams = self.sequence.values, self.head_grams
        if values is None or grams is None:
            return None
        shared = grams.unflatten(0, (values.shape[0], -1))
        squares = ((values[:, None] @ shared) * values[:, None]).sum(-1)
        return squares.clamp(min=0).sqrt().flatten(0, 1)

    def tiles(self) -> Iterator["Tile"]:
        """All weights of the rows, a tile at a time; the next tile takes the place of the last."""
        width = min(self.num_keys, TILE_KEYS)
        fitting = max(1, TILE_NUMBERS // (self.num_heads * width))
        size = min(len(self.rows), TILE_ROWS, fitting)
        rooms = self.sequence.mixed.new_empty(2, self.num_heads * size * width)
        for start in range(0, len(self.rows), size):
            rows = self.rows[start : start + size]
            low, high = self.sequence.keys_seen(int(rows[0]), int(rows[-1]))
            for key in range(low, high, TILE_KEYS):
                end = min(key + TILE_KEYS, high)
                logs = self.sequence.log_weights(rows, key, end, rooms[0])
                weights = torch.exp(logs, out=rooms[1][: logs.numel()].view(logs.shape))
                yield Tile(logs, weights, slice(start, start + len(rows)), key, end)


@dataclass(frozen=True, eq=False)
class Tile:
    """The weights of some neighbouring rows of a view and of the keys `low..high`."""

    logs: Float[Tensor, "heads query key"]
    weights: Float[Tensor, "heads query key"]
    span: slice
    """Which of the view's rows."""
    low: int
    high: int


class Sums(dict[str, Tensor]):
    """Sums over the keys for every head and row of a view, by name; made when first added to."""

    def __init__(self, view: View) -> None:
        """Nothing yet."""
        super().__init__()
        self.shape = (view.num_heads, len(view.rows))
        self.like = view.sequence.mixed

    def __missing__(self, name: str) -> Tensor:
        self[name] = self.like.new_zeros(self.shape)
        return self[name]

    def add(self, name: str, span: slice, part: Float[Tensor, "heads query"]) -> None:
        """Add a tile's share."""
        self[name][:, span] += part
