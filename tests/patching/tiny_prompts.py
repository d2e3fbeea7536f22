"""Tiny models with tokenizers for prompts: words between spaces, or pieces of words.

In: the name of a tiny family. Out: a LoadedModel. No checkpoint is loaded.
"""

import functools
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import PreTrainedTokenizerFast

from headwise.models.loaded import LoadedModel

from ..pruning.tiny_models import SPECIAL, words_tokenizer
from ..watching.tiny import tiny

TRAINING_WORDS = "When Mary and John went to the shop , gave bag key keys is are she he near old"


def load_tiny(family: str, tokenizer: Any = None) -> LoadedModel:
    """A tiny model; its tokenizer by default has one token per word and adds no special tokens."""
    return LoadedModel(f"tiny-{family}", tiny(family)[0], tokenizer or words_tokenizer())


def load_encoder(tokenizer: Any = None) -> LoadedModel:
    """A tiny BERT without its prediction head."""
    model: nn.Module = tiny("bert")[0].base_model
    return LoadedModel("tiny-encoder", model, tokenizer or words_tokenizer())


def framed_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of words that puts [CLS] and [SEP] around a text."""
    tokenizer = words_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", SPECIAL["[SEP]"]), ("[CLS]", SPECIAL["[CLS]"])
    )
    return tokenizer


@functools.cache
def _pieces() -> str:
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken("<mask>", lstrip=True)],
        show_progress=False,
    )
    pieces.train_from_iterator([TRAINING_WORDS] * 9, trainer)
    return pieces.to_str()


def pieces_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that has TRAINING_WORDS as tokens, with the space before them."""
    mask = AddedToken("<mask>", lstrip=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_pieces()), mask_token=mask, model_max_length=40
    )
