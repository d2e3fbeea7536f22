"""Variants: the shapes of attention that a sweep compares, in groups that answer one question each.

In: d_model. Out: numbers and widths of heads. Models of a sweep differ in these alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.errors import OptionError

GROUPS = {
    "split": "every number of heads that divides d_model: same parameters, ever thinner heads",
    "free": "more and more heads of one width: nothing gets thinner, parameters grow",
    "big": "one head with the parameters of all heads of free together",
    "narrow": "one head with ever fewer numbers in its keys, and values as wide as d_model",
}


@dataclass(frozen=True, order=True)
class Variant:
    """One shape of attention."""

    group: str
    num_heads: int
    d_key: int
    d_value: int

    @property
    def name(self) -> str:
        """As files and tables call it."""
        return f"{self.group}-{self.num_heads}x{self.d_key}"


def variants_of(groups: Sequence[str], d_model: int, width: int) -> tuple[Variant, ...]:
    """The variants of some groups, in their order."""
    unknown = [group for group in groups if group not in GROUPS]
    if unknown or not groups:
        named = unknown[0] if unknown else ""
        raise OptionError(f"there is no group {named!r}: the groups are {', '.join(GROUPS)}")
    makers = {
        "split": [("split", heads, d_model // heads) for heads in divisors(d_model)],
        "free": [("free", heads, width) for heads in counts(width, d_model)],
        "big": [("big", 1, heads * width) for heads in counts(width, d_model)[1:]],
        "narrow": [("narrow", 1, size) for size in divisors(d_model)],
    }
    return tuple(
        Variant(group, heads, size, d_model if group == "narrow" else size)
        for wanted in groups
        for group, heads, size in makers[wanted]
    )


def divisors(number: int) -> list[int]:
    """All of them, in order."""
    return [one for one in range(1, number + 1) if number % one == 0]


def counts(width: int, d_model: int) -> list[int]:
    """Powers of two, until there are four times as many heads as fill d_model."""
    return [2**power for power in range(16) if 2**power * width <= 4 * d_model]
