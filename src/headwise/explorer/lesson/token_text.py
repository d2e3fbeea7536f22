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
TIMES = "\N{MULTIPLICATION SIGN}"
MOST_DECIMALS = 10


def visible(token: str) -> str:
    """A token with a dot in place of each unprintable character."""
    return "".join(mark if mark.isprintable() else HIDDEN for mark in token) or HIDDEN


def shown(token: str) -> str:
    """A token for use in a sentence; right-to-left text is isolated from the text around it.

    >>> shown("cat"), shown("two words"), shown("x" * 30)
    ('cat', 'two·words', 'xxxxxxxxxxxxxxxxxxxxxxx…')
    """
    text = HIDDEN.join(visible(token).split()) or HIDDEN
    if len(text) > LONGEST_TOKEN:
        text = text[: LONGEST_TOKEN - 1] + "\N{HORIZONTAL ELLIPSIS}"
    if any(unicodedata.bidirectional(mark) in ("R", "AL") for mark in text):
        text = f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}"
    return text


def number(value: int | float) -> str:
    """`value` with three significant digits; whole numbers have no decimal point.

    >>> number(0.03571), number(384), number(1536.0), number(0.00001234)
    ('0.0357', '384', '1536', '0.0000123')
    >>> number(-12.345) == "\N{MINUS SIGN}12.3"
    True
    >>> number(0.1003), number(123.4)
    ('0.100', '123')
    """
    return _digits(value).replace("-", "\N{MINUS SIGN}")


def _digits(value: int | float) -> str:
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


def percent(value: float) -> str:
    """A share as a whole percentage.

    >>> percent(0.684), percent(0.001), percent(0)
    ('68%', '<1%', '0%')
    """
    return "<1%" if 0 < value < 0.005 else f"{value:.0%}"


def signed(value: float, digits: int = 2) -> str:
    """A number with `digits` decimals and a minus sign as wide as a digit.

    >>> signed(-0.001), signed(3.75, 1), signed(-1.234) == "\N{MINUS SIGN}1.23"
    ('0.00', '3.8', True)
    """
    return f"{value:z.{digits}f}".replace("-", "\N{MINUS SIGN}")


def few(values: Sequence[float]) -> str:
    """Numbers of a short vector in brackets, without needless zeros.

    >>> few([0.5, 2.0])
    '[0.5, 2]'
    """
    return f"[{', '.join(signed(value).rstrip('0').rstrip('.') for value in values)}]"


def ordinal(count: int) -> str:
    """An ordinal number.

    >>> ordinal(1), ordinal(2), ordinal(11), ordinal(23)
    ('1st', '2nd', '11th', '23rd')
    """
    is_teen = count % 100 in (11, 12, 13)
    endings = {} if is_teen else {1: "st", 2: "nd", 3: "rd"}
    return f"{count}{endings.get(count % 10, 'th')}"
