"""Offsets: how much attention goes to the key a fixed distance away."""

from typing import ClassVar

import torch
from torch import Tensor

from headwise.measures.measure import Measure, PairsOf, RowValues
from headwise.measures.row_layout import RowLayout
from headwise.measures.sequence_view import SequenceView, Sums

OFFSETS = {
    "back4": -4,
    "back3": -3,
    "back2": -2,
    "previous": -1,
    "self": 0,
    "next": 1,
    "ahead2": 2,
    "ahead3": 3,
    "ahead4": 4,
}


def words(offset: int) -> str:
    """Where that key stands."""
    if offset == 0:
        return "the token itself"
    return f"the token {abs(offset)} {'before' if offset < 0 else 'after'}"


def pairs_at(offset: int) -> PairsOf:
    """Each row and the key that far from it."""
    return lambda places: (torch.arange(len(places), device=places.device), places + offset)


def offset_pairs(layout: RowLayout) -> dict[str, PairsOf]:
    """The offsets at which queries may see a key; none if no distance joins them."""
    if layout.is_cross:
        return {}
    return {
        name: pairs_at(offset)
        for name, offset in OFFSETS.items()
        if offset <= 0 or not layout.is_causal
    }


def rows_with_key(layout: RowLayout) -> dict[str, Tensor]:
    """For each offset, which rows have a key there."""

    def find() -> dict[str, Tensor]:
        found = {}
        for name in offset_pairs(layout):
            key = layout.places + OFFSETS[name]
            found[name] = (key >= 0) & (key < layout.num_keys)
        return found

    return layout.once("rows with key", find)


class Offsets(Measure):
    """`A[q, q + offset]` for the offsets -4 to 4, over the rows that have such a key."""

    columns: ClassVar[dict[str, str]] = {
        name: f"Mean weight on {words(offset)}, 0 to 1." for name, offset in OFFSETS.items()
    } | {
        f"value_{name}": f"Share of the value-weighted attention on {words(offset)}, 0 to 1."
        for name, offset in OFFSETS.items()
    }

    def serves(self, view: SequenceView) -> bool:
        """Distances need queries and keys of one sequence."""
        return not view.layout.is_cross

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        """One key for each row and offset."""
        return offset_pairs(layout)

    def features(self, view: SequenceView) -> dict[str, Tensor]:
        """The lengths of the values, whose sum a share is a share of."""
        return {} if view.value_norms is None else {"value_norm": view.value_norms}

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Means over the rows that have a key at that offset."""
        columns, rows = {}, rows_with_key(view.layout)
        for name, has_key in rows.items():
            columns[name] = RowValues(sums[name], has_key)
            if view.value_norms is not None:
                columns[f"value_{name}"] = RowValues(sums.value_share(name), has_key)
        return columns
