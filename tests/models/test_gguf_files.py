"""GGUF files load like directories, with the tokenizer that the model was trained with."""

import importlib.util
import warnings
from pathlib import Path

import pytest

from headwise import scan, trace
from headwise.errors import HeadwiseWarning, MissingPackage, ModelError
from headwise.models import gguf_files
from headwise.models.loading import LoadOptions, load_model

from .tiny_gguf import HEADS, LAYERS, write_gguf

BOS, CAT = 1, "the cat"
MISSING = r"does not add <s> before a text, but the model was trained with it"


def quietly(path: Path) -> list[int]:
    """Tokens of a text; a warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", HeadwiseWarning)
        ids: list[int] = load_model(path).tokenizer(CAT)["input_ids"]
    return ids


@pytest.mark.parametrize("says", [True, None])
def test_the_bos_token_that_the_file_names_is_added_with_a_warning(
    says: bool | None, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", adds_bos=says)
    with pytest.warns(HeadwiseWarning, match=rf"tiny\.gguf {MISSING}: headwise adds it"):
        loaded = load_model(file)
    assert loaded.tokenizer(CAT)["input_ids"][0] == BOS
    assert loaded.folder is None and loaded.about["source"] == str(file)


def test_a_file_without_a_bos_token_stays_without_one(tmp_path: Path) -> None:
    assert BOS not in quietly(write_gguf(tmp_path / "tiny.gguf", adds_bos=False))


@pytest.mark.parametrize("adds", [True, False])
def test_a_tokenizer_beside_the_file_is_used_as_it_was_saved(adds: bool, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", adds_bos=False)
    tokenizer = load_model(file).tokenizer
    tokenizer.add_tokens(["cat"])
    tokenizer.add_bos_token = adds
    tokenizer.save_pretrained(tmp_path)
    write_gguf(file, adds_bos=True)
    if adds:
        ids = quietly(file)
    else:
        with pytest.warns(HeadwiseWarning, match=rf"beside tiny\.gguf {MISSING}: set tokenizer"):
            ids = load_model(file).tokenizer(CAT)["input_ids"]
    assert ids[-1] == len(tokenizer) - 1 and (ids[0] == BOS) is adds


def test_a_gguf_file_is_scanned_and_traced_by_its_name(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", adds_bos=False)
    table = scan(file, "the cat sat on the mat and the dog sat on the cat")
    assert len(table) == HEADS * LAYERS and table.about["model"] == str(file)
    assert trace(str(file), CAT)["weights"].values.shape[1] == HEADS


def test_files_that_only_look_like_gguf_are_named(tmp_path: Path) -> None:
    text, cut = tmp_path / "text.gguf", tmp_path / "cut.gguf"
    text.write_text("no model")
    with pytest.raises(ModelError, match=r"text\.gguf is not a GGUF file"):
        load_model(text)
    whole = write_gguf(tmp_path / "tiny.gguf", adds_bos=False).read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match=r"cut\.gguf cannot be loaded"):
        load_model(cut)
    with pytest.raises(ModelError, match=r"has no config\.json; pass .*cut\.gguf"):
        load_model(tmp_path)


def test_a_missing_package_is_named_with_its_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", adds_bos=False)
    known = importlib.util.find_spec
    monkeypatch.setattr(
        gguf_files, "find_spec", lambda name: None if name == "gguf" else known(name)
    )
    with pytest.raises(MissingPackage, match=r"need gguf: pip install 'headwise\[gguf\]'"):
        load_model(file)


def test_the_prediction_head_of_a_gguf_file_is_kept_on_request(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", adds_bos=False)
    kept = load_model(file, LoadOptions(keeps_head=True))
    assert type(kept.model).__name__ == "LlamaForCausalLM"
