"""Uniform: what every mass would be for a head that looks at all its keys alike."""

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.measures.masses import Masses
from headwise.measures.measure import Measure, RowValues
from headwise.measures.offsets import positive
from headwise.measures.repeats import copies_before
from headwise.measures.view import Sums, View


class Uniform(Measure):
    """The baseline of the roles: masses under equal weights on the keys that a row may see."""

    columns = {
        f"uniform_{name}": f"The {name} mass of a head with equal weights."
        for name in ("offset", "first", "first4", "special", "punctuation", "duplicate")
    }

    def finish(self, view: View, sums: Sums) -> dict[str, RowValues]:
        """Shares of the keys seen, from counts alone."""
        seen = view.sequence.count_seen(view.rows)
        columns = {"uniform_offset": RowValues(1 / positive(seen), (seen > 0).all(0))}
        for name, keys in Masses().classes(view).items():
            counts = counted(view, keys.to(sums.like))
            rows = None
            if name.startswith("first") and not view.is_cross:
                rows = view.places >= (1 if name == "first" else 4)
            columns[f"uniform_{name}"] = RowValues(counts / positive(seen), rows)
        if view.tokens is not None and not view.is_cross:
            copies = copies_before(view.tokens.ids)[view.places].to(sums.like)
            columns["uniform_duplicate"] = RowValues(copies / positive(seen), copies > 0)
        return columns


def counted(view: View, keys: Float[Tensor, " key"]) -> Float[Tensor, " query"]:
    """How many of the marked keys lie in the band that each row sees."""
    so_far = torch.cat([keys.new_zeros(1), keys.cumsum(0)])
    task = view.sequence.task
    band = None if task is None else task.band
    low, high = torch.zeros_like(view.places), torch.full_like(view.places, view.num_keys)
    if band is not None and band.before is not None:
        low = (view.places - band.before).clamp(0, view.num_keys)
    if band is not None and band.after is not None:
        high = (view.places + band.after + 1).clamp(0, view.num_keys)
    return so_far[high] - so_far[low]
