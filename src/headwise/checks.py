"""Checks: numbers and texts that are given, each refused in one sentence that names it."""

import operator
from typing import Any

from headwise.errors import OptionError


def whole_number(name: str, value: Any, *, least: int | None = None) -> int:
    """A setting that counts something, as Python's own number; True and False count nothing.

    >>> whole_number("seed", 3)
    3
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError as err:
        raise OptionError(f"{name} is {value!r}: give a whole number") from err
    if least is not None and number < least:
        raise OptionError(f"{name} is {number}: it must be at least {least}")
    return number


def real_number(name: str, value: Any, example: str) -> float:
    """A setting that measures something, as Python's own number; `example` shows one that works.

    >>> real_number("keep", 1, "0.6")
    1.0
    """
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError) as err:
        raise OptionError(f"{name} is {value!r}: give a number such as {example}") from err


def check_characters(name: str, text: str) -> None:
    """Raise where a text holds half of a character, as bytes of another encoding end up."""
    try:
        text.encode()
    except UnicodeEncodeError as err:
        raise OptionError(
            f"{name} is not UTF-8: character {err.start + 1} is {text[err.start]!a}"
        ) from err
