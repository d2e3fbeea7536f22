"""Checks for user-supplied values: each raises OptionError if the value is invalid.

The error's `option` is the `name` passed in, so that the command line can print its own option.
"""

import operator
from typing import Any

from headwise.errors import OptionError


def whole_number(
    name: str, value: Any, *, least: int | None = None, most: int | None = None
) -> int:
    """`value` as an int; raises OptionError if it is a bool, not whole, or out of range.

    >>> whole_number("seed", 3)
    3
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError as err:
        raise OptionError(f"{name} is {value!r}: give a whole number", option=name) from err
    if (least is not None and number < least) or (most is not None and number > most):
        if least is not None and most is not None:
            rule = f"from {least:,} to {most:,}"
        else:
            rule = f"at most {most:,}" if least is None else f"at least {least:,}"
        raise OptionError(f"{name} is {number:,}: it must be {rule}", option=name)
    return number


def real_number(name: str, value: Any, example: str) -> float:
    """`value` as a float; if it is not a number, the OptionError suggests `example`.

    >>> real_number("keep", 1, "0.6")
    1.0
    """
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError) as err:
        raise OptionError(
            f"{name} is {value!r}: give a number such as {example}", option=name
        ) from err


def check_characters(name: str, text: str) -> None:
    """Raise OptionError if `text` has surrogates, which stand for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as err:
        raise OptionError(
            f"{name} is not UTF-8: character {err.start + 1} is {text[err.start]!a}", option=name
        ) from err
