"""Line plots as SVG: valid for any numbers, names that overlap nothing, and elbows."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from headwise.drawing.html import FONT, LETTER
from headwise.drawing.plots import (
    COLOURS,
    GREY,
    LEADING,
    MARKERS,
    Line,
    PlotAxis,
    curves_svg,
    elbow,
    tick_labels,
)

SVG = "{http://www.w3.org/2000/svg}"
NAMES: dict[str, Any] = {"title": "Loss", "x_label": "heads cut", "y_label": "loss"}
NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"

any_points = st.lists(st.tuples(st.floats(), st.floats()), max_size=5).map(tuple)
tame = st.floats(-50, 50).map(lambda value: round(value, 2))
tame_points = st.lists(st.tuples(tame, tame), min_size=1, max_size=5).map(tuple)
words = st.text("abc ", min_size=1, max_size=20)
named = st.lists(st.tuples(tame, words), max_size=5).map(tuple)


def root_of(lines: list[Line], **options: Any) -> ET.Element:
    return ET.fromstring(curves_svg(lines, **(NAMES | options)))


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def paths(root: ET.Element, **attributes: str) -> list[ET.Element]:
    elements = root.iter(f"{SVG}path")
    return [
        path
        for path in elements
        if all(path.get(name.replace("_", "-")) == attributes[name] for name in attributes)
    ]


def line_paths(root: ET.Element, place: int = 0) -> list[list[tuple[float, float]]]:
    """The joined points of a line's pieces."""
    strokes = paths(root, stroke=COLOURS[place], stroke_width="1.8")
    ends = [path.get("d", "") for path in strokes if path.get("d", "").endswith("h0")]
    return [[(float(x), float(y)) for x, y in pairs(end)] for end in ends]


def pairs(path: str) -> list[tuple[str, str]]:
    return re.findall(rf"({NUMBER}) ({NUMBER})", path)


def boxes(root: ET.Element) -> list[tuple[float, float, float, float]]:
    """Left, right, top and bottom of every text that is not rotated."""
    corners = []
    for text in root.iter(f"{SVG}text"):
        if text.get("x") is not None and text.text:
            x, y = float(text.get("x", "")), float(text.get("y", ""))
            width = len(text.text) * FONT * LETTER
            left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "")]
            corners.append((left, left + width, y - FONT * 0.7, y + FONT * 0.2))
    return corners


@given(any_points, any_points, st.booleans(), st.booleans())
def test_any_numbers_give_an_image_that_can_be_drawn(
    points: Any, spread: Any, log_y: bool, is_percent_x: bool
) -> None:
    lines = [Line("a", points), Line("b", points[: len(spread)], spread[: len(points)])]
    svg = curves_svg(
        lines,
        **NAMES,
        marks=tuple((x, "mark") for x, _ in points),
        levels=tuple((y, "level") for _, y in points),
        log_y=log_y,
        is_percent_x=is_percent_x,
    )
    root = ET.fromstring(svg)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    without_texts = re.sub(r"<(title|text)[^>]*>[^<]*</\1>", "", svg)
    assert not re.search(r"nan|inf|None", without_texts)
    for path in root.iter(f"{SVG}path"):
        if path.get("transform") is None:
            for x, y in pairs(path.get("d", "")):
                assert 0 <= float(x) <= width and 0 <= float(y) <= height
    for text in texts(root):
        assert "nan" not in text and "inf" not in text


@given(st.lists(tame_points, max_size=6), named, named, words)
def test_no_name_overlaps_another_or_a_line(
    of_lines: list[Any], marks: Any, levels: Any, title: str
) -> None:
    lines = [Line(f"line {place}", points) for place, points in enumerate(of_lines)]
    root = root_of(lines, marks=marks, levels=levels, title=title * 9)
    names = boxes(root)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    for place, (left, right, top, bottom) in enumerate(names):
        assert left >= 0 and right <= width and top >= 0 and bottom <= height
        for other in names[:place]:
            assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
    places = [
        point for number in range(len(lines)) for run in line_paths(root, number) for point in run
    ]
    for x, y in places:
        assert not any(left < x < right and top < y < bottom for left, right, top, bottom in names)


@given(named)
def test_no_mark_runs_through_the_name_of_another(marks: Any) -> None:
    root = root_of([Line("a", ((0.0, 0.0), (1.0, 1.0)))], marks=marks)
    names = boxes(root)
    for mark in paths(root, stroke_dasharray="1.5 3"):
        x, bottom, top = map(float, re.fullmatch(
            rf"M({NUMBER}) ({NUMBER})V({NUMBER})", mark.get("d", "")).groups()
        )  # fmt: skip
        for left, right, upper, lower in names:
            assert not (left < x < right and top < lower and upper < bottom)


