"""The law: every column of every family equals its plain definition on the model's own weights."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headwise.attention.attend import attend_with_lse
from headwise.attention.rules import Rules
from headwise.measures import measure as measure_module, sequence_view as view_module
from headwise.measures.counter import (
    HeadCounter,
    LayerCache,
    RowChoice,
    make_measures,
    sequence_views,
)
from headwise.measures.head_sums import HeadSums, mean_and_error
from headwise.measures.measure import RowValues, measure_rows
from headwise.reading.batch import Batch, TokenFacts
from headwise.reading.tensors import batch_from_tensors
from headwise.scans.scan import count_batch
from headwise.watching import sites
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from ..watching.helpers import ROUNDINGS
from ..watching.tiny import tiny
from ..watching.tiny_configs import FAMILIES
from .definitions import Case, alignment, entropy, every_column, lead, uniform
from .families import Measured, Place, measured, precision, quiet

CASES = [(name, padding) for name, family in FAMILIES.items() for padding in ("none", *family.pads)]
ROWS = 5
OF_LARGEST = ("largest_", "peak")
"""Columns that depend on which weight is the largest."""

IN_BOTH = ("bert", "gpt2", "mistral", "gemma2", "t5", "bloom", "gpt_oss")
"""Families with masks, windows, softcaps, biases or sinks."""

each_case = pytest.mark.parametrize(("name", "padding"), CASES)

Columns = dict[str, RowValues]


def rows_of(case: Measured, choice: RowChoice) -> dict[Place, tuple[Tensor, Columns]]:
    """The measured rows of each layer and sequence, and their columns."""
    measured_rows: dict[Place, tuple[Tensor, Columns]] = {}
    cache = LayerCache()

    def each(call: Call) -> None:
        for row, _, view in sequence_views(call, case.batch, choice, cache):
            measured_rows[call.stack, call.layer, row] = (
                view.layout.rows,
                measure_rows(view, make_measures()),
            )

    with quiet(), torch.inference_mode(), watch(case.model, each, needs_lse=True):
        case.model(**case.batch.inputs)
    return measured_rows


def dense(column: RowValues) -> Tensor:
    """The values with NaN for rows that have none."""
    if column.is_defined is None:
        return column.values
    return column.values.masked_fill(~column.is_defined, torch.nan)


def decided(name: str, column: Tensor, case: Case, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """The column with NaN where the two largest weights differ only by rounding.

    `peak_order` also depends on the row before.
    """
    is_tied = lead(case)[:, rows] <= ROUNDINGS * torch.finfo(dtype).eps
    if name == "peak_order":
        is_tied[:, 1:] |= is_tied[:, :-1].clone()
    return column.masked_fill(is_tied, torch.nan)


def assert_column(got: Tensor, want: Tensor, dtype: torch.dtype, name: str) -> None:
    """The same rows have the same numbers."""
    assert torch.equal(got.isnan(), want.isnan()), f"{name}: other rows have numbers"
    assert_same(got.nan_to_num(), want.nan_to_num(), roundings=ROUNDINGS, dtype=dtype, name=name)


def assert_law(case: Measured, choice: RowChoice) -> None:
    """Every layer and sequence has the columns of the definitions, no more, with their values."""
    measured_rows = rows_of(case, choice)
    assert measured_rows.keys() == case.cases.keys()
    dtype = max(precision(case.family), case.model.dtype, key=lambda kind: torch.finfo(kind).eps)
    for place, (rows, columns) in measured_rows.items():
        want = {name: part[:, rows] for name, part in case.columns[place].items()}
        few = replace(case.cases[place], weights=case.cases[place].weights[:, rows])
        want |= alignment(few)  # compares each row with the one that was measured before it
        want = {name: part for name, part in want.items() if not part.isnan().all()}
        got = {name: dense(column) for name, column in columns.items()}
        got = {name: part for name, part in got.items() if not part.isnan().all()}
        assert got.keys() == want.keys(), place
        for name in want:
            if name.startswith(OF_LARGEST):
                got[name], want[name] = (
                    decided(name, part, case.cases[place], rows, dtype)
                    for part in (got[name], want[name])
                )
            assert_column(got[name].double(), want[name], dtype, f"{place} {name}")


@each_case
def test_every_column_is_its_definition_in_one_tile_or_many_and_on_sampled_rows(
    name: str, padding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padded batches in many tiles, of some families in one as well; all others in one."""
    case = measured(name, padding)
    if padding == "none" or name in IN_BOTH:
        assert_law(case, RowChoice("all"))
    if padding == "none" and FAMILIES[name].pads:
        return
    monkeypatch.setattr(view_module, "TILE_ROWS", 5)  # cuts every family's rows,
    monkeypatch.setattr(view_module, "TILE_KEYS", 7)  # and its keys and windows
    assert_law(case, RowChoice("all"))
    assert_law(case, RowChoice(ROWS, seed=3))


def test_small_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "TILE_NUMBERS", 1)
    assert_law(measured("gemma2", "right"), RowChoice("all"))


