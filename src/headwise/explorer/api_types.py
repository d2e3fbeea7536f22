"""Asked: what requests ask for, read strictly; anything else is an error in one sentence."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from headwise.errors import OptionError
from headwise.explorer.maps import MapOptions
from headwise.explorer.what_if import MOST_TEXTS, Changes
from headwise.heads import HeadId

LONGEST_TEXT = 200_000
"""Characters of a text; what a model cannot take of it is left out."""
LONGEST_NAME = 80
MOST_HEADS = 4096
LARGEST_FACTOR = 4.0
LOOKS = ("is_by_word", "hides_special", "drops_sink", "is_valued")
Values = Mapping[str, Any]


def fields(body: bytes) -> dict[str, Any]:
    """The object that a request's body holds."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise OptionError("the body of the request is no JSON") from error
    if not isinstance(found, dict):
        raise OptionError("the body of the request must be a JSON object")
    return found


def text_in(values: Values) -> str:
    """A text with something in it."""
    text = values.get("text")
    if not isinstance(text, str):
        raise OptionError("text must be a text")
    if len(text) > LONGEST_TEXT:
        raise OptionError(f"text has {len(text):,} characters: give at most {LONGEST_TEXT:,}")
    readable = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    if not readable.strip():
        raise OptionError("text is empty: write a few words")
    return readable


def texts_in(values: Values) -> list[str]:
    """One text or several."""
    texts = values.get("texts")
    if not isinstance(texts, list) or not texts:
        raise OptionError("texts must be a list of one text or more")
    if len(texts) > MOST_TEXTS:
        raise OptionError(f"there are {len(texts)} texts: give at most {MOST_TEXTS}")
    return [text_in({"text": text}) for text in texts]


def head_in(values: Values) -> HeadId:
    """The head that a value names."""
    text = values.get("head")
    if not isinstance(text, str) or len(text) > LONGEST_NAME:
        raise OptionError("head must name a head, such as L3H11")
    return HeadId.parse(text)


def heads_in(values: Values) -> tuple[HeadId, ...]:
    """The heads that a list names."""
    names = values.get("heads")
    if not isinstance(names, list) or len(names) > MOST_HEADS:
        raise OptionError("heads must be a list of heads, such as L3H11")
    return tuple(head_in({"head": one}) for one in names)


def changes_in(values: Values) -> Changes:
    """Heads and what they are multiplied by."""
    gates = values.get("gates", {})
    if not isinstance(gates, dict) or len(gates) > MOST_HEADS:
        raise OptionError("gates must be an object of heads and factors")
    found: dict[HeadId, float] = {}
    for name, factor in gates.items():
        is_number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not is_number or not 0 <= factor <= LARGEST_FACTOR:  # nan is neither
            raise OptionError(f"the factor of {name[:20]} must be from 0 to {LARGEST_FACTOR:g}")
        found[head_in({"head": name})] = float(factor)
    return Changes(found)


def look_in(values: Values) -> MapOptions:
    """How a map is looked at: each choice is 1 or 0."""
    chosen = {name: flag_in(values, name) for name in LOOKS}
    return MapOptions(**chosen)


def flag_in(values: Values, name: str) -> bool:
    """A choice of 1 or 0; 0 where nothing is said."""
    value = values.get(name, "0")
    if value not in ("0", "1"):
        raise OptionError(f"{name} must be 0 or 1")
    return bool(value == "1")


def choice_in(values: Values, name: str, choices: Collection[str]) -> str:
    """One of a few names."""
    value = values.get(name)
    if not isinstance(value, str) or value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(choices)}, not {str(value)[:20]!r}")
    return value


def part_in(values: Values, name: str, most: int) -> slice:
    """A range such as 0:256 of at most so many rows or columns."""
    found = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", str(values.get(name, "")))
    if found is None:
        raise OptionError(f"{name} must be a range such as 0:256")
    start, stop = int(found[1]), int(found[2])
    if not start < stop <= start + most:
        raise OptionError(f"{name} must have from 1 to {most} of them, not {stop - start}")
    return slice(start, stop)


def number_in(values: Values, name: str, least: int, most: int, usual: int | None = None) -> int:
    """A whole number within bounds."""
    value = values.get(name, usual)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise OptionError(f"{name} must be a whole number from {least:,} to {most:,}")
    return value


def place_in(values: Values) -> dict[str, int | None]:
    """Layer, head and position, each a number or left out."""
    names = ("layer", "head", "position")
    return {
        name: None if values.get(name) is None else number_in(values, name, 0, 100_000)
        for name in names
    }
