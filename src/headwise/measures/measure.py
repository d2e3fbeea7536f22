"""The Measure base class, and one pass over a view's tiles that computes all measures.

In: a view and measures. Out: for every column, a value per head and row, and the rows where it is
defined.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from headwise.errors import OptionError, ShapeError
from headwise.measures.sequence_view import RowLayout, SequenceView, TileWeights, positive

CACHED_PICKS = 1 << 20
"""Maximum number of single weights whose positions a layout keeps for the next layer."""


@dataclass(frozen=True, eq=False)
class RowValues:
    """One column of one view: a number per head and row, for the rows that have one."""

    values: Float[Tensor, "heads query"]
    is_defined: Bool[Tensor, " query"] | None = None
    """Rows that have a value; None if all do."""


RowsAndKeys = tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]
"""Pairs: a row, counted from the tile's first row, and the position of a key."""
PairsOf = Callable[[Int[Tensor, " row"]], RowsAndKeys]
"""Maps the positions of a tile's rows to pairs; keys outside the sequence are ignored."""
SharedName = tuple[type | None, str]
"""Class that owns a sum of features or pairs (None for headwise's own), and the sum's name."""


class Measure:
    """Numbers per head and row, computed from weighted sums, single weights or tiles of weights.

    Override `finish` and any of `features`, `pairs` and `see`. All measures share a single pass.
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
        """Single weights to read, by name; `sums[name]` is each row's sum of them.

        In `sums["value_" + name]`, each weight is multiplied by the length of its key's value.
        """
        return {}

    def see(self, view: SequenceView, tile: TileWeights, sums: "Sums") -> None:
        """Add one tile of weights to the sums."""

    def finish(self, view: SequenceView, sums: "Sums") -> dict[str, RowValues]:
        """The columns, once every tile has been added."""
        raise NotImplementedError


class Sums(dict[str, Tensor]):
    """A measure's sums over the keys for every head and row of a view, by name.

    Features and pairs are summed once for all measures; sums made in `see` are the measure's own.
    """

    def __init__(
        self, measure: Measure, view: SequenceView, shared: Mapping[SharedName, Tensor]
    ) -> None:
        """Start without sums; those in `shared` can also be read."""
        super().__init__()
        self.measure, self.view, self.shared = measure, view, shared
        is_ours = type(measure).__module__.startswith("headwise.")
        self.owner = None if is_ours else type(measure)

    def __missing__(self, name: str) -> Tensor:
        """The shared sum with that name; zeros if the rows see no key at all."""
        for owner in (self.owner, None):
            if (owner, name) in self.shared:
                return self.shared[owner, name]
        if not self.view.layout.blocks:
            return self.view.zeros()
        names = [*self, *(name for owner, name in self.shared if owner in (self.owner, None))]
        raise OptionError(
            f"{type(self.measure).__name__} reads a sum {name!r} that does not exist: the sums "
            f"are {', '.join(names)}"
        )

    def rows(self, name: str, span: slice) -> Float[Tensor, "heads row"]:
        """Some rows of the measure's own sum with that name, to change in place; zeros at first."""
        if name not in self:
            self[name] = self.view.zeros()
        return self[name][:, span]

    def add(self, name: str, span: slice, part: Float[Tensor, "heads row"]) -> None:
        """Add a tile's part to the measure's own sum with that name."""
        rows = self.rows(name, span)
        if part.shape != rows.shape:
            raise ShapeError(
                f"the part to add to {name!r} has shape {list(part.shape)}: pass one number per "
                f"head and row of the tile, {list(rows.shape)}"
            )
        rows.add_(part)

    def value_share(self, name: str) -> Float[Tensor, "heads query"]:
        """Share of the row's value-weighted attention that is on the keys of `name`."""
        return self[f"value_{name}"] / self._value_sums

    @cached_property
    def _value_sums(self) -> Float[Tensor, "heads query"]:
        return positive(self["value_norm"])


def with_value_columns(masses: Mapping[str, str]) -> dict[str, str]:
    """Columns with their meanings: the masses, and a value-weighted share for each of them."""
    return {**masses} | {
        f"value_{name}": meaning.replace("Mean weight", "Share of the value-weighted attention")
        for name, meaning in masses.items()
    }


class MassMeasure(Measure):
    """Masses, each the sum of a row's weights on some keys, and their value-weighted shares."""

    def rows(self, view: SequenceView) -> Mapping[str, Bool[Tensor, " query"]]:
        """The rows where each mass is defined, by name: those that may see a key it counts."""
        raise NotImplementedError

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """The masses and, if values are known, their value-weighted shares."""
        columns = {}
        for name, is_defined in self.rows(view).items():
            columns[name] = RowValues(sums[name], is_defined)
            if view.value_norms is not None:
                columns[f"value_{name}"] = RowValues(sums.value_share(name), is_defined)
        return columns


