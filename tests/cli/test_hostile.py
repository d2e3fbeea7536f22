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
    """The working directory, with one text; commands must leave nothing else in it."""
    write_text(tmp_path / "text")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(str(argument.relative_to(folder)) for argument in folder.rglob("*"))


@pytest.fixture
def refused(headwise: Runner, here: Path) -> Callable[..., str]:
    """Runs a command that must fail and leave the folder unchanged; returns its error."""

    def run(*arguments: object) -> str:
        before = names_in(here)
        said = headwise.refused(*arguments)
        assert said.startswith("headwise: ")
        assert names_in(here) == before
        return said

    return run


# Files that are not a text, a treebank or a plan.

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
    "compare": ("compare", "MODEL", "MODEL", "--text", "FILE", "--out", "out"),
    "prune": ("prune", "MODEL", "--text", "FILE", "--cut", 6, "--out", "out", *SMALL),
    "plan of a cut": ("prune", "MODEL", "--plan", "FILE", "--out", "out", *SMALL),
    "sweep": ("sweep", "characters", "--set", "text=FILE", "--out", "out"),
    "report": ("report", "FILE"),
    "model": ("scan", "FILE"),
    "plan": ("plan", "FILE"),
}
FACTS = {
    ("scan", "empty"): "FILE ",
    ("treebank", "empty"): "FILE ",
    ("importance", "blank"): "FILE ",
    ("compare", "blank"): "FILE ",
    ("prune", "empty"): "FILE ",
    ("plan of a cut", "empty"): "FILE names no head",
    ("sweep", "empty"): "FILE has 0 characters",
    ("sweep", "blank"): "FILE has 5 characters",
    **{(name, "noise"): f"FILE {NOT_UTF8}" for name in ("scan", "treebank", "importance")},
    ("prune", "noise"): f"FILE {NOT_UTF8} text: invalid continuation byte at byte 0",
    ("sweep", "noise"): f"FILE {NOT_UTF8} text",
    ("plan of a cut", "noise"): f"FILE {NOT_UTF8} text",
    ("scan", "latin"): f"FILE {NOT_UTF8} text: invalid start byte at byte 6",
    ("plan of a cut", "latin"): f"FILE {NOT_UTF8} text: invalid start byte at byte 6",
    ("scan", "wide"): f"FILE {NOT_UTF8} text: invalid start byte at byte 0",
    ("report", "noise"): "FILE is a file",
    ("model", "noise"): "FILE is a file",
    ("plan", "empty"): "FILE cannot be read as JSON",
    ("plan", "noise"): "FILE cannot be read as JSON",
}


@pytest.mark.parametrize(("command", "kind"), FACTS)
def test_file_of_the_wrong_kind_is_named(
    refused: Callable[..., str], llama: Path, here: Path, command: str, kind: str
) -> None:
    (here / kind).write_bytes(NO_TEXT[kind])
    places = {"MODEL": str(llama), "FILE": kind, "text=FILE": f"text={kind}"}
    error = refused(*(places.get(str(argument), argument) for argument in READ[command]))
    assert FACTS[command, kind].replace("FILE", kind) in error


def test_failed_command_does_not_block_the_next_one(
    headwise: Runner, refused: Callable[..., str], llama: Path, here: Path
) -> None:
    (here / "short").write_bytes(b"w8")
    arguments = ("scan", llama, "--max-tokens", 60, "--out", "out", "--text")
    assert "too little text" in refused(*arguments, "short")
    ran = headwise(*arguments, "text")
    assert (ran.code, ran.err) == (0, "")


def test_nul_is_an_ordinary_character(headwise: Runner, llama: Path, here: Path) -> None:
    (here / "nul").write_bytes(b"w8 w9\0w10 w11 " * 200)
    assert headwise("scan", llama, "--text", "nul", "--max-tokens", 60).code == 0
    ran = headwise("sweep", "characters", "--set", "text=nul", *TINY, "--out", "out", "--json")
    assert ran.code == 0, ran.err


# One line of 50 MB.


