"""Words: maps words to a tokenizer's pieces, and weights of pieces to weights of words."""

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


def write_sentence(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The sentence as text, and the start and end of each word in it.

    >>> write_sentence(["It", "rained", "."])
    ('It rained.', [(0, 2), (3, 9), (9, 10)])
    """
    text, spans = "", []
    for word in words:
        text += " " if text and word not in CLOSING else ""
        spans.append((len(text), len(text) + len(word)))
        text += word
    return text, spans


def encode(words: Sequence[str], tokenizer: Callable[..., Any]) -> Encoded | None:
    """Tokens of the sentence with their words; None if a word has no token of its own.

    Special tokens and whitespace belong to no word. `tokenizer` is called as Hugging Face's are.
    """
    text, spans = write_sentence(words)
    try:
        pieces = tokenizer(text, return_offsets_mapping=True)
    except NotImplementedError as err:
        raise OptionError(
            f"{type(tokenizer).__name__} does not map tokens to characters: use a "
            "tokenizer that transformers loads from a tokenizer.json"
        ) from err
    word_of_token = []
    for start, end in pieces["offset_mapping"]:
        shares = [min(end, last) - max(start, first) for first, last in spans]
        most = max(shares, default=0)  # the first word wins a tie
        word_of_token.append(shares.index(most) if most > 0 else NO_WORD)
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
