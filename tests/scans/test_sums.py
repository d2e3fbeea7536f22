"""Totals: sums that merge in any order, and standard errors that are as large as they should be."""

import math

import numpy as np
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from headwise.measures.measure import RowValues
from headwise.scans.sums import ColumnSums

from ..attention.tolerance import assert_same

KEY = ("decoder", 3)
HEADS, DOCUMENTS, ROWS, SAMPLED, TRIALS = 3, 5, 37, 11, 2000


def documents(seed: int = 0) -> list[RowValues]:
    """Rows whose values, and number of rows that have one, differ from document to document."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for number in range(DOCUMENTS):
        values = torch.rand(HEADS, ROWS, generator=random) + number
        found.append(RowValues(values, torch.rand(ROWS, generator=random) < 0.2 + 0.15 * number))
    return found


def totals_of(parts: list[RowValues], stands_for: float = 1.0) -> ColumnSums:
    totals = ColumnSums()
    for part in parts:
        totals.add(KEY, "column", part, stands_for)
    return totals


def picked(rows: RowValues, places: Tensor) -> RowValues:
    assert rows.is_defined is not None
    return RowValues(rows.values[:, places], rows.is_defined[places])


def mean_of(parts: list[RowValues]) -> Tensor:
    return torch.cat([part.values[:, part.is_defined] for part in parts], 1).double().mean(1)


@given(st.permutations(range(DOCUMENTS)), st.integers(0, DOCUMENTS))
def test_any_order_and_split_gives_the_mean_of_all_rows(order: list[int], cut: int) -> None:
    parts = documents()
    first = totals_of([parts[number] for number in order[:cut]])
    first.merge(totals_of([parts[number] for number in order[cut:]]))
    got = torch.from_numpy(first.means(KEY, "column"))
    assert_same(got, mean_of(parts), roundings=DOCUMENTS * ROWS)
    assert not first.errors(KEY, "column").any()


def test_many_columns_at_once_are_each_alone() -> None:
    one, other = documents()[:2]
    together, alone = ColumnSums(), ColumnSums()
    together.add_all(KEY, {"one": one, "other": other}, 3.0)
    alone.add(KEY, "one", one, 3.0)
    alone.add(KEY, "other", other, 3.0)
    assert together.sums.keys() == alone.sums.keys()
    for place, parts in together.sums.items():
        assert_same(parts, alone.sums[place], roundings=ROWS)


def test_a_state_is_read_back_to_the_last_bit() -> None:
    totals = totals_of(documents(), 2.5)
    again = ColumnSums.from_state(totals.state().items())
    assert again.sums.keys() == totals.sums.keys()
    assert all(torch.equal(again.sums[place], parts) for place, parts in totals.sums.items())
    assert again.keys() == [KEY]
    assert again.columns() == ["column"]


def test_a_column_without_a_row_is_not_counted() -> None:
    totals = ColumnSums()
    totals.add(KEY, "none", RowValues(torch.ones(2, 3), torch.zeros(3, dtype=torch.bool)), 1.0)
    assert totals.sums == {}
    assert totals.means(KEY, "none") is totals.errors(KEY, "none") is None


def test_what_a_row_without_a_number_holds_does_not_matter() -> None:
    values = torch.tensor([[1.0, math.nan, 3.0]])
    totals = totals_of([RowValues(values, torch.tensor([True, False, True]))])
    assert totals.means(KEY, "column").tolist() == [2.0]


def test_standard_errors_are_the_spread_of_sampled_means() -> None:
    parts = documents()
    means, errors = np.empty((TRIALS, HEADS)), np.empty((TRIALS, HEADS))
    for trial in range(TRIALS):
        chosen = [picked(part, torch.randperm(ROWS)[:SAMPLED]) for part in parts]
        totals = totals_of(chosen, ROWS / SAMPLED)
        means[trial] = totals.means(KEY, "column")
        errors[trial] = totals.errors(KEY, "column")
    spread, claimed = means.std(0), np.sqrt((errors**2).mean(0))
    # A standard deviation from n trials is off by 1 / sqrt(2 n) of itself; 5 of these, and a
    # ratio's variance is right to first order in 1 / rows only.
    allowed = 5 / math.sqrt(2 * TRIALS) + 1 / (DOCUMENTS * SAMPLED)
    np.testing.assert_allclose(claimed / spread, 1, atol=allowed)
    off = np.abs(means.mean(0) - mean_of(parts).numpy())
    assert (off < spread * (5 / math.sqrt(TRIALS) + 1 / SAMPLED)).all()


def test_one_row_of_many_has_no_standard_error() -> None:
    totals = totals_of([RowValues(torch.ones(HEADS, 1))], 7.0)
    assert np.isnan(totals.errors(KEY, "column")).all()
