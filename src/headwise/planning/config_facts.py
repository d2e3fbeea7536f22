"""Tables of facts about model types that configs leave out, keyed by `model_type`.

`configs` reads them; tests compare them with the models that transformers builds.
"""

from collections.abc import Mapping

BIDIRECTIONAL = frozenset(
    "albert bert camembert clip_vision_model convbert data2vec-text deberta deberta-v2 deit dinov2 "
    "distilbert electra ernie eurobert modernbert mpnet nomic_bert roberta siglip siglip2 "
    "siglip2_text_model siglip2_vision_model siglip_text_model siglip_vision_model squeezebert vit "
    "vit_mae xlm-roberta".split()
)
"""Types whose queries see keys on both sides."""
CAUSAL_AS_DECODERS = frozenset(
    "bert camembert data2vec-text electra ernie roberta xlm-roberta".split()
)
"""Bidirectional types that are causal if their config sets `is_decoder`."""

BIASED = frozenset(
    "albert bart bert biogpt bloom camembert clip clip_text_model clip_vision_model data2vec-text "
    "deberta-v2 distilbert electra ernie gpt2 gpt_bigcode marian mbart mpnet pegasus phi roberta "
    "siglip siglip2 siglip2_text_model siglip2_vision_model siglip_text_model siglip_vision_model "
    "xlm-roberta".split()
)
"""Types with a bias in all four projections, regardless of their config."""
BIASED_QKV = frozenset("qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text".split())
"""Types with a bias in Wq, Wk and Wv, but not in Wo."""
BIASED_WO = frozenset("deit dinov2 vit vit_mae".split())
"""Types with a bias in Wo, whatever their config states about the other projections."""
UNBIASED_WO = BIASED_QKV | {"helium"}
"""Types without a bias in Wo, whatever their config states about the other projections."""
BIAS_KEYS = ("add_bias_linear", "attention_bias", "bias", "enable_bias", "use_bias")
"""Config keys for a bias in all four projections."""
BIAS_QKV_KEYS = ("add_qkv_bias", "qkv_bias", "use_qkv_bias")
"""Config keys for a bias in Wq, Wk and Wv."""

NORMED = frozenset("gemma3 gemma3_text olmo2 olmo3 olmoe qwen3 qwen3_moe qwen3_vl_text".split())
"""Types that normalise queries and keys."""
NORM_KEYS = {"cohere": "use_qk_norm", "phi": "qk_layernorm", "stablelm": "qk_layernorm"}
"""Types that normalise queries and keys if their config sets this key."""
NORMED_ACROSS_HEADS = frozenset("cohere olmo2 olmo3 olmoe stablelm".split())
"""Types whose norms have a separate scale for every dimension of every head."""
NORMED_WITH_SHIFT = frozenset(["phi"])
"""Types whose norms have a shift for every scale."""

WITH_SINKS = frozenset(["gpt_oss"])
"""Types with a learned sink logit per head."""
ALL_LOCAL = frozenset("ministral3 mistral mistral3 mixtral phi3 qwen3_moe starcoder2".split())
"""Types whose window applies to every layer."""
PLAIN = frozenset(
    "arcee codegen cohere2 ernie4_5 eurobert falcon gemma gemma2 gpt_neox gptj granite llama "
    "modernbert mpt nomic_bert olmo opt qwen2_moe smollm3 t5".split()
)
"""Types with only the four projections, and a bias only if the config or its defaults set one."""

KNOWN_TYPES = (
    BIASED | BIASED_WO | UNBIASED_WO | NORMED | NORM_KEYS.keys() | WITH_SINKS | ALL_LOCAL | PLAIN
)
"""Types whose parameters are counted exactly as transformers builds them."""

_QWEN = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA = {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096}
_DEFAULTS: Mapping[str, Mapping[str, int | bool | list[int]]] = {
    "albert": {"num_hidden_groups": 1},
    "bart marian mbart pegasus": {"is_encoder_decoder": True},
    "cohere2 olmo3": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "dbrx": {"kv_n_heads": 1},
    "deit dinov2 vit vit_mae": {"qkv_bias": True},
    "ernie4_5 helium ministral3 qwen3_vl_text": {"head_dim": 128},
    "gemma": {"head_dim": 256},
    "gemma2": {**_GEMMA, "sliding_window_pattern": 2},
    "gemma3 gemma3_text": {
        **_GEMMA,
        "num_attention_heads": 8,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
    },
    "gemma3n gemma3n_text": {"num_kv_shared_layers": 15},
    "gemma4 gemma4_text": {"global_head_dim": 512},
    "gpt_bigcode": {"multi_query": True},
    "gpt_neox": {"attention_bias": True},
    "gpt_oss": {
        "attention_bias": True,
        "head_dim": 64,
        "sliding_window": 128,
        "sliding_window_pattern": 2,
    },
    "llama4 llama4_text": {"attention_chunk_size": 8192},
    "mistral": {"sliding_window": 4096},
    "mllama mllama_text_model": {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
    "modernbert": {"local_attention": 128, "global_attn_every_n_layers": 3},
    "opt": {"enable_bias": True},
    "qwen2": _QWEN,
    "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text": {**_QWEN, "max_window_layers": 80},
    "qwen2_moe": {**_QWEN, "qkv_bias": True, "sliding_window_pattern": 2},
    "qwen3": {**_QWEN, "head_dim": 128},
    "qwen3_moe": {"use_sliding_window": False, "sliding_window": 4096},
    "qwen3_next qwen3_5_text qwen3_5_moe_text": {"full_attention_interval": 4},
    "smollm3": {"use_sliding_window": False},
    "starcoder2": {"use_bias": True},
    "t5": {"d_kv": 64, "is_encoder_decoder": True},
}
CONFIG_DEFAULTS = {
    model_type: defaults for types, defaults in _DEFAULTS.items() for model_type in types.split()
}
"""Defaults for keys that a config leaves out, as in transformers' config classes."""

PATTERN_KEYS = ("_sliding_window_pattern", "sliding_window_pattern")
"""Config keys for the number n if every n-th layer uses full attention."""

OTHER_FORMULAS = {
    "compresses its keys and values": "kv_lora_rank",
    "has linear attention layers": "full_attention_interval linear_attn_config attn_type_list",
    "has chunked attention layers": "attention_chunk_size",
    "has layers without attention": "attn_layer_indices attn_layer_period block_types "
    "hybrid_override_pattern layers_block_type",
    "has layers that reuse the keys and values of other layers": "num_kv_shared_layers",
    "has cross-attention layers": "cross_attention_layers",
    "has layers with different head sizes": "global_head_dim swa_head_dim",
    "has layers of different shapes": "per_layer_config block_configs",
}
"""Properties of models whose cost `plan` cannot count, and the config keys that reveal them."""