def test_recomputing_positions_for_every_layer_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure_module, "CACHED_PICKS", 0)
    assert_law(measured("gemma2", "right"), RowChoice("all"))


@pytest.mark.parametrize("name", ["bert", "gemma2", "bloom", "t5", "whisper", "clip"])
def test_a_batch_counts_the_mean_of_the_rows(name: str) -> None:
    case, sums = measured(name, "right"), HeadSums()
    with quiet():
        counter = HeadCounter(sums, make_measures(), RowChoice("all"), compares=False)
        count_batch(case.model, case.batch, counter)
    joined: dict[tuple[str, int, str], list[Tensor]] = {}
    for (stack, layer, _), columns in case.columns.items():
        for column, part in columns.items():
            joined.setdefault((stack, layer, column), []).append(part)
    for (stack, layer, column), parts in joined.items():
        rows = torch.cat(parts, 1)
        if column.startswith(OF_LARGEST) or rows.isnan().all():
            continue  # ties may go either way; the law above sets them apart
        mean, error = mean_and_error(sums.columns[(stack, layer), column])
        dtype = max(
            precision(case.family), case.model.dtype, key=lambda kind: torch.finfo(kind).eps
        )
        assert_same(mean, rows.nanmean(1), roundings=ROUNDINGS, dtype=dtype, name=column)
        assert not error.any()


def test_weights_too_small_for_half_precision_are_seen() -> None:
    model, inputs = tiny("bloom", batch=1, length=600, dtype=torch.float16)
    batch = batch_from_tensors(inputs, model.config)
    with quiet(), torch.no_grad(), watch(model) as seen:
        model(**inputs)
    for call in seen.calls:
        ((_, _, view),) = sequence_views(call, batch, RowChoice("all"), LayerCache())
        weights = call.weights()[0].double()
        allowed = torch.ones(600, 600, dtype=torch.bool).tril()
        assert (weights[:, allowed] == 0).double().mean() > 0.01
        case = Case(
            weights=weights, allowed=allowed, mixed=view.sequence.mixed, projection=torch.empty(0),
            values=None, ids=batch.tokens[""].ids[0], is_special=None, is_punctuation=None,
            is_cross=False, is_causal=True,
        )  # fmt: skip
        got = measure_rows(view, make_measures(("entropy", "uniform")))
        want = uniform(case) | entropy(case)
        assert got.keys() == want.keys()
        for name, part in want.items():
            dense_part = dense(got[name]).double().expand_as(part)
            assert_column(dense_part, part, torch.float32, name)


def test_layers_with_and_without_a_mask_do_not_share_what_they_see() -> None:
    ids = torch.arange(11)[None] % 4
    nothing = torch.zeros_like(ids, dtype=torch.bool)
    facts = TokenFacts(ids=ids, is_real=~nothing, is_special=nothing, is_punctuation=nothing)
    batch, cache = Batch({}, {"": facts}, (0,)), LayerCache()
    holes = (torch.arange(11) % 3 > 0)[None, None, None].expand(1, 1, 11, 11)
    for mask in (holes, None, holes):
        queries, keys, values = torch.randn(3, 1, 2, 11, 5, dtype=torch.float64)
        rules = Rules(mask=mask)
        mixed, lse = attend_with_lse(queries, keys, values, rules=rules)
        place = sites.Site("", 0, "attention", torch.nn.Identity(), None, is_routed=True)
        call = AttentionCall(
            site=place, queries=queries, keys=keys, values=values, rules=rules, mixed=mixed,
            known_lse=lse,
        )  # fmt: skip
        ((_, _, view),) = sequence_views(call, batch, RowChoice("all"), cache)
        seen = torch.full((2, 11), 11.0 if mask is None else 7.0, dtype=torch.float64)
        assert torch.equal(view.seen.expand(2, -1), seen)
        weights = call.weights()[0]
        got = measure_rows(view, make_measures())["duplicate"].values
        is_copy = (ids[0][:, None] == ids[0]).tril(-1)
        assert_same(got, (weights * is_copy).sum(-1), roundings=ROUNDINGS)


def test_the_law_finds_a_wrong_weight() -> None:
    case = measured("bert", "right")
    place = ("", 1, 0)
    wrong = case.cases[place].weights.clone()
    wrong[2, 3, 5] += 1e-6
    columns = every_column(replace(case.cases[place], weights=wrong))
    spoiled = case._replace(columns=case.columns | {place: columns})
    with pytest.raises(AssertionError, match="largest difference"):
        assert_law(spoiled, RowChoice("all"))


def test_the_law_finds_a_missing_row() -> None:
    case = measured("bert", "right")
    place = ("", 1, 0)
    columns = dict(case.columns[place])
    columns["first"] = columns["first"].clone()
    columns["first"][:, 2] = torch.nan
    with pytest.raises(AssertionError, match="first"):
        assert_law(case._replace(columns=case.columns | {place: columns}), RowChoice("all"))
