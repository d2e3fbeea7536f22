"""What a measure is, and one pass over a view that serves all of them.

In: a view and measures. Out: for every column a value per head and row, and which rows it is
defined on. Nothing here knows any particular measure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.measures.view import Sums, Tile, View


@dataclass(frozen=True, eq=False)
class RowValues:
    """One column of one view: a number per head and row, where the row has one."""

    values: Float[Tensor, "heads query"]
    is_defined: Bool[Tensor, " query"] | None = None
    """Rows that the column is about; None = all."""


class Measure:
    """Numbers per head and row: features of keys summed under the weights, or tiles looked at."""

    columns: ClassVar[Mapping[str, str]]
    """What each column means, in one sentence with unit and range."""

    def serves(self, view: View) -> bool:
        """Whether the view has what the measure needs."""
        return True

    def features(self, view: View) -> dict[str, Float[Tensor, "#heads key"]]:
        """Numbers of the keys to be summed under each row's weights, by name."""
        return {}

    def see(self, view: View, tile: Tile, sums: Sums) -> None:
        """Add what the tile says to the sums."""

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """The columns, once every tile has been seen."""
        raise NotImplementedError


def measure_rows(view: View, measures: Sequence[Measure]) -> dict[str, RowValues]:
    """Every column of every measure that serves the view, by one pass over its weights."""
    serving = [measure for measure in measures if measure.serves(view)]
    features: dict[str, Tensor] = {}
    for measure in serving:
        features |= measure.features(view)
    names, sums = list(features), Sums(view)
    shape = (view.num_heads, view.num_keys)
    stacked = (
        torch.stack([features[name].to(sums.like).expand(shape) for name in names], -1)
        if names
        else None
    )
    for tile in view.tiles():
        if stacked is not None:
            found = torch.bmm(tile.weights, stacked[:, tile.low : tile.high])
            for place, name in enumerate(names):
                sums.add(name, tile.span, found[..., place])
        for measure in serving:
            measure.see(view, tile, sums)
    columns: dict[str, RowValues] = {}
    for measure in serving:
        columns |= measure.finish(view, sums)
    return columns
