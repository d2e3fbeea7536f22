"""Confidence: how large a head's largest weight is, and whether it lies at a fixed offset."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.measures.measure import Measure, PairsOf, RowValues
from headwise.measures.offsets import OFFSETS, offset_pairs, rows_with_key
from headwise.measures.row_layout import RowLayout
from headwise.measures.sequence_view import SequenceView, Sums, TileWeights
from headwise.watching.sequence_weights import Tile


class Confidence(Measure):
    """`max_k A[q,k]` of each row, special tokens left out (https://arxiv.org/abs/1905.09418).

    If special tokens are unknown, none is left out.
    `largest_*` is the share of rows whose largest weight of all lies at that offset, over the rows
    that have a key there.
    """

    columns: ClassVar[dict[str, str]] = {
        "confidence": "Mean over the rows of the largest weight, special tokens left out if a "
        "tokenizer names them, 0 to 1."
    } | {
        f"largest_{name}": f"Share of the rows whose largest weight lies at offset {offset:+}, "
        "0 to 1."
        for name, offset in OFFSETS.items()
    }

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        """Where the largest weight may lie."""
        return offset_pairs(layout)

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """Update each row's largest weight, over ordinary tokens and over all.

        The weights of special tokens are set to 0 in the tile and then restored.
        """
        is_special = special_tokens(view.layout)
        if is_special is None:
            keep_largest(sums, "largest", tile, tile.weights.amax(-1))
            return
        special = special_keys(view.layout, is_special, tile.block)
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

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """The largest weights, and which offsets they lie at."""
        is_special = special_tokens(view.layout)
        if is_special is None:
            columns = {"confidence": RowValues(sums["largest"])}
        else:
            is_defined = sees_ordinary(view, ~is_special[None])
            columns = {"confidence": RowValues(sums["confidence"], is_defined)}
        for name, has_key in rows_with_key(view.layout).items():
            is_largest = sums[name] >= sums["largest"]
            columns[f"largest_{name}"] = RowValues(is_largest.to(sums.like), has_key)
        return columns


def special_tokens(layout: RowLayout) -> Bool[Tensor, " key"] | None:
    """Which keys are special tokens; None if unknown."""
    return None if layout.tokens is None else layout.tokens.is_special


def sees_ordinary(view: SequenceView, is_ordinary: Bool[Tensor, "1 key"]) -> Bool[Tensor, " query"]:
    """Which rows may see a token that is not special."""
    if view.layout.has_mask:
        return (view.count_seen(is_ordinary)[0] > 0).all(0)
    return view.layout.once("ordinary", lambda: view.layout.count_seen(is_ordinary)[0, 0] > 0)


def special_keys(
    layout: RowLayout, is_special: Bool[Tensor, " key"], block: Tile
) -> Int[Tensor, " special"]:
    """Which columns of a block are special tokens."""
    within = is_special[block.low : block.high]
    return layout.once(("special", block.low, block.high), lambda: within.nonzero()[:, 0])


def keep_largest(sums: Sums, name: str, tile: TileWeights, found: Tensor) -> None:
    """Raise the stored numbers of the tile's rows to `found` where that is larger."""
    kept = sums.own(name)[:, tile.span]
    torch.maximum(kept, found, out=kept)