def measure_rows(view: SequenceView, measures: Sequence[Measure]) -> dict[str, RowValues]:
    """Every column of every measure that serves the view, computed in one pass over its weights."""
    shared: dict[SharedName, Tensor] = {}
    serving = [Sums(measure, view, shared) for measure in measures if measure.serves(view)]
    pairs = {
        (sums.owner, name): pairs_of
        for sums in serving
        for name, pairs_of in sums.measure.pairs(view.layout).items()
    }
    features = {
        (sums.owner, name): numbers
        for sums in serving
        for name, numbers in sums.measure.features(view).items()
    }
    if pairs and view.value_norms is not None:
        features = {(None, "value_norm"): view.value_norms} | features
    adders = [_feature_adder(view, features, shared)] if features else []
    adders += [_pair_adder(view, pairs, shared)] if pairs else []
    for tile in view.tiles():
        for add in adders:
            add(tile)
        for sums in serving:
            sums.measure.see(view, tile, sums)
    columns: dict[str, RowValues] = {}
    for sums in serving:
        new = sums.measure.finish(view, sums)
        if undescribed := new.keys() - sums.measure.columns.keys():
            raise OptionError(
                f"{type(sums.measure).__name__} returns a column {min(undescribed)!r} that its "
                f"`columns` do not list: they are {', '.join(sums.measure.columns)}"
            )
        columns |= new
    sees = view.sees_at_least(1)
    if not bool(sees.all()):  # a row that sees no key has no value in any column
        for name, column in columns.items():
            is_defined = sees if column.is_defined is None else column.is_defined & sees
            columns[name] = RowValues(column.values, is_defined)
    return columns


def _feature_adder(
    view: SequenceView, features: Mapping[SharedName, Tensor], shared: dict[SharedName, Tensor]
) -> Callable[[TileWeights], None]:
    """Put a sum for each feature into `shared`; return a function that adds a tile to them."""
    like, shape = view.sequence.mixed, (view.layout.num_heads, view.layout.num_keys)
    stacked = torch.stack([numbers.to(like).expand(shape) for numbers in features.values()], -1)
    summed = like.new_zeros(len(stacked), len(view.layout.rows), len(features))
    shared.update(zip(features, summed.unbind(2), strict=True))

    def add(tile: TileWeights) -> None:
        keys = slice(tile.block.low, tile.block.high)
        summed[:, tile.span].add_(torch.bmm(tile.weights, stacked[:, keys]))

    return add


def _pair_adder(
    view: SequenceView, pairs: Mapping[SharedName, PairsOf], shared: dict[SharedName, Tensor]
) -> Callable[[TileWeights], None]:
    """Put the sums for each name into `shared`; return a function that adds a tile to them."""
    layout, norms = view.layout, view.value_norms
    shape = (layout.num_heads, len(pairs), len(layout.rows))
    picked, valued = view.sequence.mixed.new_zeros(2, *shape)
    shared.update(zip(pairs, picked.unbind(1), strict=True))
    if norms is not None:
        value_names = [(owner, f"value_{name}") for owner, name in pairs]
        shared.update(zip(value_names, valued.unbind(1), strict=True))

    def add(tile: TileWeights) -> None:
        cells, keys, slots = _find_picks(layout, tile, pairs)
        if len(cells) == 0:
            return
        slots = slots.expand(layout.num_heads, -1)
        weights = tile.weights.flatten(1).index_select(1, cells)
        picked.flatten(1).scatter_add_(1, slots, weights)
        if norms is not None:
            weights *= norms.index_select(1, keys)
            valued.flatten(1).scatter_add_(1, slots, weights)

    return add


Picks = tuple[Int[Tensor, " picks"], Int[Tensor, " picks"], Int[Tensor, " picks"]]
"""Single weights in a tile: their index in the tile, their key, and the sum to add them to."""


def _find_picks(layout: RowLayout, tile: TileWeights, pairs: Mapping[SharedName, PairsOf]) -> Picks:
    """The pairs inside a tile, cached for the next layer if there are few."""
    block, num_rows = tile.block, len(layout.rows)
    cache: dict[object, Picks] = layout.once("picks", dict)
    key = (tuple(pairs), tile.span.start, block.low)
    if key in cache:
        return cache[key]
    cells, keys, slots = [], [], []
    for number, pairs_of in enumerate(pairs.values()):
        row, key_position = pairs_of(block.places)
        inside = (key_position >= block.low) & (key_position < block.high)
        row, key_position = row[inside], key_position[inside]
        cells.append(row * block.width + key_position - block.low)
        keys.append(key_position)
        slots.append(row + (number * num_rows + tile.span.start))
    picks = torch.cat(cells), torch.cat(keys), torch.cat(slots)
    if len(picks[0]) * len(layout.blocks) <= CACHED_PICKS:
        cache[key] = picks
    return picks
