"""Heads are found by experiment, whatever a module's class, layout and attributes are called."""

import json
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

import headwise
from headwise.errors import ModelError, OptionError
from headwise.models.exported_modeling import reshape
from headwise.pruning.surgery import find_layers as model_layers
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.pruning.surgery.describe import describe_layers
from headwise.pruning.surgery.find_layers import find_layers
from headwise.watching.gates import silence

from ...attention.tolerance import assert_same
from ...watching.helpers import ROUNDINGS, allow_weights
from ...watching.tiny import Inputs, build, output_of, spread_out, tiny
from ..differences import mixed_plan, silenced_and_cut, tiny_of
from ..kin import REFUSED
from ..modern import CUT, NOT_CUT

pytestmark = allow_weights


def assert_cut_equals_silence(model: Any, inputs: Inputs, plan: list[str], pick: str) -> None:
    """Compare one output of a model with heads silenced and with them cut, and see it change."""
    with torch.no_grad():
        plain = model(**inputs)[pick]
        with silence(model, plan):
            silent = model(**inputs)[pick]
        cut(model, plan, inputs=inputs)
        got = model(**inputs)[pick]
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float32)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_same(got, plain, roundings=ROUNDINGS, dtype=torch.float32)


@pytest.mark.parametrize("name", CUT)
def test_cutting_heads_of_recent_families_equals_silencing_them(name: str) -> None:
    model, inputs = tiny_of(CUT[name])
    plain, silent, got = silenced_and_cut(model, inputs, mixed_plan(model))
    assert_same(got, silent, roundings=ROUNDINGS, dtype=torch.float32)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_same(got, plain, roundings=ROUNDINGS, dtype=torch.float32)
    fresh = build(CUT[name])
    reshape(fresh, json.loads(json.dumps(model.config.headwise)))
    fresh.load_state_dict(model.state_dict(), strict=True)
    with torch.no_grad():
        assert_same(output_of(fresh(**inputs)), got, roundings=ROUNDINGS, dtype=torch.float32)


@pytest.mark.parametrize("name", NOT_CUT)
def test_recent_families_that_cannot_be_cut_say_why(name: str) -> None:
    family, reason = NOT_CUT[name]
    with pytest.raises(ModelError, match=f"{family.attention} .*{reason}"):
        cut(build(family), "L0H0")


@pytest.mark.parametrize("name", ["qwen3_next", "jamba", "lfm2", "granitemoehybrid"])
def test_layers_without_attention_are_left_alone(name: str) -> None:
    model, inputs = tiny_of(CUT[name])
    assert set(head_counts(model)) == {"L1"}
    first = {key: one.clone() for key, one in model.state_dict().items() if ".layers.0." in key}
    cut(model, mixed_plan(model), inputs=inputs)
    after = model.state_dict()
    assert first and all(torch.equal(after[key], one) for key, one in first.items())


def built(model_type: str, **config: object) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        model = AutoModel.from_config(AutoConfig.for_model(model_type, **config))
        spread_out(model)
    return model.double().eval()


def test_heads_of_dinov3_can_be_cut() -> None:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 36}
    model = built("dinov3_vit", **sizes, intermediate_size=41, image_size=12, patch_size=3)
    inputs = {"pixel_values": torch.randn(2, 3, 12, 12, dtype=torch.float64)}
    assert_cut_equals_silence(model, inputs, ["L0H1", "L1H0", "L1H2"], "last_hidden_state")


def test_heads_of_siglip2_can_be_cut() -> None:
    text = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 21, "vocab_size": 101}
    text |= {"intermediate_size": 41, "max_position_embeddings": 61, "projection_size": 35}
    vision = {"num_hidden_layers": 2, "num_attention_heads": 5, "hidden_size": 35}
    vision |= {"intermediate_size": 41, "num_patches": 16, "patch_size": 3}
    model = built("siglip2", text_config=text, vision_config=vision)
    inputs = {
        "input_ids": torch.arange(14).view(2, 7),
        "pixel_values": torch.randn(2, 6, 27, dtype=torch.float64),
        "pixel_attention_mask": torch.ones(2, 6, dtype=torch.long),
        "spatial_shapes": torch.tensor([[2, 3], [3, 2]]),
    }
    plan = ["text.L0H1", "vision.L1H0", "vision.L1H2"]
    assert_cut_equals_silence(model, inputs, plan, "logits_per_image")


class OddConfig:
    """A config that says nothing about heads."""


class OddAttention(nn.Module):
    """Attention with rows in an unusual order, and attributes of unusual names."""

    def __init__(self, *, mixes: bool = False) -> None:
        super().__init__()
        self.num_heads, self.parts = 3, [15, 15, 21]
        self.everything, self.temperature = nn.Linear(12, 51), nn.Parameter(torch.rand(3))
        self.mixing = nn.Linear(21, 21) if mixes else None
        self.o_proj = nn.Linear(21, 12)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.everything(states).split(self.parts, dim=-1)
        keys, queries, values = (part.unflatten(-1, (-1, self.num_heads)) for part in parts)
        keys, queries, values = (part.movedim(-1, 1) for part in (keys, queries, values))
        weights = (self.temperature[:, None, None] * queries @ keys.mT).softmax(-1)
        mixed = (weights @ values).transpose(1, 2).flatten(2)
        return self.o_proj(mixed if self.mixing is None else self.mixing(mixed)), weights


