"""What a sweep has found, in a table, in words and as an image."""

import re
import xml.etree.ElementTree as ET

import pytest

from headwise.drawing.plots import COLOURS

from .test_sweep import planted_sweep

SVG = "{http://www.w3.org/2000/svg}"
SPLIT = {("split", 1, 4): [0.25, 0.35], ("split", 2, 2): [0.9, 0.895], ("split", 4, 1): [0.9, 0.9]}


def test_a_summary_has_mean_lowest_and_highest_over_the_seeds() -> None:
    table = planted_sweep(SPLIT).summary
    assert list(table["num_heads"]) == [1, 2, 4]
    assert list(table["accuracy"]) == pytest.approx([0.3, 0.8975, 0.9])
    assert list(table["lowest"]) == [0.25, 0.895, 0.9]
    assert list(table["highest"]) == [0.35, 0.9, 0.9]
    assert set(table["seeds"]) == {2}


def test_words_name_the_fewest_heads_that_come_close_to_the_best() -> None:
    (said,) = planted_sweep(SPLIT).in_words()
    assert said.startswith("split: 1 head of 4 0.300, 2 heads of 2 0.897, 4 heads of 1 0.900; ")
    ended = said.partition("; ")[2]
    assert "2 heads of 2" in ended and "0.01" in ended and "0.900" in ended
    assert "4 heads" not in ended and "1 head of" not in ended
    farther = SPLIT | {("split", 2, 2): [0.85, 0.85]}
    (said,) = planted_sweep(farther).in_words()
    assert said.startswith("split: 1 head of 4 0.300, 4 heads of 1 0.900; ")
    assert "4 heads of 1" in said.partition("; ")[2]


def test_models_that_have_learned_nothing_are_not_called_enough() -> None:
    guess = planted_sweep(SPLIT).settings.task.best_guess
    (said,) = planted_sweep({key: [guess, guess + 0.02] for key in SPLIT}).in_words()
    assert said.endswith(
        f"; none has learned the task, for a guess gives {guess:.3f}: more steps may help"
    )
    (said,) = planted_sweep({key: [guess + 0.2] for key in SPLIT}).in_words()
    assert "none has learned" not in said


def test_words_have_a_sentence_for_every_group_in_its_order() -> None:
    narrow = {("narrow", 1, 1): [0.2], ("narrow", 1, 2): [0.7], ("narrow", 1, 4): [0.7]}
    split = {key: [0.5] for key in SPLIT}
    said = planted_sweep(narrow | split, groups=("narrow", "split")).in_words()
    assert [one.split(":")[0] for one in said] == ["narrow", "split"]
    assert "1 head of 2" in said[0].partition("; ")[2]
    assert said[1].startswith("split: 1 head of 4 0.500, 4 heads of 1 0.500; ")


def bars(svg: str, place: int) -> list[str]:
    """The bars of the line at a place."""
    paths = ET.fromstring(svg).iter(f"{SVG}path")
    drawn = [one.get("d", "") for one in paths if one.get("stroke") == COLOURS[place]]
    return [one for one in drawn if re.fullmatch(r"M\S+ \S+V\S+?M\S+ \S+h8M\S+ \S+h8", one)]


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_image_has_a_bar_for_every_variant_and_names_every_number_of_heads() -> None:
    free = {("free", heads, 2): [0.5, 0.75] for heads in (1, 2, 4, 8)}
    big = {("big", 1, size): [0.25, 0.5] for size in (4, 8, 16)}
    found = planted_sweep(SPLIT | free | big, groups=("split", "free", "big"))
    svg = found.svg()
    assert [len(bars(svg, place)) for place in range(3)] == [3, 4, 3]
    words = texts(svg)
    assert [words.count(number) for number in ("1", "2", "4", "8")] == [1, 1, 1, 1]
    assert "16" not in words and "heads" in words and "chance" in words
    assert "d_key 2 for every head" in words
    assert found._repr_svg_() == svg


def test_an_image_of_narrow_heads_is_against_the_width_of_their_keys() -> None:
    narrow = {("narrow", 1, size): [0.5] for size in (1, 2, 4)}
    both = planted_sweep(narrow | {key: [0.5] for key in SPLIT}, groups=("split", "narrow"))
    assert any("d_key" in one for one in texts(both.svg()))
    svg = planted_sweep(narrow, groups=("narrow",)).svg()
    assert len(bars(svg, 0)) == 3
    words = texts(svg)
    assert any("d_key" in one for one in words) and "heads" not in words
    assert [words.count(number) for number in ("1", "2", "4")] == [1, 1, 1]


def test_a_head_has_a_row_with_where_it_looks() -> None:
    table = planted_sweep(SPLIT).heads
    assert len(table) == 2 * (1 + 2 + 4)
    assert list(table[table["num_heads"] == 2]["head"]) == ["L0H0", "L0H1"] * 2
    assert set(table["on_previous"]) == {0.5} and set(table["roles"]) == {"positional"}
