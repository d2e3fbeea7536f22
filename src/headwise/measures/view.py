"""View: some rows of one sequence's weights, and everything a measure may want to know of them.

In: a sequence of a call, the rows to measure, and what is known of the tokens. Out: tiles of
weights, small enough for the processor's cache, each seen once and then gone. Which numbers are
made of them is the measures' business.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.attention.task import bias_at
from headwise.watching.calls import Sequence as Called

LEAST_LOG = -87.0
"""Logs end here, at weights of 1e-38, which no sum notices: the exponential of what float32 cannot
hold takes thirty times as long."""
TILE_NUMBERS = 1 << 21
"""Weights in a tile at most, over all heads: 8 MiB in float32."""
TILE_ROWS, TILE_KEYS = 128, 2048
"""Rows and keys of a tile at most; of a causal triangle's edge, the smaller the less is wasted."""


@dataclass(frozen=True, eq=False)
class ByToken:
    """Positions put in order of their token, those of one token in the order of the text."""

    order: Int[Tensor, " key"]
    """Position of each place in the order."""
    rank: Int[Tensor, " key"]
    """Place of each position in the order."""
    begin: Int[Tensor, " key"]
    """Place in the order at which the token of each position begins."""

    @classmethod
    def of(cls, ids: Int[Tensor, " key"]) -> "ByToken":
        """The order of some tokens."""
        order = torch.argsort(ids, stable=True)
        in_order, places = ids[order], torch.arange(len(ids), device=ids.device)
        is_first = in_order.diff(prepend=in_order[:1] - 1) != 0
        rank, begin = torch.empty_like(order), torch.empty_like(order)
        rank[order] = places
        begin[order] = torch.where(is_first, places, 0).cummax(0).values
        return cls(order, rank, begin)


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyFacts:
    """What is known of the tokens of one sequence, padding left out."""

    ids: Int[Tensor, " key"]
    is_special: Bool[Tensor, " key"]
    is_punctuation: Bool[Tensor, " key"]

    @cached_property
    def by_token(self) -> ByToken:
        """Where copies of a token stand."""
        return ByToken.of(self.ids)


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """Rows of one sequence's attention in one layer."""

    sequence: Called
    rows: Int[Tensor, " query"]
    """Positions of the measured queries, in order."""
    tokens: KeyFacts | None
    """Of the keys; None where there are none, as in a picture."""
    head_grams: Float[Tensor, "heads d_value d_value"] | None
    """`Wo Wo^T` of each head's part of the output projection: lengths after it without it."""
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
    def never_ahead(self) -> bool:
        """Whether no query sees a key after its own."""
        if self.sequence.shown is not None:
            return not bool(self.sequence.shown.triu(self.sequence.offset + 1).any())
        task = self.sequence.task
        return task is not None and task.band.after == 0

    @cached_property
    def seen_range(self) -> tuple[Tensor, Tensor] | None:
        """First key that each row sees, and the one after its last; None if there are gaps."""
        task = self.sequence.task
        if task is None or not lets_all_pass(task.mask):
            return None
        low, high = torch.zeros_like(self.places), torch.full_like(self.places, self.num_keys)
        if task.band.before is not None:
            low = (self.places - task.band.before).clamp(0, self.num_keys)
        if task.band.after is not None:
            high = (self.places + task.band.after + 1).clamp(0, self.num_keys)
        return low, torch.maximum(low, high)

    @cached_property
    def seen(self) -> Float[Tensor, "#heads query"]:
        """How many keys each row may see."""
        if self.seen_range is None:
            return self.sequence.count_seen(self.rows)
        low, high = self.seen_range
        return (high - low).to(self.sequence.mixed.dtype)[None]

    def allowed(self) -> Bool[Tensor, "#heads query key"]:
        """Which keys each row may see, laid out."""
        if self.sequence.shown is not None:
            return self.sequence.shown[:, self.rows] > 0
        assert self.sequence.task is not None
        bias = bias_at(self.sequence.task, self.rows, 0, self.num_keys)
        if bias is None:
            return torch.ones(1, len(self.rows), self.num_keys, dtype=torch.bool)
        return bias[0] > -torch.inf

    def count_seen(
        self, marked: Bool[Tensor, "kind key"]
    ) -> Float[Tensor, "kind one_or_heads query"]:
        """How many keys of each kind each row may see."""
        marks = marked.to(self.sequence.mixed.dtype)
        if self.seen_range is None:
            allowed = self.allowed().to(marks.dtype)
            return torch.einsum("nk,hqk->nhq", marks, allowed)
        so_far = torch.nn.functional.pad(marks.cumsum(1), (1, 0))
        low, high = self.seen_range
        return (so_far[:, high] - so_far[:, low])[:, None]

    @cached_property
    def value_norms(self) -> Float[Tensor, "heads key"] | None:
        """Length of each key's value after the head's part of the output projection."""
        values, grams = self.sequence.values, self.head_grams
        if values is None or grams is None:
            return None
        shared = grams.unflatten(0, (values.shape[0], -1))
        squares: Tensor = ((values[:, None] @ shared) * values[:, None]).sum(-1)
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
                logs = self.sequence.log_weights(rows, key, end, rooms[0]).clamp_(min=LEAST_LOG)
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


def lets_all_pass(mask: Tensor | None) -> bool:
    """Whether a mask blocks nothing and adds nothing: cheap to say of masks of keys alone."""
    if mask is None:
        return True
    return mask.dtype == torch.bool and mask.shape[:3].numel() == 1 and bool(mask.all())


class Sums(dict[str, Tensor]):
    """Sums over the keys for every head and row of a view, by name; made when first added to."""

    def __init__(self, view: View) -> None:
        """Nothing yet."""
        super().__init__()
        self.shape = (view.num_heads, len(view.rows))
        self.like = view.sequence.mixed

    def __missing__(self, name: str) -> Tensor:
        """Zeros."""
        self[name] = self.like.new_zeros(self.shape)
        return self[name]

    def table(self, names: Sequence[str]) -> Float[Tensor, "heads query names"]:
        """Room for several sums side by side; each is found by its name, too."""
        table = self.like.new_zeros(*self.shape, len(names))
        self.update(zip(names, table.unbind(-1), strict=True))
        return table

    def add(self, name: str, span: slice, part: Float[Tensor, "heads query"]) -> None:
        """Add a tile's share."""
        self[name][:, span] += part
