"""Heat maps as SVG: well formed, escaped, sized."""

import xml.etree.ElementTree as ET

import pytest

from headwise.drawing.heatmap import HeatMap, colour, heat_svg
from headwise.errors import OptionError

SVG = "{http://www.w3.org/2000/svg}"


def cells(svg: str) -> list[ET.Element]:
    return [
        rect
        for rect in ET.fromstring(svg).iter(f"{SVG}rect")
        if rect.find(f"{SVG}title") is not None
    ]


def test_every_number_has_a_cell_with_its_value_as_tooltip() -> None:
    heat_map = HeatMap("L0H1", [[0.25, 0.5, 0.0], [1.0, 0.0, 0.125]], ["a", "<b>"], ["x", "&", "z"])
    squares = cells(heat_svg([heat_map, heat_map, heat_map]))
    assert len(squares) == 3 * 6
    assert squares[3].find(f"{SVG}title").text == "<b> -> x: 1.000"
    assert squares[3].get("fill") == colour(1.0) and squares[2].get("fill") == colour(0.0)


def test_characters_that_xml_forbids_are_replaced() -> None:
    heat_map = HeatMap("L0\x01", [[1.0]], ["a\x00\x1bb"], ["\ufffe\ud800"])
    squares = cells(heat_svg([heat_map]))
    assert squares[0].find(f"{SVG}title").text == "a\ufffd\ufffdb -> \ufffd\ufffd: 1.000"


def test_maps_are_inside_the_image_and_do_not_overlap() -> None:
    heat_map = HeatMap("L0H1", [[0.5] * 4] * 3, ["a", "bb", "ccc"], ["d", "e", "f", "long label"])
    root = ET.fromstring(heat_svg([heat_map] * 5))
    _, _, width, height = map(float, root.get("viewBox", "").split())
    corners = []
    for group in root.findall(f"{SVG}g"):
        x, y = map(float, group.get("transform", "")[len("translate(") : -1].split())
        corners.append((x, y))
        assert x + heat_map.width <= width and y + heat_map.height <= height
    assert len(set(corners)) == 5
    for x, y in corners:
        for other_x, other_y in corners:
            if (x, y) != (other_x, other_y):
                assert abs(x - other_x) >= heat_map.width or abs(y - other_y) >= heat_map.height


def test_too_many_tokens_raise() -> None:
    names = [str(place) for place in range(97)]
    with pytest.raises(OptionError, match=r"97.*96"):
        heat_svg([HeatMap("x", [[0.0] * 97] * 97, names, names)])
