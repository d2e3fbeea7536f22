"""What a measure is, and one pass over a view that serves all of them.

In: a view and measures. Out: for every column a value per head and row, and which rows it is
defined on. Nothing here knows any particular measure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.measures.view import Sums, Tile, View


@dataclass(frozen=True, eq=False)
class RowValues:
    """One column of one view: a number per head and row, where the row has one."""

    values: Float[Tensor, "heads query"]
    is_defined: Bool[Tensor, " query"] | None = None
    """Rows that the column is about; None = all."""


class Measure:
    """Numbers per head and row: weights picked or summed in one pass, or tiles looked at."""

    columns: ClassVar[Mapping[str, str]]
    """What each column means, in one sentence with unit and range."""

    def serves(self, view: View) -> bool:
        """Whether the view has what the measure needs."""
        return True

    def features(self, view: View) -> dict[str, Float[Tensor, "#heads key"]]:
        """Numbers of the keys to be summed under each row's weights, by name."""
        return {}

    def offsets(self, view: View) -> dict[str, int]:
        """Distances from the query at which each row's weight is wanted, by name."""
        return {}

    def see(self, view: View, tile: Tile, sums: Sums) -> None:
        """Add what the tile says to the sums."""

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """The columns, once every tile has been seen."""
        raise NotImplementedError


def measure_rows(view: View, measures: Sequence[Measure]) -> dict[str, RowValues]:
    """Every column of every measure that serves the view, by one pass over its weights.

    A row that sees no key has no weights, and no number in any column.
    """
    serving = [measure for measure in measures if measure.serves(view)]
    features: dict[str, Tensor] = {}
    offsets: dict[str, int] = {}
    for measure in serving:
        features |= measure.features(view)
        offsets |= measure.offsets(view)
    sums = Sums(view)
    summed, picked = sums.table(list(features)), sums.table(list(offsets))
    stacked = stack_features(view, list(features.values()))
    apart = torch.tensor(list(offsets.values()), device=view.rows.device)
    for tile in view.tiles():
        if features:
            summed[:, tile.span] += torch.bmm(tile.weights, stacked[:, tile.low : tile.high])
        if offsets:
            picked[:, tile.span] += weights_apart(view, tile, apart)
        for measure in serving:
            measure.see(view, tile, sums)
    columns: dict[str, RowValues] = {}
    for measure in serving:
        columns |= measure.finish(view, sums)
    return seeing_only(view, columns)


def stack_features(
    view: View, features: Sequence[Float[Tensor, "#heads key"]]
) -> Float[Tensor, "heads key features"]:
    """The features side by side, in the dtype of the weights."""
    like, shape = view.sequence.mixed, (view.num_heads, view.num_keys)
    if not features:
        return like.new_empty(*shape, 0)
    return torch.stack([feature.to(like).expand(shape) for feature in features], -1)


def weights_apart(
    view: View, tile: Tile, apart: Int[Tensor, " offsets"]
) -> Float[Tensor, "heads query offsets"]:
    """Each row's weights at these distances, 0 where the tile does not hold them."""
    width = tile.high - tile.low
    keys = view.places[tile.span, None] + (apart - tile.low)
    inside = (keys >= 0) & (keys < width)
    picked = keys.clamp_(0, width - 1).expand(view.num_heads, -1, -1)
    return tile.weights.gather(2, picked) * inside


def seeing_only(view: View, columns: dict[str, RowValues]) -> dict[str, RowValues]:
    """The columns without the rows that see no key."""
    sees = (view.seen > 0).all(0)
    if bool(sees.all()):
        return columns
    return {
        name: RowValues(
            column.values, sees if column.is_defined is None else column.is_defined & sees
        )
        for name, column in columns.items()
    }
