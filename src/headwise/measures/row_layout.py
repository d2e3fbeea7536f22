"""Row layout: which rows of a sequence are measured, which keys they may see, and their tokens.

In: positions and tokens. Out: tiles that cover all that the rows may see, and whatever follows from
positions alone. The layers of a batch share a layout, so that each of these is computed once.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from jaxtyping import Bool, Int
from torch import Tensor

from headwise.attention.rules import Band
from headwise.reading.batch import KeyTokens
from headwise.watching.sequence_weights import SequenceWeights, Tile

Made = TypeVar("Made")

TILE_NUMBERS = 1 << 20
"""Maximum number of weights in a tile, over all heads: 4 MiB in float32."""
TILE_ROWS, TILE_KEYS = 128, 1024
"""Maximum rows and keys of a tile; small tiles waste less along the edge of a causal triangle."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowLayout:
    """Rows of one sequence, and the keys they may see; a layout with a mask serves one layer."""

    rows: Int[Tensor, " query"]
    """Positions of the measured queries, in order."""
    num_heads: int
    num_queries: int
    num_keys: int
    band: Band
    has_mask: bool
    """Whether something besides the band may hide keys."""
    tokens: KeyTokens | None
    """Tokens of the keys; None if the keys are not tokens, as in an image."""
    is_cross: bool
    """Whether queries and keys are from different sequences, without distances between them."""
    _cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        sequence: SequenceWeights,
        rows: Int[Tensor, " query"],
        tokens: KeyTokens | None,
        *,
        is_cross: bool = False,
    ) -> "RowLayout":
        """The layout of some rows of a sequence."""
        return cls(
            rows=rows,
            num_heads=sequence.num_heads,
            num_queries=sequence.num_queries,
            num_keys=sequence.num_keys,
            band=sequence.band,
            has_mask=sequence.has_mask,
            tokens=tokens,
            is_cross=is_cross,
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
        """Number of rows of the sequence that each measured row counts as."""
        return self.num_queries / len(self.rows)

    @cached_property
    def places(self) -> Int[Tensor, " query"]:
        """Key position of each measured query."""
        return self.rows + self.band.offset

    @cached_property
    def has_copy(self) -> Bool[Tensor, " query"]:
        """Which rows have their own token at an earlier key; only if queries are keys."""
        assert self.tokens is not None
        return self.tokens.has_copy[self.places]

    @cached_property
    def seen_range(self) -> tuple[Int[Tensor, " query"], Int[Tensor, " query"]]:
        """First key that each row sees, and the one after its last; only without a mask."""
        return self.band.range_of(self.rows, self.num_keys)

    @cached_property
    def blocks(self) -> list[tuple[slice, Tile]]:
        """Tiles that cover all that the rows may see, each with its rows among all."""
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
