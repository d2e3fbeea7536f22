"""benchmarks/outside_data.py: scored pairs and whole documents of public data sets."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import OptionError

from .test_outside import BENCHMARKS, SIMILAR, sick, tsv, write


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("outside_data")


def test_pairs_of_sick_are_read_by_the_names_of_its_columns(data: Any, tmp_path: Path) -> None:
    assert data.read_pairs(write(tmp_path / "SICK.txt", sick(*SIMILAR))) == SIMILAR
    columns = ["relatedness_score", "pair_ID", "sentence_B", "sentence_A"]
    row = [3.7, 1, "The second one.", '"Go," he said.']
    file = write(tmp_path / "SICK.txt", tsv(columns, row, ["a short row"]))
    assert data.read_pairs(file) == [('"Go," he said.', "The second one.", 3.7)]


def test_lines_with_a_score_and_two_sentences_are_pairs(data: Any, tmp_path: Path) -> None:
    lines = "4\tRain fell.\tIt rained.\n0.25\tRain fell.\tA cat slept.\tan extra column\n"
    assert data.read_pairs(write(tmp_path / "sts.txt", lines)) == [
        ("Rain fell.", "It rained.", 4.0),
        ("Rain fell.", "A cat slept.", 0.25),
    ]


def test_pairs_of_sts_may_come_after_genre_file_year_and_number(data: Any, tmp_path: Path) -> None:
    lines = tsv(
        ("captions", "files", "2015", "0001", "2.500", '"Rain fell.', "It rained."),
        ("news", "pages", "2012test", "0002", "0.25", "Rain fell.", "A cat slept.", "a source"),
    )
    assert data.read_pairs(write(tmp_path / "sts.csv", lines)) == [
        ('"Rain fell.', "It rained.", 2.5),
        ("Rain fell.", "A cat slept.", 0.25),
    ]


def test_pairs_of_sts_are_read_by_the_names_of_its_columns(data: Any, tmp_path: Path) -> None:
    rows = (
        ("index", "sentence1", "sentence2", "score"),
        (0, "Rain fell.", "It rained.", 4.5),
        (1, "Rain fell.", "A cat slept.", "unknown"),
    )
    file = write(tmp_path / "sts.tsv", tsv(*rows))
    assert data.read_pairs(file) == [("Rain fell.", "It rained.", 4.5)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A plain text.\nIt has two lines.\n",
        "genre\tfile\t4.5\tRain fell.\tIt rained.\n",
        "4.5\tRain fell.\tIt rained.\nA line of prose.\n",
        "4.5\tRain fell.\n",
        "news\tpages\t2012\t1\tnone\tRain fell.\tIt rained.\n",
        "[The cook] called the pilot because [he] was late.\n",
    ],
    ids=[
        *("empty", "prose", "score elsewhere", "one odd line", "one sentence", "no score"),
        "brackets",
    ],
)
def test_text_in_another_format_gives_no_pairs(data: Any, tmp_path: Path, text: str) -> None:
    assert data.read_pairs(write(tmp_path / "other.txt", text)) == []


def test_blank_lines_between_pairs_are_skipped(data: Any, tmp_path: Path) -> None:
    lines = "4\tRain fell.\tIt rained.\n\n"
    assert data.read_pairs(write(tmp_path / "sts.txt", lines)) == [("Rain fell.", "It rained.", 4)]


def test_long_quotations_are_neither_pairs_nor_passages(data: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "story.txt", '"Rain', " fell" * 30_000, "\nand fell.\n")
    assert data.read_pairs(file) == data.read_gap(file) == data.read_bracketed(file) == []


@pytest.mark.parametrize(
    "reader", ["read_pairs", "read_gap", "read_bracketed", "read_documents", "read_entities"]
)
def test_readers_name_a_file_that_is_not_text(data: Any, tmp_path: Path, reader: str) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes("A caf\xe9 in the rain.".encode("latin-1"))
    with pytest.raises(OptionError, match=r"latin\.txt is not UTF-8"):
        getattr(data, reader)(file)


TREEBANK = """\
# newdoc id = GUM_fiction_rain
# meta::title = A title
# newpar
# newpar_block = head (1 s)
# sent_id = GUM_fiction_rain-1
# text = The Rain
# text_de = Der Regen
1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_
2\tRain\train\tNOUN\t_\t_\t0\troot\t_\t_

# newpar
# text = Rain fell = a lot.
# text = It rained again.
# newpar id = p3
# text = Nobody minded.
# newdoc id = w01001
# text = A cat slept.
# newdoc
# text = Word
# newdoc id = GENTLE_legal_contract_two
# text = The parties agree.
"""


def test_documents_of_a_treebank_have_paragraphs_and_registers(data: Any, tmp_path: Path) -> None:
    assert data.read_documents(write(tmp_path / "gum.conllu", TREEBANK)) == [
        ("fiction", "The Rain\n\nRain fell = a lot. It rained again.\n\nNobody minded."),
        ("", "A cat slept."),
        ("legal", "The parties agree."),
    ]


def test_a_treebank_of_single_sentences_has_no_documents(data: Any, tmp_path: Path) -> None:
    assert data.read_documents(write(tmp_path / "one.conllu", "# text = Rain fell.\n")) == []


def test_a_text_file_is_one_document(data: Any, tmp_path: Path) -> None:
    text = "# newdoc\n# text = Rain fell.\n\nIt rained.\n"
    assert data.read_documents(write(tmp_path / "rain.txt", text)) == [("", text)]
    assert data.read_documents(write(tmp_path / "rain.txt", " \n")) == []
