"""`headwise compare`: its output, its file and its errors."""

import json
from pathlib import Path

import pytest

from headwise.comparing.comparison import Comparison

from ..models.test_loading import save
from ..pruning.tiny_models import texts
from .running import Runner

FEW = ("--registers", "news,captions", "--max-tokens", 120)


@pytest.fixture(autouse=True)
def _registers_of_known_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny_corpus(registers: list[str]) -> dict[str, list[str]]:
        return {name: texts(20, seed=len(name)) for name in registers}

    monkeypatch.setattr("headwise.comparing.compare.corpus", tiny_corpus)


@pytest.fixture(scope="module")
def smaller(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cut of the tiny model, as `headwise prune` writes it."""
    from headwise.pruning.prune import prune
    from headwise.pruning.settings import PruneSettings

    settings = PruneSettings(
        refit="none",
        choose_tokens=60,
        fit_tokens=120,
        held_tokens=60,
        draws_curve=False,
        times_speed=False,
    )
    out = tmp_path_factory.mktemp("models") / "smaller"
    prune(llama, out, heads="L0H0 L0H1 L0H2", texts=texts(24), settings=settings)
    return out


def test_compare_prints_sizes_speed_texts_and_a_last_line(
    headwise: Runner, llama: Path, smaller: Path, text: Path
) -> None:
    ran = headwise("compare", llama, smaller, "--text", text, *FEW)
    assert ran.code == 0, ran.err
    assert ran.err.splitlines() == [
        "headwise: running both models on each kind of text",
        "headwise: timing both models",
    ]
    lines = [line.strip() for line in ran.out.splitlines()]
    assert lines[0] == f"{smaller} compared with {llama}"
    for start in ("heads ", "1 x 61 tokens", "4 x 61", "your text ", "captions ", "all registers"):
        assert any(line.startswith(start) for line in lines), start
    assert "heads 18 15 16.7%" in " ".join(ran.out.split())
    assert lines[-1].startswith("worst register: ") and lines[-1].endswith(")")
    assert "perplexity (± " in lines[-1]


def test_compare_as_json_is_the_file_it_writes(
    headwise: Runner, llama: Path, smaller: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--text", text, "--lines", *FEW, "--no-speed", "--json", "--out", out)
    ran = headwise("compare", llama, smaller, *options)
    assert ran.code == 0, ran.err
    printed = json.loads(ran.out)
    assert printed == json.loads((out / "compare.json").read_text("utf-8"))
    assert printed["speed"] == []
    assert [row["name"] for row in printed["registers"]] == ["news", "captions"]
    assert printed["own_text"]["agreement"]["value"] <= 1
    assert Comparison.read(out).model_after.name == str(smaller)
    error = headwise.refused("compare", llama, smaller, *options)
    assert "compare.json" in error and "--force" in error
    assert headwise("compare", llama, smaller, *options, "--force").code == 0


def test_a_folder_is_named_once_it_is_written(
    headwise: Runner, llama: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran = headwise("compare", llama, llama, *FEW, "--no-speed", "--out", out)
    assert f"wrote {out / 'compare.json'}" in ran.out
    assert ran.out.splitlines()[-1] == f"every register: no difference from {llama}"


def test_bad_options_get_one_sentence(
    headwise: Runner, llama: Path, text: Path, tmp_path: Path
) -> None:
    bert = save("bert", tmp_path / "bert")
    for arguments, words in (
        ((), "Missing argument"),
        ((llama,), "AFTER"),
        ((llama, "nowhere/at/all"), "there is no directory nowhere/at/all"),
        ((llama, bert), "is measured by next-token loss, but"),
        ((llama, llama, "--max-tokens", 1, "--no-speed"), "--max-tokens is 1"),
        ((llama, llama, "--lines"), "--lines and --field say how to read --text"),
        (("nowhere/at/all", llama, "--registers", "novels"), "'novels' is not a register"),
        ((llama, llama, "--out", text), "text.txt is a file"),
        ((llama, llama, "--dtype", "float"), "--dtype is 'float'"),
    ):
        error = headwise.refused("compare", *arguments)
        assert words.lower() in error.lower(), error


def test_the_report_has_a_section_on_the_comparison(
    headwise: Runner, llama: Path, smaller: Path, text: Path, tmp_path: Path
) -> None:
    scan, out, page = tmp_path / "scan", tmp_path / "compared", tmp_path / "page.html"
    assert headwise("scan", llama, "--text", text, "--max-tokens", 60, "--out", scan).code == 0
    ran = headwise("compare", llama, smaller, *FEW, "--no-speed", "--out", out)
    assert ran.code == 0, ran.err
    ran = headwise("report", scan, "--compare", out, "--out", page)
    assert ran.code == 0, ran.err
    written = page.read_text("utf-8")
    assert "Two models compared" in written and "worst register: " in written
    assert "nowhere does not exist" in headwise.refused("report", scan, "--compare", "nowhere")
    assert "has no compare.json" in headwise.refused("report", scan, "--compare", scan, "--force")
