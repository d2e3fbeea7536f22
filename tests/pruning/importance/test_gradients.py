"""Gradients by heads equal finite differences and exact matrices."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import CustomLoss, Embedding, MaskedToken, NextToken
from headwise.objectives.objective import Sample
from headwise.pruning.importance.gradients import (
    PARTS,
    _per_example,
    divide_by_layer_norm,
    gradients,
)
from headwise.pruning.prune import prune
from headwise.pruning.settings import PruneSettings
from headwise.reading.batch import Inputs
from headwise.watching.gates import MeanOutputs, gate, mean_outputs, silence
from headwise.watching.running import without_weight_gradients

from ...watching.tiny import tiny
from ..tiny_models import (
    STEP,
    assert_close,
    differences,
    gated_output,
    model_of,
    objective_of,
    padded,
    plain,
    split,
    state_of,
    task_of,
)

EACH = pytest.mark.parametrize("name", ["gpt2", "bert", "embedding", "bart"])
DRAWS = 96


def heads_of(name: str) -> tuple[HeadId, ...]:
    return task_of(name).heads


def away(name: str) -> Evaluation:
    """The task with a reference other than the model's output, so that its loss has a slope."""
    task = task_of(name)
    if not task.objective.needs_reference:
        return task
    with silence(task.model, heads_of(name)[::3]):
        return Evaluation.of_batches(
            task.model, task.objective, [sample.inputs for sample in task.samples]
        )


