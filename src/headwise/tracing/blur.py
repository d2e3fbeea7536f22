"""Blurring: what several sharp patterns lose if they share one row of weights.

In: a Trace, or rows from several heads. Out: each row and their average, and how sharp these are.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.tracing.record import Trace

LEAST_WEIGHT = 1e-6  # if a row has less weight on ordinary tokens, all keys are compared


@dataclass(frozen=True, eq=False)
class Row:
    """One query's weights in one head, or in a mixture of heads."""

    name: str
    weights: Float[Tensor, " key"]

    @property
    def entropy(self) -> float:
        """Entropy in nats, 0 to the log of the number of keys."""
        return float(torch.special.entr(self.weights.double()).sum())

    @property
    def largest(self) -> float:
        """The largest weight, 0 to 1."""
        return float(self.weights.max())


@dataclass(frozen=True, eq=False)
class Blur:
    """One query's rows of weights: one per head, and their average."""

    query: str
    keys: tuple[str, ...]
    heads: tuple[Row, ...]

    @property
    def single(self) -> Row:
        """The average of the heads' rows: the row that one head would need to cover them all."""
        return Row("one row", torch.stack([row.weights for row in self.heads]).mean(0))


def compare_heads(trace: Trace, query: int) -> Blur:
    """The rows of one query in the chosen heads of a trace."""
    labels = trace.labels
    if not 0 <= query < len(labels.queries):
        raise OptionError(
            f"query is {query}: the text has tokens 0..{len(labels.queries) - 1}", option="query"
        )
    weights = trace["weights"].values[0]
    rows = tuple(Row(trace.name_of(head), weights[head, query]) for head in trace.heads)
    return Blur(labels.queries[query], labels.keys, rows)


class Sharpness(NamedTuple):
    """Mean entropy and mean largest weight over the real queries in a trace's first sequence."""

    entropy_of_heads: float
    entropy_of_single: float
    largest_of_heads: float
    largest_of_single: float


def sharpness(trace: Trace) -> Sharpness:
    """How sharp the heads' rows are, compared with the average of all heads."""
    weights = trace["weights"].values[0, list(trace.heads)].double()
    if trace.is_real is not None:
        weights = weights[:, trace.is_real[0]]
    both = (weights, weights.mean(0))
    entropies = (float(torch.special.entr(rows).sum(-1).mean()) for rows in both)
    return Sharpness(*entropies, *(float(rows.amax(-1).mean()) for rows in both))


def three_targets(num_keys: int = 8, score: float = 5.0) -> tuple[Blur, Row]:
    """The textbook example: three heads with one target key each, and one softmax for all three.

    Targets have the score `score`, other keys 0; the single softmax has all three targets.
    """
    scores = torch.zeros(3, num_keys, dtype=torch.float64)
    targets = [round(place) for place in torch.linspace(1, num_keys - 2, 3).tolist()]
    for head, target in enumerate(targets):
        scores[head, target] = score
    keys = tuple(f"target {targets.index(k) + 1}" if k in targets else "-" for k in range(num_keys))
    heads = tuple(Row(f"head {head}", row.softmax(0)) for head, row in enumerate(scores))
    together = Row("one softmax", scores.sum(0).softmax(0))
    return Blur("query", keys, heads), together


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """One query's rows, one per head, over the keys to compare."""

    keys: tuple[int, ...]  # positions of the compared keys
    weights: Float[Tensor, "head key"]  # each row adds up to one
    resting: tuple[float, ...]  # share of each head's weight that is on the omitted keys

    @property
    def gap(self) -> float:
        """Mean of the heads' largest weights minus the largest weight of their average row."""
        return float(self.weights.amax(-1).mean() - self.weights.mean(0).max())


def compare_rows(weights: Float[Tensor, "head key"], is_rest: Bool[Tensor, " key"]) -> ComparedRows:
    """Rows without the keys in `is_rest`, rescaled; unchanged unless two other keys have weight.

    >>> rows = torch.tensor([[0.5, 0.5, 0.0], [0.8, 0.0, 0.2]])
    >>> compared = compare_rows(rows, torch.tensor([True, False, False]))
    >>> compared.keys, compared.weights.tolist()
    ((1, 2), [[1.0, 0.0], [0.0, 1.0]])
    >>> [round(share, 3) for share in compared.resting], round(compared.gap, 3)
    ([0.5, 0.8], 0.5)
    """
    weights = weights.double()
    left = weights[:, ~is_rest]
    if int((left > 0).any(0).sum()) < 2 or float(left.sum(-1).min()) < LEAST_WEIGHT:
        return ComparedRows(tuple(range(len(is_rest))), weights, (0.0,) * len(weights))
    return ComparedRows(
        keys=tuple(torch.nonzero(~is_rest)[:, 0].tolist()),
        weights=left / left.sum(-1, keepdim=True),
        resting=tuple(weights[:, is_rest].sum(-1).tolist()),
    )
