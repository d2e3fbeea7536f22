"""Kin: tiny models of families that are cut like one of `tiny_configs.py`, and of some refused.

In: nothing. Out: `KIN` and `REFUSED`, rows as there, which `watching/tiny.py` builds. Axes have
different sizes as far as the architectures allow.
"""

from dataclasses import replace
from typing import Any

from ..watching.tiny_configs import (
    EAGER_EXPERTS,
    EOS,
    VOCABULARY,
    Family,
    Stack,
    bert_sizes,
    llama_sizes,
)

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def bert_kin(name: str, attention: str, **config: Any) -> Family:
    sizes = bert_sizes(2, 3, 7) | {"pad_token_id": 0}
    return Family(
        name,
        "encoder",
        {"": Stack(2, 3, 3)},
        attention,
        "../output/dense",
        sizes | config,
    )


def llama_kin(name: str, attention: str, projection: str = "o_proj", **config: Any) -> Family:
    options = EAGER_EXPERTS if "moe" in name or "dbrx" in name else {}
    return Family(
        name,
        "decoder",
        {"": Stack(2, 6, 3)},
        attention,
        projection,
        llama_sizes(2, 6, 3, 48) | IDS | {"max_position_embeddings": 61} | config,
        options=options,
    )


def bart_kin(name: str, attention: str, **config: Any) -> Family:
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 30}
    sizes |= {"encoder_attention_heads": 3, "decoder_attention_heads": 5}
    sizes |= {"encoder_ffn_dim": 41, "decoder_ffn_dim": 43}
    stacks = {"encoder": Stack(2, 3, 3), "decoder": Stack(2, 5, 5), "cross": Stack(2, 5, 5)}
    return Family(name, "encoder-decoder", stacks, attention, "out_proj", sizes | IDS | config)


def t5_kin(name: str, attention: str) -> Family:
    sizes = {"num_layers": 2, "num_decoder_layers": 2, "num_heads": 3, "d_kv": 7, "d_model": 23}
    sizes |= {"d_ff": 41, "relative_attention_num_buckets": 8}
    sizes |= {"relative_attention_max_distance": 11}
    stacks = dict.fromkeys(("encoder", "decoder", "cross"), Stack(2, 3, 3))
    return Family(name, "encoder-decoder", stacks, attention, "o", sizes)


def vit_kin(name: str, attention: str, **config: Any) -> Family:
    sizes = bert_sizes(2, 3, 7) | {"image_size": 12, "patch_size": 3}
    return Family(name, "vision", {"": Stack(2, 3, 3)}, attention, "o_proj", sizes | config)


def clip_kin(name: str, attention: str) -> Family:
    text = bert_sizes(2, 3, 7) | {"vocab_size": VOCABULARY, "max_position_embeddings": 61}
    text |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": EOS, "projection_size": 35}
    vision = bert_sizes(3, 5, 7) | {"image_size": 12, "patch_size": 3}
    return Family(
        name,
        "text and vision",
        {"text": Stack(2, 3, 3), "vision": Stack(3, 5, 5)},
        attention,
        "out_proj",
        {"text_config": text, "vision_config": vision, "projection_dim": 19},
    )


EUROBERT = replace(llama_kin("eurobert", "EuroBertAttention"), kind="encoder")
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
QWEN_EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 37}
GPT_SIZES = {"num_layers": 2, "attention_heads": 3, "d_model": 24, "ffn_dim": 41} | IDS

