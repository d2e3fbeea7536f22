"""An untrained model has no head that finds relations, even if words have many pieces."""

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from headwise.reading.corpus import TEXTS
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings


def fine_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with 300 pieces, which splits most words."""
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    pieces.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]", pad_token="[PAD]")


def test_heads_with_random_weights_find_no_relation() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 10}
    model = BertModel(BertConfig(vocab_size=300, intermediate_size=48, **sizes))
    settings = ScanSettings(probe=True, measures=("entropy",))
    table = scan(model, TEXTS[:1], tokenizer=fine_tokenizer(), settings=settings)
    assert table.df["normalised_entropy"].min() > 0.99
    for role in ("syntactic", "semantic", "coreference"):
        assert [str(head) for head in table.with_role(role)] == [], role
