"""CoNLL-U files become probe sentences; an error names the file and the lines."""

import errno
import os
import re
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


def test_a_multi_word_token_is_one_word_and_empty_nodes_are_dropped(tmp_path: Path) -> None:
    (sentence,) = read_treebank(write(tmp_path, DIDNT))
    assert sentence.words == ("She", "didn't", "sleep", ",", "or", "was", "seen", ".")
    assert sentence.arcs == (
        Arc("nsubj", 0, 2),
        Arc("aux", 1, 2),
        Arc("cc", 4, 6),
        Arc("aux", 5, 6),
        Arc("conj", 6, 2),
    )


def test_every_part_of_a_multi_word_token_keeps_its_arc_to_the_outside(tmp_path: Path) -> None:
    (sentence,) = read_treebank(write(tmp_path, DU))
    assert sentence.words == ("Parle", "du", "chat")
    assert sentence.arcs == (Arc("case", 1, 2), Arc("det", 1, 2), Arc("obl", 2, 0))


def test_sentences_without_an_arc_are_skipped(tmp_path: Path) -> None:
    (sentence,) = read_treebank(write(tmp_path, ALONE + DU + ALONE))
    assert sentence.words == ("Parle", "du", "chat")


def test_the_last_sentence_needs_no_empty_line(tmp_path: Path) -> None:
    assert len(read_treebank(write(tmp_path, DIDNT + DU.rstrip()))) == 2


def test_a_missing_file_and_a_folder_raise(tmp_path: Path) -> None:
    for path in (tmp_path / "none.conllu", tmp_path):
        with pytest.raises(OptionError, match=re.escape(str(path))):
            read_treebank(path)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (DU * 3 + "no treebank\n\n" + DU, "line 19, "),
        (DU + "# a comment\n1\tWord\n", "lines 7 to 8, .*'Word'.* 2 columns"),
        (DU.replace("\t4\tdet", "\t9\tdet"), "lines 1 to 5, .*'le' is 9"),
        (DU.replace("\t4\tdet", "\tx\tdet"), "lines 1 to 5, .*'head'"),
        (DU + "\n\n" + ALONE.replace("1\t", "_\t"), "line 9, .*'Stop'.* number"),
        (DU.replace("1\tP", "1-\tP"), "lines 1 to 5, .*'id'"),
        (DU.replace("4\tchat", "4\t"), "lines 1 to 5, .* word 4 .* form"),
    ],
)
def test_an_error_names_the_lines_of_the_sentence(tmp_path: Path, text: str, facts: str) -> None:
    with pytest.raises(OptionError, match=rf"some\.conllu, {facts}"):
        read_treebank(write(tmp_path, text))


def test_a_file_in_another_encoding_raises_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "some.conllu"
    file.write_bytes(DU.encode() + b"1\t\xff\xfe\n")
    with pytest.raises(OptionError, match=rf"^{re.escape(str(file))}.* UTF-8.* {len(DU) + 2}$"):
        read_treebank(file)


def test_an_unreadable_file_raises_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, DU)

    def deny(path: Path, **_: str) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "read_text", deny)  # an administrator may read every file
    with pytest.raises(
        OptionError, match=rf"^{re.escape(str(file))}.* {os.strerror(errno.EACCES)}$"
    ):
        read_treebank(file)


def test_a_word_without_annotation_has_no_arc(tmp_path: Path) -> None:
    file = write(tmp_path, DU.replace("\t4\tdet", "\t_\t_"))
    (sentence,) = read_treebank(file)
    assert sentence.arcs == (Arc("case", 1, 2), Arc("obl", 2, 0))


def test_a_missing_package_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "conllu", None)
    with pytest.raises(MissingPackage, match="pip install conllu"):
        read_treebank(write(tmp_path, DU))
