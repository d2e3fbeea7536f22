"""The server's answers; static/types.d.ts is generated from them.

Frozen dataclasses without behaviour, which the notebook widget uses too. api_requests.py has the
requests.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ProgressAnswer:
    """The current work's stage, steps done and total steps, and the number of waiting requests."""

    stage: str
    """A sentence such as "Reading layer 4 of 30"; empty if there is no work."""
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

    letter: str
    light: str
    dark: str
    meaning: str
    tendency: str
    """Part of a sentence: "tends to look back to a mention of the same thing"."""
    phrase: str
    """Part of a sentence: "looks back to a mention of the same thing"."""


@dataclass(frozen=True)
class Finding:
    """A fact worth a click: about this text, or about other text."""

    kind: Literal["link", "swap", "offset", "sink", "unclear"]
    """"link": `head` links `source` to `target`. "swap": `text` has `word` in another place.
    "offset": `head` looks `count` words ahead, or back if negative. "sink": `head` rests on `word`.
    "unclear": `count` heads have no clear role."""
    head: str | None = None
    role: str | None = None
    source: int | None = None
    """Index of a word of the head's stack; of a piece if the text has no words."""
    target: int | None = None
    share: float | None = None
    word: str | None = None
    text: str | None = None
    count: int | None = None


@dataclass(frozen=True)
class ScanFacts:
    """Roles of every head in other text, from a scan; columns are in the order of `names`."""

    tokens: int
    """Number of tokens that the scan read."""
    names: list[str]
    roles: list[list[str]]
    """Roles of each head, the lead role first."""
    details: list[dict[str, str]]
    """A few words on each role of each head, such as "one word back"."""
    figures: list[dict[str, str]]
    """Score of each role of each head, such as "63% found, 50% by chance"."""
    findings: list[Finding]


@dataclass(frozen=True)
class BuiltinPair:
    """A sentence, the same with one word changed, and a head and a word whose links move."""

    text: str
    other: str
    head: str | None
    """None if it is not known which head's links move most."""
    source: int


@dataclass(frozen=True)
class LessonPair(BuiltinPair):
    """The pair of the lesson; `candidates` are the two words that the source may refer to."""

    candidates: list[int]


@dataclass(frozen=True)
class ModelAnswer:
    """Everything about the model that the page needs before it reads a text."""

    name: str
    title: str
    version: str
    """Version of headwise."""
    loads_as: str | None
    """Command-line arguments that select the model; None if it was not loaded by name."""
    kind: Literal["similarity", "prediction"]
    layers: list[LayerFacts]
    roles: dict[str, RoleFacts]
    """The roles in the order that decides which of a head's roles leads."""
    measures: dict[str, str]
    job_measures: dict[str, dict[str, str]]
    measure_groups: dict[str, list[str]]
    """Names of measures by the name of their group, jobs' measures included."""
    text: str
    pair: BuiltinPair | None
    lesson_pair: LessonPair | None
    other_texts: list[str]
    max_texts: int
    jobs: list[JobAnswer]
    scan: ScanFacts | None
    """Roles from the shipped scan or from the last finished job; None before that."""


@dataclass(frozen=True)
class StageWord:
    """A word on the stage, or a piece of one."""

    text: str
    space: bool
    """Whether a space stands before it."""
    kind: Literal["word", "mark", "special"]


@dataclass(frozen=True)
class StageAxis:
    """Rows and columns of a stack's maps."""

    rows: list[StageWord]
    columns: list[StageWord] | None
    """None if the columns are the same words as the rows."""


@dataclass(frozen=True)
class StackAxes:
    """Axes of a stack by word and by piece; `words` is None if there are no whole words."""

    words: StageAxis | None
    pieces: StageAxis


@dataclass(frozen=True)
class TextAnswer:
    """A text that the model has read: its words, measures of every head, and findings."""

    name: str
    text: str
    stacks: dict[str, StackAxes]
    why_no_words: str | None
    """The reason why whole words are not available; None if they are."""
    rests_on_first: bool
    """Whether heads may rest on the first token, as in causal models."""
    is_unknown: bool
    """Whether the tokenizer does not know most pieces; findings would say nothing then."""
    is_small: bool
    """Whether the weights of all heads may be requested at once."""
    tokens: int
    left_out: int
    is_models_limit: bool
    measured: int
    heads: HeadGrid
    start: Finding
    """The head and the word that the page opens on."""
    findings: list[Finding]
    """Links of this text, at most four."""


