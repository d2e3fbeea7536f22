"""Settings: how much is cut from a model, how it is chosen, and on how much text."""

import math
from dataclasses import dataclass
from typing import Any

from headwise.checks import real_number, whole_number
from headwise.errors import OptionError
from headwise.formats import format_count, join_words
from headwise.pruning.selection.methods import BEST, METHODS

POLICIES = {
    "groups": "whole KV heads with all query heads that they serve: the cache gets smaller",
    "even": "the same number of query heads of every KV head: the cache stays",
}
"""How heads that share keys and values may go."""
REFITS = ("full", "wide", "bias", "none")


@dataclass(frozen=True)
class PruneSettings:
    """How heads are chosen, refitted and measured."""

    method: str = BEST
    policy: str = "groups"
    is_uniform: bool = False
    """Whether every layer loses the same number of heads."""
    refit: str = "full"
    choose_tokens: int = 4096
    """Text that heads are chosen on."""
    fit_tokens: int = 16384
    """Text that output projections are refitted on; a quarter more chooses the ridge."""
    held_tokens: int = 4096
    """Text that no head is chosen on and nothing fitted on: what is reported is measured on it.
    It decides whether a refit stays, and with `max_loss` how much goes."""
    seed: int = 0
    draws_curve: bool = True
    times_speed: bool = True

    def __post_init__(self) -> None:
        """Refuse what there is not."""
        for name, known in (("method", METHODS), ("policy", POLICIES), ("refit", REFITS)):
            if getattr(self, name) not in known:
                raise OptionError(
                    f"{name} is {getattr(self, name)!r}: choose from {', '.join(known)}",
                    option=name,
                )
        for name, least in LEAST.items():
            number = whole_number(name, getattr(self, name), least=least)
            object.__setattr__(self, name, number)


LEAST = {"choose_tokens": 16, "fit_tokens": 64, "held_tokens": 16, "seed": 0}
"""The smallest settings. A window is 2 tokens and the special ones around it, few of which are more
than 14; a ridge is chosen on a quarter of `fit_tokens`."""


def to_go(count: int) -> str:
    """How many heads are to go, in words."""
    return f"{format_count(count, 'head')} {'is' if count == 1 else 'are'} to go"


@dataclass(frozen=True)
class Amount:
    """How much goes: named heads, a number, a share that stays, or a loss that is borne."""

    heads: str | None = None
    cut: int | None = None
    keep: float | None = None
    max_loss: float | None = None

    def __post_init__(self) -> None:
        """Refuse none, several, and what is out of range."""
        given = [name for name, value in self.named().items() if value is not None]
        if len(given) != 1:
            said = join_words(given) if given else "none of them"
            raise OptionError(
                "how much goes is said by one of heads (names or a plan), cut, keep and max_loss, "
                f"and by {said} here"
            )
        if self.cut is not None:
            object.__setattr__(self, "cut", whole_number("cut", self.cut))
        for name, example in (("keep", "0.6"), ("max_loss", "0.01")):
            if (given_as := getattr(self, name)) is not None:
                object.__setattr__(self, name, real_number(name, given_as, example))
        if self.cut is not None and self.cut < 0:
            raise OptionError(
                f"cut is {self.cut}: it counts heads, and cannot be below 0", option="cut"
            )
        if self.keep is not None and not 0 <= self.keep <= 1:
            raise OptionError(
                f"keep is {self.keep}: it is the share of heads that stay, 0 to 1", option="keep"
            )
        if self.max_loss is not None and not 0 <= self.max_loss < math.inf:
            raise OptionError(
                f"max_loss is {self.max_loss}: it must be 0 or more, as 0.01 is", option="max_loss"
            )

    def named(self) -> dict[str, Any]:
        """The four ways by name."""
        return {
            "heads": self.heads,
            "cut": self.cut,
            "keep": self.keep,
            "max_loss": self.max_loss,
        }

    def given(self) -> dict[str, Any]:
        """The one way that was taken, by its name."""
        return {name: value for name, value in self.named().items() if value is not None}

    def wanted(self, total: int, cuttable: int) -> int | None:
        """How many heads go at most; None where that has to be measured, or heads are named."""
        if self.cut is not None:
            wanted = self.cut
        elif self.keep is not None:
            wanted = round((1 - self.keep) * total)
            if not wanted and self.keep < 1:
                raise OptionError(
                    f"keep is {self.keep:g}: of {total} heads that leaves every one", option="keep"
                )
        else:
            return None
        if wanted > cuttable:
            raise OptionError(f"{to_go(wanted)}, and only {cuttable} of the model's {total} can")
        return wanted
