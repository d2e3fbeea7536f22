"""Settings: how much to cut from a model, how heads are chosen, and on how much text."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from headwise.checks import real_number, whole_number
from headwise.errors import OptionError
from headwise.formats import format_count, join_words
from headwise.pruning.selection.methods import BEST, METHODS

POLICIES = {
    "groups": "whole KV heads with all query heads that they serve: the cache gets smaller",
    "even": "the same number of query heads of every KV head: the cache stays",
}
"""How to cut heads that share keys and values."""
REFITS = ("full", "wide", "bias", "none")
LEAST = {"choose_tokens": 16, "fit_tokens": 64, "held_tokens": 16, "seed": 0}
"""Smallest settings. A window is 2 tokens and the special ones around it, hardly ever more than 14;
the ridge is chosen on a quarter of `fit_tokens`."""


@dataclass(frozen=True)
class PruneSettings:
    """How heads are chosen, refitted and measured."""

    method: str = BEST
    policy: str = "groups"
    is_uniform: bool = False
    """Whether every layer loses the same number of heads."""
    refit: str = "full"
    choose_tokens: int = 4096
    """Tokens of text to choose heads on."""
    fit_tokens: int = 16384
    """Tokens of text to refit output projections on; a quarter more chooses the ridge."""
    held_tokens: int = 4096
    """Tokens of text to report figures on. No head is chosen and nothing fitted there; but it
    decides whether a refit stays, and with `max_loss` how many heads are cut."""
    seed: int = 0
    draws_curve: bool = True
    times_speed: bool = True

    def __post_init__(self) -> None:
        for name, known in (("method", METHODS), ("policy", POLICIES), ("refit", REFITS)):
            if getattr(self, name) not in known:
                raise OptionError(
                    f"{name} is {getattr(self, name)!r}: choose from {', '.join(known)}",
                    option=name,
                )
        for name, least in LEAST.items():
            number = whole_number(name, getattr(self, name), least=least)
            object.__setattr__(self, name, number)


@dataclass(frozen=True)
class Amount:
    """How much to cut, said in one of four ways."""

    heads: str | None = None
    cut: int | None = None
    keep: float | None = None
    """Share of heads to keep, 0 to 1."""
    max_loss: float | None = None
    """Largest loss to accept, in the objective's terms: see `Objective.budget`."""

    def __post_init__(self) -> None:
        ways = list(self.to_dict())
        if len(ways) != 1:
            problem = f"{join_words(ways)} are set" if ways else "the amount to cut is not set"
            raise OptionError(f"{problem}: give one of heads, cut, keep and max_loss")
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
        """The way that is set, by its name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def head_count(self, total: int, cuttable: int) -> int | None:
        """Number of heads to cut at most; None if heads are named or a loss decides it."""
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
