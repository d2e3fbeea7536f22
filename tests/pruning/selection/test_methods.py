"""Every method cuts each unit once, in a shape that the model allows, by the scores it claims."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from headwise.heads import HeadId, parse_heads
from headwise.objectives.evaluation import Estimate, Evaluation
from headwise.objectives.registers import RegisterEvaluation
from headwise.pruning.importance.ablation import Unit, ablate
from headwise.pruning.importance.gradients import Gradients, divide_by_layer_norm, gradients
from headwise.pruning.selection import methods
from headwise.pruning.selection.methods import (
    BEST,
    BY_GRADIENTS,
    METHODS,
    CutOrder,
    CutSearch,
    costs_alone,
    one_of_each_group,
    order_units,
    random_cut,
    whole_groups,
    with_seed,
)
from headwise.pruning.stages import PruneStage
from headwise.pruning.surgery.cut import plan_slices
from headwise.reading.batch import NO_LABEL, Inputs
from headwise.watching.gates import silence

from ..tiny_models import assert_unchanged, counts_of, plain, state_of, task_of

EACH = pytest.mark.parametrize("method", METHODS)


def problem_of(name: str, **options: object) -> CutSearch:
    """Every group of heads of a model, on a batch without padding."""
    task = task_of(name)
    small = Evaluation.of_batches(task.model, task.objective, [plain(name)])
    heads, registers = task.heads, RegisterEvaluation({"given": small})
    found = CutSearch(registers, whole_groups(heads, counts_of(name)), rounds=3, draws=2)
    return replace(found, **options)  # type: ignore[arg-type]


def nested_problem() -> CutSearch:
    """A search in a grouped model that cuts one head of each group at a time."""
    found = problem_of("llama")
    scores = [float(number % 5) for number in range(len(found.heads))]
    units = one_of_each_group(found.heads, found.evaluation.counts, scores)
    return replace(found, units=units, is_nested=True)


def layers_of(order: CutOrder) -> list[str]:
    return [unit[0].layer_name for unit in order.units]


def lost_of_groups(heads: tuple[HeadId, ...]) -> list[list[int]]:
    """How many heads every group of every layer loses, largest first, layers likewise."""
    layers = {layer: [0, 0] for layer in range(3)}
    for head in heads:
        layers[head.layer][head.head // 3] += 1
    return sorted((sorted(one, reverse=True) for one in layers.values()), reverse=True)


@pytest.mark.parametrize("named", ["L0H0 L0H4", "L0H0 L0H3 L2H1 L2H2 L2H4 L2H5", "L1H3 L1H4 L1H5"])
def test_a_random_cut_has_the_shape_of_the_cut_it_is_compared_with(named: str) -> None:
    problem, heads = problem_of("llama"), parse_heads(named)
    found = [random_cut(problem, heads, seed) for seed in range(7)]
    assert len(set(found)) > 1
    for one in found:
        assert lost_of_groups(one) == lost_of_groups(heads)
        assert plan_slices(problem.evaluation.model, one)  # it can be cut


def test_a_random_cut_of_whole_units_is_a_prefix_of_a_random_order() -> None:
    problem = problem_of("gpt2")
    heads = order_units("ablation", problem).first(4)
    found = random_cut(problem, heads, 5)
    assert found == order_units("random", replace(problem, seed=5)).first(4)
    assert random_cut(problem, (), 5) == ()


@EACH
def test_each_unit_is_cut_once_and_a_shorter_order_is_a_prefix(method: str) -> None:
    problem = problem_of("llama")
    before = state_of(problem.evaluation.model)
    order = order_units(method, problem)
    assert order.method == method and len(order.costs) == len(problem.units)
    assert Counter(order.units) == Counter(problem.units)
    part = order_units(method, problem, count=4)
    assert part.units == order.units[:4]
    assert order_units(method, problem, count=99).units == order.units
    assert order_units(method, problem, count=0).units == ()
    assert len(order.first(2)) == 6 and list(order.first(2)) == sorted(order.first(2))
    assert_unchanged(problem.evaluation.model, before)


@EACH
def test_a_uniform_cut_removes_the_same_number_of_units_from_every_layer(method: str) -> None:
    order = order_units(method, problem_of("llama", is_uniform=True))
    for count in range(0, len(order.units) + 1, 3):
        assert set(Counter(layers_of(order)[:count]).values()) <= {count // 3}


def uneven_problem(**options: object) -> CutSearch:
    """A model whose first layer has 3 units, and the others 5."""
    problem = problem_of("gpt2", **options)
    return replace(problem, units=problem.units[2:])


@EACH
def test_a_uniform_cut_ends_with_the_smallest_layer(method: str) -> None:
    order = order_units(method, uneven_problem(is_uniform=True))
    assert Counter(layers_of(order)) == {"L0": 3, "L1": 3, "L2": 3}
    assert len(order_units(method, uneven_problem()).units) == 13


@EACH
def test_a_nested_cut_keeps_the_order_of_a_layers_units(method: str) -> None:
    problem = nested_problem()
    order = order_units(method, problem)
    for layer in ("L0", "L1", "L2"):
        own = [unit for unit in order.units if unit[0].layer_name == layer]
        assert own == [unit for unit in problem.units if unit[0].layer_name == layer]
    uniform = order_units(method, replace(problem, is_uniform=True))
    assert Counter(layers_of(uniform)[:3]) == {"L0": 1, "L1": 1, "L2": 1}


def test_a_random_order_repeats_only_for_its_seed() -> None:
    orders = [order_units("random", problem_of("gpt2", seed=seed)) for seed in (1, 1, 2)]
    assert orders[0].units == orders[1].units != orders[2].units
    assert all(math.isnan(cost) for cost in orders[0].costs)


def test_ablation_cuts_the_cheapest_first_and_reports_the_costs() -> None:
    problem = problem_of("gpt2")
    exact = {
        unit: one.value
        for unit, one in zip(problem.units, ablate(problem.evaluation, problem.units), strict=True)
    }
    order = order_units("ablation", problem)
    assert list(order.units) == sorted(problem.units, key=lambda unit: exact[unit])
    assert order.costs == pytest.approx([exact[unit] for unit in order.units])


def test_greedy_cuts_the_cheapest_of_the_remaining_units() -> None:
    problem = problem_of("gpt2")
    order = order_units("greedy", problem, count=3)
    for count in range(3):
        gone = order.first(count)
        left = [unit for unit in problem.units if unit not in order.units[:count]]
        losses = {unit: problem.evaluation.loss([*gone, *unit]).value for unit in left}
        assert order.units[count] == min(left, key=lambda unit: losses[unit])
        added = losses[order.units[count]] - problem.evaluation.loss(gone).value
        assert order.costs[count] == pytest.approx(added, abs=1e3 * torch.finfo(torch.float64).eps)


@pytest.mark.parametrize("method", ["michel", "fisher"])
def test_gradient_scores_are_added_up_over_a_unit(method: str) -> None:
    problem = problem_of("llama")
    found = gradients(problem.evaluation, draws=1)
    scores = (
        divide_by_layer_norm(found.michel, problem.heads) if method == "michel" else found.fisher
    )
    worth = dict(zip(problem.heads, scores.tolist(), strict=True))
    order = order_units(method, problem)
    sums = [sum(worth[head] for head in unit) for unit in order.units]
    assert sums == sorted(sums)
    assert all(map(math.isnan, order.costs))  # a score is not a loss


# Interactions between heads.


def planted(problem: CutSearch, interaction: torch.Tensor, pull: torch.Tensor) -> Gradients:
    nothing = torch.zeros(len(problem.heads), dtype=torch.float64)
    return Gradients(problem.heads, nothing, nothing, nothing, nothing, interaction, nothing, pull)


def plant(monkeypatch: pytest.MonkeyPatch, problem: CutSearch, matrix: torch.Tensor) -> None:
    scores = planted(problem, matrix, torch.zeros(len(matrix)).double())
    monkeypatch.setattr(methods, "gradients", lambda *_, **__: scores)


def test_of_two_redundant_heads_one_is_cut_first_and_one_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = problem_of("gpt2", rounds=15)
    plant(monkeypatch, problem, torch.eye(15, dtype=torch.float64))
    twins = {4, 9}

    def measure(_: object, __: object, cut: Sequence[int], units: Sequence[int]) -> dict[int, Any]:
        """Apart, the twins cost 1/4 each; together 5/2."""
        lone = {unit: 2.25 if twins & {*cut} else 0.25 for unit in twins}
        return {unit: lone.get(unit, 0.5) for unit in units}

    monkeypatch.setattr(methods, "_measure_directly", measure)
    order = order_units("rounds", problem)
    places = sorted(order.units.index(problem.units[twin]) for twin in twins)
    assert places[1] == 14
    assert sum(order.costs) == pytest.approx(13 * 0.5 + 2.5)


def test_interactions_propose_and_measurements_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of("gpt2", rounds=5)  # three units at a time
    matrix = torch.diag(torch.arange(15, 0, -1, dtype=torch.float64))
    matrix[13, 14] = matrix[14, 13] = 99.0  # expected to be costly together
    plant(monkeypatch, problem, matrix)
    asked = []

    def measure(_: object, __: object, ___: object, units: Sequence[int]) -> dict[int, float]:
        asked.append(list(units))
        return {unit: float(unit) for unit in units}

    monkeypatch.setattr(methods, "_measure_directly", measure)
    order = order_units("rounds", problem, count=3)
    assert asked[0] == [14, *range(12, 4, -1)]
    assert [problem.units.index(unit) for unit in order.units] == [5, 6, 7]
    assert order.costs == (5.0, 6.0, 7.0)


def test_the_slope_of_the_loss_does_not_change_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of("gpt2")
    interaction = torch.diag(torch.arange(15, 0, -1, dtype=torch.float64))
    orders = []
    for pull in (torch.zeros(15).double(), torch.linspace(-9, 9, 15).double()):
        scores = planted(problem, interaction, pull)
        monkeypatch.setattr(methods, "gradients", lambda *_, now=scores, **__: now)
        orders.append(order_units("quadratic", problem))
    assert orders[0] == orders[1]


def test_each_round_measures_the_model_without_the_units_cut_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search, seeds, silent_heads = problem_of("gpt2", rounds=3), [], []
    measure = methods.gradients

    def record_measurement(evaluation: Evaluation, **options: Any) -> Gradients:
        scores = measure(evaluation, **options)
        seeds.append(options["seed"])
        pairs = zip(scores.heads, scores.michel, strict=True)
        silent_heads.append({str(head) for head, score in pairs if score == 0})
        return scores

    monkeypatch.setattr(methods, "gradients", record_measurement)
    order = order_units("rounds", search)
    assert seeds == [0, 5, 10]
    assert silent_heads == [{str(head) for head in order.first(count)} for count in (0, 5, 10)]


# Direct measurements.


def two_registers(name: str) -> CutSearch:
    """A search whose second register has the first one's tokens in reverse order."""
    problem = problem_of(name)
    reverse = {key: value.flip(1) for key, value in plain(name).items()}
    task = problem.evaluation
    other = Evaluation.of_batches(task.model, task.objective, [reverse])
    return replace(problem, registers=RegisterEvaluation({"news": task, "law": other}))


