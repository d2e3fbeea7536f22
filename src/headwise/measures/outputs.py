"""Outputs: how much of a layer's output comes from each head, through the output projection."""

from typing import ClassVar

from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import positive
from headwise.measures.view import Sums, View


class Outputs(Measure):
    """Lengths and shares of `mixed_h Wo_h`, the part of the layer's output that a head makes.

    The share is `<part, output> / <output, output>` with the projection's bias left out: the shares
    of a layer's heads add up to 1, and a head that works against the others has a negative one.
    """

    columns: ClassVar[dict[str, str]] = {
        "output_norm": "Mean length of what the head adds to the layer's output.",
        "output_share": "Mean share of the layer's output that the head makes; the heads of a "
        "layer add up to 1, and a head against the others counts negative.",
    }

    def serves(self, view: View) -> bool:
        """It takes the output projection."""
        return view.head_grams is not None

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """From inner products of the projection's rows, without the outputs themselves."""
        grams, gram = view.head_grams, view.output_gram
        assert grams is not None and gram is not None
        mixed = view.sequence.mixed[:, view.rows]
        squares = ((mixed @ grams) * mixed).sum(-1)
        concat = mixed.transpose(0, 1).flatten(1)
        with_all = ((concat @ gram) * concat).unflatten(-1, (view.num_heads, -1)).sum(-1).T
        share = with_all / positive(with_all.sum(0))
        return {
            "output_norm": RowValues(squares.clamp(min=0).sqrt()),
            "output_share": RowValues(share),
        }
