"""Training of one model: determinism, batches, stopping, and what more heads can learn."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from headwise.errors import OptionError
from headwise.sweeps import training
from headwise.sweeps.settings import TrainingSettings, Variant
from headwise.sweeps.synthetic_tasks import Brackets, Relations
from headwise.sweeps.task import NO_ANSWER, TaskExamples
from headwise.sweeps.training import (
    BATCHES_AT_ONCE,
    Outcome,
    SweepModel,
    draw_held_out,
    evaluate,
    learning_rate_share,
    train,
    training_batches,
)

from .test_sweep import weights_of

TASK = Relations(relations=2, letters=8, classes=2, length=7)
RECIPE = TrainingSettings(d_model=11, steps=20, batch=5, checks=4, held_out=13)
ONE, THREE = Variant("free", 1, 8, 8), Variant("free", 3, 5, 5)


def outcome(**options: Any) -> Outcome:
    arguments: dict[str, Any] = {
        "variant": THREE,
        "recipe": RECIPE,
        "rate": 0.01,
        "seed": 3,
    } | options
    variant, recipe = arguments.pop("variant"), arguments.pop("recipe")
    return replace(train(TASK, variant, recipe, **arguments), seconds=0.0)


def test_same_arguments_give_the_same_outcome_to_the_last_bit() -> None:
    first = outcome()
    torch.manual_seed(99)
    torch.rand(7)
    assert outcome() == first


@pytest.mark.parametrize(
    "change",
    [{"seed": 4}, {"rate": 0.02}, {"variant": ONE}, {"recipe": replace(RECIPE, weight_decay=1.0)}],
    ids=lambda change: next(iter(change)),
)
def test_another_argument_gives_another_outcome(change: dict[str, Any]) -> None:
    assert outcome(**change).loss != outcome().loss


def test_outcome_has_accuracies_heads_and_parameters() -> None:
    result = train(TASK, THREE, RECIPE, rate=0.01, seed=3)
    assert tuple(result.by_question) == ("previous", "first")
    assert result.accuracy == pytest.approx(sum(result.by_question.values()) / 2)
    assert (result.steps, result.is_solved) == (20, False)
    assert [head.head for head in result.heads] == ["L0H0", "L0H1", "L0H2"]
    assert result.seconds > 0
    attention = weights_of(THREE, 11) + 3 * 15 + 11  # weights, and biases of q, k, v and o
    norms, wide = 3 * 2 * 11, 2 * 11 * 22 + 22 + 11
    assert result.parameters == attention + norms + wide + (8 + 7) * 11 + (11 + 1) * 2 * 8


def test_variants_differ_only_in_the_weights_of_their_attention() -> None:
    sizes = [
        sum(p.numel() for p in SweepModel(TASK, variant, d_model=11, layers=2).parameters())
        for variant in (ONE, THREE)
    ]
    biases = [variant.num_heads * (2 * variant.d_key + variant.d_value) for variant in (ONE, THREE)]
    rest = [
        size - 2 * (weights_of(variant, 11) + bias)
        for size, variant, bias in zip(sizes, (ONE, THREE), biases, strict=True)
    ]
    assert rest[0] == rest[1] > 0


def test_one_head_learns_one_relation() -> None:
    task = Relations(relations=1, letters=8, classes=2, length=6)
    recipe = TrainingSettings(d_model=16, steps=300, checks=10, held_out=64)
    result = train(task, ONE, recipe, rate=0.02, seed=0)
    assert result.is_solved and result.steps < 300
    assert result.accuracy >= recipe.solved
    assert result.heads[0].looks["previous"] > 0.8


def test_four_heads_learn_four_relations_that_one_head_cannot() -> None:
    task = Relations(relations=4, letters=16, classes=4, length=8)
    recipe = TrainingSettings(d_model=16, steps=400, checks=5, held_out=64)
    one, four = (
        train(task, Variant("free", heads, 8, 8), recipe, rate=0.02, seed=0) for heads in (1, 4)
    )
    assert four.accuracy > 0.85 and one.accuracy < 0.7  # 0.96 and 0.61; chance is 0.06
    assert four.loss < one.loss / 2
    best = {name: max(head.looks[name] for head in four.heads) for name in task.shape.questions}
    assert min(best.values()) > 0.6, "every relation has a head that looks there"


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TaskExamples]]:
    """The batches of every training step, in their order."""
    batches: list[TaskExamples] = []
    take_step = training.take_step

    def watched(
        model: torch.nn.Module, optimizer: torch.optim.Optimizer, examples: TaskExamples
    ) -> None:
        batches.append(examples)
        take_step(model, optimizer, examples)

    monkeypatch.setattr(training, "take_step", watched)
    yield batches


def test_every_variant_learns_from_the_same_batches(learned: list[TaskExamples]) -> None:
    outcome(variant=ONE)
    first_batches = list(learned)
    learned.clear()
    outcome(variant=THREE, rate=0.03)
    assert len(first_batches) == len(learned) == RECIPE.steps
    assert {len(batch) for batch in first_batches} == {RECIPE.batch}
    for batch, other in zip(first_batches, learned, strict=True):
        assert torch.equal(batch.symbols, other.symbols)
        assert torch.equal(batch.answers, other.answers)


def test_batches_differ_between_steps_and_between_seeds() -> None:
    recipe = replace(RECIPE, steps=BATCHES_AT_ONCE + 3, batch=9)
    batches = [batch.symbols for batch in training_batches(TASK, recipe, 1)]
    assert len(batches) == BATCHES_AT_ONCE + 3
    assert len({tuple(symbols_drawn.flatten().tolist()) for symbols_drawn in batches}) == len(
        batches
    )
    other = next(training_batches(TASK, recipe, 2)).symbols
    assert not torch.equal(batches[0], other)


def test_every_model_of_a_task_has_the_same_held_out_sequences() -> None:
    first = draw_held_out(TASK, RECIPE)
    again = draw_held_out(TASK, replace(RECIPE, d_model=5, steps=99, batch=2))
    assert len(first) == 13
    assert torch.equal(first.symbols, again.symbols)


def test_learning_rate_rises_linearly_and_falls_to_zero() -> None:
    recipe = TrainingSettings(steps=200, warmup=0.05)
    shares = [learning_rate_share(step, recipe) for step in range(200)]
    assert shares[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert shares[10] == pytest.approx(1.0)
    assert all(left > right for left, right in pairwise(shares[10:]))
    assert shares[10 + 95] == pytest.approx(0.5)
    assert 0 < shares[-1] < 1e-3
    assert learning_rate_share(200, recipe) == pytest.approx(0.0, abs=1e-12)


def test_shortest_training_has_a_positive_rate() -> None:
    assert learning_rate_share(0, TrainingSettings(steps=1, checks=1)) == 1.0


class Verdicts:
    """Stands in for `evaluate`: returns accuracies from a list, one at a time."""

    def __init__(self, accuracies: list[float]) -> None:
        self.left = list(accuracies)

    def __call__(
        self, model: torch.nn.Module, held_out: TaskExamples
    ) -> tuple[torch.Tensor, float]:
        accuracy = self.left.pop(0)
        return torch.tensor([accuracy, accuracy]), 0.5


@pytest.mark.parametrize(
    ("accuracies", "steps", "is_solved"),
    [
        ([0.2, 1.0, 1.0, 0.7], 15, True),
        ([0.2, 0.995, 0.995, 0.7], 15, True),
        ([1.0, 0.2, 1.0, 0.2, 0.7], 20, False),
        ([1.0, 0.994, 1.0, 0.994, 0.7], 20, False),
        ([1.0, 1.0, 0.7], 10, True),
    ],
)
def test_training_ends_when_a_task_is_solved_twice_in_a_row(
    monkeypatch: pytest.MonkeyPatch, accuracies: list[float], steps: int, is_solved: bool
) -> None:
    verdicts = Verdicts(accuracies)
    monkeypatch.setattr(training, "evaluate", verdicts)
    result = outcome()
    assert (result.steps, result.is_solved) == (steps, is_solved)
    assert result.accuracy == pytest.approx(0.7), "it is tested once more at the end"
    assert verdicts.left == []


def test_training_restores_torchs_random_state_and_threads() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        torch.manual_seed(42)
        before = torch.get_rng_state()
        outcome()
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


def test_failed_training_restores_torchs_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()

    def fail(*_: object) -> None:
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError

    monkeypatch.setattr(training, "evaluate", fail)
    try:
        torch.set_num_threads(3)
        with pytest.raises(ZeroDivisionError):
            outcome()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


class Oracle(torch.nn.Module):
    """Returns the same logits for all symbols."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, symbols: torch.Tensor) -> torch.Tensor:
        return self.logits


