"""Training of a sweep: same arguments, same outcome; when it stops; and what heads are good for."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from headwise.errors import OptionError
from headwise.sweeps import training
from headwise.sweeps.model import SweepModel, accuracy_of, count_parameters, loss_of
from headwise.sweeps.synthetic_tasks import Brackets, Relations
from headwise.sweeps.task import NOTHING, Examples
from headwise.sweeps.training import (
    BATCHES_AT_ONCE,
    Outcome,
    TrainingSettings,
    batches,
    held_out_of,
    in_one_thread,
    share_of_rate,
    train,
)
from headwise.sweeps.variants import Variant

from .test_sweep import weights_of

TASK = Relations(relations=2, letters=8, classes=2, length=7)
RECIPE = TrainingSettings(d_model=11, steps=20, batch=5, checks=4, held_out=13)
ONE, THREE = Variant("free", 1, 8, 8), Variant("free", 3, 5, 5)


def outcome(**options: Any) -> Outcome:
    given: dict[str, Any] = {"variant": THREE, "recipe": RECIPE, "rate": 0.01, "seed": 3} | options
    variant, recipe = given.pop("variant"), given.pop("recipe")
    return replace(train(TASK, variant, recipe, **given), seconds=0.0)


def test_the_same_arguments_give_the_same_outcome_to_the_last_bit() -> None:
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


def test_an_outcome_says_what_the_model_has_and_can() -> None:
    found = train(TASK, THREE, RECIPE, rate=0.01, seed=3)
    assert tuple(found.by_question) == ("previous", "first")
    assert found.accuracy == pytest.approx(sum(found.by_question.values()) / 2)
    assert (found.steps, found.is_solved) == (20, False)
    assert [one.head for one in found.heads] == ["L0H0", "L0H1", "L0H2"]
    assert found.seconds > 0
    attention = weights_of(THREE, 11) + 3 * 15 + 11  # weights, and biases of q, k, v and o
    norms, wide = 3 * 2 * 11, 2 * 11 * 22 + 22 + 11
    assert found.parameters == attention + norms + wide + (8 + 7) * 11 + (11 + 1) * 2 * 8


def test_variants_differ_in_the_weights_of_their_attention_alone() -> None:
    sizes = [
        count_parameters(SweepModel(TASK, variant, d_model=11, layers=2))
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
    found = train(task, ONE, recipe, rate=0.02, seed=0)
    assert found.is_solved and found.steps < 300
    assert found.accuracy >= recipe.solved
    assert found.heads[0].looks["previous"] > 0.8


def test_four_heads_learn_four_relations_that_one_head_cannot() -> None:
    task = Relations(relations=4, letters=16, classes=4, length=8)
    recipe = TrainingSettings(d_model=16, steps=400, checks=5, held_out=64)
    one, four = (
        train(task, Variant("free", heads, 8, 8), recipe, rate=0.02, seed=0) for heads in (1, 4)
    )
    assert four.accuracy > 0.85 and one.accuracy < 0.7  # 0.96 and 0.61; chance is 0.06
    assert four.loss < one.loss / 2
    best = {name: max(head.looks[name] for head in four.heads) for name in task.questions}
    assert min(best.values()) > 0.6, "every relation has a head that looks there"


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Examples]]:
    """The batches that are learned from, in their order."""
    seen: list[Examples] = []
    take_step = training.take_step

    def watched(
        model: torch.nn.Module, optimizer: torch.optim.Optimizer, examples: Examples
    ) -> None:
        seen.append(examples)
        take_step(model, optimizer, examples)

    monkeypatch.setattr(training, "take_step", watched)
    yield seen


def test_every_variant_learns_from_the_same_batches(learned: list[Examples]) -> None:
    outcome(variant=ONE)
    one = list(learned)
    learned.clear()
    outcome(variant=THREE, rate=0.03)
    assert len(one) == len(learned) == RECIPE.steps
    assert {len(batch) for batch in one} == {RECIPE.batch}
    for batch, other in zip(one, learned, strict=True):
        assert torch.equal(batch.symbols, other.symbols)
        assert torch.equal(batch.answers, other.answers)


def test_batches_are_new_at_every_step_and_of_another_seed_others() -> None:
    recipe = replace(RECIPE, steps=BATCHES_AT_ONCE + 3, batch=9)
    found = [batch.symbols for batch in batches(TASK, recipe, 1)]
    assert len(found) == BATCHES_AT_ONCE + 3
    assert len({tuple(one.flatten().tolist()) for one in found}) == len(found)
    other = next(batches(TASK, recipe, 2)).symbols
    assert not torch.equal(found[0], other)


def test_all_models_of_a_task_are_tested_on_the_same_sequences() -> None:
    one = held_out_of(TASK, RECIPE)
    again = held_out_of(TASK, replace(RECIPE, d_model=5, steps=99, batch=2))
    assert len(one) == 13
    assert torch.equal(one.symbols, again.symbols)


def test_the_learning_rate_rises_in_a_line_and_falls_to_nothing() -> None:
    recipe = TrainingSettings(steps=200, warmup=0.05)
    shares = [share_of_rate(step, recipe) for step in range(200)]
    assert shares[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert shares[10] == pytest.approx(1.0)
    assert all(left > right for left, right in pairwise(shares[10:]))
    assert shares[10 + 95] == pytest.approx(0.5)
    assert 0 < shares[-1] < 1e-3
    assert share_of_rate(200, recipe) == pytest.approx(0.0, abs=1e-12)


def test_the_shortest_training_has_a_rate_above_nothing() -> None:
    assert share_of_rate(0, TrainingSettings(steps=1, checks=1)) == 1.0


class Verdicts:
    """Stands in for tests on held-out sequences: says accuracies from a list, one at a time."""

    def __init__(self, accuracies: list[float]) -> None:
        self.left = list(accuracies)

    def __call__(self, model: torch.nn.Module, held_out: Examples) -> tuple[torch.Tensor, float]:
        said = self.left.pop(0)
        return torch.tensor([said, said]), 0.5


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
    monkeypatch.setattr(training, "tested", verdicts)
    found = outcome()
    assert (found.steps, found.is_solved) == (steps, is_solved)
    assert found.accuracy == pytest.approx(0.7), "it is tested once more at the end"
    assert verdicts.left == []


def test_torchs_own_random_numbers_and_threads_are_left_as_they_were() -> None:
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


def test_one_thread_is_used_and_given_back_after_an_error() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with pytest.raises(ZeroDivisionError), in_one_thread():
            assert torch.get_num_threads() == 1
            raise ZeroDivisionError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


def test_accuracy_and_loss_count_what_is_asked_for_alone() -> None:
    said = torch.zeros(1, 3, 2, 4)
    said[0, :, :, 2] = math.log(5)  # probabilities: 5/8 for answer 2, 1/8 for each other
    answers = torch.tensor([[[2, NOTHING], [2, 1], [0, NOTHING]]])
    assert accuracy_of(said, answers).tolist() == pytest.approx([2 / 3, 0.0])
    wanted = -(2 * math.log(5 / 8) + 2 * math.log(1 / 8)) / 4
    assert float(loss_of(said, answers)) == pytest.approx(wanted)


def test_a_question_that_is_never_asked_counts_for_nothing() -> None:
    said, answers = torch.zeros(1, 3, 2, 4), torch.tensor([[[0, NOTHING], [0, NOTHING], [1, -100]]])
    share, nothing = accuracy_of(said, answers).tolist()
    assert share == pytest.approx(2 / 3) and math.isnan(nothing)
    rare = Relations(relations=7, letters=10**4, classes=2, length=4)  # no letter comes twice
    found = train(rare, ONE, replace(RECIPE, layers=2), rate=0.01, seed=3)
    assert set(found.by_question) == set(rare.questions) - {"followed"}
    assert found.accuracy == pytest.approx(sum(found.by_question.values()) / 6)


def test_a_model_sees_nothing_ahead() -> None:
    task = Brackets(labels=3, depth=2, length=9)
    model = SweepModel(task, THREE, d_model=11, layers=2)
    symbols = held_out_of(task, RECIPE).symbols
    changed = symbols.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % task.num_symbols
    said, other = model(symbols), model(changed)
    assert said.shape == (13, 9, 1, 3)
    torch.testing.assert_close(said[:, :5], other[:, :5])
    assert (said[:, 5:] - other[:, 5:]).abs().amax(-1).min() > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"d_model": 0}, "d_model is 0: it must be at least 1"),
        ({"layers": 0}, "layers is 0: it must be at least 1"),
        ({"steps": 0}, "steps is 0: it must be at least 1"),
        ({"batch": 0}, "batch is 0: it must be at least 1"),
        ({"checks": 0}, "checks is 0: it must be at least 1"),
        ({"held_out": 0}, "held_out is 0: it must be at least 1"),
        ({"steps": 19}, "steps is 19: give at least 20"),
    ],
)
def test_what_cannot_be_trained_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=f"^{words}$"):
        TrainingSettings(**options)
