"""Numbers, shares, sizes, times and lists as text; NaN and infinity as None for JSON."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any


def format_count(count: int, noun: str) -> str:
    """A count with its noun, plural if needed.

    >>> format_count(1, "head"), format_count(1200, "token")
    ('1 head', '1,200 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def join_words(items: Sequence[str], last: str = "and") -> str:
    """Items separated by commas, with `last` before the last one.

    >>> join_words(["a"]), join_words(["a", "b", "c"]), join_words(["a", "b"], "or")
    ('a', 'a, b and c', 'a or b')
    """
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def replace_nonfinite(values: Any) -> Any:
    """`values` with None for NaN and infinities, which JSON cannot represent.

    >>> replace_nonfinite({"loss": [1.5, float("inf")]})
    {'loss': [1.5, None]}
    """
    if isinstance(values, dict):
        return {key: replace_nonfinite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [replace_nonfinite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def format_number(value: float | None, digits: int = 3) -> str:
    """A number with `digits` decimals and no minus sign on zero; empty if it is None or NaN.

    >>> format_number(2.346, 2), format_number(-0.001, 2), format_number(None)
    ('2.35', '0.00', '')
    """
    return "" if value is None or math.isnan(value) else f"{value:z.{digits}f}"


def format_share(value: float | None) -> str:
    """A share as a rounded percentage; empty if it is None or NaN.

    >>> format_share(0.418), format_share(0.002), format_share(0.00001), format_share(None)
    ('42%', '0.2%', 'under 0.1%', '')
    """
    if value is None or math.isnan(value):
        return ""
    if 0 < value < 0.001:
        return "under 0.1%"
    return f"{value:.1%}" if 0 < value < 0.01 else f"{value:.0%}"


COUNT_UNITS = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("", 1))
SIZE_UNITS = tuple(
    (unit, 1024 ** (6 - index))
    for index, unit in enumerate(("EiB", "PiB", "TiB", "GiB", "MiB", "KiB", "B"))
)
"""Units for counts and for bytes, largest first, each with its value."""


def format_large_count(number: float | int) -> str:
    """A count with a unit: M, G, T, P or E.

    >>> format_large_count(2_362_368), format_large_count(999_700_000), format_large_count(1_500)
    ('2.36 M', '1 G', '1,500')
    """
    return _in_units(number, COUNT_UNITS) or f"{number:,.0f}"


def format_size(number: int) -> str:
    """A number of bytes with a binary unit; "-" for zero.

    >>> format_size(36 << 20), format_size(1010 << 20), format_size(0)
    ('36 MiB', '1,010 MiB', '-')
    """
    return _in_units(number, SIZE_UNITS) or (f"{number} B" if number else "-")


def _in_units(number: float, units: Sequence[tuple[str, float]]) -> str:
    """`number` in the largest unit it reaches, to three digits or no decimals; "" for the last."""
    for (unit, each), (_, smaller) in pairwise(units):
        if round(number / smaller) * smaller >= each:
            value = max(1.0, number / each)
            return f"{value:,.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"
    return ""


def format_duration(seconds: float) -> str:
    """An estimate of a time, rounded to minutes or hours.

    >>> format_duration(20), format_duration(250), format_duration(3 * 3600)
    ('less than a minute', 'about 4 minutes', 'about 3 hours')
    """
    if seconds < 55:
        return "less than a minute"
    minutes = round(seconds / 60)
    if minutes <= 90:
        return f"about {format_count(minutes, 'minute')}"
    return f"about {format_count(round(minutes / 60), 'hour')}"


MOST_DECIMALS = 8
"""Numbers whose error needs more decimals than this are written with exponents."""


def format_with_error(value: float, error: float) -> str:
    """A number and its standard error, both rounded to the error's first significant digit.

    >>> format_with_error(0.0006812, 0.0000633), format_with_error(-0.00001, 0.001)
    ('0.00068 ± 0.00006', '0.000 ± 0.001')
    """
    if math.isnan(value):
        return ""
    if not math.isfinite(error) or error <= 0:
        return f"{value:.2g}"
    decimals = max(0, -math.floor(math.log10(error)))
    if decimals > MOST_DECIMALS:
        return f"{value:.2g} ± {error:.1g}"
    return f"{value:z.{decimals}f} ± {error:.{decimals}f}"
