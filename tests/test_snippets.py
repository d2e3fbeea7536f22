"""The comparison of printed output fails where it should."""

import pytest

from snippets import assert_prints_alike, snippets


def test_last_digits_may_differ_and_nothing_else() -> None:
    assert_prints_alike("a 0.121 b", "a 0.123 b")
    for got in ("a 0.119 b", "a 0.123 c", "a 0.123", "a 1.123 b"):
        with pytest.raises(AssertionError):
            assert_prints_alike(got, "a 0.123 b")
    with pytest.raises(AssertionError):
        assert_prints_alike("a 12 b", "a 13 b")


def test_a_snippet_is_code_with_its_output() -> None:
    page = "```python\nprint(1)\n```\n\n```text\n1\n```\n\n```python\nx\n```\n"
    assert snippets(page) == [("print(1)\n", "1\n")]
