"""What the default configs of some types leave out or leave to others.

Out: the parts of composite types, arguments without a default that works, and a small backbone in
the place of those from the timm library.
"""

from collections.abc import Mapping
from typing import Any

from tiny_rules import Sizes

CROSS = {"is_decoder": True, "add_cross_attention": True}
COMPOSITES: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "encoder-decoder": {"encoder": ("bert", {}), "decoder": ("bert", CROSS)},
    "vision-encoder-decoder": {"encoder": ("vit", {}), "decoder": ("gpt2", CROSS)},
    "speech-encoder-decoder": {"encoder": ("wav2vec2", {}), "decoder": ("bert", CROSS)},
    "vision-text-dual-encoder": {"vision_config": ("vit", {}), "text_config": ("bert", {})},
    "rag": {"question_encoder": ("dpr", {}), "generator": ("bart", {})},
}
"""Types whose config is two other configs, and has no default."""

RESNET: dict[str, Any] = {
    "model_type": "resnet",
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 48, 64],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}

ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
PICTURE_WORDS = {"<image>": 120} | {f"<|visual token {code:06d}|>": 90 + code for code in range(30)}
LETTERS = "ABCDEFGHIJ"
PICTURE_CODES = {"<image>": 120} | {
    f"IMGIMG{LETTERS[code // 10]}{LETTERS[code % 10]}Z": 60 + code for code in range(60)
}
EXPERTS = {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 96}
BY_KIND = {"full_attention": ROPE, "sliding_attention": ROPE}
SERIES: dict[str, Any] = {
    "prediction_length": 8,
    "context_length": 14,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 2,
    "num_static_categorical_features": 1,
    "cardinality": [5],
    "embedding_dimension": [2],
}
MISSING: dict[str, dict[str, Any]] = {
    "chameleon": {"vocabulary_map": PICTURE_CODES},
    "emu3": {"vocabulary_map": PICTURE_WORDS},
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 4, "clip_qkv": 8}},
    "bamba": {"attn_layer_indices": [1, 3]},
    "xmod": {"default_language": "en_XX"},
    "granitemoehybrid": {"num_hidden_layers": 4, "layer_types": ["mamba", "attention"] * 2},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]]},
    "diffusion_gemma_text": EXPERTS,
    "diffusion_gemma": {"text_config": EXPERTS, "vision_config": {"model_type": "gemma4_vision"}},
    "blip-2": {"image_token_index": 120},
    "instructblip": {"image_token_index": 120},
    "instructblipvideo": {"video_token_index": 120},
    "qwen2_5_omni_thinker": {"vision_start_token_id": 151_652, "vision_end_token_id": 151_653},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 151_652, "vision_end_token_id": 151_653},
    "voxtral": {"audio_token_id": 120},
    "gemma4": {
        "vision_config": {"model_type": "gemma4_vision"},
        "audio_config": {"model_type": "gemma4_audio"},
    },
    "moonshine_streaming": {"num_key_value_heads": 8},
    "qwen4_exp_text": {"indexer_budget": 8, "indexer_compress_ratio": 2},
    "qwen4_exp": {"text_config": {"indexer_budget": 8, "indexer_compress_ratio": 2}},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
    "seggpt": {
        "num_hidden_layers": 4,
        "merge_index": 0,
        "intermediate_hidden_state_indices": [1, 2, 3],
    },
    "t5gemma2_text": {"dropout_rate": 0.0},
    "t5gemma2_encoder": {"dropout_rate": 0.0},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "pix2struct_text_model": {"initializer_range": 0.02},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 96},
    "blt": {"num_hidden_layers": 2},
    "autoformer": SERIES,
    "informer": SERIES,
    "time_series_transformer": SERIES,
    "cohere_compass_text": {"rope_parameters": BY_KIND},
    "cohere_compass": {"text_config": {"rope_parameters": BY_KIND}},
    "gemma4_assistant": {
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
        }
    },
}
"""Arguments of configs that cannot be built or used without them."""


DERIVED = {"hrm_text": ("num_layers_per_stack",)}
"""Fields that the config computes from others, and must not be given."""


def missing_fields(
    made: dict[str, Any], fields: Mapping[str, Any], sizes: Sizes, layers: int
) -> None:
    """Fill fields in place that are None by default, though the model needs a number."""
    usual = {
        "prediction_length": 8,
        "num_experts_per_tok": 2,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "vocab_size": sizes.vocabulary,
        "pad_token_id": 0,
    }
    if sizes.filled:
        usual |= {
            "head_dim": sizes.head_dim,
            "num_key_value_heads": sizes.heads,
            "sliding_window": sizes.window,
        }
    if sizes.filled and layers:
        usual |= {
            "mlp_layer_types": ["dense", *["sparse"] * (layers - 1)],
            "layer_types": ["conv", *["full_attention"] * (layers - 1)],
        }
    for name, value in usual.items():
        if name in fields and fields[name] is None:
            made[name] = value
