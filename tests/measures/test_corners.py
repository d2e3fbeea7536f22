"""Edge cases of single measures: short texts, one repeated token, rows that see nothing."""

import math
from typing import ClassVar

import torch
from hypothesis import given, strategies as st
from torch import Tensor

from headwise.attention.attend import attend_with_lse
from headwise.attention.prepare import Computation
from headwise.attention.rules import Rules
from headwise.measures.counter import make_measures
from headwise.measures.measure import Measure, PairsOf, RowValues, Sums, measure_rows
from headwise.measures.sequence_view import RowLayout, SequenceView
from headwise.reading.batch import KeyTokens
from headwise.watching.sequence_weights import SequenceWeights

from ..attention.tolerance import assert_same

HEADS, D_KEY, D_MODEL = 5, 7, 23


def view_of(
    ids: Tensor, rules: Rules, special: Tensor | None = None, seed: int = 0
) -> SequenceView:
    """A view of random heads on these tokens."""
    random, length = torch.Generator().manual_seed(seed), len(ids)
    shape = (3, 1, HEADS, length, D_KEY)
    queries, keys, values = torch.randn(shape, generator=random, dtype=torch.float64)
    mixed, lse = attend_with_lse(queries, keys, values, rules=rules)
    computation = Computation.of(queries, keys, values, rules)
    parts = torch.randn(HEADS, D_KEY, D_MODEL, generator=random, dtype=torch.float64)
    nothing = torch.zeros(length, dtype=torch.bool)
    sequence = SequenceWeights(computation=computation, mixed=mixed[0], lse=lse[0])
    tokens = KeyTokens(
        ids=ids, is_special=nothing if special is None else special, is_punctuation=nothing
    )
    layout = RowLayout.of(sequence, torch.arange(length), tokens)
    return SequenceView(sequence=sequence, layout=layout, output_roots=parts)


def columns(view: SequenceView) -> dict[str, RowValues]:
    return measure_rows(view, make_measures())


def rows_with(column: RowValues) -> list[int]:
    assert column.is_defined is not None
    return column.is_defined.nonzero()[:, 0].tolist()


CAUSAL, FULL = Rules(is_causal=True), Rules()


def test_a_single_token_looks_at_itself_alone() -> None:
    got = columns(view_of(torch.tensor([3]), FULL))
    ones = torch.ones(HEADS, 1, dtype=torch.float64)
    for name in ("self", "value_self", "confidence", "largest_self", "uniform_self"):
        assert_same(got[name].values, ones, roundings=D_KEY, name=name)
    assert_same(got["entropy"].values, 0 * ones, roundings=D_KEY)
    for name in ("normalised_entropy", "previous", "first", "duplicate", "largest_previous"):
        assert rows_with(got[name]) == []


def test_a_repeated_token_is_a_copy_of_all_before_it() -> None:
    got = columns(view_of(torch.full((11,), 4), CAUSAL))
    ones = torch.ones(HEADS, 11, dtype=torch.float64)
    assert rows_with(got["duplicate"]) == list(range(1, 11))
    both = got["duplicate"].values + got["self"].values
    assert_same(both, ones, roundings=11)
    induced = got["text_induction"].values + (got["first"].values)
    assert_same(induced[:, 1:], ones[:, 1:], roundings=11)
    share = torch.arange(11) / torch.arange(1, 12, dtype=torch.float64)
    assert_same(got["uniform_duplicate"].values, share.expand(HEADS, -1), roundings=2)


def test_masses_and_shares_add_up() -> None:
    view = view_of(torch.arange(13), FULL, torch.arange(13) % 2 == 0)
    odd = view_of(torch.arange(13), FULL, torch.arange(13) % 2 == 1)
    for name in ("special", "value_special", "uniform_special"):
        both = columns(view)[name].values + columns(odd)[name].values
        assert_same(both, torch.ones_like(both), roundings=26, name=name)
    shares = columns(view)["output_share"].values.sum(0)
    assert_same(shares, torch.ones_like(shares), roundings=HEADS * D_MODEL)


