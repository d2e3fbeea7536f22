"""What `import headwise` and `headwise --help` load, and how long the help takes."""

import json
import resource
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "transformers", "plotly", "starlette", "uvicorn", "jaxtyping")
SHOWN_BY_HELP = ("rich", "typer")
RUN = """
import sys
sys.argv = ["headwise", *{arguments!r}]
try:
    __import__("headwise.cli").cli.main()
except SystemExit as end:
    assert end.code == 0
"""


HELP = RUN.format(arguments=("--help",))
WORKED = RUN.format(arguments=("trace", "--example", "cat-sleeps"))


def loaded_by(code: str, packages: tuple[str, ...]) -> list[str]:
    """Those of the packages that a fresh process has imported after running the code."""
    question = f"import json, sys\nfound = [name for name in {packages!r} if name in sys.modules]"
    answer = subprocess.run(
        [sys.executable, "-c", f"{code}\n{question}\nprint(json.dumps(found), file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(answer.stderr.splitlines()[-1])
    return found


def test_importing_headwise_loads_nothing_heavy() -> None:
    assert loaded_by("import headwise", HEAVY + SHOWN_BY_HELP) == []


def test_catching_headwise_errors_loads_nothing_heavy() -> None:
    assert loaded_by("from headwise import HeadwiseError", HEAVY + SHOWN_BY_HELP) == []


def test_the_help_loads_no_torch() -> None:
    assert loaded_by(HELP, HEAVY) == []


def test_the_worked_example_loads_no_transformers() -> None:
    assert loaded_by(WORKED, ("torch", "transformers")) == ["torch"]


def test_a_heavy_import_would_be_noticed() -> None:
    assert loaded_by("import typer", HEAVY + SHOWN_BY_HELP) == ["typer"]
    assert loaded_by(HELP, ("typer",)) == ["typer"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs getrusage")
def test_the_help_takes_under_half_a_second() -> None:
    # Processor time, not the clock's, because other tests run beside this one; the best of five.
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "headwise", "--help"], capture_output=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5
