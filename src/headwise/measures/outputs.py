"""Outputs: how much of a layer's output comes from each head, through the output projection."""

from typing import ClassVar

from headwise.measures.measure import Measure, RowValues, Sums
from headwise.measures.sequence_view import SequenceView, lengths_after, positive


class Outputs(Measure):
    """Length of `mixed_h Wo_h`, which the head adds to the layer's output, and its share.

    The share is of the sum of all heads' lengths, so outputs that cancel each other count in full.
    """

    columns: ClassVar[dict[str, str]] = {
        "output_norm": "Mean length of the vector that the head adds to the layer's output.",
        "output_share": "Mean of that length divided by its sum over the layer's heads, 0 to 1; "
        "the shares of a layer's heads add up to 1.",
    }

    def serves(self, view: SequenceView) -> bool:
        """Whether the view has the output projection, which this measure needs."""
        return view.output_roots is not None

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Length of each head's output in each row, and its share of the sum over heads."""
        assert view.output_roots is not None
        mixed = view.sequence.mixed
        if len(view.layout.rows) < mixed.shape[1]:
            mixed = mixed[:, view.layout.rows]
        lengths = lengths_after(mixed, view.output_roots)
        return {
            "output_norm": RowValues(lengths),
            "output_share": RowValues(lengths / positive(lengths.sum(0))),
        }
