"""The documentation tells the truth: every snippet runs and prints what stands below it."""

import contextlib
import io
import itertools
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def snippets(text: str) -> list[tuple[str, str]]:
    """Python blocks, each with the output block that follows it."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        (code, output)
        for (language, code), (following, output) in itertools.pairwise([*blocks, ("", "")])
        if language == "python" and following == "text"
    ]


def printed_by(snippet: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(snippet, "snippet", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


CASES = [
    pytest.param(code, output, id=f"{page.name}-{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, (code, output) in enumerate(snippets(page.read_text("utf-8")))
]


def test_there_are_snippets_to_check() -> None:
    assert len(CASES) >= 5


@pytest.mark.parametrize(("code", "output"), CASES)
def test_a_snippet_prints_what_the_page_shows(code: str, output: str) -> None:
    assert printed_by(code) == output


def test_every_python_block_is_followed_by_its_output() -> None:
    for page in DOCS.glob("*.md"):
        text = page.read_text("utf-8")
        assert text.count("```python") == len(snippets(text)), page.name
