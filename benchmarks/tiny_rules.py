"""Rules that make the numbers of a config tiny: which name gets which value.

In: the name and the value of one field of a config, and the sizes of its siblings. Out: the value
in the tiny model. The rules read names only; no model type has a rule of its own.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """Sizes of the tiny models. Repairs try other ones."""

    hidden: int = 64
    heads: int = 4
    head_dim: int = 16
    inner: int = 96
    layers: int = 2
    vocabulary: int = 160
    positions: int = 256
    image: int = 32
    patch: int = 8
    window: int = 5
    rank: int = 24
    rope: int = 8
    experts: int = 4
    grid: int = 8
    """Side of a table of positions of image patches."""
    mrope: bool = False
    """Whether rotary parameters without sections get some."""
    filled: bool = False
    """Whether sizes that are None are given a number."""
    backbone: bool = True
    """Whether backbones from the timm library are replaced by a ResNet."""


Rule = tuple[str, Callable[[Any, Sizes], Any]]


def at_most(name: str) -> Callable[[Any, Sizes], Any]:
    """A rule: the size `name`, unless the value is smaller already."""
    return lambda value, sizes: min(value, getattr(sizes, name))


def no_more(limit: int) -> Callable[[Any, Sizes], Any]:
    """A rule: a constant, unless the value is smaller already."""
    return lambda value, sizes: min(value, limit)


def kv_heads(value: int, sizes: Sizes) -> int:
    """One KV head stays one; more become half of the query heads, if they were fewer."""
    return 1 if value == 1 else sizes.heads // 2


def window_size(value: int, sizes: Sizes) -> int:
    """Windows of the Swin family fit into every stage; those measured in pixels into an image."""
    if value >= 56:
        return 4 * sizes.patch
    return 2 if value in (7, 8, 10, 12) else value


def unchanged(value: Any, sizes: Sizes) -> Any:
    """The value as it is."""
    return value


RULES: tuple[Rule, ...] = (
    (r"image_embedding_size", lambda value, sizes: sizes.image // sizes.patch),
    (r"patch_embeds_hidden_size", lambda value, sizes: sizes.hidden // 8),
    (r"num_windows", no_more(4)),
    (r"num_frames|n_window", no_more(4)),
    (r"n_window_infer", no_more(16)),
    (r"samples_per_patch|audio_samples_per_frame", unchanged),
    (r".*(negatives|multiple_of|divis\w+|ratio|factor|rate|theta|temperature|epsilon)", unchanged),
    (
        r".*vocab_size(_per_layer_input)?|vocab_offset|n_token|.*_vocab|ngram_vocab_size_base",
        at_most("vocabulary"),
    ),
    (r"(num_)?codebook_size|num_embeddings|codebook_vocab_size", no_more(64)),
    (r".*(n|num)_(shared|zero)_experts|moe_num_shared_experts", no_more(1)),
    (
        r".*(experts_per_tok(en)?|moe_topk|moe_top_k|topk_group|moe_k|top_k_experts|expert_top_k)",
        no_more(2),
    ),
    (r"n_group|num_expert_group", no_more(2)),
    (
        r".*(num_experts|n_routed_experts|num_local_experts|moe_num_experts|num_routed_experts)",
        at_most("experts"),
    ),
    (r"index_topk|index_topk_blocks", no_more(4)),
    (r"index_block_size|index_local_blocks|index_kpool", no_more(2)),
    (
        r"first_k_dense_replace|num_dense_layers|.*_layer_offset|num_kv_shared_layers|moe_layer_start_index",
        no_more(1),
    ),
    (
        r".*(layer_period|layer_interval|_interval|sparse_step|sliding_window_pattern|every_n_layers)",
        no_more(2),
    ),
    (r"num_feature_levels|num_pos_feats|num_feat_extract_layers|merger_times", unchanged),
    (
        r"(.*_)?(num_hidden_layers|num_layers|n_layers?|layers|depth|num_(\w+_)?layers|num_(\w+_)?blocks"
        r"|\w*_layers|num_cycles|H_cycles|L_cycles)",
        at_most("layers"),
    ),
    (r".*(key_value|kv)_heads(_\w+)?|kv_n_heads|num_key_value_groups", kv_heads),
    (r"linear_num_key_heads|index_n_heads", lambda value, sizes: sizes.heads // 2),
    (
        r"(.*_)?(num_)?(attention_|\w+_)?heads|.*n_heads?|resampler_heads|linear_num_value_heads",
        at_most("heads"),
    ),
    (r"qk_rope_head_dim|rotary_dim|.*rope_head_dim", at_most("rope")),
    (r"qk_head_dim", lambda value, sizes: sizes.rope + sizes.head_dim),
    (
        r".*(head_dim|d_kv|kv_channels|dim_head|attention_head_dim|d_head|key_dim|head_size)",
        at_most("head_dim"),
    ),
    (r"query_pre_attn_scalar", at_most("head_dim")),
    (r".*lora_rank|rank|laurel_rank|.*_lowrank", at_most("rank")),
    (
        r".*(intermediate|ffn|mlp|feedforward|feed_forward|inner|linear_units|ff_dim|d_ff|dff).*",
        at_most("inner"),
    ),
    (
        r".*(hidden_size|d_model|n_embd|embed_dim|embedding_dim|hidden_dim|projection_dim|embedding_size"
        r"|hidden_channels|emb_dim|feature_size|proj_dim|project_dim|projection_size|output_dim|input_dim"
        r"|fusion_hidden_size|enc_dim|width|dim|pooler_output_size|decoder_channels|mask_channels"
        r"|upsample_initial_channel|output_hidden_size)",
        at_most("hidden"),
    ),
    (r"d_latents|output_channels", at_most("hidden")),
    (r"num_filters|n_filters", no_more(4)),
    (r"upsample_groups", at_most("hidden")),
    (r"base_channels", no_more(32)),
    (r"context_size", no_more(8)),
    (r"max_2d_position_embeddings|original_max_position_embeddings", unchanged),
    (r"max_source_positions|max_pos_emb", no_more(64)),
    (
        r".*(max_position_embeddings|n_positions|max_target_positions|n_ctx|max_seq_len|seq_len"
        r"|max_positions|block_size|max_length|model_max_length)",
        at_most("positions"),
    ),
    (
        r"num_position_embeddings|position_embedding_size",
        lambda value, sizes: min(value, sizes.grid**2),
    ),
    (r"mm_tokens_per_image|max_value_projector_patch_to_query_dict", no_more(4)),
    (r"(pretrain_)?(image|img)_size|max_image_size|max_img_size|crop_size", at_most("image")),
    (r"patch_size|patch_stride|patch_kernel_size", at_most("patch")),
    (
        r"sliding_window(_size)?|sliding_windows|local_attention|local_radius"
        r"|swa_window\w*|window_length",
        at_most("window"),
    ),
    (r"attention_chunk_size|global_block_size", no_more(8)),
    (r"attention_window", no_more(4)),
    (r"window_size", window_size),
    (
        r"num_queries|num_query_tokens|num_latents|latent_query_num|num_denoising|resampler_n_latents"
        r"|two_stage_num_proposals",
        no_more(7),
    ),
    (r"num_conv_pos_embedding_groups|num_conv_pos_embeddings", no_more(8)),
    (r".*(_pos|position).*", unchanged),
    (
        r"tdnn_dim|conv_dim|.*channels(_list)?|num_filters|filter_sizes|hidden_sizes|\w+_channels_list"
        r"|.*hidden_sizes|embed_dims|out_channels|stem_channels|fpn_\w*size|neck_\w*sizes?"
        r"|classifier_proj_size|xvector_output_dim|backbone_feature_sizes",
        unchanged,
    ),
)
"""First match decides."""

COMPILED = tuple((re.compile(pattern), change) for pattern, change in RULES)
TOKEN_ID = re.compile(r".*token_ids?|.*_token_index|.*_index|.*_ids?|.*_pad_id|.*_idx")
INDICES = re.compile(r".*(indices|indexes|index|layers|idxs?|layer_ids|_ids|_layer)")


def tiny_number(name: str, value: int, sizes: Sizes) -> int:
    """The tiny model's value of a whole number."""
    for pattern, change in COMPILED:
        if pattern.fullmatch(name):
            return int(change(value, sizes)) if value > 0 else value
    return value


def total_layers(config: Mapping[str, Any]) -> int | None:
    """Number of layers of a config before shrinking; None if it has no one number."""
    for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"):
        if isinstance(value := config.get(name), int):
            return value
    return None
