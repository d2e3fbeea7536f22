"""Settings: how much to cut from a model, how to choose heads, and how much text to use."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from headwise.checks import real_number, whole_number
from headwise.errors import OptionError
from headwise.formats import format_count, join_words
from headwise.pruning.selection.low_precision import CHOOSE_DTYPES
from headwise.pruning.selection.methods import BEST, METHODS
from headwise.pruning.text_sets import FOLDS

POLICIES = {
    "auto": "groups, or even if each layer has only one KV head",
    "groups": "whole KV heads with all query heads that they serve: the cache shrinks",
    "even": "the same number of query heads from every KV head: the cache keeps its size",
}
"""Ways to cut heads that share keys and values."""
REFITS = ("full", "wide", "bias", "none")
LEAST = {"choose_tokens": 16, "fit_tokens": 64, "held_tokens": 16, "fold": 0, "seed": 0}
"""Smallest allowed values. A window needs 2 tokens plus special ones, of which there are rarely
more than 14; the ridge is chosen on a quarter as many tokens as `fit_tokens`."""


@dataclass(frozen=True)
class PruneSettings:
    """How heads are chosen, refitted and measured."""

    method: str = BEST
    policy: str = "auto"
    is_uniform: bool = False
    """Whether every layer loses the same number of heads."""
    refit: str = "bias"
    """The correction to try. `bias` adds the cut heads' mean outputs to the biases; `full` and
    `wide` also refit weights, and are kept only if they do better. `none` tries none."""
    choose_tokens: int = 4608
    """Number of tokens to choose heads on."""
    choose_dtype: str = "auto"
    """Precision to choose heads in: `float32`, `bfloat16`, or `auto`, which is bfloat16 for models
    with at least 50 million parameters on processors with instructions for it."""
    fit_tokens: int = 4096
    """Number of tokens to fit corrections on; half as many more are used to shrink them."""
    held_tokens: int = 3072
    """Number of held-out tokens to report figures on. They decide nothing. Half as many more, of
    other registers, decide whether a correction is kept and, with `max_loss`, how much is cut."""
    keeps_texts_whole: bool = False
    """Whether each text is an example of its own, never split into sentences or windows unless it
    is longer than 512 tokens or the model's limit."""
    fold: int = 0
    """Which of four ways to divide the built-in registers among the steps; 0 to 3."""
    samples_text: bool = True
    """Whether heads of causal models are also chosen on text that the model itself writes."""
    seed: int = 0
    draws_curve: bool = False
    times_speed: bool = True

    def __post_init__(self) -> None:
        for name, known in (
            ("method", tuple(METHODS)),
            ("policy", POLICIES),
            ("refit", REFITS),
            ("choose_dtype", CHOOSE_DTYPES),
        ):
            if getattr(self, name) not in known:
                raise OptionError(
                    f"{name} is {getattr(self, name)!r}: choose from {', '.join(known)}",
                    option=name,
                )
        for name, least in LEAST.items():
            number = whole_number(name, getattr(self, name), least=least)
            object.__setattr__(self, name, number)
        if self.fold >= FOLDS:
            raise OptionError(f"fold is {self.fold}: choose from 0 to {FOLDS - 1}", option="fold")


@dataclass(frozen=True)
class Amount:
    """How much to cut, set in one of four ways."""

    heads: str | None = None
    cut: int | None = None
    keep: float | None = None
    """Share of heads to keep, 0 to 1."""
    max_loss: float | None = None
    """Largest increase in the loss to accept, as `Objective.budget` interprets it."""

    def __post_init__(self) -> None:
        ways = list(self.to_dict())
        if len(ways) != 1:
            problem = f"{join_words(ways)} are set" if ways else "the amount to cut is not set"
            raise OptionError(f"{problem}: give exactly one of heads, cut, keep and max_loss")
        if self.cut is not None:
            object.__setattr__(self, "cut", whole_number("cut", self.cut, least=0))
        for name, example in (("keep", "0.6"), ("max_loss", "0.01")):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, real_number(name, value, example))
        if self.keep is not None and not 0 <= self.keep <= 1:
            raise OptionError(
                f"keep is {self.keep}: it is the share of heads to keep, 0 to 1", option="keep"
            )
        if self.max_loss is not None and not 0 <= self.max_loss < math.inf:
            raise OptionError(
                f"max_loss is {self.max_loss}: it must be finite and not negative, such as 0.01",
                option="max_loss",
            )

    def to_dict(self) -> dict[str, Any]:
        """The one field that is set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def head_count(self, total: int, cuttable: int) -> int | None:
        """Maximum number of heads to cut; None if `heads` or `max_loss` decides it."""
        if self.cut is not None:
            count = self.cut
        elif self.keep is not None:
            count = round((1 - self.keep) * total)
            if not count and self.keep < 1:
                raise OptionError(
                    f"keep is {self.keep:g}, which keeps all {total} heads: use a smaller share",
                    option="keep",
                )
        else:
            return None
        if count > cuttable:
            raise OptionError(
                f"cannot cut {format_count(count, 'head')}: only {cuttable} of the model's {total} "
                "can be cut"
            )
        return count
