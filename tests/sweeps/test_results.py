"""Results of a sweep: summary, sentences, plot and tables."""

import re
import xml.etree.ElementTree as ET

import pytest

from headwise.drawing.plots import COLOURS

from .test_sweep import planted_sweep

SVG = "{http://www.w3.org/2000/svg}"
SPLIT = {("split", 1, 4): [0.25, 0.35], ("split", 2, 2): [0.9, 0.895], ("split", 4, 1): [0.9, 0.9]}


def test_summary_has_mean_lowest_and_highest_over_the_seeds() -> None:
    table = planted_sweep(SPLIT).summary
    assert list(table["num_heads"]) == [1, 2, 4]
    assert list(table["accuracy"]) == pytest.approx([0.3, 0.8975, 0.9])
    assert list(table["lowest"]) == [0.25, 0.895, 0.9]
    assert list(table["highest"]) == [0.35, 0.9, 0.9]
    assert set(table["seeds"]) == {2}


def test_sentence_names_the_fewest_heads_close_to_the_best() -> None:
    (sentence,) = planted_sweep(SPLIT).in_words()
    assert sentence.startswith("split: 1 head of 4 0.300, 2 heads of 2 0.897, 4 heads of 1 0.900; ")
    ended = sentence.partition("; ")[2]
    assert "2 heads of 2" in ended and "0.01" in ended and "0.900" in ended
    assert "4 heads" not in ended and "1 head of" not in ended
    farther = SPLIT | {("split", 2, 2): [0.85, 0.85]}
    (sentence,) = planted_sweep(farther).in_words()
    assert sentence.startswith("split: 1 head of 4 0.300, 4 heads of 1 0.900; ")
    assert "4 heads of 1" in sentence.partition("; ")[2]


def test_sentence_says_when_no_model_learned() -> None:
    guess = planted_sweep(SPLIT).settings.task.best_guess
    (sentence,) = planted_sweep({key: [guess, guess + 0.02] for key in SPLIT}).in_words()
    assert "none learned" in sentence and f"{guess:.3f}" in sentence
    (sentence,) = planted_sweep({key: [guess + 0.2] for key in SPLIT}).in_words()
    assert "none learned" not in sentence


def test_every_group_has_a_sentence_in_its_order() -> None:
    narrow = {("narrow", 1, 1): [0.2], ("narrow", 1, 2): [0.7], ("narrow", 1, 4): [0.7]}
    split = {key: [0.5] for key in SPLIT}
    sentences = planted_sweep(narrow | split, groups=("narrow", "split")).in_words()
    assert [sentence.split(":")[0] for sentence in sentences] == ["narrow", "split"]
    assert "1 head of 2" in sentences[0].partition("; ")[2]
    assert sentences[1].startswith("split: 1 head of 4 0.500, 4 heads of 1 0.500; ")


def bars(svg: str, place: int) -> list[str]:
    """The bars of the line at a place."""
    paths = ET.fromstring(svg).iter(f"{SVG}path")
    lines = [line.get("d", "") for line in paths if line.get("stroke") == COLOURS[place]]
    return [line for line in lines if re.fullmatch(r"M\S+ \S+V\S+?M\S+ \S+h8M\S+ \S+h8", line)]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_plot_has_a_bar_per_variant_and_labels_every_head_count() -> None:
    free = {("free", heads, 2): [0.5, 0.75] for heads in (1, 2, 4, 8)}
    big = {("big", 1, size): [0.25, 0.5] for size in (4, 8, 16)}
    result = planted_sweep(SPLIT | free | big, groups=("split", "free", "big"))
    svg = result.svg()
    assert [len(bars(svg, place)) for place in range(3)] == [3, 4, 3]
    words = texts(svg)
    assert [words.count(number) for number in ("1", "2", "4", "8")] == [1, 1, 1, 1]
    assert "16" not in words and "heads" in words and "chance" in words
    assert "d_key 2 for every head" in words
    assert result._repr_svg_() == svg


def test_plot_of_narrow_heads_is_against_d_key() -> None:
    narrow = {("narrow", 1, size): [0.5] for size in (1, 2, 4)}
    both = planted_sweep(narrow | {key: [0.5] for key in SPLIT}, groups=("split", "narrow"))
    assert any("d_key" in text for text in texts(both.svg()))
    svg = planted_sweep(narrow, groups=("narrow",)).svg()
    assert len(bars(svg, 0)) == 3
    words = texts(svg)
    assert any("d_key" in text for text in words) and "heads" not in words
    assert [words.count(number) for number in ("1", "2", "4")] == [1, 1, 1]


def test_every_head_has_a_row_with_its_weight_on_the_answers() -> None:
    table = planted_sweep(SPLIT).heads
    assert len(table) == 2 * (1 + 2 + 4)
    assert list(table[table["num_heads"] == 2]["head"]) == ["L0H0", "L0H1"] * 2
    assert set(table["on_previous"]) == {0.5} and set(table["roles"]) == {"positional"}