def per_example(
    task: Evaluation,
    sample: Sample,
    draws: int,
    random: torch.Generator,
    *,
    means: MeanOutputs | None = None,
    has_slopes: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    return _per_example(task, sample, draws, random, means, "", has_slopes=has_slopes)


def random() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def test_an_objective_without_gradients_raises() -> None:
    task = task_of("gpt2")
    with torch.no_grad():
        known = task.objective.output(task.model, plain("gpt2")).mean((1, 2))
    given = Evaluation.of_batches(
        task.model, CustomLoss(lambda model, inputs: known), [plain("gpt2")]
    )
    with pytest.raises(OptionError, match=r"gradients.*torch\.no_grad.*argmax$"):
        gradients(given)


@torch.no_grad()
def flat(model: nn.Module, inputs: Inputs) -> Tensor:
    found: Tensor = model(**inputs).logits.mean((1, 2))
    return found


@pytest.mark.parametrize("method", ["rounds", "fisher"])
def test_error_without_gradients_names_methods_that_work(method: str) -> None:
    settings = PruneSettings(times_speed=False, method=method)
    options: Any = {"batches": [plain("llama")] * 4, "objective": flat}
    with pytest.raises(OptionError, match=r"torch\.no_grad.*argmax.*ablation.*greedy.*random$"):
        prune(model_of("llama"), cut=6, settings=settings, **options)


def test_expected_cost_of_one_head_equals_its_expected_loss() -> None:
    found = gradients(task_of("gpt2"), draws=1)
    alone = [found.expected_cost([one]) for one in range(len(found.heads))]
    assert found.expected.tolist() == alone


@EACH
def test_gradients_of_every_example_are_finite_differences(name: str) -> None:
    task = away(name)
    sample = task.samples[0]
    got, _, weights = per_example(task, sample, 1, random())
    some = slice(None, None, 3 if name == "bart" else 1)  # BART has 36 heads
    want = torch.stack([slope(task, sample, head) for head in heads_of(name)[some]], 1)
    assert_close(got[:, some], want, torch.float32, "gradients by head")
    with torch.no_grad():
        losses = task.objective.losses(task.objective.output(task.model, sample.inputs), sample)
    assert torch.equal(weights, losses.weights.double())


def slope(task: Evaluation, sample: Sample, head: HeadId) -> Tensor:
    """Finite difference of each example's loss by one head's gate."""
    ends = [
        task.objective.losses(gated_output(task, sample, {head: 1 + sign * STEP}), sample).sums
        for sign in (1, -1)
    ]
    return (ends[0] - ends[1]) / (2 * STEP)


@EACH
def test_gradients_point_towards_the_means_if_there_are_any(name: str) -> None:
    task = away(name)
    sample, head = task.samples[0], heads_of(name)[4]
    means = mean_outputs(task.model, [one.inputs for one in task.samples])
    got, _, _ = per_example(task, sample, 1, random(), means=means)
    ends = []
    for sign in (1, -1):
        gates = torch.ones(task.counts[head.layer_name][0], dtype=torch.float64)
        gates[head.head] += sign * STEP
        with torch.no_grad(), gate(task.model, {head.layer_name: gates}, means=means):
            output = task.objective.output(task.model, sample.inputs)
        ends.append(task.objective.losses(output, sample).sums)
    assert_close(got[:, 4], (ends[0] - ends[1]) / (2 * STEP), torch.float32, "gradients")
    without, _, _ = per_example(task, sample, 1, random())
    assert (without[:, 4] - got[:, 4]).abs().max() > 1e-6


def test_interactions_need_no_slopes() -> None:
    task = task_of("gpt2")
    scores = [gradients(task, draws=3, seed=2, has_slopes=slopes) for slopes in (True, False)]
    assert torch.equal(scores[0].interaction, scores[1].interaction)
    assert scores[0].pull.any() and not scores[1].pull.any()
    assert torch.equal(scores[1].expected, scores[1].interaction.diagonal() / 2)


@EACH
def test_pull_and_michel_are_means_over_examples(name: str) -> None:
    task = away(name)
    found = gradients(task, draws=1)
    parts = [per_example(task, sample, 1, random()) for sample in task.samples]
    slopes, weights = torch.cat([one[0] for one in parts]), torch.cat([one[2] for one in parts])
    assert found.heads == heads_of(name)
    assert_close(found.pull, slopes.sum(0) / weights.sum(), torch.float32)
    each = slopes / weights.clamp(min=1)[:, None]
    assert_close(found.michel, each.abs().mean(0), torch.float32)
    assert_close(found.fisher, (each**2).mean(0), torch.float32)
    assert_close(found.michel_error, each.abs().std(0) / len(each) ** 0.5, torch.float32)
    assert_close(found.fisher_error, (each**2).std(0) / len(each) ** 0.5, torch.float32)


# The interaction of heads.


@dataclass(frozen=True)
class EveryAxis(Embedding):
    """The axes of the embedding, one after the other, instead of random projections."""

    axes: list[int] = field(default_factory=lambda: [0], compare=False)

    def draw(self, output: Tensor, sample: Sample, random: torch.Generator) -> Tensor:
        """One axis, as long as all of them together."""
        axis, size = self.axes[0] % output.shape[1], output.shape[1]
        self.axes[0] += 1
        return output[:, axis] * size**0.5


def every_axis(batches: Sequence[dict[str, Tensor]]) -> Evaluation:
    return Evaluation.of_batches(task_of("embedding").model, EveryAxis(), batches)


WIDTH = 35
"""Of the tiny BERT's embeddings: as many draws see every axis once."""


def exact_interaction(task: Evaluation, heads: Sequence[HeadId]) -> Tensor:
    """Curvature of the loss by the gates, from the whole Jacobian; in the unit of the mean loss."""
    total = torch.zeros(len(heads), len(heads), dtype=torch.float64)
    for sample in task.samples:
        slopes = differences(task, sample, heads)
        if slopes.dim() > 3:
            slopes = weighted(task, sample, slopes)
        flat = slopes.flatten(1)
        total += flat @ flat.T
    return total / task.losses().weights.sum()


def weighted(task: Evaluation, sample: Sample, slopes: Tensor) -> Tensor:
    """Slopes of logits so that their products are Fisher's: J^T (diag p - p p^T) J = L^T L."""
    with torch.no_grad():
        shares = task.objective.output(task.model, sample.inputs).softmax(-1)
    mean = (slopes * shares).sum(-1, keepdim=True)
    if sample.targets is not None:
        counted = sample.targets != -100
    else:
        counted = torch.ones(shares.shape[:-1], dtype=torch.bool)
        if sample.is_real is not None:
            counted = sample.is_real
    return (slopes - mean) * shares.sqrt() * counted[..., None]


def test_unit_vectors_as_projections_give_the_exact_interaction() -> None:
    task, heads = every_axis([padded("bert"), plain("bert")]), heads_of("embedding")
    found = gradients(task, draws=WIDTH)
    assert_close(found.interaction, exact_interaction(task, heads), torch.float32)


@EACH
def test_random_scalars_have_the_exact_interaction_on_average(name: str) -> None:
    task, heads = task_of(name), heads_of(name)
    task = Evaluation.of_batches(
        task.model, task.objective, [padded("bert" if name == "embedding" else name)]
    )
    parts = [per_example(task, one, DRAWS, random()) for one in task.samples]
    weight = sum(float(one[2].sum()) for one in parts)
    some = slice(None, None, 3 if name == "bart" else 1)
    drawn = [one[1][..., some] for one in parts]
    each = sum(torch.einsum("dbh,dbg->dhg", one, one) for one in drawn) / weight
    assert isinstance(each, Tensor)
    want = exact_interaction(task, heads[some])
    off = (each.mean(0) - want).abs() / (each.std(0) / DRAWS**0.5)
    assert off.max() < 6  # standard errors: one of 1,500 products is farther once in a million
    assert (want.diagonal() > 0).all()


@pytest.mark.parametrize("name", ["gpt2", "embedding"])
def test_batches_add_up(name: str) -> None:
    batch = padded("bert" if name == "embedding" else name)
    whole, parts = ([batch], split(batch, 1, 3))
    if name == "embedding":
        tasks = [every_axis(one) for one in (whole, parts)]
        names, draws = ["interaction", "expected_error", "michel", "fisher"], WIDTH
    else:
        tasks = [
            Evaluation.of_batches(task_of(name).model, NextToken(), one) for one in (whole, parts)
        ]
        names, draws = ["michel", "michel_error", "fisher", "fisher_error", "pull"], 1
    one, other = (gradients(task, draws=draws) for task in tasks)
    for kind in names:
        assert_close(getattr(other, kind), getattr(one, kind), torch.float32, kind)


def test_the_interaction_predicts_small_changes_of_the_gates_to_second_order() -> None:
    task, heads = every_axis([padded("bert")]), heads_of("embedding")
    found = gradients(task, draws=WIDTH)
    direction = torch.linspace(-1, 1, len(heads), dtype=torch.float64)
    want = float(direction @ found.interaction @ direction) / 2
    off = [abs(loss_at(task, heads, direction * step) / step**2 - want) for step in STEPS]
    assert off[0] < want / 2
    assert all(later < earlier * 0.7 for earlier, later in itertools.pairwise(off))


STEPS = (2.0**-5, 2.0**-6, 2.0**-7)
"""Each half as long: what is of third order then halves against what is of second."""


def loss_at(task: Evaluation, heads: Sequence[HeadId], change: Tensor) -> float:
    """Mean loss after adding `change` to the gates."""
    factors = {head: 1 + float(one) for head, one in zip(heads, change, strict=True)}
    sample = task.samples[0]
    return float(task.objective.losses(gated_output(task, sample, factors), sample).sums.mean())


def test_costs_of_cuts_come_from_the_interaction_and_the_pull() -> None:
    found = gradients(task_of("gpt2"), draws=2)
    part = found.interaction[[1, 4]][:, [1, 4]]
    want = float(part.sum()) / 2 - float(found.pull[1] + found.pull[4])
    assert found.expected_cost([1, 4]) == pytest.approx(want)
    assert found.expected_cost([]) == 0


def test_a_model_compared_with_itself_is_scored_by_its_random_scalars() -> None:
    task = task_of("embedding")
    found = gradients(task, draws=3, seed=5)
    drawn = torch.Generator().manual_seed(5)
    parts = [per_example(task, one, 3, drawn)[1] for one in task.samples]
    scalars = torch.cat(parts, 1)
    assert_close(found.michel, scalars.abs().mean((0, 1)), torch.float32)
    assert_close(found.fisher, (scalars**2).mean((0, 1)), torch.float32)
    assert_close(found.pull, torch.zeros_like(found.pull), torch.float32)


def test_a_batch_with_nothing_to_predict_counts_nothing() -> None:
    """As a short text of which no token happens to be hidden."""
    nothing = {"input_ids": torch.full((1, 3), 2), "attention_mask": torch.ones(1, 3).long()}
    model, objective = task_of("bert").model, objective_of("bert")
    assert isinstance(objective, MaskedToken)
    with_it = Evaluation.of_batches(model, objective, [plain("bert"), nothing])
    without = Evaluation.of_batches(model, objective, [plain("bert")])
    got = gradients(with_it, draws=2)
    want = gradients(without, draws=2)
    assert_close(got.pull, want.pull, torch.float32)
    assert_close(got.interaction, want.interaction, torch.float32)


def test_heads_that_a_loss_does_not_depend_on_have_no_gradient() -> None:
    found = gradients(task_of("clip"), draws=1)
    is_seen = torch.tensor([head.stack == "text" for head in found.heads])
    assert torch.equal(found.michel > 0, is_seen)
    assert torch.equal(found.pull != 0, is_seen)
    assert not found.interaction.any()  # the curvature of a loss that is only a number is unknown


def test_one_example_has_no_standard_error() -> None:
    one = {name: value[:1] for name, value in plain("gpt2").items()}
    task = Evaluation.of_batches(task_of("gpt2").model, NextToken(), [one])
    found = gradients(task, draws=1)
    assert found.michel_error.isinf().all() and found.expected_error.isinf().all()
    assert found.michel.isfinite().all()


def test_the_error_of_what_is_expected_is_that_of_a_mean_over_examples() -> None:
    task = every_axis([plain("bert")])
    found = gradients(task, draws=WIDTH)
    _, drawn, _ = per_example(task, task.samples[0], WIDTH, random())
    each = (drawn**2).mean(0) / 2
    assert_close(found.expected_error, each.std(0) / len(each) ** 0.5, torch.float32)
    many = every_axis([{name: value.repeat(9, 1) for name, value in plain("bert").items()}])
    fewer = gradients(many, draws=WIDTH).expected_error
    share = (3 / 35) ** 0.5  # standard errors divide by one example less: 4 - 1 and 36 - 1
    assert_close(fewer, found.expected_error * share, torch.float32)


def test_gradients_repeat_for_the_same_seed() -> None:
    found = [gradients(task_of("gpt2"), draws=2, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(found[0].interaction, found[1].interaction)
    assert not torch.equal(found[0].interaction, found[2].interaction)


def test_weights_require_gradients_as_before() -> None:
    model = model_of("gpt2")
    frozen = model.get_submodule("transformer.wte")
    frozen.requires_grad_(False)
    asked = {name: one.requires_grad for name, one in model.named_parameters()}
    before = state_of(model)
    with pytest.raises(KeyboardInterrupt), without_weight_gradients(model):
        assert not any(one.requires_grad for one in model.parameters())
        raise KeyboardInterrupt
    task = Evaluation.of_batches(model, NextToken(), [plain("gpt2")])
    gradients(task, draws=1)
    assert {name: one.requires_grad for name, one in model.named_parameters()} == asked
    assert all(one.grad is None for one in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_scores_over_their_layers_norm_have_norm_one_in_every_layer() -> None:
    heads = [HeadId(0, 0), HeadId(0, 1), HeadId(1, 0), HeadId(1, 0, "cross"), HeadId(1, 1)]
    found = divide_by_layer_norm(torch.tensor([3.0, 4.0, 0.0, 7.0, 0.0]), heads)
    assert_close(found, torch.tensor([0.6, 0.8, 0.0, 1.0, 0.0]), torch.float32)


def test_parts_are_interactions_on_disjoint_examples() -> None:
    model, objective = model_of("gpt2"), objective_of("gpt2")
    inputs = tiny("gpt2", batch=PARTS + 3)[1]
    whole = Evaluation.of_batches(model, objective, split(inputs, 5, PARTS - 2))
    scores = gradients(whole, draws=4)
    assert_close(
        torch.stack(scores.parts).sum(0) / sum(scores.part_weights),
        scores.interaction,
        torch.float64,
    )
    lengths = inputs["input_ids"].shape[1] - 1
    assert scores.part_weights == tuple(lengths * (1 + (part < 3)) for part in range(PARTS))
    of_draws = []
    generator = torch.Generator().manual_seed(0)
    with without_weight_gradients(model):
        for sample in whole.samples:
            of_draws.append(per_example(whole, sample, 4, generator)[1])
    effects = torch.cat(of_draws, 1)  # draws, examples, heads
    for part in range(PARTS):
        own = effects[:, part::PARTS].flatten(0, 1)
        assert_close(scores.parts[part], own.T @ own / 4, torch.float64)
