"""Configs of many spellings -> shapes, notes, and errors that name the key."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from transformers import AutoConfig, AutoModel

from headwise.errors import ModelError, OptionError
from headwise.planning.config_facts import KNOWN_TYPES
from headwise.planning.configs import shape_of_config
from headwise.planning.plans import plan
from headwise.planning.shapes import Shape
from headwise.watching.sites import find_sites

SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 7}


def shape(folder: Path, config: object) -> Shape:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return plan(path).shape


@pytest.mark.parametrize(
    ("settings", "local"),
    [
        ({"sliding_window": 5}, 7),
        ({"sliding_window": 5, "use_sliding_window": False}, 0),
        ({"sliding_window": 5, "sliding_window_pattern": 3}, 5),  # layers 2 and 5 are global
        ({"sliding_window": 5, "_sliding_window_pattern": 3}, 5),
        (
            {"model_type": "modernbert", "local_attention": 5, "global_attn_every_n_layers": 3},
            4,  # layers 0, 3 and 6 are global
        ),
        ({"sliding_window": 5, "max_window_layers": 2}, 5),  # the first two are global
        ({"sliding_window": 5, "max_window_layers": 0}, 7),
        ({"sliding_window": 5, "max_window_layers": 11}, 0),
        ({"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 4}, 4),
    ],
)
def test_local_layers_are_counted(tmp_path: Path, settings: dict[str, Any], local: int) -> None:
    local_shape = shape(tmp_path, SIZES | {"model_type": "llama"} | settings)
    assert (local_shape.num_layers, local_shape.num_local) == (7, local)
    assert local_shape.window == (5 if local else None)


@pytest.mark.parametrize(
    ("settings", "kv_heads"),
    [
        ({"model_type": "gpt_bigcode", "multi_query": True}, 1),
        ({"model_type": "falcon"}, 1),
        ({"model_type": "falcon", "multi_query": False}, 6),
        ({"model_type": "llama", "num_key_value_heads": 2}, 2),
        ({"model_type": "llama"}, 6),
        ({"model_type": "chatglm", "multi_query_attention": True, "multi_query_group_num": 2}, 2),
        ({"model_type": "chatglm", "multi_query_attention": True}, 1),
        ({"model_type": "chatglm", "multi_query_attention": False, "multi_query_group_num": 2}, 6),
        ({"model_type": "dbrx", "attn_config": {"kv_n_heads": 3, "clip_qkv": 8}}, 3),
        ({"model_type": "dbrx", "attn_config": {"clip_qkv": 8}}, 1),
        ({"model_type": "dbrx"}, 1),
    ],
)
def test_kv_heads_are_read_under_every_key(
    tmp_path: Path, settings: dict[str, Any], kv_heads: int
) -> None:
    assert shape(tmp_path, SIZES | settings).num_kv_heads == kv_heads


def test_text_config_of_a_composite_model_is_read(tmp_path: Path) -> None:
    nested = {"model_type": "gemma3", "text_config": SIZES | {"num_key_value_heads": 3}}
    assert shape(tmp_path, nested).d_model == 48


def test_missing_or_damaged_config_raises(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        plan(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="JSON"):
        plan(tmp_path)
    with pytest.raises(ModelError, match=r"config\.json.* list"):
        shape(tmp_path, [1, 2])


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"num_attention_heads": "six"}, "num_attention_heads is 'six'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0: "),
        ({"hidden_size": 512.5}, "hidden_size is 512.5"),
        ({"v_head_dim": "abc"}, "v_head_dim is 'abc'"),
        ({"v_head_dim": -4}, "v_head_dim is -4: .*1"),
        (
            {"sliding_window": 5, "sliding_window_pattern": "LLLG"},
            "sliding_window_pattern is 'LLLG'",
        ),
        ({"sliding_window": True}, "sliding_window is True"),
        (
            {"layer_types": ["full_attention", "linear_attention"]},
            r"\(llama\).*linear_attention",
        ),
        ({"layer_types": ["chunked_attention"]}, "chunked_attention"),
        (
            {"sliding_window": 5, "max_window_layers": -1},
            "max_window_layers is -1: .*0",
        ),
    ],
)
def test_unusable_value_raises_and_names_the_key(
    tmp_path: Path, settings: dict[str, Any], facts: str
) -> None:
    with pytest.raises(ModelError, match=facts):
        shape(tmp_path, SIZES | {"model_type": "llama"} | settings)


def test_context_of_minus_one_means_no_limit(tmp_path: Path) -> None:
    assert shape(tmp_path, SIZES | {"max_position_embeddings": -1}).context is None


def note(folder: Path, **settings: object) -> str:
    (folder / "config.json").write_text(json.dumps(SIZES | settings), encoding="utf-8")
    return plan(folder).note


def test_note_says_what_is_assumed_of_an_unknown_type(tmp_path: Path) -> None:
    assert note(tmp_path, model_type="llama") == ""
    assert "unknown model type esm: assumed to be causal" in note(tmp_path, model_type="esm")
    both = note(tmp_path, model_type="novel", is_encoder_decoder=True)
    assert both.startswith("only the encoder is counted; unknown model type novel")
    assert "bidirectional, without norms" in both
    assert "names no type" in note(tmp_path)
    assert note(tmp_path, model_type="outer", text_config=SIZES | {"model_type": "llama"}) == ""
    for kind in ("convbert", "deberta", "squeezebert"):  # their projections are not the plain four
        assert f"type {kind}: assumed to be bidirectional" in note(tmp_path, model_type=kind)


def test_note_says_that_every_head_is_assumed_to_have_a_kv_head(tmp_path: Path) -> None:
    assert "a KV head for every head" in note(tmp_path, model_type="novel")
    assert "a KV head for every head" in note(tmp_path)
    assert "KV head" not in note(tmp_path, model_type="novel", num_key_value_heads=3)
    assert "KV head" not in note(tmp_path, model_type="novel", multi_query=True)
    assert "KV head" not in note(tmp_path, model_type="dbrx")


@pytest.mark.parametrize("kind", ["bart", "marian", "mbart", "pegasus", "t5"])
def test_only_the_encoder_of_an_encoder_decoder_is_counted(tmp_path: Path, kind: str) -> None:
    assert AutoConfig.for_model(kind).is_encoder_decoder  # also if the file leaves it out
    for extra in ({}, {"is_encoder_decoder": True}):
        config = SIZES | {"model_type": kind} | extra
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        config_plan = plan(tmp_path)
        assert config_plan.note == "only the encoder is counted"
        assert not config_plan.shape.is_causal


@pytest.mark.parametrize(("key", "in_output"), [("add_qkv_bias", False), ("add_bias_linear", True)])
def test_biases_of_chatglm_are_read(tmp_path: Path, key: str, in_output: bool) -> None:
    biased = shape(tmp_path, SIZES | {"model_type": "chatglm", key: True})
    assert (biased.bias_in, biased.bias_out) == (True, in_output)


def test_note_says_that_a_window_is_applied_to_all_layers(tmp_path: Path) -> None:
    def window_note(**settings: object) -> str:
        return note(tmp_path, **{"num_key_value_heads": 2, "sliding_window": 5} | settings)

    facts = "has a sliding_window but does not say for which layers"
    assert facts in window_note(model_type="llama")
    assert "unknown" in window_note(model_type="novel") and facts in window_note(model_type="novel")
    assert facts in window_note(model_type="smollm3", use_sliding_window=True)
    for kind in ("mistral", "mixtral", "phi3", "starcoder2", "gemma2", "qwen2", "smollm3"):
        assert window_note(model_type=kind) == ""
    assert window_note(model_type="llama", sliding_window_pattern=3) == ""
    assert window_note(model_type="llama", layer_types=["full_attention"] * 7) == ""


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"model_type": "qwen3_next", "full_attention_interval": 3}, "linear attention"),
        ({"model_type": "qwen3_next"}, "linear attention"),
        ({"model_type": "novel", "full_attention_interval": 3}, "linear attention"),
        ({"model_type": "llama4_text", "attention_chunk_size": 19}, "chunked attention"),
        ({"model_type": "llama4", "text_config": SIZES}, "chunked attention"),
        ({"model_type": "jamba", "attn_layer_period": 3}, "without attention"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-*"}, "without attention"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 3}, "keys and values of other"),
        ({"model_type": "gemma3n", "text_config": SIZES}, "keys and values of other"),
        ({"model_type": "gemma4_text"}, "different head sizes"),
        ({"model_type": "gemma4", "text_config": SIZES}, "different head sizes"),
        ({"model_type": "novel", "swa_head_dim": 16}, "different head sizes"),
        ({"model_type": "step3p7", "per_layer_config": {"2": {"head_dim": 4}}}, "different shapes"),
        ({"model_type": "nemotron-nas", "block_configs": [{"attention": {}}]}, "different shapes"),
        ({"model_type": "mllama_text_model", "cross_attention_layers": [3]}, "cross-attention"),
        ({"model_type": "mllama", "text_config": SIZES}, "cross-attention"),
    ],
)
def test_layers_with_other_cost_formulas_raise_under_every_key(
    tmp_path: Path, settings: dict[str, Any], facts: str
) -> None:
    with pytest.raises(ModelError, match=rf"\({settings['model_type']}\).*{facts}"):
        shape(tmp_path, SIZES | settings)


def test_bidirectional_gemma_is_not_causal(tmp_path: Path) -> None:
    settings = {"model_type": "gemma3_text", "num_key_value_heads": 3, "sliding_window": 5}
    assert shape(tmp_path, SIZES | settings).is_causal
    for setting in (True, "all"):
        assert not shape(
            tmp_path, SIZES | settings | {"use_bidirectional_attention": setting}
        ).is_causal
    for setting in (False, None, "vision"):
        assert shape(
            tmp_path, SIZES | settings | {"use_bidirectional_attention": setting}
        ).is_causal


def test_bert_is_causal_as_a_decoder(tmp_path: Path) -> None:
    for kind in (
        "bert",
        "roberta",
        "electra",
        "convbert",
        "albert",
    ):  # the last two are never causal
        decoder = shape(tmp_path, SIZES | {"model_type": kind, "is_decoder": True})
        assert decoder.is_causal is (kind not in ("convbert", "albert"))
        assert not shape(tmp_path, SIZES | {"model_type": kind, "is_decoder": False}).is_causal


def test_text_model_of_clip_is_causal(tmp_path: Path) -> None:
    assert shape(tmp_path, SIZES | {"model_type": "clip_text_model"}).is_causal
    assert not shape(tmp_path, SIZES | {"model_type": "siglip_text_model"}).is_causal


BUILT = ("siglip_vision_model", "siglip2_vision_model", "olmo2", "olmo3", "olmoe", "mbart",
         "biogpt", "qwen2_vl_text", "qwen3_vl_text", "cohere2", "smollm3", "phi3")  # fmt: skip


@pytest.mark.parametrize("kind", BUILT)
def test_parameters_equal_those_of_a_built_model(kind: str) -> None:
    assert kind in KNOWN_TYPES
    config = AutoConfig.for_model(kind)
    with torch.device("meta"):
        (first, *_) = find_sites(AutoModel.from_config(config))
    real = sum(parameter.numel() for parameter in first.module.parameters())
    read = shape_of_config(json.loads(config.to_json_string()), kind)
    assert plan(shape=read).layer_parameters == real


@pytest.mark.parametrize("wrong", ["768", 768.5, True])
def test_shape_rejects_sizes_that_are_not_whole_numbers(wrong: Any) -> None:
    sizes = {"num_heads": 6, "num_kv_heads": 6, "d_key": 8, "d_value": 8, "num_layers": 7}
    with pytest.raises(OptionError, match=f"d_model is {wrong!r}"):
        Shape(d_model=wrong, **sizes)


def test_hub_id_needs_an_owner() -> None:
    with pytest.raises(OptionError, match=r"distilbert-base-uncased .*owner/name"):
        plan("distilbert-base-uncased")


def test_gated_model_raises_with_the_way_to_get_access(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GatedRepoError("403", response=MagicMock())

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    with pytest.raises(OptionError, match=r"owner/gated: access"):
        plan("owner/gated")
