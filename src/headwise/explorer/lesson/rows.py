"""Lesson rows: one token's row of weights in every head, without the places where heads rest.

In: a layer's weights for one token. Out: the rows over ordinary tokens, each scaled up to one, and
what of each was left out. Most heads put much of every row on special tokens or the first one,
where they fetch little: there all rows look alike, and only beside it do they differ.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LEAST = 1e-6
"""Of a row that gives ordinary tokens less than this, nothing is left out."""


@dataclass(frozen=True, eq=False)
class Compared:
    """Rows that are compared, a row a head."""

    keys: tuple[int, ...]
    """Tokens that the rows are over."""
    weights: Float[Tensor, "head key"]
    """Each row adds up to one."""
    resting: tuple[float, ...]
    """Of each head's whole row, the share on tokens that are left out."""

    @property
    def gap(self) -> float:
        """How much larger the heads' largest weights are, on average, than their average row's."""
        return float(self.weights.amax(-1).mean() - self.weights.mean(0).max())


def compared(weights: Float[Tensor, "head key"], is_rest: Bool[Tensor, " key"]) -> Compared:
    """The rows without what rests, if at least two tokens are left to look at.

    >>> rows = torch.tensor([[0.5, 0.5, 0.0], [0.8, 0.0, 0.2]])
    >>> found = compared(rows, torch.tensor([True, False, False]))
    >>> found.keys, found.weights.tolist()
    ((1, 2), [[1.0, 0.0], [0.0, 1.0]])
    >>> [round(one, 3) for one in found.resting], round(found.gap, 3)
    ([0.5, 0.8], 0.5)
    """
    weights = weights.double()
    left = weights[:, ~is_rest]
    if int((left > 0).any(0).sum()) < 2 or float(left.sum(-1).min()) < LEAST:
        return Compared(tuple(range(len(is_rest))), weights, (0.0,) * len(weights))
    return Compared(
        keys=tuple(torch.nonzero(~is_rest)[:, 0].tolist()),
        weights=left / left.sum(-1, keepdim=True),
        resting=tuple(weights[:, is_rest].sum(-1).tolist()),
    )
