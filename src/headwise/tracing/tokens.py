"""Tokens: what to write beside each position of a trace.

In: what a model was called with, and its tokenizer. Out: labels, special tokens and words.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

from headwise.reading.batch import Batch
from headwise.reading.reader import UNREADABLE
from headwise.reading.tokens import Labels
from headwise.reading.words import NO_WORD
from headwise.watching.calls import Call

MARKS = str.maketrans({"Ġ": "", "▁": "", "Ċ": "\\n"})
"""What tokenizers write for a space before a word or the end of a line."""


def labels_of(batch: Batch, stack: str, tokenizer: Any, call: Call) -> Labels:
    """Labels of the queries and keys of the first sequence."""
    of_keys = batch.key_tokens(stack, call.num_keys)
    of_queries = batch.query_tokens(stack, call.num_queries)
    keys = names_of(of_keys, tokenizer, call.num_keys)
    queries = names_of(of_queries, tokenizer, call.num_queries)
    if of_keys is None or of_keys.ids is None or of_keys.is_special is None:
        return Labels(queries, keys)
    special = tuple(of_keys.is_special[0].tolist())
    return Labels(queries, keys, special, words_of(special, tokenizer, of_keys.ids[0].tolist()))


def names_of(facts: Any, tokenizer: Any, size: int) -> tuple[str, ...]:
    """Each token as it reads, or its position where nothing is known of it."""
    if facts is None or facts.ids is None or tokenizer is None:
        return tuple(map(str, range(size)))
    ids = facts.ids[0].tolist()
    pieces = tokenizer.convert_ids_to_tokens(ids)
    return tuple(
        label(piece, tokenizer.decode([token])) for token, piece in zip(ids, pieces, strict=True)
    )


def label(piece: str, text: str) -> str:
    """What to write for a token: its text, or its piece where that is no text of its own.

    >>> label("Ġcaf", " caf"), label("##s", "##s"), label("Ċ", "\\n"), label("Ã", "\ufffd")
    ('caf', 's', '\\\\n', 'Ã')
    """
    shown = text.strip().removeprefix("##")
    return shown if shown and UNREADABLE not in shown else piece.translate(MARKS) or piece


def words_of(special: tuple[bool, ...], tokenizer: Any, ids: Sequence[int]) -> tuple[int, ...]:
    """For each token the word it is a piece of: a piece goes on with the word before it."""
    if tokenizer is None:
        return ()
    pieces, marked = tokenizer.convert_ids_to_tokens(ids), marks(tokenizer)
    found, word, before = [], NO_WORD, ""
    for piece, token, is_special in zip(pieces, ids, special, strict=True):
        if is_special:
            found.append(NO_WORD)
            before = ""
            continue
        text = tokenizer.decode([token])
        if marked:
            is_joined = in_word(before[-1:]) and in_word(text[:1])
            goes_on = is_joined and not piece.startswith(("Ġ", "▁"))
        else:
            goes_on = piece.startswith("##") and before != ""
        word += 0 if goes_on else 1
        found.append(word)
        before = text
    return tuple(found)


def in_word(character: str) -> bool:
    """Whether a character is a letter, a digit, an accent, or a part of one that takes several.

    >>> in_word("é"), in_word("-"), in_word("\\n"), in_word("")
    (True, False, False, False)
    """
    if not character:
        return False
    return character == UNREADABLE or unicodedata.category(character)[0] in "LMN"


def marks(tokenizer: Any) -> bool:
    """Whether a tokenizer marks where words begin, and not where they go on."""
    ids = tokenizer("a a", add_special_tokens=False)["input_ids"]
    return any(piece.startswith(("Ġ", "▁")) for piece in tokenizer.convert_ids_to_tokens(ids))
