"""The server's requests: query parameters and JSON bodies, converted and checked.

Out: frozen dataclasses, or an OptionError that names the field. The answers are in api_types.py.
"""

import json
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.heads import HeadId

LONGEST_TEXT = 200_000
"""Largest number of characters in a text; the model may then read only its first tokens."""
MAX_TEXTS = 8
MAX_HEADS = 4096
MAX_FACTOR = 4.0
LONGEST_NAME = 80
LIMITS = {
    **dict.fromkeys(("layer", "head", "position", "at"), (0, 100_000)),
    "size": (8, 64),
    "d_model": (1, 65536),
    **dict.fromkeys(("heads", "kv_heads", "layers"), (1, 1024)),
    "d_key": (1, 4096),
    "length": (1, 10**7),
    "batch": (1, 65536),
    "draws": (1, 20),
    "tokens": (1, 100),
}
"""Smallest and largest allowed value of each whole number in a request."""
KINDS = {"str": "a string", "bool": "0 or 1", "int": "a whole number", "array": "a list"}
"""Descriptions of msgspec's types for error messages."""
Request = TypeVar("Request")


def read_body(kind: type[Request], body: bytes) -> Request:
    """The JSON object in a request's body, converted to `kind`."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise OptionError("the request's body is not JSON: send a JSON object") from error
    if not isinstance(values, dict):
        raise OptionError(f"the request's body is {reprlib.repr(values)}: send a JSON object")
    return read_values(kind, values, is_strict=True)


def read_values(
    kind: type[Request], values: Mapping[str, Any], *, is_strict: bool = False
) -> Request:
    """A request's values, converted to `kind`; unless `is_strict`, numbers may be strings."""
    import msgspec

    try:
        request = msgspec.convert(dict(values), kind, strict=is_strict)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, OptionError):  # raised by __post_init__
            raise error.__cause__ from None
        raise OptionError(_explain(str(error), values)) from error
    for name, (least, most) in LIMITS.items():
        if isinstance(value := getattr(request, name, None), int):
            whole_number(name, value, least=least, most=most)
    return request


def _explain(message: str, values: Mapping[str, Any]) -> str:
    missing = re.search(r"missing required field `(\w+)`", message)
    if missing:
        return f"{missing[1]} is missing from the request"
    wrong = re.search(r"Expected `([^`|]+)[^`]*`.* - at `\$\.?(\w*)", message)
    if wrong is None or wrong[2] not in values:
        return message
    name, expected = wrong[2], wrong[1].strip()
    return f"{name} is {reprlib.repr(values[name])}: give {KINDS.get(expected, expected)}"


def parse_head(name: str) -> HeadId:
    """The head called `name`."""
    if len(name) > LONGEST_NAME:
        raise OptionError(f"head is {reprlib.repr(name)}: give a name such as L3H11", option="head")
    return HeadId.parse(name)


def parse_range(values: Mapping[str, str], name: str, most: int) -> slice:
    """The range given by a parameter such as rows=0:256, at most `most` numbers long."""
    text = values.get(name, "")
    bounds = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", text)
    if bounds is None:
        raise OptionError(
            f"{name} is {reprlib.repr(text)}: give a range such as 0:256", option=name
        )
    start, stop = int(bounds[1]), int(bounds[2])
    if not start < stop <= start + most:
        raise OptionError(f"{name} is {text}: give a range of 1 to {most} {name}", option=name)
    return slice(start, stop)


def _check_text(text: str) -> str:
    """`text` with lone surrogates and NULs replaced, because no tokenizer can read them."""
    if len(text) > LONGEST_TEXT:
        raise OptionError(f"text has {len(text):,} characters: send at most {LONGEST_TEXT:,}")
    readable = text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    if not readable.strip():
        raise OptionError("text is empty: write a few words")
    return readable


