"""The server's requests and answers; static/types.d.ts is generated from the answers.

In: query parameters and JSON bodies. Out: frozen dataclasses, or an OptionError that names the
field. msgspec converts requests; the notebook widget uses the answer types without msgspec.
"""

import json
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

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
    **dict.fromkeys(("layer", "head", "position"), (0, 100_000)),
    "size": (8, 64),
    "d_model": (1, 65536),
    **dict.fromkeys(("heads", "kv_heads", "layers"), (1, 1024)),
    "d_key": (1, 4096),
    "length": (1, 10**7),
    "batch": (1, 65536),
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


@dataclass(frozen=True)
class WhatIfRequest:
    """Texts to run with heads silenced or scaled."""

    texts: list[str]
    gates: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= len(self.texts) <= MAX_TEXTS:
            raise OptionError(f"texts has {len(self.texts)} texts: send 1 to {MAX_TEXTS}")
        object.__setattr__(self, "texts", [_check_text(text) for text in self.texts])

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


def _check_count(name: str, heads: Any) -> None:
    if len(heads) > MAX_HEADS:
        raise OptionError(f"{name} has {len(heads):,} heads: send at most {MAX_HEADS:,}")


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
    """A text, and the layer, head and token that the learner chose."""

    layer: int | None = None
    head: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class LessonAnswerRequest(LessonRequest):
    """An answer to the question in one lesson step."""

    step: str = ""
    answer: Any = ""


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


@dataclass(frozen=True)
class ProgressAnswer:
    """Steps done and total steps of the current work, and the number of waiting requests."""

    done: int
    total: int
    waiting: int


@dataclass(frozen=True)
class HeadGrid:
    """Columns with one value per head, in the order of `names`; `words` explains each measure."""

    names: list[str]
    roles: list[list[str]]
    measures: dict[str, list[float | None]]
    words: dict[str, str]


@dataclass(frozen=True)
class JobAnswer:
    """State of a job; `found` has the columns that its last finished run added."""

    name: str
    state: str
    stage: str
    done: int
    total: int
    error: str
    found: HeadGrid | None


@dataclass(frozen=True)
class LayerFacts:
    """One layer of the model."""

    name: str
    heads: int
    kv_heads: int


@dataclass(frozen=True)
class RoleFacts:
    """How the page shows a role."""

    meaning: str
    letter: str
    colour: str


@dataclass(frozen=True)
class ModelAnswer:
    """Everything about the model that the page needs before it reads a text."""

    name: str
    loads_as: str | None
    """Command-line arguments that select the model; None if it was not loaded by name."""
    kind: Literal["similarity", "prediction"]
    layers: list[LayerFacts]
    roles: dict[str, RoleFacts]
    measures: dict[str, str]
    job_measures: dict[str, dict[str, str]]
    text: str
    other_texts: list[str]
    max_texts: int
    jobs: list[JobAnswer]


@dataclass(frozen=True)
class AxisLabels:
    """Labels of a map's rows and keys; `keys` is None if it equals `rows`."""

    rows: list[str]
    keys: list[str] | None


MapView = Literal["pieces", "words", "ordinary"]
"""All tokens, tokens merged into words, or all tokens except special ones."""


@dataclass(frozen=True)
class TextAnswer:
    """A text that the model has read: its tokens, and measures of every head."""

    name: str
    tokens: list[str]
    labels: dict[str, dict[MapView, AxisLabels]]
    """Map labels by stack and view, without the views that are impossible for this text."""
    has_words: bool
    has_special: bool
    left_out: int
    is_models_limit: bool
    measured: int
    heads: HeadGrid
    default_head: str


@dataclass(frozen=True)
class MapCells:
    """Part of a head's map, or the whole map reduced to fewer cells."""

    rows: list[int]
    """The first row, and the row after the last."""
    keys: list[int]
    shape: list[int]
    values: bytes
    """Two bytes per cell, little-endian; 65535 means `largest`."""
    largest: float
    tile: int


@dataclass(frozen=True)
class Profile:
    """Mean weight at each distance from the query."""

    offsets: list[int]
    means: list[float]


@dataclass(frozen=True)
class Contribution:
    """Length of a head's output at each token, before and after the output projection."""

    before: list[float]
    after: list[float]
    share: list[float]
    mean_share: float
    equal_share: float


@dataclass(frozen=True)
class MeasureValue:
    """One measure of a head."""

    name: str
    value: float
    meaning: str


@dataclass(frozen=True)
class RoleEvidence:
    """A head's score for one role, and the values that the score is compared with."""

    role: str
    is_held: bool
    score: float
    threshold: float | None
    baseline: float | None
    detail: str
    meaning: str


@dataclass(frozen=True)
class ServedBy:
    """The KV head that a query head reads."""

    kv_head: int
    kv_heads: int


@dataclass(frozen=True)
class HeadAnswer:
    """Everything that a click on a head shows."""

    head: str
    stack: str
    view: MapView
    cells: MapCells
    links: list[list[int | float]]
    """Row, key and weight of the strongest links in the map's first rows."""
    profile: Profile
    contribution: Contribution | None
    measures: list[MeasureValue]
    roles: list[RoleEvidence]
    is_scanned: bool
    served_by: ServedBy | None
    max_image: int


@dataclass(frozen=True)
class Similarity:
    """Cosines between sentence embeddings, before and after the change."""

    before: list[list[float]]
    after: list[list[float]]
    kept: list[float]
    """Cosine between each sentence's embeddings before and after the change."""


@dataclass(frozen=True)
class Prediction:
    """Probabilities of the likeliest tokens or classes, and the divergence in nats."""

    noun: Literal["token", "class"]
    title: str
    names: list[str]
    before: list[float]
    after: list[float]
    divergence: float


@dataclass(frozen=True)
class Savings:
    """Number of parameters that cutting the silenced heads saves, or why they cannot be cut."""

    parameters: int
    saved: int
    cannot_cut: str | None


@dataclass(frozen=True)
class WhatIfAnswer:
    """Outputs with and without the gates, as either `similarity` or `prediction`."""

    remarks: list[str]
    similarity: Similarity | None
    prediction: Prediction | None
    heads_off: int
    savings: Savings


@dataclass(frozen=True)
class PlanAnswer:
    """Costs of one model's attention: some columns of `Plan.to_row`."""

    name: str
    d_model: int
    num_heads: int
    num_kv_heads: int
    d_key: int
    parameters_layer: int
    parameters_attention: int
    multiply_adds_per_token: float
    cache_bytes: int
    weight_matrix_bytes: int
    decode_intensity: float | None


@dataclass(frozen=True)
class HeadChoiceAnswer:
    """A head count that divides d_model, and its drawbacks."""

    heads: int
    d_key: int
    remarks: list[str]


ANSWERS = (
    *(ModelAnswer, ProgressAnswer, TextAnswer, HeadAnswer, WhatIfAnswer, JobAnswer),
    *(PlanAnswer, HeadChoiceAnswer),
)
"""Answers that the page reads; the lesson's are in lesson/figures.py."""
