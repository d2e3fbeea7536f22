"""`headwise explore --export` writes one file, and rejects what it cannot use in one sentence."""

from pathlib import Path

import pytest

from .running import Runner

TEXT = "The cat sat on the mat because it was warm."


def test_a_sentence_and_its_pair_are_written_as_one_file(headwise: Runner, tmp_path: Path) -> None:
    path = tmp_path / "cat.html"
    swap = TEXT.replace("warm", "hungry")
    ran = headwise("explore", "--text", TEXT, "--swap", swap, "--export", path)
    assert ran.code == 0 and ran.out.startswith("wrote ") and ran.out.endswith(" kB\n")
    page = path.read_text("utf-8")
    assert page.startswith("<!doctype html>") and swap in page
    assert [each.name for each in tmp_path.iterdir()] == ["cat.html"]
    sentence = headwise.refused("explore", "--text", TEXT, "--export", path)
    assert "already exists" in sentence and path.read_text("utf-8") == page
    assert headwise("explore", "--text", TEXT, "--export", path, "--force").code == 0
    assert swap not in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("--text", TEXT), ("--export", "leave out --text")),
        (("--force",), ("--export", "leave out --force")),
        (("--export", "a.html"), ("needs a sentence", "--text")),
        (("--export", "a.html", "--text", TEXT, "--port", "80"), ("leave out --port",)),
        (("--export", "a.html", "--text", " "), ("--text is empty",)),
        (("--export", "a.html", "--text", TEXT, "--swap", ""), ("--swap is empty",)),
        (("--export", "a.pdf", "--text", TEXT), ("a.pdf ends in .pdf", ".html")),
        (("--export", "nowhere/a.html", "--text", TEXT), ("folder nowhere",)),
        (("--export", "a.html", "--text", "word " * 300), ("302 tokens", "256")),
    ],
)
def test_mistakes_are_named_in_one_sentence(
    headwise: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    facts: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    sentence = headwise.refused("explore", *arguments)
    assert all(fact in sentence for fact in facts), sentence
    assert list(tmp_path.iterdir()) == []