@dataclass(frozen=True)
class TextRequest:
    """A text to read."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _check_text(self.text))


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """A factor for each head whose output changes."""

    gates: dict[str, Any] = field(default_factory=dict)

    def factors(self) -> dict[HeadId, float]:
        """The factor for each head in `gates`."""
        _check_count("gates", self.gates)
        factors = {}
        for name, value in self.gates.items():
            head, is_number = parse_head(name), type(value) in (int, float)
            if not is_number or not 0 <= value <= MAX_FACTOR:  # False for NaN
                raise OptionError(
                    f"the factor for {head} is {reprlib.repr(value)}: give 0 to {MAX_FACTOR:g}"
                )
            factors[head] = float(value)
        return factors


@dataclass(frozen=True, kw_only=True)
class WhatIfRequest(GateRequest):
    """Texts to run with heads silenced or scaled."""

    texts: list[str]

    def __post_init__(self) -> None:
        if not 1 <= len(self.texts) <= MAX_TEXTS:
            raise OptionError(f"texts has {len(self.texts)} texts: send 1 to {MAX_TEXTS}")
        object.__setattr__(self, "texts", [_check_text(text) for text in self.texts])


@dataclass(frozen=True, kw_only=True)
class RandomRequest(WhatIfRequest):
    """Texts to run `draws` times with the factors of `gates` on random heads."""

    draws: int = 10


@dataclass(frozen=True, kw_only=True)
class GenerateRequest(GateRequest):
    """A text to continue by `tokens` tokens, with and without `gates` on the heads."""

    text: str
    tokens: int = 32

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _check_text(self.text))


def _check_count(name: str, heads: Any) -> None:
    if len(heads) > MAX_HEADS:
        raise OptionError(f"{name} has {len(heads):,} heads: send at most {MAX_HEADS:,}")


@dataclass(frozen=True)
class PairRequest(TextRequest):
    """Two texts to compare."""

    other: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "other", _check_text(self.other))


@dataclass(frozen=True)
class PageRequest(TextRequest):
    """A text to save as a page."""

    swap: str | None = None
    """The text with a word swapped; if None, the built-in pair's if `text` belongs to it."""
    state: dict[str, str] = field(default_factory=dict)
    """Values of the address with which the page opens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.swap is not None:
            object.__setattr__(self, "swap", _check_text(self.swap) if self.swap else None)


@dataclass(frozen=True)
class RowQuery:
    """The row whose weights are requested; with `by`, the column."""

    at: int
    by: bool = False


@dataclass(frozen=True)
class BarsQuery:
    """The row whose weights in every head are requested, in at most `size` bars.

    With `by`, the column.
    """

    at: int
    size: int = 64
    stack: str = ""
    by: bool = False


@dataclass(frozen=True)
class WeightsQuery:
    """The stack whose weights are requested."""

    stack: str = ""


@dataclass(frozen=True)
class CutPlanRequest:
    """Heads to cut."""

    heads: list[str]

    def head_ids(self) -> tuple[HeadId, ...]:
        """The heads, parsed from their names."""
        _check_count("heads", self.heads)
        return tuple(parse_head(name) for name in self.heads)


@dataclass(frozen=True)
class LessonRequest(TextRequest):
    """A step of the lesson on a text, and the layer, head and token that the learner chose."""

    layer: int | None = None
    head: int | None = None
    position: int | None = None
    other: str | None = None
    """The text with one word changed."""
    step: str = ""
    """Name of the step; "" for the first."""
    is_outline: bool = False
    """Leave out what takes long to measure, unless it has been measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.other is not None:
            object.__setattr__(self, "other", _check_text(self.other))


@dataclass(frozen=True)
class LessonAnswerRequest(LessonRequest):
    """An answer to the question in one lesson step; None asks for the solution."""

    answer: Any = ""
    attempt: int = 1


@dataclass(frozen=True)
class ThumbsQuery:
    """The layer whose thumbnail maps are requested, and their size."""

    layer: str
    size: int = 32


@dataclass(frozen=True)
class PlanQuery:
    """Attention sizes to compute a plan for."""

    d_model: int = 768
    heads: int = 12
    kv_heads: int | None = None
    d_key: int | None = None
    layers: int = 12
    length: int = 1024
    batch: int = 1
    dtype: str = "bfloat16"
    is_causal: bool = True
