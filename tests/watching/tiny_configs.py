"""Tiny model families: the sizes and the facts of each, as a table.

In: nothing. Out: `FAMILIES`, with one row per family, whose claims `test_tiny.py` compares with the
models. `tiny.py` builds the models and their inputs.

Sizes differ from axis to axis, and are prime where the architecture allows, so that a swapped axis
cannot pass. Windows are shorter than the test length; softcaps are low enough to bend the scores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

Side = Literal["right", "left"]
Kind = Literal["encoder", "decoder", "encoder-decoder", "speech", "vision", "text and vision"]

VOCABULARY = 101
SPECIAL = 7  # ids below 7 are reserved for padding, starts and ends
EOS = 4  # not 2, for which CLIP would pool the largest id instead
MEL_BINS, FRAMES = 11, 34  # whisper halves the frames: 17 encoder positions, always
MEMORY = 4  # how many more tokens an encoder reads than its decoder


class Stack(NamedTuple):
    """One stack of attention layers."""

    num_layers: int
    num_heads: int
    num_kv_heads: int


AUTO: dict[Kind, str] = {
    "encoder": "AutoModelForMaskedLM",
    "decoder": "AutoModelForCausalLM",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
    "speech": "AutoModelForSpeechSeq2Seq",
    "vision": "AutoModelForImageClassification",
    "text and vision": "AutoModel",
}
"""Which class of transformers builds the model: one that ends in logits, where there is one."""


@dataclass(frozen=True)
class Family:
    """Facts about one family of models."""

    name: str
    kind: Kind
    stacks: Mapping[str, Stack]
    attention: str
    """Class of the modules that attend."""
    projection: str
    """Path from such a module to its output projection; `..` is the module around it."""
    config: Mapping[str, Any]
    options: Mapping[str, str] = field(default_factory=dict)
    """Further arguments to build it with."""
    is_routed: bool = True
    """Whether its attention goes through transformers' `AttentionInterface`."""
    reach: tuple[int | None, ...] = ()
    """Per layer, how far from itself a query sees; None is all the way. Empty: None for all.

    One less than the `sliding_window` that the interface receives, which may differ from the
    config's: in ModernBERT it is half of `local_attention`, plus one.
    """
    softmax_in: torch.dtype = torch.float32
    """The least precise dtype of eager scores and weights in a float64 model.

    Where it is float32, the mask of a float64 model becomes -inf: a query without a key (padded on
    the left, or out of the window's reach on the right) is then NaN, and with the next layer its
    whole sequence, real tokens too. Pad such a family in float32, where the row is uniform.
    """
    takes_positions: bool = True
    """Whether a decoder accepts `position_ids`; with left padding it needs them."""
    needs_positions: bool = False
    """Whether left padding moves a decoder's positions without them; rotary ones are relative."""
    model_type: str = ""
    """The model type in transformers, if that differs from `name`."""

    @property
    def auto(self) -> str:
        return AUTO[self.kind]

    @property
    def pads(self) -> tuple[Side, ...]:
        """Sides on which padding changes nothing for real tokens, by eager in `softmax_in`."""
        return {"decoder": ("right", "left"), "vision": ()}.get(self.kind, ("right",))


def bert_sizes(num_layers: int, num_heads: int, head_size: int) -> dict[str, int]:
    return {
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "hidden_size": num_heads * head_size,
        "intermediate_size": 41,
    }


def llama_sizes(
    num_layers: int, num_heads: int, num_kv_heads: int, hidden_size: int
) -> dict[str, Any]:
    return {
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "hidden_size": hidden_size,
        "intermediate_size": 41,
        "pad_token_id": 0,
    }


FULL, NEAR = "full_attention", "sliding_attention"
EAGER_EXPERTS = {"experts_implementation": "eager"}  # the default cannot multiply float64
EXACT = {"softmax_in": torch.float64}
UNROUTED = {"is_routed": False}

ENCODERS = (
    Family(
        "bert",
        "encoder",
        {"": Stack(3, 5, 5)},
        "BertSelfAttention",
        "../output/dense",
        bert_sizes(3, 5, 7),
        **EXACT,
    ),
    Family(
        "roberta",
        "encoder",
        {"": Stack(2, 3, 3)},
        "RobertaSelfAttention",
        "../output/dense",
        bert_sizes(2, 3, 7),
        **EXACT,
    ),
    Family(
        "distilbert",
        "encoder",
        {"": Stack(3, 5, 5)},
        "DistilBertSelfAttention",
        "out_lin",
        {"n_layers": 3, "n_heads": 5, "dim": 35, "hidden_dim": 41},
        **EXACT,
    ),
    Family(
        "electra",
        "encoder",
        {"": Stack(2, 3, 3)},
        "ElectraSelfAttention",
        "../output/dense",
        bert_sizes(2, 3, 5) | {"embedding_size": 11},
        **EXACT,
    ),
    Family(  # one module, called once per layer: a hook on it cannot tell which layer is running
        "albert",
        "encoder",
        {"": Stack(3, 5, 5)},
        "AlbertAttention",
        "dense",
        bert_sizes(3, 5, 7) | {"embedding_size": 11},
        **EXACT,
    ),
    Family(
        "modernbert",
        "encoder",
        {"": Stack(3, 5, 5)},
        "ModernBertAttention",
        "Wo",
        bert_sizes(3, 5, 6)
        | {"local_attention": 6, "layer_types": [FULL, NEAR, NEAR]}
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        | {"cls_token_id": 1, "sep_token_id": 2},
        reach=(None, 3, 3),
    ),
    Family(
        "nomic_bert",
        "encoder",
        {"": Stack(2, 3, 3)},
        "NomicBertAttention",
        "o_proj",
        bert_sizes(2, 3, 8),
        **EXACT,
    ),
    Family(
        "mpnet",
        "encoder",
        {"": Stack(2, 3, 3)},
        "MPNetSelfAttention",
        "o",
        bert_sizes(2, 3, 7),  # the config cannot choose the number of buckets: it is always 32
        **UNROUTED,
        **EXACT,
    ),
    Family(
        "deberta_v2",
        "encoder",
        {"": Stack(2, 5, 5)},
        "DisentangledSelfAttention",
        "../output/dense",
        bert_sizes(2, 5, 7)
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
        model_type="deberta-v2",
        **UNROUTED,
        **EXACT,
    ),
)

