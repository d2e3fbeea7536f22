"""Losses by register equal single evaluations, and only changes that help everywhere help."""

import math
from collections.abc import Mapping

import pytest
import torch

from headwise.heads import parse_heads
from headwise.objectives.evaluation import Estimate, Evaluation, estimate_ratio
from headwise.objectives.objective import Losses
from headwise.objectives.registers import RegisterEvaluation, RegisterLosses
from headwise.watching.gates import mean_outputs, silence

from ..pruning.tiny_models import model_of, objective_of, padded, plain, task_of

EACH = pytest.mark.parametrize("name", ["gpt2", "bert", "embedding", "llama"])
HEADS = parse_heads("L0H1 L1H0 L1H2")


def two_registers(name: str) -> RegisterEvaluation:
    """A padded batch as one register, and one without padding as another."""
    model, objective = task_of(name).model, objective_of(name)
    batches = {"news": padded(name), "law": plain(name)}
    return RegisterEvaluation(
        {
            register: Evaluation.of_batches(model, objective, [batch])
            for register, batch in batches.items()
        }
    )


@EACH
def test_losses_of_a_register_equal_those_of_its_evaluation(name: str) -> None:
    registers = two_registers(name)
    for silenced in ((), HEADS):
        losses = registers.losses(silenced)
        for register, part in registers.parts.items():
            assert losses.by_register[register] == part.loss(silenced)
        assert losses.overall == registers.whole.loss(silenced)
        assert len(losses.examples.sums) == registers.whole.num_examples == 8
        assert losses.overall == estimate_ratio(losses.examples.sums, losses.examples.weights)


def test_silenced_heads_may_output_their_means() -> None:
    registers = two_registers("llama")
    model = registers.whole.model
    means = mean_outputs(model, [plain("llama")])
    with silence(model, HEADS, means=means):
        want = registers.whole.loss()
    assert registers.losses(HEADS, means=means).overall == want
    assert want != registers.losses(HEADS).overall


def test_another_model_keeps_the_reference_of_the_first() -> None:
    registers = two_registers("embedding")
    other = model_of("embedding")
    with torch.no_grad():
        other.get_submodule("encoder.layer.0.attention.output.dense").weight.zero_()
    losses = registers.with_model(other).losses()
    assert all(loss.value > 1e-3 for loss in losses.by_register.values())
    assert registers.losses().overall.value == pytest.approx(0, abs=1e-6)


def losses_of(by_register: Mapping[str, float], overall: float) -> RegisterLosses:
    """Losses made by hand."""
    estimates = {name: Estimate(value, 0.1) for name, value in by_register.items()}
    return RegisterLosses(estimates, Estimate(overall, 0.1), Losses(torch.ones(3), torch.ones(3)))


BASE = losses_of({"news": 1.0, "law": 3.0}, 2.0)
BEFORE = losses_of({"news": 1.5, "law": 3.2}, 2.35)


def test_the_worst_increase_is_measured_from_the_uncut_model() -> None:
    assert BEFORE.increases(BASE) == pytest.approx({"news": 0.5, "law": 0.2})
    assert BEFORE.worst_increase(BASE) == pytest.approx(0.5)  # law has the larger loss


@pytest.mark.parametrize(
    ("by_register", "overall", "helps"),
    [
        ({"news": 1.2, "law": 3.1}, 2.15, True),
        ({"news": 1.2, "law": 3.4}, 2.3, True),  # law suffers more, but less than news did
        ({"news": 1.5, "law": 2.8}, 2.15, False),  # better on average, and the worst is as before
        ({"news": 1.1, "law": 3.6}, 2.3, False),  # the worst is worse
        ({"news": 1.4, "law": 3.3}, 2.35, False),  # the worst is better, but not the average
        ({"news": math.nan, "law": 3.1}, 2.0, False),
        ({"news": 1.2, "law": math.nan}, 2.0, False),
        ({"news": 1.2, "law": 3.1}, math.nan, False),
        ({"news": math.inf, "law": 3.1}, 2.0, False),
    ],
)
def test_a_change_helps_on_all_text_and_in_the_worst_register(
    by_register: Mapping[str, float], overall: float, helps: bool
) -> None:
    assert losses_of(by_register, overall).helps(BEFORE, BASE) == helps


def test_the_lead_is_that_of_the_same_examples() -> None:
    registers = two_registers("gpt2")
    uncut, cut = registers.losses(), registers.losses(HEADS)
    lead = uncut.lead_over(cut)
    assert lead.value == pytest.approx(cut.overall.value - uncut.overall.value)
    assert 0 < lead.error < math.hypot(uncut.overall.error, cut.overall.error)
    assert uncut.lead_over(uncut) == (0.0, 0.0)
