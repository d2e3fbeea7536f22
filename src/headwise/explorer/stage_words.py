"""The words of a text as the stage shows them, and the tokens that each of them consists of.

In: a text, its token ids and a tokenizer. Out: a StageText. Punctuation marks are words of their
own, special tokens keep their place, and a token that spans two words joins them. If the tokenizer
does not map tokens to characters, or the text has no spaces, there are only pieces.
"""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from headwise.explorer.api_types import StageWord
from headwise.reading.labels import WORD_STARTS, token_text
from headwise.reading.reader import Reader, Window

NO_OFFSETS = (
    "The tokenizer does not say which characters a token stands for, so the text is shown in pieces"
)
NO_SPACES = "The text is written without spaces between words, so it is shown in pieces"
NO_TOKENS = "The model's positions are not tokens of the text, so they are shown by number"
DROPPED = "The tokenizer leaves out {word}, so the text is shown in pieces"
REORDERED = "The tokens are not in the order of the text, so it is shown in pieces"
JOINERS = frozenset("'-._@&:/+\N{RIGHT SINGLE QUOTATION MARK}\N{HYPHEN}\N{NON-BREAKING HYPHEN}")
"""Marks that belong to a word if they stand between two of its characters."""
SPACELESS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts that are written without spaces, as in the names of their characters."""
SAMPLE = 2000
"""Number of characters that decide whether a text has spaces."""
LINE_BREAK, SPACE = "↵", "␣"
BLANKS = {"\\n": LINE_BREAK, **dict.fromkeys(WORD_STARTS, SPACE)}

Kind = Literal["word", "mark", "special"]
Span = tuple[int, int]


@dataclass(frozen=True)
class StageText:
    """The words of a text and the positions of each word's tokens, in order."""

    pieces: tuple[StageWord, ...]
    words: tuple[StageWord, ...] = ()
    """Empty if whole words are not available."""
    groups: tuple[tuple[int, ...], ...] = ()
    why_no_words: str | None = None
    is_unknown: bool = False
    """Whether more than half of the tokens stand for unknown words."""

    @cached_property
    def word_of(self) -> tuple[int, ...]:
        """Index of the word that each piece belongs to."""
        return tuple(word for word, group in enumerate(self.groups) for _ in group)


@dataclass(frozen=True)
class Tokens:
    """Token ids with the special tokens around them, and the tokenizer that made them."""

    ids: tuple[int, ...]
    around: tuple[int, int]
    """Number of special tokens that the tokenizer adds before and after the text."""
    tokenizer: Any

    @classmethod
    def of_window(cls, reader: Reader, window: Window) -> "Tokens":
        """The tokens of a window that a reader has cut."""
        before, after = reader.around
        return cls(window.ids, (len(before), len(after)), reader.tokenizer)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of special tokens, without the one that stands for unknown words."""
        unknown = {getattr(self.tokenizer, "unk_token_id", None)}
        return frozenset(set(self.tokenizer.all_special_ids) - unknown)

    @property
    def is_unknown(self) -> bool:
        """Whether more than half of the text's tokens stand for unknown words."""
        before, after = self.around
        inner = self.ids[before : len(self.ids) - after]
        return 2 * inner.count(getattr(self.tokenizer, "unk_token_id", None)) > len(inner)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Readable text of each token."""
        ids = list(self.ids)
        names = self.tokenizer.convert_ids_to_tokens(ids)
        return tuple(
            str(id_) if name is None else token_text(name, self.tokenizer.decode([id_]))
            for id_, name in zip(ids, names, strict=True)
        )

    def is_around(self, position: int) -> bool:
        """Whether the tokenizer added the token around the text."""
        before, after = self.around
        return not before <= position < len(self.ids) - after

    def is_special(self, position: int) -> bool:
        """Whether a token is special; unknown words are not."""
        return self.is_around(position) or self.ids[position] in self.special_ids

    def spans(self, text: str) -> list[Span] | None:
        """Characters of each token, without white space around them; None if they are unknown.

        Tokens around the text have an empty span at its start or end.
        """
        if not getattr(self.tokenizer, "is_fast", False):
            return None
        encoded = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        before, after = self.around
        inner = self.ids[before : len(self.ids) - after]
        if tuple(encoded["input_ids"][: len(inner)]) != inner:
            return None
        spans = [_trim(text, *span) for span in encoded["offset_mapping"][: len(inner)]]
        return [(0, 0)] * before + spans + [(len(text), len(text))] * after


def _trim(text: str, start: int, end: int) -> Span:
    """A span without white space around its characters; unchanged if it has nothing else."""
    inner = text[start:end]
    if not inner.strip():
        return start, end
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def read_stage_text(text: str, tokens: Tokens) -> StageText:
    """The pieces of a text and, if possible, its words."""
    spans = tokens.spans(text)
    pieces = _pieces(text, tokens, spans)
    if spans is None:
        return StageText(pieces, why_no_words=NO_OFFSETS)
    if is_spaceless(text):
        return StageText(pieces, why_no_words=NO_SPACES)
    return _join_pieces(text, tokens, spans, pieces)


def is_spaceless(text: str) -> bool:
    """Whether most of a text's letters are of scripts that are written without spaces."""
    letters = [mark for mark in text[:SAMPLE] if mark.isalpha()]
    names = (unicodedata.name(letter, "") for letter in letters)
    return sum(name.startswith(SPACELESS) for name in names) * 2 > len(letters)


