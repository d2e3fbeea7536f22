"""Biases of zero change no output, and a config says which modules have them."""

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedModel

from headwise.models.exported_folder import cut_class, empty_model
from headwise.pruning.export.plain_config import public_class, tensor_shapes
from headwise.pruning.export.sizes import sizes_of
from headwise.pruning.surgery import output_biases
from headwise.pruning.surgery.cut import count_parameters, cut, head_counts
from headwise.pruning.surgery.output_biases import add_output_biases
from headwise.watching.sites import find_sites

from ...watching.helpers import allow_weights, assert_close, each_family, run
from ...watching.tiny import output_of, tiny
from ..differences import ALL, mixed_plan, tiny_of

pytestmark = allow_weights

BY_SETTING = {"modernbert", "llama", "qwen3", "gemma2", "gemma3", "granite"}
"""Families without biases whose config has a setting that adds them to output projections."""
BY_BLOCK = {"nomic_bert", "mistral", "mixtral", "qwen2", "phi3", "stablelm", "falcon", "gptj"}
BY_BLOCK |= {"mpt", "t5"}
"""Families without biases on output projections, and without such a setting."""


def without_bias(model: nn.Module) -> int:
    """Number of output projections without a bias."""
    projections = [site.output_projection for site in find_sites(model)]
    return sum(getattr(projection, "bias", None) is None for projection in projections)


def rebuilt(model: PreTrainedModel) -> PreTrainedModel:
    """A cut model as loading builds it: from the config alone, on the meta device."""
    return empty_model(cut_class(public_class(model)), model.config, model.dtype)


@each_family
@pytest.mark.parametrize("empties", [False, True])
def test_every_output_projection_gets_a_bias_that_changes_no_output(
    name: str, empties: bool
) -> None:
    model, inputs = tiny(name)
    cut(model, mixed_plan(model, empties=empties))
    before, output = tensor_shapes(model), output_of(run(model, inputs))
    config = model.config.to_json_string()
    is_lacking = name in BY_SETTING | BY_BLOCK
    assert without_bias(model) == (len(find_sites(model)) if is_lacking else 0)
    biases = add_output_biases(model)
    assert without_bias(model) == 0
    assert bool(biases.setting) == (name in BY_SETTING)
    assert tensor_shapes(rebuilt(model)) == tensor_shapes(model)
    assert_close(name, output_of(run(model, inputs)), output)
    biases.remove_if_zero()
    assert tensor_shapes(model) == before
    assert model.config.to_json_string() == config


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_a_bias_that_is_used_stays(name: str) -> None:
    model, inputs = tiny(name)
    cut(model, mixed_plan(model))
    output = output_of(run(model, inputs))
    biases = add_output_biases(model)
    projection = find_sites(model)[-1].output_projection
    with torch.no_grad():
        projection.bias[0] = 1.0
    biases.remove_if_zero()
    assert without_bias(model) == 0
    assert not torch.equal(output_of(run(model, inputs)), output)
    assert add_output_biases(model).modules == ()


@pytest.mark.parametrize(("name", "setting"), [("seed_oss", "attention_out_bias"), ("glm", "")])
def test_a_setting_is_used_only_if_it_reaches_output_projections(name: str, setting: str) -> None:
    model, _ = tiny_of(ALL[name])
    biases = add_output_biases(model)
    assert biases.setting == setting
    assert len(biases.modules) == len(find_sites(model))
    assert not setting or getattr(model.config, setting) is True


def test_a_setting_that_also_adds_biases_elsewhere_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_biases, "BIAS_SETTINGS", ("use_bias",))
    model, _ = tiny_of(ALL["ernie4_5"])  # use_bias is for feed-forward layers, too
    assert add_output_biases(model).setting == ""
    assert model.config.use_bias is False
    assert model.model.layers[0].mlp.down_proj.bias is None


class Strange(LlamaForCausalLM):
    """A model that cannot be built from its config alone."""

    def __init__(self, config: object, size: int) -> None:
        super().__init__(config)
        self.size = size


def test_a_custom_class_gets_biases_without_a_setting() -> None:
    model = Strange(tiny("llama")[0].config, 3)
    biases = add_output_biases(model)
    assert (biases.setting, len(biases.modules)) == ("", 3)


def test_biases_follow_their_weights_and_survive_another_cut() -> None:
    model, inputs = tiny("llama", dtype=torch.bfloat16)
    model.model.layers[1].self_attn.o_proj.weight.requires_grad_(False)
    add_output_biases(model)
    attention = [layer.self_attn for layer in model.model.layers]
    assert [layer.o_proj.bias.requires_grad for layer in attention] == [True, False, True]
    assert {bias.dtype for bias in model.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        for layer in attention:
            layer.o_proj.bias += 1
    cut(model, mixed_plan(model), inputs=inputs)
    assert [layer.q_proj.bias.numel() for layer in attention] == [32, 48, 24]
    assert tensor_shapes(rebuilt(model)) == tensor_shapes(model)
    assert all(layer.o_proj.bias.eq(1).all() for layer in attention)


@pytest.mark.parametrize(("name", "added"), [("llama", 3 * (42 + 8 * (6 + 2 + 2))), ("falcon", 96)])
def test_added_biases_are_counted(name: str, added: int) -> None:
    model, _ = tiny(name)
    before = sizes_of(model, head_counts(model))
    add_output_biases(model)
    after = sizes_of(model, head_counts(model))
    assert after.parameters - before.parameters == added
    assert after.attention_parameters - before.attention_parameters == added
    assert after.bytes - before.bytes == 8 * added
    assert after.attention_multiply_adds == before.attention_multiply_adds
    assert after.parameters == count_parameters(model)
