"""Entropy: how widely a head spreads its attention."""

from typing import ClassVar

import torch

from headwise.measures.measure import Measure, RowValues, Sums
from headwise.measures.sequence_view import SequenceView, TileWeights


class Entropy(Measure):
    """`-sum_k A[q,k] ln A[q,k]` for each row."""

    columns: ClassVar[dict[str, str]] = {
        "entropy": "Mean entropy of the rows in nats, 0 to the log of the number of keys seen.",
        "normalised_entropy": "Mean entropy of the rows, each divided by the log of the number of "
        "keys it may see, 0 to 1; rows that see only one key are left out.",
    }

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """Add the tile's part of each row's entropy."""
        sums.rows("entropy", tile.span).sub_(torch.linalg.vecdot(tile.logs, tile.weights))

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Entropy in nats, and as a share of the row's largest possible entropy."""
        normalised = sums["entropy"] / view.seen.clamp(min=2).log()
        return {
            "entropy": RowValues(sums["entropy"]),
            "normalised_entropy": RowValues(normalised, view.sees_at_least(2)),
        }
