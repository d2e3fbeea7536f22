"""Format tokens and numbers for the lesson's sentences.

Tokens come from the learner's text: their control characters and writing direction must not affect
the text around them.
"""

import math
import unicodedata
from collections.abc import Sequence

LONGEST_TOKEN = 24
"""Largest number of characters that a sentence shows of a token."""
HIDDEN = "\N{MIDDLE DOT}"
MOST_DECIMALS = 10


def visible(token: str) -> str:
    """A token with a dot in place of each unprintable character."""
    return "".join(mark if mark.isprintable() else HIDDEN for mark in token) or HIDDEN


def quote_token(token: str) -> str:
    """A token in quotes; right-to-left text is isolated from the text around it.

    >>> quote_token("cat"), quote_token("two words"), quote_token("x" * 30)
    ('"cat"', '"two·words"', '"xxxxxxxxxxxxxxxxxxxxxxx…"')
    """
    text = HIDDEN.join(visible(token).split()) or HIDDEN
    if len(text) > LONGEST_TOKEN:
        text = text[: LONGEST_TOKEN - 1] + "\N{HORIZONTAL ELLIPSIS}"
    if any(unicodedata.bidirectional(mark) in ("R", "AL") for mark in text):
        text = f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}"
    return f'"{text}"'


def number(value: int | float) -> str:
    """`value` with three significant digits; whole numbers have no decimal point.

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
    if abs(value) >= 1:
        return f"{value:.0f}"
    decimals = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}" if decimals <= MOST_DECIMALS else f"{value:.1e}"


def power(value: float) -> str:
    """`value` as two digits and a power of ten, as in the figures.

    >>> power(2.384e07)
    '2.4e7'
    """
    digits, _, ten = f"{value:.1e}".partition("e")
    return f"{digits}e{int(ten)}".replace("-", "\N{MINUS SIGN}")


def share(value: int | float) -> str:
    """A share with two decimals, or up to four if it is small.

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
    """The first three numbers of a vector, with an ellipsis."""
    return f"[{', '.join(f'{value:.2f}' for value in values[:3])}, ...]"


def ordinal(count: int) -> str:
    """An ordinal number.

    >>> ordinal(1), ordinal(2), ordinal(11), ordinal(23)
    ('1st', '2nd', '11th', '23rd')
    """
    is_teen = count % 100 in (11, 12, 13)
    endings = {} if is_teen else {1: "st", 2: "nd", 3: "rd"}
    return f"{count}{endings.get(count % 10, 'th')}"
