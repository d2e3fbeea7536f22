"""PruneRecord: everything that `prune` measured.

In: the results of one `prune` call. Out: `prune.json`, and the record read back from it. The model
card, the tables in the terminal and the report are made from this record.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headwise.errors import OptionError
from headwise.files import read_text, write_aside
from headwise.formats import format_number, format_with_error, replace_nonfinite
from headwise.heads import HeadId, parse_heads
from headwise.pruning.export.sizes import Sizes, Speed
from headwise.pruning.refit.refit import LayerFit
from headwise.pruning.settings import Amount, PruneSettings
from headwise.pruning.text_sets import OWN_TEXT

FILE = "prune.json"
ROUNDING = 1e-5
"""Smaller standard errors are rounding errors, for instance of a model compared with itself."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts about the uncut model."""

    name: str
    about: Mapping[str, Any] = field(default_factory=dict)
    """Path or id, revision, digest, class and dtype, if known."""


@dataclass(frozen=True)
class TextPart:
    """Text or batches used for one step."""

    registers: tuple[str, ...]
    """Names of the built-in registers, or `given` for the user's text or batches."""
    examples: int
    tokens: int
    size: str
    """In words, such as `4,096 tokens`, or the number of examples if the model reads no tokens."""
    sha256: str
    """Digest of the inputs to the model."""


@dataclass(frozen=True)
class TextUse:
    """The text used for each step, as in `TextSets`."""

    choose: TextPart
    fit: TextPart
    shrink: TextPart
    decide: TextPart
    report: TextPart

    @property
    def is_given(self) -> bool:
        """Whether the user gave the text."""
        return self.report.registers == (OWN_TEXT,)


@dataclass(frozen=True)
class Score:
    """A mean loss with its standard error, and its value in the objective's unit.

    In a record read from a file, numbers that JSON cannot represent are NaN.
    """

    loss: float
    loss_se: float
    value: float
    value_se: float
    """Standard error of `value`."""

    @property
    def text(self) -> str:
        """The value, with its standard error unless that is unknown or a rounding error."""
        if not ROUNDING < self.value_se < math.inf:
            return format_number(self.value, 4)
        return format_with_error(self.value, self.value_se)


@dataclass(frozen=True)
class CutScores:
    """Scores of the uncut model, of the model after the cut, and of the result on some text."""

    uncut: Score
    cut: Score
    """Score before any correction."""
    final: Score
    """Score of the model that `prune` returns."""


@dataclass(frozen=True)
class Quality:
    """Scores on held-out text, which decided nothing."""

    objective: str
    unit: str
    scores: CutScores
    registers: Mapping[str, CutScores]
    """The scores on each register of the held-out text."""
    random: tuple[Score, ...] = ()
    """Scores after cutting the same number of random heads; if the result's biases were corrected,
    with as large a share of these heads' mean outputs in their place."""
    random_lead: float = math.nan
    """How much lower the result's loss is than that of the median random cut."""
    random_lead_se: float = math.nan
    """Standard error of that difference, over the same examples."""
    correction: str = "none"
    """The correction kept: `bias` (the mean outputs of the cut heads), the variant of the refit, or
    `none`."""
    share: float = 0.0
    """Share of the correction that was applied: of the mean outputs, or of the way to the refit."""
    is_dropped: bool = False
    """Whether corrections were fitted but not kept, because they did not help everywhere."""
    other: CutScores | None = None
    """Scores on built-in text, if heads were chosen on the user's text."""
    other_registers: Mapping[str, CutScores] = field(default_factory=dict)
    floor: Score | None = None
    """Score with every head silent; None if no curve was measured."""

    @property
    def random_median(self) -> Score | None:
        """The median of the random scores by loss; of an even number, the lower one."""
        ranked = sorted(self.random, key=lambda score: score.loss)
        return ranked[(len(ranked) - 1) // 2] if ranked else None

    @property
    def beats_random(self) -> bool:
        """Whether the result is clearly better than the median random cut: by two errors."""
        return not self.random or self.random_lead > 2 * self.random_lead_se


@dataclass(frozen=True, kw_only=True)
class PruneRecord:
    """Record of a `prune` call: settings, heads cut, and the sizes, scores and speed measured."""

    amount: Amount
    model: ModelFacts
    heads_cut: tuple[HeadId, ...]
    method: str
    settings: PruneSettings
    text: TextUse
    before: Sizes
    after: Sizes
    quality: Quality
    refit: tuple[LayerFit, ...] = ()
    speed: tuple[Speed, ...] = ()
    cut_against_silenced: float | None = None
    """Largest difference in output between cutting these heads and silencing them."""
    onnx_difference: float | None = None
    """Largest difference in output between the ONNX and the torch model; None if not exported."""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The record as JSON; numbers that are not finite become null."""
        values = asdict(self) | {
            "amount": self.amount.to_dict(),
            "heads_cut": " ".join(map(str, self.heads_cut)),
        }
        return json.dumps(replace_nonfinite(values), indent=1)

    def write(self, folder: Path) -> None:
        """Write `prune.json` into `folder`."""
        write_aside(folder / FILE, self.to_json())

    @classmethod
    def read(cls, folder: Path) -> "PruneRecord":
        """The record in a directory that `prune` wrote."""
        file = folder / FILE
        if not file.is_file():
            raise OptionError(
                f"{folder} has no {FILE}: give a directory that headwise prune --out wrote"
            )
        try:
            return cls.from_json(read_text(file))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise OptionError(f"{file} is not a pruning record: {error!r}") from error

    @classmethod
    def from_json(cls, text: str) -> "PruneRecord":
        """Parse JSON from `to_json`; raises ValueError, TypeError or LookupError if invalid."""
        values = json.loads(text)
        quality = values["quality"]
        scores = {
            "scores": _cut_scores(quality["scores"]),
            "random": tuple(map(_score, quality["random"])),
            "other": quality["other"] and _cut_scores(quality["other"]),
            "floor": quality["floor"] and _score(quality["floor"]),
            **{
                name: {register: _cut_scores(part) for register, part in quality[name].items()}
                for name in ("registers", "other_registers")
            },
            **{name: _number(quality[name]) for name in ("random_lead", "random_lead_se")},
        }
        parts = {
            step: TextPart(**part | {"registers": tuple(part["registers"])})
            for step, part in values["text"].items()
        }
        built = {
            "amount": Amount(**values["amount"]),
            "model": ModelFacts(**values["model"]),
            "heads_cut": parse_heads(values["heads_cut"]),
            "settings": PruneSettings(**values["settings"]),
            "text": TextUse(**parts),
            "before": Sizes(**values["before"]),
            "after": Sizes(**values["after"]),
            "quality": Quality(**quality | scores),
            "refit": tuple(LayerFit(**fit) for fit in values["refit"]),
            "speed": tuple(Speed(**speed) for speed in values["speed"]),
        }
        return cls(**values | built)


def _cut_scores(values: Mapping[str, Any]) -> CutScores:
    return CutScores(**{name: _score(part) for name, part in values.items()})


def _score(values: Mapping[str, float | None]) -> Score:
    return Score(**{name: _number(value) for name, value in values.items()})


def _number(value: float | None) -> float:
    """A number in JSON; NaN for null, which stands for numbers that are not finite."""
    return math.nan if value is None else value
