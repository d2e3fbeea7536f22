"""Offsets: how much attention goes to the key a fixed distance away."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.measures.measure import Measure, RowValues
from headwise.measures.view import Sums, View

OFFSETS = {
    "back4": -4,
    "back3": -3,
    "back2": -2,
    "previous": -1,
    "self": 0,
    "next": 1,
    "ahead2": 2,
    "ahead3": 3,
    "ahead4": 4,
}


def words(offset: int) -> str:
    """Where that key stands."""
    if offset == 0:
        return "the token itself"
    return f"the token {abs(offset)} {'before' if offset < 0 else 'after'}"


def offsets_of(view: View) -> dict[str, int]:
    """The offsets at which the view's queries may see a key; none if no distance joins them."""
    if view.is_cross:
        return {}
    return {name: one for name, one in OFFSETS.items() if one <= 0 or not view.never_ahead}


class Offsets(Measure):
    """`A[q, q + offset]` for the offsets -4 to 4, over the rows that have such a key."""

    columns: ClassVar[dict[str, str]] = {
        name: f"Mean weight on {words(offset)}, 0 to 1." for name, offset in OFFSETS.items()
    } | {
        f"value_{name}": f"Share of the value-weighted attention on {words(offset)}, 0 to 1."
        for name, offset in OFFSETS.items()
    }

    def serves(self, view: View) -> bool:
        """Distances need queries and keys of one sequence."""
        return not view.is_cross

    def offsets(self, view: View) -> dict[str, int]:
        """All of them."""
        return offsets_of(view)

    def features(self, view: View) -> dict[str, Tensor]:
        """The lengths of the values, whose sum a share is a share of."""
        return {} if view.value_norms is None else {"value_norm": view.value_norms}

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """Means over the rows that have a key at that offset."""
        names, there = list(offsets_of(view)), keys_at_offsets(view)
        has_key = (there >= 0) & (there < view.num_keys)
        found = {name: sums[name] for name in names}
        if view.value_norms is not None:
            norms = view.value_norms[:, there.clamp(0, view.num_keys - 1)]
            weights = torch.stack([sums[name] for name in names], 1)
            shares = weights * norms / positive(sums["value_norm"])[:, None]
            found |= {f"value_{name}": shares[:, place] for place, name in enumerate(names)}
        rows = dict(zip(names, has_key, strict=True))
        return {
            name: RowValues(values, rows[name.removeprefix("value_")])
            for name, values in found.items()
        }


def keys_at_offsets(view: View) -> Tensor:
    """`[offsets query]`: which key lies there; it may lie outside the sequence."""
    offsets = torch.tensor(list(offsets_of(view).values()), device=view.rows.device)
    return view.places + offsets[:, None]


def positive(tensor: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The tensor with 1 for 0, to divide by: what is then divided is 0 too."""
    return tensor.masked_fill(tensor == 0, 1)
