"""Blurring: what becomes of several sharp patterns when one row of weights has to hold them all.

In: a trace, or the textbook's case of three targets. Out: each head's row beside the one row that
their average is, with entropy and largest weight.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.tracing.record import Trace


@dataclass(frozen=True, eq=False)
class Row:
    """One query's weights in one head, or in a mixture of heads."""

    name: str
    weights: Float[Tensor, " key"]

    @property
    def entropy(self) -> float:
        """Nats, 0 to the log of the number of keys."""
        return float(torch.special.entr(self.weights.double()).sum())

    @property
    def largest(self) -> float:
        """The largest weight, 0 to 1."""
        return float(self.weights.max())


@dataclass(frozen=True, eq=False)
class Blur:
    """One query: a row for each head, and the single row that is their average."""

    query: str
    keys: tuple[str, ...]
    heads: tuple[Row, ...]

    @property
    def single(self) -> Row:
        """What one head would have to look at to see what all of them see."""
        return Row("one row", torch.stack([row.weights for row in self.heads]).mean(0))


def blur_of(trace: Trace, query: int) -> Blur:
    """The chosen heads of a trace at one query."""
    labels = trace.labels
    if not 0 <= query < len(labels.queries):
        raise OptionError(f"there is no token {query}: the text has 0..{len(labels.queries) - 1}")
    weights = trace["weights"].values[0]
    rows = tuple(Row(trace.name_of(head), weights[head, query]) for head in trace.heads)
    return Blur(labels.queries[query], labels.keys, rows)


@dataclass(frozen=True)
class Sharpness:
    """Means over all queries of a trace's first sequence, but padding."""

    entropy_of_heads: float
    entropy_of_single: float
    largest_of_heads: float
    largest_of_single: float


def sharpness(trace: Trace) -> Sharpness:
    """How much sharper the heads' rows are than their averages, over all queries."""
    weights = trace["weights"].values[0, list(trace.heads)].double()
    if trace.is_real is not None:
        weights = weights[:, trace.is_real[0]]
    single = weights.mean(0)
    return Sharpness(
        entropy_of_heads=float(torch.special.entr(weights).sum(-1).mean()),
        entropy_of_single=float(torch.special.entr(single).sum(-1).mean()),
        largest_of_heads=float(weights.amax(-1).mean()),
        largest_of_single=float(single.amax(-1).mean()),
    )


def three_targets(num_keys: int = 8, score: float = 5.0) -> tuple[Blur, Row]:
    """The textbook's case: three keys to look at, by three heads, and by one softmax.

    Each head scores its own target `score` and all else 0; the one softmax scores all three so.
    """
    scores = torch.zeros(3, num_keys, dtype=torch.float64)
    targets = [round(place) for place in torch.linspace(1, num_keys - 2, 3).tolist()]
    for head, target in enumerate(targets):
        scores[head, target] = score
    keys = tuple(f"target {targets.index(k) + 1}" if k in targets else "-" for k in range(num_keys))
    heads = tuple(Row(f"head {head}", row.softmax(0)) for head, row in enumerate(scores))
    together = Row("one softmax", scores.sum(0).softmax(0))
    return Blur("query", keys, heads), together


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
