"""Modern: tiny models of recent families, which no row of a table describes.

In: nothing. Out: `CUT` and `NOT_CUT`, rows as in `watching/tiny_configs.py`.
"""

from dataclasses import replace

from ..watching.tiny_configs import EAGER_EXPERTS, VOCABULARY, Family
from .kin import LATENT, QWEN_EXPERTS, llama_kin

LINEAR = {"linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 5}
LINEAR |= {"linear_value_head_dim": 5, "linear_conv_kernel_dim": 2}
MAMBA = {"mamba_d_state": 5, "mamba_d_conv": 3, "mamba_expand": 1, "mamba_n_groups": 1}
NO_KERNELS = {"use_mamba_kernels": False}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
PER_LAYER = {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 5}
SLIDING, FULL = "sliding_attention", "full_attention"


def text_kin(
    name: str, attention: str, projection: str = "o_proj", *, model_type: str = "", **config: object
) -> Family:
    family = llama_kin(name, attention, projection, **config)
    return replace(family, model_type=model_type, options=EAGER_EXPERTS)


CUT_ROWS = (
    text_kin(  # a gate for every head is interleaved with its queries
        "qwen3_next",
        "Qwen3NextAttention",
        head_dim=8,
        layer_types=["linear_attention", FULL],
        shared_expert_intermediate_size=37,
        **QWEN_EXPERTS | LINEAR,
    ),
    text_kin(
        "llama4",
        "Llama4TextAttention",
        model_type="llama4_text",
        head_dim=8,
        intermediate_size_mlp=41,
        **EXPERTS,
    ),
    text_kin(
        "glm4_moe",
        "Glm4MoeAttention",
        head_dim=8,
        use_qk_norm=True,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=37,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
    ),
    text_kin("ministral3", "Ministral3Attention", head_dim=8),
    text_kin(
        "granitemoehybrid",
        "GraniteMoeHybridAttention",
        layer_types=["mamba", "attention"],
        mamba_n_heads=6,
        mamba_d_head=8,
        shared_intermediate_size=37,
        **EXPERTS | MAMBA,
    ),
    text_kin("hunyuan_v1_dense", "HunYuanDenseV1Attention", head_dim=8),
    text_kin("hunyuan_v1_moe", "HunYuanMoEV1Attention", head_dim=8, num_experts=3, moe_topk=2),
    text_kin(
        "jamba",
        "JambaAttention",
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=3,
        num_experts_per_tok=2,
        mamba_dt_rank=5,
        **MAMBA | NO_KERNELS,
    ),
    text_kin(
        "falcon_h1",
        "FalconH1Attention",
        head_dim=8,
        mamba_n_heads=3,
        mamba_d_head=16,
        mamba_d_ssm=48,
        **MAMBA,
    ),
    text_kin("lfm2", "Lfm2Attention", "out_proj", layer_types=["conv", "full_attention"]),
    text_kin(
        "gemma3n",
        "Gemma3nTextAttention",
        model_type="gemma3n_text",
        head_dim=8,
        num_kv_shared_layers=0,
        layer_types=[SLIDING, FULL],
        activation_sparsity_pattern=[0.0, 0.0],
        laurel_rank=3,
        altup_num_inputs=2,
        intermediate_size=[41, 41],
        **PER_LAYER,
    ),
    text_kin(
        "gemma4",
        "Gemma4TextAttention",
        model_type="gemma4_text",
        head_dim=8,
        layer_types=[SLIDING, FULL],
        **PER_LAYER,
    ),
    text_kin("kimi", "DeepseekV3Attention", model_type="deepseek_v3", **LATENT),
)
CUT: dict[str, Family] = {family.name: family for family in CUT_ROWS}

NOT_CUT: dict[str, tuple[Family, str]] = {
    "minimax_m2": (
        text_kin("minimax_m2", "MiniMaxM2Attention", head_dim=8, **EXPERTS),
        "q_norm mixes the heads",
    ),
}
"""Families whose heads cannot be cut, and part of the reason."""
