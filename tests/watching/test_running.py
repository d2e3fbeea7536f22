"""Tests of running: no unneeded work, and the same results of all layers."""

from typing import Any

import pytest
import torch

from headwise.watching.running import _filter_options, forward, forward_batch, in_evaluation
from headwise.watching.watch import watch

from .helpers import allow_weights, assert_close, each_family, family_model

pytestmark = allow_weights


@each_family
def test_layers_compute_the_same_without_logits_and_cache(name: str) -> None:
    model, inputs = family_model(name)
    with torch.no_grad():
        with watch(model) as plain:
            model(**inputs)
        with watch(model) as bare:
            forward_batch(model, inputs)
    assert len(plain.calls) == len(bare.calls) > 0
    for want, got in zip(plain.calls, bare.calls, strict=True):
        assert_close(name, got.mixed, want.mixed)


@pytest.mark.parametrize(("name", "num_options"), [("llama", 2), ("bert", 0), ("t5", 1)])
def test_only_accepted_options_are_passed(name: str, num_options: int) -> None:
    model, _ = family_model(name)
    assert len(_filter_options(model, use_cache=False, logits_to_keep=1)) == num_options


def test_forward_batch_computes_one_logit_and_no_cache() -> None:
    model, inputs = family_model("llama")
    outputs: list[Any] = []
    with torch.no_grad():
        hook = model.register_forward_hook(lambda *args: outputs.append(args[2]))
        forward_batch(model, inputs)
        forward(model, inputs)
        hook.remove()
    one_logit, all_logits = outputs
    assert one_logit.logits.shape[1] == 1
    assert all_logits.logits.shape[1] == inputs["input_ids"].shape[1]
    assert one_logit.past_key_values is None and all_logits.past_key_values is None


def test_each_modules_own_mode_is_restored() -> None:
    model, _ = family_model("bert")
    layers = model.bert.encoder.layer
    model.train()
    layers[1].eval()
    with in_evaluation(model):
        assert not any(module.training for module in model.modules())
    assert model.training and layers[0].training and not layers[1].training
    model.eval()
