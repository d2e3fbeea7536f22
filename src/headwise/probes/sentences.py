"""Sentences whose words stand in known relations.

In: words and arcs between their places. Out: records that cannot hold an impossible arc. This
module refuses to know where a sentence comes from, what a relation means and what a token is.
"""

import operator
from dataclasses import dataclass
from typing import Any

from headwise.errors import OptionError


@dataclass(frozen=True)
class Arc:
    """One gold relation: word number `dependent` belongs to word number `governor`.

    With candidates, the gold governor among them, the question is which of them gets most; without,
    which word of the sentence does, the asking word left out.
    """

    relation: str
    dependent: int
    governor: int
    candidates: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an arc that asks nothing, or whose answer is not among its candidates."""
        for name in ("dependent", "governor"):
            object.__setattr__(self, name, place_of(self.relation, getattr(self, name)))
        places = tuple(place_of(self.relation, one) for one in self.candidates)
        object.__setattr__(self, "candidates", places)
        if not self.relation:
            raise OptionError(
                f"the arc {self.dependent} -> {self.governor} has no relation: name one"
            )
        if self.dependent == self.governor:
            raise OptionError(
                f"{self.relation} joins word {self.governor} to itself: it needs two words"
            )
        if not self.candidates:
            return
        if self.governor not in self.candidates or self.dependent in self.candidates:
            raise OptionError(
                f"candidates of {self.relation} are {self.candidates}: they must hold "
                f"the governor, {self.governor}, and not the dependent, {self.dependent}"
            )
        if len(set(self.candidates)) != len(self.candidates) or len(self.candidates) < 2:
            raise OptionError(
                f"candidates of {self.relation} are {self.candidates}: "
                "two or more different words are a question"
            )


def place_of(relation: str, place: Any) -> int:
    """A word's number as Python's own, which every file can hold."""
    try:
        return operator.index(place)
    except TypeError as err:
        raise OptionError(
            f"{relation or 'an arc'} names word {place!r}: give a whole number, counted from 0"
        ) from err


@dataclass(frozen=True)
class ProbeSentence:
    """Words in reading order, and the relations that are known to hold between them."""

    words: tuple[str, ...]
    arcs: tuple[Arc, ...]

    def __post_init__(self) -> None:
        """Refuse an arc that points outside the sentence."""
        for arc in self.arcs:
            places = (arc.dependent, arc.governor, *arc.candidates)
            outside = [place for place in places if not 0 <= place < len(self.words)]
            if outside:
                raise OptionError(
                    f"{arc.relation} names word {outside[0]}: "
                    f"the sentence has words 0..{len(self.words) - 1}"
                )
