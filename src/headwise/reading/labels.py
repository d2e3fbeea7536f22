"""Labels: the text to print next to each query and key."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwise.reading.batch import UNDECODABLE, Batch, TokenFacts
from headwise.reading.words import NO_WORD

WORD_STARTS = ("Ġ", "▁")
"""Characters that tokenizers write for the space before a word."""
MARKS = str.maketrans({**dict.fromkeys(WORD_STARTS, ""), "Ċ": "\\n"})
"""Replacements for the characters that tokenizers write for spaces and line breaks."""


@dataclass(frozen=True)
class Labels:
    """Texts to print next to queries and keys, and facts about the keys."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    is_special: tuple[bool, ...] = ()
    """Whether each key is special; empty if unknown."""
    word_of: tuple[int, ...] = ()
    """Index of the word that contains each key, -1 for a key without one; empty if unknown."""

    @property
    def is_self(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.queries == self.keys


def token_labels(
    batch: Batch, stack: str, tokenizer: Any, num_queries: int, num_keys: int
) -> Labels:
    """Labels for a stack's queries and keys in the first sequence of a batch."""
    facts = batch.key_tokens(stack, num_keys)
    keys = _token_texts(facts, tokenizer, num_keys)
    queries = _token_texts(batch.query_tokens(stack, num_queries), tokenizer, num_queries)
    if facts is None or facts.ids is None or facts.is_special is None:
        return Labels(queries, keys)
    special = tuple(facts.is_special[0].tolist())
    return Labels(queries, keys, special, word_numbers(special, tokenizer, facts.ids[0].tolist()))


def _token_texts(facts: TokenFacts | None, tokenizer: Any, size: int) -> tuple[str, ...]:
    """Readable text of each token, or its position if the token is unknown."""
    if facts is None or facts.ids is None or tokenizer is None:
        return tuple(map(str, range(size)))
    ids = facts.ids[0].tolist()
    pieces = tokenizer.convert_ids_to_tokens(ids)
    return tuple(
        token_text(piece, tokenizer.decode([token]))
        for token, piece in zip(ids, pieces, strict=True)
    )


def token_text(piece: str, text: str) -> str:
    """A token's decoded text, or its vocabulary entry if it cannot be decoded.

    >>> token_text("Ġcaf", " caf"), token_text("##s", "##s"), token_text("Ċ", "\\n")
    ('caf', 's', '\\\\n')
    >>> token_text("Ã", "\ufffd")
    'Ã'
    """
    readable = text.strip().removeprefix("##")
    if readable and UNDECODABLE not in readable:
        return readable
    return piece.translate(MARKS) or piece


def word_numbers(special: tuple[bool, ...], tokenizer: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """Index of the word that contains each token; -1 for special tokens."""
    pieces = tokenizer.convert_ids_to_tokens(ids)
    two_words = tokenizer("a a", add_special_tokens=False)["input_ids"]
    marks_starts = any(
        piece.startswith(WORD_STARTS) for piece in tokenizer.convert_ids_to_tokens(two_words)
    )  # otherwise the tokenizer marks pieces that continue a word
    numbers, word, previous = [], NO_WORD, ""
    for piece, token, is_special in zip(pieces, ids, special, strict=True):
        if is_special:
            numbers.append(NO_WORD)
            previous = ""
            continue
        text = tokenizer.decode([token])
        if marks_starts:
            joins = _is_in_word(previous[-1:]) and _is_in_word(text[:1])
            continues = joins and not piece.startswith(WORD_STARTS)
        else:
            continues = piece.startswith("##") and previous != ""
        word += 0 if continues else 1
        numbers.append(word)
        previous = text
    return tuple(numbers)


def _is_in_word(character: str) -> bool:
    """Whether a character is a letter, a digit or an accent, or replaces undecodable bytes."""
    return character == UNDECODABLE or unicodedata.category(character or " ")[0] in "LMN"
