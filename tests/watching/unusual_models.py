"""Tiny models whose attention differs from what transformers' interface promises, and inputs.

In: a name. Out: a model with random weights in float64 and in eval mode, and inputs for it that
reach the unusual code: more tokens than sparse attention keeps, padding, images, sound.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor

from .tiny import Inputs, spread_out

LENGTH, VOCABULARY, KEPT = 29, 53, 5
"""Tokens of a text, tokens that a model knows, and keys that sparse attention keeps."""
MEL_BINS = 128
LATENT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 31,
    "moe_intermediate_size": 17,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "kv_lora_rank": 11,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 5,
    "v_head_dim": 7,
    "head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "index_topk": KEPT,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "mlp_layer_types": ["dense"] * 3,
}
BLOCKS = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 17,
    "dense_intermediate_size": 31,
    "shared_intermediate_size": 19,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rotary_dim": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "index_block_size": 4,
    "index_topk_blocks": 2,
    "layer_types": ["minimax_m3_sparse"] * 3,
    "mlp_layer_types": ["dense"] * 3,
}
SIZES = {"hidden_size": 24, "intermediate_size": 31, "num_attention_heads": 3}


def sparse_text(model_type: str) -> tuple[Any, Inputs]:
    """A causal model that attends to few keys, and a text with more of them."""
    more = {} if model_type == "mistral_large4_text" else {"q_lora_rank": 13}
    sizes = BLOCKS if model_type == "minimax_m3_vl_text" else LATENT | more
    config = transformers.AutoConfig.for_model(model_type, **sizes, pad_token_id=0)
    return build(transformers.AutoModel, config), texts()


def sparse_composite(model_type: str) -> tuple[Any, Inputs]:
    """The same with an image encoder beside the text model, which reads a text only."""
    text = transformers.AutoConfig.for_model(f"{model_type}_text", **text_sizes(model_type))
    vision = {**SIZES, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14, "head_dim": 8}
    config = transformers.AutoConfig.for_model(
        model_type, text_config=text.to_dict(), vision_config=vision
    )
    return build(transformers.AutoModel, config), texts()


def text_sizes(model_type: str) -> dict[str, Any]:
    return BLOCKS if model_type.startswith("minimax") else LATENT


def build(kind: Any, config: Any) -> Any:
    """The config's model with weights drawn from fixed seeds."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        is_auto = hasattr(kind, "from_config")
        model = kind.from_config(config) if is_auto else kind(config)
        spread_out(model)
    return model.double().eval()


def texts(*, padded: bool = False) -> Inputs:
    """Two texts, the second shorter if they are padded."""
    ids = torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    if padded:
        mask[1, -7:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def git() -> tuple[Any, Inputs]:
    vision = {**SIZES, "num_hidden_layers": 2, "image_size": 28, "patch_size": 14}
    config = transformers.GitConfig(
        vision_config=vision, vocab_size=VOCABULARY, **SIZES, num_hidden_layers=2
    )
    return build(transformers.AutoModel, config), texts() | {"pixel_values": noise(2, 3, 28, 28)}


def informer() -> tuple[Any, Inputs]:
    config = transformers.InformerConfig(
        prediction_length=5,
        context_length=14,
        lags_sequence=[1, 2],
        num_time_features=2,
        d_model=24,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_layers=2,
        decoder_layers=2,
        attention_type="prob",
        distil=True,  # halves the positions between layers
    )
    inputs = {
        "past_values": noise(2, 16),
        "past_time_features": noise(2, 16, 2),
        "past_observed_mask": torch.ones(2, 16, dtype=torch.float64),
        "future_values": noise(2, 5),
        "future_time_features": noise(2, 5, 2),
    }
    return build(transformers.AutoModel, config), inputs


def bigbird_pegasus() -> tuple[Any, Inputs]:
    config = transformers.BigBirdPegasusConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=31,
        decoder_ffn_dim=31,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        d_model=24,
        attention_type="original_full",
    )
    inputs = texts(padded=True)
    decoder = {f"decoder_{name}": part for name, part in inputs.items()}
    return build(transformers.AutoModel, config), inputs | decoder


def bridgetower() -> tuple[Any, Inputs]:
    sizes = {"hidden_size": 128, "num_attention_heads": 4}  # image heads have 64 numbers
    text = {**SIZES, **sizes, "vocab_size": VOCABULARY, "num_hidden_layers": 3}
    vision = {"hidden_size": 128, "num_hidden_layers": 3, "image_size": 28, "patch_size": 14}
    config = transformers.BridgeTowerConfig(
        text_config=text, vision_config=vision, **sizes, num_hidden_layers=2
    )
    inputs = texts(padded=True) | {"pixel_values": noise(2, 3, 28, 28)}
    return build(transformers.AutoModel, config), inputs


def aimv2() -> tuple[Any, Inputs]:
    """Text that sdpa reads in both directions, because its modules are not called causal."""
    sizes = {**SIZES, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    config = transformers.Aimv2TextConfig(**sizes, eos_token_id=2)
    inputs = texts()
    inputs["input_ids"][:, -1] = 2
    return build(transformers.Aimv2TextModel, config), inputs


def gemma4() -> tuple[Any, Inputs]:
    """A text with sound, whose encoder computes attention in chunks of its own."""
    heads = {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8}
    text = {**SIZES, **heads, "vocab_size": VOCABULARY, "num_hidden_layers": 2}
    text |= {"hidden_size_per_layer_input": 0, "sliding_window": 8, "vocab_size_per_layer_input": 1}
    audio = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    audio |= {"subsampling_conv_channels": (MEL_BINS, 4), "output_proj_dims": 24}
    config = transformers.Gemma4Config(
        text_config=text | {"layer_types": ["sliding_attention", "full_attention"]},
        audio_config=audio,
        vision_config={**SIZES, **heads, "num_key_value_heads": 3, "num_hidden_layers": 1},
        audio_token_id=2,
    )
    inputs = texts()
    inputs["input_ids"][:, 4:20] = 2
    inputs["input_features"] = noise(2, 64, MEL_BINS).float()
    inputs["input_features_mask"] = torch.ones(2, 64, dtype=torch.bool)
    inputs["mm_token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    model = build(transformers.AutoModelForImageTextToText, config)
    return model.float(), inputs  # the sound's encoder computes only in float32


SPARSE = {
    name: partial(sparse_text, name)
    for name in (
        *("deepseek_v32", "glm_moe_dsa", "axk2", "hy_v4"),
        *("mistral_large4_text", "minimax_m3_vl_text"),
    )
} | {name: partial(sparse_composite, name) for name in ("mistral_large4", "minimax_m3_vl")}
MODELS: dict[str, Callable[[], tuple[Any, Inputs]]] = {
    **SPARSE,
    "git": git,
    "informer": informer,
    "bigbird_pegasus": bigbird_pegasus,
    "bridgetower": bridgetower,
    "aimv2": aimv2,
    "gemma4": gemma4,
}
