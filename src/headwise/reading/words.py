"""From words to a tokenizer's pieces, and from weights between pieces to weights between words.

In: words and any tokenizer with Hugging Face's call interface, or weights and the word of each
token. Out: token ids with the word that each belongs to, or weights between words. This module
refuses to know models and relations; it loads no tokenizer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError, ShapeError

NO_WORD = -1
CLOSING = frozenset(",.;:!?")  # marks that are written without a space before them


@dataclass(frozen=True)
class Encoded:
    """Token ids of a sentence, and the word of each; -1 where a token belongs to no word."""

    input_ids: list[int]
    word_of_token: list[int]

    @property
    def pieces(self) -> list[int]:
        """How many tokens each word has."""
        return [self.word_of_token.count(word) for word in range(max(self.word_of_token) + 1)]


def spell(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The sentence as it is written, and where each word starts and ends in it.

    >>> spell(["It", "rained", "."])
    ('It rained.', [(0, 2), (3, 9), (9, 10)])
    """
    text, spans = "", []
    for word in words:
        text += " " if text and word not in CLOSING else ""
        spans.append((len(text), len(text) + len(word)))
        text += word
    return text, spans


def word_at(start: int, end: int, spans: Sequence[tuple[int, int]]) -> int:
    """The word that holds most of the characters from start to end, the first of equals."""
    shares = [min(end, last) - max(start, first) for first, last in spans]
    most = max(shares, default=0)
    return shares.index(most) if most > 0 else NO_WORD


def encode(words: Sequence[str], tokenizer: Callable[..., Any]) -> Encoded | None:
    """Tokens of the written sentence with their words; None where a word is left without a token.

    The tokenizer is asked as `tokenizer(text, return_offsets_mapping=True)`. Special tokens, and
    tokens of nothing but space, belong to no word.
    """
    text, spans = spell(words)
    try:
        pieces = tokenizer(text, return_offsets_mapping=True)
    except NotImplementedError as err:
        raise OptionError(
            f"{type(tokenizer).__name__} does not say which characters a token stands for: "
            "give one that transformers makes of a tokenizer.json"
        ) from err
    word_of_token = [word_at(start, end, spans) for start, end in pieces["offset_mapping"]]
    if set(word_of_token) - {NO_WORD} != set(range(len(spans))):
        return None
    return Encoded(list(pieces["input_ids"]), word_of_token)


def word_weights(
    weights: Float[Tensor, "heads query key"], word_of_token: Sequence[int]
) -> Float[Tensor, "heads word word"]:
    """Share of its attention that each word gives each other word; to itself it gives none."""
    between = merged_pieces(weights, word_of_token)
    between.diagonal(dim1=1, dim2=2).zero_()
    return between


def merged_pieces(
    weights: Float[Tensor, "heads query key"], word_of_token: Sequence[int]
) -> Float[Tensor, "heads word word"]:
    """Share of its attention that each word gives each word.

    Summed over the pieces of the word looked at, averaged over the pieces of the word that looks;
    tokens of no word are dropped (Clark 2019, https://arxiv.org/abs/1906.04341).
    """
    tokens = len(word_of_token)
    if weights.shape[1:] != (tokens, tokens):
        raise ShapeError(
            f"weights are {weights.shape[1]} x {weights.shape[2]} tokens: "
            f"word_of_token names the words of {tokens}"
        )
    place = torch.tensor(word_of_token, dtype=torch.long, device=weights.device)
    words = torch.arange(max(word_of_token, default=NO_WORD) + 1, device=weights.device)
    exact = weights if weights.dtype == torch.float64 else weights.float()
    belongs = (place[:, None] == words).to(exact.dtype)  # token, word
    averages = belongs / belongs.sum(0).clamp(min=1)
    return averages.mT @ (exact @ belongs)
