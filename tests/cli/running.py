"""Runs the command line in this process and captures its output."""

import sys
from dataclasses import dataclass

import pytest

from headwise import cli

TELLING = ("importance", "patch", "prune", "compare", "sweep")
"""Commands that print their stages on stderr if it is not a terminal."""


@dataclass(frozen=True)
class Ran:
    """Result of one run of `headwise`."""

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
            cli.run_cli()
        out, err = self.capsys.readouterr()
        code = end.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    def refused(self, *arguments: object) -> str:
        """The error sentence of a command that must fail."""
        ran = self(*arguments)
        assert ran.code == 2, ran
        assert ran.out == ""
        *stages, sentence = ran.err.splitlines(keepends=True)
        assert "Traceback" not in ran.err and sentence.endswith("\n"), ran.err
        assert not stages or arguments[0] in TELLING, ran.err
        return sentence
