"""Adding the mean outputs of cut heads to biases equals silencing these heads with their means."""

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from headwise.heads import HeadId, parse_heads
from headwise.objectives.evaluation import Estimate, Evaluation
from headwise.objectives.losses import NextToken
from headwise.objectives.objective import Losses, Sample
from headwise.objectives.registers import RegisterEvaluation, RegisterLosses
from headwise.pruning.refit.mean_correction import add_mean_outputs
from headwise.pruning.refit.refit import projection_at
from headwise.pruning.refit.shrinkage import SHARES
from headwise.pruning.surgery.cut import cut
from headwise.reading.batch import Inputs
from headwise.watching.gates import mean_outputs, silence
from headwise.watching.hooks import record
from headwise.watching.sites import find_sites

from ...watching.helpers import allow_weights
from ...watching.tiny import output_of, ragged, tiny
from ..differences import mixed_plan
from ..tiny_models import LENGTHS, UNPADDED, assert_close, assert_unchanged, model_of, state_of

pytestmark = allow_weights
EXACT = ("bert", "gpt2", "bart", "t5", "falcon", "gpt_oss")
"""Families that compute in float64 throughout; the others round to float32 in their norms."""
ROUNDED = ("llama", "mistral", "gemma2", "gemma3", "gptj", "vit", "clip")


def batches_of(name: str) -> list[Inputs]:
    """A batch without padding and, if the family can be padded, one with padding."""
    if name in {*UNPADDED, "gemma3", "mistral"}:
        return [tiny(name)[1]]
    return [ragged(name, LENGTHS)[0], tiny(name)[1]]


def corrected(uncut: nn.Module, heads: Sequence[HeadId], batches: Sequence[Inputs]) -> nn.Module:
    """A copy of the model without `heads`, with their mean outputs in its biases."""
    model = copy.deepcopy(uncut)
    cut(model, heads)
    add_mean_outputs(model, uncut, heads, [Sample(batch) for batch in batches])
    return model


@torch.no_grad()
def output(model: nn.Module, inputs: Inputs) -> Tensor:
    return output_of(model(**inputs))


@pytest.mark.parametrize("empties", [False, True])
@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_the_correction_equals_silencing_with_means(name: str, empties: bool) -> None:
    uncut, batches = model_of(name), batches_of(name)
    before = state_of(uncut)
    heads = parse_heads(mixed_plan(uncut, empties=empties))
    model = corrected(uncut, heads, batches)
    assert_unchanged(uncut, before)
    means = mean_outputs(uncut, batches)
    for batch in batches:
        with silence(uncut, heads, means=means):
            want = output(uncut, batch)
        dtype = torch.float64 if name in EXACT else torch.float32
        assert_close(output(model, batch), want, dtype, name)
        with silence(uncut, heads):
            zeros = output(uncut, batch)
        assert (zeros - want).abs().max() > 1e-3  # the means make a difference


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3"])
def test_the_first_layers_output_is_exact(name: str) -> None:
    """Before a norm rounds it to float32."""
    uncut, batches = model_of(name), batches_of(name)
    heads = parse_heads(mixed_plan(uncut))
    model = corrected(uncut, heads, batches)
    with silence(uncut, heads, means=mean_outputs(uncut, batches)):
        want = first_output(uncut, batches[0])
    assert_close(first_output(model, batches[0]), want, torch.float64)


def first_output(model: nn.Module, inputs: Inputs) -> Tensor:
    """The output of the first layer's output projection."""
    with record({"first": projection_at(find_sites(model)[0])}) as calls:
        output(model, inputs)
    return calls[0].output


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_padding_does_not_change_the_correction(name: str) -> None:
    uncut = model_of(name)
    batch, alone = ragged(name, LENGTHS)
    garbage = {
        **batch,
        "input_ids": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, 9),
    }
    heads = parse_heads("L0H0 L0H1 L0H2")
    want = state_of(corrected(uncut, heads, alone))
    for batches in ([batch], [garbage]):
        got = state_of(corrected(uncut, heads, batches))
        assert got.keys() == want.keys()
        for key, value in got.items():
            assert_close(value, want[key], torch.float32, key)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral"])
