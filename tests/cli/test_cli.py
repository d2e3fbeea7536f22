"""The command line: exit codes, and sentences instead of tracebacks."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwise import __version__, cli
from headwise.cli import doctor
from headwise.errors import MaskError


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Run `headwise` with the arguments in this process; the exit code."""
    monkeypatch.setattr(sys, "argv", ["headwise", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def examine() -> None:
        raise error

    monkeypatch.setattr(doctor, "examine", examine)


@pytest.mark.parametrize(
    "command",
    [[sys.executable, "-m", "headwise"], [str(Path(sys.executable).with_name("headwise"))]],
    ids=["module", "script"],
)
def test_the_version_is_printed_however_headwise_is_started(command: list[str]) -> None:
    ended = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout == f"headwise {__version__}\n"


def test_the_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, "--help") == 0
    assert "doctor" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [["docter"], ["--no-such-option"], ["doctor", "--jsn"]])
def test_a_wrong_command_or_option_exits_2_and_is_named(
    wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(monkeypatch, *wrong) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert wrong[-1] in err
    assert "Traceback" not in err


def test_a_users_mistake_is_one_sentence_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(MaskError("a mask of 3 keys does not fit 5 keys"), monkeypatch)
    assert run_main(monkeypatch, "doctor") == 2
    assert capsys.readouterr() == ("", "headwise: a mask of 3 keys does not fit 5 keys\n")


def test_a_bug_of_ours_is_not_passed_off_as_a_users_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(AssertionError("impossible"), monkeypatch)
    monkeypatch.setattr(sys, "argv", ["headwise", "doctor"])
    with pytest.raises(AssertionError, match="impossible"):
        cli.main()


def test_an_interrupt_exits_130_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert run_main(monkeypatch, "doctor") == 130
    assert capsys.readouterr() == ("", "")
