"""Shapes that configs say in other words."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from huggingface_hub.errors import GatedRepoError
from transformers import AutoConfig, AutoModel

from headwise.errors import ModelError, OptionError
from headwise.planning import costs
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
    ("said", "local"),
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
def test_local_layers_are_counted(tmp_path: Path, said: dict[str, Any], local: int) -> None:
    found = shape(tmp_path, SIZES | {"model_type": "llama"} | said)
    assert (found.num_layers, found.num_local) == (7, local)
    assert found.window == (5 if local else None)


@pytest.mark.parametrize(
    ("said", "kv_heads"),
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
def test_kv_heads_are_found(tmp_path: Path, said: dict[str, Any], kv_heads: int) -> None:
    assert shape(tmp_path, SIZES | said).num_kv_heads == kv_heads


def test_the_text_part_of_a_model_of_several_is_read(tmp_path: Path) -> None:
    nested = {"model_type": "gemma3", "text_config": SIZES | {"num_key_value_heads": 3}}
    assert shape(tmp_path, nested).d_model == 48


def test_what_is_no_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no config: it holds a value of type list"):
        shape(tmp_path, [1, 2])
    with pytest.raises(ModelError, match="has 'six' for num_attention_heads: no size"):
        shape(tmp_path, SIZES | {"num_attention_heads": "six"})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"v_head_dim": "abc"}, "has 'abc' for v_head_dim: no size"),
        ({"v_head_dim": -4}, "has a v_head_dim of -4: it must be at least 1"),
        (
            {"sliding_window": 5, "sliding_window_pattern": "LLLG"},
            "has 'LLLG' for sliding_window_pattern: no size",
        ),
        ({"sliding_window": True}, "has True for sliding_window: no size"),
        (
            {"layer_types": ["full_attention", "linear_attention"]},
            r"\(llama\) has layers of linear_attention: their cost follows other formulas",
        ),
        ({"layer_types": ["chunked_attention"]}, "has layers of chunked_attention"),
        (
            {"sliding_window": 5, "max_window_layers": -1},
            "has a max_window_layers of -1: it must be at least 0",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(
    tmp_path: Path, said: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        shape(tmp_path, SIZES | {"model_type": "llama"} | said)


def test_a_limit_of_minus_one_is_none(tmp_path: Path) -> None:
    assert shape(tmp_path, SIZES | {"max_position_embeddings": -1}).context is None


def test_a_type_that_is_not_known_is_said_in_the_plan(tmp_path: Path) -> None:
    def note(**said: object) -> str:
        (tmp_path / "config.json").write_text(json.dumps(SIZES | said), encoding="utf-8")
        return plan(str(tmp_path)).note

    assert note(model_type="llama") == ""
    assert note(model_type="esm").startswith("its type, esm, is not known: taken as causal")
    both = note(model_type="novel", is_encoder_decoder=True)
    assert both.startswith("its encoder alone is counted; its type, novel, is not known")
    assert "taken as bidirectional and without norms" in both
    assert note().startswith("its config names no type")
    assert note(model_type="outer", text_config=SIZES | {"model_type": "llama"}) == ""
    for kind in ("convbert", "deberta", "squeezebert"):  # their projections are not the plain four
        assert f"{kind}, is not known: taken as bidirectional" in note(model_type=kind)


def test_kv_heads_that_nothing_is_said_of_are_said_to_be_assumed(tmp_path: Path) -> None:
    def note(**said: object) -> str:
        (tmp_path / "config.json").write_text(json.dumps(SIZES | said), encoding="utf-8")
        return plan(str(tmp_path)).note

    words = "without norms, with a KV head for every head, with a bias only where"
    assert words in note(model_type="novel") and words in note()
    assert "KV head" not in note(model_type="novel", num_key_value_heads=3)
    assert "KV head" not in note(model_type="novel", multi_query=True)
    assert "KV head" not in note(model_type="dbrx")
    assert note(model_type="llama") == ""


@pytest.mark.parametrize("kind", ["bart", "marian", "mbart", "pegasus", "t5"])
def test_of_an_encoder_decoder_the_encoder_alone_is_counted_and_that_is_said(
    tmp_path: Path, kind: str
) -> None:
    assert AutoConfig.for_model(kind).is_encoder_decoder  # also where the file is silent
    for said in ({}, {"is_encoder_decoder": True}):
        config = SIZES | {"model_type": kind} | said
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        made = plan(tmp_path)
        assert made.note == "its encoder alone is counted"
        assert not made.shape.is_causal


def test_biases_of_chatglm_are_found(tmp_path: Path) -> None:
    found = shape(tmp_path, SIZES | {"model_type": "chatglm", "add_qkv_bias": True})
    assert (found.bias_in, found.bias_out) == (True, False)
    found = shape(tmp_path, SIZES | {"model_type": "chatglm", "add_bias_linear": True})
    assert (found.bias_in, found.bias_out) == (True, True)


def test_a_window_of_layers_that_are_not_named_is_said_in_the_plan(tmp_path: Path) -> None:
    def note(**said: object) -> str:
        config = SIZES | {"num_key_value_heads": 2, "sliding_window": 5} | said
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return plan(tmp_path).note

    words = "its config has a sliding_window and does not say which layers it is for: taken as for"
    assert note(model_type="llama").startswith(words)
    assert "is not known" in note(model_type="novel") and words in note(model_type="novel")
    assert note(model_type="smollm3", use_sliding_window=True).startswith(words)
    for kind in ("mistral", "mixtral", "phi3", "starcoder2", "gemma2", "qwen2", "smollm3"):
        assert note(model_type=kind) == ""
    assert note(model_type="llama", sliding_window_pattern=3) == ""
    assert note(model_type="llama", layer_types=["full_attention"] * 7) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"model_type": "qwen3_next", "full_attention_interval": 3}, "linear attention"),
        ({"model_type": "qwen3_next"}, "linear attention"),
        ({"model_type": "novel", "full_attention_interval": 3}, "linear attention"),
        ({"model_type": "llama4_text", "attention_chunk_size": 19}, "chunked attention"),
        ({"model_type": "llama4", "text_config": SIZES}, "chunked attention"),
        ({"model_type": "jamba", "attn_layer_period": 3}, "without attention"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-*"}, "without attention"),
        ({"model_type": "gemma3n_text", "num_kv_shared_layers": 3}, "keys and values from others"),
        ({"model_type": "gemma3n", "text_config": SIZES}, "keys and values from others"),
        ({"model_type": "gemma4_text"}, "heads of another size"),
        ({"model_type": "gemma4", "text_config": SIZES}, "heads of another size"),
        ({"model_type": "novel", "swa_head_dim": 16}, "heads of another size"),
        ({"model_type": "step3p7", "per_layer_config": {"2": {"head_dim": 4}}}, "different shapes"),
        ({"model_type": "nemotron-nas", "block_configs": [{"attention": {}}]}, "different shapes"),
        ({"model_type": "mllama_text_model", "cross_attention_layers": [3]}, "cross-attention"),
        ({"model_type": "mllama", "text_config": SIZES}, "cross-attention"),
    ],
)
def test_layers_that_cost_otherwise_are_refused_however_it_is_said(
    tmp_path: Path, said: dict[str, Any], words: str
) -> None:
    saying = rf"\({said['model_type']}\) has layers .*{words} \(.*\): its cost follows other"
    with pytest.raises(ModelError, match=saying):
        shape(tmp_path, SIZES | said)


def test_gemma_that_looks_both_ways_keeps_no_cache(tmp_path: Path) -> None:
    said = {"model_type": "gemma3_text", "num_key_value_heads": 3, "sliding_window": 5}
    assert shape(tmp_path, SIZES | said).is_causal
    for way in (True, "all"):
        assert not shape(tmp_path, SIZES | said | {"use_bidirectional_attention": way}).is_causal
    for way in (False, None, "vision"):
        assert shape(tmp_path, SIZES | said | {"use_bidirectional_attention": way}).is_causal


def test_a_bert_that_is_a_decoder_looks_back(tmp_path: Path) -> None:
    for kind in ("bert", "roberta", "electra", "convbert", "albert"):  # the last two know no other
        found = shape(tmp_path, SIZES | {"model_type": kind, "is_decoder": True})
        assert found.is_causal is (kind not in ("convbert", "albert"))
        assert not shape(tmp_path, SIZES | {"model_type": kind, "is_decoder": False}).is_causal


def test_text_of_clip_looks_back(tmp_path: Path) -> None:
    assert shape(tmp_path, SIZES | {"model_type": "clip_text_model"}).is_causal
    assert not shape(tmp_path, SIZES | {"model_type": "siglip_text_model"}).is_causal


BUILT = ("siglip_vision_model", "siglip2_vision_model", "olmo2", "olmo3", "olmoe", "mbart",
         "biogpt", "qwen2_vl_text", "qwen3_vl_text", "cohere2", "smollm3", "phi3")  # fmt: skip


@pytest.mark.parametrize("kind", BUILT)
def test_parameters_are_those_of_a_built_model(kind: str) -> None:
    assert kind in KNOWN_TYPES
    config = AutoConfig.for_model(kind)
    with torch.device("meta"):
        (first, *_) = find_sites(AutoModel.from_config(config))
    found = shape_of_config(json.loads(config.to_json_string()), kind)
    real = sum(one.numel() for one in first.module.parameters())
    assert costs.layer_parameters(found) == real


@pytest.mark.parametrize("wrong", ["768", 768.5, True])
def test_a_size_that_is_no_whole_number_is_refused(wrong: Any) -> None:
    sizes = {"num_heads": 6, "num_kv_heads": 6, "d_key": 8, "d_value": 8, "num_layers": 7}
    with pytest.raises(OptionError, match=f"d_model is {wrong!r}: give a whole number"):
        Shape(d_model=wrong, **sizes)


def test_a_name_without_an_owner_is_no_hubs_id_here() -> None:
    with pytest.raises(OptionError, match="a hub's id has an owner before a slash"):
        plan("distilbert-base-uncased")


def test_a_gated_model_is_not_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GatedRepoError("403", response=MagicMock())

    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    with pytest.raises(OptionError, match="gives it only to those who were let in"):
        plan("owner/gated")
