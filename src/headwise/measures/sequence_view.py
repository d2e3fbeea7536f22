"""View: some rows of one sequence's weights, and everything a measure may want to know of them.

In: a sequence of a call and its layout. Out: tiles of weights, small enough for the processor's
cache, each seen once and then gone. Which numbers are made of them is the measures' business.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.attention.bias import bias_tile
from headwise.errors import OptionError, ShapeError
from headwise.measures.row_layout import RowLayout
from headwise.watching.sequence_weights import SequenceWeights as Called, Tile

LEAST_LOG = -87.0
"""Smallest log of a weight, 1e-38, which changes no sum: the exponential of smaller logs, which
float32 cannot represent, takes thirty times as long."""


AT_ONCE = 2048
"""Rows whose products with the output projection are made at a time."""


class Scratch:
    """Memory for one tile, reused by all views: allocating it costs more than filling it."""

    def __init__(self) -> None:
        """Allocate nothing until the first call."""
        self._rooms: Tensor | None = None

    def rooms(self, numbers: int, like: Tensor) -> Float[Tensor, "two numbers"]:
        """Memory for `numbers` numbers, twice; overwrites earlier contents."""
        rooms = self._rooms
        if rooms is None or rooms.shape[1] < numbers or not _is_same_kind(rooms, like):
            self._rooms = rooms = like.new_empty(2, numbers)
        return rooms


def _is_same_kind(tensor: Tensor, like: Tensor) -> bool:
    return tensor.dtype == like.dtype and tensor.device == like.device


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceView:
    """Rows of one sequence's attention in one layer."""

    sequence: Called
    layout: RowLayout
    output_roots: Float[Tensor, "heads d_value width"] | None
    """For each head's part of the output projection a matrix that gives the same lengths."""
    scratch: Scratch = field(default_factory=Scratch, repr=False)

    @cached_property
    def seen(self) -> Float[Tensor, "#heads query"]:
        """How many keys each row may see."""
        if self.layout.has_mask:
            return self.allowed.sum(-1).to(self.sequence.mixed.dtype)
        return self.layout.seen.to(self.sequence.mixed.dtype)[None]

    def sees_at_least(self, keys: int) -> Bool[Tensor, " query"]:
        """Which rows may see at least `keys` keys."""
        if self.layout.has_mask:
            return (self.seen >= keys).all(0)
        return self.layout.once(("sees", keys), lambda: self.layout.seen >= keys)

    def sees(self, keys: Int[Tensor, " query"]) -> Bool[Tensor, "#heads query"]:
        """Whether each row may see one key, which may lie outside the sequence."""
        if not self.layout.has_mask:
            low, high = self.layout.seen_range
            return ((keys >= low) & (keys < high))[None]
        inside = (keys >= 0) & (keys < self.layout.num_keys)
        place = torch.where(inside, keys, 0)[None, :, None]
        found = self.allowed.gather(2, place.expand(len(self.allowed), -1, 1))[..., 0]
        return found & inside

    @cached_property
    def allowed(self) -> Bool[Tensor, "#heads query key"]:
        """Which keys each row may see, laid out: for layouts with gaps."""
        assert self.sequence.computation is not None
        bias = bias_tile(self.sequence.computation, self.layout.rows, 0, self.layout.num_keys)
        assert bias is not None
        return bias[0] > -torch.inf

    def count_seen(
        self, marked: Bool[Tensor, "kind key"]
    ) -> Float[Tensor, "kind one_or_heads query"]:
        """How many keys of each kind each row may see."""
        dtype = self.sequence.mixed.dtype
        if self.layout.has_mask:
            return torch.einsum("nk,hqk->nhq", marked.to(dtype), self.allowed.to(dtype))
        return self.layout.count_seen(marked).to(dtype)

    @cached_property
    def value_norms(self) -> Float[Tensor, "heads key"] | None:
        """Length of each key's value after the head's part of the output projection."""
        return value_lengths(self.sequence, self.output_roots)

    def tiles(self) -> Iterator["TileWeights"]:
        """All weights of the rows, one tile at a time; each tile overwrites the last."""
        blocks = self.layout.blocks
        largest = max((len(block.rows) * block.width for _, block in blocks), default=0)
        rooms = self.scratch.rooms(self.layout.num_heads * largest, self.sequence.mixed)
        for span, block in blocks:
            logs = self.sequence.log_weights(block, rooms[0]).clamp_(min=LEAST_LOG)
            weights = torch.exp(logs, out=rooms[1][: logs.numel()].view(logs.shape))
            yield TileWeights(logs, weights, span, block)


