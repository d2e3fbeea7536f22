"""The built-in sentences: gold by construction, all different, not solvable by position."""

import re
import runpy
from collections import Counter
from pathlib import Path

import pytest

from headwise.probes.builtin import MOST, RELATIONS, WORKED_SENTENCES, builtin_sentences
from headwise.probes.scoring import READINGS, ArcReading, make_question
from headwise.probes.sentences import ProbeSentence
from headwise.probes.templates import RELATED, SLOTS

GENERATED = runpy.run_path(str(Path(__file__).parents[2] / "docs/generate.py"))
SETS = {seed: builtin_sentences(seed=seed) for seed in (0, 1, 2)}
SENTENCES = SETS[0]
WITH_CANDIDATES = ("pronoun-agreement", "related-concepts")
MEANT_BY = {
    "she": {*SLOTS["FEMALE"], *SLOTS["WOMEN"]},
    "her": {*SLOTS["FEMALE"], *SLOTS["WOMEN"]},
    "he": {*SLOTS["MALE"], *SLOTS["MEN"]},
    "him": {*SLOTS["MALE"], *SLOTS["MEN"]},
    "they": {*SLOTS["GROUPS"]},
    "them": {*SLOTS["GROUPS"]},
    "it": {*SLOTS["THING"]},
}


def about(relation: str) -> list[ProbeSentence]:
    return [sentence for sentence in SENTENCES if sentence.arcs[0].relation == relation]


def test_every_relation_has_the_same_number_of_sentences() -> None:
    counts = Counter(arc.relation for sentence in builtin_sentences(37) for arc in sentence.arcs)
    assert counts == dict.fromkeys(RELATIONS, 37)


def test_same_seed_gives_same_sentences() -> None:
    assert builtin_sentences(29, seed=5) == builtin_sentences(29, seed=5)
    assert builtin_sentences(29, seed=5) != builtin_sentences(29, seed=7)


def test_no_sentence_occurs_twice_even_in_the_largest_set() -> None:
    words = [sentence.words for sentence in builtin_sentences(MOST, seed=3)]
    assert len(set(words)) == len(words) == MOST * len(RELATIONS)


def test_the_vocabulary_has_hundreds_of_words() -> None:
    assert len({word.lower() for sentence in SENTENCES for word in sentence.words}) > 600


def test_sentences_are_ordinary_words_with_no_slot_left() -> None:
    for sentence in SENTENCES:
        text = " ".join(sentence.words)
        assert re.fullmatch(r"[A-Z][a-z]*( [A-Z]?[a-z]+| ,)* [.?]", text), text
        assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", text), text


@pytest.mark.parametrize("seed", SETS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("relation", RELATIONS)
def test_positions_alone_solve_little(relation: str, is_causal: bool, seed: int) -> None:
    sentences = SETS[seed]
    arcs = [arc for sentence in sentences for arc in sentence.arcs if arc.relation == relation]
    chance = sum(1 / len(arc.candidates) for arc in arcs if arc.candidates) / len(arcs)
    allowed = chance + 0.10 if relation in WITH_CANDIDATES else 0.40
    best = GENERATED["best_baseline_share"](sentences, relation, is_causal=is_causal)
    assert best <= allowed


@pytest.mark.parametrize("reading", READINGS[:2])
@pytest.mark.parametrize("relation", [name for name in RELATIONS if name not in WITH_CANDIDATES])
def test_no_fixed_place_in_the_sentence_solves_much(relation: str, reading: ArcReading) -> None:
    questions = [
        make_question(sentence.arcs[0], reading, len(sentence.words), is_causal=False)
        for sentence in about(relation)
    ]
    places = Counter(question.gold for question in questions if question is not None)
    assert max(places.values()) <= 0.35 * len(questions)


@pytest.mark.parametrize("relation", WITH_CANDIDATES)
@pytest.mark.parametrize("is_later", [False, True])
def test_gold_candidate_is_on_both_sides(relation: str, is_later: bool) -> None:
    arcs = [sentence.arcs[0] for sentence in about(relation)]
    share = sum((arc.governor > arc.dependent) == is_later for arc in arcs) / len(arcs)
    assert 0.3 < share < 0.7


def test_a_pronoun_can_mean_its_antecedent_and_no_other_candidate() -> None:
    for sentence in about("pronoun-agreement"):
        (arc,) = sentence.arcs
        meant = MEANT_BY[sentence.words[arc.dependent].lower()]
        people = {place: sentence.words[place] for place in arc.candidates}
        assert [place for place, word in people.items() if word in meant] == [arc.governor]


def test_a_concept_is_related_to_its_partner_and_to_no_other_candidate() -> None:
    related = {frozenset(pair) for group in RELATED for pair in group}
    for sentence in about("related-concepts"):
        (arc,) = sentence.arcs
        concept = sentence.words[arc.dependent]
        partners = [c for c in arc.candidates if {concept, sentence.words[c]} in related]
        assert partners == [arc.governor]


def test_related_words_are_not_alike_in_spelling() -> None:
    pairs = [pair for group in RELATED for pair in group]
    assert [(first, second) for first, second in pairs if first[:3] == second[:3]] == []


def test_no_list_repeats_a_word() -> None:
    assert [name for name, words in SLOTS.items() if len(set(words)) < len(words)] == []


def test_worked_sentences_have_these_arcs() -> None:
    arcs = {
        (arc.relation, sentence.words[arc.dependent], sentence.words[arc.governor])
        for sentence in WORKED_SENTENCES
        for arc in sentence.arcs
    }
    assert {
        ("subject-verb", "cat", "sat"),
        ("verb-modifier", "down", "sat"),
        ("determiner-noun", "The", "cat"),
        ("coreference", "it", "animal"),
        ("coreference", "it", "paper"),
        ("subject-verb", "it", "was"),
        ("subject-predicate", "it", "tired"),
        ("subject-verb", "scientist", "said"),
        ("verb-object", "request", "opened"),
        ("verb-object", "request", "merged"),
        ("subject-verb", "suite", "was"),
        ("preposition-object", "after", "review"),
    } <= arcs


def test_causal_rows_have_no_baseline_share_for_later_governors() -> None:
    shares = GENERATED["baseline_shares"]
    assert shares(SENTENCES, "determiner-noun", "dependent", is_causal=True) == {}
