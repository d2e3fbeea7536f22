"""`headwise scan`: what it prints and writes, and every mistake as one sentence."""

import io
import json
import sys
from pathlib import Path

import pytest

from headwise.head_table import HeadTable

from ..watching.tiny import tiny
from .running import Runner

TEXT = "The cat sat on the mat. The dog sat on the cat, and the mat was not amused.\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_head_table_is_printed_and_written(headwise: Runner, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = headwise("scan", "--text", text, "--out", out)
    assert (ran.code, ran.err) == (0, "")
    assert "72 heads in 6 layers" in ran.out
    assert "positional" in ran.out and "L0" in ran.out
    assert "not tested: coreference, syntactic, semantic" in ran.out
    assert "No sentences with gold relations were read: --probe reads" in ran.out
    table = HeadTable.read(out / "heads.parquet")
    assert table == HeadTable.read(out / "heads.csv")
    made = json.loads((out / "scan.json").read_text("utf-8"))
    assert made == table.about
    assert made["tokens"] > 20
    again = headwise("scan", "--text", text, "--out", out)
    assert again.err.replace("\n", "") == f"headwise: the scan in {out} was already complete"
    assert again.out == ran.out


def test_json_is_the_table(
    headwise: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    ran = headwise("scan", "--text", "-", "--json", "--measures", "entropy,offsets")
    printed = json.loads(ran.out)
    assert len(printed["heads"]) == 72
    assert printed["heads"][0]["layer"] == 0
    assert printed["about"]["settings"]["measures"] == ["entropy", "offsets"]
    (tmp_path / "heads.json").write_text(ran.out, encoding="utf-8")
    assert HeadTable.read(tmp_path / "heads.json").to_json() == ran.out.rstrip()


def test_treebank_adds_relations(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "small.conllu"
    rows = [
        "1\tCats\tcat\tNOUN\t_\t_\t2\tnsubj\t_\t_",
        "2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_",
        "3\twell\twell\tADV\t_\t_\t2\tadvmod\t_\t_",
    ]
    file.write_text("\n".join([*rows, "", ""]) * 12, encoding="utf-8")
    assert "nsubj (treebank)" in headwise("scan", "--treebank", file, "--out", tmp_path / "out").out
    assert (tmp_path / "out" / "relations.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no/such/model"], "no/such/model"),
        (["./missing"], "there is no directory ./missing"),
        (
            ["two words"],
            "two words cannot be loaded: it is neither a directory nor a valid hub id",
        ),
        (["--text", "missing.txt"], "missing.txt cannot be read: No such file"),
        (["--treebank", "missing.conllu"], "missing.conllu"),
        (["--rows", "some"], "--rows is 'some': give all, auto or a number of rows"),
        (["--rows", "0"], "rows is 0"),
        (["--measures", "glow"], "unknown measure 'glow'"),
        (["--length", "3"], "--length is 3"),
        (["--dtype", "float8"], "dtype is 'float8'"),
    ],
)
def test_bad_options_get_one_sentence(
    headwise: Runner,
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in headwise.refused("scan", *arguments)


def test_sentences_that_were_left_out_are_counted(headwise: Runner, text: Path) -> None:
    ran = headwise("scan", "--text", text, "--probe", "--length", 14, "--measures", "offsets")
    output = " ".join(ran.out.split())
    assert "1,466 of 2,056 sentences with known relations were left out: too long for a" in output
    assert "tokens, or with a word that has no token." in output
    assert "found, baseline: the head and the baseline that are best on one half" in output
    marked = [line for line in ran.out.splitlines() if "H" in line and "* " in line]
    assert marked and "* the two halves of the sentences choose different heads" in output
    assert "positional" in output, "equal weights are counted whatever is asked for"


def test_scan_rejects_a_malformed_number_of_processes(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "abc")
    assert "WORLD_SIZE is 'abc' in the environment" in headwise.refused("scan", "--no-probe")


def test_folder_with_other_settings_is_not_overwritten(
    headwise: Runner, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("scan", "--text", text, "--out", out, "--length")
    assert headwise(*arguments, 16).code == 0
    before = (out / "heads.parquet").read_bytes()
    assert "length was 16, now 12" in headwise(*arguments, 12).err
    assert (out / "heads.parquet").read_bytes() == before
    assert headwise(*arguments, 12, "--force").code == 0


def test_scan_rejects_a_model_that_reads_no_text(headwise: Runner, tmp_path: Path) -> None:
    model = tiny("vit")[0]
    model.save_pretrained(tmp_path)
    assert "reads images, not text: give --image FILE" in headwise.refused("scan", tmp_path)


def test_scan_rejects_standard_input_that_is_not_utf8(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a \xff"), encoding="utf-8"))
    error = headwise.refused("scan", "--text", "-")
    assert "standard input is not UTF-8 text: invalid start byte at byte 2" in error


def test_scan_rejects_a_file_that_is_not_text(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"\x89PNG\xff\xfe")
    assert "is not UTF-8 text" in headwise.refused("scan", "--text", file)
