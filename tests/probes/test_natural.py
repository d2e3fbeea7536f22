"""The gold sentences are well formed, balanced, and harder for positions than for heads."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwise.probes import natural
from headwise.probes.natural import (
    BALANCED,
    COREFERENCE,
    GOLD,
    balanced_sentences,
    natural_sentences,
    parse_passage,
    parse_running_text,
)
from headwise.probes.relation_names import SYNTACTIC, describe_relation, role_of_relation
from headwise.probes.sentences import ProbeSentence, split_in_two
from headwise.reading.corpus import PROSE, documents

UPOS = set("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split())
WORDS_FOR = {
    "det": {"DET", "PRON"},
    "aux": {"AUX"},
    "cop": {"AUX"},
    "cc": {"CCONJ", "ADV", "ADP", "SYM", "PART"},
    "punct": {"PUNCT"},
    "nummod": {"NUM", "NOUN", "SYM"},
    "expl": {"PRON"},
    "amod": {"ADJ", "VERB", "NOUN", "ADV", "PROPN", "NUM", "DET", "X"},
    "mark": {"SCONJ", "PART", "ADP", "ADV", "NOUN"},
}
"""Parts of speech that a relation allows."""
MAY_DEPEND_ON = {
    "case": {"advmod", "fixed", "conj", "cc", "nmod", "obl", "punct", "nummod"},
    "mark": {"advmod", "fixed", "conj", "cc", "punct"},
    "cc": {"advmod", "fixed", "punct"},
    "aux": {"advmod", "conj", "cc", "fixed", "reparandum", "punct"},
    "cop": {"advmod", "conj", "cc", "reparandum"},
    "det": {"advmod", "fixed", "conj", "cc", "punct", "det"},
    "punct": set[str](),
}
"""Relations that a function word may have below it."""
FROM_LEFT = {"conj", "flat", "fixed", "goeswith", "appos"}


class Token(NamedTuple):
    number: int
    form: str
    upos: str
    head: int
    relation: str


def trees(text: str) -> Iterator[tuple[str, list[Token]]]:
    """The id and the syntactic words of each sentence in a CoNLL-U file."""
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        name = next(line.split(" = ")[1] for line in lines if line.startswith("# sent_id"))
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
        assert all(len(row) == 10 for row in rows), name
        words = [row for row in rows if row[0].isdigit()]
        yield name, [Token(int(r[0]), r[1], r[3], int(r[6]), r[7]) for r in words]


TREES = dict(trees((GOLD / "treebank.conllu").read_text("utf-8")))


def problems(tokens: list[Token]) -> list[str]:
    """Violations of the rules of Universal Dependencies in one tree."""
    by_number = {token.number: token for token in tokens}
    if list(by_number) != list(range(1, len(tokens) + 1)):
        return ["words are not numbered from 1"]
    found = [] if sum(token.head == 0 for token in tokens) == 1 else ["not one root"]
    for token in tokens:
        universal = token.relation.split(":")[0]
        if token.upos not in UPOS:
            found.append(f"{token.form}: unknown part of speech {token.upos}")
        if universal not in {
            *SYNTACTIC,
            "root",
            "punct",
            "dep",
            "orphan",
            "reparandum",
            "goeswith",
            "dislocated",
        }:
            found.append(f"{token.form}: unknown relation {token.relation}")
        if token.head == token.number or token.head not in {0, *by_number}:
            return [*found, f"{token.form}: head {token.head}"]
        if (token.relation == "root") != (token.head == 0):
            found.append(f"{token.form}: root with a head, or no root without one")
        if token.upos not in WORDS_FOR.get(universal, UPOS):
            found.append(f"{token.form}: {token.upos} as {token.relation}")
        if token.head and universal in FROM_LEFT and token.number < token.head:
            found.append(f"{token.form}: {token.relation} before its head")
        above = by_number[token.head].relation.split(":")[0] if token.head else ""
        if universal not in MAY_DEPEND_ON.get(above, {universal}):
            found.append(f"{token.form}: {token.relation} below {above}")
    for token in tokens:
        seen, at = set[int](), token.number
        while at and at not in seen:
            seen.add(at)
            at = by_number[at].head
        if at:
            return [*found, f"{token.form}: a cycle"]
    for kinds in ({"nsubj", "nsubj:pass", "csubj", "csubj:pass"}, {"obj"}):
        counts = Counter(token.head for token in tokens if token.relation in kinds)
        found += [
            f"{by_number[head].form}: {count} {kinds}"
            for head, count in counts.items()
            if count > 1
        ]
    arcs = [(*sorted((token.number, token.head)), token) for token in tokens if token.head]
    for low, high, token in arcs:
        crossed = any(a < low < b < high or low < a < high < b for a, b, _ in arcs)
        if token.relation == "punct" and crossed:
            found.append(f"{token.form}: punctuation crosses an arc")
    return found


@pytest.mark.parametrize("register", PROSE)
def test_every_tree_is_well_formed(register: str) -> None:
    own = {name: tree for name, tree in TREES.items() if name.startswith(f"{register}-")}
    assert len(own) >= 50
    assert {name: problems(tree) for name, tree in own.items() if problems(tree)} == {}


@pytest.mark.parametrize(
    "tree",
    [
        "go VERB 0 root; now ADV 0 root",
        "go VERB 2 obj; now ADV 1 advmod",
        "the DET 2 det; dog NOUN 0 root; big ADJ 1 amod",
        "dog NOUN 0 root; the NOUN 1 det",
        "a NOUN 2 conj; b NOUN 0 root",
        "a X 0 root; b X 1 subject",
        "he PRON 3 nsubj; she PRON 3 nsubj; ran VERB 0 root",
        "a NOUN 0 root; , PUNCT 4 punct; b NOUN 1 nmod; c NOUN 3 nmod; d NOUN 2 nmod",
    ],
)
def test_the_validator_finds_mistakes(tree: str) -> None:
    rows = [word.split() for word in tree.split("; ")]
    tokens = [
        Token(n, form, pos, int(head), rel) for n, (form, pos, head, rel) in enumerate(rows, 1)
    ]
    assert problems(tokens)


def test_treebank_sentences_come_from_the_corpus() -> None:
    corpus = {text for register in PROSE for part in documents(register) for text in part.sentences}
    blocks = (GOLD / "treebank.conllu").read_text("utf-8").strip().split("\n\n")
    texts = [re.search(r"# text = (.*)", block)[1] for block in blocks]
    assert len(texts) == len(set(texts)) >= 600
    assert [text for text in texts if text not in corpus] == []


def passages(relation: str) -> list[ProbeSentence]:
    every = (*natural_sentences(), *balanced_sentences())
    return [each for each in every if each.arcs[0].relation == relation]


@pytest.mark.parametrize("relation", [BALANCED, natural.CONCEPTS])
def test_there_are_at_least_250_passages_and_none_twice(relation: str) -> None:
    sentences = passages(relation)
    assert len({sentence.text.lower() for sentence in sentences}) == len(sentences) >= 250


def right_answers(relation: str) -> dict[str, float]:
    """How often the nearest, first and last candidate are right."""
    arcs = [sentence.arcs[0] for sentence in passages(relation)]
    guesses = {
        "first": lambda arc: min(arc.candidates),
        "last": lambda arc: max(arc.candidates),
        "nearest": lambda arc: min(arc.candidates, key=lambda word: abs(word - arc.dependent)),
    }
    return {
        name: sum(guess(arc) == arc.governor for arc in arcs) / len(arcs)
        for name, guess in guesses.items()
    }


@pytest.mark.parametrize("relation", [BALANCED, natural.CONCEPTS])
def test_no_place_gives_the_answer_away(relation: str) -> None:
    assert max(right_answers(relation).values()) <= 0.55


def test_running_text_asks_for_at_least_250_pronouns() -> None:
    arcs = [arc for sentence in passages(COREFERENCE) for arc in sentence.arcs]
    assert len(arcs) >= 250
    for place in (min, max):
        assert sum(arc.governor == place(arc.candidates) for arc in arcs) / len(arcs) <= 0.55


def test_a_subject_is_not_more_likely_to_be_the_antecedent() -> None:
    text = (GOLD / "balanced_coreference.txt").read_text("utf-8")
    lines = [line for line in text.split("\n") if line]
    marks = [re.findall(r"\[([*^]+)", line) for line in lines]
    asked = [mark for mark in marks if sum("^" in each for each in mark) == 1]
    right = sum(any("^" in each and "*" in each for each in mark) for mark in asked)
    assert len(asked) >= 0.3 * len(lines)
    assert right / len(asked) <= 0.55


def test_many_balanced_passages_come_in_pairs_with_other_answers() -> None:
    groups = (GOLD / "balanced_coreference.txt").read_text("utf-8").strip().split("\n\n")
    pairs = [group.split("\n") for group in groups if "\n" in group]
    assert 2 * len(pairs) >= 125
    for first, second in pairs:
        answers = [re.search(r"\[\^?\*\^?([^\]]+)\]", line)[1] for line in (first, second)]
        assert answers[0] != answers[1], first
        words = [set(re.findall(r"\w+", line)) for line in (first, second)]
        assert len(words[0] ^ words[1]) <= 16, first


def test_pairs_and_registers_stay_together_in_a_half() -> None:
    sentences = natural_sentences()
    halves = split_in_two(sentences)
    half_of = dict[str, int]()
    for sentence, half in zip(sentences, halves, strict=True):
        assert half_of.setdefault(sentence.group, half) == half
    counts = Counter(half_of[register] for register in PROSE)
    assert counts[0] == counts[1] == 6


def test_a_passage_is_parsed_into_its_words_and_candidates() -> None:
    marked = 'The [^*vet] and the "[breeder]" argued; {she} left.'
    sentence = parse_passage(marked, "coreference", "7")
    (arc,) = sentence.arcs
    assert sentence.text == 'The vet and the "breeder" argued; she left.'
    assert [sentence.words[at] for at in (arc.dependent, arc.governor)] == ["she", "vet"]
    assert [sentence.words[at] for at in arc.candidates] == ["vet", "breeder"]
    assert sentence.group == "7"


def test_running_text_has_an_arc_for_each_pronoun_that_follows_a_noun() -> None:
    marked = "[Ann|1] sang; {she|1} met Ida [Berg|2], and [Ann|1] told {her|2} that {she|1} left."
    sentence = parse_running_text(marked, "7")
    asked = [
        tuple(sentence.words[at] for at in (arc.dependent, arc.governor)) for arc in sentence.arcs
    ]
    assert asked == [("her", "Berg")]  # Ann has no rival at first; "she" follows a pronoun
    assert sentence.arcs[0].candidates == (6, 9)
    assert sentence.text == "Ann sang; she met Ida Berg, and Ann told her that she left."


def test_relations_have_roles_and_plain_words() -> None:
    relations = {arc.relation for each in natural_sentences() for arc in each.arcs}
    assert {role_of_relation(name, "dependent") for name in relations} >= {
        "syntactic",
        "semantic",
        "coreference",
    }
    assert role_of_relation(BALANCED, "dependent") is None
    assert role_of_relation("gene-protein", "dependent") is None
    assert describe_relation("coreference", "dependent") == "coreference (pronoun -> noun)"
    assert describe_relation("gene-protein", "column") == "gene-protein, by column"
    assert describe_relation("case", "column") == "case (noun -> preposition, by column)"


def test_gold_files_are_in_the_package() -> None:
    names = {path.name for path in Path(natural.__file__).with_name("gold").iterdir()}
    assert {
        "treebank.conllu",
        "coreference.txt",
        "balanced_coreference.txt",
        "concepts.txt",
    } <= names
