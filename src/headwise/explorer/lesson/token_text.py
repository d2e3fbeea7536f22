"""Lesson words: tokens and numbers as a sentence shows them.

In: a token, a number. Out: text. Tokens are the learner's own: whatever is in them is shown, and
nothing of it can steer the text around it.
"""

import math
import unicodedata
from collections.abc import Sequence

LONGEST_TOKEN = 24
"""Characters of a token that a sentence shows."""
HIDDEN = "\N{MIDDLE DOT}"


def visible(token: str) -> str:
    """A token without characters that have no shape, or that turn the direction of writing."""
    shown = "".join(mark if mark.isprintable() else HIDDEN for mark in token)
    return shown or HIDDEN


def quoted(token: str) -> str:
    """A token inside a sentence; one written from right to left is set apart from what follows.

    >>> quoted("cat"), quoted("two words"), quoted("x" * 30)
    ('"cat"', '"two·words"', '"xxxxxxxxxxxxxxxxxxxxxxx…"')
    """
    shown = HIDDEN.join(visible(token).split()) or HIDDEN
    if len(shown) > LONGEST_TOKEN:
        shown = shown[: LONGEST_TOKEN - 1] + "\N{HORIZONTAL ELLIPSIS}"
    if any(unicodedata.bidirectional(mark) in ("R", "AL") for mark in shown):
        shown = f"\N{FIRST STRONG ISOLATE}{shown}\N{POP DIRECTIONAL ISOLATE}"
    return f'"{shown}"'


def number(value: int | float) -> str:
    """Three digits that count; whole numbers whole.

    >>> number(0.03571), number(-12.345), number(384), number(1536.0), number(0.00001234)
    ('0.0357', '-12.3', '384', '1536', '0.0000123')
    >>> number(0.1003), number(123.4)
    ('0.100', '123')
    """
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    digits = f"{value:#.3g}".removesuffix(".")
    if "e" not in digits:
        return digits
    return f"{value:.0f}" if abs(value) >= 1 else tiny(value)


def tiny(value: float) -> str:
    """A small number with three digits that count, written out unless that takes too long."""
    places = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{places}f}" if places <= MOST_PLACES else f"{value:.1e}"


def power(value: float) -> str:
    """Two digits and a power of ten, as the figures write it.

    >>> power(2.384e07)
    '2.4e7'
    """
    digits, _, ten = f"{value:.1e}".partition("e")
    return f"{digits}e{int(ten)}".replace("-", "\N{MINUS SIGN}")


MOST_PLACES = 10
"""Digits after the point that are still read."""


def share(value: int | float) -> str:
    """A share with two digits after the point, more where there would be nothing left.

    >>> share(0.4284), share(0.0031), share(0.000001), share(1)
    ('0.43', '0.003', '0.0000', '1.00')
    """
    if value >= 0.01 or value == 0:
        return f"{value:.2f}"
    return f"{value:.3f}" if value >= 0.0005 else f"{value:.4f}"


def percent(value: float) -> str:
    """A share as a whole percentage.

    >>> percent(0.1449), percent(0.001)
    ('14%', 'under 1%')
    """
    return f"{value:.0%}" if value >= 0.01 else "under 1%"


def few(values: Sequence[float]) -> str:
    """The first three numbers of a vector."""
    return f"[{', '.join(f'{value:.2f}' for value in values[:3])}, ...]"


def ordinal(count: int) -> str:
    """A place in a row.

    >>> ordinal(1), ordinal(2), ordinal(11), ordinal(23)
    ('1st', '2nd', '11th', '23rd')
    """
    is_teen = count % 100 in (11, 12, 13)
    return f"{count}{'th' if is_teen else ENDINGS.get(count % 10, 'th')}"


ENDINGS = {1: "st", 2: "nd", 3: "rd"}
"""What a place ends in by its last digit; th for all others."""