def _pieces(text: str, tokens: Tokens, spans: list[Span] | None) -> tuple[StageWord, ...]:
    names = tokens.tokenizer.convert_ids_to_tokens(list(tokens.ids))
    marks_starts = any(str(name).startswith(WORD_STARTS) for name in names)
    pieces, end = [], 0
    for position, label in enumerate(tokens.texts):
        is_special = tokens.is_special(position)
        kind: Kind = "special" if is_special else "mark" if _is_mark(label) else "word"
        if position == 0:
            space = False
        elif tokens.is_around(position) or tokens.is_around(position - 1):
            space = True
        elif spans is not None:
            start = spans[position][0]
            space = start >= end and text[start - 1 : start].isspace()
        else:
            name = str(names[position])
            space = name.startswith(WORD_STARTS) if marks_starts else not name.startswith("##")
        if spans is not None:
            end = spans[position][1]
        pieces.append(StageWord(BLANKS.get(label, label), space, kind))
    return tuple(pieces)


def _is_mark(text: str) -> bool:
    return bool(text) and all(unicodedata.category(mark)[0] == "P" for mark in text)


def split_text(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[Span, Kind]]:
    """Every word and punctuation mark between two places in a text.

    >>> text = "He said: well-known, I didn't..."
    >>> [text[slice(*span)] for span, _ in split_text(text)]
    ['He', 'said', ':', 'well-known', ',', 'I', "didn't", '...']
    """
    end = len(text) if end is None else end
    while start < end:
        if text[start].isspace():
            start += 1
            continue
        stop = start + 1
        if is_mark := _is_mark(text[start]):
            while stop < end and text[stop] == text[start]:
                stop += 1
        else:
            while stop < end and _continues_word(text, stop, end):
                stop += 1
        yield (start, stop), "mark" if is_mark else "word"
        start = stop


def _continues_word(text: str, place: int, end: int) -> bool:
    mark = text[place]
    if mark.isspace():
        return False
    if not _is_mark(mark):
        return True
    follows = text[place + 1 : min(place + 2, end)]
    return mark in JOINERS and follows.strip() != "" and not _is_mark(follows)


def _join_pieces(
    text: str, tokens: Tokens, spans: list[Span], pieces: tuple[StageWord, ...]
) -> StageText:
    """The words of a text whose tokens have known spans."""
    found = _locate_words(text, tokens, spans)
    words = [span for span, _ in found]
    overlaps = [
        None if tokens.is_around(position) else _overlap(span, words)
        for position, span in enumerate(spans)
    ]
    joined = list(range(len(words)))
    last = max((overlap[1] for overlap in overlaps if overlap), default=-1)
    is_read = [False] * len(words)
    for overlap in filter(None, overlaps):
        for word in range(overlap[0], overlap[1] + 1):
            joined[word] = min(joined[word], joined[overlap[0]])
            is_read[word] = True
    for (start, end), read in zip(words[: last + 1], is_read, strict=False):
        if not read and any(_is_visible(mark) for mark in text[start:end]):
            return StageText(pieces, why_no_words=DROPPED.format(word=text[start:end]))
    return _group_tokens(text, tokens, spans, pieces, _Words(found, joined, overlaps))


