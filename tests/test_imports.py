"""`import headwise` and `headwise --help` load no heavy packages."""

import json
import subprocess
import sys

HEAVY = ("torch", "numpy", "transformers", "plotly", "starlette", "uvicorn", "jaxtyping")
SHOWN_BY_HELP = ("rich", "typer")
MOST_MODULES = 450
"""Of the standard library, rich and typer; torch alone has over 1,000."""
RUN = """
import sys
sys.argv = ["headwise", *{arguments!r}]
try:
    __import__("headwise.cli").cli.run_cli()
except SystemExit as end:
    assert end.code == 0
"""


HELP = RUN.format(arguments=("--help",))
WORKED = RUN.format(arguments=("trace", "--example", "cat-sleeps"))


def loaded_by(code: str, packages: tuple[str, ...]) -> list[str]:
    """Packages among `packages` that a fresh process has imported after running `code`."""
    question = f"import json, sys\nloaded = [name for name in {packages!r} if name in sys.modules]"
    answer = subprocess.run(
        [sys.executable, "-c", f"{code}\n{question}\nprint(json.dumps(loaded), file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    names: list[str] = json.loads(answer.stderr.splitlines()[-1])
    return names


def test_importing_headwise_loads_nothing_heavy() -> None:
    assert loaded_by("import headwise", HEAVY + SHOWN_BY_HELP) == []


def test_catching_headwise_errors_loads_nothing_heavy() -> None:
    assert loaded_by("from headwise import HeadwiseError", HEAVY + SHOWN_BY_HELP) == []


def test_the_help_loads_no_torch_and_no_progress_bars() -> None:
    assert loaded_by(HELP, (*HEAVY, "rich.progress")) == []


def test_the_worked_example_loads_neither_transformers_nor_pandas() -> None:
    assert loaded_by(WORKED, ("torch", "transformers", "pandas")) == ["torch"]


def test_tracing_and_silencing_load_no_pandas() -> None:
    code = "import headwise\nheadwise.trace, headwise.watch, headwise.silence, headwise.cut"
    assert loaded_by(code, ("torch", "pandas", "pyarrow")) == ["torch"]


def test_a_model_without_a_gguf_file_loads_no_gguf() -> None:
    loads = "import headwise; headwise.load_model('minilm')"
    assert loaded_by(loads, ("transformers", "gguf")) == ["transformers"]


def test_a_heavy_import_would_be_noticed() -> None:
    assert loaded_by("import typer", HEAVY + SHOWN_BY_HELP) == ["typer"]
    assert loaded_by(HELP, ("typer",)) == ["typer"]


def test_the_help_loads_little() -> None:
    """The time for the help depends on its imports, whose number is the same on every machine."""
    code = f"{HELP}\nimport sys\nprint(len(sys.modules), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stderr.splitlines()[-1]) < MOST_MODULES
