"""Facts about model types, compared with what transformers makes of the same config."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AlbertConfig, AlbertModel, AutoConfig, AutoModel, StaticCache

from headwise.planning.config_facts import CONFIG_DEFAULTS, KNOWN_TYPES
from headwise.planning.configs import shape_of_config
from headwise.planning.plans import plan

from .building import attention_parameters

OLD_CONFIGS = {
    "gemma2": {
        "model_type": "gemma2",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 7,
        "sliding_window": 11,
    },
    "gemma3, almost empty": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 80,
            "num_hidden_layers": 13,
            "sliding_window": 11,
        },
    },
    "gemma3, text_config without a type": {
        "model_type": "gemma3",
        "text_config": {"hidden_size": 80, "num_hidden_layers": 13, "sliding_window": 11},
    },
    "gemma3_text": {
        "model_type": "gemma3_text",
        "hidden_size": 84,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 14,
        "num_hidden_layers": 13,
        "sliding_window": 11,
        "sliding_window_pattern": 5,
    },
    "qwen2, some layers local": {
        "model_type": "qwen2",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 7,
        "sliding_window": 11,
        "use_sliding_window": True,
        "max_window_layers": 3,
    },
    "qwen2, no layer local": {
        "model_type": "qwen2",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 7,
        "sliding_window": 11,
        "max_window_layers": 3,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 7,
        "sliding_window": 11,
        "use_sliding_window": True,
        "max_window_layers": 4,
    },
    "qwen3_moe, all layers local": {
        "model_type": "qwen3_moe",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 14,
        "num_hidden_layers": 7,
        "sliding_window": 11,
        "use_sliding_window": True,
        "max_window_layers": 3,
    },
    "qwen2_vl, without text_config": {
        "model_type": "qwen2_vl",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 7,
        "sliding_window": 11,
        "use_sliding_window": True,
        "max_window_layers": 5,
    },
    "mistral": {
        "model_type": "mistral",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 7,
        "sliding_window": 11,
    },
    "mistral without a window": {
        "model_type": "mistral",
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "num_hidden_layers": 7,
        "sliding_window": None,
    },
}
"""Configs published before `layer_types` existed, which leave more out than today's."""


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("gemma3n_text", "num_kv_shared_layers"),
        ("mllama_text_model", "cross_attention_layers"),
        ("t5", "is_encoder_decoder"),
    ],
)
def test_defaults_equal_those_of_transformers(kind: str, key: str) -> None:
    assert CONFIG_DEFAULTS[kind][key] == getattr(AutoConfig.for_model(kind), key)


def test_kv_heads_of_dbrx_equal_those_of_transformers() -> None:
    for extra in ({}, {"attn_config": {"kv_n_heads": 2}}):
        config = AutoConfig.for_model("dbrx", d_model=48, n_heads=8, n_layers=7, **extra)
        saved, short = json.loads(config.to_json_string()), {"model_type": "dbrx", **SIZES, **extra}
        for facts in (saved, short):
            shape = shape_of_config(facts, "dbrx")
            assert (shape.num_heads, shape.num_kv_heads) == (8, config.attn_config.kv_n_heads)


@pytest.mark.parametrize("name", OLD_CONFIGS)
def test_older_configs_are_read_as_transformers_reads_them(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(OLD_CONFIGS[name]), encoding="utf-8")
    config_plan = plan(tmp_path, length=37, batch=3)
    config = AutoConfig.from_pretrained(tmp_path).get_text_config()
    d_key = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = StaticCache(config=config, max_cache_len=37)
    cache.early_initialization(
        3, config.num_key_value_heads, d_key, torch.bfloat16, torch.device("meta")
    )
    cache_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert config_plan.shape.num_layers == len(cache.layers)
    assert config_plan.shape.num_local == sum(layer.is_sliding for layer in cache.layers)
    assert (config_plan.shape.num_heads, config_plan.shape.d_key) == (
        config.num_attention_heads,
        d_key,
    )
    assert config_plan.cache_bytes == cache_bytes
    assert config_plan.note == ""


