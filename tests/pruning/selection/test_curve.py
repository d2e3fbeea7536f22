"""The curve runs from the uncut model to the floor, and its points are measured losses."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from headwise.heads import HeadId
from headwise.objectives.evaluation import Estimate, Evaluation
from headwise.objectives.losses import CustomLoss
from headwise.objectives.registers import RegisterEvaluation
from headwise.pruning.selection.curve import (
    RANDOM_ORDERS,
    RIVALS,
    Curve,
    draw_curve,
    mean_over_orders,
    rivals,
)
from headwise.pruning.selection.methods import CutOrder, CutSearch, one_of_each_group, order_units
from headwise.reading.batch import Inputs

from ..tiny_models import model_of, plain, task_of
from .test_methods import nested_problem, problem_of, uneven_problem


def held_out(name: str) -> Evaluation:
    """An evaluation on examples that no head was chosen on."""
    task = task_of(name)
    inputs = {key: value.flip(1) for key, value in plain(name).items()}
    return Evaluation.of_batches(task.model, task.objective, [inputs])


@pytest.fixture(scope="module")
def drawn() -> tuple[Curve, Evaluation, CutSearch, CutOrder]:
    """The curve of a grouped Llama by the quadratic method."""
    problem, task = problem_of("llama"), held_out("llama")
    order = order_units("quadratic", problem)
    return draw_curve(task, problem, order), task, problem, order


def test_every_method_begins_uncut_and_ends_at_the_floor(
    drawn: tuple[Curve, Evaluation, CutSearch, CutOrder],
) -> None:
    curve, task, problem, _ = drawn
    assert curve.uncut == task.loss() and curve.floor == task.loss(problem.heads)
    assert list(curve.points.method.unique()) == ["quadratic", *RIVALS, "random"]
    for _, rows in curve.points.groupby("method"):
        assert list(rows.cut) == [0, 3, 6, 9, 12, 15, 18]
        assert list(rows.share) == [cut / 18 for cut in rows.cut]
        assert (rows.loss.iloc[0], rows.loss.iloc[-1]) == (curve.uncut.value, curve.floor.value)
    assert curve.total == 18 and curve.unit == "perplexity" and curve.method == "quadratic"


def test_points_are_losses_of_the_first_units(
    drawn: tuple[Curve, Evaluation, CutSearch, CutOrder],
) -> None:
    curve, task, problem, order = drawn
    rows = curve.points[curve.points.method == "quadratic"]
    want = task.loss(order.first(3))
    assert (rows.loss.iloc[3], rows.loss_se.iloc[3]) == pytest.approx(tuple(want))
    assert rows.quality.iloc[3] == pytest.approx(math.exp(want.value))
    michel = curve.points[curve.points.method == "michel"]
    assert michel.loss.iloc[1] == task.loss(order_units("michel", problem).first(1)).value


def test_random_orders_have_a_mean_and_a_range(
    drawn: tuple[Curve, Evaluation, CutSearch, CutOrder],
) -> None:
    curve, task, problem, _ = drawn
    losses = [
        task.loss(order_units("random", replace(problem, seed=seed)).first(3)).value
        for seed in range(1, RANDOM_ORDERS + 1)
    ]
    row = curve.points[curve.points.method == "random"].iloc[3]
    assert row.loss == pytest.approx(sum(losses) / len(losses))
    assert (row.low, row.high) == pytest.approx((math.exp(min(losses)), math.exp(max(losses))))
    assert row.low < row.quality < row.high


def test_the_floor_silences_heads_that_cannot_be_cut() -> None:
    problem, task = nested_problem(), held_out("llama")
    curve = draw_curve(task, problem, order_units("random", problem))
    assert curve.floor == task.loss(problem.heads)
    last = curve.points[curve.points.method == "ablation"].iloc[-1]
    assert last.cut == 12
    assert last.loss == task.loss([head for unit in problem.units for head in unit]).value
    assert len(one_of_each_group(problem.heads, problem.evaluation.counts, [0.0] * 18)) == 6


def test_the_curve_of_a_uniform_cut_ends_with_the_smallest_layer() -> None:
    problem, task = uneven_problem(is_uniform=True), held_out("gpt2")
    reports: list[tuple[str, int, int]] = []
    order = order_units("ablation", problem)
    curve = draw_curve(task, problem, order, progress=lambda *step: reports.append(step))
    for _, rows in curve.points.groupby("method"):
        assert list(rows.cut) == list(range(10))
    last = curve.points[curve.points.method == "ablation"].iloc[-1]
    assert last.loss == task.loss(order.first(9)).value
    assert reports[-1][1] + 1 == reports[-1][2]  # the last report precedes the last step


def test_random_orders_of_groups_of_different_sizes_are_drawn_at_their_mean() -> None:
    problem, task = problem_of("gpt2"), held_out("gpt2")
    first, *rest = problem.units
    pairs = [one + other for one, other in zip(rest[4:8], rest[9:13], strict=True)]
    problem = replace(problem, units=(first, *rest[:4], *pairs))
    curve = draw_curve(task, problem, order_units("random", problem))
    row = curve.points[curve.points.method == "random"].iloc[4]
    orders = [order_units("random", replace(problem, seed=seed)) for seed in range(1, 6)]
    sizes = [len(order.first(4)) for order in orders]
    mean = sum(sizes) / RANDOM_ORDERS
    assert sizes[0] != round(mean)
    assert row.cut == round(mean) and row.share == mean / 15


def test_the_image_names_floor_uncut_and_every_method(
    drawn: tuple[Curve, Evaluation, CutSearch, CutOrder],
) -> None:
    image = drawn[0].svg("a <title>")
    for label in ("floor: every head silent", "uncut", "quadratic", *RIVALS, "random", "heads cut"):
        assert label in image
    assert image.startswith("<svg") and "a &lt;title&gt;" in image


def curve_of(losses: list[float], unit: str = "cosine") -> Curve:
    points = pd.DataFrame(
        {"method": "mine", "cut": range(len(losses)), "share": 0.0, "loss": losses, "quality": 0.0}
    )
    ends = [Estimate(losses[0], 0.0), Estimate(losses[-1], 0.0)]
    return Curve(points, *ends, method="mine", unit=unit, total=len(losses) - 1)


def test_the_elbow_is_where_the_curve_turns() -> None:
    assert curve_of([0.0, 0.01, 0.02, 0.03, 1.0]).elbow == 3
    assert curve_of([0.0, 0.25, 0.5, 0.75, 1.0]).elbow == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_mean_of_losses_that_are_not_finite_has_no_error(bad: float) -> None:
    found = mean_over_orders([Estimate(1.0, 0.1), Estimate(bad, 0.1)])
    assert not math.isfinite(found.value) and math.isnan(found.error)
    assert mean_over_orders([Estimate(1.0, 0.1), Estimate(3.0, 0.1)]) == (2.0, 1.0)


def test_a_curve_through_infinite_losses_is_drawn() -> None:
    problem = problem_of("gpt2")
    held = Evaluation.of_batches(
        problem.evaluation.model, CustomLoss(infinite_without_all), [plain("gpt2")]
    )
    curve = draw_curve(held, problem, order_units("random", problem))
    assert curve.points.loss.iloc[-1] == math.inf and curve.uncut.value < math.inf
    assert curve.svg("a title").startswith("<svg")


def infinite_without_all(model: nn.Module, inputs: Inputs) -> Tensor:
    """A loss that is infinite if a head is silent."""
    found: Tensor = model(**inputs).logits.mean((1, 2))
    whole: Tensor = model_of("gpt2")(**inputs).logits.mean((1, 2))
    return torch.where(found == whole, found, math.inf)


@torch.no_grad()
def without_gradients(model: nn.Module, inputs: Inputs) -> Tensor:
    logits: Tensor = model(**inputs).logits
    return logits.square().mean((1, 2))


def test_rivals_without_gradients_are_only_ablation() -> None:
    problem = problem_of("gpt2")
    task = Evaluation.of_batches(
        problem.evaluation.model, CustomLoss(without_gradients), [plain("gpt2")]
    )
    problem = replace(problem, registers=RegisterEvaluation({"given": task}))
    assert rivals(problem) == ["ablation"]
    assert rivals(problem_of("gpt2")) == list(RIVALS)
    smooth = Evaluation.of_batches(
        task.model, CustomLoss(lambda model, x: model(**x).logits.mean((1, 2))), [plain("gpt2")]
    )
    registers = RegisterEvaluation({"given": smooth})
    assert rivals(replace(problem, registers=registers)) == list(RIVALS)


def test_points_convert_the_loss_to_the_unit_of_the_curve() -> None:
    def quality(loss: float, unit: str) -> float:
        curve = curve_of([0.0, 1.0], unit).with_point("refitted", 1, Estimate(loss, 0.1))
        return float(curve.points.quality.iloc[-1])

    assert quality(0.25, "cosine") == 0.75
    assert quality(2.0, "perplexity") == math.exp(2)
    assert quality(1e9, "perplexity") == math.exp(700)
    assert quality(0.25, "divergence of logits") == 0.25


def test_cuts_are_spaced_between_none_and_all_and_measured_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, task, measured = problem_of("gpt2"), held_out("gpt2"), []
    loss = Evaluation.loss

    def count_loss(evaluation: Evaluation, silenced: Sequence[HeadId] = ()) -> Estimate:
        measured.append(frozenset(silenced))
        return loss(evaluation, silenced)

    monkeypatch.setattr(Evaluation, "loss", count_loss)
    points = draw_curve(task, problem, order_units("random", problem)).points
    assert list(points[points.method == "ablation"].cut) == [0, 2, 3, 5, 7, 8, 10, 12, 13, 15]
    assert len(measured) == len(set(measured))
