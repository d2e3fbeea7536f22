"""PruneRecord: everything that `prune` measured.

In: the results of one prune. Out: `prune.json` and back; the model card, the terminal's tables and
the report read this record.
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
"""`TextUse.source` of texts and batches that the user gave."""


@dataclass(frozen=True)
class ModelFacts:
    """The uncut model."""

    name: str
    about: Mapping[str, Any] = field(default_factory=dict)
    """Path or id, revision, digest, class and dtype, as far as they are known."""


@dataclass(frozen=True)
class TextPart:
    """Text or batches that were used for one purpose."""

    examples: int
    tokens: int
    size: str
    """Tokens, or examples if the model reads no tokens, in words."""
    sha256: str
    """Digest of the model's inputs."""


@dataclass(frozen=True)
class TextUse:
    """The text that each decision and each figure rests on."""

    source: str
    """`given`, or the name of the built-in text."""
    chosen_on: TextPart
    fitted_on: TextPart
    ridge_chosen_on: TextPart
    measured_on: TextPart


@dataclass(frozen=True)
class Score:
    """A mean loss with its standard error, and the loss in the objective's unit.

    NaN for numbers that JSON cannot hold, once the record was read from a file.
    """

    loss: float
    loss_se: float
    value: float


@dataclass(frozen=True)
class Quality:
    """Scores on text that no head was chosen on and nothing was fitted on."""

    objective: str
    unit: str
    uncut: Score
    cut: Score
    """Before the refit."""
    random_mean: Score
    random: tuple[Score, ...] = ()
    """Cuts of as many heads at random, without a refit."""
    refitted: Score | None = None
    """None if there was no refit, or if it did not help."""
    floor: Score | None = None
    """Every head silent; None if no curve was measured."""
    refit_dropped: bool = False
    """Whether a refit did not help and was undone."""

    @property
    def final(self) -> Score:
        """Score of the model that `prune` returns."""
        return self.refitted or self.cut


@dataclass(frozen=True, kw_only=True)
class PruneRecord:
    """Record of a prune: the settings, the heads cut, and the sizes, scores and speed measured."""

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
    """Largest difference between the cut model's outputs and those with the heads silenced."""
    onnx_difference: float | None = None
    """Largest difference of the ONNX model's outputs; None if none was exported."""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The record as JSON; None for numbers that are not finite."""
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
            raise OptionError(f"{file} is not a record of a cut: {error!r}") from error

    @classmethod
    def from_json(cls, text: str) -> "PruneRecord":
        """The record that `to_json` wrote; raises ValueError, TypeError or LookupError if not."""
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
