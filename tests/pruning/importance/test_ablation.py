"""Ablation is the loss with heads silenced minus the loss, however it is computed."""

import math
from collections.abc import Sequence

import pytest
import torch

from headwise.heads import HeadId
from headwise.objectives.evaluation import Estimate, Evaluation, estimate_ratio
from headwise.pruning.importance import ablation
from headwise.pruning.importance.ablation import Unit, ablate
from headwise.watching.gates import mean_outputs

from ...watching.helpers import allow_weights
from ...watching.tiny_configs import FAMILIES
from ..tiny_models import (
    added_by_hand,
    assert_close,
    assert_unchanged,
    model_of,
    objective_of,
    padded,
    split,
    state_of,
    task_of,
)

pytestmark = allow_weights
EACH = pytest.mark.parametrize(
    "name", ["embedding", "bert", "gpt2", "llama", "albert", "bart", "vit", "mpnet"]
)


def units_of(name: str) -> tuple[Unit, ...]:
    """Every second head alone, and two units of several."""
    heads = task_of(name).heads
    last = [
        head for head in heads if (head.stack, head.layer) == (heads[-1].stack, heads[-1].layer)
    ]
    return (
        *((head,) for head in heads[:: 4 if name == "bart" else 2]),
        tuple(last),
        tuple(last[:2]),
    )


def dtype_of(name: str) -> torch.dtype:
    """The least precise dtype that the model computes in."""
    return FAMILIES["bert" if name == "embedding" else name].softmax_in


def assert_as_by_hand(
    task: Evaluation,
    units: Sequence[Unit],
    dtype: torch.dtype,
    *,
    with_means: bool,
) -> None:
    """Every unit's cost is the loss that silencing it adds."""
    batches = [sample.inputs for sample in task.samples]
    means = mean_outputs(task.model, batches) if with_means else None
    found = ablate(task, units, means=means)
    want = [added_by_hand(task, unit, means) for unit in units]
    got = torch.tensor([one.value for one in found], dtype=torch.float64)
    assert_close(got, torch.tensor(want, dtype=torch.float64), dtype)
    assert got.abs().max() > torch.finfo(torch.float32).eps ** 0.5  # there is something to compare


@EACH
def test_ablation_is_the_loss_with_heads_silenced_minus_the_loss(name: str) -> None:
    task, before = task_of(name), state_of(task_of(name).model)
    assert_as_by_hand(task, units_of(name), dtype_of(name), with_means=False)
    assert_unchanged(task.model, before)


@pytest.mark.parametrize("name", ["embedding", "gpt2", "albert", "bart"])
def test_ablation_by_means_is_the_loss_with_mean_outputs(name: str) -> None:
    units = units_of(name)[::3]
    assert_as_by_hand(task_of(name), units, dtype_of(name), with_means=True)


def test_copies_of_a_batch_and_how_it_is_split_make_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, objective = model_of("gpt2"), objective_of("gpt2")
    whole = Evaluation.of_batches(model, objective, [padded("gpt2")])
    parts = Evaluation.of_batches(model, objective, split(padded("gpt2"), 3, 1))
    units = units_of("gpt2")
    want = ablate(whole, units)
    assert_estimates(ablate(parts, units), want)
    monkeypatch.setattr(ablation, "MOST_TOKENS", 2 * padded("gpt2")["input_ids"].numel())
    assert_estimates(ablate(whole, units), want)
    monkeypatch.setattr(ablation, "MOST_VALUES", 1)
    assert_estimates(ablate(whole, units), want)


def assert_estimates(got: list[Estimate], want: list[Estimate]) -> None:
    """The same values and standard errors."""
    assert_close(torch.tensor(got).double(), torch.tensor(want).double(), torch.float32)


def test_the_error_is_that_of_a_ratio_over_examples() -> None:
    sums, weights = torch.tensor([3.0, 4.0, 8.0]), torch.tensor([1.0, 2.0, 2.0])
    found = estimate_ratio(sums, weights)
    # off a mean of 3 they are 0, -2 and 2; 8 squared in all, 3/2 for the mean, over 5
    assert found == pytest.approx((3.0, math.sqrt(8 * 3 / 2) / 5))
    alone = estimate_ratio(torch.tensor([1.0]).double(), torch.tensor([49.0]).double())
    assert alone.error == math.inf  # and no NaN where 1 / 49 * 49 is 1


def test_units_of_any_order_keep_their_places() -> None:
    task = task_of("bart")
    units = [(HeadId(2, 4, "cross"),), (HeadId(0, 1, "encoder"),), (HeadId(1, 0, "decoder"),)]
    want = [one.value for unit in units for one in ablate(task, [unit])]
    assert [one.value for one in ablate(task, units)] == pytest.approx(want)
    assert ablate(task, []) == []


def test_progress_is_reported_per_batch() -> None:
    told: list[tuple[str, int, int]] = []
    ablate(
        task_of("gpt2"),
        units_of("gpt2")[:1],
        progress=lambda *step: told.append(step),
    )
    assert told == [("silencing heads one by one", done, 2) for done in (0, 1)]
