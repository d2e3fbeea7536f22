"""The command line: exit codes, and sentences instead of tracebacks."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwise import __version__, cli
from headwise.cli import doctor
from headwise.errors import MaskError

from .running import Ran, Runner


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


def test_the_help_lists_the_commands(headwise: Runner) -> None:
    ran = headwise("--help")
    assert ran.code == 0
    for command in ("scan", "trace", "plan", "doctor"):
        assert command in ran.out


@pytest.mark.parametrize("wrong", [["docter"], ["--no-such-option"], ["doctor", "--jsn"]])
def test_a_wrong_command_or_option_exits_2_and_is_named(headwise: Runner, wrong: list[str]) -> None:
    ran = headwise(*wrong)
    assert (ran.code, ran.out) == (2, "")
    assert wrong[-1] in ran.err
    assert "Traceback" not in ran.err


def test_a_users_mistake_is_one_sentence_and_exit_2(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(MaskError("a mask of 3 keys does not fit 5 keys"), monkeypatch)
    assert headwise("doctor") == Ran(2, "", "headwise: a mask of 3 keys does not fit 5 keys\n")


def test_a_bug_of_ours_is_not_passed_off_as_a_users_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(AssertionError("impossible"), monkeypatch)
    monkeypatch.setattr(sys, "argv", ["headwise", "doctor"])
    with pytest.raises(AssertionError, match="impossible"):
        cli.main()


@pytest.mark.parametrize(
    ("words", "can_resume"),
    [
        ("scan --out here", True),
        ("scan --out=here", True),
        ("scan --output=here", False),
        ("scan", False),
        ("prune --out=here", False),
        ("sweep", True),
    ],
)
def test_ctrl_c_says_whether_the_command_can_resume(words: str, can_resume: bool) -> None:
    message = cli.stop_message(words.split())
    assert message.startswith("stopped") and ("again to continue" in message) == can_resume


def test_an_interrupt_exits_130_with_a_word(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert headwise("doctor") == Ran(130, "", "headwise: stopped\n")