def test_texts_are_escaped_and_characters_that_xml_forbids_replaced() -> None:
    line = Line("<b>&\x00\ud800\x1b\n]]>", ((0.0, 1.0),))
    root = root_of([line], title="<i>&", x_label='"x"', y_label="<y>", marks=((0.0, "<m>"),))
    for text in ("<b>&��� ]]>", "<i>&", '"x"', "<y>", "<m>"):
        assert text in texts(root)


def test_every_line_has_its_own_colour_and_marker() -> None:
    lines = [Line(str(place), ((0.0, float(place)),)) for place in range(20)]
    root = root_of(lines)
    looks = [
        (path.get("d"), path.get("fill"), path.get("stroke"))
        for path in paths(root)
        if path.find(f"{SVG}title") is not None
    ]
    assert len(looks) == len(set(looks)) == 20
    assert len({shape for shape, _, _ in looks[: len(MARKERS)]}) == len(MARKERS)
    assert len({colour for _, _, colour in looks[: len(COLOURS)]}) == len(COLOURS)


def test_a_dashed_line_is_dashed_in_the_plot_and_beside_its_name() -> None:
    points = ((0.0, 0.0), (1.0, 1.0))
    root = root_of([Line("plain", points), Line("dashed", points, is_dashed=True)])
    assert len(paths(root, stroke=COLOURS[1], stroke_dasharray="6 4")) == 2
    assert paths(root, stroke=COLOURS[0], stroke_dasharray="6 4") == []


@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_leave_a_gap(missing: float) -> None:
    points = ((0.0, 1.0), (1.0, 2.0), (2.0, missing), (3.0, 4.0), (missing, 5.0), (5.0, 6.0))
    root = root_of([Line("a", points)])
    assert [len(run) for run in line_paths(root)] == [2, 1, 1]
    tooltips = [title.text for title in root.iter(f"{SVG}title")]
    assert tooltips == ["Loss", "a: 0, 1", "a: 1, 2", "a: 3, 4", "a: 5, 6"]


def test_numbers_up_to_0_leave_a_gap_only_on_a_log_axis() -> None:
    line = Line("a", ((0.0, 1.0), (1.0, 0.0), (2.0, -1.0), (3.0, 100.0)))
    assert [len(run) for run in line_paths(root_of([line]))] == [4]
    assert [len(run) for run in line_paths(root_of([line], log_y=True))] == [1, 1]


def test_equal_ratios_are_equally_far_on_a_log_axis() -> None:
    line = Line("a", tuple((float(power), 3.0**power) for power in range(-4, 5)))
    heights = [y for _, y in line_paths(root_of([line], log_y=True))[0]]
    steps = [lower - upper for lower, upper in pairwise(heights)]
    assert max(steps) - min(steps) < 0.21  # coordinates have one decimal


def test_a_band_surrounds_its_line() -> None:
    points, spread = ((0.0, 2.0), (1.0, 3.0)), ((1.0, 4.0), (2.5, 3.5))
    root = root_of([Line("a", points, spread)])
    (band,) = (path.get("d", "") for path in paths(root, fill_opacity="0.16"))
    (line,) = line_paths(root)
    corners = [float(y) for _, y in pairs(band)]
    assert corners[0] < line[0][1] < corners[3] and corners[1] < line[1][1] < corners[2]


@pytest.mark.parametrize(
    ("spread", "log_y", "bands"),
    [
        (((1.0, 4.0), (math.nan, 3.0), (1.0, 2.0)), False, [2, 2]),
        (((4.0, 1.0), (1.0, 3.0), (1.0, 2.0)), False, [4]),
        (((0.0, 4.0), (-1.0, 3.0), (1.0, 2.0)), True, [6]),
    ],
)
def test_a_band_ends_where_its_ends_are_unknown(spread: Any, log_y: bool, bands: list[int]) -> None:
    root = root_of([Line("a", ((0.0, 2.0), (1.0, 2.0), (2.0, 1.5)), spread)], log_y=log_y)
    paths_of_bands = paths(root, fill_opacity="0.16")
    assert [len(pairs(path.get("d", ""))) for path in paths_of_bands] == bands


def test_levels_and_marks_are_where_their_numbers_are() -> None:
    line = Line("a", ((0.0, 0.0), (0.5, 5.0), (1.0, 10.0)))
    root = root_of([line], marks=((0.5, "here"),), levels=((5.0, "half"), (math.nan, "none")))
    (run,) = line_paths(root)
    level = next(path.get("d", "") for path in paths(root, stroke=GREY, stroke_dasharray="4 4"))
    mark = next(path.get("d", "") for path in paths(root, stroke_dasharray="1.5 3"))
    assert f" {run[1][1]}H" in level and mark.startswith(f"M{run[1][0]} ")
    assert "half" in texts(root) and "none" not in texts(root)


def test_shares_are_written_in_percent() -> None:
    root = root_of([Line("a", ((0.0, 0.3), (0.6, 0.6)))], is_percent_x=True)
    shares = [text for text in texts(root) if "%" in text]
    assert shares == ["0%", "20%", "40%", "60%"]


