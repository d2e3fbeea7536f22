"""Sequence weights: any tile of the attention weights for one sequence in a call.

In: one sequence's queries, keys and rules, or its weights. Out: log-weights of any `Tile`.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.attention.bias import bias_tile
from headwise.attention.kernels import fold_groups, unfold_groups
from headwise.attention.prepare import Computation
from headwise.attention.rules import PER_HEAD, Band

LOWEST = -1e30
"""Stands for the log of 0: its exponential is 0 in every dtype, and twice its value is finite."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Positions of some rows and of the keys `low` to `high - 1`; layers can share a tile."""

    rows: Int[Tensor, " query"]
    low: int
    high: int
    band: Band

    @property
    def width(self) -> int:
        """Number of keys."""
        return self.high - self.low

    @cached_property
    def places(self) -> Int[Tensor, " query"]:
        """Position of each row's query among the keys."""
        return self.rows + self.band.offset

    @cached_property
    def _run(self) -> slice | None:
        """The rows as a slice if they are consecutive, otherwise None."""
        if len(self.rows) and bool((self.rows.diff() == 1).all()):
            return slice(int(self.rows[0]), int(self.rows[-1]) + 1)
        return None

    def rows_of(
        self, tensor: Float[Tensor, "1 heads query width"]
    ) -> Float[Tensor, "1 heads rows width"]:
        """The tile's rows of a tensor, without a copy if they are consecutive."""
        if self._run is None:
            return tensor.index_select(2, self.rows)
        return tensor[:, :, self._run]

    @cached_property
    def edges(self) -> list[tuple[slice, Float[Tensor, "query key"]]]:
        """Columns with keys outside the band, and a term whose addition to the logs hides them.

        Adding a term takes a twentieth of the time of filling with a bool mask.
        """
        if not len(self.rows) or self.band.is_full:
            return []
        edges, band, places = [], self.band, self.places[:, None]
        first, last = (int(place) for place in places.aminmax())
        keys = torch.arange(self.low, self.high, device=places.device)
        if band.after is not None and first + band.after + 1 < self.high:
            ahead = slice(max(0, first + band.after + 1 - self.low), None)
            edges.append((ahead, _lowest_where(keys[ahead] > places + band.after)))
        if band.before is not None and self.low < last - band.before:
            behind = slice(None, last - band.before - self.low)
            edges.append((behind, _lowest_where(keys[behind] < places - band.before)))
        return edges


def _lowest_where(is_hidden: Bool[Tensor, "query key"]) -> Float[Tensor, "query key"]:
    return torch.zeros((), device=is_hidden.device).where(~is_hidden, LOWEST)


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceWeights:
    """One sequence in a call; its weights are computed one tile at a time.

    Either `computation` and `lse` are set, or `known_weights`.
    """

    mixed: Float[Tensor, "heads query d_value"]
    computation: Computation | None = None
    lse: Float[Tensor, "heads query"] | None = None
    known_weights: Float[Tensor, "heads query key"] | None = None

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self.mixed.shape[0]

    @property
    def num_queries(self) -> int:
        """Number of rows in the weight matrix."""
        return self.mixed.shape[1]

    @property
    def num_keys(self) -> int:
        """Number of columns in the weight matrix."""
        if self.known_weights is not None:
            return self.known_weights.shape[-1]
        assert self.computation is not None
        return self.computation.num_keys

    @property
    def has_mask(self) -> bool:
        """Whether anything other than the band may hide keys."""
        return self.computation is not None and self.computation.mask is not None

    @property
    def values(self) -> Float[Tensor, "kv_heads key d_value"] | None:
        """The values; None if only weights are known."""
        return None if self.computation is None else self.computation.values[0]

    @cached_property
    def band(self) -> Band:
        """Range of keys that each query may see, given its position.

        If only weights are known, it is the narrowest band around the positive weights of all
        heads. A weight of 0 inside it does not always mean that the key is hidden: half precision
        rounds weights below 6e-8 to 0.
        """
        if self.computation is not None:
            return self.computation.band
        assert self.known_weights is not None
        num_queries, num_keys = self.known_weights.shape[1:]
        offset = num_keys - num_queries
        places = torch.arange(num_queries, device=self.mixed.device) + offset
        distances = torch.arange(num_keys, device=self.mixed.device) - places[:, None]
        distances = distances[(self.known_weights > 0).any(0)]
        if len(distances) == 0:
            return Band(None, None, offset)
        before, after = max(0, -int(distances.min())), max(0, int(distances.max()))
        return Band(before, after, offset).simplify(num_queries, num_keys)

    def of_head(self, head: int) -> "SequenceWeights":
        """Weights of one head only."""
        part, computation = slice(head, head + 1), self.computation
        if computation is not None:
            kv_head, rules, mask = head // computation.groups, computation.rules, computation.mask
            per_head = {name: getattr(rules, name) for name in PER_HEAD}
            sliced = {name: row[part] for name, row in per_head.items() if row is not None}
            computation = replace(
                computation,
                queries=computation.queries[:, part],
                keys=computation.keys[:, kv_head : kv_head + 1],
                values=computation.values[:, kv_head : kv_head + 1],
                mask=mask if mask is None or mask.shape[1] == 1 else mask[:, part],
                rules=replace(rules, **sliced),
            )
        return SequenceWeights(
            mixed=self.mixed[part],
            computation=computation,
            lse=None if self.lse is None else self.lse[part],
            known_weights=None if self.known_weights is None else self.known_weights[part],
        )

    def tile(self, rows: Int[Tensor, " query"], low: int, high: int) -> Tile:
        """The tile of these rows and the keys `low` to `high - 1`."""
        return Tile(rows, low, high, self.band)

    @cached_property
    def _negative_lse(self) -> Float[Tensor, "1 heads query 1"]:
        """The term that turns a row's scores into log-weights; `LOWEST` if the row sees no key."""
        assert self.lse is not None
        return -self.lse.masked_fill(self.lse == -torch.inf, -LOWEST)[None, ..., None]

    def log_weights(
        self, tile: Tile, room: Tensor | None = None
    ) -> Float[Tensor, "heads query key"]:
        """Log-weights of a tile, written into `room` if given.

        The log-weights of hidden keys are finite, so that weights times logs are finite too.
        """
        if self.known_weights is not None:
            weights = self.known_weights[:, tile.rows, tile.low : tile.high]
            return weights.log().clamp_(min=LOWEST)
        assert self.computation is not None
        computation, kv_heads = self.computation, self.computation.keys.shape[1]
        queries = fold_groups(tile.rows_of(computation.queries), kv_heads)[0]
        negative_lse = tile.rows_of(self._negative_lse)
        start = fold_groups(negative_lse, kv_heads)[0]
        keys = computation.keys[0, :, tile.low : tile.high]
        shape = (kv_heads, queries.shape[1], tile.width)
        room = None if room is None else room[: math.prod(shape)].view(shape)
        cap = computation.rules.softcap
        beta = 1 if cap is None else 0  # with a cap, the lse is subtracted after capping
        scale = computation.scale
        logs = torch.baddbmm(start, queries, keys.mT, beta=beta, alpha=scale, out=room)
        logs = unfold_groups(logs[None], self.num_heads)[0]
        if cap is not None:
            logs = logs.div_(cap).tanh_().mul_(cap).add_(negative_lse[0])
        if computation.has_bias:
            bias = bias_tile(computation, tile.rows, tile.low, tile.high)
            assert bias is not None
            logs += bias[0].clamp(min=LOWEST)
        else:
            for columns, term in tile.edges:
                logs[:, :, columns].add_(term)
        return logs
