"""Least squares from sums is least squares from rows."""

import pytest
import torch
from torch import Tensor

from headwise.pruning.refit.normal_equations import Correction, NormalEquations

from ..tiny_models import assert_close

ROWS, WIDTH, OUTPUTS = 61, 6, 5
BIAS = pytest.mark.parametrize("has_bias", [True, False])


def rows(seed: int = 1, count: int = ROWS) -> tuple[Tensor, Tensor]:
    """Inputs with a mean, and errors that depend on them."""
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, WIDTH, generator=random) + 0.5
    weight = torch.randn(WIDTH, OUTPUTS, generator=random)
    noise = torch.randn(count, OUTPUTS, generator=random)
    return inputs, inputs @ weight + 0.3 * noise + 0.7


def equations(
    inputs: Tensor, errors: Tensor, *, has_bias: bool, step: int = ROWS
) -> NormalEquations:
    found = NormalEquations(inputs.shape[1], OUTPUTS, has_bias=has_bias)
    for start in range(0, len(inputs), step):
        found.add(inputs[start : start + step], errors[start : start + step])
    return found


def left(found: Correction, inputs: Tensor, errors: Tensor) -> Tensor:
    """Errors that remain after the correction, row by row."""
    return errors.double() - inputs.double() @ found.weight - found.bias


def same(got: Correction, weight: Tensor, bias: Tensor) -> None:
    assert_close(got.weight, weight.double(), torch.float32)
    assert_close(got.bias, bias.double(), torch.float32)


@BIAS
def test_without_a_ridge_it_is_least_squares(has_bias: bool) -> None:
    inputs, errors = rows()
    got = equations(inputs, errors, has_bias=has_bias).solve(0.0)
    full = torch.cat([inputs, torch.full((ROWS, 1), float(has_bias))], 1).double()
    want = torch.linalg.lstsq(full, errors.double(), driver="gelsd").solution
    same(got, want[:-1], want[-1] * has_bias)


@BIAS
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_a_ridge_equals_extra_rows_with_a_target_of_zero(has_bias: bool, ridge: float) -> None:
    inputs, errors = rows()
    x, y = inputs.double(), errors.double()
    if has_bias:
        x, y = x - x.mean(0), y - y.mean(0)
    penalty = (ridge * (x**2).sum(0).mean()).sqrt() * torch.eye(WIDTH).double()
    want = torch.linalg.lstsq(
        torch.cat([x, penalty]), torch.cat([y, torch.zeros(WIDTH, OUTPUTS)])
    ).solution
    bias = (errors.double() - inputs.double() @ want).mean(0) * has_bias
    same(equations(inputs, errors, has_bias=has_bias).solve(ridge), want, bias)


@BIAS
def test_adding_rows_in_parts_gives_the_same_solution(has_bias: bool) -> None:
    inputs, errors = rows()
    whole = equations(inputs, errors, has_bias=has_bias)
    parts = equations(inputs, errors, has_bias=has_bias, step=7)
    for ridge in (1e-4, 0.1):
        want = whole.solve(ridge)
        same(parts.solve(ridge), want.weight, want.bias)
        assert parts.error_left(want) == pytest.approx(whole.error_left(want), rel=1e-4)


@BIAS
def test_the_error_left_is_that_of_the_rows_seen_or_others(has_bias: bool) -> None:
    inputs, errors = rows()
    fitted = equations(inputs, errors, has_bias=has_bias)
    found = fitted.solve(1e-2)
    for seed, count in ((1, ROWS), (2, 17)):
        some = rows(seed, count)
        held = equations(*some, has_bias=has_bias)
        want = left(found, *some).square().sum(1).mean()
        got = torch.tensor(held.error_left(found), dtype=torch.float64)
        assert_close(got, want, torch.float32)
    none = Correction(torch.zeros(WIDTH, OUTPUTS).double(), torch.zeros(OUTPUTS).double())
    squares = float(errors.double().square().sum(1).mean())
    assert fitted.mean_square == fitted.error_left(none) == pytest.approx(squares)
    assert fitted.error_left(found) < squares


def test_the_best_bias_is_the_mean_error() -> None:
    inputs, errors = rows()
    found = equations(inputs, errors, has_bias=True).solve(None)
    same(found, torch.zeros(WIDTH, OUTPUTS), errors.mean(0))
    none = equations(inputs, errors, has_bias=False).solve(None)
    same(none, torch.zeros(WIDTH, OUTPUTS), torch.zeros(OUTPUTS))


@BIAS
def test_without_inputs_only_the_bias_is_fitted(has_bias: bool) -> None:
    inputs, errors = rows()
    found = equations(inputs[:, :0], errors, has_bias=has_bias)
    same(found.solve(0.1), torch.zeros(0, OUTPUTS), errors.mean(0) * has_bias)
    want = (errors - errors.mean(0) * has_bias).double().square().sum(1).mean()
    got = torch.tensor(found.error_left(found.solve(0.1)), dtype=torch.float64)
    assert_close(got, want, torch.float32)


@BIAS
def test_constant_inputs_get_no_weight(has_bias: bool) -> None:
    """Such as the outputs of a head whose values are 0, or equal for every token."""
    inputs, errors = rows()
    for constant in (0.0, 1.0) if has_bias else (0.0,):
        found = equations(torch.full_like(inputs, constant), errors, has_bias=has_bias).solve(1e-4)
        assert found.weight.abs().max() == 0
        same(found, torch.zeros(WIDTH, OUTPUTS), errors.mean(0) * has_bias)


def test_no_rows_at_all_leave_no_error() -> None:
    assert NormalEquations(WIDTH, OUTPUTS, has_bias=True).mean_square == 0