class OddModel(nn.Module):
    """A user's model of two such layers."""

    def __init__(self, *, mixes: bool = False) -> None:
        super().__init__()
        self.config = OddConfig()
        self.embeddings = nn.Embedding(50, 12)
        self.layers = nn.ModuleList(OddAttention(mixes=mixes) for _ in range(2))

    def forward(self, input_ids: Tensor) -> Tensor:
        states = self.embeddings(input_ids)
        for layer in self.layers:
            states = states + layer(states)[0]
        return states


@pytest.fixture
def _odd_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headwise.models.families, "FAMILIES", ())
    headwise.add_family(headwise.Family(("OddAttention",), "o_proj", returns_weights=True))


@pytest.mark.usefixtures("_odd_row")
def test_rows_in_any_order_and_attributes_of_any_name_are_found() -> None:
    model, inputs = OddModel().eval(), {"input_ids": torch.arange(18).view(2, 9)}
    with silence(model, "L0H1 L1H0 L1H2"):
        silent = model(**inputs)
    surgery = cut(model, "L0H1 L1H0 L1H2", inputs=inputs)
    assert surgery.difference is not None
    assert_same(model(**inputs), silent, roundings=ROUNDINGS, dtype=torch.float32)
    first, last = model.layers
    assert (first.parts, last.parts) == ([10, 10, 14], [5, 5, 7])
    assert first.everything.weight.shape == (34, 12) and first.temperature.shape == (2,)
    assert last.o_proj.weight.shape == (12, 7)


def test_a_user_is_asked_for_inputs_if_none_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tiny("llama")
    monkeypatch.setattr(model_layers, "_FACTS", {})
    monkeypatch.setattr(model_layers, "sample_inputs", lambda _: iter([{"input_ids": "riddle"}]))
    with pytest.raises(ModelError, match=r"LlamaAttention .*inputs="):
        cut(model, "L0H0 L0H1 L0H2")
    assert cut(model, "L0H0 L0H1 L0H2", inputs=inputs).kept["L0"] == (3, 4, 5)


def test_a_sample_is_made_for_models_inside_a_model() -> None:
    class Riddle(nn.Module):
        def __init__(self, inner: PreTrainedModel) -> None:
            super().__init__()
            self.inner, self.config = inner, inner.config

        def forward(self, riddle: Tensor) -> Tensor:
            raise NotImplementedError(riddle)

    assert head_counts(Riddle(tiny("opt")[0]))["L0"] == (5, 5)


def test_equal_layers_are_examined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = tiny("llama")
    find_layers(model)
    monkeypatch.setattr(type(model), "forward", None)  # the model need not run again
    found = find_layers(model)
    assert [layer.names for layer in found.layers] == [("L0",), ("L1",), ("L2",)]
    assert found.layers[0].facts is found.layers[2].facts


def test_finding_layers_changes_nothing_in_the_model() -> None:
    model, inputs = tiny("bert")
    before = {name: (one, one.clone()) for name, one in model.state_dict(keep_vars=True).items()}
    find_layers(model, inputs)
    for name, one in model.state_dict(keep_vars=True).items():
        assert one is before[name][0] and torch.equal(one, before[name][1])
        assert one.grad is None
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_layers_are_described_by_what_was_found() -> None:
    (described,) = describe_layers(tiny("llama")[0])
    assert described.layers == ("L0", "L1", "L2")
    assert (described.num_heads, described.num_kv_heads) == (6, 2)
    assert described.projections is not None and described.attributes is not None
    assert described.projections["k_proj.weight"] == "axis 0: 8 of H0-2, 8 of H3-5"
    assert described.projections["o_proj.weight"].startswith("axis 1: 8 of H0, 8 of H1")
    assert described.attributes["num_key_value_groups"] == "heads per KV head"
    (gpt2,) = describe_layers(tiny("gpt2")[0])
    assert gpt2.attributes is not None and gpt2.attributes["split_size"] == "7 x heads"


def test_facts_of_known_layers_survive_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tiny("llama")
    find_layers(model, inputs)
    monkeypatch.setattr(model_layers, "MOST_REMEMBERED", 0)
    model.model.layers[1].self_attn.note = "of another structure"
    assert len(find_layers(model, inputs).layers) == 3


def test_a_model_that_cannot_be_cut_is_described_by_the_reason() -> None:
    (described,) = describe_layers(tiny_of(REFUSED["olmo3"][0])[0])
    assert described.layers == ("L0", "L1") and "span all heads" in described.refusal


def test_refused_layers_are_described_by_the_reason() -> None:
    model, inputs = tiny("llama")
    with pytest.raises(OptionError, match="groups"):
        cut(model, "L0H0", inputs=inputs)
    broken = model.model.layers[1].self_attn
    broken.q_proj = nn.Sequential(broken.q_proj, nn.LayerNorm(48, dtype=torch.float64))
    described = describe_layers(model, inputs)
    assert [one.layers for one in described] == [("L0", "L2"), ("L1",)]
    assert re.search(r"q_proj\.1 mixes the heads", described[1].refusal)


def test_layers_that_share_a_module_are_described_together() -> None:
    (albert,) = describe_layers(tiny("albert")[0])
    assert albert.shared and albert.layers == ("L0", "L1", "L2")


def test_heads_cannot_be_told_apart_on_a_single_position(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tiny("opt")
    monkeypatch.setattr(model_layers, "_FACTS", {})
    short = {name: value[:, :1] for name, value in inputs.items()}
    with pytest.raises(ModelError, match=r"single position.*inputs="):
        cut(model, "L0H1", inputs=short)
    assert cut(model, "L0H1", inputs=inputs).kept["L0"] == (0, 2, 3, 4)
