"""Hits are counted as the definition says, and counts can be saved, split and merged."""

from itertools import permutations
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, strategies as st
from pandas.testing import assert_frame_equal
from torch import Tensor

from headwise.probes.builtin import builtin_sentences
from headwise.probes.scoring import (
    ArcQuestion,
    RelationScores,
    head_hits,
    sentence_questions,
)
from headwise.probes.sentences import Arc, ProbeSentence

SEVEN = tuple("abcdefg")
BUILTIN = builtin_sentences(3)
SENTENCE = ProbeSentence(
    SEVEN,
    (Arc("obj", 4, 2), Arc("nsubj", 1, 5), Arc("obj", 6, 3), Arc("coref", 5, 1, (1, 3))),
)


def is_hit(weights: Tensor, question: ArcQuestion) -> bool:
    """Whether one head answers one question, straight from the definition."""
    looks = weights.T if question.reading == "column" else weights
    given_to = {choice: looks[question.source, choice].item() for choice in question.choices}
    gold = given_to.pop(question.gold)
    return gold > 0 and all(gold > other for other in given_to.values())


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([2, 5, 1000]))
def test_an_answer_is_right_if_gold_gets_most(seed: int, is_causal: bool, levels: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    weights = torch.randint(levels, (3, 7, 7), generator=rng).float() / levels  # with ties
    questions = list(sentence_questions(SENTENCE, is_causal=is_causal))
    got = head_hits(weights, questions)
    assert got.tolist() == [[is_hit(head, question) for head in weights] for question in questions]


def test_ties_and_missing_attention_are_misses() -> None:
    questions = list(sentence_questions(SENTENCE, is_causal=False))
    assert not head_hits(torch.zeros(3, 7, 7), questions).any()
    assert not head_hits(torch.ones(3, 7, 7), questions).any()
    assert not head_hits(torch.full((3, 7, 7), torch.nan), questions).any()


def test_a_sentence_counts_once_for_each_relation_and_reading() -> None:
    scores = RelationScores(3, is_causal=False)
    weights = torch.zeros(3, 7, 7)
    weights[1, 4, 2] = weights[1, 6, 3] = weights[2, 6, 3] = 1  # dependents look at governors
    weights[0, 2, 4] = 1  # and one governor at its dependent
    scores.add(11, SENTENCE, weights)
    state = scores.state()
    keys = list(zip(state["relation"], state["reading"], state["arcs"], strict=True))
    assert keys == [
        *(("coref", reading, 1) for reading in ("column", "dependent")),
        *(("nsubj", reading, 1) for reading in ("column", "dependent", "governor")),
        *(("obj", reading, 2) for reading in ("column", "dependent", "governor")),
    ]
    hits = dict(zip(keys, state["hits"].tolist(), strict=True))
    assert hits.pop(("obj", "dependent", 2)) == [0, 2, 1]
    assert hits.pop(("obj", "governor", 2)) == hits.pop(("obj", "column", 2)) == [1, 0, 0]
    assert not any(sum(rest) for rest in hits.values())


def some_scores(indices: list[int]) -> RelationScores:
    """Random heads on some of the built-in sentences; a sentence's weights are its own."""
    scores = RelationScores(5, is_causal=False)
    for index in indices:
        rng = torch.Generator().manual_seed(index)
        words = len(BUILTIN[index].words)
        scores.add(index, BUILTIN[index], torch.rand(5, words, words, generator=rng))
    return scores


def assert_same_state(got: RelationScores, want: RelationScores) -> None:
    actual, expected = got.state(), want.state()
    assert list(actual) == list(expected)
    for field in expected:
        numpy.testing.assert_array_equal(actual[field], expected[field], err_msg=field)


def test_different_states_are_told_apart() -> None:
    with pytest.raises(AssertionError, match="sentence"):
        assert_same_state(some_scores([2]), some_scores([3]))


@given(st.permutations(range(13)), st.integers(0, 13))
def test_merging_in_any_order_equals_counting_alone(order: list[int], cut: int) -> None:
    alone = some_scores(list(range(13)))
    first, second = some_scores(order[:cut]), some_scores(order[cut:])
    first.merge(second)
    assert_same_state(first, alone)


def test_three_processes_build_the_table_of_one() -> None:
    want = some_scores(list(range(11))).table(resamples=17)
    for order in permutations(([0, 3, 10], [1, 7, 2, 8], [9, 4, 5, 6])):
        merged = RelationScores(5, is_causal=False)
        for part in order:
            merged.merge(some_scores(part))
        assert_frame_equal(merged.table(resamples=17), want)


def test_a_state_survives_being_saved(tmp_path: Path) -> None:
    scores = some_scores([2, 5, 7])
    numpy.savez(tmp_path / "scores.npz", allow_pickle=False, **scores.state())
    with numpy.load(tmp_path / "scores.npz") as saved:
        again = RelationScores.from_state(dict(saved))
    assert_same_state(again, scores)
    assert (again.num_heads, again.is_causal) == (5, False)
    again.merge(some_scores([3]))
    assert_same_state(again, some_scores([3, 7, 5, 2]))


def test_scores_without_sentences_survive_being_saved() -> None:
    empty = RelationScores(5, is_causal=True)
    assert_same_state(RelationScores.from_state(empty.state()), empty)
    assert RelationScores.from_state(empty.state()).num_heads == 5
    assert empty.table().empty


def test_a_sentence_that_asks_nothing_counts_nothing() -> None:
    scores = RelationScores(2, is_causal=False)
    scores.add(3, ProbeSentence(("It", "rains"), (Arc("nsubj", 0, 1),)), torch.rand(2, 2, 2))
    assert scores.table().empty
