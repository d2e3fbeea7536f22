"""Uniform: the masses of a head that attends equally to all the keys it may see."""

from typing import ClassVar

import torch
from torch import Tensor

from headwise.measures.masses import Masses, key_classes
from headwise.measures.measure import Measure, RowValues, Sums
from headwise.measures.offsets import OFFSETS, Offsets
from headwise.measures.repeats import Repeats, copies_seen
from headwise.measures.sequence_view import SequenceView, positive


class Uniform(Measure):
    """The baseline for roles: each mass if a row's weights on all keys it may see are equal."""

    columns: ClassVar[dict[str, str]] = {
        f"uniform_{name}": f"Value of `{name}` for a head with equal weights, 0 to 1."
        for name in (*OFFSETS, "first", "first4", "special", "punctuation", "duplicate")
    }

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """The share of each mass's keys among those a row may see, for rows that have the mass."""
        name = ("uniform", view.sequence.mixed.dtype)
        return view.layout.once(name, lambda: _uniform_columns(view))


def _uniform_columns(view: SequenceView) -> dict[str, RowValues]:
    layout, seen = view.layout, positive(view.seen)
    masses: dict[str, tuple[Tensor, Tensor | None]] = {
        name: (view.sees(layout.places + OFFSETS[name]), has_key)
        for name, has_key in Offsets().rows(view).items()
    }
    classes = key_classes(layout)
    counts = view.count_seen(torch.stack(list(classes.values())))
    rows = Masses().rows(view)
    masses |= {name: (count, rows[name]) for name, count in zip(classes, counts, strict=True)}
    if layout.tokens is not None and not layout.is_cross:
        masses["duplicate"] = (copies_seen(view), Repeats().rows(view)["duplicate"])
    return {
        f"uniform_{name}": RowValues((count / seen).expand(layout.num_heads, -1), is_defined)
        for name, (count, is_defined) in masses.items()
    }
