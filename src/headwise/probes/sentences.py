"""Sentences with gold relations between their words.

In: words, and arcs between their positions. Out: ProbeSentences, whose arcs are valid. Sentences
come from builtin.py or treebank.py; scoring.py compares them with attention weights.
"""

import operator
from dataclasses import dataclass
from typing import Any

from headwise.errors import OptionError


@dataclass(frozen=True)
class Arc:
    """One gold relation: word `dependent` belongs to word `governor`, counted from 0.

    A head finds the arc if the governor gets the most weight of all candidates (the governor is one
    of them), or, without candidates, of all other words in the sentence.
    """

    relation: str
    dependent: int
    governor: int
    candidates: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise OptionError if the arc is not a question with `governor` as an answer."""
        for name in ("dependent", "governor"):
            object.__setattr__(self, name, _position(self.relation, getattr(self, name)))
        candidates = tuple(_position(self.relation, word) for word in self.candidates)
        object.__setattr__(self, "candidates", candidates)
        if not self.relation:
            raise OptionError(
                f"the arc {self.dependent} -> {self.governor} has no relation: name one"
            )
        if self.dependent == self.governor:
            raise OptionError(
                f"{self.relation} joins word {self.governor} to itself: name two words"
            )
        if not self.candidates:
            return
        if self.governor not in self.candidates or self.dependent in self.candidates:
            raise OptionError(
                f"candidates of {self.relation} are {self.candidates}: they must contain "
                f"the governor, {self.governor}, and not the dependent, {self.dependent}"
            )
        if len(set(self.candidates)) != len(self.candidates) or len(self.candidates) < 2:
            raise OptionError(
                f"candidates of {self.relation} are {self.candidates}: "
                "name at least two different words"
            )


def _position(relation: str, word: Any) -> int:
    try:
        return operator.index(word)
    except TypeError as err:
        raise OptionError(
            f"{relation or 'an arc'} names word {word!r}: use a whole number, counted from 0"
        ) from err


@dataclass(frozen=True)
class ProbeSentence:
    """Words in reading order, and the gold relations between them."""

    words: tuple[str, ...]
    arcs: tuple[Arc, ...]

    def __post_init__(self) -> None:
        """Raise OptionError if an arc points outside the sentence."""
        for arc in self.arcs:
            positions = (arc.dependent, arc.governor, *arc.candidates)
            outside = [word for word in positions if not 0 <= word < len(self.words)]
            if outside:
                raise OptionError(
                    f"{arc.relation} names word {outside[0]}: "
                    f"the sentence has words 0..{len(self.words) - 1}"
                )
