"""Rules of the source tree: which folders import which, unique names, and readable sizes."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/headwise"

EVERYWHERE = {"errors", "checks", "formats", "files", "progress"}
"""Small modules that every part of the package may import."""

MAY_IMPORT = {
    **{name: set[str]() for name in EVERYWHERE},
    "files": {"errors"},
    "checks": {"errors"},
    "hub": set(),
    "roles": set(),
    "run_folder": set(),
    "table_files": set(),
    "drawing": set(),
    "heads": set(),
    "head_table": {"heads", "drawing", "roles", "table_files"},
    "attention": set(),
    "nn": {"attention"},
    "reading": set(),
    "models": {"reading", "hub"},
    "watching": {"attention", "heads", "models", "reading"},
    "probes": {"reading"},
    "measures": {"attention", "reading", "watching"},
    "scans": {
        *("head_table", "heads", "roles", "table_files", "reading", "models", "watching", "probes"),
        *("measures", "run_folder"),
    },
    "tracing": {"attention", "heads", "drawing", "reading", "models", "watching"},
    "objectives": {"heads", "reading", "models", "watching"},
    "pruning": {
        *(
            "attention",
            "head_table",
            "heads",
            "drawing",
            "reading",
            "models",
            "watching",
            "measures",
            "objectives",
        ),
    },
    "comparing": {"reading", "models", "watching", "objectives", "pruning"},
    "patching": {
        *(
            "attention",
            "heads",
            "head_table",
            "drawing",
            "reading",
            "models",
            "watching",
            "objectives",
        ),
        "run_folder",
    },
    "planning": {"hub"},
    "sweeps": {
        *("attention", "drawing", "reading", "watching", "measures", "scans", "planning"),
        "run_folder",
    },
    "views": {
        *(
            "head_table",
            "heads",
            "roles",
            "drawing",
            "probes",
            "scans",
            "tracing",
            "pruning",
            "comparing",
            "patching",
            "planning",
        ),
        "sweeps",
    },
    "report": {
        *(
            "head_table",
            "views",
            "heads",
            "roles",
            "drawing",
            "reading",
            "models",
            "scans",
            "tracing",
            "comparing",
            "patching",
        ),
        "pruning",
    },
}
PARTS = {*MAY_IMPORT, "explorer", "cli"}
MAY_IMPORT["explorer"] = PARTS - {"report", "cli"}
MAY_IMPORT["cli"] = {*PARTS, ""}  # "" is headwise itself: the public names and the version
MAY_IMPORT[""] = {"", *PARTS}
MAY_IMPORT["__main__"] = {"cli", "errors"}

IN_FUNCTIONS_ONLY = {"head_table": {"views", "explorer"}, "tracing": {"views"}}
"""Tables and traces show themselves: the only imports from above, inside functions."""

LONGEST_MODULE, LONGEST_FUNCTION = 500, 80
MODULES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted(
    file
    for folder in ("tests", "benchmarks", "docs", "examples")
    for file in (ROOT / folder).rglob("*.py")
)


@functools.cache
def parse(text: str) -> ast.Module:
    return ast.parse(text)


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The folder or root module that a module such as `headwise.attention.attend` belongs to."""
    name = module.removeprefix("headwise").removeprefix(".").split(".")[0]
    return name if name in PARTS or name == "__main__" else ""


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Full names of everything imported from headwise, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "headwise")


def forbidden_imports(text: str, module: str, *, is_package: bool = False) -> list[str]:
    package = module if is_package else module.rpartition(".")[0]
    part, tree = part_of(module), parse(text)
    allowed = MAY_IMPORT[part] | EVERYWHERE | {part}
    inside = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for name in imports(node, package)
        if part_of(name) in IN_FUNCTIONS_ONLY.get(part, set())
    }
    return sorted(
        set(name for name in imports(tree, package) if part_of(name) not in allowed) - inside
    )


def test_modules_import_only_what_their_folder_may() -> None:
    found = {
        module_name(file): forbidden_imports(
            file.read_text("utf-8"), module_name(file), is_package=file.stem == "__init__"
        )
        for file in MODULES
    }
    assert {module: names for module, names in found.items() if names} == {}