DECODERS = (
    Family(
        "gpt2",
        "decoder",
        {"": Stack(3, 5, 5)},
        "GPT2Attention",
        "c_proj",
        {"n_layer": 3, "n_head": 5, "n_embd": 35, "pad_token_id": 0},
        needs_positions=True,
        **EXACT,
    ),
    Family(
        "gpt_neox",
        "decoder",
        {"": Stack(2, 3, 3)},
        "GPTNeoXAttention",
        "dense",
        bert_sizes(2, 3, 8)
        | {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ),
    Family(
        "opt",
        "decoder",
        {"": Stack(3, 5, 5)},
        "OPTAttention",
        "out_proj",
        {"num_hidden_layers": 3, "num_attention_heads": 5, "hidden_size": 35, "ffn_dim": 41}
        | {"word_embed_proj_dim": 35},
    ),
    Family(
        "llama",
        "decoder",
        {"": Stack(3, 6, 2)},
        "LlamaAttention",
        "o_proj",
        llama_sizes(3, 6, 2, 42) | {"head_dim": 8},
    ),
    Family(
        "mistral",
        "decoder",
        {"": Stack(2, 6, 3)},
        "MistralAttention",
        "o_proj",
        llama_sizes(2, 6, 3, 31) | {"head_dim": 8, "sliding_window": 5},
        reach=(4, 4),
    ),
    Family(
        "mixtral",
        "decoder",
        {"": Stack(2, 6, 2)},
        "MixtralAttention",
        "o_proj",
        llama_sizes(2, 6, 2, 31)
        | {"head_dim": 8, "num_local_experts": 3, "num_experts_per_tok": 2},
        options=EAGER_EXPERTS,
    ),
    Family(
        "qwen2",
        "decoder",
        {"": Stack(3, 6, 3)},
        "Qwen2Attention",
        "o_proj",
        llama_sizes(3, 6, 3, 48)
        | {"use_sliding_window": True, "sliding_window": 5, "layer_types": [FULL, NEAR, NEAR]},
        reach=(None, 4, 4),
    ),
    Family(
        "qwen3",
        "decoder",
        {"": Stack(2, 6, 3)},
        "Qwen3Attention",
        "o_proj",
        llama_sizes(2, 6, 3, 31) | {"head_dim": 8},
    ),
    Family(
        "gemma2",
        "decoder",
        {"": Stack(3, 6, 2)},
        "Gemma2Attention",
        "o_proj",
        llama_sizes(3, 6, 2, 42)
        | {"head_dim": 8, "query_pre_attn_scalar": 5, "sliding_window": 5}
        | {"attn_logit_softcapping": 3.0, "layer_types": [NEAR, FULL, NEAR]},
        reach=(4, None, 4),
    ),
    Family(
        "gemma3",
        "decoder",
        {"": Stack(3, 5, 1)},
        "Gemma3Attention",
        "o_proj",
        llama_sizes(3, 5, 1, 35)
        | {"head_dim": 8, "query_pre_attn_scalar": 5, "sliding_window": 5}
        | {"layer_types": [NEAR, NEAR, FULL]},
        model_type="gemma3_text",
        reach=(4, 4, None),
    ),
    Family(
        "phi3",
        "decoder",
        {"": Stack(2, 6, 2)},
        "Phi3Attention",
        "o_proj",
        llama_sizes(2, 6, 2, 48) | {"bos_token_id": 1, "eos_token_id": 2},
    ),
    Family(
        "stablelm",
        "decoder",
        {"": Stack(2, 6, 3)},
        "StableLmAttention",
        "o_proj",
        llama_sizes(2, 6, 3, 48) | {"use_qkv_bias": True},
    ),
    Family(
        "granite",
        "decoder",
        {"": Stack(2, 6, 2)},
        "GraniteAttention",
        "o_proj",
        llama_sizes(2, 6, 2, 48) | {"attention_multiplier": 0.43, "residual_multiplier": 0.71},
    ),
    Family(
        "gpt_oss",
        "decoder",
        {"": Stack(2, 6, 2)},
        "GptOssAttention",
        "o_proj",
        llama_sizes(2, 6, 2, 31)
        | {"head_dim": 8, "sliding_window": 5, "num_local_experts": 3, "num_experts_per_tok": 2},
        reach=(4, None),
        options=EAGER_EXPERTS,
        **EXACT,
    ),
    Family(
        "falcon",
        "decoder",
        {"": Stack(2, 6, 2)},
        "FalconAttention",
        "dense",
        {"num_hidden_layers": 2, "num_attention_heads": 6, "num_kv_heads": 2, "hidden_size": 48}
        | {"new_decoder_architecture": True, "ffn_hidden_size": 41, "pad_token_id": 0},
        # If built for sdpa it cannot be switched, and is no longer causal when it returns weights.
        options={"attn_implementation": "eager"},
        **UNROUTED,
        **EXACT,
    ),
    Family(
        "gpt_neo",
        "decoder",
        {"": Stack(2, 3, 3)},
        "GPTNeoSelfAttention",
        "out_proj",
        {"num_layers": 2, "num_heads": 3, "hidden_size": 21, "intermediate_size": 41}
        | {"attention_types": [[["global", "local"], 1]], "window_size": 5, "pad_token_id": 0},
        reach=(None, 4),
        needs_positions=True,
        **UNROUTED,
    ),
    Family(
        "gptj",
        "decoder",
        {"": Stack(2, 3, 3)},
        "GPTJAttention",
        "out_proj",
        {"n_layer": 2, "n_head": 3, "n_embd": 24, "rotary_dim": 4, "pad_token_id": 0},
        **UNROUTED,
    ),
    Family(
        "bloom",
        "decoder",
        {"": Stack(2, 5, 5)},
        "BloomAttention",
        "dense",
        {"n_layer": 2, "n_head": 5, "hidden_size": 35, "pad_token_id": 0},
        takes_positions=False,
        **UNROUTED,
    ),
    Family(
        "mpt",
        "decoder",
        {"": Stack(2, 5, 5)},
        "MptAttention",
        "out_proj",
        {"n_layers": 2, "n_heads": 5, "d_model": 35, "max_seq_len": 61, "pad_token_id": 0},
        takes_positions=False,
        **UNROUTED,
    ),
)

OTHERS = (
    Family(
        "t5",
        "encoder-decoder",
        {"encoder": Stack(2, 3, 3), "decoder": Stack(3, 3, 3), "cross": Stack(3, 3, 3)},
        "T5Attention",
        "o",
        {"num_layers": 2, "num_decoder_layers": 3, "num_heads": 3, "d_kv": 7, "d_model": 23}
        | {"d_ff": 41, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11},
        **EXACT,
    ),
    Family(
        "bart",
        "encoder-decoder",
        {"encoder": Stack(2, 3, 3), "decoder": Stack(3, 5, 5), "cross": Stack(3, 5, 5)},
        "BartAttention",
        "out_proj",
        {"encoder_layers": 2, "decoder_layers": 3, "d_model": 30}
        | {"encoder_attention_heads": 3, "decoder_attention_heads": 5}
        | {"encoder_ffn_dim": 41, "decoder_ffn_dim": 43},
        **EXACT,
    ),
    Family(
        "whisper",
        "speech",
        {"encoder": Stack(2, 3, 3), "decoder": Stack(3, 5, 5), "cross": Stack(3, 5, 5)},
        "WhisperAttention",
        "out_proj",
        {"encoder_layers": 2, "decoder_layers": 3, "d_model": 30}
        | {"encoder_attention_heads": 3, "decoder_attention_heads": 5}
        | {"encoder_ffn_dim": 41, "decoder_ffn_dim": 43, "num_mel_bins": MEL_BINS}
        | {"max_source_positions": FRAMES // 2, "max_target_positions": 61}
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        **EXACT,
    ),
    Family(
        "vit",
        "vision",
        {"": Stack(3, 5, 5)},
        "ViTAttention",
        "o_proj",
        bert_sizes(3, 5, 7) | {"image_size": [9, 12], "patch_size": 3},
    ),
    Family(
        "dinov2",
        "vision",
        {"": Stack(2, 3, 3)},
        "Dinov2Attention",
        "o_proj",
        {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 21}
        | {"image_size": 12, "patch_size": 3},  # unlike ViT's, its images have to be square
        **EXACT,
    ),
    Family(
        "clip",
        "text and vision",
        {"text": Stack(2, 3, 3), "vision": Stack(3, 5, 5)},
        "CLIPAttention",
        "out_proj",
        {
            "text_config": bert_sizes(2, 3, 7)
            | {"vocab_size": VOCABULARY, "max_position_embeddings": 61}
            | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": EOS},
            "vision_config": bert_sizes(3, 5, 7) | {"image_size": 12, "patch_size": 3},
            "projection_dim": 19,
        },
    ),
)

FAMILIES: dict[str, Family] = {family.name: family for family in ENCODERS + DECODERS + OTHERS}
