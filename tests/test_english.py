"""Prose in the package, the docs and the names of tests avoids phrases that slow a reader down."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WORD_LISTS = {"templates.py"}
"""Modules whose strings are data: words and sentences for models to read."""

COUNTED = (
    "bar cell column file head line logit loss map number parameter record row run scale score "
    "sentence square state value"
).split()
PER = (
    "batch byte call column document example family file group head key layer line model page "
    "position process query relation row run second seed sentence sequence token tile word"
).split()
EVERYWHERE = {
    "a for per": rf"\b(?:an?|one|two) (?:{'|'.join(COUNTED)})s? an? (?:{'|'.join(PER)})\b(?! of)",
    "is no": r"(?<!there )\b(?:is|are|was|were|be) no "
    r"(?!longer|more|less|faster|slower|further|fewer|larger|smaller|better|worse|change)[a-z]",
    "while it lasts": r"\bwhile it lasts\b",
    "so many": r"\bso (?:many|much)\b(?! (?:that|as|larger|smaller|faster)\b)(?! \w+ that)",
    "told": r"\b(?:told(?! to\b| apart\b)|heard|overhear\w*|hears?|heed\w*)\b",
    "asks": r"\basks? transformers",
    "that there is": r"\bthat there (?:is|are|was|were)\b|\b(?:is|are) there already\b"
    r"|\bthat (?:is|are) not there\b",
    "heads that go": r"\bheads?(?: \w+){0,2} (?:go|goes|went)\b(?! (?:on|to|with|into|through|up))"
    r"|\b(?:is|are) to go\b",
    "old words": r"\b(?:anew|borne|unasked|shall|in vain|as ever|to be had)\b",
    "refuses to know": r"\brefuses? to know\b",
    "for as because": r", for (?:it|its|they|there|no) (?!\w+[,.])",
}
IN_DOCSTRINGS = {
    "opens with a riddle": r"^(?:what|that|whose|why) (?!if\b)",
    "opens without its noun": r"^(?:the same(?=[,.:;]| (?:with|over|in|of|for|as|without|on|at)\b)"
    r"|of (?!the )|its |it |and |so many|such |those |none yet|nothing yet)",
    "where for if": r"\braises? where\b|\b(?:none|empty|nothing) where\b",
}
TEST_NAMES = (
    r"^test_(?:what|who|that|which|its|it)_|_(?:is|are)_no(?:ne)?_(?!longer)"
    r"|_(?:told(?!_apart)|said|heard|heeded|anew)(?:_|$)|_ones_own|_that_(?:is|are)_not_there"
)

ALLOWED: frozenset[str] = frozenset()
"""Texts that a check finds but that stay."""


class Prose(NamedTuple):
    """A text, its location, and whether it is a docstring."""

    place: str
    text: str
    is_docstring: bool


def prose_of(text: str, name: str) -> Iterator[Prose]:
    """Docstrings, other strings of several words, and comments of a module."""
    tree = ast.parse(text)
    docstrings, parts = set(), set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else []:
            value = getattr(child, "value", None) if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docstrings.add(value)
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            words = [v.value if isinstance(v, ast.Constant) else "X" for v in node.values]
            yield Prose(f"{name}:{node.lineno}", "".join(map(str, words)), False)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield Prose(f"{name}:{node.lineno}", node.value, node in docstrings)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Prose(f"{name}:{token.start[0]}", token.string.lstrip("# "), False)


def on_one_line(text: str) -> str:
    """The text without doctests, on one line."""
    return " ".join(re.sub(r"^\s*(?:>>>|\.\.\.).*", "", text, flags=re.MULTILINE).split())


def hits(prose: Prose) -> list[str]:
    """Names of the checks that a text fails."""
    text = on_one_line(prose.text)
    if text in ALLOWED:
        return []
    checks = EVERYWHERE | (IN_DOCSTRINGS if prose.is_docstring else {})
    return [name for name, pattern in checks.items() if re.search(pattern, text, re.IGNORECASE)]


def report(texts: Iterator[Prose]) -> list[str]:
    """One line per text that fails a check."""
    return [
        f"{prose.place} [{', '.join(names)}] {on_one_line(prose.text)}"
        for prose in texts
        if (names := hits(prose))
    ]


def test_prose_of_the_package_reads_naturally() -> None:
    texts = (
        prose
        for file in SOURCE
        if file.name not in WORD_LISTS
        for prose in prose_of(file.read_text("utf-8"), str(file.relative_to(ROOT)))
    )
    assert report(texts) == []


def without_examples(page: str) -> str:
    """The page with blank lines for code and output, which may quote texts that models read."""
    fenced = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    return fenced.sub(lambda block: "\n" * block[0].count("\n"), page)


def test_pages_read_naturally() -> None:
    texts = (
        Prose(f"{page.name}:{number}", line, False)
        for page in PAGES
        for number, line in enumerate(without_examples(page.read_text("utf-8")).splitlines(), 1)
    )
    assert report(texts) == []


def test_names_of_tests_are_claims() -> None:
    names = (
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in TESTS
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and re.search(TEST_NAMES, node.name)
    )
    assert list(names) == []


def test_the_list_of_allowed_sentences_is_short() -> None:
    assert len(ALLOWED) < 40


@pytest.mark.parametrize(
    ("code", "check"),
    [
        ('"""One logit a head."""', "a for per"),
        ('raise ValueError(f"{name} is no layer")', "is no"),
        ('def f():\n    """What a model returns."""', "opens with a riddle"),
        ('def f():\n    """Raise where it is empty."""', "where for if"),
        ("x = 1  # while it lasts, nothing is read", "while it lasts"),
        ('def f():\n    """Of one layer."""', "opens without its noun"),
    ],
)
def test_a_phrase_that_slows_readers_down_is_found(code: str, check: str) -> None:
    assert [hits(prose) for prose in prose_of(code, "example.py") if hits(prose)] == [[check]]


def test_plain_sentences_pass() -> None:
    code = '"""One logit per head; None if the layer has no sinks. There is no mask."""'
    assert [hits(prose) for prose in prose_of(code, "example.py") if hits(prose)] == []
