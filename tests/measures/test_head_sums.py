"""Column sums merge in any order, and their standard errors are as large as the real spread."""

import math

import numpy as np
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from headwise.measures.head_sums import ColumnSums
from headwise.measures.measure import RowValues

from ..attention.tolerance import assert_same

KEY = ("decoder", 3)
HEADS, DOCUMENTS, ROWS, SAMPLED, TRIALS = 3, 5, 37, 11, 2000


def documents(seed: int = 0) -> list[RowValues]:
    """Rows whose values, and number of rows that have one, differ from document to document."""
    random = torch.Generator().manual_seed(seed)
    columns = []
    for number in range(DOCUMENTS):
        values = torch.rand(HEADS, ROWS, generator=random) + number
        columns.append(RowValues(values, torch.rand(ROWS, generator=random) < 0.2 + 0.15 * number))
    return columns


def add_up(parts: list[RowValues], row_weight: float = 1.0) -> ColumnSums:
    sums = ColumnSums()
    for part in parts:
        sums.add(KEY, {"column": part}, row_weight)
    return sums


def pick(rows: RowValues, places: Tensor) -> RowValues:
    assert rows.is_defined is not None
    return RowValues(rows.values[:, places], rows.is_defined[places])


def mean_of(parts: list[RowValues]) -> Tensor:
    return torch.cat([part.values[:, part.is_defined] for part in parts], 1).double().mean(1)


@given(st.permutations(range(DOCUMENTS)), st.integers(0, DOCUMENTS))
def test_any_order_and_split_gives_the_mean_of_all_rows(order: list[int], cut: int) -> None:
    parts = documents()
    first = add_up([parts[number] for number in order[:cut]])
    first.merge(add_up([parts[number] for number in order[cut:]]))
    means, errors = first.estimate(KEY, "column")
    assert_same(means, mean_of(parts), roundings=DOCUMENTS * ROWS)
    assert not errors.any()


def test_columns_added_together_equal_columns_added_one_by_one() -> None:
    first, second = documents()[:2]
    together, alone = ColumnSums(), ColumnSums()
    together.add(KEY, {"first": first, "second": second}, 3.0)
    alone.add(KEY, {"first": first}, 3.0)
    alone.add(KEY, {"second": second}, 3.0)
    assert together.sums.keys() == alone.sums.keys()
    for place, parts in together.sums.items():
        assert_same(parts, alone.sums[place], roundings=ROWS)


def test_a_column_without_a_row_is_not_counted() -> None:
    sums = ColumnSums()
    column = RowValues(torch.ones(2, 3), torch.zeros(3, dtype=torch.bool))
    sums.add(KEY, {"none": column}, 1.0)
    assert sums.sums == {}


def test_values_of_undefined_rows_do_not_matter() -> None:
    values = torch.tensor([[1.0, math.nan, 3.0]])
    sums = add_up([RowValues(values, torch.tensor([True, False, True]))])
    assert sums.estimate(KEY, "column")[0].tolist() == [2.0]


def test_standard_errors_are_the_spread_of_sampled_means() -> None:
    parts = documents()
    means, errors = np.empty((TRIALS, HEADS)), np.empty((TRIALS, HEADS))
    for trial in range(TRIALS):
        sampled = [pick(part, torch.randperm(ROWS)[:SAMPLED]) for part in parts]
        means[trial], errors[trial] = add_up(sampled, ROWS / SAMPLED).estimate(KEY, "column")
    spread, claimed = means.std(0), np.sqrt((errors**2).mean(0))
    # A standard deviation from n trials is off by 1 / sqrt(2 n) of itself; 5 of these, and a
    # ratio's variance is right to first order in 1 / rows only.
    allowed = 5 / math.sqrt(2 * TRIALS) + 1 / (DOCUMENTS * SAMPLED)
    np.testing.assert_allclose(claimed / spread, 1, atol=allowed)
    off = np.abs(means.mean(0) - mean_of(parts).numpy())
    assert (off < spread * (5 / math.sqrt(TRIALS) + 1 / SAMPLED)).all()


def test_one_row_of_many_has_no_standard_error() -> None:
    sums = add_up([RowValues(torch.ones(HEADS, 1))], 7.0)
    assert sums.estimate(KEY, "column")[1].isnan().all()
