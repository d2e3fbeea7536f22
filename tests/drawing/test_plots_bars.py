"""Bars instead of a band, and named ticks: what is drawn, and where."""

import math
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from headwise.drawing.plots import COLOURS, INK, Line, curves_svg

SVG = "{http://www.w3.org/2000/svg}"
NAMES: dict[str, Any] = {"title": "Accuracy", "x_label": "heads", "y_label": "accuracy"}
NUMBER = r"(-?[0-9]+\.[0-9])"
BAR = re.compile(
    rf"M{NUMBER} {NUMBER}V{NUMBER}M{NUMBER} {NUMBER}h8M{NUMBER} {NUMBER}h8"
)  # from low to high, and a short line across the high and the low end
POINTS = ((0.0, 0.5), (1.0, 0.75), (3.0, 0.25))
SPREAD = ((0.25, 0.625), (0.75, 1.0), (0.0, 0.5))


def root_of(*lines: Line, **options: Any) -> ET.Element:
    return ET.fromstring(curves_svg(lines, **(NAMES | options)))


def bars(root: ET.Element, place: int = 0) -> list[tuple[float, ...]]:
    """The numbers of every bar of a line."""
    paths = [path for path in root.iter(f"{SVG}path") if path.get("stroke") == COLOURS[place]]
    matches = [BAR.fullmatch(path.get("d", "")) for path in paths]
    return [tuple(map(float, path.groups())) for path in matches if path]


def bands(root: ET.Element) -> list[ET.Element]:
    return [path for path in root.iter(f"{SVG}path") if path.get("fill-opacity")]


def centres(root: ET.Element) -> list[tuple[float, float]]:
    """Positions of the points' markers."""
    marked = [path for path in root.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
    moved = [
        re.match(rf"translate\({NUMBER} {NUMBER}\)", path.get("transform", "")) for path in marked
    ]
    return [(float(path[1]), float(path[2])) for path in moved if path]


def height(root: ET.Element, value: float) -> float:
    """Where a value of y is, from two markers of known values."""
    (_, first), (_, second), *_ = centres(root)
    return first + (second - first) * (value - POINTS[0][1]) / (POINTS[1][1] - POINTS[0][1])


def ticks(root: ET.Element) -> dict[str, float]:
    """Labels below the plot in the row of its ticks, and the x of each."""
    short = [
        element.get("d", "") for element in root.iter(f"{SVG}path") if element.get("stroke") == INK
    ]
    places = [re.fullmatch(rf"M{NUMBER} {NUMBER}v4", element) for element in short]
    at = {float(element[1]) for element in places if element}
    texts = [
        element for element in root.iter(f"{SVG}text") if element.get("text-anchor") == "middle"
    ]
    labels = [element for element in texts if element.get("x") and element.text != NAMES["x_label"]]
    places_of_labels = {element.text or "": float(element.get("x", "")) for element in labels}
    assert set(places_of_labels.values()) == at, "a tick has no name, or a name no tick"
    return places_of_labels


def test_every_point_has_a_bar_from_its_low_to_its_high_end() -> None:
    root = root_of(Line("a", POINTS, SPREAD, has_bars=True))
    numbers = bars(root)
    assert len(numbers) == 3
    for (x, _), (low, high), bar in zip(centres(root), SPREAD, numbers, strict=True):
        bottom, top = height(root, low), height(root, high)
        expected = (x, bottom, top, x - 4, top, x - 4, bottom)
        assert bar == pytest.approx(expected, abs=0.15)  # all are rounded to a tenth


def test_bars_replace_the_band() -> None:
    with_bars = root_of(Line("a", POINTS, SPREAD, has_bars=True))
    with_band = root_of(Line("a", POINTS, SPREAD))
    assert (len(bars(with_bars)), len(bands(with_bars))) == (3, 0)
    assert (len(bars(with_band)), len(bands(with_band))) == (0, 1)
    assert centres(with_bars) == centres(with_band)


def test_bars_have_the_colour_of_their_line() -> None:
    lines = [
        Line("a", POINTS, SPREAD, has_bars=True),
        Line("b", POINTS[:2], SPREAD[:2], has_bars=True),
        Line("c", POINTS, has_bars=True),
    ]
    root = root_of(*lines)
    assert [len(bars(root, place)) for place in range(3)] == [3, 2, 0]


def test_unknown_spread_has_no_bar_and_removes_no_other() -> None:
    spread = ((math.nan, 0.625), (0.75, 1.0), (0.0, math.inf))
    root = root_of(Line("a", POINTS, spread, has_bars=True))
    ((x, *_),) = bars(root)
    assert x == centres(root)[1][0]
    assert len(centres(root)) == 3


def test_bars_of_one_value_are_drawn() -> None:
    root = root_of(Line("a", POINTS, tuple((y, y) for _, y in POINTS), has_bars=True))
    assert [bar[:3] for bar in bars(root)] == [(x, y, y) for x, y in centres(root)]


def test_the_ends_of_bars_are_on_the_plot() -> None:
    root = root_of(Line("a", POINTS, ((-3.0, 0.5), (0.0, 5.0), (0.0, 0.25)), has_bars=True))
    (_, bottom, _, *_), (_, _, top, *_), _ = bars(root)
    assert bottom == pytest.approx(height(root, -3.0), abs=1.0)  # not cut at the axis' end
    assert top == pytest.approx(height(root, 5.0), abs=1.0)


def test_named_ticks_are_at_their_places() -> None:
    names = ((0.0, "1"), (1.0, "two"), (3.0, "8 & <more>"))
    root = root_of(Line("a", POINTS), x_names=names)
    places = ticks(root)
    assert list(places) == ["1", "two", "8 & <more>"]
    assert list(places.values()) == [x for x, _ in centres(root)]


def test_without_names_ticks_are_round_numbers() -> None:
    root = root_of(Line("a", POINTS))
    places = ticks(root)
    assert list(places) == ["0", "1", "2", "3"]
    assert [places[label] for label in ("0", "1", "3")] == [x for x, _ in centres(root)]


def test_tick_names_do_not_move_points() -> None:
    lines = [Line("a", POINTS, SPREAD, has_bars=True)]
    named = root_of(*lines, x_names=((0.0, "one"), (3.0, "eight")))
    assert centres(named) == centres(root_of(*lines))
    assert set(ticks(named)) == {"one", "eight"}
