"""Sequence: one sequence of a call, whose weights are worked out a block at a time.

In: what one sequence's rows and keys met under, or the weights themselves. Out: the logs of any
block of the weight matrix. Blocks know positions only, so that every layer can use the same ones.
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
from headwise.attention.rules import Band

LOWEST = -1e30
"""Stands for the log of 0: its exponential is 0 in every dtype, and twice it is finite."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Some rows of a weight matrix and the keys `low..high`, seen through a band."""

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
        """Key position of each row."""
        return self.rows + self.band.offset

    @cached_property
    def _run(self) -> slice | None:
        """The rows as a slice, if they are neighbours in order."""
        if len(self.rows) and bool((self.rows.diff() == 1).all()):
            return slice(int(self.rows[0]), int(self.rows[-1]) + 1)
        return None

    def rows_of(
        self, tensor: Float[Tensor, "1 heads query width"]
    ) -> Float[Tensor, "1 heads rows width"]:
        """The block's rows of a tensor, without a copy where they are neighbours."""
        if self._run is None:
            return tensor.index_select(2, self.rows)
        return tensor[:, :, self._run]

    @cached_property
    def edges(self) -> list[tuple[slice, Float[Tensor, "query key"]]]:
        """Columns that hold keys outside the band, and what lowers the logs of those.

        It is added: to fill by a mask of truth values takes twenty times as long.
        """
        if not len(self.rows) or self.band.is_full:
            return []
        found, band = [], self.band
        first, last = (int(place) for place in self.places.aminmax())
        places = self.places[:, None]
        if band.after is not None and first + band.after + 1 < self.high:
            start = max(self.low, first + band.after + 1)
            keys = torch.arange(start, self.high, device=places.device)
            found.append((slice(start - self.low, None), lowest_where(keys > places + band.after)))
        if band.before is not None and self.low < last - band.before:
            end = min(self.high, last - band.before)
            keys = torch.arange(self.low, end, device=places.device)
            found.append((slice(None, end - self.low), lowest_where(keys < places - band.before)))
        return found


def lowest_where(is_hidden: Bool[Tensor, "query key"]) -> Float[Tensor, "query key"]:
    """`LOWEST` for what is hidden, 0 for the rest."""
    return torch.zeros((), device=is_hidden.device).where(~is_hidden, LOWEST)


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceWeights:
    """One sequence of a call, whose weights are computed a block at a time."""

    task: Computation | None
    mixed: Float[Tensor, "heads query d_value"]
    lse: Float[Tensor, "heads query"] | None
    shown: Float[Tensor, "heads query key"] | None

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.mixed.shape[0]

    @property
    def num_queries(self) -> int:
        """Rows of its weight matrix."""
        return self.mixed.shape[1]

    @property
    def num_keys(self) -> int:
        """Columns of its weight matrix."""
        if self.shown is not None:
            return self.shown.shape[-1]
        assert self.task is not None
        return self.task.num_keys

    @property
    def values(self) -> Float[Tensor, "kv_heads key d_value"] | None:
        """The values, where the model shows them."""
        return None if self.task is None else self.task.values[0]

    @cached_property
    def band(self) -> Band:
        """Which keys each query may see by its place alone."""
        if self.shown is not None:
            return band_of_weights(self.shown)
        assert self.task is not None
        return self.task.band

    def of_head(self, head: int) -> "SequenceWeights":
        """The same with one head alone."""
        part = slice(head, head + 1)
        task = None if self.task is None else task_of_head(self.task, head)
        return SequenceWeights(
            task=task,
            mixed=self.mixed[part],
            lse=None if self.lse is None else self.lse[part],
            shown=None if self.shown is None else self.shown[part],
        )

    def block(self, rows: Int[Tensor, " query"], low: int, high: int) -> Tile:
        """Some rows and the keys `low..high`."""
        return Tile(rows, low, high, self.band)

    @cached_property
    def _lowered(self) -> Float[Tensor, "1 heads query 1"]:
        """What is added to every score of a row to make it a log of a weight."""
        assert self.lse is not None
        nothing_seen = self.lse == -torch.inf  # such a row has no weights at all
        return -self.lse.masked_fill(nothing_seen, -LOWEST)[None, ..., None]

    def log_weights(
        self, block: Tile, room: Tensor | None = None
    ) -> Float[Tensor, "heads query key"]:
        """Log of the weights of a block, written into `room` if given.

        What a row does not see has a log so low that its weight is 0; it is finite, so that
        weights times logs are numbers.
        """
        if self.shown is not None:
            return self.shown[:, block.rows, block.low : block.high].log().clamp_(min=LOWEST)
        assert self.task is not None
        task, kv_heads = self.task, self.task.keys.shape[1]
        queries = fold_groups(block.rows_of(task.queries), kv_heads)[0]
        lowered = block.rows_of(self._lowered)
        start = fold_groups(lowered, kv_heads)[0]
        keys = task.keys[0, :, block.low : block.high]
        shape = (kv_heads, queries.shape[1], block.width)
        room = None if room is None else room[: math.prod(shape)].view(shape)
        cap = task.rules.softcap
        beta = 1 if cap is None else 0  # rows are lowered after the cap, where there is one
        logs = torch.baddbmm(start, queries, keys.mT, beta=beta, alpha=task.scale, out=room)
        logs = unfold_groups(logs[None], self.num_heads)[0]
        if cap is not None:
            logs = logs.div_(cap).tanh_().mul_(cap).add_(lowered[0])
        if task.has_bias:
            bias = bias_tile(task, block.rows, block.low, block.high)
            assert bias is not None
            logs += bias[0].clamp(min=LOWEST)
        else:
            for columns, lowering in block.edges:
                logs[:, :, columns].add_(lowering)
        return logs


def band_of_weights(shown: Float[Tensor, "heads query key"]) -> Band:
    """The narrowest band around all weights over 0 of any head: what the queries may see.

    A single weight does not tell: in half precision those under 6e-8 are 0 though they are seen.
    """
    num_queries, num_keys = shown.shape[1:]
    offset = num_keys - num_queries
    places = torch.arange(num_queries, device=shown.device) + offset
    apart = (torch.arange(num_keys, device=shown.device) - places[:, None])[(shown > 0).any(0)]
    if len(apart) == 0:
        return Band(None, None, offset)
    before, after = max(0, -int(apart.min())), max(0, int(apart.max()))
    return Band(before, after, offset).simplified(num_queries, num_keys)


def task_of_head(task: Computation, head: int) -> Computation:
    """What one query head computes, with the KV head that serves it."""
    part, serving = slice(head, head + 1), head // task.groups
    keys = slice(serving, serving + 1)

    def mine(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[part]

    rules = replace(
        task.rules,
        slopes=mine(task.rules.slopes),
        distance_bias=mine(task.rules.distance_bias),
        sinks=mine(task.rules.sinks),
    )
    mask = task.mask
    return replace(
        task,
        queries=task.queries[:, part],
        keys=task.keys[:, keys],
        values=task.values[:, keys],
        mask=mask if mask is None or mask.shape[1] == 1 else mask[:, part],
        rules=rules,
    )
