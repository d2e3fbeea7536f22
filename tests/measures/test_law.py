"""The law: every column of every family equals its plain definition on the model's own weights."""

import warnings

import pytest
import torch
from headwise.measures import view as view_module
from headwise.measures.measure import RowValues, measure_rows
from headwise.measures.steps import RowChoice, TextStep, default_measures, views_of
from headwise.measures.tally import Tally
from headwise.watching.calls import Call
from headwise.watching.watch import watch
from torch import Tensor

from ..attention.tolerance import assert_same
from ..watching.tiny_configs import FAMILIES
from .definitions import every_column
from .families import ROUNDINGS, Measured, Place, measured, precision

CASES = [
    (name, padding) for name, family in FAMILIES.items() for padding in ("none", *family.pads)
]
ROWS = 5

each_case = pytest.mark.parametrize(("name", "padding"), CASES)

Columns = dict[str, RowValues]


def rows_of(case: Measured, choice: RowChoice) -> dict[Place, tuple[Tensor, Columns]]:
    """What headwise measures on each layer and sequence, and on which rows."""
    found: dict[Place, tuple[Tensor, Columns]] = {}

    def each(call: Call) -> None:
        for row, view in views_of(call, case.batch, choice):
            found[call.stack, call.layer, row] = (view.rows, measure_rows(view, default_measures()))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*its own full weights are read instead")
        with torch.inference_mode(), watch(case.model, each, needs_lse=True):
            case.model(**case.batch.inputs)
    return found


def dense(column: RowValues) -> Tensor:
    """The values with NaN for rows that have none."""
    if column.is_defined is None:
        return column.values
    return column.values.masked_fill(~column.is_defined, torch.nan)


def assert_column(got: Tensor, want: Tensor, dtype: torch.dtype, name: str) -> None:
    """The same rows have numbers, and the same ones."""
    assert torch.equal(got.isnan(), want.isnan()), f"{name}: other rows have numbers"
    assert_same(got.nan_to_num(), want.nan_to_num(), roundings=ROUNDINGS, dtype=dtype, name=name)


def assert_law(case: Measured, choice: RowChoice) -> None:
    """Every layer and sequence has the columns of the definitions, no more, with their values."""
    found = rows_of(case, choice)
    assert found.keys() == case.cases.keys()
    dtype = max(precision(case.family), case.model.dtype, key=lambda one: torch.finfo(one).eps)
    for place, (rows, columns) in found.items():
        want = {name: part[:, rows] for name, part in every_column(case.cases[place]).items()}
        want = {name: part for name, part in want.items() if not part.isnan().all()}
        got = {name: dense(column) for name, column in columns.items()}
        got = {name: part for name, part in got.items() if not part.isnan().all()}
        assert got.keys() == want.keys(), place
        for name in want:
            assert_column(got[name].double(), want[name], dtype, f"{place} {name}")


@each_case
def test_every_column_is_its_definition(name: str, padding: str) -> None:
    assert_law(measured(name, padding), RowChoice("all"))


@each_case
def test_sampled_rows_have_the_values_they_have_among_all(name: str, padding: str) -> None:
    assert_law(measured(name, padding), RowChoice(ROWS, seed=3))


@each_case
def test_many_tiles_say_what_one_says(
    name: str, padding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "TILE_ROWS", 3)
    monkeypatch.setattr(view_module, "TILE_KEYS", 5)
    assert_law(measured(name, padding), RowChoice("all"))
    assert_law(measured(name, padding), RowChoice(ROWS, seed=3))
