"""Families: a table of facts that locate the heads in known attention modules.

`watching/` looks up where a module's output projection is and whether the module returns its
weights; `pruning/surgery/` looks up which parameters belong to heads, or why heads cannot be cut.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from torch import nn

from headwise.errors import OptionError


@dataclass(frozen=True)
class Bias:
    """A bias on the scores that is computed once for all heads and shared by all layers."""

    argument: str
    place: int
    """Index of the bias among the positional arguments, if it is passed as one."""
    axis: int
    """Index of the head axis."""
    is_passed_on: bool = False
    """Whether the first layer computes the bias and each layer passes it to the next, as in T5."""


@dataclass(frozen=True)
class Family:
    """Facts needed to watch and cut the heads of some classes of attention modules."""

    classes: tuple[str, ...]
    output: str
    """Path from the module to its output projection; `..` is the parent module."""
    apart: tuple[str, ...] = ()
    """Separate query, key and value projections; empty if they are in `packed` or `per_head`."""
    packed: str = ""
    """The single projection for queries, keys and values, if there is one."""
    layout: Literal["", "blocks", "interleaved"] = ""
    """Order of a packed projection's outputs."""
    per_head: tuple[str, ...] = ()
    """Further projections and parameters with rows for every query head."""
    columns: tuple[str, ...] = ()
    """Parameters with a column for every query head."""
    norms: tuple[str, ...] = ()
    """Norms applied to queries and keys; a cut is exact if each norm spans a single head."""
    widths: tuple[str, ...] = ("all_head_size", "inner_dim")
    """Attributes that store the total width of all heads."""
    reads_config: bool = False
    """Whether the module reads the number of heads from its config on every call."""
    bias: Bias | None = None
    after: tuple[str, ...] = ()
    """Modules that the projected output passes through before the module returns it."""
    norm: str = ""
    """The norm applied to the residual sum, if the module itself adds its input to its output."""
    residual: int | None = None
    """Index of the argument that the module itself adds to its output."""
    untouched: tuple[str, ...] = ()
    """Parameters that do not belong to a single head, or that the heads of all layers share."""
    latent: str = ""
    """The projection whose output is cached instead of keys and values, if there is one."""
    key_size: str = ""
    """The attribute that stores the width of a key, if values have another width."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Options of a module or its config that prevent cutting, with the reason for each."""
    returns_weights: bool = False
    """Whether the module returns its weights instead of using transformers' interface."""
    refusal: str = ""
    """Reason why the heads cannot be cut; "" if they can."""


NUM_HEADS = ("num_heads", "num_attention_heads", "n_heads")
NUM_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
NUM_GROUPS = ("num_key_value_groups",)
HEAD_SIZES = ("v_head_dim", "head_dim", "attention_head_size", "head_size", "key_value_proj_dim")
"""Attributes in which modules store their numbers of heads and their head size."""

Q_K_V = ("q_proj", "k_proj", "v_proj")
QUERY_KEY_VALUE = ("query", "key", "value")

ALIBI = "the model adds the ALiBi slopes of all heads to the mask that all its layers share"
BY_HEAD_NORMS = "each of its heads has its own norm module"

LLAMA_LIKE = (
    *("LlamaAttention", "ArceeAttention", "Cohere2Attention", "Ernie4_5Attention"),
    *("EuroBertAttention", "GemmaAttention", "Gemma2Attention", "GlmAttention", "Glm4Attention"),
    *("GraniteAttention", "GraniteMoeAttention", "HeliumAttention", "MinistralAttention"),
    *("MistralAttention", "MixtralAttention", "NemotronAttention", "NomicBertAttention"),
    *("OlmoAttention", "PhimoeAttention", "Qwen2Attention", "Qwen2MoeAttention"),
    *("SeedOssAttention", "SmolLM3Attention", "Starcoder2Attention", "BeitAttention"),
    *("DeiTAttention", "Dinov2Attention", "Dinov2WithRegistersAttention", "IJepaAttention"),
    *("ViTAttention", "ViTMSNAttention"),
)
"""Classes with separate projections whose sizes imply the numbers of heads and KV heads."""