@pytest.mark.parametrize("lines", [[], [Line("a", ())], [Line("a", ((math.nan, 1.0),))]])
@pytest.mark.parametrize("log_y", [True, False])
def test_a_plot_without_points_says_so(lines: list[Line], log_y: bool) -> None:
    words = texts(root_of(lines, log_y=log_y))
    assert "no points to draw" in words
    assert [text for text in words if text.startswith("a")] == ["a (no points)"] * len(lines)


def test_a_plot_of_one_point_shows_it() -> None:
    root = root_of([Line("a", ((3.0, 0.25),))])
    assert len(line_paths(root)[0]) == 1 and "no points to draw" not in texts(root)


@pytest.mark.parametrize("log_y", [True, False])
def test_numbers_that_differ_by_a_rounding_are_one_number(log_y: bool) -> None:
    points = ((0.0, 1.0), (1.0, math.nextafter(1.0, 2.0)))
    (run,) = line_paths(root_of([Line("a", points)], log_y=log_y))
    assert run[0][1] == run[1][1]


def test_many_names_make_the_plot_taller() -> None:
    lines = [Line(str(place), ((0.0, 1.0), (1.0, 1.0))) for place in range(40)]
    root = root_of(lines)
    heights = sorted(top for left, _, top, _ in boxes(root) if left > 500)
    apart = [lower - upper for upper, lower in pairwise(heights)]
    assert len(heights) == 40 and min(apart) > LEADING - 0.2


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e9))
def test_ticks_are_round_even_few_and_inside(low: float, span: float) -> None:
    values = PlotAxis(low, low + span, 0.0, 1.0).ticks()
    assert 2 <= len(values) <= 7
    step = values[1] - values[0]
    assert f"{step:.3e}"[0] in "125"
    assert low - 1e-8 * step <= values[0] < low + 1.001 * step
    assert low + span - 1.001 * step < values[-1] <= low + span + 1e-8 * step
    assert len(set(tick_labels(values))) == len(values)


@given(st.floats(-250, 150), st.floats(1, 100))
def test_log_ticks_are_powers_of_ten_or_2_and_5_times_them(power: float, decades: float) -> None:
    low, high = 10.0**power, 10.0 ** (power + decades)
    values = PlotAxis(low, high, 0.0, 1.0, is_log=True).ticks()
    assert all(f"{value:.6e}"[:8] in ("1.000000", "2.000000", "5.000000") for value in values)
    assert 2 <= len(values) <= 10 and values == sorted(values)


@given(st.floats(-250, 150), st.floats(0.5, 1))
def test_short_log_axis_has_at_least_two_ticks(power: float, decades: float) -> None:
    axis = PlotAxis(10.0**power, 10.0 ** (power + decades), 0.0, 1.0, is_log=True)
    assert len(axis.ticks()) >= 2


def test_numbers_on_an_axis_have_the_same_number_of_decimals() -> None:
    assert tick_labels([0.0, 0.1, 3 * 0.1]) == ["0.0", "0.1", "0.3"]
    assert tick_labels([-0.5, 0.0, 1.0]) == ["\N{MINUS SIGN}0.5", "0.0", "1.0"]
    assert tick_labels([0.1, 1.0, 10.0], is_even=False) == ["0.1", "1", "10"]


# The elbow


def bent(at: float, before: float, after: float) -> Callable[[float], float]:
    """A curve of two straight pieces that meet at one place."""
    return lambda x: before * min(x, at) + after * max(x - at, 0.0)


@given(
    st.integers(1, 18), st.floats(-5, 5), st.floats(0.1, 5), st.sampled_from([1, -1]),
    st.floats(0.01, 100), st.randoms(use_true_random=False),
)  # fmt: skip
def test_a_planted_elbow_is_found_whatever_the_units_and_the_order(
    place: int, before: float, turn: float, sign: int, unit: float, random: Any
) -> None:
    curve = bent(place / 19, before, before + sign * turn)
    points = [(x, curve(x) * unit) for x in (k / 19 for k in range(20))]
    random.shuffle(points)
    assert elbow([*points, (0.5, math.nan), (math.inf, 1.0)]) == place / 19


def test_a_smooth_curve_bends_where_its_slope_is_that_of_the_chord() -> None:
    points = [(k / 300, (k / 300) ** 3) for k in range(301)]
    assert abs(elbow(points) - 3**-0.5) <= 1 / 300  # 3 x**2 = 1


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0.0, 1.0)],
        [(0.0, 1.0), (1.0, 9.0)],
        [(k * 0.1, 7.0 - 0.3 * k) for k in range(11)],
        [(k * 0.1, 0.7) for k in range(11)],
        [(2.0, 1.0), (2.0, 5.0), (2.0, 3.0)],
    ],
)
def test_a_straight_curve_has_no_elbow(points: list[tuple[float, float]]) -> None:
    assert math.isnan(elbow(points))
    assert "elbow" not in texts(
        root_of([Line("a", tuple(points))], marks=((elbow(points), "elbow"),))
    )
