"""Published models: name -> KnownModel with shape, source and number of parameters.

Sizes come from the published configurations. `total` is the number of parameters of the whole
model as transformers builds it, embeddings included, tied matrices counted once. For a model that
also reads images it is that of the language model, and the note says so.
"""

from dataclasses import dataclass

from headwise.planning.shapes import Shape


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A model with its shape, and where it was published."""

    name: str
    shape: Shape
    source: str = ""
    total: int | None = None
    note: str = ""


def _model(
    name: str,
    sizes: tuple[int, int, int, int, int],
    source: str,
    *,
    total: int | None = None,
    note: str = "",
    **facts: int | bool,
) -> KnownModel:
    """A row of the table; `sizes` are d_model, heads, KV heads, d_key and layers."""
    d_model, num_heads, num_kv_heads, d_key, num_layers = sizes
    shape = Shape(
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        d_key=d_key,
        d_value=d_key,
        num_layers=num_layers,
        **facts,  # type: ignore[arg-type]
    )
    return KnownModel(name=name, shape=shape, source=source, total=total, note=note)


GPT2 = "https://huggingface.co/openai-community/"
BERT = "https://arxiv.org/abs/1810.04805"
LLAMA3 = "https://arxiv.org/abs/2407.21783"
QWEN3 = "https://arxiv.org/abs/2505.09388"
GEMMA3 = "https://arxiv.org/abs/2503.19786"
GPT_OSS = "https://arxiv.org/abs/2508.10925"
TEXT_ONLY = "the whole model is counted without the part that reads images"

MODELS = [
    _model(
        "minilm",
        (384, 12, 12, 32, 6),
        "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        total=22_713_216,
        is_causal=False,
        bias_in=True,
        bias_out=True,
        context=512,
    ),
    _model(
        "smollm2",
        (576, 9, 3, 64, 30),
        "https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
        total=134_515_008,
        context=8192,
    ),
    _model(
        "bert-base",
        (768, 12, 12, 64, 12),
        BERT,
        total=109_482_240,
        is_causal=False,
        bias_in=True,
        bias_out=True,
        context=512,
    ),
    _model(
        "bert-large",
        (1024, 16, 16, 64, 24),
        BERT,
        total=335_141_888,
        is_causal=False,
        bias_in=True,
        bias_out=True,
        context=512,
    ),
    *(
        _model(
            name,
            (d_model, heads, heads, 64, layers),
            f"{GPT2}{hub}",
            total=total,
            bias_in=True,
            bias_out=True,
            context=1024,
        )
        for name, hub, d_model, heads, layers, total in (
            ("gpt2", "gpt2", 768, 12, 12, 124_439_808),
            ("gpt2-medium", "gpt2-medium", 1024, 16, 24, 354_823_168),
            ("gpt2-large", "gpt2-large", 1280, 20, 36, 774_030_080),
            ("gpt2-xl", "gpt2-xl", 1600, 25, 48, 1_557_611_200),
        )
    ),
    _model(
        "gpt3",
        (12288, 96, 96, 128, 96),
        "https://arxiv.org/abs/2005.14165",
        total=174_604_259_328,
        note="every other layer is locally banded, but its width is not published: counted as full",
        bias_in=True,
        bias_out=True,
        context=2048,
    ),
    _model(
        "llama-7b",
        (4096, 32, 32, 128, 32),
        "https://arxiv.org/abs/2302.13971",
        total=6_738_415_616,
        context=2048,
    ),
    _model(
        "falcon-7b",
        (4544, 71, 1, 64, 32),
        "https://arxiv.org/abs/2311.16867",
        total=6_921_720_704,
        context=2048,
    ),
    _model("llama3-8b", (4096, 32, 8, 128, 32), LLAMA3, total=8_030_261_248, context=8192),
    _model("llama3-70b", (8192, 64, 8, 128, 80), LLAMA3, total=70_553_706_496, context=8192),
    _model(
        "mistral-7b",
        (4096, 32, 8, 128, 32),
        "https://arxiv.org/abs/2310.06825",
        total=7_241_732_096,
        window=4096,
        num_local=32,
        context=32768,
    ),
    *(
        _model(
            name,
            (d_model, heads, kv_heads, 128, layers),
            QWEN3,
            total=total,
            has_qk_norm=True,
            context=40960,
        )
        for name, d_model, heads, kv_heads, layers, total in (
            ("qwen3-0.6b", 1024, 16, 8, 28, 596_049_920),
            ("qwen3-8b", 4096, 32, 8, 36, 8_190_735_360),
            ("qwen3-32b", 5120, 64, 8, 64, 32_762_123_264),
            ("qwen3-30b-a3b", 2048, 32, 4, 48, 30_532_122_624),
        )
    ),
    *(
        _model(
            name,
            sizes,
            GEMMA3,
            total=total,
            has_qk_norm=True,
            window=window,
            num_local=sizes[4] - sizes[4] // 6,
            context=context,
            note=note,
        )
        for name, sizes, window, context, total, note in (
            ("gemma3-1b", (1152, 4, 1, 256, 26), 512, 32768, 999_885_952, ""),
            ("gemma3-4b", (2560, 8, 4, 256, 34), 1024, 131072, 3_880_263_168, TEXT_ONLY),
            ("gemma3-12b", (3840, 16, 8, 256, 48), 1024, 131072, 11_766_034_176, TEXT_ONLY),
            ("gemma3-27b", (5376, 32, 16, 128, 62), 1024, 131072, 27_009_346_304, TEXT_ONLY),
        )
    ),
    *(
        _model(
            name,
            (2880, 64, 8, 64, layers),
            GPT_OSS,
            total=total,
            bias_in=True,
            bias_out=True,
            has_sinks=True,
            window=128,
            num_local=layers // 2,
            context=131072,
        )
        for name, layers, total in (
            ("gpt-oss-20b", 24, 20_914_757_184),
            ("gpt-oss-120b", 36, 116_829_156_672),
        )
    ),
]

KNOWN = {model.name: model for model in MODELS}
"""Every known model by its name."""
