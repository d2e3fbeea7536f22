"""Offsets: how much attention goes to keys at fixed offsets from the query."""

from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.measures.measure import MassMeasure, PairsOf, RowsAndKeys, with_value_columns
from headwise.measures.sequence_view import RowLayout, SequenceView

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


class Offsets(MassMeasure):
    """`A[q, q + offset]` for the offsets -4 to 4, over the rows that have such a key."""

    columns: ClassVar[dict[str, str]] = with_value_columns(
        {
            name: f"Mean weight on the token at offset {offset:+} from the query, 0 to 1."
            for name, offset in OFFSETS.items()
        }
        | {"self": "Mean weight on the token itself, 0 to 1."}
    )

    def serves(self, view: SequenceView) -> bool:
        """Whether queries and keys come from the same sequence, so that offsets are defined."""
        return not view.layout.is_cross

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        """The key at each offset that queries may see; empty for cross attention."""
        if layout.is_cross:
            return {}
        return {
            name: partial(_pairs_at, offset)
            for name, offset in OFFSETS.items()
            if offset <= 0 or not layout.is_causal
        }

    def rows(self, view: SequenceView) -> dict[str, Bool[Tensor, " query"]]:
        """The rows that may see a key at each offset."""
        layout = view.layout
        return layout.once(
            "rows with key",
            lambda: {
                name: view.sees(layout.places + OFFSETS[name]).all(0) for name in self.pairs(layout)
            },
        )


def _pairs_at(offset: int, places: Int[Tensor, " row"]) -> RowsAndKeys:
    return torch.arange(len(places), device=places.device), places + offset