def evaluate_logits(logits: torch.Tensor, answers: torch.Tensor) -> tuple[list[float], float]:
    accuracy, loss = evaluate(Oracle(logits), TaskExamples(answers, answers, answers))
    return accuracy.tolist(), loss


def test_accuracy_and_loss_count_only_asked_questions() -> None:
    logits = torch.zeros(1, 3, 2, 4)
    logits[0, :, :, 2] = math.log(5)  # probabilities: 5/8 for answer 2, 1/8 for each other
    answers = torch.tensor([[[2, NO_ANSWER], [2, 1], [0, NO_ANSWER]]])
    accuracy, loss = evaluate_logits(logits, answers)
    assert accuracy == pytest.approx([2 / 3, 0.0])
    assert loss == pytest.approx(-(2 * math.log(5 / 8) + 2 * math.log(1 / 8)) / 4)


def test_question_that_is_never_asked_does_not_count() -> None:
    logits, answers = (
        torch.zeros(1, 3, 2, 4),
        torch.tensor([[[0, NO_ANSWER], [0, NO_ANSWER], [1, NO_ANSWER]]]),
    )
    (share, missing), _ = evaluate_logits(logits, answers)
    assert share == pytest.approx(2 / 3) and math.isnan(missing)
    rare = Relations(relations=7, letters=10**4, classes=2, length=4)  # no letter comes twice
    result = train(rare, ONE, replace(RECIPE, layers=2), rate=0.01, seed=3)
    assert set(result.by_question) == set(rare.shape.questions) - {"followed"}
    assert result.accuracy == pytest.approx(sum(result.by_question.values()) / 6)


def test_model_is_causal() -> None:
    task = Brackets(labels=3, depth=2, length=9)
    model = SweepModel(task, THREE, d_model=11, layers=2)
    symbols = draw_held_out(task, RECIPE).symbols
    changed = symbols.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % task.shape.num_symbols
    logits, other = model(symbols), model(changed)
    assert logits.shape == (13, 9, 1, 3)
    torch.testing.assert_close(logits[:, :5], other[:, :5])
    assert (logits[:, 5:] - other[:, 5:]).abs().amax(-1).min() > 0


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [(name, 0, 1) for name in ("d_model", "layers", "batch", "checks", "held_out")]
    + [("steps", 0, 20), ("steps", 19, 20)],
)
def test_training_settings_reject_values_that_are_too_small(
    name: str, value: int, least: int
) -> None:
    with pytest.raises(OptionError, match=f"^{name} is {value}: .* {least}$"):
        TrainingSettings(**{name: value})
