"""Which rows of a sequence are measured, which keys they may see, and facts about the tokens.

In: positions and tokens. Out: blocks that cover all the rows may see, and whatever follows from
positions alone. Layers of one batch share it, so that each such thing is worked out once.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.attention.rules import Band
from headwise.reading.batch import KeyTokens
from headwise.watching.sequence_weights import SequenceWeights, Tile

Made = TypeVar("Made")

TILE_NUMBERS = 1 << 20
"""Weights in a block at most, over all heads: 4 MiB in float32."""
TILE_ROWS, TILE_KEYS = 128, 1024
"""Rows and keys of a block at most; of a causal triangle's edge, the smaller the less is wasted."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowLayout:
    """Rows of one sequence, and what they may see."""

    rows: Int[Tensor, " query"]
    """Positions of the measured queries, in order."""
    num_heads: int
    num_queries: int
    num_keys: int
    band: Band
    has_mask: bool
    """Whether rows may see other keys than a run of neighbours."""
    is_causal: bool
    """Whether no query sees a key after its own."""
    tokens: KeyTokens | None
    """Tokens of the keys; None if the keys are not tokens, as in an image."""
    is_cross: bool
    """Whether queries and keys are of different sequences: then no distance joins them."""
    _kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        sequence: SequenceWeights,
        rows: Int[Tensor, " query"],
        tokens: KeyTokens | None,
        *,
        is_cross: bool = False,
    ) -> "RowLayout":
        """The layout that some rows of a sequence have."""
        return cls(
            rows=rows,
            num_heads=sequence.num_heads,
            num_queries=sequence.num_queries,
            num_keys=sequence.num_keys,
            band=sequence.band,
            has_mask=has_mask(sequence),
            is_causal=sequence.band.after == 0,
            tokens=tokens,
            is_cross=is_cross,
        )

    def once(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """The result of `make()`, computed on the first call with this name and cached."""
        if name not in self._kept:
            self._kept[name] = make()
        found: Made = self._kept[name]
        return found

    @property
    def row_weight(self) -> float:
        """Number of rows of the sequence that each measured row counts as."""
        return self.num_queries / len(self.rows)

    @cached_property
    def places(self) -> Int[Tensor, " query"]:
        """Key position of each measured query."""
        return self.rows + self.band.offset

    @cached_property
    def has_copy(self) -> Bool[Tensor, " query"]:
        """Which rows have their own token at an earlier key, where queries are keys."""
        assert self.tokens is not None
        return self.tokens.has_copy[self.places]

    @cached_property
    def seen_range(self) -> tuple[Int[Tensor, " query"], Int[Tensor, " query"]]:
        """First key that each row sees, and the one after its last, where there are no gaps."""
        return self.band.range_of(self.rows, self.num_keys)

    @cached_property
    def seen(self) -> Int[Tensor, " query"]:
        """How many keys each row may see, where there are no gaps."""
        low, high = self.seen_range
        return high - low

    def count_seen(self, marked: Bool[Tensor, "kind key"]) -> Int[Tensor, "kind 1 query"]:
        """How many keys of each kind each row may see, where there are no gaps."""
        so_far = torch.nn.functional.pad(marked.cumsum(1), (1, 0))
        low, high = self.seen_range
        return (so_far[:, high] - so_far[:, low])[:, None]

    @cached_property
    def blocks(self) -> list[tuple[slice, Tile]]:
        """Everything that the rows may see, and which of the rows each block is about."""
        width = min(self.num_keys, TILE_KEYS)
        fitting = max(1, TILE_NUMBERS // (self.num_heads * width))
        size, found = min(len(self.rows), TILE_ROWS, fitting), []
        for start in range(0, len(self.rows), size):
            rows = self.rows[start : start + size]
            low, high = self.band.keys_of(int(rows[0]), int(rows[-1]), self.num_keys)
            for key in range(low, high, TILE_KEYS):
                block = Tile(rows, key, min(key + TILE_KEYS, high), self.band)
                found.append((slice(start, start + len(rows)), block))
        return found


def has_mask(sequence: SequenceWeights) -> bool:
    """Whether something besides the band may hide keys."""
    return sequence.computation is not None and sequence.computation.mask is not None
