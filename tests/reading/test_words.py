"""Tokens find their words, and weights between tokens become weights between words."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from headwise.errors import OptionError
from headwise.probes.builtin import WORKED_SENTENCES, builtin_sentences
from headwise.reading.words import (
    NO_WORD,
    encode,
    join_with_spaces,
    locate_words,
    merge_pieces,
)

from ..attention.tolerance import assert_same

WORDS = ("The", "animal", "didn't", "cross", ",", "naïvely", "😀", "tired", ".")


def byte_level() -> PreTrainedTokenizerFast:
    """A tokenizer like GPT-2's without merges: every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("c", "r"), ("i", "r")]
    pieces = [*alphabet, *("".join(merge) for merge in merges)]
    inner = Tokenizer(models.BPE({piece: k for k, piece in enumerate(pieces)}, merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def word_pieces() -> PreTrainedTokenizerFast:
    """A tokenizer like BERT's: lower case, [CLS] and [SEP], pieces that start with ##."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    known = ["[UNK]", "[CLS]", "[SEP]", "the", "animal", "cross", "tire", "##d", *".,'?"]
    pieces = [*known, *letters, *(f"##{letter}" for letter in letters if letter != "d")]
    inner = Tokenizer(models.WordPiece({p: k for k, p in enumerate(pieces)}, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return PreTrainedTokenizerFast(tokenizer_object=inner)


class Fixed:
    """A tokenizer with a constant result."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.spans = list(spans)

    def __call__(self, text: str, *, return_offsets_mapping: bool) -> dict[str, Any]:
        assert return_offsets_mapping
        return {"input_ids": list(range(len(self.spans))), "offset_mapping": self.spans}


class Slow:
    def __call__(self, text: str, *, return_offsets_mapping: bool) -> dict[str, Any]:
        raise NotImplementedError


def test_closing_marks_have_no_space_before_them() -> None:
    text = join_with_spaces(WORDS)
    spans = locate_words(WORDS, text)
    assert spans is not None
    assert text == "The animal didn't cross, naïvely 😀 tired."
    assert tuple(text[start:end] for start, end in spans) == WORDS


@pytest.mark.parametrize(
    "text", ["She left, he stayed", "She left", "She left. He stayed.", "left She .", "She-left."]
)
def test_words_that_are_not_those_of_the_text_have_no_places(text: str) -> None:
    assert locate_words(("She", "left", "."), text) is None


def test_a_text_keeps_its_own_spaces() -> None:
    words = ("Say", '"', "no", '"', ",", "not", "£", "5", ".")
    text = 'Say "no", not £5.'
    encoded = encode(words, byte_level(), text)
    assert encoded is not None
    assert byte_level().decode(encoded.input_ids) == text
    assert set(encoded.word_of_token) >= set(range(len(words)))


@pytest.mark.parametrize("make", [byte_level, word_pieces])
@pytest.mark.parametrize(
    "words",
    [WORDS, *(sentence.words for sentence in WORKED_SENTENCES)],
    ids=lambda words: "-".join(words[:3]),
)
def test_the_pieces_of_a_word_spell_the_word(make: Any, words: tuple[str, ...]) -> None:
    tokenizer = make()
    text = join_with_spaces(words)
    encoded = encode(words, tokenizer)
    assert encoded is not None
    pieces = tokenizer(text, return_offsets_mapping=True)
    assert encoded.input_ids == pieces["input_ids"]
    for place, word in enumerate(words):
        spans = [
            span
            for span, owner in zip(pieces["offset_mapping"], encoded.word_of_token, strict=True)
            if owner == place
        ]
        assert text[spans[0][0] : spans[-1][1]].strip() == word


def test_special_tokens_belong_to_no_word() -> None:
    encoded = encode(("The", "animal", "tired", "."), word_pieces())
    assert encoded is not None
    assert encoded.word_of_token == [NO_WORD, 0, 1, 2, 2, 3, NO_WORD]


def test_every_builtin_sentence_can_be_encoded() -> None:
    tokenizer = byte_level()
    assert all(encode(sentence.words, tokenizer) for sentence in builtin_sentences(11))


@pytest.mark.parametrize(
    ("spans", "owners"),
    [
        ([(0, 2), (2, 7)], [0, 1]),  # "It", " rain"
        ([(0, 2), (2, 4), (4, 7)], [0, 1, 1]),
        ([(0, 1), (1, 6), (6, 7)], [0, 1, 1]),  # "t rai" is mostly in "rain"
        ([(0, 1), (1, 4), (4, 7)], [0, 0, 1]),  # "t r": the first of equals
        ([(0, 0), (0, 2), (2, 3), (3, 7)], [NO_WORD, 0, NO_WORD, 1]),  # a token of whitespace
    ],
)
def test_a_token_belongs_to_the_word_with_most_of_its_characters(
    spans: list[tuple[int, int]], owners: list[int]
) -> None:
    encoded = encode(("It", "rain"), Fixed(spans))
    assert encoded is not None
    assert encoded.word_of_token == owners


def test_a_word_without_a_token_makes_the_sentence_unusable() -> None:
    assert encode(("It", "rain"), Fixed([(0, 7)])) is None
    assert encode(("It", "", "rain"), word_pieces()) is None


def test_a_tokenizer_without_offsets_raises() -> None:
    with pytest.raises(OptionError, match="Slow"):
        encode(("It", "rains"), Slow())


def in_a_loop(weights: Tensor, word_of_token: Sequence[int]) -> Tensor:
    """`merge_pieces` by its definition, in loops."""
    heads, tokens, _ = weights.shape
    words = max(word_of_token) + 1
    between = torch.zeros(heads, words, words, dtype=torch.float64)
    for head in range(heads):
        for query in range(tokens):
            for key in range(tokens):
                source, target = word_of_token[query], word_of_token[key]
                if NO_WORD not in (source, target):
                    share = weights[head, query, key].double() / word_of_token.count(source)
                    between[head, source, target] += share
    return between


owners = st.lists(st.integers(NO_WORD, 4), min_size=1, max_size=11).filter(lambda w: max(w) >= 0)


@given(owners, st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
def test_weights_between_words_are_means_of_sums(word_of: list[int], dtype: torch.dtype) -> None:
    weights = torch.rand(3, len(word_of), len(word_of)).softmax(-1).to(dtype)
    got = merge_pieces(weights, word_of)
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_same(got, in_a_loop(weights, word_of), roundings=2 * len(word_of))


def test_single_token_words_keep_their_weights() -> None:
    weights = torch.rand(3, 7, 7, dtype=torch.float64)
    assert_same(merge_pieces(weights, range(7)), weights, roundings=0)
