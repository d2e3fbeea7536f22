"""Effect grids: signed numbers by layer and head as one SVG image, blue above zero, red below."""

import math
from collections.abc import Mapping, Sequence

from headwise.drawing.heatmap import ramp_colour
from headwise.drawing.html import FONT, Html, label_width, svg_image, svg_text, tag, to_html

POSITIVE = ("#f7f7f7", "#d1e5f0", "#92c5de", "#4393c3", "#2166ac", "#053061")
NEGATIVE = ("#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f")
"""ColorBrewer's RdBu from its middle, in each direction."""
CELL, GAP = 20, 22


def effect_colour(share: float) -> str:
    """The colour of a number that is this share of the largest, -1 to 1; grey for NaN.

    The colour follows the square root of the share, so that small effects can be seen, too.

    >>> effect_colour(0.0), effect_colour(1.0), effect_colour(-1.0)
    ('#f7f7f7', '#053061', '#67001f')
    """
    if math.isnan(share):
        return "#cccccc"
    return ramp_colour(POSITIVE if share >= 0 else NEGATIVE, math.sqrt(abs(share)))


def effect_svg(grids: Mapping[str, Sequence[Sequence[float]]], title: str) -> str:
    """One grid per stack, below each other: a row per layer, a column per head, with tooltips."""
    numbers = [abs(value) for grid in grids.values() for row in grid for value in row]
    largest = max((value for value in numbers if not math.isnan(value)), default=0.0) or 1.0
    parts: list[Html] = [svg_text(GAP / 2, FONT + 4, title, font_weight="bold")]
    left, top, width = label_width(["L99"]) + GAP / 2, 2.0 * FONT + GAP, 0.0
    for stack, grid in grids.items():
        if stack:
            parts.append(svg_text(GAP / 2, top - 6, stack))
            top += FONT
        heads = max(map(len, grid), default=0)
        for head in range(heads):
            parts.append(svg_text(left + CELL * (head + 0.5), top - 4, f"H{head}", "middle"))
        for layer, row in enumerate(grid):
            y = top + CELL * layer
            parts.append(svg_text(left - 5, y + CELL / 2 + 0.36 * FONT, f"L{layer}", "end"))
            for head, value in enumerate(row):
                x, fill = left + CELL * head, effect_colour(value / largest)
                name = f"{stack}.L{layer}H{head}".lstrip(".")
                parts.append(
                    Html(
                        f'<rect x="{x:g}" y="{y:g}" width="{CELL - 1}" height="{CELL - 1}" '
                        f'fill="{fill}"><title>{to_html(f"{name}: {value:.3f}")}</title></rect>'
                    )
                )
        width = max(width, left + CELL * heads)
        top += CELL * len(grid) + GAP
    for step, share in enumerate((-1.0, -0.25, 0.0, 0.25, 1.0)):
        x = GAP / 2 + step * 56
        swatch = {"width": 12, "height": 12, "fill": effect_colour(share)}
        parts.append(tag("rect", x=x, y=top - 4, **swatch))
        parts.append(svg_text(x + 16, top + 6, f"{share * largest:.2f}"))
    width = max(width + GAP, 6 * len(title) + GAP, GAP + 5 * 56)
    return svg_image(title, width, top + GAP, *parts)
