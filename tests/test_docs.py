"""The documentation tells the truth: every snippet runs and prints the output shown below it."""

import importlib
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import headwise
from headwise.models import families
from snippets import assert_prints_alike, printed_by, snippets
from test_readme import printed_at, transcripts

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

CASES = [
    pytest.param(code, output, id=f"{page.name}-{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, (code, output) in enumerate(snippets(page.read_text("utf-8")))
]
COMMANDS = [
    pytest.param(command, output, id=f"{page.name}-{command}")
    for page in sorted(DOCS.glob("*.md"))
    for command, output in transcripts(page.read_text("utf-8"))
    if "--out" not in command
]
"""Commands that write a model take minutes and are only shown."""


def test_there_are_snippets_to_check() -> None:
    assert len(CASES) >= 5
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize(("command", "output"), COMMANDS)
def test_a_command_prints_what_the_page_shows(command: str, output: str) -> None:
    assert_prints_alike(printed_at(command), output)


def test_both_pages_show_the_same_prune_output() -> None:
    pages = (ROOT / "README.md", DOCS / "prune.md")
    shown = [dict(transcripts(page.read_text("utf-8"))) for page in pages]
    command = "headwise prune --keep 0.7 --out smaller"
    assert shown[0][command] == shown[1][command]


@pytest.fixture
def _facts_as_they_were() -> Iterator[None]:
    """Undo the changes of a page that adds a family."""
    rows = families.FAMILIES
    yield
    families.FAMILIES = rows


@pytest.mark.usefixtures("_facts_as_they_were")
@pytest.mark.parametrize(("code", "output"), CASES)
def test_a_snippet_prints_what_the_page_shows(code: str, output: str) -> None:
    assert_prints_alike(printed_by(code), output)


def test_every_python_block_is_followed_by_its_output() -> None:
    for page in DOCS.glob("*.md"):
        text = page.read_text("utf-8")
        assert text.count("```python") == len(snippets(text)), page.name


def test_generated_pages_are_up_to_date() -> None:
    pages = runpy.run_path(str(DOCS / "generate.py"))["pages"]()
    stale = [path.name for path, text in pages.items() if path.read_text("utf-8") != text]
    assert stale == [], "run python docs/generate.py"


def test_every_public_name_is_in_the_reference_once() -> None:
    shown = re.findall(r"^::: headwise\.(\S+)$", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE)
    names = [name.partition(".")[0] for name in shown]
    assert len(set(shown)) == len(shown)
    assert set(names) == set(headwise.__all__) - {"__version__"}


def test_every_page_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]

    def leaves(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        inner = node.values() if isinstance(node, dict) else node
        return [leaf for one in inner for leaf in leaves(one)]  # type: ignore[attr-defined]

    assert sorted(leaves(nav)) == sorted(page.name for page in DOCS.glob("*.md"))


def test_every_page_says_what_it_is_about_first() -> None:
    for page in DOCS.glob("*.md"):
        assert page.read_text("utf-8").startswith(("# ", '--8<-- "')), page.name


PAGES = {page.name: page.read_text("utf-8") for page in [ROOT / "README.md", *DOCS.glob("*.md")]}
MENTIONS = {
    (name, mention)
    for name, text in PAGES.items()
    for mention in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
}


EXPORTED = {("prune.md", "modeling_headwise.py")}
"""Files that headwise writes, not files of this repository."""


def mentioned_files() -> list[tuple[str, str]]:
    """Paths of Python files and of folders of the source that a page names in backticks."""
    return sorted(
        (page, mention)
        for page, mention in MENTIONS
        if re.fullmatch(
            r"[\w./]+\.(?:py|js)|(?:src|tests|docs|benchmarks|examples)/[\w./]*", mention
        )
    )


def mentioned_names() -> list[tuple[str, str]]:
    """Dotted names of headwise that a page names in backticks, without arguments."""
    return sorted(
        (page, match[1])
        for page, mention in MENTIONS
        if (match := re.match(r"(headwise(?:\.\w+)+)", mention)) and not mention.endswith(".html")
    )


def test_every_file_that_a_page_names_exists() -> None:
    homes = (ROOT, ROOT / "src" / "headwise", ROOT / "src" / "headwise" / "explorer" / "static")
    names = mentioned_files()
    assert len(names) > 20
    lost = [
        (page, name)
        for page, name in names
        if (page, name) not in EXPORTED
        and page != "architecture.md"
        and not any((home / name).exists() for home in homes)
    ]
    assert lost == []


def test_every_name_of_headwise_that_a_page_names_exists() -> None:
    names = mentioned_names()
    assert len(names) > 20
    assert [(page, name) for page, name in names if not resolves(name)] == []


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute reached from the package."""
    value: object = headwise
    for part in name.split(".")[1:]:
        fields = getattr(value, "__dataclass_fields__", {})
        if part in fields:
            return True
        if not hasattr(value, part):
            try:
                value = importlib.import_module(f"{value.__name__}.{part}")  # type: ignore[attr-defined]
            except (AttributeError, ImportError):
                return False
            continue
        value = getattr(value, part)
    return True


IMPORTS = re.compile(r"^\s*(?:from|import) (headwise[\w.]*)", re.MULTILINE)


def test_docs_and_examples_import_only_public_modules() -> None:
    texts = {
        f"{name}": "\n".join(code for code, _ in snippets(text)) for name, text in PAGES.items()
    }
    examples = [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.ipynb")]
    for example in examples:
        text = example.read_text("utf-8")
        if example.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n".join(
                "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
            )
        texts[example.name] = text
    private = {
        (name, module)
        for name, text in texts.items()
        for module in IMPORTS.findall(text)
        if module not in ("headwise", "headwise.nn")
    }
    assert private == set()
