"""The documentation tells the truth: every snippet runs and prints what stands below it."""

from pathlib import Path

import pytest

from snippets import assert_prints_alike, printed_by, snippets

DOCS = Path(__file__).parents[1] / "docs"

CASES = [
    pytest.param(code, output, id=f"{page.name}-{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, (code, output) in enumerate(snippets(page.read_text("utf-8")))
]


def test_there_are_snippets_to_check() -> None:
    assert len(CASES) >= 5


@pytest.mark.parametrize(("code", "output"), CASES)
def test_a_snippet_prints_what_the_page_shows(code: str, output: str) -> None:
    assert_prints_alike(printed_by(code), output)


def test_every_python_block_is_followed_by_its_output() -> None:
    for page in DOCS.glob("*.md"):
        text = page.read_text("utf-8")
        assert text.count("```python") == len(snippets(text)), page.name
