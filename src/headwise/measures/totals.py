"""Totals: sums that many sequences, processes and restarts add up to, and the table they give.

In: values per head and row. Out: means over all rows, and where only some rows were measured a
standard error. Sums of sums are sums: any way of splitting the work gives the same result.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from headwise.measures.measure import RowValues

Key = tuple[str, int]
"""A stack and a layer."""


class Totals:
    """For each layer and column: three sums a head, in float64.

    With `n` rows measured of a document's `N`, the document's mean stands for all `N` of them, and
    adds `N^2 (1 - n/N) s^2 / n` to the variance of the sum (stratified sampling).
    """

    def __init__(self) -> None:
        """Nothing counted."""
        self.sums: dict[tuple[Key, str], Float[Tensor, "three heads"]] = {}

    def add(self, key: Key, column: str, rows: RowValues, stands_for: float) -> None:
        """Add one document's rows; `stands_for` is how many rows each measured one speaks for."""
        values = rows.values.double()
        if rows.is_defined is not None:
            values = values[:, rows.is_defined]
        measured = values.shape[1]
        if measured == 0:
            return
        every = measured * stands_for
        mean = values.mean(1)
        spread = torch.zeros_like(mean)
        if stands_for > 1:
            spread = values.var(1) if measured > 1 else mean.square()
        variance = every**2 * (1 - 1 / stands_for) * spread / measured
        parts = torch.stack([every * mean, torch.full_like(mean, every), variance]).cpu()
        place = (key, column)
        self.sums[place] = self.sums[place] + parts if place in self.sums else parts

    def merge(self, other: "Totals") -> None:
        """Add what another has counted."""
        for place, parts in other.sums.items():
            self.sums[place] = self.sums[place] + parts if place in self.sums else parts

    def keys(self) -> list[Key]:
        """Every layer that was counted, stacks in the order of their first."""
        stacks = list(dict.fromkeys(key[0] for key, _ in self.sums))
        return sorted({key for key, _ in self.sums}, key=lambda key: (stacks.index(key[0]), key[1]))

    def columns(self) -> list[str]:
        """Every column that was counted, in the order of their first."""
        return list(dict.fromkeys(column for _, column in self.sums))

    def means(self, key: Key, column: str) -> NDArray[np.float64] | None:
        """Mean of each head of a layer; None where nothing was counted."""
        parts = self.sums.get((key, column))
        return None if parts is None else (parts[0] / parts[1]).numpy()

    def errors(self, key: Key, column: str) -> NDArray[np.float64] | None:
        """Standard error of each mean: 0 where every row was measured."""
        parts = self.sums.get((key, column))
        return None if parts is None else (parts[2].clamp(min=0).sqrt() / parts[1]).numpy()

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Everything counted, as arrays by name."""
        return {
            f"{stack}|{layer}|{column}": parts.numpy()
            for ((stack, layer), column), parts in self.sums.items()
        }

    @classmethod
    def from_state(cls, state: Iterable[tuple[str, NDArray[np.float64]]]) -> "Totals":
        """The totals that gave this state."""
        totals = cls()
        for name, parts in state:
            stack, layer, column = name.split("|")
            totals.sums[(stack, int(layer)), column] = torch.from_numpy(np.array(parts))
        return totals
