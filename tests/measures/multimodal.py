"""A tiny model that reads text and pictures, and a real tokenizer for it."""

from functools import cache
from typing import Any

import torch
from transformers import Gemma3Config, Gemma3Model

from headwise.models.loading import load_model


@cache
def tokenizer() -> Any:
    return load_model("minilm").tokenizer


def tiny_gemma() -> Gemma3Model:
    """Gemma 3 with both stacks; the one for pictures computes nothing if there is only text."""
    config = Gemma3Config(
        text_config={
            "model_type": "gemma3_text", "vocab_size": len(tokenizer()), "hidden_size": 18,
            "intermediate_size": 7, "num_hidden_layers": 2, "num_attention_heads": 6,
            "num_key_value_heads": 3, "head_dim": 8, "max_position_embeddings": 128,
            "sliding_window": 16,
        },
        vision_config={
            "model_type": "siglip_vision_model", "hidden_size": 10, "intermediate_size": 7,
            "num_hidden_layers": 1, "num_attention_heads": 5, "image_size": 28, "patch_size": 14,
        },
        image_token_index=3,
        image_token_id=3,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Gemma3Model(config).eval()
