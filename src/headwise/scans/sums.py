"""Tally: everything a scan has counted so far; it can be saved, loaded and merged.

In: what single steps of a scan found. Out: sums. How they become a table is another's business.
"""

import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from headwise.measures.measure import RowValues
from headwise.probes.scoring import RelationScores

Key = tuple[str, int]
"""A stack and a layer."""


SUMMED_AT_ONCE = 1 << 19
"""Values that are added up in float64 at a time: 4 MiB."""


def in_order(keys: Iterable[Key]) -> list[Key]:
    """Stacks in the order of their first layer, layers by number."""
    found = list(keys)
    stacks = list(dict.fromkeys(stack for stack, _ in found))
    return sorted(found, key=lambda key: (stacks.index(key[0]), key[1]))


class ColumnSums:
    """For each layer and column: five sums a head, in float64.

    They are the sum of the values, the number of rows that have one, and what sampling adds to the
    uncertainty of both. With `n` rows measured of a document's `N`, each stands for `N / n`, and a
    sum over the document has the variance `N^2 (1 - n/N) s^2 / n` (stratified sampling; Cochran,
    Sampling Techniques, 5.3). A row without a value counts 0 in both sums, and the mean is their
    ratio, whose error needs the variance of each and their covariance (Cochran, 6.4).
    """

    def __init__(self) -> None:
        """Nothing counted."""
        self.sums: dict[tuple[Key, str], Float[Tensor, "five heads"]] = {}

    def add(self, key: Key, column: str, rows: RowValues, stands_for: float) -> None:
        """Add one document's rows; `stands_for` is how many rows each measured one speaks for."""
        self.add_all(key, {column: rows}, stands_for)

    def add_all(self, key: Key, columns: Mapping[str, RowValues], stands_for: float) -> None:
        """Add every column of one document's rows."""
        if not columns:
            return
        by_rows: dict[int, list[str]] = {}
        for name, column in columns.items():
            by_rows.setdefault(id(column.is_defined), []).append(name)
        names = [name for group in by_rows.values() for name in group]
        size = max(1, SUMMED_AT_ONCE // next(iter(columns.values())).values.numel())
        for start in range(0, len(names), size):
            few = {name: columns[name] for name in names[start : start + size]}
            counts, parts = summed(few, stands_for)
            for name, count, part in zip(few, counts, parts.unbind(1), strict=True):
                if count:
                    self._add((key, name), part)

    def _add(self, place: tuple[Key, str], parts: Float[Tensor, "five heads"]) -> None:
        self.sums[place] = self.sums[place] + parts if place in self.sums else parts.clone()

    def merge(self, other: "ColumnSums") -> None:
        """Add what another has counted."""
        for place, parts in other.sums.items():
            self._add(place, parts)

    def keys(self) -> list[Key]:
        """Every layer that was counted, stacks in the order of their first."""
        return in_order(dict.fromkeys(key for key, _ in self.sums))

    def columns(self) -> list[str]:
        """Every column that was counted, in the order of their first."""
        return list(dict.fromkeys(column for _, column in self.sums))

    def means(self, key: Key, column: str) -> NDArray[np.float64] | None:
        """Mean of each head of a layer; None where nothing was counted."""
        parts = self.sums.get((key, column))
        return None if parts is None else (parts[0] / parts[1]).numpy()

    def errors(self, key: Key, column: str) -> NDArray[np.float64] | None:
        """Standard error of each mean: 0 where every row was measured, NaN where but one was."""
        parts = self.sums.get((key, column))
        if parts is None:
            return None
        total, count, of_total, of_count, of_both = parts
        mean = total / count
        variance = of_total - 2 * mean * of_both + mean.square() * of_count
        found: NDArray[np.float64] = (variance.clamp(min=0).sqrt() / count).numpy()
        return found

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Everything counted, as arrays by name."""
        return {
            f"{stack}|{layer}|{column}": parts.numpy()
            for ((stack, layer), column), parts in self.sums.items()
        }

    @classmethod
    def from_state(cls, state: Iterable[tuple[str, NDArray[np.float64]]]) -> "ColumnSums":
        """The totals that gave this state."""
        totals = cls()
        for name, parts in state:
            stack, layer, column = name.split("|")
            totals.sums[(stack, int(layer)), column] = torch.from_numpy(np.array(parts))
        return totals


def summed(
    columns: Mapping[str, RowValues], stands_for: float
) -> tuple[list[float], Float[Tensor, "five columns heads"]]:
    """How many rows each column has a value on, and its five sums.

    Columns next to each other that are about the same rows are taken together.
    """
    values = torch.stack([column.values for column in columns.values()]).double()
    counts, start = values.new_full((len(columns), 1), values.shape[-1]), 0
    for _, group in groupby(columns.values(), lambda column: id(column.is_defined)):
        same = list(group)
        end, is_defined = start + len(same), same[0].is_defined
        if is_defined is not None:
            values[start:end].masked_fill_(~is_defined, 0)
            counts[start:end] = is_defined.sum()
        start = end
    parts = values.new_zeros(5, *values.shape[:2])
    parts[0], parts[1] = values.sum(-1), counts
    if stands_for > 1:
        parts[2:] = uncertainty(values, counts, stands_for)
    parts[:2] *= stands_for
    return counts[:, 0].tolist(), parts.cpu()


def uncertainty(
    values: Float[Tensor, "columns heads row"],
    count: Float[Tensor, "columns 1"],
    stands_for: float,
) -> Float[Tensor, "three columns heads"]:
    """What one document adds to the variance of the sum, of the count, and to their covariance.

    `count` of the rows have a value; the others are 0.
    """
    measured = values.shape[-1]
    if measured == 1:
        return values.new_full((3, *values.shape[:2]), math.nan)
    mean = values.mean(-1, keepdim=True)
    of_values = (values - mean).square_().sum(-1)
    left_out = 1 - count / measured
    products = torch.stack(
        [of_values, (count * left_out).expand_as(of_values), values.sum(-1) * left_out]
    )
    return products * (measured / (measured - 1) * stands_for**2 * (1 - 1 / stands_for))


@dataclass
class ScanSums:
    """Sums of a scan."""

    totals: ColumnSums = field(default_factory=ColumnSums)
    num_heads: dict[Key, int] = field(default_factory=dict)
    hsic: dict[str, Tensor] = field(default_factory=dict)
    """By stack: `[heads heads]` over all layers, how alike their outputs are."""
    divergence: dict[Key, Tensor] = field(default_factory=dict)
    """By layer: `[heads heads]` summed divergences, and in a last row how many."""
    relations: dict[str, RelationScores] = field(default_factory=dict)
    """By source and stack, `probe|encoder`: hits on sentences with gold relations."""
    counts: dict[str, int] = field(default_factory=dict)
    """Tokens, windows, sentences ... by name."""
    done: set[str] = field(default_factory=set)
    """Names of the steps that are in."""

    def count(self, name: str, number: int) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + number

    def add_to(self, sums: dict[Any, Tensor], key: Any, part: Tensor) -> None:
        """Add a matrix to those of its key."""
        part = part.double().cpu()
        sums[key] = sums[key] + part if key in sums else part

    def merge(self, other: "ScanSums") -> None:
        """Add what another process has counted."""
        self.totals.merge(other.totals)
        self.num_heads |= other.num_heads
        for stack, part in other.hsic.items():
            self.add_to(self.hsic, stack, part)
        for key, part in other.divergence.items():
            self.add_to(self.divergence, key, part)
        for source, scores in other.relations.items():
            if source in self.relations:
                self.relations[source].merge(scores)
            else:
                self.relations[source] = scores
        for name, number in other.counts.items():
            self.count(name, number)
        self.done |= other.done

    def to_bytes(self) -> bytes:
        """The whole tally as one file's content."""
        arrays: dict[str, Any] = {}
        for name, part in self.totals.state().items():
            arrays[f"total/{name}"] = part
        for stack, matrix in self.hsic.items():
            arrays[f"hsic/{stack}"] = matrix.numpy()
        for (stack, layer), matrix in self.divergence.items():
            arrays[f"divergence/{stack}|{layer}"] = matrix.numpy()
        for source, scores in self.relations.items():
            for name, part in scores.state().items():
                arrays[f"relation/{source}/{name}"] = part
        heads = [[stack, layer, number] for (stack, layer), number in self.num_heads.items()]
        note = {"num_heads": heads, "counts": self.counts, "done": sorted(self.done)}
        arrays["note"] = np.array(json.dumps(note))
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "ScanSums":
        """The tally that gave this content."""
        tally, relations = cls(), dict[str, dict[str, Any]]()
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            note = json.loads(str(arrays["note"]))
            totals = []
            for path in arrays.files:
                kind, _, name = path.partition("/")
                if kind == "total":
                    totals.append((name, arrays[path]))
                elif kind == "hsic":
                    tally.hsic[name] = torch.from_numpy(arrays[path])
                elif kind == "divergence":
                    stack, layer = name.split("|")
                    tally.divergence[stack, int(layer)] = torch.from_numpy(arrays[path])
                elif kind == "relation":
                    source, field_name = name.rsplit("/", 1)
                    relations.setdefault(source, {})[field_name] = arrays[path]
        tally.totals = ColumnSums.from_state(totals)
        tally.relations = {
            source: RelationScores.from_state(state) for source, state in relations.items()
        }
        tally.num_heads = {(stack, layer): number for stack, layer, number in note["num_heads"]}
        tally.counts, tally.done = note["counts"], set(note["done"])
        return tally
