"""Hostile and odd input: files, heads and models that are not what they should be.

Each gets one sentence and exit code 2, and nothing is written.
"""

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from .hostile import SMALL, write_text
from .running import Runner
from .test_report import give_role

TINY = (
    *("--steps", 20, "--seeds", 1, "--rates", "0.01", "--d-model", 4, "--width", 4),
    *("--processes", 1, "--groups", "narrow", "--layers", 1, "--set", "length=6"),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a text, in which nothing else may be afterwards."""
    write_text(tmp_path / "text")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


@pytest.fixture
def refused(headwise: Runner, here: Path) -> Callable[..., str]:
    """Runs a command that is to be refused, and to leave the folder as it is; what it said."""

    def run(*arguments: object) -> str:
        before = names_in(here)
        said = headwise.refused(*arguments)
        assert said.startswith("headwise: ")
        assert names_in(here) == before
        return said

    return run


# Files that are no text, no treebank, no plan.

NO_TEXT = {
    "empty": b"",
    "blank": b" \n\n \n",
    "noise": random.Random(0).randbytes(5000),
    "latin": b"w8 w9 \xff w10",
    "wide": "w8 w9 w10".encode("utf-16"),
}
NOT_UTF8 = "is not UTF-8"
READ = {
    "scan": ("scan", "MODEL", "--text", "FILE", "--out", "out"),
    "treebank": ("scan", "MODEL", "--treebank", "FILE", "--out", "out"),
    "importance": ("importance", "MODEL", "--text", "FILE"),
    "prune": ("prune", "MODEL", "--text", "FILE", "--cut", 6, "--out", "out", *SMALL),
    "plan of a cut": ("prune", "MODEL", "--plan", "FILE", "--out", "out", *SMALL),
    "sweep": ("sweep", "characters", "--set", "text=FILE", "--out", "out"),
    "report": ("report", "FILE"),
    "model": ("scan", "FILE"),
    "plan": ("plan", "FILE"),
}
SAID = {
    ("scan", "empty"): "FILE holds no text",
    ("treebank", "empty"): "FILE holds no sentence with a relation",
    ("importance", "blank"): "FILE holds no text",
    ("prune", "empty"): "FILE holds no text",
    ("plan of a cut", "empty"): "FILE names no head: there is nothing to cut",
    ("sweep", "empty"): "FILE has 0 characters, and length 64 takes at least 1,281: give a longer",
    ("sweep", "blank"): "FILE has 5 characters, and length 64 takes at least 1,281: give a longer",
    **{(name, "noise"): f"FILE {NOT_UTF8}" for name in ("scan", "treebank", "importance")},
    ("prune", "noise"): f"FILE {NOT_UTF8} text: invalid continuation byte at byte 0",
    ("sweep", "noise"): f"FILE {NOT_UTF8} text",
    ("plan of a cut", "noise"): f"FILE {NOT_UTF8} text",
    ("scan", "latin"): f"FILE {NOT_UTF8} text: invalid start byte at byte 6",
    ("plan of a cut", "latin"): f"FILE {NOT_UTF8} text: invalid start byte at byte 6",
    ("scan", "wide"): f"FILE {NOT_UTF8} text: invalid start byte at byte 0",
    ("report", "noise"): "FILE is a file: give a folder that headwise scan --out wrote",
    ("model", "noise"): "FILE is a file: pass the directory that contains config.json",
    ("plan", "empty"): "FILE cannot be read as JSON",
    ("plan", "noise"): "FILE cannot be read as JSON",
}


@pytest.mark.parametrize(("command", "kind"), SAID)
def test_a_file_that_is_not_what_it_should_be_is_named(
    refused: Callable[..., str], llama: Path, here: Path, command: str, kind: str
) -> None:
    (here / kind).write_bytes(NO_TEXT[kind])
    places = {"MODEL": str(llama), "FILE": kind, "text=FILE": f"text={kind}"}
    said = refused(*(places.get(str(one), one) for one in READ[command]))
    assert SAID[command, kind].replace("FILE", kind) in said


def test_a_refused_text_does_not_stand_in_the_way_of_the_right_one(
    headwise: Runner, refused: Callable[..., str], llama: Path, here: Path
) -> None:
    (here / "short").write_bytes(b"w8")
    arguments = ("scan", llama, "--max-tokens", 60, "--out", "out", "--text")
    assert "there is too little text to read" in refused(*arguments, "short")
    ran = headwise(*arguments, "text")
    assert (ran.code, ran.err) == (0, "")


def test_a_nul_is_a_character_like_others(headwise: Runner, llama: Path, here: Path) -> None:
    (here / "nul").write_bytes(b"w8 w9\0w10 w11 " * 200)
    assert headwise("scan", llama, "--text", "nul", "--max-tokens", 60).code == 0
    ran = headwise("sweep", "characters", "--set", "text=nul", *TINY, "--out", "out", "--json")
    assert ran.code == 0, ran.err


# One line of 50 MB.


@pytest.fixture
def line(here: Path) -> Iterator[str]:
    """A line of 50 MB of words, gone as soon as it is not needed."""
    words = "w8 w9 w10 w21 w33 w7. "
    (here / "line").write_text(words * (50 * 2**20 // len(words)), encoding="utf-8")
    yield "line"
    (here / "line").unlink()


class Counted:
    """A tokenizer that keeps account of how much it is given to read."""

    def __init__(self, call: Callable[..., object]) -> None:
        self.call, self.longest = call, 0

    def __call__(self, tokenizer: object, text: str, *more: object, **options: object) -> object:
        self.longest = max(self.longest, len(text))
        return self.call(tokenizer, text, *more, **options)


def test_of_a_line_of_50_mb_no_more_is_read_than_is_asked_for(
    headwise: Runner, llama: Path, here: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(PreTrainedTokenizerFast.__call__)
    monkeypatch.setattr(
        PreTrainedTokenizerFast,
        "__call__",
        lambda self, *more, **options: counted(self, *more, **options),
    )
    few = ("--text", line, "--max-tokens", 60)
    scanned = headwise("scan", llama, *few, "--json")
    assert json.loads(scanned.out)["about"]["tokens"] == 60
    assert headwise("importance", llama, *few, "--json").code == 0
    pruned = headwise.refused("prune", llama, "--text", line, "--cut", 6, "--out", "out", *SMALL)
    assert "a text of 1 paragraph cannot be split" in pruned
    assert 100 < counted.longest < 10_000
    (here / "start").write_text((here / line).open().read(500).rpartition(" ")[0], encoding="utf-8")
    started = headwise("scan", llama, "--text", "start", "--max-tokens", 60, "--json")
    assert json.loads(scanned.out)["heads"] == json.loads(started.out)["heads"]


@pytest.mark.slow
def test_characters_of_a_line_of_50_mb_are_learnt(headwise: Runner, line: str) -> None:
    ran = headwise("sweep", "characters", "--set", f"text={line}", *TINY, "--out", "out", "--json")
    assert json.loads(ran.out)["summary"][0]["accuracy"] > 0


def test_a_sentence_longer_than_the_model_takes_is_told(
    headwise: Runner, refused: Callable[..., str], llama: Path, here: Path
) -> None:
    words = "the text is longer than the 61 tokens"
    assert words in refused("trace", llama, "--text", "w8 " * 20_000, "--svg", "map.svg")
    assert headwise("scan", llama, "--text", "text", "--out", "scan").code == 0
    give_role(here / "scan" / "heads.parquet", "L1H2", "sink")
    words = "the text has 20000 tokens, too many for a map: give at most 40"
    assert words in refused("report", "scan", "--text", "w8 " * 20_000)


# Heads that there are not.


@pytest.mark.parametrize(
    ("head", "words", "traced"),
    [
        (
            "L99H0",
            "L99H0 is not in this model: its layers are L0, L1, L2",
            "no layer 99: the model",
        ),
        ("L0H9999", "L0H9999 is not in this model: L0 has heads 0..5", "head 9999 is not in this"),
        ("encoder.L0H0", "encoder.L0H0 is not in this model: its layers", "no stack 'encoder'"),
        (
            "H3",
            "'H3' is not a head: write L3H11",
            "--heads is 'H3': give names such as L2H0, or numbers",
        ),
        ("3.10", "'3.10' is not a head: write L3H11", "--heads is '3.10': give names"),
        ("L0H-1", "'L0H-1' is not a head: write L3H11", "'L0H-1' is not a head: write L3H11"),
        ("", "names no head: there is nothing to cut", "--heads is '': give names"),
        (" , ", "names no head: there is nothing to cut", "--heads is ' , ': give names"),
    ],
)
def test_a_head_that_there_is_not_is_named(
    refused: Callable[..., str], llama: Path, here: Path, head: str, words: str, traced: str
) -> None:
    (here / "plan.txt").write_text(f"# cut\n{head}  # least needed\n", encoding="utf-8")
    common = ("prune", llama, "--text", "text", "--out", "out", *SMALL)
    assert words in refused(*common, "--heads", head)
    assert words in refused(*common, "--plan", "plan.txt")
    assert traced in refused("trace", llama, "--text", "w8 w9", "--heads", head, "--svg", "map.svg")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": "headwise cut plan 1"}', "cut plan: 'heads'"),
        ('{"heads": []}', "its format must be 'headwise cut plan 1', not None"),
        ('{"format": "headwise cut plan 9"}', "not 'headwise cut plan 9'"),
        ('{"format": "headwise cut plan 1", "heads": 3}', "cannot be read as a cut plan"),
        ('{"format', "cannot be read as a cut plan: Unterminated string"),
        ("[1]", "'[1]' is not a head"),
    ],
)
def test_a_plan_that_is_none_is_refused(
    refused: Callable[..., str], llama: Path, here: Path, content: str, words: str
) -> None:
    (here / "plan.json").write_text(content, encoding="utf-8")
    said = refused("prune", llama, "--text", "text", "--plan", "plan.json", "--out", "out", *SMALL)
    assert "plan.json cannot be read as a cut plan" in said and words in said


# Models that are broken.


def with_config(**more: object) -> Callable[[Path], None]:
    """Lets config.json say something else; None takes a fact away."""

    def break_it(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8")) | more
        kept = {key: value for key, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")

    return break_it


def with_content(name: str, content: bytes) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return break_it


def cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size // 2)


def with_nan(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights["model.layers.1.self_attn.k_proj.weight"][3, :2] = torch.nan
    save_file(weights, file, {"format": "pt"})


def with_pickles(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n"
UNSAFE = "cannot be loaded: a safetensors file of it is broken or was not copied whole: "
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "nan": (with_nan, r"layers\.1\.self_attn\.k_proj\.weight has 2 NaN values out of 672"),
    "weights cut short": (cut_short, f"{UNSAFE}.*incomplete metadata"),
    "weights empty": (with_content("model.safetensors", b""), f"{UNSAFE}.*header too small"),
    "weights of text": (with_content("model.safetensors", LFS), f"{UNSAFE}.*header too large"),
    "config broken": (with_content("config.json", b"{"), r"its config\.json is no JSON"),
    "config a list": (with_content("config.json", b"[]"), r"its config\.json is no JSON object"),
    "heads that share unevenly": (
        with_config(num_attention_heads=5, head_dim=None),
        r"The hidden size \(42\) is not a multiple of the number of attention heads \(5\)",
    ),
    "other heads than the weights": (
        with_config(num_attention_heads=14),
        r"layers\.0\.self_attn\.o_proj\.weight is \[42, 48\] in the files, and \[42, 112\] by the",
    ),
    "no heads": (with_config(num_attention_heads=0), r"could not make it of its config\.json"),
    "heads in words": (with_config(num_attention_heads="six"), "expected int, got str.*'six'"),
    "more layers": (with_config(num_hidden_layers=5), "its files lack 18 of the model's weights"),
    "unknown family": (with_config(model_type="perceptron9"), "model type `perceptron9`"),
    "no family": (with_config(model_type=None), "Should have a `model_type` key"),
    "pickled": (with_pickles, r"pickled weights \(pytorch_model\.bin\)"),
    "no tokenizer": (without_tokenizer, "has no tokenizer: save one there"),
    "tokenizer broken": (with_content("tokenizer.json", b"{"), "the tokenizer of .* cannot be lo"),
}
LOADING = (
    ("scan", "--text", "text", "--out", "out"),
    ("importance", "--text", "text"),
    ("prune", "--text", "text", "--cut", 6, "--out", "out", *SMALL),
    ("trace", "--text", "w8 w9", "--svg", "map.svg"),
    ("explore", "--no-open"),
)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_model_is_refused_by_every_command_with_the_reason(
    refused: Callable[..., str], llama: Path, here: Path, kind: str
) -> None:
    break_it, words = BROKEN[kind]
    break_it(Path(shutil.copytree(llama, here / "broken")))
    for command, *options in LOADING:
        said = refused(command, "./broken", *options)
        assert "broken " in said or "broken/" in said
        assert re.search(words, said), said
        assert "HF_HUB_OFFLINE" not in said  # no network would help
