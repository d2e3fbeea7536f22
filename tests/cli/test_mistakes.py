"""A mistake in how a command is called is one sentence, as every other mistake is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwise import __main__, cli

from .running import Runner

MISTAKES = {
    "scna": "there is no command 'scna': did you mean 'scan'?",
    "xyzzy": "there is no command 'xyzzy': headwise --help says what it takes",
    "--verson": "headwise has no option --verson: did you mean --version?",
    "scan minilm smollm2": "headwise scan does not take smollm2: headwise scan --help says what",
    "scan --length x": "invalid value for '--length': give a whole number, not 'x'",
    "scan --length": "option '--length' requires an argument: headwise scan --help says what",
    "plan heads --length": "option '--length' requires an argument: headwise plan heads --help",
    "plan heads abc": "invalid value for 'width': give a whole number, not 'abc'",
    "plan compare": "missing argument 'models': headwise plan compare --help says what it takes",
    "sweep --task chess": "headwise sweep has no option --task: headwise sweep --help lists its",
    "sweep chess": "there is no task 'chess': the tasks are relations",
    "prune --keeep 0.7": "headwise prune has no option --keeep: did you mean --keep?",
    "trace --example dog": "invalid value for '--example': 'dog' is not one of 'cat-sleeps', 'dim"
    "ensions'",
    "scan --max-tokens 3": "--max-tokens is 3: give at least 4, 2 of text and the special tokens",
    "prune --cut -1 --dry-run": "--cut is -1: it counts heads, and cannot be below 0",
    "prune --cut 3 --dry-run --fit-tokens 3": "--fit-tokens is 3: it must be at least 64",
    "prune --heads L0H1 --dry-run --method fisher": "the heads are named: leave --method out",
    "plan heads 0": "d_model is 0: it must be from 1 to",
    "plan gpt2 --length 0": "--length is 0: it must be at least 1",
    "plan --d-model 8 --heads=0": "--heads is 0: it must be from 1 to",
    "plan length": "length is neither a known model",
    "sweep --seeds 0": "--seeds is 0: give from 1 to 10,000",
    "trace smollm2 --example cat-sleeps": "an example has a model and a text of its own: leave smo",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_command_that_cannot_be_read_gets_one_sentence(headwise: Runner, typed: str) -> None:
    assert headwise.refused(*typed.split()).startswith(f"headwise: {MISTAKES[typed]}")


@pytest.mark.parametrize("typed", ["", "plan"])
def test_a_command_alone_says_what_there_is(headwise: Runner, typed: str) -> None:
    ran = headwise(*typed.split())
    assert ran.code == 0 and ran.err == ""
    assert "Usage: headwise" in ran.out


@pytest.mark.parametrize("command", ["trace", "report"])
def test_a_sentence_in_another_encoding_is_refused(headwise: Runner, command: str) -> None:
    said = headwise.refused(command, "--text", os.fsdecode("caf\u00e9".encode("latin-1")))
    assert said == "headwise: --text is not UTF-8: character 4 is '\\udce9'\n"


def test_a_stop_while_the_command_is_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", stop)
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == cli.INTERRUPTED
    assert capsys.readouterr().err == "headwise: stopped\n"


@pytest.mark.parametrize("command", ["", "scan", "trace", "prune", "plan show", "sweep"])
def test_flags_take_no_value_in_the_help(headwise: Runner, command: str) -> None:
    out = headwise(*command.split(), "--help").out
    assert "--help" in out and "bool" not in out


def test_a_sentence_where_a_file_is_wanted_is_told_apart(headwise: Runner) -> None:
    said = headwise.refused("scan", "--text", "The cat sat down")
    assert (
        "--text is 'The cat sat down', and there is no file of that name: give a file, or -" in said
    )


def test_a_terminal_that_lacks_a_character_gets_another(tmp_path: Path) -> None:
    folder = tmp_path / "\u65e5[v2]"
    folder.mkdir()
    config = {"model_type": "bert", "hidden_size": 12, "num_attention_heads": 3}
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    command = [sys.executable, "-m", "headwise", "plan", folder.name]
    env = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"?[v2]: " in done.stdout


@pytest.mark.parametrize("command", ["trace", "report"])
def test_a_file_where_a_sentence_is_wanted_is_told_apart(
    headwise: Runner, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "book.txt"
    file.write_text("The cat sat down.", encoding="utf-8")
    said = headwise.refused(command, "--text", file)
    assert f"--text takes a sentence here, and {file} is a file: give the sentence itself" in said


def test_a_closed_standard_input_is_named(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    said = headwise.refused("scan", "--text", "-")
    assert said == "headwise: standard input is closed: give --text a file\n"
