"""The Measure base class, and one pass over a view's tiles that serves all measures.

In: a view and measures. Out: for every column a value per head and row, and the rows it is defined
on. The measures themselves are in the other modules of this folder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from headwise.errors import OptionError
from headwise.measures.row_layout import RowLayout
from headwise.measures.sequence_view import SequenceView, Sums, TileWeights
from headwise.watching.sequence_weights import Tile

CACHED_PICKS = 1 << 20
"""At most this many single weights of a layout have their places cached from layer to layer."""


@dataclass(frozen=True, eq=False)
class RowValues:
    """One column of one view: a number per head and row, on the rows that have one."""

    values: Float[Tensor, "heads query"]
    is_defined: Bool[Tensor, " query"] | None = None
    """Rows that have a value; None = all."""


RowsAndKeys = tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]
"""Pairs: rows of a tile, counted from its first, and for each a key position."""
PairsOf = Callable[[Int[Tensor, " row"]], RowsAndKeys]
"""From the positions of some rows to pairs; keys outside the sequence are ignored."""


class Measure:
    """Numbers per head and row, from weighted sums, single weights, or whole tiles of weights.

    Override `finish` and any of `features`, `pairs` and `see`; all measures share one pass.
    """

    columns: ClassVar[Mapping[str, str]]
    """Meaning of each column, in one sentence with unit and range."""

    def serves(self, view: SequenceView) -> bool:
        """Whether the view has what the measure needs."""
        return True

    def features(self, view: SequenceView) -> dict[str, Shaped[Tensor, "#heads key"]]:
        """Numbers per key, by name; `sums[name]` is each row's weighted sum of them."""
        return {}

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        """Single weights, by name; `sums[name]` is each row's sum of them.

        `sums["value_" + name]` is the sum of the same weights times the lengths of their values.
        """
        return {}

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """Add one tile of weights to the sums."""

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """The columns, after every tile was added."""
        raise NotImplementedError


def measure_rows(view: SequenceView, measures: Sequence[Measure]) -> dict[str, RowValues]:
    """Every column of every measure that serves the view, in one pass over its weights.

    A row that sees no key has no weights and no value in any column.
    """
    sums = Sums(view)
    serving = [
        (measure, Sums(view, sums, _owner(measure, number)))
        for number, measure in enumerate(measures)
        if measure.serves(view)
    ]
    features: dict[str, Tensor] = {}
    pairs: dict[str, PairsOf] = {}
    for measure, own in serving:
        features |= {own.shared_name(name): f for name, f in measure.features(view).items()}
        pairs |= {own.shared_name(name): p for name, p in measure.pairs(view.layout).items()}
    summed = sums.table(list(features), dim=2)
    stacked = _stack_features(view, list(features.values()))
    picker, has_tiles = Picker(view, pairs, sums) if pairs else None, False
    for tile in view.tiles():
        if features:
            keys = slice(tile.block.low, tile.block.high)
            summed[:, tile.span].add_(torch.bmm(tile.weights, stacked[:, keys]))
        if picker is not None:
            picker.pick(tile)
        for measure, own in serving:
            measure.see(view, tile, own)
        has_tiles = True
    columns: dict[str, RowValues] = {}
    for measure, own in serving:
        own.is_complete = has_tiles
        new = measure.finish(view, own)
        if undescribed := new.keys() - measure.columns.keys():
            raise OptionError(
                f"{type(measure).__name__} returns a column {min(undescribed)!r} that its columns "
                f"do not describe: they are {', '.join(measure.columns)}"
            )
        columns |= new
    return _without_blind_rows(view, columns)


def _owner(measure: Measure, number: int) -> str:
    """Name of the owner of sums; empty for headwise's own measures, which share sums by name."""
    kind = type(measure)
    return "" if kind.__module__.startswith("headwise.") else f"{number} {kind.__name__}"


def _stack_features(
    view: SequenceView, features: Sequence[Shaped[Tensor, "#heads key"]]
) -> Float[Tensor, "heads key features"]:
    """The features along a last axis, in the dtype of the weights."""
    like, shape = view.sequence.mixed, (view.layout.num_heads, view.layout.num_keys)
    if not features:
        return like.new_empty(*shape, 0)
    return torch.stack([feature.to(like).expand(shape) for feature in features], -1)


@dataclass(frozen=True, eq=False)
class Picks:
    """Single weights of a tile: their cells in it, their keys, and the sums they belong to."""

    cell: Int[Tensor, " picks"]
    key: Int[Tensor, " picks"]
    slot: Int[Tensor, " picks"]

    @classmethod
    def of(cls, block: Tile, first_row: int, num_rows: int, pairs: list[PairsOf]) -> "Picks":
        """The pairs inside a tile, whose first row is `first_row` of `num_rows`."""
        cells, keys, slots = [], [], []
        for number, pairs_of in enumerate(pairs):
            row, key = pairs_of(block.places)
            inside = (key >= block.low) & (key < block.high)
            row, key = row[inside], key[inside]
            cells.append(row * block.width + key - block.low)
            keys.append(key)
            slots.append(row + (number * num_rows + first_row))
        return cls(torch.cat(cells), torch.cat(keys), torch.cat(slots))


class Picker:
    """Sums single weights of tiles, and these weights times the lengths of their values."""

    def __init__(self, view: SequenceView, pairs: Mapping[str, PairsOf], sums: Sums) -> None:
        """Add to `sums` the pairs of each name."""
        self.layout, self.names, self.pairs = view.layout, tuple(pairs), list(pairs.values())
        self.picked = sums.table(self.names, dim=1).flatten(1)
        self.norms, self.weighted = view.value_norms, self.picked
        if self.norms is not None:
            value_names = [f"value_{name}" for name in self.names]
            self.weighted = sums.table(value_names, dim=1).flatten(1)

    def pick(self, tile: TileWeights) -> None:
        """Add the tile's weights to their sums."""
        picks = self._picks(tile)
        if len(picks.cell) == 0:
            return
        slot = picks.slot.expand(self.layout.num_heads, -1)
        weights = tile.weights.flatten(1).index_select(1, picks.cell)
        self.picked.scatter_add_(1, slot, weights)
        if self.norms is not None:
            weights *= self.norms.index_select(1, picks.key)
            self.weighted.scatter_add_(1, slot, weights)

    def _picks(self, tile: TileWeights) -> Picks:
        """The tile's picks, cached for the next layer if they are few."""
        name = (self.names, tile.span.start, tile.block.low)
        cache: dict[object, Picks] = self.layout.once("picks", dict)
        if name in cache:
            return cache[name]
        picks = Picks.of(tile.block, tile.span.start, len(self.layout.rows), self.pairs)
        if len(picks.cell) * len(self.layout.blocks) <= CACHED_PICKS:
            cache[name] = picks
        return picks


def _without_blind_rows(view: SequenceView, columns: dict[str, RowValues]) -> dict[str, RowValues]:
    """The columns without rows that see no key."""
    sees = view.sees_at_least(1)
    if bool(sees.all()):
        return columns
    return {
        name: RowValues(
            column.values, sees if column.is_defined is None else column.is_defined & sees
        )
        for name, column in columns.items()
    }
