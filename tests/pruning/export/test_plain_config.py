"""A plain config is found for every cut that transformers can build, and for no other."""

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedModel

from headwise.errors import ModelError
from headwise.pruning.export.plain_config import plain_config, public_class
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.watching.equivalence import tensors_by_name

from ...watching.helpers import assert_close, run
from ...watching.tiny import output_of, tiny

FREE = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma2", "phi3", "granite", "gpt_oss")
FREE_ENCODERS = ("nomic_bert", "vit", "dinov2")
BOUND = ("bert", "gpt2", "gpt_neox", "opt", "modernbert", "falcon", "bart", "t5", "clip", "mpt")
"""Families whose heads are as large as hidden_size and their number say, or of several stacks."""


def last_group(model: nn.Module) -> list[str]:
    """The heads of every layer that share its last KV head."""
    return [
        f"{layer}H{head}"
        for layer, (heads, kv_heads) in head_counts(model).items()
        for head in range(heads - heads // kv_heads, heads)
    ]


def rebuilt(model: PreTrainedModel) -> PreTrainedModel:
    """The plain class from the plain config, with the weights of the model."""
    config = plain_config(model)
    assert config is not None
    assert not hasattr(config, "headwise")
    plain = public_class(model)._from_config(config, dtype=model.dtype).eval()
    plain.load_state_dict(model.state_dict())
    experts = model.config._experts_implementation
    plain.config._experts_implementation = experts
    return plain


@pytest.mark.parametrize("name", [*FREE, *FREE_ENCODERS])
def test_an_even_cut_is_a_plain_model_where_the_size_of_heads_is_free(name: str) -> None:
    model, inputs = tiny(name)
    cut(model, last_group(model))
    plain = rebuilt(model)
    (counts,) = set(head_counts(model).values())
    assert set(head_counts(plain).values()) == {counts}
    assert_close(name, output_of(run(plain, inputs)), output_of(run(model, inputs)))


@pytest.mark.parametrize("name", BOUND)
def test_cuts_that_no_config_builds_have_no_plain_config(name: str) -> None:
    model, _ = tiny(name)
    cut(model, last_group(model))
    assert plain_config(model) is None


@pytest.mark.parametrize(("gone", "counts"), [("0134", (2, 2)), ("345", (3, 1)), ("01245", (1, 1))])
def test_plain_configs_have_the_counts_of_whole_or_partial_groups(
    gone: str, counts: tuple[int, int]
) -> None:
    model, _ = tiny("llama")
    cut(model, [f"L{layer}H{head}" for layer in range(3) for head in gone])
    config = plain_config(model)
    assert config is not None
    assert (config.num_attention_heads, config.num_key_value_heads) == counts
    assert config.head_dim == 8


@pytest.mark.parametrize(
    ("heads", "why"),
    [
        ("L0H0 L0H1 L0H2", "one layer has fewer heads"),
        ("L0H0 L0H1 L0H2 L1H0 L1H3 L2H0 L2H3", "layers have other numbers"),
        (" ".join(f"L0H{head}" for head in range(6)), "one layer has none"),
        (" ".join(f"L{layer}H{head}" for layer in range(3) for head in range(6)), "all have none"),
        (" ".join(f"L{layer}H{head}" for layer in range(3) for head in (0, 3)), "42 % 4 != 0"),
    ],
)
def test_uneven_cuts_of_llama_have_no_plain_config(heads: str, why: str) -> None:
    model, _ = tiny("llama")
    cut(model, heads)
    assert plain_config(model) is None, why


def test_the_same_shapes_with_another_scale_are_not_plain() -> None:
    model, _ = tiny("llama")
    cut(model, last_group(model))
    assert plain_config(model) is not None
    model.model.layers[1].self_attn.scaling *= 2
    assert plain_config(model) is None


def test_plain_config_changes_neither_model_nor_config() -> None:
    model, inputs = tiny("qwen2")
    cut(model, last_group(model))
    said, config = output_of(run(model, inputs)), model.config.to_json_string()
    tensors = dict(tensors_by_name(model))
    plain_config(model)
    assert model.config.to_json_string() == config
    assert all(one is tensors[name] for name, one in tensors_by_name(model).items())
    assert torch.equal(output_of(run(model, inputs)), said)


def test_the_plain_config_of_an_uncut_model_has_no_quantization() -> None:
    model, _ = tiny("bert")
    model.config.quantization_config = {"quant_method": "gguf"}
    config = plain_config(model)
    assert config is not None
    assert not hasattr(config, "quantization_config")
    assert model.config.quantization_config == {"quant_method": "gguf"}


class Strange(LlamaForCausalLM):
    """A model defined by a user."""


def test_public_class_rejects_custom_classes() -> None:
    strange = Strange(tiny("llama")[0].config)
    message = "Strange .*public class"
    with pytest.raises(ModelError, match=message):
        public_class(strange)
    with pytest.raises(ModelError, match="Linear"):
        public_class(nn.Linear(2, 3))
