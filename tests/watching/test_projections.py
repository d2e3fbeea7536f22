"""The heads' outputs are the output projection's input, or `is_direct` is False."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from headwise.errors import ModelError
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings
from headwise.watching.calls import Call
from headwise.watching.gates import silence
from headwise.watching.returned_weights import ReturnedWeights
from headwise.watching.sites import Site
from headwise.watching.watch import watch

from .helpers import allow_weights, each_family, family_model, run
from .tiny import tiny

pytestmark = allow_weights
WORDS = 53
SIZES = {
    "vocab_size": WORDS, "hidden_size": 24, "intermediate_size": 7, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GATED = {
    "qwen3_next": {
        "head_dim": 8, "layer_types": ["full_attention"] * 2, "num_experts": 3,
        "num_experts_per_tok": 2, "moe_intermediate_size": 5, "shared_expert_intermediate_size": 5,
    },
    "bitnet": {},
}  # fmt: skip
EAGER_EXPERTS = {"qwen3_next": {"experts_implementation": "eager"}}


def gated(name: str) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    """A model with a gate or a norm between its heads and their output projection."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **SIZES, **GATED[name])
    model = AutoModel.from_config(config, **EAGER_EXPERTS.get(name, {})).eval()
    return model, {"input_ids": torch.randint(3, WORDS, (2, 11))}


@each_family
def test_mixed_is_the_input_of_the_projection(name: str) -> None:
    model, inputs = family_model(name)
    with watch(model) as watched:
        run(model, inputs)
    assert all(call.is_direct and call.output_weight is not None for call in watched.calls)


@pytest.mark.parametrize("name", GATED)
def test_calls_are_not_direct_if_a_gate_or_norm_follows(name: str) -> None:
    model, inputs = gated(name)
    with watch(model) as watched:
        run(model, inputs)
    assert len(watched.calls) == 2
    assert not any(call.is_direct or call.output_weight is not None for call in watched.calls)


@pytest.mark.parametrize("name", GATED)
def test_indirect_calls_have_no_output_measures(name: str) -> None:
    model, inputs = gated(name)
    batches = [inputs, {"input_ids": inputs["input_ids"].flip(1)}]
    with pytest.warns(UserWarning, match="Attention") as caught:
        table = scan(model, inputs=batches, settings=ScanSettings(repeats=False))
    assert len([warning for warning in caught if "output projection" in str(warning.message)]) == 1
    assert table.df["output_share"].isna().all() and table.df["entropy"].notna().all()
    assert not [name for name in table.df if name.startswith(("value_", "output_norm"))]


def test_silenced_heads_leave_calls_direct() -> None:
    model, inputs = tiny("llama")
    with silence(model, ["L0H1"]), watch(model) as watched, silence(model, ["L1H0"]):
        run(model, inputs)
    assert all(call.is_direct for call in watched.calls)


class Multiplied(nn.Module):
    """A projection that is not called: its weight is used."""

    def __init__(self, plain: Any) -> None:
        super().__init__()
        self.weight, self.bias = plain.weight, plain.bias

    def __call__(self, concat: Tensor) -> Tensor:
        return nn.functional.linear(concat, self.weight, self.bias)


def test_a_projection_that_never_runs_delays_calls_but_loses_none() -> None:
    model, inputs = tiny("llama")
    for layer in model.model.layers:
        layer.self_attn.o_proj = Multiplied(layer.self_attn.o_proj)
    calls: list[Call] = []
    with watch(model, calls.append):
        run(model, inputs)
        assert len(calls) == len(model.model.layers) - 1
    assert [call.layer for call in calls] == list(range(len(model.model.layers)))
    assert not any(call.is_direct for call in calls)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_run_that_fails_before_the_projection_leaves_no_hook() -> None:
    model, inputs = gated("bitnet")
    model.layers[0].self_attn.attn_sub_norm.register_forward_pre_hook(fail)
    calls: list[Call] = []
    with pytest.raises(RuntimeError, match="in between"), watch(model, calls.append):
        run(model, inputs)
    assert not model.layers[0].self_attn.o_proj._forward_pre_hooks
    assert calls == []


def fail(*_: Any) -> None:
    raise RuntimeError("in between")


def test_observers_are_notified_in_the_order_they_came() -> None:
    model, inputs = tiny("llama")
    order: list[str] = []
    with watch(model, lambda _: order.append("first")), watch(model, lambda _: order.append("2nd")):
        run(model, inputs)
    assert order == ["first", "2nd"] * len(model.model.layers)


class Strange(nn.Module):
    """Attention that returns no weights, without a known number of heads."""

    num_heads: int | None = None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.zeros(1, 2, 5, 5)


def test_unwatchable_modules_raise_with_the_reason() -> None:
    module, projection, x = Strange(), nn.Linear(6, 6), torch.zeros(1, 5, 6)
    site = Site("", 0, "layers.0.attn", module, None, is_routed=False)
    named = r"layers\.0\.attn \(Strange\)"
    silencer = ReturnedWeights(site, change=torch.zeros_like)
    with pytest.raises(ModelError, match=f"{named}.*output projection"), silencer.attached():
        module(x)
    site = replace(site, output_projection=projection)
    silencer = ReturnedWeights(site, change=torch.zeros_like)
    with pytest.raises(ModelError, match=f"{named}.*number of heads"), silencer.attached():
        projection(x)
    module.num_heads = 3
    reader = ReturnedWeights(site, each=print)
    with pytest.raises(ModelError, match=f"{named}.*weights"), reader.attached():
        module(x)
