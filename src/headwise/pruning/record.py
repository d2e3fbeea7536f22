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
from headwise.formats import replace_nonfinite
from headwise.heads import HeadId, parse_heads
from headwise.pruning.export.sizes import Sizes, Speed
from headwise.pruning.refit.refit import LayerFit
from headwise.pruning.settings import Amount, PruneSettings

FILE = "prune.json"
OWN_TEXT = "given"
"""`TextUse.source` for texts and batches passed by the user."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts about the uncut model."""

    name: str
    about: Mapping[str, Any] = field(default_factory=dict)
    """Path or id, revision, digest, class and dtype, if known."""


@dataclass(frozen=True)
class TextPart:
    """Text or batches used for one step."""

    examples: int
    tokens: int
    size: str
    """In words, such as `4,096 tokens`, or the number of examples if the model reads no tokens."""
    sha256: str
    """Digest of the inputs to the model."""


@dataclass(frozen=True)
class TextUse:
    """The text used for each decision and each figure."""

    source: str
    """`given`, or the name of the built-in text."""
    chosen_on: TextPart
    fitted_on: TextPart
    ridge_chosen_on: TextPart
    measured_on: TextPart


@dataclass(frozen=True)
class Score:
    """A mean loss with its standard error, and its value in the objective's unit.

    In a record read from a file, numbers that JSON cannot represent are NaN.
    """

    loss: float
    loss_se: float
    value: float


@dataclass(frozen=True)
class Quality:
    """Scores on held-out text, which was not used to choose heads or to fit anything."""

    objective: str
    unit: str
    uncut: Score
    cut: Score
    """Score before the refit."""
    random_mean: Score
    random: tuple[Score, ...] = ()
    """Scores after cutting the same number of random heads, without a refit."""
    refitted: Score | None = None
    """Score after the refit; None if there was no refit or it did not help."""
    floor: Score | None = None
    """Score with every head silent; None if no curve was measured."""
    refit_dropped: bool = False
    """Whether a refit was undone because it did not help."""

    @property
    def final(self) -> Score:
        """Score of the model that `prune` returns."""
        return self.refitted or self.cut


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
            name: None if quality[name] is None else _score(quality[name])
            for name in ("uncut", "cut", "random_mean", "refitted", "floor")
        }
        parts = dict(values["text"])
        source = parts.pop("source")
        random = tuple(map(_score, quality["random"]))
        built = {
            "amount": Amount(**values["amount"]),
            "model": ModelFacts(**values["model"]),
            "heads_cut": parse_heads(values["heads_cut"]),
            "settings": PruneSettings(**values["settings"]),
            "text": TextUse(source, **{name: TextPart(**part) for name, part in parts.items()}),
            "before": Sizes(**values["before"]),
            "after": Sizes(**values["after"]),
            "quality": Quality(**quality | scores | {"random": random}),
            "refit": tuple(LayerFit(**fit) for fit in values["refit"]),
            "speed": tuple(Speed(**speed) for speed in values["speed"]),
        }
        return cls(**values | built)


def _score(values: Mapping[str, float | None]) -> Score:
    return Score(**{name: math.nan if value is None else value for name, value in values.items()})