BART_LIKE = (
    *("BartAttention", "BioGptAttention", "BlenderbotAttention", "BlenderbotSmallAttention"),
    *("M2M100Attention", "MBartAttention", "MarianAttention", "OPTAttention", "PLBartAttention"),
    *("PegasusAttention", "WhisperAttention", "CLIPAttention", "MetaClip2Attention"),
    *("SiglipAttention",),
)

BERT_LIKE = (
    *("BertSelfAttention", "BertCrossAttention", "CamembertSelfAttention"),
    *("Data2VecTextSelfAttention", "ElectraSelfAttention", "ErnieSelfAttention"),
    *("EsmSelfAttention", "RobertaSelfAttention", "RobertaPreLayerNormSelfAttention"),
    *("XLMRobertaSelfAttention", "XLMRobertaXLSelfAttention"),
)

NORMED = (
    *("ApertusAttention", "CohereAttention", "Exaone4Attention", "Gemma3Attention"),
    *("Qwen3Attention", "Qwen3MoeAttention"),
)
"""Classes like Llama's that also normalise queries and keys, some with norm weights per head."""

_q_k_v = partial(Family, apart=Q_K_V)
_blocks = partial(Family, layout="blocks")
_interleaved = partial(Family, output="dense", packed="query_key_value", layout="interleaved")

FAMILIES: tuple[Family, ...] = (
    _q_k_v(LLAMA_LIKE, output="o_proj"),
    _q_k_v(NORMED, output="o_proj", norms=("q_norm", "k_norm")),
    _q_k_v(("StableLmAttention",), output="o_proj", flags={"qk_layernorm": BY_HEAD_NORMS}),
    Family(  # keys and values come from a latent vector; only projections of it have rows for heads
        ("DeepseekV2Attention", "DeepseekV3Attention", "MiniCPM3Attention"),
        output="o_proj",
        per_head=("kv_b_proj", "q_proj", "q_b_proj"),
        untouched=("q_a_proj", "q_a_layernorm", "kv_a_proj_with_mqa", "kv_a_layernorm"),
        latent="kv_a_proj_with_mqa",
        key_size="qk_head_dim",
    ),
    _q_k_v(("GptOssAttention",), output="o_proj", per_head=("sinks",)),
    _q_k_v(("PhiAttention",), output="dense", norms=("q_layernorm", "k_layernorm")),
    _q_k_v(BART_LIKE, output="out_proj"),
    _q_k_v(("XGLMAttention",), output="out_proj", widths=("embed_dim",), returns_weights=True),
    _q_k_v(
        ("GPTNeoSelfAttention", "GPTJAttention"),
        output="out_proj",
        after=("resid_dropout",),
        returns_weights=True,
    ),
    _q_k_v(("ModernBertDecoderAttention",), output="Wo", after=("out_drop",)),
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
        returns_weights=True,
    ),
    Family(  # DeBERTa
        ("DisentangledSelfAttention",),
        output="../output/dense",
        packed="in_proj",
        layout="interleaved",
        per_head=("q_bias", "v_bias", "pos_proj", "pos_q_proj"),
        returns_weights=True,
    ),
    Family(
        ("MPNetSelfAttention",),
        output="o",
        apart=("q", "k", "v"),
        bias=Bias("position_bias", place=2, axis=1),
        returns_weights=True,
    ),
    Family(
        ("T5Attention", "MT5Attention"),
        output="o",
        apart=("q", "k", "v"),
        bias=Bias("position_bias", place=3, axis=1, is_passed_on=True),
        untouched=("relative_attention_bias",),
    ),
    Family(
        ("UMT5Attention",), output="o", apart=("q", "k", "v"), columns=("relative_attention_bias",)
    ),
    _blocks(
        ("GPT2Attention",),
        output="c_proj",
        packed="c_attn",
        widths=("split_size",),
        after=("resid_dropout",),
    ),
    _blocks(("ModernBertAttention",), output="Wo", packed="Wqkv", after=("out_drop",)),
    _blocks(("Phi3Attention",), output="o_proj", packed="qkv_proj", reads_config=True),
    _blocks(("DbrxAttention",), output="out_proj", packed="Wqkv", widths=("hidden_size",)),
    _interleaved(("GPTNeoXAttention", "PersimmonAttention"), norms=("q_layernorm", "k_layernorm")),
    _interleaved(("FalconAttention",), flags={"alibi": ALIBI}, returns_weights=True),
    _interleaved(
        ("BloomAttention",),
        bias=Bias("alibi", place=2, axis=0),
        residual=1,
        flags={"slow_but_exact": "it slices its output projection by the full hidden size"},
        returns_weights=True,
    ),
    _blocks(
        ("MptAttention",),
        output="out_proj",
        packed="Wqkv",
        bias=Bias("position_bias", place=1, axis=0),
        returns_weights=True,
    ),
    Family(
        ("Olmo2Attention", "Olmo3Attention", "OlmoeAttention"),
        output="o_proj",
        refusal="its norms of queries and keys span all heads, so each head depends on all others",
    ),
    Family(
        ("BitNetAttention",),
        output="o_proj",
        refusal="the norm before its output projection spans all heads",
    ),
    Family(
        ("DiffLlamaAttention",),
        output="o_proj",
        refusal="its heads are pairs whose weights are subtracted from each other",
    ),
    Family(
        ("CodeGenAttention",),
        output="out_proj",
        returns_weights=True,
        refusal="its projection is in four blocks, and its forward relies on all four",
    ),
)

CROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "cross_attention")
"""Names of modules that attend from a decoder to an encoder's output."""
STACKS = {
    "text_model": "text",
    "language_model": "text",
    "vision_model": "vision",
    "vision_tower": "vision",
    "visual": "vision",
    "audio_model": "audio",
    "audio_tower": "audio",
    "encoder": "encoder",
    "decoder": "decoder",
}
"""Stack of everything inside a module of that name; the outermost such module decides."""
OUTPUT_PROJECTIONS = (
    *("o_proj", "out_proj", "c_proj", "Wo", "out_lin", "o", "dense", "proj", "projection"),
    *("post_proj", "linear_out", "../output/dense"),
)
"""Paths to try, in order, to find the output projection of a module that is not in the table."""


def add_family(row: Family) -> None:
    """Add a row for attention modules that headwise does not know, until this process ends.

    Raises OptionError if the row has no class name, or one that is already known.
    """
    global FAMILIES
    if not isinstance(row, Family):
        raise OptionError(f"row is a {type(row).__name__}: pass a headwise.Family", option="row")
    names = row.classes
    is_names = isinstance(names, tuple) and all(isinstance(name, str) and name for name in names)
    if not names or not is_names:
        raise OptionError(
            f"classes is {names!r}: it must be a tuple of class names, such as ('MyAttention',)",
            option="classes",
        )
    known = {name for family in FAMILIES for name in family.classes}
    if repeated := sorted(known.intersection(names)):
        raise OptionError(
            f"classes has {', '.join(repeated)}, which headwise already knows: leave it out, or "
            "rename your class",
            option="classes",
        )
    FAMILIES = (row, *FAMILIES)


def find_family(module: nn.Module) -> Family | None:
    """The first row for the module's class with a projection that it has; None if no row fits."""
    class_name = type(module).__name__
    for row in FAMILIES:
        if class_name in row.classes:
            projections = [*filter(None, [row.packed]), *row.apart, *row.per_head]
            if not projections or hasattr(module, projections[0]):
                return row
    return None
