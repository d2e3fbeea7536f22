"""Comparison: two models side by side, as `compare` measured them.

In: the results of one `compare` call. Out: `compare.json`, the comparison read back from it, and
the conclusions in plain words. The tables in the terminal and the report are made from it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from headwise.errors import OptionError, OutputError
from headwise.files import make_folder, read_text, write_aside
from headwise.formats import format_number, format_with_error, replace_nonfinite
from headwise.objectives.evaluation import Estimate
from headwise.pruning.export.sizes import Sizes, Speed
from headwise.pruning.record import ModelFacts

FILE = "compare.json"
YOUR_TEXT, ALL_REGISTERS = "your text", "all registers"
MUCH, MUCH_COSINE = 0.05, 0.02
"""Gaps in added loss above which two kinds of text are said to differ: 5% of perplexity, 0.05 nats
or 5% of a custom loss; 0.02 of cosine."""


@dataclass(frozen=True)
class TextComparison:
    """Two models on the same examples; means with standard errors, None if not applicable."""

    name: str
    """A register of the corpus, `your text` or `all registers`."""
    examples: int
    tokens: int
    loss_before: Estimate | None
    """None if the loss compares the second model's output with the first model's."""
    loss_after: Estimate
    quality_before: Estimate | None
    """`loss_before` in the unit of the comparison, such as perplexity."""
    quality_after: Estimate
    loss_added: Estimate
    """The second model's loss minus the first model's; the error is that of paired differences."""
    agreement: Estimate | None = None
    """Share of predictions for which both models prefer the same token or class."""
    divergence: Estimate | None = None
    """Kullback-Leibler divergence of the second model's predictions from the first's, in nats."""
    neighbours_kept: Estimate | None = None
    """Share of an example's nearest neighbours that are the same for both models' embeddings."""

    @property
    def ratio(self) -> Estimate:
        """The second model's perplexity divided by the first's; only for losses in nats."""
        ratio = math.exp(min(self.loss_added.value, 700.0))
        return Estimate(ratio, ratio * self.loss_added.error)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Sizes and speed of two models, and their quality and agreement on each kind of text."""

    model_before: ModelFacts
    model_after: ModelFacts
    objective: str
    unit: str
    before: Sizes
    after: Sizes
    speed: tuple[Speed, ...] = ()
    own_text: TextComparison | None = None
    """On the user's texts; None if there were none."""
    registers: tuple[TextComparison, ...] = ()
    all_registers: TextComparison | None = None
    """On all examples of all registers; None if no register was read."""
    num_neighbours: int = 0
    """Number of nearest neighbours compared for each example, among all examples; 0 if none."""
    max_tokens: int
    """Most tokens read from each register and from the user's texts."""
    seed: int
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[TextComparison, ...]:
        """The user's texts if there are any, then every register, then all registers together."""
        parts = (self.own_text, *self.registers, self.all_registers)
        return tuple(part for part in parts if part is not None)

    @property
    def worst(self) -> TextComparison | None:
        """The register on which the second model loses most; None if no register was read."""
        return max(self.registers, key=lambda text: text.loss_added.value, default=None)

    def describe_change(self, text: TextComparison) -> str:
        """How much worse or better the second model is on a text, such as 1.8% higher perplexity.

        The standard error follows in brackets.
        """
        added, error = text.loss_added
        name = self.model_before.name
        if added == error == 0:
            return f"no difference from {name}"
        direction = "higher" if added > 0 else "lower"
        if self.unit == "perplexity":
            ratio, ratio_error = text.ratio
            change, spread = _rounded(100 * abs(ratio - 1), 100 * ratio_error, digits=1)
            return f"{change}% {direction} perplexity{spread}"
        if self.unit == "cosine":
            cosine, spread = _rounded(*text.quality_after)
            return f"cosine {cosine} to {name}{spread}"
        if text.loss_before is None:
            change, spread = _rounded(added, error)
            return f"{self.unit} {change} nats{spread}"
        change, spread = _rounded(abs(added), error)
        return f"loss {direction} by {change}{spread}"

    def conclusions(self) -> list[str]:
        """The result in plain words: on the user's text, how other text compares, and the worst."""
        lines = []
        if self.own_text is not None:
            lines.append(f"{YOUR_TEXT}: {self.describe_change(self.own_text)}")
            if warning := self._text_warning(self.own_text):
                lines.append(warning)
        if self.worst is not None:
            if all(text.loss_added == (0, 0) for text in self.registers):
                lines.append(f"every register: {self.describe_change(self.worst)}")
            else:
                change = self.describe_change(self.worst)
                lines.append(f"worst register: {self.worst.name}, {change}")
        return lines

    def _text_warning(self, own: TextComparison) -> str:
        """A sentence if the models differ much more on one of your text and other text."""
        other = self.all_registers
        if other is None:
            return ""
        gap = other.loss_added.value - own.loss_added.value
        noise = math.hypot(other.loss_added.error, own.loss_added.error)
        much = MUCH_COSINE if self.unit == "cosine" else MUCH
        if self.unit not in ("cosine", "perplexity") and own.loss_before is not None:
            much *= abs(own.loss_before.value)  # a custom loss has its own scale
        if abs(gap) <= max(much, 2 * noise):
            return ""
        place = f"{ALL_REGISTERS}: {self.describe_change(other)}"
        if gap > 0:
            return (
                f"warning: other text suffers much more than your text ({place}); the figures on "
                "your text say little about any other text"
            )
        return f"warning: your text suffers much more than other text ({place})"

    def to_json(self) -> str:
        """The comparison as JSON; numbers that are not finite become null."""
        values = asdict(self)
        for name in ("own_text", "all_registers"):
            text = getattr(self, name)
            values[name] = None if text is None else _text_values(text)
        values["registers"] = [_text_values(text) for text in self.registers]
        return json.dumps(replace_nonfinite(values), indent=1)

    def write(self, folder: Path, *, force: bool = False) -> None:
        """Write `compare.json` into `folder`."""
        check_comparison_folder(folder, force=force)
        make_folder(folder)
        write_aside(folder / FILE, self.to_json())

    @classmethod
    def read(cls, folder: Path) -> "Comparison":
        """The comparison that `write` wrote to `folder`."""
        file = folder / FILE
        if not file.is_file():
            raise OptionError(
                f"{folder} has no {FILE}: give a folder that headwise compare --out wrote"
            )
        try:
            return cls.from_json(read_text(file))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise OptionError(f"{file} is not a comparison: {error!r}") from error

    @classmethod
    def from_json(cls, text: str) -> "Comparison":
        """Parse JSON from `to_json`; raises ValueError, TypeError or LookupError if invalid."""
        values = json.loads(text)
        built = {
            **{name: ModelFacts(**values[name]) for name in ("model_before", "model_after")},
            **{name: Sizes(**values[name]) for name in ("before", "after")},
            **{
                name: None if values[name] is None else _text_of(values[name])
                for name in ("own_text", "all_registers")
            },
            "speed": tuple(Speed(**speed) for speed in values["speed"]),
            "registers": tuple(map(_text_of, values["registers"])),
        }
        return cls(**values | built)