def _is_visible(mark: str) -> bool:
    return unicodedata.category(mark) not in ("Cc", "Cf", "Mn")


def _locate_words(text: str, tokens: Tokens, spans: list[Span]) -> list[tuple[Span, Kind]]:
    """Words and marks in order; a special token inside the text is a word of its own."""
    special = [
        span
        for position, span in enumerate(spans)
        if tokens.is_special(position) and not tokens.is_around(position) and span[0] < span[1]
    ]
    found: list[tuple[Span, Kind]] = []
    for (_, start), (stop, end) in pairwise([(0, 0), *special, (len(text), len(text))]):
        found += split_text(text, start, stop)
        if stop < end:
            found.append(((stop, end), "special"))
    return found


def _overlap(span: Span, words: Sequence[Span]) -> Span | None:
    """First and last word that share characters with a span; None if there is none."""
    first = bisect_right(words, span[0], key=lambda word: word[1])
    last = bisect_left(words, span[1], key=lambda word: word[0]) - 1
    return (first, last) if first <= last else None


@dataclass(frozen=True)
class _Words:
    """Words in a text, the first word that each is joined to, and each token's words."""

    found: list[tuple[Span, Kind]]
    joined: list[int]
    overlaps: list[Span | None]


def _group_tokens(
    text: str, tokens: Tokens, spans: list[Span], pieces: tuple[StageWord, ...], words: _Words
) -> StageText:
    """Consecutive tokens of one word as a group; line breaks are marks of their own."""
    keys = _group_keys(text, tokens, spans, words)
    groups: list[list[int]] = []
    for position, key in enumerate(keys):
        if position and key == keys[position - 1]:
            groups[-1].append(position)
        else:
            groups.append([position])
    firsts = [keys[group[0]] for group in groups]
    if len(set(firsts)) < len(firsts):
        return StageText(pieces, why_no_words=REORDERED)
    shown = []
    for group, key in zip(groups, firsts, strict=True):
        if isinstance(key, str):
            shown.append(_lone_token(text, tokens, spans, pieces, group[0]))
            continue
        last = key
        while last + 1 < len(words.joined) and words.joined[last + 1] == key:
            last += 1
        start, end = words.found[key][0][0], words.found[last][0][1]
        kinds = {kind for _, kind in words.found[key : last + 1]}
        kind: Kind = "special" if "special" in kinds else "word" if "word" in kinds else "mark"
        follows = group[0] > 0 and (
            text[start - 1 : start].isspace() or tokens.is_around(group[0] - 1)
        )
        shown.append(StageWord(text[start:end], follows, kind))
    return StageText(pieces, tuple(shown), tuple(map(tuple, groups)))


def _lone_token(
    text: str, tokens: Tokens, spans: list[Span], pieces: tuple[StageWord, ...], position: int
) -> StageWord:
    """A token outside all words: a special token around the text, or white space."""
    if tokens.is_around(position):
        return pieces[position]
    is_break = "\n" in text[slice(*spans[position])]
    return StageWord(LINE_BREAK if is_break else SPACE, False, "mark")


def _group_keys(text: str, tokens: Tokens, spans: list[Span], words: _Words) -> list[int | str]:
    """For each token, the first of its joined words, or a name of its own.

    White space without a line break belongs to the word that follows.
    """
    keys: list[int | str] = []
    following: int | str | None = None
    for position in reversed(range(len(spans))):
        overlap = words.overlaps[position]
        key: int | str = f"token {position}"
        if overlap is not None:
            key = words.joined[overlap[0]]
        elif (
            not tokens.is_around(position)
            and "\n" not in text[slice(*spans[position])]
            and isinstance(following, int)
        ):
            key = following
        keys.append(key)
        following = key
    return keys[::-1]
