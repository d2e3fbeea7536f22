"""Published models: name -> PlannedModel with shape, source and number of parameters.

Sizes come from the published configurations. `total` is the number of parameters in the whole
model as transformers builds it, including embeddings; tied matrices count once. For a model that
also reads images, `total` covers only the language model, and the note says so.
"""

from dataclasses import dataclass
from typing import Any

from headwise.planning.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class PlannedModel:
    """A model's name, shape and source."""

    name: str
    shape: Shape
    source: str = ""
    total: int | None = None
    """Number of parameters in the whole model; None if unknown."""
    note: str = ""


def _model(
    name: str, sizes: tuple[int, ...], total: int, source: str, *, note: str = "", **facts: Any
) -> PlannedModel:
    """A row of the table; `sizes` are d_model, heads, KV heads, d_key and layers."""
    names = ("d_model", "num_heads", "num_kv_heads", "d_key", "num_layers")
    facts |= zip(names, sizes, strict=True)
    shape = Shape(d_value=facts["d_key"], **facts)
    return PlannedModel(name=name, shape=shape, source=source, total=total, note=note)


ARXIV, HUB = "https://arxiv.org/abs/", "https://huggingface.co/"
MINILM = f"{HUB}sentence-transformers/all-MiniLM-L6-v2"
SMOLLM2 = f"{HUB}HuggingFaceTB/SmolLM2-135M-Instruct"
BERT_PAPER = f"{ARXIV}1810.04805"
GPT2_HUB = f"{HUB}openai-community/"
TEXT_ONLY = "the whole model is counted without the part that reads images"
UNKNOWN_BANDS = "every other layer is locally banded, but the width is unpublished: counted as full"

BIASED = {"bias_in": True, "bias_out": True}
BERT: dict[str, Any] = {"is_causal": False, "context": 512, **BIASED}
GPT2: dict[str, Any] = {"context": 1024, **BIASED}
LLAMA3: dict[str, Any] = {"source": f"{ARXIV}2407.21783", "context": 8192}
QWEN3: dict[str, Any] = {"source": f"{ARXIV}2505.09388", "has_qk_norm": True, "context": 40960}
GEMMA3: dict[str, Any] = {"source": f"{ARXIV}2503.19786", "has_qk_norm": True}
GEMMA3_LARGE: dict[str, Any] = {**GEMMA3, "window": 1024, "context": 131072, "note": TEXT_ONLY}
GPT_OSS: dict[str, Any] = {"source": f"{ARXIV}2508.10925", "window": 128, "context": 131072}
GPT_OSS |= {"has_sinks": True, **BIASED}

MODELS = (
    _model("minilm", (384, 12, 12, 32, 6), 22_713_216, MINILM, **BERT),
    _model("smollm2", (576, 9, 3, 64, 30), 134_515_008, SMOLLM2, context=8192),
    _model("bert-base", (768, 12, 12, 64, 12), 109_482_240, BERT_PAPER, **BERT),
    _model("bert-large", (1024, 16, 16, 64, 24), 335_141_888, BERT_PAPER, **BERT),
    _model("gpt2", (768, 12, 12, 64, 12), 124_439_808, f"{GPT2_HUB}gpt2", **GPT2),
    _model("gpt2-medium", (1024, 16, 16, 64, 24), 354_823_168, f"{GPT2_HUB}gpt2-medium", **GPT2),
    _model("gpt2-large", (1280, 20, 20, 64, 36), 774_030_080, f"{GPT2_HUB}gpt2-large", **GPT2),
    _model("gpt2-xl", (1600, 25, 25, 64, 48), 1_557_611_200, f"{GPT2_HUB}gpt2-xl", **GPT2),
    _model(
        "gpt3",
        (12288, 96, 96, 128, 96),
        174_604_259_328,
        f"{ARXIV}2005.14165",
        note=UNKNOWN_BANDS,
        context=2048,
        **BIASED,
    ),
    _model("llama-7b", (4096, 32, 32, 128, 32), 6_738_415_616, f"{ARXIV}2302.13971", context=2048),
    _model("falcon-7b", (4544, 71, 1, 64, 32), 6_921_720_704, f"{ARXIV}2311.16867", context=2048),
    _model("llama3-8b", (4096, 32, 8, 128, 32), 8_030_261_248, **LLAMA3),
    _model("llama3-70b", (8192, 64, 8, 128, 80), 70_553_706_496, **LLAMA3),
    _model(
        "mistral-7b",
        (4096, 32, 8, 128, 32),
        7_241_732_096,
        f"{ARXIV}2310.06825",
        window=4096,
        num_local=32,
        context=32768,
    ),
    _model("qwen3-0.6b", (1024, 16, 8, 128, 28), 596_049_920, **QWEN3),
    _model("qwen3-8b", (4096, 32, 8, 128, 36), 8_190_735_360, **QWEN3),
    _model("qwen3-32b", (5120, 64, 8, 128, 64), 32_762_123_264, **QWEN3),
    _model("qwen3-30b-a3b", (2048, 32, 4, 128, 48), 30_532_122_624, **QWEN3),
    _model(
        "gemma3-1b",
        (1152, 4, 1, 256, 26),
        999_885_952,
        window=512,
        num_local=22,
        context=32768,
        **GEMMA3,
    ),
    _model("gemma3-4b", (2560, 8, 4, 256, 34), 3_880_263_168, num_local=29, **GEMMA3_LARGE),
    _model("gemma3-12b", (3840, 16, 8, 256, 48), 11_766_034_176, num_local=40, **GEMMA3_LARGE),
    _model("gemma3-27b", (5376, 32, 16, 128, 62), 27_009_346_304, num_local=52, **GEMMA3_LARGE),
    _model("gpt-oss-20b", (2880, 64, 8, 64, 24), 20_914_757_184, num_local=12, **GPT_OSS),
    _model("gpt-oss-120b", (2880, 64, 8, 64, 36), 116_829_156_672, num_local=18, **GPT_OSS),
)

KNOWN = {model.name: model for model in MODELS}
