"""The README tells the truth: its code runs, its commands exist, its map is the tree."""

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
    """What a headwise command prints in a terminal of 80 columns."""
    name, *arguments = shlex.split(command)
    with each_scan_once():
        ran = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments)
    assert (name, ran.exit_code) == ("headwise", 0)
    return "".join(f"{line.rstrip()}\n" for line in ran.stdout.splitlines())


TRANSCRIPTS = transcripts(README)
SCAN = "headwise scan | head -14"
"""Whose beginning is shown here, and the whole on the page about scans."""
QUICK = [one for one in TRANSCRIPTS if "--out" not in one[0] and one[0] != SCAN]
"""Those that write a model take minutes: they are only held to exist."""
COMMANDS = [command for command, _ in TRANSCRIPTS if "--out" in command] + [
    line.partition("#")[0].strip()
    for language, text in BLOCKS
    if language == "sh"
    for line in text.splitlines()
]


def paths_on(file_map: str) -> set[str]:
    """Every path that an indented map names; what ends in a slash is a folder."""
    above: list[str] = []
    paths = set()
    for line in file_map.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [line.split()[0]]
        paths.add("".join(above))
    return paths


def file_maps() -> tuple[str, str]:
    """The map of folders, and that of every module."""
    section = README.split("## Where everything is")[1]
    return section.split("```")[1].strip("\n"), section.split("```")[3].strip("\n")


def test_the_readme_has_code_and_commands_to_check() -> None:
    assert [language for language, _ in BLOCKS].count("python") == len(SNIPPETS) > 0
    assert len(QUICK) == 2
    assert COMMANDS


@pytest.mark.parametrize(("snippet", "output"), SNIPPETS)
def test_a_snippet_prints_what_the_readme_shows(snippet: str, output: str) -> None:
    assert_prints_alike(printed_by(snippet), output)


@pytest.mark.parametrize(("command", "output"), QUICK)
def test_a_command_prints_what_the_readme_shows(command: str, output: str) -> None:
    assert_prints_alike(printed_at(command), output)


def test_the_scan_begins_as_on_its_own_page() -> None:
    page = (ROOT / "docs" / "scan.md").read_text("utf-8")  # which is held to what is printed
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


def test_the_file_maps_are_the_tree() -> None:
    folders, modules = map(paths_on, file_maps())
    assert {path for path in folders | modules if not (ROOT / path).exists()} == set()
    source = ROOT / "src" / "headwise"
    there = {file for file in source.rglob("*.py") if file.name != "__init__.py"}
    assert {str(file.relative_to(ROOT)) for file in there} - modules == set()
    packages = {file.parent for file in source.glob("*/__init__.py")}
    assert {f"{package.relative_to(ROOT)}/" for package in packages} - folders == set()


def test_a_map_is_read_by_its_indentation() -> None:
    text = "src/\n  one/   words\n    two.py  more words\n  three.py\ntests/"
    assert paths_on(text) == {"src/", "src/one/", "src/one/two.py", "src/three.py", "tests/"}


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
