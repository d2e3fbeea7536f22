"""Confidence: how large a head's largest weight is, and whether it is at a fixed offset."""

from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.measures.masses import key_classes
from headwise.measures.measure import Measure, PairsOf, RowValues, Sums
from headwise.measures.offsets import OFFSETS, Offsets
from headwise.measures.sequence_view import RowLayout, SequenceView, TileWeights
from headwise.watching.sequence_weights import Tile


class Confidence(Measure):
    """`max_k A[q,k]` for each row, excluding special tokens (https://arxiv.org/abs/1905.09418).

    `largest_*`: whether the row's largest weight, special tokens included, is at that offset, for
    rows that have a key there.
    """

    columns: ClassVar[dict[str, str]] = {
        "confidence": "Mean of each row's largest weight, 0 to 1; special tokens are left out "
        "if the tokenizer defines them."
    } | {
        f"largest_{name}": f"Share of the rows whose largest weight is at offset {offset:+}, "
        "0 to 1."
        for name, offset in OFFSETS.items()
    }

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        """The key at each offset, whose weight may be the largest."""
        return Offsets().pairs(layout)

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """Update each row's largest weight over ordinary tokens, and over all tokens."""
        special = _special_columns(view.layout, tile.block)
        if len(special) == 0:
            ordinary = largest = tile.weights.amax(-1)
        else:
            on_special = tile.weights.index_select(-1, special)
            ordinary = tile.weights.index_fill_(-1, special, 0.0).amax(-1)
            tile.weights.index_copy_(-1, special, on_special)
            largest = torch.maximum(ordinary, on_special.amax(-1))
        for name, weights in (("confidence", ordinary), ("largest", largest)):
            rows = sums.rows(name, tile.span)
            torch.maximum(rows, weights, out=rows)

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """The largest weights, and whether they are at each offset."""
        is_special, is_defined = key_classes(view.layout).get("special"), None
        if is_special is not None:
            is_defined = view.layout.once(
                "sees ordinary", lambda: (view.count_seen(~is_special[None])[0] > 0).all(0)
            )
        columns = {"confidence": RowValues(sums["confidence"], is_defined)}
        for name, has_key in Offsets().rows(view).items():
            is_largest = sums[name] >= sums["largest"]
            columns[f"largest_{name}"] = RowValues(is_largest.to(sums["largest"]), has_key)
        return columns


def _special_columns(layout: RowLayout, block: Tile) -> Int[Tensor, " special"]:
    """A tile's columns for special tokens; empty if it is unknown which tokens are special."""
    is_special = key_classes(layout).get("special")
    if is_special is None:
        return layout.rows[:0]
    low, high = block.low, block.high
    return layout.once(("special", low, high), lambda: is_special[low:high].nonzero()[:, 0])
