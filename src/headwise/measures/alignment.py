"""Alignment: where in the other sequence a head of cross-attention looks, and in which order."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.measures.measure import Measure, RowValues, Sums
from headwise.measures.sequence_view import SequenceView, TileWeights


class Alignment(Measure):
    """The key with the row's largest weight, its peak, in attention to another sequence.

    A head that reads a sound or a sentence from its start to its end, as in speech recognition or
    translation, has peaks that do not go back: `peak_order` is near 1. Without an order it is near
    0.5, plus half the share of rows that repeat the peak before them.
    """

    columns: ClassVar[dict[str, str]] = {
        "peak": "Mean place of each row's largest weight among the keys of another sequence, 0 "
        "(first key) to 1 (last).",
        "peak_order": "Share of the rows whose largest weight is on no earlier key than that of "
        "the row measured before, in attention to another sequence, 0 to 1.",
    }

    def serves(self, view: SequenceView) -> bool:
        """Whether the keys are another sequence of two positions or more."""
        return view.layout.is_cross and view.layout.num_keys > 1

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """Update each row's largest weight, and the key that has it."""
        weights, keys = tile.weights.max(-1)
        largest, peak = (sums.rows(name, tile.span) for name in ("largest", "peak"))
        is_larger = weights > largest
        peak.copy_(torch.where(is_larger, (keys + tile.block.low).to(peak), peak))
        torch.maximum(largest, weights, out=largest)

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Each peak as a share of the keys, and whether it is not before the previous row's."""
        peak: Float[Tensor, "heads query"] = sums["peak"]
        sees = view.sees_at_least(1)
        order = torch.ones_like(peak)
        order[:, 1:] = (peak[:, 1:] >= peak[:, :-1]).to(peak)
        has_previous = torch.zeros_like(sees)
        has_previous[1:] = sees[1:] & sees[:-1]
        return {
            "peak": RowValues(peak / (view.layout.num_keys - 1)),
            "peak_order": RowValues(order, has_previous),
        }
