"""A sentence cannot hold an arc that points nowhere or asks nothing."""

import json
from dataclasses import astuple

import numpy as np
import pytest

from headwise.errors import OptionError
from headwise.probes.sentences import Arc, ProbeSentence

WORDS = ("Anna", "thanked", "Peter", "because", "she", "won")


def test_a_sentence_keeps_its_words_and_arcs() -> None:
    arcs = (Arc("subject-verb", 0, 1), Arc("pronoun-antecedent", 4, 0, (0, 2)))
    sentence = ProbeSentence(WORDS, arcs)
    assert (sentence.words, sentence.arcs) == (WORDS, arcs)


@pytest.mark.parametrize(
    ("arc", "message"),
    [
        (("", 0, 1), "the arc 0 -> 1 has no relation: name one"),
        (("obj", 2, 2), "obj joins word 2 to itself"),
        (("obj", 4, 0, (1, 2)), r"are \(1, 2\): .* governor, 0"),
        (("obj", 4, 0, (0, 4)), r"are \(0, 4\): .* and not the dependent, 4"),
        (("obj", 4, 0, (0,)), r"are \(0,\): .* two"),
        (("obj", 4, 0, (0, 2, 2)), r"are \(0, 2, 2\): .* two"),
    ],
)
def test_invalid_arcs_raise(arc: tuple[object, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Arc(*arc)  # type: ignore[arg-type]


def test_places_are_pythons_own_numbers() -> None:
    arc = Arc("pronoun-antecedent", np.int64(4), np.int64(0), (np.int64(0), np.int64(2)))  # type: ignore[arg-type]
    assert arc == Arc("pronoun-antecedent", 4, 0, (0, 2))
    assert json.dumps(astuple(arc)) == '["pronoun-antecedent", 4, 0, [0, 2]]'


@pytest.mark.parametrize("arc", [("obj", 1.0, 0), ("obj", 1, "0"), ("obj", 1, 0, (0, None))])
def test_word_numbers_must_be_whole(arc: tuple[object, ...]) -> None:
    with pytest.raises(OptionError, match=r"obj names word (1\.0|'0'|None): .* whole number"):
        Arc(*arc)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arc", "outside"),
    [
        (Arc("obj", 6, 1), 6),
        (Arc("obj", 1, 7), 7),
        (Arc("obj", -1, 1), -1),
        (Arc("obj", 4, 0, (0, 11)), 11),
    ],
)
def test_an_arc_out_of_the_sentence_is_refused(arc: Arc, outside: int) -> None:
    with pytest.raises(OptionError, match=rf"obj names word {outside}: .* has words 0\.\.5"):
        ProbeSentence(WORDS, (arc,))
