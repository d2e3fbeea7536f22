"""Families: where the heads of known attention modules are, as a table of facts.

In: an attention module. Out: its row: which parameters hold queries, keys, values and outputs, what
else there is one of per head, and which attributes count heads; or the reason why its heads cannot
be cut. It cuts nothing; a new family is a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn


@dataclass(frozen=True)
class Bias:
    """Something added to the scores that the model makes once, for all heads of all layers."""

    argument: str
    place: int
    """Where it stands among the positional arguments, if it is one of them."""
    axis: int
    """Which of its axes counts heads."""
    is_passed_on: bool = False
    """Whether the first layer makes it, and each returns it for the next, as in T5."""


@dataclass(frozen=True)
class Family:
    """What is so about attention modules of some classes."""

    classes: tuple[str, ...]
    output: str
    """Path from the module to its output projection; `..` is the module around it."""
    apart: tuple[str, ...] = ()
    """The projections that make queries, keys and values; none where all are `per_head`."""
    packed: str = ""
    """Or the one that makes them all at once."""
    layout: Literal["", "blocks", "interleaved"] = ""
    """The order of what a packed projection makes."""
    per_head: tuple[str, ...] = ()
    """Further projections and parameters with rows for every query head."""
    columns: tuple[str, ...] = ()
    """Parameters with a column for every query head."""
    norms: tuple[str, ...] = ()
    """Norms of queries and keys; exact if they span one head."""
    widths: tuple[str, ...] = ("all_head_size", "inner_dim")
    """Attributes that hold how many numbers all heads together have."""
    asks_config: bool = False
    """Whether the module asks its config for the number of heads at every call."""
    bias: Bias | None = None
    after: tuple[str, ...] = ()
    """Modules that its projected output goes through before it is returned."""
    norm: str = ""
    """The norm of what it reads plus what it gives, where the module itself adds these."""
    residual: int | None = None
    """The argument that the module itself adds to its output."""
    untouched: tuple[str, ...] = ()
    """Parameters that have to do with no single head, or with those of all layers."""
    latent: str = ""
    """The projection whose output the cache keeps of a token, where that is not keys and values."""
    key_size: str = ""
    """The attribute that says how wide a key is, where it is not as wide as a value."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Options of a module or its config with which heads cannot be cut, and why."""


NUM_HEADS = ("num_heads", "num_attention_heads", "n_heads")
NUM_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
NUM_GROUPS = ("num_key_value_groups",)
HEAD_SIZES = ("v_head_dim", "head_dim", "attention_head_size", "head_size", "key_value_proj_dim")
"""What modules call their numbers of heads and the size of one; each has some of them."""

Q_K_V = ("q_proj", "k_proj", "v_proj")
QUERY_KEY_VALUE = ("query", "key", "value")

ALIBI = "the model adds the ALiBi slopes of all heads to the mask that all its layers share"
BY_HEAD_NORMS = "each of its heads has a norm module of its own"

LLAMA_LIKE = (
    "LlamaAttention",
    "ArceeAttention",
    "Cohere2Attention",
    "Ernie4_5Attention",
    "EuroBertAttention",
    "GemmaAttention",
    "Gemma2Attention",
    "GlmAttention",
    "Glm4Attention",
    "GraniteAttention",
    "GraniteMoeAttention",
    "HeliumAttention",
    "MinistralAttention",
    "MistralAttention",
    "MixtralAttention",
    "NemotronAttention",
    "NomicBertAttention",
    "OlmoAttention",
    "PhimoeAttention",
    "Qwen2Attention",
    "Qwen2MoeAttention",
    "SeedOssAttention",
    "SmolLM3Attention",
    "Starcoder2Attention",
    "BeitAttention",
    "DeiTAttention",
    "Dinov2Attention",
    "Dinov2WithRegistersAttention",
    "IJepaAttention",
    "ViTAttention",
    "ViTMSNAttention",
)
"""Separate projections, whose number of heads follows from their sizes; many group their heads."""

BART_LIKE = (
    "BartAttention",
    "BioGptAttention",
    "BlenderbotAttention",
    "BlenderbotSmallAttention",
    "M2M100Attention",
    "MBartAttention",
    "MarianAttention",
    "OPTAttention",
    "PLBartAttention",
    "PegasusAttention",
    "WhisperAttention",
    "CLIPAttention",
    "MetaClip2Attention",
    "SiglipAttention",
)

BERT_LIKE = (
    "BertSelfAttention",
    "BertCrossAttention",
    "CamembertSelfAttention",
    "Data2VecTextSelfAttention",
    "ElectraSelfAttention",
    "ErnieSelfAttention",
    "EsmSelfAttention",
    "RobertaSelfAttention",
    "RobertaPreLayerNormSelfAttention",
    "XLMRobertaSelfAttention",
    "XLMRobertaXLSelfAttention",
)

NORMED = (
    "ApertusAttention",
    "CohereAttention",
    "Exaone4Attention",
    "Gemma3Attention",
    "Qwen3Attention",
    "Qwen3MoeAttention",
)
"""As those, and each query and key is normed by itself, or with a weight for every head."""

