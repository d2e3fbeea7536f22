"""Uniform: what every mass would be for a head that looks at all its keys alike."""

from typing import ClassVar

import torch

from headwise.measures.masses import Masses
from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import OFFSETS, rows_with_key
from headwise.measures.repeats import copies_seen
from headwise.measures.sequence_view import SequenceView, Sums, positive


class Uniform(Measure):
    """The baseline of the roles: masses under equal weights on the keys that a row may see."""

    columns: ClassVar[dict[str, str]] = {
        f"uniform_{name}": f"The {name} mass of a head with equal weights, 0 to 1."
        for name in (*OFFSETS, "first", "first4", "special", "punctuation", "duplicate")
    }

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        """Shares of the keys seen, from counts alone; over the rows of the mass itself."""
        if view.layout.has_mask:
            return uniform_columns(view)
        return view.layout.once(("uniform", sums.like.dtype), lambda: uniform_columns(view))


def uniform_columns(view: SequenceView) -> dict[str, RowValues]:
    """Every column."""
    layout, masses = view.layout, Masses()
    shape, seen = (layout.num_heads, -1), positive(view.seen)
    columns = {}
    for name, has_key in rows_with_key(layout).items():
        share = view.sees(layout.places + OFFSETS[name]) / seen
        columns[f"uniform_{name}"] = RowValues(share.expand(shape), has_key)
    classes, rows = masses.classes(layout), masses.rows(layout)
    counts = view.count_seen(torch.stack(list(classes.values()))) / seen
    for name, found in zip(classes, counts, strict=True):
        columns[f"uniform_{name}"] = RowValues(found.expand(shape), rows.get(name))
    if layout.tokens is not None and not layout.is_cross:
        share = (copies_seen(view) / seen).expand(shape)
        columns["uniform_duplicate"] = RowValues(share, layout.has_copy)
    return columns