def test_the_steps_of_pruning_import_only_the_steps_they_build_on() -> None:
    steps = {"importance", "selection", "surgery", "refit", "export"}
    builds_on = {
        "selection": {"importance"},
        "refit": {"importance", "surgery"},
        "export": {"surgery"},
    }
    forbidden = [
        (module_name(file), name)
        for file in MODULES
        if file.parent.parent == PACKAGE / "pruning"
        for name in imports(parse(file.read_text("utf-8")), module_name(file.parent))
        if name.startswith("headwise.pruning.")
        and name.split(".")[2]
        in steps - {file.parent.name} - builds_on.get(file.parent.name, set())
    ]
    assert forbidden == []


@pytest.mark.parametrize(
    ("module", "text", "found"),
    [
        ("headwise.attention.attend", "from headwise.nn import swap", ["headwise.nn.swap"]),
        ("headwise.attention.attend", "from headwise import nn", ["headwise.nn"]),
        ("headwise.attention.attend", "import headwise.cli.doctor", ["headwise.cli.doctor"]),
        ("headwise.attention.attend", "from ..views import plots", ["headwise.views.plots"]),
        ("headwise.attention.attend", "def f():\n  import headwise.nn", ["headwise.nn"]),
        ("headwise.attention.attend", "from headwise import attend", ["headwise.attend"]),
        ("headwise.head_table", "from headwise.views import heads", ["headwise.views.heads"]),
        ("headwise.head_table", "def f():\n  from headwise.views import heads", []),
        ("headwise.errors", "import headwise", ["headwise"]),
        ("headwise.attention.attend", "from .rules import Rules", []),
        ("headwise.attention.attend", "from headwise.errors import ShapeError", []),
        ("headwise.cli.doctor", "from headwise import attend, views", []),
        ("headwise.attention.attend", "import headwiser, torch.nn", []),
    ],
)
def test_forbidden_imports_are_found(module: str, text: str, found: list[str]) -> None:
    assert forbidden_imports(text, module) == found


def repeated_names(texts: dict[str, str]) -> dict[str, list[str]]:
    """Names of classes, and of public functions outside classes, that several modules define."""
    homes: dict[str, list[str]] = {}
    for module, text in texts.items():
        for node in parse(text).body:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(node, ast.ClassDef) or (is_function and not node.name.startswith("_")):
                homes.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_no_class_or_public_function_shares_its_name() -> None:
    texts = {module_name(file): file.read_text("utf-8") for file in MODULES}
    assert repeated_names(texts) == {}


def test_repeated_names_are_found() -> None:
    texts = {
        "one": "class A: pass\ndef f(): pass\ndef _g(): pass",
        "two": "class A: pass\ndef _g(): pass",
    }
    assert repeated_names(texts) == {"A": ["one", "two"]}


def long_functions(text: str) -> list[str]:
    functions = (
        node
        for node in ast.walk(parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    return [name for name, length in lengths.items() if length > LONGEST_FUNCTION]


def test_modules_and_functions_are_short_enough_to_read() -> None:
    texts = {file: file.read_text("utf-8") for file in [*MODULES, *SCRIPTS]}
    assert [file for file, text in texts.items() if len(text.splitlines()) > LONGEST_MODULE] == []
    assert {
        file: long_functions(text) for file, text in texts.items() if long_functions(text)
    } == {}


def test_long_functions_are_found() -> None:
    body = "\n    pass" * (LONGEST_FUNCTION - 1)
    assert long_functions(f"def just_fits():{body}") == []
    assert long_functions(f"class Any:\n def is_too_long():{body}\n    pass") == ["is_too_long"]


def test_annotations_stay_alive_for_the_shape_checks() -> None:
    with_future = [
        file
        for file in [*MODULES, *SCRIPTS]
        for node in parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    assert with_future == []


def folders_in(folder: Path) -> set[str]:
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    return {name for name in names if not name.startswith((".", "__pycache__"))}


def test_every_folder_is_on_the_map() -> None:
    modules = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert folders_in(ROOT) - {"build", "dist"} <= {
        "src",
        "tests",
        "benchmarks",
        "docs",
        "examples",
    }
    assert folders_in(PACKAGE) | modules <= PARTS
    assert folders_in(ROOT / "tests") <= folders_in(PACKAGE)
