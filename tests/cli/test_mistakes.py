"""A wrong call gets one sentence that names the option, the value and what would work."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwise import __main__, cli
from headwise.errors import OptionError

from .running import Runner

MISTAKES = {
    "scna": ["'scna'", "did you mean 'scan'?"],
    "xyzzy": ["'xyzzy'", "headwise --help"],
    "--verson": ["--verson", "did you mean --version?"],
    "scan minilm smollm2": ["headwise scan", "does not take smollm2", "headwise scan --help"],
    "scan --length x": ["'--length'", "a whole number, not 'x'"],
    "scan --length": ["'--length'", "requires an argument", "headwise scan --help"],
    "plan heads --length": ["'--length'", "requires an argument", "headwise plan heads --help"],
    "plan heads abc": ["'width'", "a whole number, not 'abc'"],
    "plan compare": ["missing argument 'models'", "headwise plan compare --help"],
    "sweep --task chess": ["headwise sweep has no option --task", "headwise sweep --help"],
    "sweep chess": ["'chess'", "relations"],
    "prune --keeep 0.7": ["headwise prune", "--keeep", "did you mean --keep?"],
    "trace --example dog": ["'--example'", "'dog' is not one of 'cat-sleeps', 'dimensions'"],
    "prune --heads L0H1 --dry-run --method fisher": ["heads", "--method"],
    "plan heads 0": ["headwise: d_model is 0: ", "from 1 to"],
    "plan length": ["length is not a known model"],
    "trace smollm2 --example cat-sleeps": ["example", "smollm2"],
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_wrong_call_gets_one_sentence_with_the_facts(headwise: Runner, typed: str) -> None:
    sentence = headwise.refused(*typed.split())
    assert sentence.startswith("headwise: ")
    assert [fact for fact in MISTAKES[typed] if fact not in sentence] == []


@pytest.mark.parametrize(
    ("typed", "opening"),
    [
        ("scan --max-tokens 3", "--max-tokens is 3: "),
        ("scan --rows 0", "--rows is 0: "),
        ("prune --cut -1 --dry-run", "--cut is -1: "),
        ("prune --keep 1.5 --dry-run", "--keep is 1.5: "),
        ("prune --cut 3 --dry-run --fit-tokens 3", "--fit-tokens is 3: "),
        ("plan gpt2 --length 0", "--length is 0: "),
        ("plan --d-model 8 --heads=0", "--heads is 0: "),
        ("sweep --seeds 0", "--seeds is 0: "),
        ("sweep --steps 1", "--steps is 1: "),
        ("trace --dtype float7", "--dtype is 'float7': "),
    ],
)
def test_errors_of_the_library_open_with_the_option(
    headwise: Runner, typed: str, opening: str
) -> None:
    assert headwise.refused(*typed.split()).startswith(f"headwise: {opening}")


def test_option_message_changes_only_the_options_that_were_given() -> None:
    _, command = cli._find_command(["plan", "show"])
    error = OptionError("num_heads is 0: give 1", option="num_heads")
    assert cli.option_message(error, command, ["--heads=0"]) == "--heads is 0: give 1"
    assert cli.option_message(error, command, ["0/4"]) == "num_heads is 0: give 1"
    about_two = OptionError("4 heads do not fit", option="num_heads")
    assert cli.option_message(about_two, command, ["--heads", "4"]) == "4 heads do not fit"
    unnamed = OptionError("heads is 0")
    assert cli.option_message(unnamed, command, ["--heads", "0"]) == "heads is 0"


@pytest.mark.parametrize("typed", ["", "plan"])
def test_command_without_arguments_prints_help(headwise: Runner, typed: str) -> None:
    ran = headwise(*typed.split())
    assert ran.code == 0 and ran.err == ""
    assert "Usage: headwise" in ran.out


@pytest.mark.parametrize("command", ["trace", "report"])
def test_sentence_that_is_not_utf8_is_rejected(headwise: Runner, command: str) -> None:
    error = headwise.refused(command, "--text", os.fsdecode("caf\u00e9".encode("latin-1")))
    assert "--text is not UTF-8: character 4 is '\\udce9'" in error


def test_ctrl_c_while_headwise_is_loading_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_cli", stop)
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == cli.INTERRUPTED
    assert capsys.readouterr().err == "headwise: stopped\n"


@pytest.mark.parametrize("command", ["", "scan", "trace", "prune", "plan show", "sweep"])
def test_help_shows_flags_without_a_type(headwise: Runner, command: str) -> None:
    out = headwise(*command.split(), "--help").out
    assert "--help" in out and "bool" not in out


def test_scan_rejects_a_sentence_in_place_of_a_file(headwise: Runner) -> None:
    error = headwise.refused("scan", "--text", "The cat sat down")
    assert "--text is 'The cat sat down'" in error and "file" in error


def test_characters_that_the_terminal_lacks_are_replaced(tmp_path: Path) -> None:
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
def test_commands_that_read_a_sentence_reject_a_file(
    headwise: Runner, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "book.txt"
    file.write_text("The cat sat down.", encoding="utf-8")
    error = headwise.refused(command, "--text", file)
    assert f"{file} is a file" in error and "--text" in error and "sentence" in error


def test_scan_reports_a_closed_standard_input(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    error = headwise.refused("scan", "--text", "-")
    assert "standard input is closed" in error and "--text" in error
