"""Questions of an arc: three readings; causal models skip what they cannot see."""

import pytest
import torch

from headwise.probes.accuracy import BASELINES
from headwise.probes.scoring import (
    READINGS,
    ArcReading,
    baseline_hits,
    head_hits,
    make_question,
    sentence_questions,
)
from headwise.probes.sentences import Arc, ProbeSentence
from headwise.reading.words import merge_pieces

SEVEN = 7  # words
EARLIER, LATER = Arc("obj", 4, 2), Arc("nsubj", 1, 5)
AMONG_EARLIER, AMONG_LATER = Arc("coref", 5, 1, (1, 3)), Arc("coref", 0, 6, (2, 4, 6))
AMONG_BOTH = Arc("coref", 3, 1, (1, 5))


@pytest.mark.parametrize(
    ("reading", "source", "gold"), [("dependent", 4, 2), ("governor", 2, 4), ("column", 4, 2)]
)
def test_a_reading_decides_which_word_looks_for_which(
    reading: ArcReading, source: int, gold: int
) -> None:
    question = make_question(EARLIER, reading, SEVEN, is_causal=False)
    assert question is not None
    assert (question.source, question.gold) == (source, gold)
    assert question.choices == tuple(word for word in range(SEVEN) if word != source)


def readings_of(arc: Arc, *, is_causal: bool) -> set[str]:
    questions = sentence_questions(ProbeSentence(("word",) * SEVEN, (arc,)), is_causal=is_causal)
    return {question.reading for question in questions}


@pytest.mark.parametrize(
    ("arc", "two_sided", "causal"),
    [
        (EARLIER, set(READINGS), {"dependent"}),
        (LATER, set(READINGS), {"governor", "column"}),
        (AMONG_EARLIER, {"dependent", "column"}, {"dependent"}),
        (AMONG_LATER, {"dependent", "column"}, {"column"}),
        (AMONG_BOTH, {"dependent", "column"}, set()),
        (Arc("det", 0, 1), set(READINGS), {"column"}),  # row 1 sees one word: no question
        (Arc("det", 5, 6), set(READINGS), {"governor"}),  # only row 6 sees word 5: no question
    ],
)
def test_causal_models_skip_questions_about_hidden_words(
    arc: Arc, two_sided: set[str], causal: set[str]
) -> None:
    assert readings_of(arc, is_causal=False) == two_sided
    assert readings_of(arc, is_causal=True) == causal


def test_a_sentence_of_two_words_asks_nothing() -> None:
    assert (
        list(sentence_questions(ProbeSentence(("It", "rains"), (Arc("s", 0, 1),)), is_causal=False))
        == []
    )


def test_a_causal_row_chooses_among_earlier_words_and_a_column_among_later_ones() -> None:
    row = make_question(EARLIER, "dependent", SEVEN, is_causal=True)
    column = make_question(LATER, "column", SEVEN, is_causal=True)
    assert row is not None
    assert column is not None
    assert (row.choices, column.choices) == ((0, 1, 2, 3), (2, 3, 4, 5, 6))


@pytest.mark.parametrize(
    ("arc", "right"),
    [
        (EARLIER, {"offset -2"}),
        (Arc("det", 2, 3), {"offset +1"}),
        (LATER, set()),
        (Arc("advmod", 3, 0), {"offset -3", "first word"}),
        (Arc("advmod", 0, 6), {"last word"}),
        (AMONG_EARLIER, {"first candidate"}),
        (Arc("coref", 5, 3, (1, 3)), {"last candidate", "nearest candidate"}),
        (AMONG_LATER, {"last candidate"}),
        (Arc("coref", 0, 2, (2, 4, 6)), {"first candidate", "nearest candidate"}),
        (AMONG_BOTH, {"first candidate", "nearest candidate"}),  # of equals, the earlier
    ],
)
def test_a_baseline_knows_places_and_nothing_else(arc: Arc, right: set[str]) -> None:
    question = make_question(arc, "dependent", SEVEN, is_causal=False)
    assert question is not None
    hits = dict(zip(BASELINES, baseline_hits(question), strict=True))
    assert {name for name, is_hit in hits.items() if is_hit} == right


def test_a_head_with_equal_weights_finds_the_word_with_the_most_pieces() -> None:
    question = make_question(Arc("nsubj", 0, 2), "dependent", 4, is_causal=False)
    assert question is not None
    alone = dict(zip(BASELINES, baseline_hits(question, (1, 2, 3, 1)), strict=True))
    assert alone["most pieces, first"] and alone["most pieces, last"]
    tied = dict(zip(BASELINES, baseline_hits(question, (1, 3, 3, 1)), strict=True))
    assert not tied["most pieces, first"] and tied["most pieces, last"]
    alike = merge_pieces(torch.ones(1, 7, 7), [0, 1, 1, 2, 2, 2, 3])
    assert bool(head_hits(alike, [question]))


def test_a_baseline_guesses_the_nearest_of_the_longest_words_in_reach() -> None:
    question = make_question(Arc("obj", 6, 3), "dependent", SEVEN, is_causal=True)
    assert question is not None
    hits = dict(zip(BASELINES, baseline_hits(question, (1, 1, 4, 3, 3, 1, 1)), strict=True))
    assert {name for name, is_hit in hits.items() if is_hit} == {"offset -3"}  # 4 is nearer
    hits = dict(zip(BASELINES, baseline_hits(question, (1, 1, 4, 3, 2, 1, 1)), strict=True))
    names = {name for name, is_hit in hits.items() if is_hit}
    assert names == {"offset -3", "most pieces within -3"}


def test_a_window_of_equal_weights_finds_the_longest_word_in_reach() -> None:
    question = make_question(Arc("obj", 4, 2), "dependent", 5, is_causal=True)
    assert question is not None
    hits = dict(zip(BASELINES, baseline_hits(question, (1, 3, 2, 1, 1)), strict=True))
    assert hits["most pieces within -2"] and not hits["most pieces within -3"]
    window = torch.ones(1, 8, 8).tril().triu(-4)  # each token sees itself and four before it
    assert bool(head_hits(merge_pieces(window, [0, 1, 1, 1, 2, 2, 3, 4]), [question]))
