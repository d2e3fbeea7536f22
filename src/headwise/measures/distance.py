"""Distance: how far away a head looks, and in which direction."""

from typing import ClassVar

import torch
from torch import Tensor

from headwise.measures.measure import Measure, RowValues, Sums
from headwise.measures.sequence_view import SequenceView, TileWeights


class Distance(Measure):
    """`sum_k A[q,k] |q - k|` and `sum_k A[q,k] (k - q)` for each row."""

    columns: ClassVar[dict[str, str]] = {
        "distance": "Mean distance in tokens between a query and the keys it attends to.",
        "signed_distance": "Mean distance in tokens, negative for keys before the query.",
    }

    def serves(self, view: SequenceView) -> bool:
        """Whether queries and keys come from the same sequence, so that distances are defined."""
        return not view.layout.is_cross

    def features(self, view: SequenceView) -> dict[str, Tensor]:
        """Ones, and positions counted from the middle of the sequence to reduce rounding errors."""
        like, size = view.sequence.mixed, view.layout.num_keys
        position = torch.arange(size, dtype=like.dtype, device=like.device) - size // 2
        return {"mass": torch.ones_like(position)[None], "position": position[None]}

    def see(self, view: SequenceView, tile: TileWeights, sums: Sums) -> None:
        """If rows may see keys on both sides, sum the distances directly, weighted by attention."""
        if not view.layout.is_causal:
            places = tile.block.places[:, None].to(tile.weights)
            keys = torch.arange(tile.block.low, tile.block.high, device=places.device)
            distances = (keys - places).abs_()
            sums.add("distance", tile.span, torch.linalg.vecdot(tile.weights, distances[None]))

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Both distances; in a causal model one is the negative of the other."""
        places = (view.layout.places - view.layout.num_keys // 2).to(sums["mass"])
        signed = sums["position"] - places * sums["mass"]
        distance = -signed if view.layout.is_causal else sums["distance"]
        return {"distance": RowValues(distance), "signed_distance": RowValues(signed)}
