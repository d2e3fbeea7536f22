"""Words: maps words to a tokenizer's pieces, and weights of pieces to weights of words."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError

NO_WORD = -1
CLOSING = frozenset(",.;:!?")  # marks without a space before them


@dataclass(frozen=True)
class Encoded:
    """Token ids of a sentence, and the index of each token's word, -1 for a token without one."""

    input_ids: list[int]
    word_of_token: list[int]

    @property
    def pieces(self) -> list[int]:
        """Number of tokens in each word."""
        return [self.word_of_token.count(word) for word in range(max(self.word_of_token) + 1)]


def join_with_spaces(words: Sequence[str]) -> str:
    """The words as a text, with no space before closing marks.

    >>> join_with_spaces(["It", "rained", "."])
    'It rained.'
    """
    return "".join(word if word in CLOSING else f" {word}" for word in words).lstrip()


def locate_words(words: Sequence[str], text: str) -> list[tuple[int, int]] | None:
    """Start and end of each word in the text; None if the text has other words.

    >>> locate_words(["It", "rained", "."], "It rained.")
    [(0, 2), (3, 9), (9, 10)]
    """
    spans, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            return None
        end = start + len(word)
        spans.append((start, end))
    return None if text[end:].strip() else spans


def encode(words: Sequence[str], tokenizer: Callable[..., Any], text: str = "") -> Encoded | None:
    """Tokens of a sentence with their words; None if a word has no token of its own.

    `text` is the sentence as it is written; without it, the words are joined with spaces. Calls
    `tokenizer(text, return_offsets_mapping=True)`. Special tokens and whitespace belong to no word.
    """
    text = text or join_with_spaces(words)
    spans = locate_words(words, text)
    assert spans is not None, "ProbeSentence checks that its text has its words"
    try:
        pieces = tokenizer(text, return_offsets_mapping=True)
    except NotImplementedError as err:
        raise OptionError(
            f"{type(tokenizer).__name__} does not map tokens to characters: use a "
            "tokenizer that transformers loads from a tokenizer.json"
        ) from err
    starts, word_of_token = [first for first, _ in spans], []
    for start, end in pieces["offset_mapping"]:
        near = range(max(0, bisect_right(starts, start) - 1), bisect_left(starts, end))
        shares = [(min(end, spans[word][1]) - max(start, starts[word]), -word) for word in near]
        most, word = max(shares, default=(0, 0))  # the first word wins a tie
        word_of_token.append(-word if most > 0 else NO_WORD)
    if set(word_of_token) - {NO_WORD} != set(range(len(spans))):
        return None
    return Encoded(list(pieces["input_ids"]), word_of_token)


def merge_pieces(
    weights: Float[Tensor, "heads query key"], word_of_token: Sequence[int]
) -> Float[Tensor, "heads word word"]:
    """Share of each word's attention that goes to each word.

    Weights are summed over the pieces of the attended word and averaged over the pieces of the
    attending word; tokens without a word are dropped (Clark 2019,
    https://arxiv.org/abs/1906.04341).
    """
    place = torch.tensor(word_of_token, dtype=torch.long, device=weights.device)
    words = torch.arange(max(word_of_token, default=NO_WORD) + 1, device=weights.device)
    precise = weights if weights.dtype == torch.float64 else weights.float()
    belongs = (place[:, None] == words).to(precise.dtype)  # token, word
    averages = belongs / belongs.sum(0).clamp(min=1)
    return averages.mT @ (precise @ belongs)
