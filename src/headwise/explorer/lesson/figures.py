"""Numbers that the browser draws in each step of the lesson; source of static/types.d.ts.

Vectors are whole unless a docstring says otherwise. Weights by word average the rows of a word's
pieces and add up its keys.
"""

from dataclasses import dataclass
from typing import Literal

from headwise.explorer.api_types import StageWord
from headwise.explorer.lesson.prose import Prose

Matrix = list[list[float]]


@dataclass(frozen=True)
class LessonHead:
    """A head's name and roles, the lead role first; None if no scan has looked for roles."""

    name: str
    roles: list[str] | None


@dataclass(frozen=True)
class Place:
    """The text, the head and the word that the lesson follows."""

    layer: int
    head: int
    name: str
    roles: list[str] | None
    position: int
    """Index of the piece that is followed."""
    word: int
    """Index of the word that contains it."""
    pieces: list[StageWord]
    words: list[StageWord]
    word_of: list[int]
    """Index of the word of each piece."""
    rests_on_first: bool
    """Whether the first token is a resting place, as in causal models."""
    note: str
    """A remark on the text, such as that its end is left out; "" for none."""


@dataclass(frozen=True)
class SwapFigure:
    """The same sentence with another word, in the same head."""

    text: str
    words: list[StageWord]
    word: int
    """Index of the followed word."""
    weights: Matrix
    aligned: list[list[int | None]]
    """Pairs of indices into the words of both sentences; None: no partner."""


@dataclass(frozen=True)
class PairFigure:
    """Another sentence and its swap, in the head whose link moves clearly."""

    head: LessonHead
    words: list[StageWord]
    word: int
    """Index of the word that looks."""
    weights: Matrix
    swap: SwapFigure


@dataclass(frozen=True)
class RowFigure:
    """The followed word's row of weights by word in one head, or an average; entropy in nats."""

    head: LessonHead | None
    """None for the average row."""
    weights: list[float]
    entropy: float
    largest: float
    largest_word: int


@dataclass(frozen=True)
class WhyManyFigure:
    """One head's weights by word, the swapped sentence, and rows of heads with other targets."""

    place: Place
    weights: Matrix
    swap: SwapFigure | None
    pair: PairFigure | None
    rows: list[RowFigure]
    """The followed head's, and those of up to two heads that look most at other words."""
    average: RowFigure
    mean_entropy: float
    mean_largest: float


@dataclass(frozen=True)
class ProductFigure:
    """One of the products that add up to a score, with the two decimals that are printed."""

    number: int
    """Which number of the query and of the key, counted from 1."""
    query: float
    key: float
    product: float


@dataclass(frozen=True)
class MatchFigure:
    """The query of the followed piece and one key: their products and the sum."""

    is_seen: bool
    """False if the piece cannot look there."""
    products: list[float]
    largest: list[ProductFigure]
    rest: float
    """Sum of the other products, and of all roundings to two decimals."""
    score: float


@dataclass(frozen=True)
class VectorsFigure:
    """Query, key and value of every piece in the head, and the query's match with every key."""

    place: Place
    d_model: int
    queries: Matrix
    keys: Matrix
    values: Matrix
    matches: list[MatchFigure]
    chosen: int
    """The piece whose key the step multiplies."""
    kv_head: int
    is_grouped: bool


@dataclass(frozen=True)
class ScoresFigure:
    """One row of scores: the weights are softmax(softcap(scores * scale) + added).

    `softcap(x)` is `softcap * tanh(x / softcap)`. A sink joins the softmax but has no piece.
    """

    place: Place
    d_key: int
    scores: list[float]
    scale: float
    is_root: bool
    """Whether the scale is one over the square root of d_key."""
    softcap: float | None
    added: list[float | None]
    """None for a masked piece."""
    sink: float | None
    scaled: list[float | None]
    """Inputs of the softmax; None for a masked piece."""
    powers: list[float | None]
    """e to that; None also if it is too large to write."""
    total: float | None
    weights: list[float]
    leader: int
    dragged: int
    """Index of the piece whose score the question moves."""
    change: float
    """Change of that score in the question, after scaling; 0 if the question moves none."""


@dataclass(frozen=True)
class PartFigure:
    """The part of one piece: its value, shortened by its share, as an arrow in a plane."""

    piece: int
    weight: float
    value_length: float
    length: float
    """Length of the shortened value."""
    value: list[float]
    """The whole value in the plane: across and up."""
    part: list[float]
    """The shortened value in the plane."""


@dataclass(frozen=True)
class MixingFigure:
    """Every piece's part of the sum, largest share first."""

    place: Place
    d_value: int
    parts: list[PartFigure]
    sum: list[float]
    """The sum in the plane."""
    sum_length: float
    kept: float
    """Share of the parts' squared lengths that lies in the plane."""
    weights: list[float]
    difference: float
    """Largest difference between the sum of the parts and the model's own."""


