"""Effect grids show the sign by hue and the size by strength, and name every head."""

import math

from headwise.drawing.effect_grid import effect_colour, effect_svg


def lightness(colour: str) -> int:
    return sum(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def test_larger_effects_are_darker_and_signs_differ() -> None:
    for sign in (1, -1):
        shades = [lightness(effect_colour(sign * share)) for share in (0, 0.1, 0.5, 1)]
        assert shades == sorted(shades, reverse=True)
    blue, red = effect_colour(0.4), effect_colour(-0.4)
    assert int(blue[1:3], 16) < int(blue[5:7], 16)
    assert int(red[1:3], 16) > int(red[5:7], 16)


def test_missing_heads_are_grey_and_every_head_has_a_tooltip() -> None:
    grids = {"encoder": [[0.5, -0.25, math.nan]], "decoder": [[0.0], [0.125]]}
    drawn = effect_svg(grids, "a <title>")
    assert "<title>encoder.L0H1: -0.250</title>" in drawn
    assert "<title>decoder.L1H0: 0.125</title>" in drawn
    assert drawn.count("#cccccc") == 1
    assert "a &lt;title&gt;" in drawn


def test_grids_without_effects_can_be_drawn() -> None:
    assert "0.000" in effect_svg({"": [[0.0, 0.0]]}, "nothing")
