"""CoNLL-U files become probe sentences, read as a stream; a broken file is named with its lines."""

import sys
from pathlib import Path

import pytest

from headwise.errors import MissingPackage, OptionError
from headwise.probes.sentences import Arc
from headwise.probes.treebank import read_treebank

DIDNT = """\
# text = She didn't sleep, or was seen.
1\tShe\tshe\tPRON\t_\t_\t4\tnsubj\t_\t_
2-3\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdid\tdo\tAUX\t_\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\t_\t_\t2\tadvmod\t_\t_
4\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_
5\t,\t,\tPUNCT\t_\t_\t8\tpunct\t_\t_
6\tor\tor\tCCONJ\t_\t_\t8\tcc\t_\t_
6.1\tshe\tshe\tPRON\t_\t_\t_\t_\t8:nsubj\t_
7\twas\tbe\tAUX\t_\t_\t8\taux:pass\t_\t_
8\tseen\tsee\tVERB\t_\t_\t4\tconj\t_\t_
9\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_

"""
DU = """\
1\tParle\tparler\tVERB\t_\t_\t0\troot\t_\t_
2-3\tdu\t_\t_\t_\t_\t_\t_\t_\t_
2\tde\tde\tADP\t_\t_\t4\tcase\t_\t_
3\tle\tle\tDET\t_\t_\t4\tdet\t_\t_
4\tchat\tchat\tNOUN\t_\t_\t1\tobl:arg\t_\t_

"""
ALONE = "1\tStop\tstop\tVERB\t_\t_\t0\troot\t_\t_\n\n"


def write(folder: Path, text: str) -> Path:
    file = folder / "some.conllu"
    file.write_text(text, "utf-8")
    return file


def test_a_multi_word_token_is_one_word_and_empty_nodes_are_none(tmp_path: Path) -> None:
    (sentence,) = read_treebank(write(tmp_path, DIDNT))
    assert sentence.words == ("She", "didn't", "sleep", ",", "or", "was", "seen", ".")
    assert sentence.arcs == (
        Arc("nsubj", 0, 2),
        Arc("aux", 1, 2),
        Arc("cc", 4, 6),
        Arc("aux:pass", 5, 6),
        Arc("conj", 6, 2),
    )


def test_every_part_of_a_multi_word_token_keeps_its_arc_to_the_outside(tmp_path: Path) -> None:
    (sentence,) = read_treebank(write(tmp_path, DU))
    assert sentence.words == ("Parle", "du", "chat")
    assert sentence.arcs == (Arc("case", 1, 2), Arc("det", 1, 2), Arc("obl:arg", 2, 0))


def test_punctuation_comes_when_asked_for(tmp_path: Path) -> None:
    (sentence,) = read_treebank(write(tmp_path, DIDNT), with_punctuation=True)
    punctuation = [arc for arc in sentence.arcs if arc.relation == "punct"]
    assert punctuation == [Arc("punct", 3, 6), Arc("punct", 7, 2)]


@pytest.mark.parametrize("name", ["aux", "aux:pass"])
def test_a_relation_is_found_by_its_full_and_its_base_name(tmp_path: Path, name: str) -> None:
    (sentence,) = read_treebank(write(tmp_path, DIDNT + DU), relations=[name])
    found = [arc.relation for arc in sentence.arcs]
    assert found == (["aux", "aux:pass"] if name == "aux" else ["aux:pass"])


def test_one_relation_is_given_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path, DIDNT + DU)
    assert list(read_treebank(file, relations="nsubj")) == list(
        read_treebank(file, relations=["nsubj"])
    )
    assert len(list(read_treebank(file, relations="nsubj"))) == 1


def test_without_subtypes_arcs_have_base_names(tmp_path: Path) -> None:
    sentences = read_treebank(write(tmp_path, DIDNT + DU), with_subtypes=False)
    names = {arc.relation for sentence in sentences for arc in sentence.arcs}
    assert names == {"nsubj", "aux", "cc", "conj", "case", "det", "obl"}


def test_sentences_without_an_arc_are_passed_over(tmp_path: Path) -> None:
    sentences = list(read_treebank(write(tmp_path, ALONE + DU + ALONE)))
    assert [sentence.words for sentence in sentences] == [("Parle", "du", "chat")]


def test_the_last_sentence_needs_no_empty_line(tmp_path: Path) -> None:
    assert len(list(read_treebank(write(tmp_path, DIDNT + DU.rstrip())))) == 2


def test_the_file_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    sentences = read_treebank(write(tmp_path, DU * 3 + "no treebank\n\n" + DU))
    assert [next(sentences).words[1] for _ in range(3)] == ["du"] * 3
    with pytest.raises(OptionError, match=r"some\.conllu, line 19, is not CoNLL-U: Inv"):
        next(sentences)


def test_missing_file_raises_before_the_first_sentence(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none\.conllu is not a file"):
        read_treebank(str(tmp_path / "none.conllu"))
    with pytest.raises(OptionError, match="is not a file"):
        read_treebank(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DU + "# a comment\n1\tWord\n", "lines 7 to 8, .*: the line of 'Word' has 2 columns"),
        (DU.replace("\t4\tdet", "\t9\tdet"), "lines 1 to 5, .* head of 'le' is 9, but no word"),
        (DU.replace("\t4\tdet", "\tx\tdet"), "lines 1 to 5, .*: Failed parsing field 'head'"),
        (
            DU + "\n\n" + ALONE.replace("1\t", "_\t"),
            "line 9, .* of 'Stop' has no number",
        ),
        (DU.replace("1\tP", "1-\tP"), "lines 1 to 5, .*: Failed parsing field 'id'"),
        (DU.replace("4\tchat", "4\t"), "lines 1 to 5, .*: the line of word 4 has no form"),
    ],
)
def test_a_broken_sentence_is_named_with_its_lines(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        list(read_treebank(write(tmp_path, text)))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "some.conllu"
    file.write_bytes(DU.encode() + b"1\t\xff\xfe\n")
    with pytest.raises(OptionError, match=r"some\.conllu is not UTF-8 after line \d+: "):
        list(read_treebank(file))


def test_a_word_without_annotation_has_no_arc(tmp_path: Path) -> None:
    file = write(tmp_path, DU.replace("\t4\tdet", "\t_\t_"))
    (sentence,) = read_treebank(file)
    assert sentence.arcs == (Arc("case", 1, 2), Arc("obl:arg", 2, 0))


def test_a_missing_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "conllu", None)
    with pytest.raises(MissingPackage, match="pip install conllu"):
        list(read_treebank(write(tmp_path, DU)))


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "mine.conllu").write_text("", encoding="utf-8")
    monkeypatch.setattr(Path, "open", refuse)  # a superuser may read anything
    with pytest.raises(OptionError, match=r"mine\.conllu cannot be read: Permission denied"):
        list(read_treebank(tmp_path / "mine.conllu"))
