"""Uniform: what every mass would be for a head that looks at all its keys alike."""

from typing import ClassVar

import torch

from headwise.measures.masses import Masses
from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import positive
from headwise.measures.repeats import copies_before, copies_seen
from headwise.measures.view import Sums, View


class Uniform(Measure):
    """The baseline of the roles: masses under equal weights on the keys that a row may see."""

    columns: ClassVar[dict[str, str]] = {
        f"uniform_{name}": f"The {name} mass of a head with equal weights, 0 to 1."
        for name in ("offset", "first", "first4", "special", "punctuation", "duplicate")
    }

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """Shares of the keys seen, from counts alone; over the rows of the mass itself."""
        shape, seen, masses = (view.num_heads, -1), positive(view.seen), Masses()
        columns = {"uniform_offset": RowValues((1 / seen).expand(shape))}
        classes, rows = masses.classes(view), masses.rows(view)
        counts = view.count_seen(torch.stack(list(classes.values()))) / seen
        for name, found in zip(classes, counts, strict=True):
            columns[f"uniform_{name}"] = RowValues(found.expand(shape), rows.get(name))
        if view.tokens is not None and not view.is_cross:
            share = (copies_seen(view) / seen).expand(shape)
            has_copy = (copies_before(view.tokens.by_token) > 0)[view.places]
            columns["uniform_duplicate"] = RowValues(share, has_copy)
        return columns
