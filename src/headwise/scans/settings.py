"""ScanSettings: what a scan measures, and on how much text.

In: a user's values. Out: checked values. scan.py decides what to read.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.measures.counter import MEASURES, ROWS_LIMIT, ROWS_SAMPLED, make_measures
from headwise.measures.measure import Measure
from headwise.probes.builtin import MOST

LARGEST_SEED = 2**32 - 1
"""Largest allowed seed: torch must still accept a million times it, plus a document's index."""


@dataclass(frozen=True)
class ScanSettings:
    """Measures to take in a scan, and how much text to take them on."""

    length: int | None = None
    """Longest window in tokens; None = the model's own limit."""
    max_tokens: int | None = None
    """Maximum number of tokens of text to read; None = all."""
    rows: int | str = "auto"
    """`all`, a number of random rows per window, or `auto`: all, or a sample above 2,048 tokens."""
    measures: str | type[Measure] | Sequence[str | type[Measure]] = tuple(MEASURES)
    """Names of measures, or your own subclasses of `Measure`; a single one needs no tuple."""
    compares: bool = True
    """Whether to compare heads with each other."""
    repeats: bool = True
    """Whether to measure induction on repeated random tokens."""
    probe: bool | None = None
    """Whether to read the built-in sentences with gold relations; None = if no input is given and
    the model knows English."""
    max_sentences: int | None = None
    """Maximum number of natural sentences to read; None = all."""
    per_relation: int = 100
    """Number of controlled sentences for each relation."""
    seed: int = 0
    """Seed for random rows, tokens and sentences."""

    def __post_init__(self) -> None:
        for name in ("length", "max_tokens", "max_sentences"):
            if getattr(self, name) is not None:
                self._check_number(name)
        self._check_number("per_relation", most=MOST)
        self._check_number("seed", least=0, most=LARGEST_SEED)
        if isinstance(self.rows, str) and self.rows not in ("all", "auto"):
            raise OptionError(
                f"rows is {self.rows!r}: give all, auto or a number of rows", option="rows"
            )
        if not isinstance(self.rows, str):
            self._check_number("rows")
        for name in ("compares", "repeats", "probe"):
            value = getattr(self, name)
            if not isinstance(value, bool) and not (value is None and name == "probe"):
                raise OptionError(f"{name} is {value!r}: give True or False", option=name)
        measures: Any = self.measures
        is_single = isinstance(measures, str) or not isinstance(measures, Iterable)
        choices = (measures,) if is_single else tuple(measures)
        make_measures(choices)  # raises if one is unknown
        names: dict[object, str] = {kind: name for name, kind in MEASURES.items()}
        choices = tuple(names.get(choice, choice) for choice in choices)
        object.__setattr__(self, "measures", choices)

    def _check_number(self, name: str, *, least: int = 1, most: int | None = None) -> None:
        number = whole_number(name, getattr(self, name), least=least, most=most)
        object.__setattr__(self, name, number)

    @property
    def measure_choices(self) -> tuple[str | type[Measure], ...]:
        """`measures` as a tuple, with built-in measures given by name."""
        assert isinstance(self.measures, tuple)
        return self.measures

    def to_json(self) -> dict[str, Any]:
        """The settings as JSON values, with your own measures given by class name."""
        names = [
            choice if isinstance(choice, str) else f"{choice.__module__}.{choice.__name__}"
            for choice in self.measure_choices
        ]
        return asdict(self) | {"measures": names}

    def describe_rows(self) -> str:
        """Which rows of each window the scan measures, in words."""
        if self.rows == "auto":
            return f"every row up to {ROWS_LIMIT:,} tokens, {ROWS_SAMPLED} random rows beyond"
        return "every row" if self.rows == "all" else f"{self.rows} random rows of each window"
