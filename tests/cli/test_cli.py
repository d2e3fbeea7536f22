"""The command line: exit codes, and one sentence instead of a traceback."""

import subprocess
import sys
from pathlib import Path
from typing import Never

import pytest

from headwise import __version__, cli
from headwise.cli import doctor
from headwise.errors import MaskError
from headwise.watching import output_check

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
def test_version_is_printed_by_the_module_and_the_script(command: list[str]) -> None:
    ended = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout == f"headwise {__version__}\n"


def test_help_lists_every_command(headwise: Runner) -> None:
    ran = headwise("--help")
    assert ran.code == 0
    commands = "scan trace importance patch prune report plan sweep explore doctor".split()
    assert [command for command in commands if f" {command} " not in ran.out] == []


@pytest.mark.parametrize("wrong", [["docter"], ["--no-such-option"], ["doctor", "--jsn"]])
def test_unknown_command_or_option_exits_2_and_is_named(headwise: Runner, wrong: list[str]) -> None:
    ran = headwise(*wrong)
    assert (ran.code, ran.out) == (2, "")
    assert wrong[-1] in ran.err
    assert "Traceback" not in ran.err


def test_headwise_error_prints_one_sentence_and_exits_2(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(MaskError("a mask of 3 keys does not fit 5 keys"), monkeypatch)
    assert headwise("doctor") == Ran(2, "", "headwise: a mask of 3 keys does not fit 5 keys\n")


def test_skip_check_holds_for_the_command_that_follows(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[int]()

    def examine(*_: object) -> Never:
        seen.append(output_check._skips)
        raise MaskError("enough")

    monkeypatch.setattr(doctor, "examine", examine)
    assert headwise("--skip-check", "doctor").err == headwise("doctor").err
    assert seen == [1, 0] and output_check._skips == 0
    assert "--rows is 'some'" in headwise("--skip-check", "scan", "--rows", "some").err


def test_bug_in_headwise_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_with(AssertionError("impossible"), monkeypatch)
    monkeypatch.setattr(sys, "argv", ["headwise", "doctor"])
    with pytest.raises(AssertionError, match="impossible"):
        cli.run_cli()


@pytest.mark.parametrize(
    ("words", "can_resume"),
    [
        ("scan --out here", True),
        ("scan --out=here", True),
        ("scan --output=here", False),
        ("scan", False),
        ("prune --out=here", False),
        ("sweep", True),
        ("patch --out here", True),
        ("patch", False),
    ],
)
def test_ctrl_c_says_whether_the_command_can_resume(words: str, can_resume: bool) -> None:
    message = cli.stop_message(words.split())
    assert message.startswith("stopped") and ("again to continue" in message) == can_resume


def test_ctrl_c_exits_130(headwise: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert headwise("doctor") == Ran(130, "", "headwise: stopped\n")
