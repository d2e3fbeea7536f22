"""Runs the command line in this process, and tells what it said."""

import sys
from dataclasses import dataclass

import pytest

from headwise import cli

TELLING = ("importance", "prune", "sweep")
"""Commands that say on standard error which stage they have come to, where it is no terminal."""


@dataclass(frozen=True)
class Ran:
    """What one run of `headwise` came to."""

    code: int
    out: str
    err: str


class Runner:
    """`headwise` with arguments, as a terminal 100 columns wide sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setenv("COLUMNS", "100")

    def __call__(self, *arguments: object) -> Ran:
        self.capsys.readouterr()
        self.monkeypatch.setattr(sys, "argv", ["headwise", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = self.capsys.readouterr()
        code = end.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    def refused(self, *arguments: object) -> str:
        """The one sentence that a mistake gets."""
        ran = self(*arguments)
        assert ran.code == 2, ran
        assert ran.out == ""
        *told, sentence = ran.err.splitlines(keepends=True)
        assert "Traceback" not in ran.err and sentence.endswith("\n"), ran.err
        assert not told or arguments[0] in TELLING, ran.err
        return sentence
