"""Sentences with gold relations between their words.

In: words, and arcs between their positions. Out: ProbeSentences with valid arcs. Sentences come
from builtin.py or treebank.py; scoring.py compares them with attention weights.
"""

import operator
from collections.abc import Iterable
from dataclasses import dataclass

from headwise.errors import OptionError
from headwise.reading.words import locate_words


@dataclass(frozen=True)
class Arc:
    """One gold relation: word `dependent` belongs to word `governor`, counted from 0.

    A head finds the arc if it gives the governor more weight than every other candidate (the
    governor is one of them) or, without candidates, than every other word in the sentence.
    """

    relation: str
    dependent: int
    governor: int
    candidates: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise OptionError if the relation, the words or the candidates are invalid."""
        positions = (self.dependent, self.governor, *self.candidates)
        try:
            dependent, governor, *candidates = map(operator.index, positions)
        except TypeError as err:
            raise OptionError(
                f"{self.relation or 'an arc'} joins words {positions}: use whole numbers, "
                "starting at 0"
            ) from err
        object.__setattr__(self, "dependent", dependent)
        object.__setattr__(self, "governor", governor)
        object.__setattr__(self, "candidates", tuple(candidates))
        if not self.relation:
            raise OptionError(f"the arc {dependent} -> {governor} has no relation: name one")
        if dependent == governor:
            raise OptionError(f"{self.relation} joins word {governor} to itself: name two words")
        is_valid = governor in candidates and dependent not in candidates
        if candidates and not (is_valid and 2 <= len(candidates) == len(set(candidates))):
            raise OptionError(
                f"candidates of {self.relation} are {self.candidates}: name two or more different "
                f"words, including the governor, {governor}, but not the dependent, {dependent}"
            )


@dataclass(frozen=True)
class ProbeSentence:
    """Words in reading order, and the gold relations between them."""

    words: tuple[str, ...]
    arcs: tuple[Arc, ...]
    text: str = ""
    """The sentence as it is written; by default the words with spaces between them."""
    group: str = ""
    """Sentences of one group, such as a register, stay together if sentences are split in two."""

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
        if self.text and locate_words(self.words, self.text) is None:
            raise OptionError(
                f"the text {self.text!r} does not consist of the words {' '.join(self.words)}: "
                "leave it out, or use the same words in the same order"
            )


def split_in_two(sentences: Iterable[ProbeSentence]) -> list[int]:
    """The half, 0 or 1, that each sentence belongs to: groups take turns in order of appearance.

    A sentence without a group is a group of its own.
    """
    groups = [sentence.group or index for index, sentence in enumerate(sentences)]
    turn = {group: number % 2 for number, group in enumerate(dict.fromkeys(groups))}
    return [turn[group] for group in groups]
