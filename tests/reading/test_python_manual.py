"""The manual is prose without repeats, in a fixed order, and its two parts share nothing."""

import re
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from headwise.errors import OptionError
from headwise.reading.python_manual import (
    manual_texts,
    split_documents,
    split_paragraphs,
    split_sentences,
)

LEAST_SENTENCES, LEAST_CHARACTERS = 6_000, 800_000
MODULE = '''
# A comment's "quotes", and """three of them""", are not a docstring: this is not to be read at all.
"""Speak to a server, and listen to what it says.

The :class:`Server` is *patient*, and "waits" for the ``client`` to be done. It is used so:

    server = Server(port=80)
    if it is so: then it is not to be shown.

>>> it is not to be shown, and this is not of the prose.

Name  Meaning of the name
====  ===================

stmt ::= "if" test ":" suite is a rule of the grammar.

- The first of the points is here.
- The second of the points
  is on two lines.

Usage
-----
"""
PLAIN = 'This is a text, and not a part of the manual "or so".'
def speak(word):
    """SPEAK TO A SERVER, and listen to what it says."""
    return """
"""
def listen(self):
    """Give back all of the words: self**other is not of the prose."""
'''
PROSE = (
    "Speak to a server, and listen to what it says.",
    "The Server is patient, and waits for the client to be done.",
    "The first of the points is here.",
    "The second of the points is on two lines.",
)

texts = st.lists(st.text("ab .\n", max_size=40), max_size=6)


@pytest.fixture(scope="module")
def documents() -> tuple[str, ...]:
    return manual_texts()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Replace this Python's library by an empty one without a language reference."""
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    manual_texts.cache_clear()
    yield tmp_path / "lib"
    manual_texts.cache_clear()


def gists(texts: tuple[str, ...]) -> list[str]:
    parts = [part for text in texts for part in split_paragraphs(text)]
    return [" ".join(re.findall(r"\w+", part.casefold())) or part for part in parts]


def test_the_manual_is_large_enough_to_calibrate_on(documents: tuple[str, ...]) -> None:
    assert len(split_sentences(documents)) >= LEAST_SENTENCES
    assert sum(map(len, documents)) >= LEAST_CHARACTERS


def test_no_paragraph_occurs_twice(documents: tuple[str, ...]) -> None:
    assert len(gists(documents)) == len(set(gists(documents)))


def test_every_paragraph_is_a_line_of_whole_sentences(documents: tuple[str, ...]) -> None:
    for part in (part for text in documents for part in split_paragraphs(text)):
        assert part[0].isupper() and part[-1] in ".!?", part
        assert not re.search(r">>>|::=|\n|  |``|https?:|[{}=]", part), part


def test_code_and_markup_are_left_out(fresh: Path) -> None:
    fresh.mkdir()
    (fresh / "server.py").write_text(MODULE, "utf-8")
    assert manual_texts() == ("\n\n".join(PROSE),)


def test_modules_are_read_in_the_order_of_their_names_and_never_run(fresh: Path) -> None:
    for name in ("zebra", "b/inner", "test/a", "b/tests/a", "site-packages/a", "aard"):
        file = fresh / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'"""This is the module of the name {name[:5]}."""\nraise SystemExit')
    names = [re.findall(r"[\w/]+(?=\.)", text)[0] for text in manual_texts()]
    assert names == ["aard", "b/inn", "zebra"]


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_python_without_a_manual_raises(fresh: Path, has_folder: bool) -> None:
    if has_folder:
        fresh.mkdir()
    with pytest.raises(OptionError, match="manual"):
        manual_texts()


def test_reading_the_manual_loads_no_torch_and_is_deterministic(
    documents: tuple[str, ...],
) -> None:
    code = (
        "import sys, zlib\nfrom headwise.reading.python_manual import manual_texts\n"
        "print(zlib.crc32('|'.join(manual_texts()).encode()), 'torch' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == [str(zlib.crc32("|".join(documents).encode())), "False"]


def test_sentences_have_five_to_fifty_words_and_no_repeats() -> None:
    sentence_of = {
        count: " ".join(["Word", *["of"] * (count - 1)]) + "." for count in (4, 5, 50, 51)
    }
    document = " ".join(
        [
            sentence_of[4],
            sentence_of[5],
            sentence_of[50],
            sentence_of[51],
            sentence_of[5].replace(" ", "\n"),
        ]
    )
    assert split_sentences([document, sentence_of[5].upper()]) == (sentence_of[5], sentence_of[50])


def test_sentences_end_at_blank_lines_but_not_at_abbreviations() -> None:
    text = "We see it, i.e. Paul and J. Smith see it! Is it the one we saw?\n\nNo it is the"
    assert split_sentences([f"{text} other"]) == (
        "We see it, i.e. Paul and J. Smith see it!",
        "Is it the one we saw?",
        "No it is the other",
    )


def test_documents_stay_whole_and_a_quarter_is_held_out(documents: tuple[str, ...]) -> None:
    fitted, rest = split_documents(documents)
    assert sorted(fitted + rest) == sorted(documents)
    share = sum(map(len, rest)) / sum(map(len, documents))
    largest = max(map(len, documents)) / sum(map(len, documents))
    assert abs(share - 0.25) <= largest


@given(texts, st.floats(0.01, 0.99), st.integers(0, 99))
def test_split_documents_share_no_paragraph_and_lose_none(
    texts: list[str], held_out: float, seed: int
) -> None:
    all_gists = set(gists(tuple(texts)))
    if len(all_gists) < 2:
        with pytest.raises(OptionError, match=f"{len(all_gists)} paragraph"):
            split_documents(texts, held_out=held_out, seed=seed)
        return
    fitted, rest = split_documents(texts, held_out=held_out, seed=seed)
    assert fitted and rest and set(gists(fitted)).isdisjoint(gists(rest))
    assert set(gists(fitted + rest)) == all_gists


def test_only_the_seed_decides_what_is_held_out(documents: tuple[str, ...]) -> None:
    assert split_documents(documents, seed=3) == split_documents(list(documents), seed=3)
    assert split_documents(documents, seed=3) != split_documents(documents, seed=4)


def test_a_single_document_is_split_between_paragraphs() -> None:
    fitted, rest = split_documents(["one\n\ntwo\n\nthree\n\nfour"], held_out=0.5)
    assert len(fitted) == len(rest) == 1
    assert sorted(gists(fitted + rest)) == ["four", "one", "three", "two"]


def test_topics_are_read_without_modules(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {"all": "This is all of the text.\n\nx ::= y"}
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", SimpleNamespace(topics=topics))
    assert manual_texts() == ("This is all of the text.",)


def test_whole_documents_are_divided_without_a_change() -> None:
    shared = "Answer the question below."
    examples = [f"{shared}\n\n  Question {number}?\n" for number in range(7)]
    parts = split_documents([*examples, " ", examples[3].upper()], keeps_whole=True)
    assert sorted(example.lower() for part in parts for example in part) == [
        example.lower() for example in examples
    ]
    fitted, rest = split_documents(examples, keeps_whole=True, seed=2)
    assert fitted and rest and {*fitted, *rest} == {*examples} and not {*fitted} & {*rest}


@pytest.mark.parametrize(
    ("examples", "count"), [(["a b"], "1"), (["a b", "A, b!"], "1"), ([], "0")]
)
def test_whole_documents_need_two_different_ones(examples: list[str], count: str) -> None:
    with pytest.raises(OptionError, match=f"^{count} example"):
        split_documents(examples, keeps_whole=True)