FAMILIES = (
    Family(LLAMA_LIKE, output="o_proj", apart=Q_K_V),
    Family(NORMED, output="o_proj", apart=Q_K_V, norms=("q_norm", "k_norm")),
    Family(
        ("StableLmAttention",),
        output="o_proj",
        apart=Q_K_V,
        flags={"qk_layernorm": BY_HEAD_NORMS},
    ),
    Family(  # keys and values from a latent vector: only what reads it has rows for heads
        ("DeepseekV2Attention", "DeepseekV3Attention", "MiniCPM3Attention"),
        output="o_proj",
        per_head=("kv_b_proj", "q_proj", "q_b_proj"),
        untouched=("q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm"),
        latent="kv_a_proj_with_mqa",
        key_size="qk_head_dim",
    ),
    Family(("GptOssAttention",), output="o_proj", apart=Q_K_V, per_head=("sinks",)),
    Family(("PhiAttention",), output="dense", apart=Q_K_V, norms=("q_layernorm", "k_layernorm")),
    Family(BART_LIKE, output="out_proj", apart=Q_K_V),
    Family(("XGLMAttention",), output="out_proj", apart=Q_K_V, widths=("embed_dim",)),
    Family(
        ("GPTNeoSelfAttention", "GPTJAttention"),
        output="out_proj",
        apart=Q_K_V,
        after=("resid_dropout",),
    ),
    Family(("ModernBertDecoderAttention",), output="Wo", apart=Q_K_V, after=("out_drop",)),
    Family(BERT_LIKE, output="../output/dense", apart=QUERY_KEY_VALUE),
    Family(
        ("AlbertAttention",),
        output="dense",
        apart=QUERY_KEY_VALUE,
        after=("output_dropout",),
        norm="LayerNorm",
    ),
    Family(("DistilBertSelfAttention",), output="out_lin", apart=("q_lin", "k_lin", "v_lin")),
    Family(  # DeBERTa v2 and v3
        ("DisentangledSelfAttention",),
        output="../output/dense",
        apart=("query_proj", "key_proj", "value_proj"),
        per_head=("pos_key_proj", "pos_query_proj"),
    ),
    Family(  # DeBERTa
        ("DisentangledSelfAttention",),
        output="../output/dense",
        packed="in_proj",
        layout="interleaved",
        per_head=("q_bias", "v_bias", "pos_proj", "pos_q_proj"),
    ),
    Family(
        ("MPNetSelfAttention",),
        output="o",
        apart=("q", "k", "v"),
        bias=Bias("position_bias", place=2, axis=1),
    ),
    Family(
        ("T5Attention", "MT5Attention"),
        output="o",
        apart=("q", "k", "v"),
        bias=Bias("position_bias", place=3, axis=1, is_passed_on=True),
        untouched=("relative_attention_bias",),
    ),
    Family(
        ("UMT5Attention",),
        output="o",
        apart=("q", "k", "v"),
        columns=("relative_attention_bias",),
    ),
    Family(
        ("GPT2Attention",),
        output="c_proj",
        packed="c_attn",
        layout="blocks",
        widths=("split_size",),
        after=("resid_dropout",),
    ),
    Family(
        ("ModernBertAttention",),
        output="Wo",
        packed="Wqkv",
        layout="blocks",
        after=("out_drop",),
    ),
    Family(
        ("Phi3Attention",),
        output="o_proj",
        packed="qkv_proj",
        layout="blocks",
        asks_config=True,
    ),
    Family(
        ("DbrxAttention",),
        output="out_proj",
        packed="Wqkv",
        layout="blocks",
        widths=("hidden_size",),
    ),
    Family(
        ("GPTNeoXAttention", "PersimmonAttention"),
        output="dense",
        packed="query_key_value",
        layout="interleaved",
        norms=("q_layernorm", "k_layernorm"),
    ),
    Family(
        ("FalconAttention",),
        output="dense",
        packed="query_key_value",
        layout="interleaved",
        flags={"alibi": ALIBI},
    ),
    Family(
        ("BloomAttention",),
        output="dense",
        packed="query_key_value",
        layout="interleaved",
        bias=Bias("alibi", place=2, axis=0),
        residual=1,
        flags={"slow_but_exact": "it slices its output projection by the full hidden size"},
    ),
    Family(
        ("MptAttention",),
        output="out_proj",
        packed="Wqkv",
        layout="blocks",
        bias=Bias("position_bias", place=1, axis=0),
    ),
)

SPANNING = "its norms of queries and keys span all heads, so each head hears of all the others"
REFUSED: dict[str, str] = {
    "Olmo2Attention": SPANNING,
    "Olmo3Attention": SPANNING,
    "OlmoeAttention": SPANNING,
    "BitNetAttention": "the norm before its output projection spans all heads",
    "DiffLlamaAttention": "its heads are pairs whose weights are subtracted from each other",
    "CodeGenAttention": "its projection lies in four blocks, and its forward counts on all four",
}
"""Attention modules whose heads cannot be cut, and why."""


def family_of(module: nn.Module) -> Family | None:
    """The row of an attention module, by its class and the projections that it has."""
    name = type(module).__name__
    for family in FAMILIES:
        first = [*filter(None, [family.packed]), *family.apart, *family.per_head][0]
        if name in family.classes and hasattr(module, first):
            return family
    return None
