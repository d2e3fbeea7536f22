"""A model that has learnt nothing has no head that finds relations, however words are split."""

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from headwise.reading.corpus import TEXTS
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings


def fine_tokenizer() -> PreTrainedTokenizerFast:
    """Most words are several of its 300 pieces."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    made.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")


def test_heads_with_random_weights_find_no_relation() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 10}
    model = BertModel(BertConfig(vocab_size=300, intermediate_size=48, **sizes))
    settings = ScanSettings(probe=True, measures=("entropy",))
    table = scan(model, TEXTS[:1], tokenizer=fine_tokenizer(), settings=settings)
    assert table.df["normalised_entropy"].min() > 0.99
    for role in ("syntactic", "semantic", "coreference"):
        assert [str(head) for head in table.with_role(role)] == [], role