LATENT = {"num_key_value_heads": 6, "q_lora_rank": 11, "kv_lora_rank": 13, "v_head_dim": 5}
LATENT |= {"qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "first_k_dense_replace": 2}
LATENT |= {"head_dim": 4}
DBRX_SIZES = {
    "d_model": 48,
    "n_heads": 6,
    "n_layers": 2,
    "attn_config": {"kv_n_heads": 3, "rope_theta": 1e4, "clip_qkv": 5.0},
    "ffn_config": {"hidden_size": 48, "ffn_hidden_size": 41, "moe_num_experts": 3, "moe_top_k": 2},
}

ROWS = (
    bert_kin("camembert", "CamembertSelfAttention"),
    bert_kin("xlm-roberta", "XLMRobertaSelfAttention"),
    bert_kin("xlm-roberta-xl", "XLMRobertaXLSelfAttention"),
    bert_kin("roberta-prelayernorm", "RobertaPreLayerNormSelfAttention"),
    bert_kin("data2vec-text", "Data2VecTextSelfAttention"),
    bert_kin("ernie", "ErnieSelfAttention"),
    bert_kin("esm", "EsmSelfAttention", mask_token_id=3),
    bert_kin(
        "deberta",
        "DisentangledSelfAttention",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    ),
    llama_kin("arcee", "ArceeAttention"),
    llama_kin("apertus", "ApertusAttention"),
    llama_kin("cohere", "CohereAttention", use_qk_norm=True),
    llama_kin("cohere2", "Cohere2Attention"),
    llama_kin("ernie4_5", "Ernie4_5Attention"),
    llama_kin("exaone4", "Exaone4Attention"),
    llama_kin("gemma", "GemmaAttention", head_dim=8),
    llama_kin("glm", "GlmAttention", head_dim=8),
    llama_kin("glm4", "Glm4Attention", head_dim=8),
    llama_kin("granitemoe", "GraniteMoeAttention", **EXPERTS),
    llama_kin("helium", "HeliumAttention", head_dim=8),
    llama_kin("ministral", "MinistralAttention", head_dim=8),
    llama_kin("nemotron", "NemotronAttention"),
    llama_kin("olmo", "OlmoAttention"),
    llama_kin("phi", "PhiAttention", "dense", qk_layernorm=True),
    llama_kin("phimoe", "PhimoeAttention", **EXPERTS),
    llama_kin("qwen2_moe", "Qwen2MoeAttention", **QWEN_EXPERTS),
    llama_kin("qwen3_moe", "Qwen3MoeAttention", **QWEN_EXPERTS),
    llama_kin("seed_oss", "SeedOssAttention", head_dim=8),
    llama_kin("smollm3", "SmolLM3Attention"),
    llama_kin("starcoder2", "Starcoder2Attention"),
    llama_kin("modernbert-decoder", "ModernBertDecoderAttention", "Wo"),
    llama_kin("persimmon", "PersimmonAttention", "dense"),
    llama_kin("deepseek_v2", "DeepseekV2Attention", **LATENT),
    llama_kin("deepseek_v3", "DeepseekV3Attention", **LATENT | {"q_lora_rank": None}),
    llama_kin("minicpm3", "MiniCPM3Attention", **LATENT),
    llama_kin("dbrx", "DbrxAttention", "out_proj", **DBRX_SIZES),
    llama_kin("xglm", "XGLMAttention", "out_proj", **GPT_SIZES),
    llama_kin("biogpt", "BioGptAttention", "out_proj"),
    EUROBERT,
    bart_kin("blenderbot", "BlenderbotAttention"),
    bart_kin("blenderbot-small", "BlenderbotSmallAttention"),
    bart_kin("m2m_100", "M2M100Attention"),
    bart_kin("marian", "MarianAttention", decoder_start_token_id=0),
    bart_kin("mbart", "MBartAttention"),
    bart_kin("pegasus", "PegasusAttention"),
    bart_kin("plbart", "PLBartAttention"),
    t5_kin("mt5", "MT5Attention"),
    t5_kin("umt5", "UMT5Attention"),
    vit_kin("beit", "BeitAttention"),
    vit_kin("deit", "DeiTAttention", architectures=["DeiTForImageClassification"]),
    vit_kin("dinov2_with_registers", "Dinov2WithRegistersAttention"),
    vit_kin("ijepa", "IJepaAttention"),
    vit_kin("vit_msn", "ViTMSNAttention"),
    clip_kin("siglip", "SiglipAttention"),
    clip_kin("metaclip_2", "MetaClip2Attention"),
    replace(
        llama_kin("falcon-alibi", "FalconAttention", "dense", alibi=True, multi_query=False),
        model_type="falcon",
        options={"attn_implementation": "eager"},
        is_routed=False,
    ),
)
KIN: dict[str, Family] = {family.name: family for family in ROWS}

REFUSED: dict[str, tuple[Family, str]] = {
    "olmo2": (llama_kin("olmo2", "Olmo2Attention"), "span all heads"),
    "olmo3": (llama_kin("olmo3", "Olmo3Attention"), "span all heads"),
    "olmoe": (llama_kin("olmoe", "OlmoeAttention", **QWEN_EXPERTS), "span all heads"),
    "bitnet": (llama_kin("bitnet", "BitNetAttention"), "norm before its output projection"),
    "diffllama": (
        llama_kin("diffllama", "DiffLlamaAttention", num_key_value_heads=2),
        "pairs whose weights",
    ),
    "codegen": (
        llama_kin("codegen", "CodeGenAttention", "out_proj", n_head=4, n_embd=48, n_layer=2),
        "in four blocks",
    ),
    "stablelm": (llama_kin("stablelm", "StableLmAttention", qk_layernorm=True), "norm module"),
}
"""Families whose heads cannot be cut, and part of the reason."""
