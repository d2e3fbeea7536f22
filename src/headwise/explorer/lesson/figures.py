"""Numbers that the browser draws in each step of the lesson; source of static/types.d.ts.

Vectors are cut to their first SHOWN numbers unless a docstring says otherwise.
"""

from dataclasses import dataclass
from typing import Literal

SHOWN = 8
"""How many entries of a long vector are shown."""
Matrix = list[list[float]]


@dataclass(frozen=True)
class Place:
    """The head and the token that a step follows."""

    layer: int
    head: int
    name: str
    position: int
    tokens: list[str]
    """Every token of the text, including special ones."""


@dataclass(frozen=True)
class WarmUpFigure:
    """Every step of multi-head attention on "Cat sleeps"; lists of matrices have one per head."""

    tokens: list[str]
    input: Matrix
    queries: list[Matrix]
    scores: list[Matrix]
    scaled: list[Matrix]
    weights: list[Matrix]
    mixed: list[Matrix]
    concat: Matrix
    Wo: Matrix
    output: Matrix


@dataclass(frozen=True)
class RowFigure:
    """A row of weights over the compared tokens, rescaled to sum to one; entropy in nats."""

    name: str
    weights: list[float]
    entropy: float
    largest: float
    largest_key: int
    """Position of the token with the largest weight."""
    resting: float
    """Weight, before rescaling, on the tokens that are left out."""


@dataclass(frozen=True)
class WhyManyFigure:
    """Rows of all heads next to their average."""

    place: Place
    keys: list[int]
    """Positions compared: all but special tokens and the first, unless too few would be left."""
    heads: list[RowFigure]
    single: RowFigure
    mean_entropy: float
    mean_largest: float


@dataclass(frozen=True)
class ShapeFigure:
    """Shape of one step's values for the whole text."""

    step: str
    formula: str
    shape: str


@dataclass(frozen=True)
class ProjectionsFigure:
    """The token's input, query, key and value in the head, not cut to SHOWN numbers."""

    place: Place
    input: list[float] | None
    query: list[float]
    key: list[float]
    value: list[float]
    kv_head: int
    is_grouped: bool
    shapes: list[ShapeFigure]


@dataclass(frozen=True)
class HeadCountFigure:
    """One way to divide the width among heads, and its cost on this text."""

    num_heads: int
    d_key: int
    numbers: int
    scores: int
    multiply_adds: int
    remarks: list[str]
    is_own: bool


@dataclass(frozen=True)
class HeadsFigure:
    """How the model divides its width among heads, next to alternatives."""

    place: Place
    d_model: int
    num_heads: int
    num_tokens: int
    columns: list[int]
    """The head's first column, and the column after its last."""
    groups: list[list[int]]
    """The heads that each KV head serves."""
    table: list[HeadCountFigure]


@dataclass(frozen=True)
class ScoresFigure:
    """One row of scores: the weights are softmax(softcap(scores * scale) + added).

    `softcap(x)` is `softcap * tanh(x / softcap)`. A sink joins the softmax but has no token.
    """

    place: Place
    scores: list[float]
    scale: float
    softcap: float | None
    added: list[float | None]
    """None for a masked token."""
    sink: float | None
    weights: list[float]
    dragged: int
    """Position of the token whose score the learner is asked to drag."""
    step: float
    """Change in a score that is 1 after scaling."""


@dataclass(frozen=True)
class MixingFigure:
    """The value of every token, and the part that it adds to the mixed vector."""

    place: Place
    d_value: int
    weights: list[float]
    values: Matrix
    parts: Matrix
    """Weight times value, one row per token."""
    mixed: list[float]
    lengths: list[float]
    """Length of every token's part, before it is cut to SHOWN numbers."""
    difference: float
    """Largest difference between the sum of the parts and the mixed vector."""


@dataclass(frozen=True)
class OwnerFigure:
    """One head's columns of the concat, and its contribution to the output."""

    name: str
    columns: list[int]
    concat: list[float]
    concat_length: float
    contribution: list[float]
    length: float
    share: float
    touched: int
    """Number of output numbers that the head changes."""


@dataclass(frozen=True)
class OutputFigure:
    """All heads before and after the output projection."""

    place: Place
    d_model: int
    d_value: int
    segregation_concat: float
    segregation_output: float
    difference: float
    """Largest difference between the output and the contributions plus the bias."""
    adds_up: bool
    output: list[float]
    bias: list[float] | None
    heads: list[OwnerFigure]


@dataclass(frozen=True)
class NextFigure:
    """A token that a causal model may continue with."""

    token: str
    probability: float


@dataclass(frozen=True)
class SpareHeadFigure:
    """The effect of silencing one head."""

    name: str
    head: int
    rank: int
    value: float
    effect: float
    """0 if the output stays the same."""
    roles: list[str] | None
    next: list[float]
    """Probabilities of the tokens in `SpareFigure.next` without the head."""


@dataclass(frozen=True)
class Effects:
    """How the output changes when each head of the layer is silenced."""

    unit: Literal["cosine", "nats", "loss"]
    """Unit of each `value`: cosine or divergence from the unchanged output, or the loss."""
    heads: list[SpareHeadFigure]
    """Largest effect first."""
    next: list[NextFigure]
    """A causal model's next tokens, likeliest first."""


@dataclass(frozen=True)
class SpareFigure(Effects):
    """The effects, with a description of the measure and of the heads' roles."""

    place: Place
    measure: str
    has_roles: bool
    role_words: dict[str, str]


FirstFigure = WarmUpFigure | WhyManyFigure | ProjectionsFigure | HeadsFigure
Figure = FirstFigure | ScoresFigure | MixingFigure | OutputFigure | SpareFigure


@dataclass(frozen=True)
class QuestionAnswer:
    """A question as the browser receives it."""

    text: str
    kind: Literal["choice", "number"]
    options: list[str]
    """Empty if the answer is a number."""


@dataclass(frozen=True)
class StepAnswer:
    """A step as the browser receives it, without the right answer."""

    name: str
    title: str
    minutes: float
    paragraphs: list[str]
    exercise: str
    question: QuestionAnswer
    figures: Figure


@dataclass(frozen=True)
class AnswerVerdict:
    """Whether an answer is right, with a sentence that says so and an explanation."""

    is_right: bool
    sentence: str
    why: str
