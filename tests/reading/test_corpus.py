"""The corpus is large, varied and clean, and does not betray templates."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import headwise
from headwise.errors import OptionError
from headwise.probes.builtin import builtin_sentences
from headwise.reading import corpus
from headwise.reading.corpus import (
    PROSE,
    REGISTERS,
    ROUGH,
    ROUGH_KINDS,
    documents,
    rough_texts,
    scan_texts,
)
from headwise.reading.python_manual import manual_texts, split_sentences
from headwise.reading.words import join_with_spaces

SAMPLE = 600
"""Number of sentences that texts are compared on: shares of distinct phrases fall with size."""


def words_of(text: str) -> list[str]:
    return re.findall(r"\w[\w'-]*", text.lower())


def sentences_of(register: str) -> list[str]:
    return [sentence for document in documents(register) for sentence in document.sentences]


def variety(sentences: Sequence[str]) -> tuple[float, float]:
    """Shares of distinct two-word openings and of distinct 4-grams in a sample of sentences."""
    sample = [words_of(text) for text in random.Random(0).sample(sorted(sentences), SAMPLE)]
    sample = [words for words in sample if words]
    openings = {tuple(words[:2]) for words in sample}
    grams = [tuple(words[at : at + 4]) for words in sample for at in range(len(words) - 3)]
    return len(openings) / len(sample), len(set(grams)) / len(grams)


def test_every_file_is_a_register() -> None:
    files = Path(corpus.__file__).parent.glob("*.txt")
    assert {file.stem for file in files} == set(REGISTERS)


@pytest.mark.parametrize("register", PROSE)
def test_prose_registers_have_at_least_250_sentences_in_whole_documents(register: str) -> None:
    sentences = sentences_of(register)
    assert len(sentences) >= 250
    assert sum(len(words_of(text)) for text in sentences) >= 3_500
    assert all(document.title and document.paragraphs for document in documents(register))
    if register not in ("captions", "questions", "reviews", "speech"):
        sizes = [len(words_of(document.text)) for document in documents(register)]
        assert sum(350 <= size <= 1_400 for size in sizes) >= 0.8 * len(sizes)


def test_corpus_has_45_000_words_of_prose_and_3_000_of_rough_text() -> None:
    prose = [text for register in PROSE for text in sentences_of(register)]
    assert len(prose) >= 3_000
    assert sum(len(words_of(text)) for text in prose) >= 45_000
    rough = " ".join(document.text for document in documents(ROUGH))
    assert len(words_of(rough)) >= 3_000


def test_no_sentence_occurs_twice() -> None:
    counts = Counter(text for register in PROSE for text in sentences_of(register))
    assert [text for text, count in counts.items() if count > 1 and len(text.split()) > 3] == []


@pytest.mark.parametrize("register", REGISTERS)
def test_texts_have_no_stray_characters(register: str) -> None:
    raw = (Path(corpus.__file__).parent / f"{register}.txt").read_bytes()
    text = raw.decode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\ufeff]", text)
    if register != ROUGH:
        assert not re.search(r"[ \t]\n|  |\t|^ |\u2019|\u201c|\u201d", text, re.MULTILINE)


def test_corpus_is_as_varied_as_a_real_text_and_templates_are_not() -> None:
    prose = [text for register in PROSE for text in sentences_of(register)]
    generated = [join_with_spaces(sentence.words) for sentence in builtin_sentences(200)]
    openings, grams = variety(prose)
    manual_openings, manual_grams = variety(split_sentences(manual_texts()))
    assert openings >= manual_openings
    assert grams >= manual_grams
    generated_openings, generated_grams = variety(generated)
    assert generated_openings < manual_openings
    assert generated_grams < manual_grams


def test_corpus_gives_documents_by_register() -> None:
    texts = headwise.corpus()
    assert tuple(texts) == REGISTERS
    assert texts["news"] == tuple(document.text for document in documents("news"))
    assert headwise.corpus("law") == {"law": texts["law"]}
    assert headwise.corpus(["law", "rough"]) == {"law": texts["law"], "rough": texts["rough"]}
    paragraphs = documents("news")[0].paragraphs
    assert texts["news"][0].split("\n\n") == [" ".join(part) for part in paragraphs]


def test_rough_text_keeps_its_lines() -> None:
    raw = (Path(corpus.__file__).parent / "rough.txt").read_text("utf-8")
    for text in headwise.corpus(ROUGH)[ROUGH]:
        assert text.split("\n\n")[0] in raw


def test_every_kind_of_rough_text_has_enough_words() -> None:
    texts = rough_texts()
    assert tuple(texts) == ROUGH_KINDS
    assert sorted(text for part in texts.values() for text in part) == sorted(
        headwise.corpus(ROUGH)[ROUGH]
    )
    for kind, part in texts.items():
        assert len(part) >= 10, kind
        assert sum(len(words_of(text)) for text in part) >= 700, kind


def test_unknown_registers_are_rejected_by_name() -> None:
    with pytest.raises(OptionError, match=r"'poetry'.*news"):
        headwise.corpus("poetry")


def test_a_scan_reads_some_of_every_prose_register() -> None:
    texts = scan_texts()
    for register in PROSE:
        own = [
            text
            for text in texts
            if any(text in each for each in headwise.corpus(register)[register])
        ]
        assert len(own) == 3
        assert 150 <= sum(len(text.split()) for text in own) <= 400
    assert len(texts) == 3 * len(PROSE)