def test_nothing_cut_changes_nothing(name: str) -> None:
    uncut = model_of(name)
    model = corrected(uncut, (), batches_of(name))
    assert_unchanged(model, state_of(uncut))
    assert model.config.to_json_string() == uncut.config.to_json_string()


def test_only_biases_of_layers_that_lost_heads_change() -> None:
    uncut = model_of("gpt2")
    heads = parse_heads("L1H0 L1H3")
    plain = copy.deepcopy(uncut)
    cut(plain, heads)
    before = state_of(plain)
    after = state_of(corrected(uncut, heads, batches_of("gpt2")))
    changed = {key for key, value in after.items() if not torch.equal(value, before[key])}
    assert changed == {"transformer.h.1.attn.c_proj.bias"}


def test_a_model_that_was_cut_before_is_corrected_by_its_new_numbers() -> None:
    uncut, batches = model_of("gpt2"), batches_of("gpt2")
    cut(uncut, [*(f"L1H{head}" for head in range(5)), "L0H1"])
    heads = parse_heads("L0H1 L2H4")  # L0H1 was L0H2
    model = corrected(uncut, heads, batches)
    with silence(uncut, heads, means=mean_outputs(uncut, batches)):
        want = output(uncut, batches[0])
    assert_close(output(model, batches[0]), want, torch.float64)


def test_layers_without_a_bias_get_one() -> None:
    uncut = model_of("llama")
    assert all(projection_at(site).bias is None for site in find_sites(uncut))
    model = corrected(uncut, parse_heads("L2H0 L2H1 L2H2"), batches_of("llama"))
    biases = [projection_at(site).get_parameter("bias") for site in find_sites(model)]
    assert [bool(bias.any()) for bias in biases] == [False, False, True]


BIAS = "transformer.h.1.attn.c_proj.bias"
"""The only bias that losing these heads changes."""
LOST = parse_heads("L1H0 L1H3")


def shrunk(
    goals: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> tuple[float, Tensor, Tensor, Tensor]:
    """The share that is added if each register's loss is the distance of the bias from a goal.

    Goals are shares of the mean. Also returns the bias before and after, and the mean.
    """
    uncut, batches = model_of("gpt2"), batches_of("gpt2")
    model = copy.deepcopy(uncut)
    cut(model, LOST)
    before = model.get_parameter(BIAS).detach().clone()
    mean = corrected(uncut, LOST, batches).get_parameter(BIAS).detach() - before

    def distances(text: RegisterEvaluation) -> RegisterLosses:
        change = text.parts["0"].model.get_parameter(BIAS).detach() - before
        losses = {
            str(number): Estimate(float((change - goal * mean).norm()), 0.0)
            for number, goal in enumerate(goals)
        }
        return RegisterLosses(losses, losses["0"], Losses(torch.zeros(1), torch.ones(1)))

    monkeypatch.setattr(RegisterEvaluation, "losses", distances)
    parts = {str(number): Evaluation(uncut, NextToken(), ()) for number in range(len(goals))}
    samples = [Sample(batch) for batch in batches]
    share = add_mean_outputs(model, uncut, LOST, samples, shrink=RegisterEvaluation(parts))
    return share, before, model.get_parameter(BIAS).detach(), mean


@pytest.mark.parametrize(
    ("goals", "best"),
    [
        *(([share - 0.05], share) for share in SHARES),
        ([0.05], 0.0),  # even a quarter is too much
        ([-1.0], 0.0),
        ([1.0, 0.6], 0.5),  # three quarters is better for the first register only
        ([1.0, 0.3], 0.25),
        ([1.0, -0.2], 0.0),  # no share helps both registers
        ([math.nan], 0.0),
    ],
)
def test_the_share_that_helps_the_worst_register_most_is_added(
    goals: list[float], best: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    share, before, after, mean = shrunk(goals, monkeypatch)
    assert share == best
    assert_close(after, before + best * mean, torch.float64)
