"""Entropy: how widely a head spreads its attention."""

from typing import ClassVar

import torch

from headwise.measures.measure import Measure, RowValues, Sums
from headwise.measures.sequence_view import SequenceView, TileWeights


class Entropy(Measure):
    """`-sum_k A[q,k] ln A[q,k]` of each row."""

    columns: ClassVar[dict[str, str]] = {
        "entropy": "Mean entropy of the rows in nats, 0 to the log of the keys seen.",
        "normalised_entropy": "Mean entropy of the rows, each divided by the log of the keys it "
        "may see, 0 to 1; rows that see one key are left out.",
    }

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """Add the tile's share."""
        sums.rows("entropy", tile.span).sub_(torch.linalg.vecdot(tile.logs, tile.weights))

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Nats, and shares of the largest entropy that the row could have."""
        normalised = sums["entropy"] / view.seen.clamp(min=2).log()
        return {
            "entropy": RowValues(sums["entropy"]),
            "normalised_entropy": RowValues(normalised, view.sees_at_least(2)),
        }
