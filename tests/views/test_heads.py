"""The table in the terminal is readable in 80 columns and without colour."""

import io
import math
from typing import Any

import pandas as pd
import pytest
from rich.console import Console, RenderableType

from headwise.errors import OptionError
from headwise.head_table import HeadTable
from headwise.roles import ROLES
from headwise.views.heads import head_grid, strongest, summary_lines


def table_of(
    roles: dict[tuple[int, int], list[str]], layers: int, heads: int, **measures: dict[Any, Any]
) -> HeadTable:
    """Heads with roles and measures given by (layer, head); other measures are NaN."""
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    df = pd.DataFrame(places, columns=["layer", "head"]).assign(stack="")
    df["roles"] = [roles.get(place, []) for place in places]
    for name, values in measures.items():
        df[name] = [values.get(place, math.nan) for place in places]
    return HeadTable(df, {})


def text_of(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, record=True, force_terminal=False, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def lines_of(renderable: RenderableType, width: int = 80) -> list[str]:
    return [line.rstrip() for line in text_of(renderable, width).splitlines()]


def colours_in(renderable: RenderableType) -> list[tuple[str, str]]:
    """Every piece of the drawing that has a style, with its colour."""
    console = Console(width=80, force_terminal=True, color_system="standard")
    pieces = console.render(renderable)
    return [(p.text.strip(), p.style.color.name) for p in pieces if p.style and p.style.color]


def test_a_grid_has_a_letter_for_the_first_role_a_plus_for_more_and_a_dot_for_none() -> None:
    roles = {(0, 1): ["positional"], (1, 0): ["sink", "broad"], (2, 4): ["induction"]}
    assert lines_of(head_grid(table_of(roles, layers=3, heads=5))) == [
        "   0  1  2  3  4",
        "L0 ·  P  ·  ·  ·",
        "L1 S+ ·  ·  ·  ·",
        "L2 ·  ·  ·  ·  I",
        "I=induction  P=positional  S=sink  ·=none  +=more",
    ]


def test_a_printed_table_shows_its_grid_and_its_repr_stays_one_line() -> None:
    table = table_of({(0, 1): ["positional"], (1, 0): ["sink", "broad"]}, layers=2, heads=3)
    assert str(table).splitlines() == [
        "6 heads in 2 layers",
        "positional 1, sink 1, broad 1, no role 4",
        "",
        "   0  1  2",
        "L0 ·  P  ·",
        "L1 S+ ·  ·",
        "P=positional  S=sink  ·=none  +=more",
    ]
    assert repr(table) == "HeadTable(6 heads, 4 columns)"


def test_a_letter_has_the_colour_of_its_role() -> None:
    roles = {(0, 0): ["positional"], (0, 1): ["sink", "broad"]}
    colours = colours_in(head_grid(table_of(roles, layers=1, heads=2)))
    assert colours == [("P", "blue"), ("S+", "red"), ("P", "blue"), ("S", "red")]


def test_the_legend_names_the_letters_in_use_and_no_others() -> None:
    full = table_of({(0, 0): ["broad"], (0, 1): ["my own"], (0, 2): ["[b]"]}, layers=1, heads=3)
    assert lines_of(head_grid(full))[1:] == ["L0 B  ?  ?", "B=broad  ?=[b],my own"]


def test_a_missing_head_is_blank_and_not_a_dot() -> None:
    df = table_of({}, layers=2, heads=3).df
    grid = head_grid(HeadTable(df[(df["layer"] == 0) | (df["head"] == 1)], {}))
    assert lines_of(grid)[1:3] == ["L0 ·  ·  ·", "L1    ·"]


def test_a_missing_layer_has_no_line() -> None:
    df = table_of({}, layers=3, heads=2).df
    lines = lines_of(head_grid(HeadTable(df[df["layer"] != 1], {})))
    assert [line[:2] for line in lines[1:3]] == ["L0", "L2"]


@pytest.mark.parametrize("heads", [1, 12, 13, 24, 25, 32, 37, 64, 128])
def test_a_grid_fits_80_columns_whole(heads: int) -> None:
    last = heads - 1
    roles = {(10, head): ["positional", "sink"] for head in range(heads)}
    roles |= {(0, head): [role] for head, role in zip(range(heads), ROLES, strict=False)}
    roles[10, last] = ["coreference", "broad"]
    text = text_of(head_grid(table_of(roles, layers=11, heads=heads)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.count("P+") == last
    assert text.count("C+") == 1


def test_cells_of_many_heads_are_two_wide_and_every_fourth_is_numbered() -> None:
    lines = lines_of(head_grid(table_of({(0, 31): ["sink"]}, layers=1, heads=32)))
    assert lines[0] == "   " + "".join(f"{head:<8}" for head in range(0, 32, 4)).rstrip()
    assert lines[1] == "L0 " + "· " * 31 + "S"


def test_layer_with_more_than_32_heads_continues_on_the_next_line() -> None:
    lines = lines_of(head_grid(table_of({(1, 36): ["sink"]}, layers=2, heads=37)))
    assert [line.split()[0] for line in lines[1:5]] == ["L0", "+32", "L1", "+32"]
    assert lines[4] == "+32 · · · · S"


def test_one_stack_is_drawn_under_its_name() -> None:
    encoder, cross = table_of({}, layers=1, heads=2).df, table_of({}, layers=1, heads=3).df
    both = HeadTable(
        pd.concat([encoder.assign(stack="[b]encoder"), cross.assign(stack="cross")]), {}
    )
    assert lines_of(head_grid(both, "[b]encoder"))[0] == "[b]encoder"
    assert lines_of(head_grid(both, "cross"))[2] == "L0 ·  ·  ·"
    with pytest.raises(OptionError, match=r"''.*\[b\]encoder, cross"):
        head_grid(both)


def with_scores() -> HeadTable:
    places = {(0, 1): 0.5, (0, 2): 0.75, (1, 0): 0.875, (1, 2): 0.25, (0, 0): 0.99}
    return table_of(
        {
            (0, 1): ["positional"],
            (0, 2): ["delimiter", "positional"],
            (1, 0): ["positional"],
            (1, 2): ["positional"],
        },
        layers=2,
        heads=3,
        positional_score=places,
        positional_threshold=dict.fromkeys(places, 0.125),
        positional_baseline={(1, 0): 0.0625},
        positional_detail={(0, 0): "", (0, 1): "+1", (0, 2): "-1", (1, 0): "[-2]", (1, 1): ""},
    )


def test_the_strongest_heads_of_a_role_come_with_score_and_baseline() -> None:
    lines = [line.split() for line in lines_of(strongest(with_scores()))]
    assert lines == [
        ["role", "head", "score", "baseline", "detail"],
        ["positional", "L1H0", "0.875", "0.062", "[-2]"],
        ["positional", "L0H2", "0.750", "-1"],
        ["positional", "L0H1", "0.500", "+1"],
        ["delimiter", "L0H2"],
    ]


def test_per_role_limits_the_heads_shown() -> None:
    lines = lines_of(strongest(with_scores(), per_role=1))
    assert [line.split()[1] for line in lines[1:]] == ["L1H0", "L0H2"]
    assert len(lines_of(strongest(with_scores(), per_role=100))) == 1 + 4 + 1


def test_a_head_without_the_role_is_not_its_strongest_whatever_its_score() -> None:
    text = text_of(strongest(with_scores(), per_role=100))
    assert "L1H2" in text
    assert "L0H0" not in text


def test_a_score_that_is_unknown_comes_last() -> None:
    roles = {(0, 0): ["sink"], (0, 1): ["sink"]}
    table = table_of(roles, layers=1, heads=2, sink_score={(0, 1): -0.5})
    assert [line.split() for line in lines_of(strongest(table))] == [
        ["role", "head", "score"],
        ["sink", "L0H1", "-0.500"],
        ["sink", "L0H0"],
    ]


def test_roles_without_scores_are_shown_by_name() -> None:
    table = table_of({(0, 1): ["my own"], (0, 2): ["broad"]}, layers=1, heads=3)
    lines = lines_of(strongest(table))
    assert lines == ["role    head", "broad   L0H2", "my own  L0H1"]


def test_summary_names_the_model_and_counts_heads_and_roles() -> None:
    about = {"model": "minilm", "revision": "c9745ed", "tokens": 12007}
    assert summary_lines(HeadTable(with_scores().df, about)) == [
        "minilm, revision c9745ed, 12,007 tokens",
        "6 heads in 2 layers",
        "positional 4, delimiter 1, no role 2",
        "not tested: induction, duplicate, coreference, syntactic, semantic, sink, broad",
    ]


def test_the_summary_omits_unknown_facts() -> None:
    kept = {"loaded": {"kept": {"L0": [0, 1], "L1": [], "L2": [0, 3]}}}
    cut = HeadTable(table_of({}, layers=1, heads=1).df, kept)
    assert summary_lines(cut)[-1].endswith("have new numbers: L2H1 was L2H3 before the cut")
    assert summary_lines(table_of({}, layers=1, heads=1)) == ["1 head in 1 layer", "no role 1"]
    about = {"model": "", "revision": None, "tokens": 1}
    assert summary_lines(HeadTable(table_of({}, layers=1, heads=1).df, about))[0] == "1 token"
