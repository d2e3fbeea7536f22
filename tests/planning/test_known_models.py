"""Known models, compared with the models that transformers builds on the meta device."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    FalconConfig,
    Gemma3Config,
    Gemma3Model,
    Gemma3TextConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    StaticCache,
)

from headwise.errors import ModelError, OptionError
from headwise.planning.configs import shape_of_config
from headwise.planning.known_models import KNOWN
from headwise.planning.plans import plan
from headwise.planning.shapes import make_shape, shape_of_sizes

from .building import attention_parameters


def bert(width: int, heads: int, layers: int) -> BertConfig:
    return BertConfig(
        hidden_size=width,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=4 * width,
    )


def gpt2(width: int, heads: int, layers: int, context: int = 1024) -> GPT2Config:
    return GPT2Config(n_embd=width, n_head=heads, n_layer=layers, n_positions=context)


def llama(width: int, inner: int, heads: int, kv_heads: int, layers: int, **more: Any) -> Any:
    return LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        num_hidden_layers=layers,
        **more,
    )


def qwen3(width: int, inner: int, heads: int, layers: int, *, tied: bool = False) -> Qwen3Config:
    return Qwen3Config(
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        num_hidden_layers=layers,
        max_position_embeddings=40960,
        tie_word_embeddings=tied,
    )


def gemma3(sizes: tuple[int, ...], window: int, context: int, vocabulary: int) -> Gemma3TextConfig:
    width, inner, heads, kv_heads, head_dim, layers = sizes
    return Gemma3TextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        num_hidden_layers=layers,
        sliding_window=window,
        max_position_embeddings=context,
    )


CONFIGS: dict[str, PretrainedConfig] = {
    "minilm": bert(384, 12, 6),
    "bert-base": bert(768, 12, 12),
    "bert-large": bert(1024, 16, 24),
    "gpt2": gpt2(768, 12, 12),
    "gpt2-medium": gpt2(1024, 16, 24),
    "gpt2-large": gpt2(1280, 20, 36),
    "gpt2-xl": gpt2(1600, 25, 48),
    "gpt3": gpt2(12288, 96, 96, context=2048),
    "smollm2": llama(
        576, 1536, 9, 3, 30,
        vocab_size=49152, tie_word_embeddings=True, max_position_embeddings=8192,
    ),
    "llama-7b": llama(4096, 11008, 32, 32, 32, max_position_embeddings=2048),
    "llama3-8b": llama(
        4096, 14336, 32, 8, 32, vocab_size=128256, max_position_embeddings=8192
    ),
    "llama3-70b": llama(
        8192, 28672, 64, 8, 80, vocab_size=128256, max_position_embeddings=8192
    ),
    "falcon-7b": FalconConfig(
        hidden_size=4544,
        num_attention_heads=71,
        num_hidden_layers=32,
        multi_query=True,
        parallel_attn=True,
        bias=False,
        alibi=False,
        max_position_embeddings=2048,
    ),
    "mistral-7b": MistralConfig(max_position_embeddings=32768, sliding_window=4096),
    "qwen3-0.6b": qwen3(1024, 3072, 16, 28, tied=True),
    "qwen3-8b": qwen3(4096, 12288, 32, 36),
    "qwen3-32b": qwen3(5120, 25600, 64, 64),
    "qwen3-30b-a3b": Qwen3MoeConfig(
        hidden_size=2048,
        intermediate_size=6144,
        moe_intermediate_size=768,
        num_experts=128,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        num_hidden_layers=48,
        max_position_embeddings=40960,
    ),
    "gemma3-1b": gemma3((1152, 6912, 4, 1, 256, 26), 512, 32768, 262144),
    "gemma3-4b": gemma3((2560, 10240, 8, 4, 256, 34), 1024, 131072, 262208),
    "gemma3-12b": gemma3((3840, 15360, 16, 8, 256, 48), 1024, 131072, 262208),
    "gemma3-27b": gemma3((5376, 21504, 32, 16, 128, 62), 1024, 131072, 262208),
    "gpt-oss-20b": GptOssConfig(num_local_experts=32, num_hidden_layers=24),
    "gpt-oss-120b": GptOssConfig(num_local_experts=128, num_hidden_layers=36),
}  # fmt: skip

each_model = pytest.mark.parametrize("name", KNOWN)


def build(name: str) -> nn.Module:
    kind = AutoModelForCausalLM if KNOWN[name].shape.is_causal else AutoModel
    with torch.device("meta"):
        return kind.from_config(CONFIGS[name])


@each_model
def test_known_parameters_equal_those_of_the_built_model(name: str) -> None:
    known_plan, model = plan(name), build(name)
    assert (
        attention_parameters(model) == [known_plan.layer_parameters] * known_plan.shape.num_layers
    )
    assert sum(p.numel() for p in model.parameters()) == known_plan.total


@each_model
def test_config_and_table_give_the_same_shape(name: str) -> None:
    assert shape_of_config(CONFIGS[name].to_dict(), name) == KNOWN[name].shape


@pytest.mark.parametrize("length", [100, 5000])
@pytest.mark.parametrize("name", [name for name, model in KNOWN.items() if model.shape.is_causal])
def test_cache_bytes_equal_those_of_a_real_cache(name: str, length: int) -> None:
    shape, config = KNOWN[name].shape, CONFIGS[name]
    cache = StaticCache(config=config, max_cache_len=length)
    kv_heads = getattr(config, "num_key_value_heads", None) or shape.num_kv_heads
    cache.early_initialization(3, kv_heads, shape.d_key, torch.bfloat16, torch.device("meta"))
    cache_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert plan(name, length=length, batch=3).cache_bytes == cache_bytes


def test_every_known_model_names_its_source() -> None:
    for model in KNOWN.values():
        assert model.source.startswith("https://"), model.name
        assert model.total is not None, model.name


@pytest.mark.parametrize("name", ["gemma3-4b", "gemma3-12b", "gemma3-27b"])
def test_note_says_that_the_image_part_is_not_counted(name: str) -> None:
    with torch.device("meta"):
        model = Gemma3Model(Gemma3Config(text_config=CONFIGS[name]))
    known_plan = plan(name)
    assert known_plan.total == sum(p.numel() for p in model.language_model.parameters())
    assert known_plan.total < sum(p.numel() for p in model.parameters())
    assert "without the part that reads images" in known_plan.note
    assert plan("gemma3-1b").note == ""


def test_bidirectional_model_does_not_decode() -> None:
    known_plan = plan("bert-base")
    row = known_plan.to_row()
    assert known_plan.decoding is None and known_plan.cache_bytes == 0
    assert [row[f"decode_{name}"] for name in ("multiply_adds", "bytes_read", "intensity")] == [
        None, None, None,
    ]  # fmt: skip
    step = plan("gpt2").decoding
    assert step is not None and plan("gpt2").to_row()["decode_intensity"] == step.intensity


def test_unknown_name_gets_the_most_similar_one() -> None:
    with pytest.raises(OptionError, match=r"gpt-2 .* gpt2\?"):
        plan("gpt-2")
    with pytest.raises(OptionError, match="minilm, smollm2"):
        plan("zzzzzz")


def test_silent_hub_is_contacted_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    nobody = "http://127.0.0.1:9"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", nobody)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: pytest.fail("again"))
    with pytest.raises(OptionError, match=f"no/such.*{nobody}"):
        plan("no/such")
    assert "".join(capfd.readouterr()) == ""


def test_typed_sizes_become_a_shape() -> None:
    shape = plan("4096/32:8x5").shape
    sizes = (shape.d_model, shape.num_heads, shape.num_kv_heads, shape.num_layers)
    assert sizes == (4096, 32, 8, 5)
    assert shape.sizes == "4096/32:8x5"
    assert shape_of_sizes("no/such") is None and shape_of_sizes("768/12x") is None
    with pytest.raises(OptionError, match="d_model is 999,999,999: "):
        plan("999999999/3")


def test_name_of_a_shape_never_describes_another_shape() -> None:
    usual = make_shape(d_model=48, num_heads=6, num_kv_heads=2, num_layers=5)
    assert plan(shape=usual).name == "48/6:2x5"
    assert plan("48/6:2x5").shape == usual
    large = replace(usual, d_key=16, d_value=16)
    assert plan(shape=large).name == "48/6:2x5, heads of 16"
    assert plan(shape=replace(usual, d_value=16)).name == "48/6:2x5, heads of 8 / 16"
    assert shape_of_sizes(plan(shape=large).name) is None


def test_compressed_keys_raise() -> None:
    config = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "hidden_size": 8}
    with pytest.raises(ModelError, match=r"r1 \(deepseek_v3\).*kv_lora_rank"):
        shape_of_config(config, "r1")


def test_config_without_sizes_raises_with_the_missing_keys() -> None:
    with pytest.raises(ModelError, match=r"this .* d_model.*hidden_size"):
        shape_of_config({"model_type": "x"}, "this")


def test_directory_may_be_a_path(tmp_path: Path) -> None:
    config = {"model_type": "bert", "hidden_size": 12, "num_attention_heads": 3}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    assert plan(tmp_path).shape == plan(str(tmp_path)).shape


def test_plan_rejects_other_types() -> None:
    with pytest.raises(OptionError, match=r"gpt2.*shape"):
        plan("gpt2", shape=KNOWN["gpt2"].shape)
    wrong = {  # in another process, because tests check types before the code does
        "plan(3)": "model is 3: ",
        "plan('gpt2', length=10.5)": "length is 10.5: ",
        "trace('minilm', ['a'])": "list",
    }
    for call, facts in wrong.items():
        script = (
            f"import headwise\ntry: headwise.{call}\nexcept headwise.HeadwiseError as e: print(e)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert facts in done.stdout, done.stderr


def test_first_layers_of_modernbert_are_global(tmp_path: Path) -> None:
    from transformers import ModernBertConfig

    config = ModernBertConfig(num_hidden_layers=22)
    config.save_pretrained(tmp_path)
    shape = plan(tmp_path).shape
    assert (shape.window, shape.num_local, shape.is_causal) == (128, 14, False)
