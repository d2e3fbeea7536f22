"""Confidence: how large a head's largest weight is, and whether it lies at a fixed offset."""

import torch
from torch import Tensor

from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import OFFSETS, never_ahead
from headwise.measures.view import Sums, Tile, View


class Confidence(Measure):
    """`max_k A[q,k]` of each row, special tokens left out (https://arxiv.org/abs/1905.09418).

    `largest_*` is the share of rows whose largest weight of all lies at that offset.
    """

    columns = {
        "confidence": "Mean over the rows of the largest weight, special tokens left out, 0 to 1."
    } | {
        f"largest_{name}": f"Share of the rows whose largest weight lies at offset {offset:+}."
        for name, offset in OFFSETS.items()
    }

    def see(self, view: View, tile: Tile, sums: Sums) -> None:
        """Keep each row's largest weight so far, of ordinary tokens and of all."""
        keep_largest(sums, "largest", tile, tile.weights.amax(-1))
        if view.tokens is None:
            return
        special = view.tokens.is_special[tile.low : tile.high].nonzero()[:, 0]
        if len(special) == 0:
            keep_largest(sums, "confidence", tile, sums["largest"][:, tile.span])
        elif len(special) < tile.high - tile.low:
            ordinary = tile.weights.index_fill(-1, special, 0.0)
            keep_largest(sums, "confidence", tile, ordinary.amax(-1))

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """The largest weights, and which offsets they lie at."""
        name = "largest" if view.tokens is None else "confidence"
        columns = {"confidence": RowValues(sums[name])}
        if view.is_cross:
            return columns
        for name, offset in OFFSETS.items():
            if offset > 0 and never_ahead(view):
                continue
            there = view.places + offset
            has_key = (there >= 0) & (there < view.num_keys)
            is_largest = (sums[name] >= sums["largest"]) & has_key
            columns[f"largest_{name}"] = RowValues(is_largest.to(sums.like))
        return columns


def keep_largest(sums: Sums, name: str, tile: Tile, found: Tensor) -> None:
    """Raise the kept numbers of the tile's rows to what was found, where that is more."""
    kept = sums[name][:, tile.span]
    torch.maximum(kept, found, out=kept)