def value_lengths(
    sequence: Called, roots: Float[Tensor, "heads d_value width"] | None
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
    """Length of each row after a matrix, some rows at a time: the products take no memory."""
    parts = rows.split(AT_ONCE, dim=-2)
    return torch.cat([torch.linalg.vector_norm(part @ roots, dim=-1) for part in parts], -1)


@dataclass(frozen=True, eq=False)
class TileWeights:
    """The weights of a block."""

    logs: Float[Tensor, "heads query key"]
    weights: Float[Tensor, "heads query key"]
    span: slice
    """Which of the view's rows."""
    block: Tile


class Sums(dict[str, Tensor]):
    """Sums over the keys for every head and row of a view, by name.

    Features and pairs are summed for all measures at once. What a measure adds to while it looks at
    tiles is its own, made when first added to; nobody else reads or changes it.
    """

    def __init__(self, view: SequenceView, shared: "Sums | None" = None, owner: str = "") -> None:
        """Start without sums; `shared` are those of all measures."""
        super().__init__()
        self.shape = (view.layout.num_heads, len(view.layout.rows))
        self.like = view.sequence.mixed
        self.shared, self.owner = shared, owner
        self.is_complete = False

    def __missing__(self, name: str) -> Tensor:
        """The shared sum of that name, or zeros to add to."""
        for shared in (self.shared_name(name), name):
            if self.shared is not None and shared in self.shared:
                return self.shared[shared]
        if self.is_complete:
            raise OptionError(
                f"{self.owner.partition(' ')[2] or 'a measure'} reads a sum {name!r} that nothing "
                f"was added to: there are {', '.join([*self, *(self.shared or {})])}"
            )
        return self.own(name)

    def own(self, name: str) -> Tensor:
        """The sum of that name that belongs to this measure, made if it is not there."""
        if name not in self:
            self[name] = self.like.new_zeros(self.shape)
        return self[name]

    def shared_name(self, name: str) -> str:
        """The name among all measures; one that is not headwise's own has its own names there."""
        if not self.owner:
            return name
        kind = "value_" if name.startswith("value_") else ""
        return f"{kind}{self.owner}.{name.removeprefix(kind)}"

    def table(self, names: Sequence[str], dim: int) -> Tensor:
        """A tensor of several sums, one per name along `dim`; each is also available by name."""
        heads, rows = self.shape
        shape = [heads, rows]
        shape.insert(dim, len(names))
        table = self.like.new_zeros(shape)
        self.update(zip(names, table.unbind(dim), strict=True))
        return table

    def value_share(self, name: str) -> Float[Tensor, "heads query"]:
        """A sum of weights times lengths of values, over the same of all the row's weights."""
        return self[f"value_{name}"] / (self.shared or self)._values

    @cached_property
    def _values(self) -> Float[Tensor, "heads query"]:
        return positive(self["value_norm"])

    def add(self, name: str, span: slice, part: Float[Tensor, "heads query"]) -> None:
        """Add a tile's share."""
        rows = self.own(name)[:, span]
        if part.shape != rows.shape:
            raise ShapeError(
                f"a share of {name!r} is {list(part.shape)}: give one number per head and row of a "
                f"tile, {list(rows.shape)}"
            )
        rows.add_(part)


def positive(tensor: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The tensor with 1 instead of 0, as a divisor where the dividend is 0 too."""
    return tensor.masked_fill(tensor == 0, 1)