@dataclass(frozen=True)
class SliceFigure:
    """One head's slice of the query, and where the word looks in it, by word."""

    head: LessonHead
    columns: list[int]
    weights: list[float]
    largest_word: int
    kv_head: int


@dataclass(frozen=True)
class ShapeFigure:
    """Shape of one step's values for the whole text."""

    step: str
    shape: list[int]
    axes: list[str]


@dataclass(frozen=True)
class HeadsFigure:
    """The long query of a word, and the slices that the heads take."""

    place: Place
    d_model: int
    d_key: int
    query: list[float]
    heads: list[SliceFigure]
    shown: list[int]
    """Heads on the stage once the question is answered."""
    num_kv_heads: int
    shapes: list[ShapeFigure]


@dataclass(frozen=True)
class OwnerFigure:
    """One head's slice of the concat, and what it adds to the output."""

    head: LessonHead
    columns: list[int]
    concat: list[float]
    contribution: list[float]
    length: float
    share: float
    """Length of the contribution, as a share of all heads' lengths."""
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
    has_bias: bool
    heads: list[OwnerFigure]


@dataclass(frozen=True)
class NextFigure:
    """A token that a causal model may continue with."""

    token: str
    probability: float


@dataclass(frozen=True)
class SpareHeadFigure:
    """The effect of silencing one head."""

    head: LessonHead
    rank: int
    """1 for the head whose silence moves the answer most."""
    value: float
    effect: float
    """0 if the answer stays the same."""
    next: list[float]
    """Probabilities of the tokens in `SpareFigure.next` without the head."""
    likeliest: NextFigure | None


@dataclass(frozen=True)
class TogetherFigure:
    """The effect of silencing several heads at once: the least missed ones, and random ones."""

    count: int
    value: float
    effect: float
    next: list[float]
    likeliest: NextFigure | None
    random: list[float]
    """The value for each draw of as many random heads."""
    random_next: list[float]
    """For each draw, the probability of the token that is likeliest with all heads."""
    random_kept: int
    """In how many of the draws the likeliest token stays; 0 if there are no tokens."""


@dataclass(frozen=True)
class SpareFigure:
    """The model's answer with heads silenced one by one and together."""

    place: Place
    unit: Literal["cosine", "nats", "loss"]
    """Unit of each `value`: cosine or divergence from the unchanged output, or the loss."""
    unchanged: float
    """The value if nothing changes."""
    layers: list[str]
    heads: list[SpareHeadFigure]
    """All heads of the model, by layer and number."""
    order: list[int]
    """Indices of the heads, least missed first."""
    line: float | None
    """The value up to which the answer counts as the same; None for a predicted word."""
    next: list[NextFigure]
    """A causal model's next tokens, likeliest first."""
    last: int
    """Index of the last word that the model reads."""
    together: list[TogetherFigure]
    limit: int
    """The last step at which the answer still counts as the same; -1 for none."""
    draws: int
    weights: Matrix
    """Where the followed word looks in every head, by word."""
    alone: str
    """A sentence on how much single heads matter."""


@dataclass(frozen=True)
class WaitingFigure:
    """Step 7 before the heads have been silenced one by one."""

    place: Place
    head: LessonHead
    row: list[float]
    """Where the followed word looks in its head, by word."""


@dataclass(frozen=True)
class ByHandFigure:
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


FirstFigure = WhyManyFigure | VectorsFigure | ScoresFigure | MixingFigure
Figure = FirstFigure | HeadsFigure | OutputFigure | SpareFigure | WaitingFigure | ByHandFigure


@dataclass(frozen=True)
class QuestionAnswer:
    """A question as the browser receives it."""

    text: Prose
    kind: Literal["choice", "number"]
    options: list[str]
    """Empty if the answer is a number."""


@dataclass(frozen=True)
class StepTitle:
    """A step in the list of steps."""

    name: str
    title: str
    minutes: float


@dataclass(frozen=True, kw_only=True)
class StepAnswer(StepTitle):
    """A step as the browser receives it, without the right answer."""

    paragraphs: list[Prose]
    exercise: Prose
    question: QuestionAnswer
    figures: Figure


@dataclass(frozen=True)
class LessonAnswer:
    """One step of the lesson, and the titles of all."""

    heading: Prose
    """The question of the whole lesson."""
    steps: list[StepTitle]
    step: StepAnswer


@dataclass(frozen=True)
class AnswerVerdict:
    """Whether an answer is right, and a hint or the solution."""

    is_right: bool
    is_over: bool
    """True with the solution: after a right answer, the last attempt, or if it was asked for."""
    sentence: Prose
    why: Prose
    """The hint, or the explanation of the solution."""
    right: int | float | None
    """The right option or number, once it is over."""
    after: list[Prose]
    """Paragraphs that follow the solution."""