@dataclass(frozen=True)
class Aligned:
    """Pairs of indices into two texts; None stands for a word without a partner."""

    words: list[list[int | None]]
    pieces: list[list[int | None]]


@dataclass(frozen=True)
class PairAnswer:
    """Two texts, which of their words correspond (in the first stack), and what heads carry."""

    first: TextAnswer
    second: TextAnswer
    aligned: Aligned
    carries: dict[str, float] | None
    """Estimated share of the difference between the model's outputs that each head carries."""
    why_no_carries: str | None
    """The reason why the shares are unknown, as a sentence; None if they are known."""


@dataclass(frozen=True)
class SavedWeights:
    """Weights of all heads of a stack, in a saved page."""

    shape: list[int]
    """Numbers of heads, rows and columns."""
    values: str
    """Two bytes per weight, little-endian, as base64; 65535 means 1."""


@dataclass(frozen=True)
class SavedPair:
    """The second text of a saved pair."""

    second: TextAnswer
    aligned: Aligned
    carries: dict[str, float] | None
    why_no_carries: str | None


@dataclass(frozen=True)
class SavedPage:
    """The data of a saved page."""

    version: str
    about: ModelAnswer
    text: TextAnswer
    pair: SavedPair | None
    weights: dict[str, dict[str, SavedWeights]]
    """Weights by the name of a text and of a stack."""
    state: dict[str, str]
    """Values of the address with which the page opens."""
    missing: str
    """A sentence on what needs the model."""


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
    """Facts about a head beyond its weights."""

    head: str
    stack: str
    profile: Profile
    contribution: Contribution | None
    measures: list[MeasureValue]
    roles: list[RoleEvidence]
    is_scanned: bool
    served_by: ServedBy | None


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

    what: Literal["next", "masked", "end", "class"]
    """The next token, a masked token, the token at the end of the text, or a class of the text."""
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
class RandomAnswer:
    """Outputs with as many heads changed, drawn at random; one value per draw."""

    heads: list[list[str]]
    """The heads of each draw."""
    names: list[str]
    """Names of the predictions: the likeliest before the chosen change, after it, and others."""
    pairs: list[list[int]]
    """For an embedding model, the numbers of every two texts."""
    values: list[list[float]]
    """Probabilities of each name, or cosines of each pair, by draw."""
    likeliest: list[str]
    """The likeliest prediction in each draw."""


@dataclass(frozen=True)
class GeneratedText:
    """A text and its continuation."""

    text: str
    added: str
    """The continuation; `text` ends with it."""
    tokens: int
    end: Literal["sentence", "text", "limit"]
    """End of the sentence or line, the model's own end of text, or the number of tokens."""


@dataclass(frozen=True)
class GenerateAnswer:
    """A text continued with all heads on and with the gates."""

    remarks: list[str]
    before: GeneratedText
    after: GeneratedText


@dataclass(frozen=True)
class FoundHeadsAnswer:
    """Heads that a search on one text found, and the number of cuts that it tried."""

    heads: list[str]
    tried: int


@dataclass(frozen=True)
class PlanAnswer:
    """Costs of one model's attention: some columns of `Plan.to_row`."""

    name: str
    d_model: int
    num_heads: int
    num_kv_heads: int
    d_key: int
    num_layers: int
    is_causal: bool
    length: int
    parameters_layer: int
    parameters_attention: int
    multiply_adds_per_token: float
    cache_bytes: int
    weight_matrix_bytes: int
    decode_intensity: float | None


@dataclass(frozen=True)
class LoadedPlanAnswer:
    """Costs of the loaded model's attention, or why they are unknown."""

    plan: PlanAnswer | None
    why: str | None


@dataclass(frozen=True)
class HeadChoiceAnswer:
    """A head count that divides d_model, its costs in one layer, and its drawbacks."""

    heads: int
    d_key: int
    parameters: int
    multiply_adds_per_token: float
    weight_matrix_bytes: int
    remarks: list[str]


ANSWERS = (
    *(ModelAnswer, ProgressAnswer, TextAnswer, PairAnswer, SavedPage),
    *(
        HeadAnswer,
        WhatIfAnswer,
        RandomAnswer,
        GenerateAnswer,
        FoundHeadsAnswer,
        JobAnswer,
        PlanAnswer,
        LoadedPlanAnswer,
        HeadChoiceAnswer,
    ),
)
"""Answers that the page reads; the lesson's are in lesson/figures.py."""
