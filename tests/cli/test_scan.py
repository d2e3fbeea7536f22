"""`headwise scan`: what it prints and writes, and every mistake as one sentence."""

import io
import json
import sys
from pathlib import Path

import pytest

from headwise import cli
from headwise.heads import HeadTable

TEXT = "The cat sat on the mat. The dog sat on the cat, and the mat was not amused.\n"


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run `headwise scan` with the arguments in this process; the exit code."""
    monkeypatch.setattr(sys, "argv", ["headwise", "scan", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_the_table_is_printed_and_written(
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert run_main(monkeypatch, "--text", text, "--out", out) == 0
    printed, err = capsys.readouterr()
    assert "72 heads in 6 layers" in printed
    assert "positional" in printed and "L0" in printed
    assert err == ""
    table = HeadTable.read(out / "heads.parquet")
    assert table == HeadTable.read(out / "heads.csv")
    made = json.loads((out / "scan.json").read_text("utf-8"))
    assert made == table.about
    assert made["tokens"] > 20


def test_json_is_the_table(
    text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    assert run_main(monkeypatch, "--text", "-", "--json", "--measures", "entropy,offsets") == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["heads"]) == 72
    assert printed["heads"][0]["layer"] == 0
    assert printed["about"]["settings"]["measures"] == ["entropy", "offsets"]


def test_a_treebank_gives_relations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.conllu"
    rows = [
        "1\tCats\tcat\tNOUN\t_\t_\t2\tnsubj\t_\t_",
        "2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_",
    ]
    rows += ["3\twell\twell\tADV\t_\t_\t2\tadvmod\t_\t_"]
    file.write_text("\n".join([*rows, "", ""]) * 12, encoding="utf-8")
    assert run_main(monkeypatch, "--treebank", file, "--out", tmp_path / "out") == 0
    assert "nsubj (treebank)" in capsys.readouterr().out
    assert (tmp_path / "out" / "relations.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no/such/model"], "no/such/model"),
        (["./missing"], "./missing is no directory"),
        (["--text", "missing.txt"], "missing.txt cannot be read: No such file"),
        (["--treebank", "missing.conllu"], "missing.conllu"),
        (["--rows", "some"], "--rows is 'some': give all, auto or a number"),
        (["--rows", "0"], "rows is 0"),
        (["--measures", "glow"], "there is no measure 'glow'"),
        (["--length", "3"], "a length of 3 leaves no room for text"),
        (["--dtype", "float8"], "dtype is 'float8'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    assert run_main(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_a_folder_with_other_settings_is_kept(
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    assert run_main(monkeypatch, "--text", text, "--out", out, "--length", 16) == 0
    held = (out / "heads.parquet").read_bytes()
    assert run_main(monkeypatch, "--text", text, "--out", out, "--length", 12) == 2
    assert "settings.length was 16, now 12" in capsys.readouterr().err
    assert (out / "heads.parquet").read_bytes() == held
    assert run_main(monkeypatch, "--text", text, "--out", out, "--length", 12, "--force") == 0


def test_text_that_is_no_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"\x89PNG\xff\xfe")
    assert run_main(monkeypatch, "--text", file) == 2
    assert "is not UTF-8 text" in capsys.readouterr().err
