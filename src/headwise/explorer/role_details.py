"""A few words on how a head holds a role, such as "one word back", for the page's headline.

In: a role and its detail in a head table. Out: a phrase without a verb.
"""

import re

NUMBERS = ("no", "one", "two", "three", "four")
RELATED = "related words"
MENTIONS = {False: "an earlier mention", True: "a mention of the same thing"}
"""Phrases for coreference, by whether the noun looks at the pronoun or is compared by column."""
PHRASES = {
    ("sink", "first"): "the first token",
    ("sink", "first four"): "the first four tokens",
    ("delimiter", "special"): "special tokens",
    ("delimiter", "punctuation"): "punctuation",
    ("induction", ""): "what followed an earlier copy",
    ("duplicate", ""): "an earlier copy",
    ("broad", ""): "many words",
}


def role_detail(role: str, detail: str) -> str:
    """A few words on a role's detail; the detail itself if it is of an unknown kind.

    >>> role_detail("positional", "-1"), role_detail("syntactic", "obj (object -> verb)")
    ('one word back', 'object and verb')
    """
    if role == "positional" and re.fullmatch(r"[+-][0-9]+", detail):
        return _offset(int(detail))
    if role == "semantic":
        return RELATED
    if role == "coreference":
        return MENTIONS["(noun ->" in detail]
    pair = re.search(r"\(([^()]*) -> ([^(),]*)", detail)
    if role == "syntactic" and pair is not None:
        return f"{pair[1]} and {pair[2]}"
    return PHRASES.get((role, detail), detail)


def _offset(offset: int) -> str:
    count = NUMBERS[abs(offset)] if abs(offset) < len(NUMBERS) else str(abs(offset))
    words = "word" if abs(offset) == 1 else "words"
    return f"{count} {words} {'back' if offset < 0 else 'ahead'}"