SIZES = {"hidden_size": 48, "num_attention_heads": 8, "num_hidden_layers": 7}
COMPOSITE = {"clip", "gemma3", "mistral3", "siglip", "siglip2"}
"""Types whose configs consist of parts; the types of the parts are known as well."""


@pytest.mark.parametrize("kind", sorted(KNOWN_TYPES - COMPOSITE))
def test_config_of_sizes_only_is_read_as_transformers_reads_it(kind: str) -> None:
    config = AutoConfig.for_model(kind, **SIZES).get_text_config()
    shape = shape_of_config({"model_type": kind} | SIZES, kind)
    head_sizes = (getattr(config, name, None) for name in ("head_dim", "d_kv"))
    assert shape.d_key == next(filter(None, head_sizes), 48 // 8)
    window = getattr(config, "sliding_window", None) or None
    kinds = getattr(config, "layer_types", None) or ["sliding_attention" if window else ""] * 7
    assert shape.num_local == kinds.count("sliding_attention")
    if shape.num_local:  # transformers' sliding_window is the reach to one side
        assert shape.window == (window if shape.is_causal else config.local_attention)


BIASES_AND_NORMS: list[tuple[str, dict[str, Any]]] = [
    ("stablelm", {"use_qkv_bias": True}),
    ("stablelm", {"qk_layernorm": True}),
    ("cohere", {"use_qk_norm": True}),
    ("phi", {"qk_layernorm": True}),
    ("starcoder2", {"use_bias": False}),
    ("ernie4_5", {"use_bias": True}),
    ("gpt_neox", {"attention_bias": False}),
    ("gpt_oss", {"attention_bias": False}),
    ("helium", {"attention_bias": True, "head_dim": 6}),
    ("helium", {"head_dim": 6}),  # its Wo is square, whatever its head size
    ("opt", {"enable_bias": False}),
    ("qwen2_moe", {"qkv_bias": False}),
    ("deit", {"qkv_bias": False}),
    ("dinov2", {"qkv_bias": False}),
    ("vit", {"qkv_bias": False}),
    ("vit_mae", {"qkv_bias": False}),
    *(
        (kind, {})
        for kind in "stablelm cohere phi starcoder2 gpt_neox gpt_oss opt qwen2_moe".split()
    ),
    *((kind, {}) for kind in "deit dinov2 vit vit_mae".split()),
]


@pytest.mark.parametrize(("kind", "settings"), BIASES_AND_NORMS)
def test_parameters_follow_the_biases_and_norms_of_the_config(
    kind: str, settings: dict[str, Any]
) -> None:
    sizes = SIZES | settings
    if hasattr(AutoConfig.for_model(kind), "num_key_value_heads"):
        sizes["num_key_value_heads"] = 2
    config = AutoConfig.for_model(kind, **sizes)
    with torch.device("meta"):
        real = attention_parameters(AutoModel.from_config(config))
    assert kind in KNOWN_TYPES
    for facts in (json.loads(config.to_json_string()), {"model_type": kind} | sizes):
        assert [plan(shape=shape_of_config(facts, kind)).layer_parameters] * 7 == real


@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (3, 1), (3, 2)])
def test_shared_weights_count_once(tmp_path: Path, groups: int, inner: int) -> None:
    config = AlbertConfig(
        **SIZES, embedding_size=5, num_hidden_groups=groups, inner_group_num=inner
    )
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = AlbertModel(config)
    weights = [
        parameter.numel()
        for name, parameter in model.named_parameters()
        if ".attention." in name and "LayerNorm" not in name
    ]
    config_plan = plan(tmp_path)
    assert config_plan.model_parameters == sum(weights)
    assert config_plan.layer_parameters == sum(weights) // (groups * inner)
    assert config_plan.shape.num_layers == 7 * inner
    assert "layers share weights" in config_plan.note
