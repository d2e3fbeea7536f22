"""Who may import whom, which folders there are, and how long a text may get."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/headwise"

# The map of the package: a line imports from itself and from the lines above it.
LINES = (
    "errors",
    "wording",
    "checks",
    "files",
    "hub",
    "drawing",
    "columns",
    "heads",
    "attention",
    "nn",
    "watching",
    "probes",
    "measures",
    "tracing",
    "pruning",
    "planning",
    "sweeps",
    "views",
    "explorer",
    "cli",
)
ALLOWED = {line: set(LINES[: place + 1]) for place, line in enumerate(LINES)}
ALLOWED["heads"] |= {"views", "explorer"}  # a table shows itself, and only when it is asked to
ALLOWED["cli"].add("")  # "" is headwise itself: the public names and the version
ALLOWED[""] = {"", *LINES}
ALLOWED["__main__"] = {"cli"}

FOLDERS = {"src", "tests", "benchmarks", "docs", "examples"}
BUILT = {"build", "dist"}
LONGEST_MODULE, LONGEST_FUNCTION = 500, 80

MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted(file for folder in FOLDERS - {"src"} for file in (ROOT / folder).rglob("*.py"))


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def line_of(module: str) -> str:
    """The line of the map that a module such as `headwise.attention.core` belongs to."""
    name = module.removeprefix("headwise").removeprefix(".").split(".")[0]
    return name if name in LINES or name == "__main__" else ""


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def imported_modules(tree: ast.Module, package: str) -> Iterator[str]:
    """Full names of every module of headwise that the text imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "headwise")


def forbidden_imports(text: str, module: str, *, is_package: bool = False) -> list[str]:
    package = module if is_package else module.rpartition(".")[0]
    imported = imported_modules(parsed(text), package)
    return sorted(name for name in imported if line_of(name) not in ALLOWED[line_of(module)])


def long_functions(text: str) -> list[str]:
    functions = (
        node
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    return [name for name, length in lengths.items() if length > LONGEST_FUNCTION]


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_a_module_imports_only_from_the_lines_above_it(file: Path) -> None:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    module = ".".join(parts[:-1] if is_package else parts)
    assert forbidden_imports(file.read_text("utf-8"), module, is_package=is_package) == []


@pytest.mark.parametrize(
    ("module", "text", "found"),
    [
        ("headwise.attention.core", "from headwise.nn import swap", ["headwise.nn.swap"]),
        ("headwise.attention.core", "from headwise import nn", ["headwise.nn"]),
        ("headwise.attention.core", "import headwise.cli.doctor", ["headwise.cli.doctor"]),
        ("headwise.attention.core", "from ..views import plots", ["headwise.views.plots"]),
        ("headwise.attention.core", "def f():\n  import headwise.nn", ["headwise.nn"]),
        ("headwise.attention.core", "from headwise import attend", ["headwise.attend"]),
        ("headwise.errors", "import headwise", ["headwise"]),
        ("headwise.attention.core", "from .rules import Rules", []),
        ("headwise.attention.core", "from headwise.errors import ShapeError", []),
        ("headwise.cli.doctor", "from headwise import attend, views", []),
        ("headwise.attention.core", "import headwiser, torch.nn", []),
    ],
)
def test_a_forbidden_import_is_found(module: str, text: str, found: list[str]) -> None:
    assert forbidden_imports(text, module) == found


@pytest.mark.parametrize("file", [*MODULES, *SCRIPTS], ids=name_of)
def test_no_text_is_too_long_to_read(file: Path) -> None:
    text = file.read_text("utf-8")
    assert len(text.splitlines()) <= LONGEST_MODULE
    assert long_functions(text) == []


def test_a_long_function_is_found() -> None:
    body = "\n    pass" * (LONGEST_FUNCTION - 1)
    assert long_functions(f"def just_fits():{body}") == []
    assert long_functions(f"class Any:\n def is_too_long():{body}\n    pass") == ["is_too_long"]


@pytest.mark.parametrize("file", [*MODULES, *SCRIPTS], ids=name_of)
def test_annotations_stay_alive_for_the_shape_checks(file: Path) -> None:
    imports = [n for n in parsed(file.read_text("utf-8")).body if isinstance(n, ast.ImportFrom)]
    assert "__future__" not in [node.module for node in imports]


def test_every_folder_is_on_the_map() -> None:
    def folders_in(folder: Path) -> set[str]:
        found = {path.name for path in folder.iterdir() if path.is_dir()}
        return {name for name in found if not name.startswith((".", "__pycache__"))}

    modules = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert folders_in(ROOT) - BUILT <= FOLDERS
    assert folders_in(PACKAGE) | modules <= set(LINES)
    assert folders_in(ROOT / "tests") <= folders_in(PACKAGE)
