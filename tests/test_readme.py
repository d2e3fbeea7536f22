"""The README tells the truth: its code runs, its commands exist, and it is short."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwise.cli import app
from snippets import assert_prints_alike, blocks, each_scan_once, printed_by, snippets

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BLOCKS = blocks(README)
SNIPPETS = snippets(README)
LONGEST = 220
"""Lines."""


def transcripts(page: str) -> list[tuple[str, str]]:
    """Commands in console blocks, each with what it prints."""
    parts = [
        part.partition("\n")
        for language, text in blocks(page)
        if language == "console"
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    ]
    return [(command, output) for command, _, output in parts]


def printed_at(command: str) -> str:
    """The output of a headwise command in a terminal of 80 columns."""
    name, *arguments = shlex.split(command)
    with each_scan_once():
        ran = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
    assert (name, ran.exit_code) == ("headwise", 0)
    return "".join(f"{line.rstrip()}\n" for line in ran.stdout.splitlines())


TRANSCRIPTS = transcripts(README)
SCAN = "headwise scan | head -24"
"""The README shows the first lines of this command; docs/scan.md shows all of them."""
QUICK = [one for one in TRANSCRIPTS if "--out" not in one[0] and one[0] != SCAN]
"""Commands that print quickly; those that write a model are only checked to exist."""
COMMANDS = [command for command, _ in TRANSCRIPTS if "--out" in command] + [
    line.partition("#")[0].strip()
    for language, text in BLOCKS
    if language == "sh"
    for line in text.splitlines()
]


def test_the_readme_has_code_and_commands_to_check() -> None:
    assert [language for language, _ in BLOCKS].count("python") == len(SNIPPETS) > 0
    assert len(QUICK) == 1
    assert COMMANDS


@pytest.mark.parametrize(("snippet", "output"), SNIPPETS)
def test_a_snippet_prints_what_the_readme_shows(snippet: str, output: str) -> None:
    assert_prints_alike(printed_by(snippet), output)


@pytest.mark.parametrize(("command", "output"), QUICK)
def test_a_command_prints_what_the_readme_shows(command: str, output: str) -> None:
    assert_prints_alike(printed_at(command), output)


def test_the_scan_begins_as_on_its_own_page() -> None:
    page = (ROOT / "docs" / "scan.md").read_text("utf-8")  # whose output is compared there
    command, _, most = SCAN.partition(" | head -")
    whole = dict(transcripts(page))[command].splitlines()
    assert dict(TRANSCRIPTS)[SCAN].splitlines() == whole[: int(most)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_exists(command: str) -> None:
    name, *arguments = shlex.split(command)
    if name == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(arguments) <= set(targets)
    else:
        assert name == "headwise"
        assert CliRunner().invoke(app, [*arguments, "--help"]).exit_code == 0


def test_the_readme_is_short_enough_to_read() -> None:
    assert len(README.splitlines()) < LONGEST


def test_the_python_version_is_the_one_in_pyproject() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert set(re.findall(r"Python (3\.\d+)", README + makefile)) == {oldest}
    assert f"version_info < ({oldest.replace('.', ', ')})" in makefile


def test_every_runtime_dependency_is_named_with_its_purpose() -> None:
    table = README.split("## Dependencies")[1].split("##")[0]
    rows = re.findall(r"^\| ([\w-]+) \| \S", table, re.MULTILINE)
    dependencies = [re.split(r"[^\w.-]", line)[0] for line in PROJECT["dependencies"]]
    assert [name for name in rows if name not in ("package", "extra")] == dependencies
