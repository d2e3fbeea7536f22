"""Silence: how much attention goes to the silent parts of a sound, such as its padding."""

from typing import ClassVar

from torch import Tensor

from headwise.measures.measure import Measure, RowValues, Sums
from headwise.measures.sequence_view import SequenceView, positive


class Silence(Measure):
    """`sum_k A[q,k]` over keys of silence; reading/sound.py says what counts as silence."""

    columns: ClassVar[dict[str, str]] = {
        "silence": "Mean weight on keys that are silence or padding of a sound, 0 to 1.",
        "uniform_silence": "Value of `silence` for a head with equal weights, 0 to 1.",
    }

    def serves(self, view: SequenceView) -> bool:
        """Whether some, but not all keys are silence."""
        silent = view.layout.is_silent
        return silent is not None and bool(silent.any()) and not bool(silent.all())

    def features(self, view: SequenceView) -> dict[str, Tensor]:
        """The mask of silent keys."""
        assert view.layout.is_silent is not None
        return {"silence": view.layout.is_silent[None]}

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """The weight on silent keys, and their share of the keys that a row may see."""
        assert view.layout.is_silent is not None
        share = view.count_seen(view.layout.is_silent[None])[0] / positive(view.seen)
        return {
            "silence": RowValues(sums["silence"]),
            "uniform_silence": RowValues(share.expand(view.layout.num_heads, -1)),
        }
