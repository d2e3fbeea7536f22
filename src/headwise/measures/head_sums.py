"""Head sums: sums over rows, from which `scans` computes the means in a head table.

In: values per head and row. Out: sums per layer and column, and sums for the similarity of heads.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.measures.measure import RowValues

LayerKey = tuple[str, int]
"""Stack name and layer number."""
Key = TypeVar("Key")

SUMMED_AT_ONCE = 1 << 19
"""Number of values to convert to float64 and sum at a time: 4 MiB."""


@dataclass(eq=False)
class HeadSums:
    """All sums for a model's heads, in float64, which can be merged in any order."""

    columns: dict[tuple[LayerKey, str], Float[Tensor, "five heads"]] = field(default_factory=dict)
    """By layer and column: the sum of the values, the number of rows with a value, and the sampling
    variances and covariance of these two.

    If `n` of a document's `N` rows are measured, each has the weight `N / n`, and a sum over the
    document has the variance `N^2 (1 - n/N) s^2 / n` (stratified sampling; Cochran, Sampling
    Techniques, 5.3). A row without a value counts as 0 in both sums. The mean is their ratio,
    whose error depends on both variances and the covariance (Cochran, 6.4)."""
    num_heads: dict[LayerKey, int] = field(default_factory=dict)
    hsic: dict[str, Tensor] = field(default_factory=dict)
    """By stack: `[heads heads]` over all layers, the summed HSIC of each pair of heads' outputs."""
    divergence: dict[LayerKey, Tensor] = field(default_factory=dict)
    """By layer: `[heads + 1, heads]`, summed divergences, with their number in the last row."""

    def add_columns(
        self, key: LayerKey, columns: Mapping[str, RowValues], row_weight: float
    ) -> None:
        """Add one document's rows; each measured row counts as `row_weight` rows."""
        if not columns:
            return
        # Columns defined on the same rows are next to each other in the table.
        by_rows = [id(column.is_defined) for column in columns.values()]
        names = sorted(columns, key=lambda name: by_rows.index(id(columns[name].is_defined)))
        size = max(1, SUMMED_AT_ONCE // columns[names[0]].values.numel())
        for start in range(0, len(names), size):
            few = names[start : start + size]
            counts, parts = _sum_columns([columns[name] for name in few], row_weight)
            for name, count, part in zip(few, counts, parts.unbind(1), strict=True):
                if count:
                    add_matrix(self.columns, (key, name), part)

    def merge(self, other: "HeadSums") -> None:
        """Add the sums in `other`."""
        self.num_heads |= other.num_heads
        for name in ("columns", "hsic", "divergence"):
            for key, part in getattr(other, name).items():
                add_matrix(getattr(self, name), key, part)


def add_matrix(sums: dict[Key, Tensor], key: Key, part: Tensor) -> None:
    """Add a matrix to the sum under `key`, in float64."""
    part = part.double().cpu()
    sums[key] = sums[key] + part if key in sums else part


def mean_and_error(sums: Float[Tensor, "five heads"]) -> Float[Tensor, "two heads"]:
    """A column's mean for each head, and the standard error of that mean.

    The error is 0 if every row was measured, and NaN if only one of several rows was.
    """
    total, count, of_total, of_count, of_both = sums
    mean = total / count
    variance = of_total - 2 * mean * of_both + mean.square() * of_count
    return torch.stack([mean, variance.clamp(min=0).sqrt() / count])


def _sum_columns(
    columns: list[RowValues], row_weight: float
) -> tuple[list[float], Float[Tensor, "five columns heads"]]:
    """Number of rows with a value in each column, and the column's five sums."""
    values = torch.stack([column.values for column in columns]).double()
    every_row = torch.ones(values.shape[-1], dtype=torch.bool, device=values.device)
    is_defined = torch.stack(
        [every_row if column.is_defined is None else column.is_defined for column in columns]
    )
    values.masked_fill_(~is_defined[:, None], 0)
    counts = is_defined.sum(-1, keepdim=True).to(values)
    parts = values.new_zeros(5, *values.shape[:2])
    parts[0], parts[1] = values.sum(-1), counts
    if row_weight > 1:
        parts[2:] = _sampling_variance(values, counts, row_weight)
    parts[:2] *= row_weight
    return counts[:, 0].tolist(), parts.cpu()


def _sampling_variance(
    values: Float[Tensor, "columns heads row"], count: Float[Tensor, "columns 1"], row_weight: float
) -> Float[Tensor, "three columns heads"]:
    """One document's contribution to the variances of sum and count, and to their covariance.

    `count` of the rows have a value; the values of the others are 0.
    """
    measured = values.shape[-1]
    if measured == 1:
        return values.new_full((3, *values.shape[:2]), math.nan)
    mean = values.mean(-1, keepdim=True)
    of_values = (values - mean).square_().sum(-1)
    undefined = 1 - count / measured
    products = torch.stack(
        [of_values, (count * undefined).expand_as(of_values), values.sum(-1) * undefined]
    )
    return products * (measured / (measured - 1) * row_weight**2 * (1 - 1 / row_weight))