def check_comparison_folder(folder: Path, *, force: bool) -> None:
    """Raise if `folder` is a file, or if it has a comparison and `force` is False."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file: give the name of a folder")
    if (folder / FILE).exists() and not force:
        raise OutputError(
            f"{folder} already has {FILE}: choose another folder, or replace it with --force "
            "(force=True in Python)"
        )


def _text_values(text: TextComparison) -> dict[str, Any]:
    values = {part.name: getattr(text, part.name) for part in fields(text)}
    return {
        name: value._asdict() if isinstance(value, Estimate) else value
        for name, value in values.items()
    }


def _text_of(values: Mapping[str, Any]) -> TextComparison:
    built: dict[str, Any] = {
        name: _estimate(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
    }
    return TextComparison(**built)


def _estimate(values: Mapping[str, float | None]) -> Estimate:
    """An estimate from JSON, in which null is the infinite error of a single example."""
    value, error = (values[part] for part in Estimate._fields)
    return Estimate(math.nan if value is None else value, math.inf if error is None else error)


def _rounded(value: float, error: float, *, digits: int = 4) -> tuple[str, str]:
    """A value rounded to its error, and the error in brackets; `digits` if there is none."""
    if not math.isfinite(error) or error <= 0:
        return format_number(value, digits), ""
    number, _, spread = format_with_error(value, error).partition(" ± ")
    return number, f" (± {spread})"