def test_special_tokens_everywhere_leave_no_confidence() -> None:
    got = columns(view_of(torch.arange(11), CAUSAL, torch.ones(11, dtype=torch.bool)))
    assert rows_with(got["confidence"]) == []
    assert_same(got["special"].values, torch.ones_like(got["special"].values), roundings=11)
    start = columns(view_of(torch.arange(11), CAUSAL, torch.arange(11) < 2))
    assert rows_with(start["confidence"]) == list(range(2, 11))


def test_a_row_that_sees_nothing_has_no_number() -> None:
    mask = torch.ones(11, 11, dtype=torch.bool)
    mask[4] = False
    got = columns(view_of(torch.arange(11), Rules(mask=mask)))
    for name, column in got.items():
        assert 4 not in rows_with(column), name
    assert rows_with(got["entropy"]) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]


def test_equal_weights_have_the_largest_entropy() -> None:
    view = view_of(torch.arange(11), CAUSAL)
    view.sequence.computation.keys.zero_()
    seen = torch.arange(1, 12, dtype=torch.float64)
    view.sequence.lse.copy_(seen.log().expand(HEADS, -1))
    got = columns(view)
    assert_same(got["entropy"].values, seen.log().expand(HEADS, -1), roundings=22)
    normalised = got["normalised_entropy"].values[:, 1:]
    assert_same(normalised, torch.ones_like(normalised), roundings=22)
    assert got["entropy"].values.max() <= math.log(11) + 22 * torch.finfo(torch.float64).eps
    for name in ("back4", "previous", "self", "first", "first4", "special", "duplicate"):
        assert_mean(got[name], got[f"uniform_{name}"], name)


def assert_mean(column: RowValues, baseline: RowValues, name: str) -> None:
    """Both are defined on the same rows, and have the same mean there."""
    measured, expected = (
        part.values if part.is_defined is None else part.values[:, part.is_defined]
        for part in (column, baseline)
    )
    assert measured.shape == expected.shape, name
    assert_same(
        measured.mean(1).nan_to_num(), expected.mean(1).nan_to_num(), roundings=22, name=name
    )


def test_a_measure_by_itself_equals_the_same_measure_among_all() -> None:
    view = view_of(torch.arange(13) % 4, Rules(window=(3, 2)), torch.arange(13) < 1)
    among_all = columns(view)
    for measure in make_measures():
        for name, column in measure_rows(view, [measure]).items():
            assert_same(column.values, among_all[name].values, roundings=13, name=name)


class ValuedSelf(Measure):
    """A measure that is not headwise's own, with a value-weighted share."""

    columns: ClassVar[dict[str, str]] = {"valued": "Value-weighted share of the token itself."}

    def pairs(self, layout: RowLayout) -> dict[str, PairsOf]:
        return {"own": lambda places: (torch.arange(len(places)), places)}

    def finish(self, view: SequenceView, sums: Sums) -> dict[str, RowValues]:
        return {"valued": RowValues(sums.value_share("own"))}


def test_a_custom_measure_alone_has_value_shares() -> None:
    view = view_of(torch.arange(13), CAUSAL)
    got = measure_rows(view, [ValuedSelf()])["valued"].values
    assert_same(got, columns(view)["value_self"].values, roundings=13)


@given(st.permutations(range(HEADS)))
def test_permuted_heads_permute_rows_and_nothing_else(order: list[int]) -> None:
    view = view_of(torch.arange(11) % 3, CAUSAL)
    computation, old = view.sequence.computation, view.sequence
    assert computation is not None and old.lse is not None and view.output_roots is not None
    inputs = (computation.queries, computation.keys, computation.values)
    tensors = (part[:, order] for part in inputs)
    sequence = SequenceWeights(
        computation=Computation.of(*tensors, computation.rules),
        mixed=old.mixed[order],
        lse=old.lse[order],
    )
    moved = SequenceView(
        sequence=sequence, layout=view.layout, output_roots=view.output_roots[order]
    )
    want = columns(view)
    for name, column in columns(moved).items():
        expected = want[name].values[order]
        assert_same(column.values, expected, roundings=HEADS * D_MODEL, name=name)
