"""A tokenizer that leaves out the BOS token a model was trained with is noticed, and no other."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headwise.errors import HeadwiseWarning
from headwise.models.bos_tokens import missing_bos
from headwise.models.loading import load_model

from ..watching.tiny import tiny
from ..watching.tiny_configs import VOCABULARY

BOS, WORDS = 1, ("<unk>", "<s>", "</s>")


def save(folder: Path, family: str, *, bos: str | None, adds: bool, **settings: Any) -> Path:
    """Save a tiny model; `settings` are written into tokenizer_config.json, if not None."""
    tiny(family)[0].save_pretrained(folder)
    words = [*WORDS, *(f"w{number}" for number in range(len(WORDS), VOCABULARY))]
    plain = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, "<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="<unk>", bos_token=bos, eos_token="</s>"
    )
    if adds:
        tokenizer.add_bos_token = True
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) | settings
    config = {name: value for name, value in config.items() if value is not None}
    file.write_text(json.dumps(config))
    return folder


def begins_with_bos(folder: Path) -> bool:
    return load_model(folder).tokenizer("w7 w9")["input_ids"][:1] == [BOS]


@pytest.mark.parametrize(
    ("family", "says", "reason"),
    [
        ("gemma2", None, "gemma2 models are trained with it"),
        ("gemma2", False, "gemma2 models are trained with it"),
        ("opt", None, "opt models are trained with it"),
        ("llama", True, r"add_bos_token is true in its tokenizer_config\.json"),
        ("gpt2", True, r"add_bos_token is true in its tokenizer_config\.json"),
    ],
)
def test_a_missing_bos_token_is_named_with_the_reason(
    family: str, says: bool | None, reason: str, tmp_path: Path
) -> None:
    save(tmp_path, family, bos="<s>", adds=False, add_bos_token=says)
    message = rf"{tmp_path} does not add <s> before a text, but {reason}: set tokenizer.*with <s>$"
    with pytest.warns(HeadwiseWarning, match=message):
        assert not begins_with_bos(tmp_path)


@pytest.mark.parametrize(
    ("family", "bos", "says"),
    [
        ("gpt2", "</s>", None),  # BOS is EOS, and the config has its id
        ("gpt2", "<s>", False),
        ("gpt_neox", "<s>", False),
        ("qwen2", None, False),
        ("qwen2", None, True),
        ("llama", "<s>", None),  # SmolLM2
        ("gemma2", None, None),
    ],
)
def test_tokenizers_that_rightly_add_none_are_not_blamed(
    family: str, bos: str | None, says: bool | None, tmp_path: Path
) -> None:
    save(tmp_path, family, bos=bos, adds=False, add_bos_token=says)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HeadwiseWarning)
        assert not begins_with_bos(tmp_path)


@pytest.mark.parametrize("family", ["gemma2", "opt", "llama"])
def test_the_advice_helps(family: str, tmp_path: Path) -> None:
    save(tmp_path, family, bos="<s>", adds=True, add_bos_token=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HeadwiseWarning)
        assert begins_with_bos(tmp_path)


def test_a_broken_tokenizer_config_proves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer_config.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>")
    for text in ("[]", "{", '{"add_bos_token": "yes"}'):
        file.write_text(text)
        assert missing_bos(tokenizer, "llama", file) == ""
