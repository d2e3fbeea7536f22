"""An untrained model has no head that finds relations, even if words have many pieces."""

from collections import Counter
from collections.abc import Iterable

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoConfig,
    BertConfig,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from headwise.reading.corpus import scan_texts
from headwise.roles import RELATIONAL
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings

from ..watching.tiny import spread_out
from ..watching.tiny_configs import FAMILIES


def trained_tokenizer(texts: Iterable[str], size: int) -> PreTrainedTokenizerFast:
    """A tokenizer with up to `size` pieces of the words in the texts."""
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=special, show_progress=False
    )
    pieces.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]", pad_token="[PAD]")


def fine_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with 300 pieces, which splits most words; the same at every call."""
    counts = Counter(" ".join(scan_texts()).lower().split())
    letters = sorted({letter for word in counts for letter in word})
    words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    pieces = dict.fromkeys([*letters, *(f"##{letter}" for letter in letters), *words])
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *pieces][:300]
    inner = Tokenizer(
        models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    )
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]")


def letters_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that knows single characters only."""
    return trained_tokenizer(scan_texts(), 4)


def unknowing_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of another script, for which most English words are unknown."""
    return trained_tokenizer(["MKTAYIAKQR QISFVKSHFS RQ"], 300)


def test_heads_with_random_weights_find_no_relation() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 10}
    model = BertModel(BertConfig(vocab_size=300, intermediate_size=48, **sizes))
    settings = ScanSettings(probe=True, measures=("entropy",))
    table = scan(model, scan_texts()[0], tokenizer=fine_tokenizer(), settings=settings)
    assert table.df["normalised_entropy"].min() > 0.99
    for role in ("syntactic", "semantic", "coreference"):
        assert [str(head) for head in table.with_role(role)] == [], role


TEXT_FAMILIES = [
    name
    for name, family in FAMILIES.items()
    if family.kind in ("encoder", "decoder", "encoder-decoder")
]
SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5)))


def untrained(name: str, seed: int) -> PreTrainedModel:
    """A model of the family with random weights that make its attention sharp."""
    family = FAMILIES[name]
    limits = {"vocab_size": 300, "max_position_embeddings": 512}
    limits |= {"max_seq_len": 512} if name == "mpt" else {}
    config = AutoConfig.for_model(family.model_type or name, **dict(family.config) | limits)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, family.auto).from_config(config, **family.options)
        spread_out(model)
    return model.eval()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TEXT_FAMILIES)
def test_untrained_models_of_every_family_have_no_relational_role(name: str, seed: int) -> None:
    settings = ScanSettings(
        length=128,
        rows=1,
        measures="entropy",
        compares=False,
        repeats=False,
        probe=True,
        max_sentences=300,
        per_relation=40,
    )
    table = scan(untrained(name, seed), "A b.", tokenizer=fine_tokenizer(), settings=settings)
    held = {role: [str(head) for head in table.with_role(role)] for role in RELATIONAL}
    assert held == {role: [] for role in RELATIONAL}
    assert "syntactic_score" in table.df
