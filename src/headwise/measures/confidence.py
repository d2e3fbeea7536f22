"""Confidence: how large a head's largest weight is, and whether it lies at a fixed offset."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.measures.layout import Layout
from headwise.measures.measure import Measure, PairsOf, RowValues
from headwise.measures.offsets import OFFSETS, offset_pairs, rows_with_key
from headwise.measures.view import Sums, Tile, View
from headwise.watching.sequence import Block


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

    def pairs(self, layout: Layout) -> dict[str, PairsOf]:
        """Where the largest weight may lie."""
        return offset_pairs(layout)

    def see(self, view: View, tile: Tile, sums: Sums) -> None:
        """Keep each row's largest weight so far, of ordinary tokens and of all.

        Special tokens have their weights taken out of the tile for a moment: it is read once.
        """
        if view.layout.tokens is None:
            keep_largest(sums, "largest", tile, tile.weights.amax(-1))
            return
        special = special_keys(view.layout, tile.block)
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
        if view.layout.tokens is None:
            columns = {"confidence": RowValues(sums["largest"])}
        else:
            columns = {"confidence": RowValues(sums["confidence"], sees_ordinary(view))}
        for name, has_key in rows_with_key(view.layout).items():
            is_largest = sums[name] >= sums["largest"]
            columns[f"largest_{name}"] = RowValues(is_largest.to(sums.like), has_key)
        return columns


def sees_ordinary(view: View) -> Bool[Tensor, " query"]:
    """Which rows may see a token that is not special."""
    assert view.layout.tokens is not None
    is_ordinary = ~view.layout.tokens.is_special[None]
    if view.layout.has_gaps:
        return (view.count_seen(is_ordinary)[0] > 0).all(0)
    return view.layout.once("ordinary", lambda: view.layout.count_seen(is_ordinary)[0, 0] > 0)


def special_keys(layout: Layout, block: Block) -> Int[Tensor, " special"]:
    """Which columns of a block are special tokens."""
    assert layout.tokens is not None
    is_special = layout.tokens.is_special[block.low : block.high]
    return layout.once(("special", block.low, block.high), lambda: is_special.nonzero()[:, 0])


def keep_largest(sums: Sums, name: str, tile: Tile, found: Tensor) -> None:
    """Raise the kept numbers of the tile's rows to what was found, where that is more."""
    kept = sums[name][:, tile.span]
    torch.maximum(kept, found, out=kept)
