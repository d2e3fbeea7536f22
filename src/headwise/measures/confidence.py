"""Confidence: how large a head's largest weight is, and whether it lies at a fixed offset."""

from typing import ClassVar

import torch
from torch import Tensor

from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import OFFSETS, keys_at_offsets, offsets_of
from headwise.measures.view import Sums, Tile, View


class Confidence(Measure):
    """`max_k A[q,k]` of each row, special tokens left out (https://arxiv.org/abs/1905.09418).

    `largest_*` is the share of rows whose largest weight of all lies at that offset, over the rows
    that have a key there.
    """

    columns: ClassVar[dict[str, str]] = {
        "confidence": "Mean over the rows of the largest weight, special tokens left out, 0 to 1."
    } | {
        f"largest_{name}": f"Share of the rows whose largest weight lies at offset {offset:+}, "
        "0 to 1."
        for name, offset in OFFSETS.items()
    }

    def offsets(self, view: View) -> dict[str, int]:
        """Where the largest weight may lie."""
        return offsets_of(view)

    def see(self, view: View, tile: Tile, sums: Sums) -> None:
        """Keep each row's largest weight so far, of ordinary tokens and of all.

        Special tokens have their weights taken out of the tile for a moment: it is read once.
        """
        if view.tokens is None:
            keep_largest(sums, "largest", tile, tile.weights.amax(-1))
            return
        special = view.tokens.is_special[tile.low : tile.high].nonzero()[:, 0]
        if len(special) == 0:
            largest = tile.weights.amax(-1)
            keep_largest(sums, "confidence", tile, largest)
        else:
            kept = tile.weights.index_select(-1, special)
            ordinary = tile.weights.index_fill_(-1, special, 0.0).amax(-1)
            tile.weights.index_copy_(-1, special, kept)
            keep_largest(sums, "confidence", tile, ordinary)
            largest = torch.maximum(ordinary, kept.amax(-1))
        keep_largest(sums, "largest", tile, largest)

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """The largest weights, and which offsets they lie at."""
        if view.tokens is None:
            columns = {"confidence": RowValues(sums["largest"])}
        else:
            ordinary = view.count_seen(~view.tokens.is_special[None])[0]
            columns = {"confidence": RowValues(sums["confidence"], (ordinary > 0).all(0))}
        if view.is_cross:
            return columns
        there = keys_at_offsets(view)
        has_key = (there >= 0) & (there < view.num_keys)
        for name, rows in zip(offsets_of(view), has_key, strict=True):
            is_largest = sums[name] >= sums["largest"]
            columns[f"largest_{name}"] = RowValues(is_largest.to(sums.like), rows)
        return columns


def keep_largest(sums: Sums, name: str, tile: Tile, found: Tensor) -> None:
    """Raise the kept numbers of the tile's rows to what was found, where that is more."""
    kept = sums[name][:, tile.span]
    torch.maximum(kept, found, out=kept)
