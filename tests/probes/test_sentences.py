"""A sentence rejects arcs that point outside it or ask nothing."""

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
    ("arc", "facts"),
    [
        (("", 0, 1), "0 -> 1.*relation"),
        (("obj", 2, 2), "obj.*2"),
        (("obj", 4, 0, (1, 2)), r"obj.*\(1, 2\).* governor, 0"),
        (("obj", 4, 0, (0, 4)), r"obj.*\(0, 4\).* dependent, 4"),
        (("obj", 4, 0, (0,)), r"obj.*\(0,\).* two"),
        (("obj", 4, 0, (0, 2, 2)), r"obj.*\(0, 2, 2\).* different"),
    ],
)
def test_invalid_arcs_raise(arc: tuple[object, ...], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        Arc(*arc)  # type: ignore[arg-type]


def test_positions_become_python_integers() -> None:
    arc = Arc("pronoun-antecedent", np.int64(4), np.int64(0), (np.int64(0), np.int64(2)))  # type: ignore[arg-type]
    assert arc == Arc("pronoun-antecedent", 4, 0, (0, 2))
    assert json.dumps(astuple(arc)) == '["pronoun-antecedent", 4, 0, [0, 2]]'


@pytest.mark.parametrize("arc", [("obj", 1.0, 0), ("obj", 1, "0"), ("obj", 1, 0, (0, None))])
def test_word_numbers_must_be_whole(arc: tuple[object, ...]) -> None:
    with pytest.raises(OptionError, match=r"obj.*(1\.0|'0'|None)"):
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
def test_an_arc_outside_the_sentence_raises(arc: Arc, outside: int) -> None:
    with pytest.raises(OptionError, match=rf"obj.* {outside}\b.*0\.\.5"):
        ProbeSentence(WORDS, (arc,))