@pytest.mark.parametrize(
    ("news", "law", "cost"),
    [
        (1.0, 1.0, 1.0),
        (2.0, 1.0, 1.5),
        (math.nan, 0.0, math.inf),
        (math.inf, 0.0, math.inf),
    ],
)
def test_measured_costs_are_means_over_registers(
    news: float, law: float, cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = two_registers("gpt2")
    text = methods._measured_text(search)
    estimates = iter([[Estimate(news, 0.1)] * 2, [Estimate(law, 0.1)] * 2])
    monkeypatch.setattr(methods, "ablate", lambda *_, **__: next(estimates))
    found = methods._measure_directly(search, text, [0], [7, 3])
    assert found == pytest.approx({3: cost, 7: cost})


def test_costs_are_measured_without_the_units_cut_so_far() -> None:
    search = two_registers("gpt2")
    cut, unit = search.units[2], search.units[9]
    text = methods._measured_text(search)
    found = methods._measure_directly(search, text, [2], [9])
    added = [part.loss([*cut, *unit]).value - part.loss(cut).value for part in text]
    assert found[9] == pytest.approx(sum(added) / 2, rel=1e-3)
    assert costs_alone(search)[9] != pytest.approx(found[9], rel=1e-6)


def test_language_models_are_measured_by_the_divergence_from_the_uncut_model() -> None:
    search = two_registers("gpt2")
    unit = search.units[9]
    costs = costs_alone(search)
    model, wanted = search.evaluation.model, list[torch.Tensor]()
    for part in search.registers.parts.values():
        (sample,) = part.samples
        with torch.no_grad():
            before = model(**sample.inputs).logits.log_softmax(-1)
            with silence(model, unit):
                after = model(**sample.inputs).logits.log_softmax(-1)
        divergence = (before.exp() * (before - after)).sum(-1)
        wanted.append(divergence[sample.targets != NO_LABEL].mean())
    assert costs[9] == pytest.approx(float(sum(wanted) / 2), rel=1e-4)
    assert min(costs) > 0


def test_a_layers_last_units_are_measured_again_before_they_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = problem_of("gpt2", rounds=1)
    plant(monkeypatch, problem, torch.eye(15, dtype=torch.float64))
    layer = [index for index in range(15) if problem.layers[index] == problem.layers[0]]
    asked = []

    def measure(_: object, __: object, cut: Sequence[int], units: Sequence[int]) -> dict[int, Any]:
        """The first layer seems free, until only two of its units are left."""
        asked.append(list(units))
        seems_free = 2 * len(set(layer) & set(cut)) < len(layer)
        return {unit: 0.1 * unit + 5 * (unit not in layer or not seems_free) for unit in units}

    monkeypatch.setattr(methods, "_measure_directly", measure)
    order = order_units("rounds", problem, count=6)
    first = len(layer) // 2 + len(layer) % 2
    cut = [problem.units.index(unit) for unit in order.units]
    assert cut[:first] == layer[:first]
    assert asked[1:] == [layer[first:], layer[first + 1 :]], "each time, before one is cut"
    assert order.costs[first] == pytest.approx(5 + 0.1 * cut[first])


def test_embedding_models_are_measured_by_their_own_loss() -> None:
    search = problem_of("embedding")
    (text,) = methods._measured_text(search)
    assert text.objective is search.evaluation.objective


def test_costs_rest_on_examples_of_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    task, inputs = task_of("gpt2"), plain("gpt2")
    lengths = range(13, 3, -1)  # batches are sorted by length
    batches = [{name: value[:, :length] for name, value in inputs.items()} for length in lengths]
    whole = Evaluation.of_batches(task.model, task.objective, batches)
    monkeypatch.setattr(methods, "CHECKED_TOKENS", 60)
    search = replace(problem_of("gpt2"), registers=RegisterEvaluation({"given": whole}))
    (few,) = methods._measured_text(search)
    assert 40 < few.num_tokens <= 60
    assert len({sample.inputs["input_ids"].shape[1] for sample in few.samples}) > 2


def test_costs_do_not_rest_on_examples_with_nothing_to_predict() -> None:
    inputs = plain("gpt2")
    labels = inputs["input_ids"].clone()
    labels[0] = -100
    nothing, few = replace_inputs(inputs, labels[:1], 1), replace_inputs(inputs, labels, 4)
    task = Evaluation.of_batches(task_of("gpt2").model, task_of("gpt2").objective, [nothing, few])
    search = replace(problem_of("gpt2"), registers=RegisterEvaluation({"given": task}))
    assert [len(part.samples) for part in methods._measured_text(search)] == [2]
    assert all(map(math.isfinite, order_units("rounds", search, count=3).costs))


def replace_inputs(inputs: Inputs, labels: torch.Tensor, count: int) -> Inputs:
    return {name: value[:count] for name, value in inputs.items()} | {"labels": labels}


def expected_costs(units: Sequence[int], free: int) -> dict[int, float]:
    """What the interactions expect: one unit is free."""
    return {unit: float(unit != free) for unit in units}


@pytest.mark.parametrize("method", ["quadratic", "rounds"])
def test_no_unit_is_cut_on_a_prediction_that_a_measurement_contradicts(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of("gpt2")
    costly = max(problem.units, key=lambda unit: problem.evaluation.loss(unit).value)
    index = problem.units.index(costly)
    matrix = torch.eye(15, dtype=torch.float64)
    matrix[index, index] = 0.0  # it seems to cost nothing
    scores = planted(problem, 1e-6 * matrix, torch.zeros(15).double())
    monkeypatch.setattr(methods, "gradients", lambda *_, **__: scores)
    order = order_units(method, problem, count=5)
    assert costly not in order.units
    monkeypatch.setattr(
        methods, "_measure_directly", lambda _, __, ___, units: expected_costs(units, index)
    )
    assert order_units(method, problem).units[0] == costly  # the prediction alone would cut it


@pytest.mark.parametrize("cost", [math.nan, math.inf])
def test_unknown_direct_costs_are_cut_last(cost: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of("gpt2")

    def ablate_broken(_: Evaluation, units: Sequence[Unit], **__: object) -> list[Estimate]:
        broken = problem.units[0]
        return [Estimate(cost if unit == broken else 0.1, 0.01) for unit in units]

    monkeypatch.setattr(methods, "ablate", ablate_broken)
    order = order_units("rounds", problem)
    assert order.units[-1] == problem.units[0] and order.costs[-1] == math.inf


def test_the_best_method_comes_first() -> None:
    assert next(iter(METHODS)) == BEST and set(BY_GRADIENTS) < set(METHODS)


def test_single_heads_are_the_groups_of_a_model_without_groups() -> None:
    problem = problem_of("gpt2")
    assert problem.units == tuple((head,) for head in problem.heads)


def test_rounds_report_progress_over_all_rounds() -> None:
    reports: list[tuple[str, int, int]] = []
    problem = problem_of("gpt2", progress=lambda *report: reports.append(report))
    order_units("rounds", problem)
    total = problem.rounds * len(problem.evaluation.samples)
    backward = [report for report in reports if report[0] == PruneStage.GRADIENTS]
    assert backward == [(PruneStage.GRADIENTS, done, total) for done in range(total)]
    silenced = [report for report in reports if report[0] == PruneStage.ABLATION]
    assert {done for _, done, _ in silenced} == set(range(problem.rounds))  # one register
    assert {*reports} == {*backward, *silenced}


def test_random_cuts_and_orders_cut_any_head_of_a_group() -> None:
    problem = replace(nested_problem(), is_uniform=True)
    layers = len(problem.units_by_layer)
    chosen = order_units("ablation", problem).first(layers)
    cuts = {random_cut(problem, chosen, seed) for seed in range(8)}
    firsts = {order_units("random", with_seed(problem, seed)).first(layers) for seed in range(8)}
    for drawn in (cuts, firsts):
        assert len(drawn) > 4
        assert all(lost_of_groups(heads) == lost_of_groups(chosen) for heads in drawn)
    assert with_seed(problem_of("llama"), 5).units == problem_of("llama").units