@pytest.fixture
def line(here: Path) -> Iterator[str]:
    """A line of 50 MB of words, freed after the test."""
    words = "w8 w9 w10 w21 w33 w7. "
    (here / "line").write_text(words * (50 * 2**20 // len(words)), encoding="utf-8")
    yield "line"
    (here / "line").unlink()


class Counted:
    """A tokenizer that counts how many characters it reads."""

    def __init__(self, call: Callable[..., object]) -> None:
        self.call, self.longest = call, 0

    def __call__(self, tokenizer: object, text: str, *more: object, **options: object) -> object:
        self.longest = max(self.longest, len(text))
        return self.call(tokenizer, text, *more, **options)


def test_only_the_needed_part_of_a_50_mb_line_is_tokenized(
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
    assert "a text of 1 paragraph cannot be divided into 4 parts" in pruned
    assert 100 < counted.longest < 10_000
    (here / "start").write_text((here / line).open().read(500).rpartition(" ")[0], encoding="utf-8")
    started = headwise("scan", llama, "--text", "start", "--max-tokens", 60, "--json")
    assert json.loads(scanned.out)["heads"] == json.loads(started.out)["heads"]


@pytest.mark.slow
def test_sweep_learns_characters_of_a_50_mb_line(headwise: Runner, line: str) -> None:
    ran = headwise("sweep", "characters", "--set", f"text={line}", *TINY, "--out", "out", "--json")
    assert json.loads(ran.out)["summary"][0]["accuracy"] > 0


def test_sentence_beyond_the_models_limit_raises(
    headwise: Runner, refused: Callable[..., str], llama: Path, here: Path
) -> None:
    assert "61 tokens" in refused("trace", llama, "--text", "w8 " * 20_000, "--svg", "map.svg")
    assert headwise("scan", llama, "--text", "text", "--out", "scan").code == 0
    give_role(here / "scan" / "heads.parquet", "L1H2", "sink")
    assert "20000 tokens" in refused("report", "scan", "--text", "w8 " * 20_000)


# Heads that the model does not have.


@pytest.mark.parametrize(
    ("head", "facts", "trace_facts"),
    [
        ("L99H0", "L99H0", "layer is 99"),
        ("L0H9999", "L0H9999", "9999"),
        ("encoder.L0H0", "encoder.L0H0", "'encoder'"),
        ("H3", "'H3' is not a head", "--heads is 'H3'"),
        ("3.10", "'3.10' is not a head", "--heads is '3.10'"),
        ("L0H-1", "'L0H-1' is not a head", "'L0H-1' is not a head"),
        ("", "names no head", "--heads is ''"),
        (" , ", "names no head", "--heads is ' , '"),
    ],
)
def test_unknown_head_is_named(
    refused: Callable[..., str], llama: Path, here: Path, head: str, facts: str, trace_facts: str
) -> None:
    (here / "plan.txt").write_text(f"# cut\n{head}  # least needed\n", encoding="utf-8")
    common = ("prune", llama, "--text", "text", "--out", "out", *SMALL)
    assert facts in refused(*common, "--heads", head)
    assert facts in refused(*common, "--plan", "plan.txt")
    tracing = ("trace", llama, "--text", "w8 w9", "--heads", head, "--svg", "map.svg")
    assert trace_facts in refused(*tracing)


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ('{"format": "headwise cut plan 1"}', "'heads'"),
        ('{"heads": []}', "'headwise cut plan 1'"),
        ('{"format": "headwise cut plan 9"}', "'headwise cut plan 9'"),
        ('{"format": "headwise cut plan 1", "heads": 3}', "cut plan"),
        ('{"format', "Unterminated string"),
        ("[1]", "'[1]' is not a head"),
    ],
)
def test_invalid_plan_file_raises(
    refused: Callable[..., str], llama: Path, here: Path, content: str, facts: str
) -> None:
    (here / "plan.json").write_text(content, encoding="utf-8")
    error = refused("prune", llama, "--text", "text", "--plan", "plan.json", "--out", "out", *SMALL)
    assert "plan.json" in error and facts in error


# Broken models.


def with_config(**more: object) -> Callable[[Path], None]:
    """Changes values in config.json; None removes a key."""

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
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "nan": (with_nan, r"layers\.1\.self_attn\.k_proj\.weight .*2 NaN .*672"),
    "weights cut short": (cut_short, "safetensors.*incomplete metadata"),
    "weights empty": (with_content("model.safetensors", b""), "safetensors.*header too small"),
    "weights of text": (with_content("model.safetensors", LFS), "safetensors.*header too large"),
    "config broken": (with_content("config.json", b"{"), r"config\.json .*JSON"),
    "config a list": (with_content("config.json", b"[]"), r"config\.json .*JSON object"),
    "heads that share unevenly": (
        with_config(num_attention_heads=5, head_dim=None),
        r"The hidden size \(42\) is not a multiple of the number of attention heads \(5\)",
    ),
    "other heads than the weights": (
        with_config(num_attention_heads=14),
        r"layers\.0\.self_attn\.o_proj\.weight .*\[42, 48\].*\[42, 112\]",
    ),
    "no heads": (with_config(num_attention_heads=0), r"config\.json"),
    "heads in words": (with_config(num_attention_heads="six"), "expected int, got str.*'six'"),
    "more layers": (with_config(num_hidden_layers=5), "18 "),
    "unknown family": (with_config(model_type="perceptron9"), "model type `perceptron9`"),
    "no family": (with_config(model_type=None), "Should have a `model_type` key"),
    "pickled": (with_pickles, r"pickled weights \(pytorch_model\.bin\)"),
    "no tokenizer": (without_tokenizer, "no tokenizer"),
    "tokenizer broken": (with_content("tokenizer.json", b"{"), "tokenizer of "),
}
LOADING = (
    ("scan", "--text", "text", "--out", "out"),
    ("importance", "--text", "text"),
    ("prune", "--text", "text", "--cut", 6, "--out", "out", *SMALL),
    ("trace", "--text", "w8 w9", "--svg", "map.svg"),
    ("explore", "--no-open"),
)


@pytest.mark.parametrize("kind", BROKEN)
def test_every_command_reports_why_a_model_is_broken(
    refused: Callable[..., str], llama: Path, here: Path, kind: str
) -> None:
    break_it, facts = BROKEN[kind]
    break_it(Path(shutil.copytree(llama, here / "broken")))
    for command, *options in LOADING:
        error = refused(command, "./broken", *options)
        assert "broken " in error or "broken/" in error
        assert re.search(facts, error), error
        assert "HF_HUB_OFFLINE" not in error  # a network would not help
