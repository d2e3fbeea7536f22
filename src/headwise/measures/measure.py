"""What a measure is, and one pass over a view that serves all of them.

In: a view and measures. Out: for every column a value per head and row, and which rows it is
defined on. Nothing here knows any particular measure.
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

KEPT_PICKS = 1 << 20
"""Single weights of a layout whose places are remembered from layer to layer, at most."""


@dataclass(frozen=True, eq=False)
class RowValues:
    """One column of one view: a number per head and row, where the row has one."""

    values: Float[Tensor, "heads query"]
    is_defined: Bool[Tensor, " query"] | None = None
    """Rows that the column is about; None = all."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows of a block, counted from its first, and for each a key of the sequence."""

    row: Int[Tensor, " pairs"]
    key: Int[Tensor, " pairs"]


PairsOf = Callable[[Int[Tensor, " row"]], Pairs]
"""From the key positions of some rows to pairs; their keys may lie outside the sequence."""


class Measure:
    """Numbers per head and row: weights picked or summed in one pass, or tiles looked at."""

    columns: ClassVar[Mapping[str, str]]
    """What each column means, in one sentence with unit and range."""

    def serves(self, view: SequenceView) -> bool:
        """Whether the view has what the measure needs."""
        return True

    def features(self, view: SequenceView) -> dict[str, Shaped[Tensor, "#heads key"]]:
        """Numbers of the keys to be summed under each row's weights, by name."""
        return {}

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        """Single weights to be summed for each row, by name.

        The sum of the same weights times the lengths of their values is named `value_...`.
        """
        return {}

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """Add what the tile says to the sums."""

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """The columns, once every tile has been seen."""
        raise NotImplementedError


def measure_rows(view: SequenceView, measures: Sequence[Measure]) -> dict[str, RowValues]:
    """Every column of every measure that serves the view, by one pass over its weights.

    A row that sees no key has no weights, and no number in any column.
    """
    sums = Sums(view)
    serving = [
        (measure, Sums(view, sums, owner_of(measure, number)))
        for number, measure in enumerate(measures)
        if measure.serves(view)
    ]
    features: dict[str, Tensor] = {}
    pairs: dict[str, PairsOf] = {}
    for measure, own in serving:
        features |= {own.name_of(name): one for name, one in measure.features(view).items()}
        pairs |= {own.name_of(name): one for name, one in measure.pairs(view.layout).items()}
    summed = sums.table(list(features), dim=2)
    stacked = stack_features(view, list(features.values()))
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
        found = measure.finish(view, own)
        check_columns(measure, found)
        columns |= found
    return seeing_only(view, columns)


def owner_of(measure: Measure, number: int) -> str:
    """Whose sums they are, empty for headwise's own measures: those share what has one name."""
    kind = type(measure)
    return "" if kind.__module__.startswith("headwise.") else f"{number} {kind.__name__}"


def check_columns(measure: Measure, found: Mapping[str, RowValues]) -> None:
    """Raise where a measure gives a column that it does not describe."""
    if not found.keys() <= measure.columns.keys():
        strange = next(name for name in found if name not in measure.columns)
        raise OptionError(
            f"{type(measure).__name__} gives a column {strange!r}, which its columns do not "
            f"describe: they are {', '.join(measure.columns)}"
        )


def stack_features(
    view: SequenceView, features: Sequence[Shaped[Tensor, "#heads key"]]
) -> Float[Tensor, "heads key features"]:
    """The features side by side, in the dtype of the weights."""
    like, shape = view.sequence.mixed, (view.layout.num_heads, view.layout.num_keys)
    if not features:
        return like.new_empty(*shape, 0)
    return torch.stack([feature.to(like).expand(shape) for feature in features], -1)


@dataclass(frozen=True, eq=False)
class Picks:
    """Single weights of a block: where each stands in it, its key, and which sum it belongs to."""

    cell: Int[Tensor, " picks"]
    key: Int[Tensor, " picks"]
    slot: Int[Tensor, " picks"]

    @classmethod
    def of(cls, block: Tile, first_row: int, num_rows: int, wanted: list[PairsOf]) -> "Picks":
        """The pairs that lie in a block, whose rows are `first_row` and on of `num_rows`."""
        cells, keys, slots = [], [], []
        for number, pairs_of in enumerate(wanted):
            pairs = pairs_of(block.places)
            inside = (pairs.key >= block.low) & (pairs.key < block.high)
            row, key = pairs.row[inside], pairs.key[inside]
            cells.append(row * block.width + key - block.low)
            keys.append(key)
            slots.append(row + (number * num_rows + first_row))
        return cls(torch.cat(cells), torch.cat(keys), torch.cat(slots))


class Picker:
    """Sums single weights of tiles, and the same weighted by the lengths of their values."""

    def __init__(self, view: SequenceView, wanted: Mapping[str, PairsOf], sums: Sums) -> None:
        """What is wanted from which view; the sums are found by their names."""
        self.layout, self.names, self.pairs = view.layout, tuple(wanted), list(wanted.values())
        self.picked = sums.table(self.names, dim=1).flatten(1)
        self.norms, self.weighted = view.value_norms, self.picked
        if self.norms is not None:
            value_names = [f"value_{name}" for name in self.names]
            self.weighted = sums.table(value_names, dim=1).flatten(1)

    def pick(self, tile: TileWeights) -> None:
        """Add the tile's weights to the sums they belong to."""
        picks = self.picks(tile)
        if len(picks.cell) == 0:
            return
        slot = picks.slot.expand(self.layout.num_heads, -1)
        found = tile.weights.flatten(1).index_select(1, picks.cell)
        self.picked.scatter_add_(1, slot, found)
        if self.norms is not None:
            found *= self.norms.index_select(1, picks.key)
            self.weighted.scatter_add_(1, slot, found)

    def picks(self, tile: TileWeights) -> Picks:
        """Where the tile holds what is wanted: remembered for the next layer if that is little."""
        name = (self.names, tile.span.start, tile.block.low)
        kept: dict[object, Picks] = self.layout.once("picks", dict)
        if name in kept:
            return kept[name]
        picks = Picks.of(tile.block, tile.span.start, len(self.layout.rows), self.pairs)
        if len(picks.cell) * len(self.layout.blocks) <= KEPT_PICKS:
            kept[name] = picks
        return picks


def seeing_only(view: SequenceView, columns: dict[str, RowValues]) -> dict[str, RowValues]:
    """The columns without the rows that see no key."""
    sees = view.sees_at_least(1)
    if bool(sees.all()):
        return columns
    return {
        name: RowValues(
            column.values, sees if column.is_defined is None else column.is_defined & sees
        )
        for name, column in columns.items()
    }
