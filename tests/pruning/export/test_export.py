"""An exported cut model loads back equal, bit for bit, and is never half written."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel

from headwise.errors import ModelError
from headwise.models.loading import load
from headwise.pruning.export.export import export
from headwise.pruning.prune import prune
from headwise.pruning.surgery.cut import cut
from headwise.watching.equivalence import check_equivalence, rounding_bound
from headwise.watching.watch import watch

from ...models.test_loading import save
from ...watching.helpers import allow_weights, assert_close, run
from ...watching.tiny import Inputs, output_of, tiny

pytestmark = allow_weights

CUTS = {"bert": "L0H1 L0H2 L2H0", "llama": "L0H0 L0H1 L0H2 L2H1 L2H5"}


def cut_tiny(name: str, *, dtype: torch.dtype = torch.float64) -> tuple[PreTrainedModel, Inputs]:
    """A model, cut, and its inputs."""
    model, inputs = tiny(name, dtype=dtype)
    cut(model, CUTS[name])
    return model, inputs


def test_loading_runs_no_code_of_the_directory(tmp_path: Path) -> None:
    model, inputs = cut_tiny("bert")
    export(model, tmp_path / "model")
    (tmp_path / "model/modeling_headwise.py").write_text("raise SystemExit('ran')")
    loaded = load(tmp_path / "model").model
    assert_close("bert", output_of(run(loaded, inputs)), output_of(run(model, inputs)))


def test_a_loaded_cut_model_can_be_watched_and_cut_again(tmp_path: Path) -> None:
    model, inputs = cut_tiny("llama")
    first = load(export(model, tmp_path / "once").path).model
    with watch(first) as watched:
        run(first, inputs)
    assert [call.num_heads for call in watched.calls] == [3, 6, 4]
    cut(first, "L1H0 L1H3")
    cut(model, "L1H0 L1H3")
    again = load(export(first, tmp_path / "twice", inputs=inputs).path).model
    assert_close("llama", output_of(run(again, inputs)), output_of(run(model, inputs)))


def test_export_does_not_change_the_model(tmp_path: Path) -> None:
    model, inputs = cut_tiny("bert")
    model.train().set_attn_implementation("eager")  # what is loaded back would take sdpa
    config, tensors = model.config.to_json_string(), dict(model.named_parameters())
    export(model, tmp_path / "model", inputs=inputs)
    assert model.training
    assert model.config.to_json_string() == config
    assert all(one is tensors[name] for name, one in model.named_parameters())


def test_export_keeps_dtype_and_ties_and_reports_sizes(tmp_path: Path) -> None:
    model, inputs = cut_tiny("bert", dtype=torch.bfloat16)
    result = export(model, tmp_path / "model", inputs=inputs)
    loaded = load(tmp_path / "model").model
    assert {one.dtype for one in loaded.parameters()} == {torch.bfloat16}
    assert loaded.cls.predictions.decoder.weight is loaded.bert.embeddings.word_embeddings.weight
    sizes = {file.name: file.stat().st_size for file in result.path.iterdir()}
    assert result.files == sizes
    assert result.bytes == sum(sizes.values())
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    assert weights <= sizes["model.safetensors"] < 1.5 * weights
    assert load(tmp_path / "model", dtype="float32").about["dtype"] == "float32"


def test_export_writes_models_loaded_from_gguf(tmp_path: Path) -> None:
    model, inputs = cut_tiny("llama")
    model.hf_quantizer = SimpleNamespace(quantization_config=SimpleNamespace(quant_method="gguf"))
    model.config.quantization_config = {"quant_method": "gguf"}
    with pytest.raises(ValueError, match="not serializable"):
        model.save_pretrained(tmp_path / "refused")
    export(model, tmp_path / "model", inputs=inputs)
    assert "quantization_config" not in (tmp_path / "model/config.json").read_text()


def test_tokenizer_and_generation_settings_come_along(tmp_path: Path) -> None:
    model, _ = cut_tiny("llama")
    model.generation_config.top_k = 17
    with pytest.raises(ModelError, match=r"LlamaForCausalLM .*`top_k`"):
        export(model, tmp_path / "model")
    model.generation_config.do_sample = True
    tokenizer = AutoTokenizer.from_pretrained(save("llama", tmp_path / "uncut"))
    export(model, tmp_path / "model", tokenizer=tokenizer)
    loaded = load(tmp_path / "model")
    assert loaded.tokenizer("w8 w9")["input_ids"] == [8, 9]
    assert loaded.model.generation_config.top_k == 17
    assert load(export(model, tmp_path / "other").path).tokenizer is None


@pytest.mark.parametrize("own", ["", "0_Transformer"])
def test_export_copies_sentence_modules_without_old_weights(tmp_path: Path, own: str) -> None:
    source = tmp_path / "source"
    paths = [own, "1_Pooling", "2_Normalize"]
    texts = {
        "modules.json": json.dumps([{"idx": n, "path": path} for n, path in enumerate(paths)]),
        "config_sentence_transformers.json": "{}",
        str(Path(own) / "sentence_bert_config.json"): '{"max_seq_length": 61}',
        "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
        "README.md": "of the uncut model",
        "pytorch_model.bin": "weights of the uncut model",
    }
    for name, text in texts.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    model, inputs = cut_tiny("bert")
    result = export(model, tmp_path / "model", source=source, inputs=inputs)
    written = {name: (result.path / name).read_bytes() for name in result.files}
    assert {*written} == {
        *("config.json", "model.safetensors", "modeling_headwise.py", "README.md"),
        *("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
        "1_Pooling/config.json",
    }
    modules = json.loads(written["modules.json"])
    assert [module["path"] for module in modules] == ["", "1_Pooling", "2_Normalize"]
    assert b"max_seq_length" in written["sentence_bert_config.json"]
    assert b'SentenceTransformer(".", trust_remote_code=True)' in written["README.md"]


def test_export_copies_every_file_that_it_does_not_replace(tmp_path: Path) -> None:
    source = save("llama", tmp_path / "source")
    kept = {"preprocessor_config.json": "{}", "chat_template.jinja": "{{ x }}", "LICENSE": "free"}
    old = ("pytorch_model.bin", "model.safetensors.index.json", "prune.json", "README.md", "a.py")
    for name, text in {**kept, **dict.fromkeys(old, "old"), "notes.json": "theirs"}.items():
        (source / name).write_text(text)
    (source / "onnx").mkdir()
    model, _ = cut_tiny("llama")
    extras = {"notes.json": "ours"}
    tokenizer = AutoTokenizer.from_pretrained(source)
    path = export(model, tmp_path / "m", tokenizer=tokenizer, source=source, extras=extras).path
    assert {name: (path / name).read_text() for name in kept} == kept
    assert (path / "notes.json").read_text() == "ours"
    assert not any((path / name).exists() for name in ("onnx", *old[:3], "a.py"))
    assert load(path).tokenizer("w8 w9")["input_ids"] == [8, 9]
    export(model, path, source=source, force=True)  # what was copied does not prevent this
    assert load(path).tokenizer("w8 w9")["input_ids"] == [8, 9]  # the uncut model's files


def test_model_card_lists_kept_heads_and_ways_to_load(tmp_path: Path) -> None:
    model, _ = cut_tiny("bert")
    model.config.name_or_path = "/home/someone/models/big"
    card = (export(model, tmp_path / "model").path / "README.md").read_text()
    assert "from models/big; " in card
    assert "| L0 | 0, 3, 4 |" in card
    assert 'AutoModelForMaskedLM.from_pretrained(".", trust_remote_code=True)' in card
    assert 'headwise.load(".")' in card
    assert "`ignore_mismatched_sizes`, which it then suggests, would load random weights." in card
    uncut = export(tiny("bert")[0], tmp_path / "uncut").path / "README.md"
    assert "all its heads" in uncut.read_text()
    assert "trust_remote_code" not in uncut.read_text()


# Rejected models leave no files.


def hooked_up(model: PreTrainedModel) -> str:
    model.register_forward_hook(lambda module, args, out: {**out, "logits": out.logits + 1})
    return "logits .* 1"


def adapted(model: PreTrainedModel) -> str:
    model.adapter = nn.Linear(2, 3)
    return r"adapter\.weight.* merge"


def trimmed(model: PreTrainedModel) -> str:
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq[:3]
    return r"rotary_emb\.inv_freq .*\[3\].*\[4\]"


def mixed(model: PreTrainedModel) -> str:
    model.lm_head.float()
    return r"lm_head\.weight .*float32.*float64"


def quantized(model: PreTrainedModel) -> str:
    model.rough = nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
    return r"rough .*int8"


def offloaded(model: PreTrainedModel) -> str:
    model.far = nn.Parameter(torch.zeros(3, device="meta"))
    return "far .*memory"


def moved(model: PreTrainedModel) -> str:
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.bfloat16()
    return r"rotary_emb\.inv_freq .* dtype"


@pytest.mark.parametrize("spoil", [hooked_up, adapted, trimmed, mixed, quantized, offloaded, moved])
def test_export_rejects_models_that_would_not_load_back_equal(
    spoil: Callable[[PreTrainedModel], str], tmp_path: Path
) -> None:
    model, inputs = cut_tiny("llama")
    message = f"LlamaForCausalLM .*{spoil(model)}"
    with pytest.raises(ModelError, match=message):
        export(model, tmp_path / "model", inputs=inputs)
    assert not any(tmp_path.iterdir())


def test_each_output_has_its_own_rounding_bound() -> None:
    model, _ = cut_tiny("llama")
    small = torch.ones(3, dtype=torch.float64)
    large = 2.0**20 * small
    wanted = {"small": small, "large": large}
    off = 4 * rounding_bound(model, small)
    assert off < rounding_bound(model, large)
    assert check_equivalence(model, wanted | {"large": large + off}, wanted, "") > 0
    with pytest.raises(ModelError, match=r"^a problem: small .*\d"):
        check_equivalence(model, wanted | {"small": small + off}, wanted, "a problem")
    for actual, expected in (({"small": small}, wanted), (wanted, {"small": small})):
        with pytest.raises(ModelError, match=r"large .*inf"):
            check_equivalence(model, actual, expected, "a problem")


def test_half_precision_is_compared_in_float32(tmp_path: Path) -> None:
    model, inputs = cut_tiny("bert", dtype=torch.bfloat16)
    full = copy.deepcopy(model).float()
    step = 2 * rounding_bound(full, full(**inputs).logits)
    model.register_forward_hook(lambda module, args, out: {**out, "logits": out.logits + step})
    with pytest.raises(ModelError, match=r"loaded back.* logits"):
        export(model, tmp_path / "model", inputs=inputs)
    assert {one.dtype for one in model.parameters()} == {torch.bfloat16}


class SpoilingTokenizer:
    """A tokenizer whose `save_pretrained` damages the config of the exported model."""

    def save_pretrained(self, folder: Path) -> None:
        rewrite(folder, headwise={"format": 2})


def test_export_rejects_a_directory_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="format 2"):
        export(cut_tiny("llama")[0], tmp_path / "model", tokenizer=SpoilingTokenizer())
    assert not any(tmp_path.iterdir())


def test_export_rejects_sentence_modules_outside_the_directory(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text('[{"path": ""}, {"path": "../secrets"}]')
    with pytest.raises(ModelError, match=r"modules\.json .*\.\./secrets"):
        export(cut_tiny("bert")[0], tmp_path / "model", source=tmp_path)


@pytest.mark.parametrize("text", ["[", '[{"idx": 0}]', '[{"path": 0}]', "7", '{"path": ""}', "[]"])
def test_broken_modules_json_raises_before_pruning_starts(tmp_path: Path, text: str) -> None:
    source = save("bert", tmp_path / "uncut")
    (source / "modules.json").write_text(text)
    message = "uncut .*modules.json .*module"
    with pytest.raises(ModelError, match=message):
        export(cut_tiny("bert")[0], tmp_path / "model", source=source)
    stages: list[str] = []
    with pytest.raises(ModelError, match=message):
        prune(
            str(source), tmp_path / "model", cut=1, progress=lambda stage, *_: stages.append(stage)
        )
    assert stages == [] and not (tmp_path / "model").exists()


def rewrite(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def test_directories_that_cannot_be_loaded_say_why(tmp_path: Path) -> None:
    folder = export(cut_tiny("bert")[0], tmp_path / "model").path
    block = json.loads((folder / "config.json").read_text())["headwise"]
    for changes, message in (
        ({"headwise": block | {"format": 2}}, "format 2"),
        (
            {"headwise": "yes"},
            "format 'yes'.* format 1",
        ),
        ({"architectures": ["NoModel"]}, "'NoModel'.* transformers"),
        ({"architectures": None}, "''.* transformers"),
        (
            {
                "architectures": ["BertForMaskedLM"],
                "headwise": block | {"parameters": {"no.way": []}},
            },
            r"config\.json: .*no",
        ),
        (
            {"headwise": None},
            r"config\.json .*\[35, 21\]",
        ),
    ):
        rewrite(folder, **{"headwise": block} | changes)
        with pytest.raises(ModelError, match=message):
            load(folder)
    rewrite(folder, headwise=block)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match="safetensors"):
        load(folder)
    for text, message in (("{", "JSON"), ("[]", "JSON object")):
        (folder / "config.json").write_text(text)
        with pytest.raises(ModelError, match=f"config.json .*{message}"):
            load(folder)


def test_load_accepts_names_and_rejects_missing_directories(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"\./nowhere"):
        load("./nowhere")
    with pytest.raises(ModelError, match=r"^3 .*name"):
        load(3)
    with pytest.raises(ModelError, match=r"no config\.json"):
        load(tmp_path)
    loaded = load("minilm", dtype="float64")
    assert type(loaded.model).__name__ == "BertModel"
    assert loaded.model.dtype == torch.float64
    bare = load(export(cut_tiny("bert")[0], tmp_path / "cut").path, keeps_head=False)
    assert bare.about["class"] == "BertModel"
