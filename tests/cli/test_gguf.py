"""Commands take a GGUF file wherever they take a model."""

from pathlib import Path

from headwise.models.loading import load_model

from ..models.tiny_gguf import HEADS, LAYERS, write_gguf
from .running import Runner

CAT = "the cat"


def test_the_command_line_scans_and_cuts_a_gguf_file(headwise: Runner, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", adds_bos=True)
    ran = headwise("scan", file, "--max-tokens", 60)
    assert ran.code == 0 and f"{HEADS * LAYERS} heads" in ran.out
    sentences = [line for line in ran.err.splitlines() if "<s>" in line]
    assert len(sentences) == 1 and sentences[0].startswith("headwise: the tokenizer")
    smaller = tmp_path / "smaller"
    assert headwise("prune", file, "--cut", 1, "--out", smaller).code == 0
    assert len(load_model(smaller).tokenizer(CAT)["input_ids"]) == 1 + len(" the cat")
    page = tmp_path / "page.html"
    assert headwise("explore", file, "--text", CAT, "--export", page).code == 0
