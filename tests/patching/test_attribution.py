"""Attribution equals exact patching to first order, and finds effects that cancel."""

from dataclasses import replace

import pytest
import torch

from headwise.patching.attribution import attribute_heads, attribute_with_drops
from headwise.patching.exact import patch_each_head
from headwise.patching.runs import PairRuns
from headwise.watching.gates import HeadOutputs

from ..watching.helpers import allow_weights
from .tiny_runs import TEXT, heads_of, runs_of

pytestmark = allow_weights


def towards(runs: PairRuns, direction: str, share: float) -> HeadOutputs:
    """Outputs a share of the way from the run's own to the other run's."""
    outputs = runs.replacements(direction)
    return HeadOutputs(
        {
            (call.stack, call.layer): call.mixed + share * (outputs.of(call.site) - call.mixed)
            for call in runs.calls[direction]
        }
    )


@pytest.mark.parametrize("name", TEXT)
def test_attribution_equals_exact_patching_as_the_difference_of_the_runs_goes_to_zero(
    name: str,
) -> None:
    runs, errors = runs_of(name), []
    heads = heads_of(runs)
    first = 1e-3 if name == "mixtral" else 2e-2  # larger changes choose other experts
    for share in (first, first / 10):
        outputs = towards(runs, "noise", share)
        exact = patch_each_head(runs, "noise", outputs, heads)
        estimated = attribute_heads(runs, "noise", outputs, heads)
        assert float(exact.abs().max()) > 0
        errors.append(float((exact - estimated).abs().max() / exact.abs().max()))
    assert errors[1] < 0.03
    assert errors[1] < errors[0] / 4 or errors[1] < 5e-3  # ten times smaller, up to rounding


def test_one_step_of_integration_is_the_gradient_between_the_prompts() -> None:
    runs = runs_of("llama")
    heads, outputs = heads_of(runs), runs.replacements("noise")
    plain = attribute_heads(runs, "noise", outputs, heads)
    one = attribute_heads(runs, "noise", outputs, heads, steps=1)
    many, more = (
        attribute_heads(runs, "noise", outputs, heads, steps=steps) for steps in (64, 128)
    )
    assert not torch.allclose(plain, one)
    assert float((many - more).abs().max()) < 1e-3 * float(more.abs().max())


def test_dropping_no_block_changes_nothing_and_dropping_the_last_leaves_direct_effects() -> None:
    runs = runs_of("llama")
    heads, outputs = heads_of(runs), runs.replacements("noise")
    drops = attribute_with_drops(runs, "noise", outputs, heads)
    plain = attribute_heads(runs, "noise", outputs, heads)
    layers = len(runs.calls["noise"])
    assert len(drops) == layers
    for block, dropped in enumerate(drops):
        for head, with_drop, without in zip(heads, dropped, plain, strict=True):
            if head.layer == block:
                assert float(with_drop.abs().max()) == 0  # its own block is constant
            if head.layer > block:
                assert torch.allclose(with_drop, without)  # nothing flows down to it


def test_the_model_is_left_as_it_was() -> None:
    runs = runs_of("llama")
    heads, outputs = heads_of(runs), runs.replacements("noise")
    runs.model.requires_grad_(True)
    attribute_heads(runs, "noise", outputs, heads, steps=2)
    attribute_with_drops(runs, "noise", outputs, heads)
    assert all(weight.requires_grad and weight.grad is None for weight in runs.model.parameters())
    with torch.no_grad():
        again = runs.metric.output(runs.model, runs.batch.clean, runs.batch)
    assert torch.equal(again, replace(runs).clean_output)
