"""The strongest head of each role has a sentence, and a place in a text where it does this."""

import pandas as pd
import pytest
from rich.console import Console

from headwise.head_table import HeadTable
from headwise.views.findings import describe_detail, describe_head, find_example, findings

TEXT = "He had read most of the book by noon."


def table(**about: object) -> HeadTable:
    df = pd.DataFrame(
        {
            "stack": "",
            "layer": [0, 0, 0],
            "head": [0, 1, 2],
            "roles": [("positional",), ("syntactic",), ("syntactic",)],
            "positional_score": [0.8, 0.1, 0.1],
            "positional_baseline": [0.01, 0.01, 0.01],
            "positional_detail": ["-1", "", ""],
            "syntactic_score": [0.2, 0.7, 0.6],
            "syntactic_baseline": [0.4, 0.4, 0.4],
            "syntactic_detail": ["", "obj (object -> verb)", "det (noun -> determiner)"],
        }
    )
    return HeadTable(df, about)


def example(looks: tuple[int, int], at: tuple[int, int]) -> dict[str, object]:
    return {"examples": {"L0H1": {"syntactic": {"text": TEXT, "looks": looks, "at": at}}}}


def printed(made: HeadTable) -> str:
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(findings(made))
    return capture.get()


def test_each_role_has_a_line_about_its_strongest_head() -> None:
    lines = printed(table()).split("\n")
    first, second = (" ".join(line.split()) for line in lines[:2])
    assert first == "positional L0H0 80% on the token before (equal weights: 1%)"
    assert second == "syntactic L0H1 obj (object -> verb): 70% found (baseline: 40%)"


@pytest.mark.parametrize(
    ("looks", "at", "words"),
    [((24, 28), (7, 11), "book -> read"), ((7, 11), (24, 28), "read -> book")],
)
def test_an_example_marks_the_two_words(
    looks: tuple[int, int], at: tuple[int, int], words: str
) -> None:
    text = printed(table(**example(looks, at)))
    assert f"{words}: He had *read* most of the *book* by noon." in text


def test_other_heads_and_roles_have_no_example() -> None:
    made = table(**example((24, 28), (7, 11)))
    assert find_example(made, made["L0H2"], "syntactic") is None
    assert find_example(made, made["L0H1"], "semantic") is None
    assert find_example(table(), made["L0H1"], "syntactic") is None


def test_details_are_put_in_words() -> None:
    assert describe_detail("+2") == "2 ahead"
    assert describe_head(table()["L0H1"], "semantic") == "L0H1 is semantic."
