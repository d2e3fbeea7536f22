"""Heat maps of attention weights as one SVG image, without scripts or embedded fonts."""

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.drawing.html import FONT, Html, label_width, svg_image, svg_text, tag, to_html
from headwise.errors import OptionError

RAMP = (
    *("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6"),
    *("#4292c6", "#2171b5", "#08519c", "#08306b"),
)
"""ColorBrewer's Blues, from 0 to the largest number in the image."""
CELL, GAP, SCALE_WIDTH, SCALE_STEPS = 18, 26, 60, 32
MOST_LABELS = 96
"""A map with more rows or columns would be unreadable, with over nine thousand cells."""


@dataclass(frozen=True)
class HeatMap:
    """A matrix of nonnegative numbers with a name, and a label for every row and column."""

    name: str
    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]

    @property
    def width(self) -> int:
        """Width of the row labels and the cells."""
        return label_width(self.rows) + CELL * len(self.columns)

    @property
    def height(self) -> int:
        """Height of the name, the column labels and the cells."""
        return FONT + 8 + label_width(self.columns) + CELL * len(self.rows)

    def draw(self, largest: float) -> list[Html]:
        """SVG elements of the map, with its top left corner at (0, 0); every cell has a tooltip."""
        size = {"width": CELL * len(self.columns), "height": CELL * len(self.rows)}
        left, top = self.width - size["width"], self.height - size["height"]
        middle = (CELL + 0.72 * FONT) / 2  # baseline of text centred in a cell
        parts = [svg_text((left + self.width) / 2, FONT, self.name, "middle", font_weight="bold")]
        for column, name in enumerate(self.columns):
            place = f"translate({left + CELL * column + middle:.1f} {top - 5}) rotate(-90)"
            parts.append(tag("text", name, transform=place))
        for row, (name, line) in enumerate(zip(self.rows, self.values, strict=True)):
            y = top + CELL * row
            parts.append(svg_text(left - 5, y + middle, name, "end"))
            for column, (other, value) in enumerate(zip(self.columns, line, strict=True)):
                cell = (
                    f'<rect x="{left + CELL * column}" y="{y}" width="{CELL}" height="{CELL}" '
                    f'fill="{colour(value / largest)}"><title>'
                    f"{to_html(f'{name} -> {other}: {value:.3f}')}</title></rect>"
                )
                parts.append(Html(cell))
        border = {"fill": "none", "stroke": "#8a8a8a", "stroke_width": 0.6}
        return [*parts, tag("rect", x=left, y=top, **size, **border)]


def colour(share: float) -> str:
    """The colour of a cell whose number is this share of the largest number.

    >>> colour(0.0), colour(1.0)
    ('#f7fbff', '#08306b')
    """
    return ramp_colour(RAMP, share)


def ramp_colour(ramp: Sequence[str], share: float) -> str:
    """The colour at this share of the way along a ramp of colours, 0 to 1."""
    place = min(max(share, 0.0), 1.0) * (len(ramp) - 1)
    low = min(int(place), len(ramp) - 2)
    parts = []
    for at in (1, 3, 5):
        start, end = int(ramp[low][at : at + 2], 16), int(ramp[low + 1][at : at + 2], 16)
        parts.append(round(start + (end - start) * (place - low)))
    return "#{:02x}{:02x}{:02x}".format(*parts)


def heat_svg(
    maps: Sequence[HeatMap], largest: float | None = None, *, has_scale: bool = True
) -> str:
    """All maps in one image, in a grid as square as possible, with a colour scale.

    The strongest colour stands for `largest`, by default the largest number in the maps.
    """
    most = max(max(len(heat_map.rows), len(heat_map.columns)) for heat_map in maps)
    if most > MOST_LABELS:
        raise OptionError(
            f"{most} tokens are too many for an image: trace at most {MOST_LABELS}, or merge "
            "pieces into words"
        )
    if largest is None:
        largest = max((max(row, default=0) for each in maps for row in each.values), default=0)
    largest = largest or 1.0
    num_columns = min(round(len(maps) ** 0.5 + 0.499), len(maps))
    num_rows = -(-len(maps) // num_columns)
    width = max(heat_map.width for heat_map in maps) + GAP
    height = max(heat_map.height for heat_map in maps) + GAP
    parts = []
    for place, heat_map in enumerate(maps):
        row, column = divmod(place, num_columns)
        corner = f"translate({GAP / 2 + column * width:.0f} {GAP / 2 + row * height:.0f})"
        parts.append(tag("g", *heat_map.draw(largest), transform=corner))
    title = f"Attention weights of {', '.join(heat_map.name for heat_map in maps)}"
    if not has_scale:
        return svg_image(title, num_columns * width, num_rows * height, *parts)
    x, top = num_columns * width, GAP / 2 + FONT + 8
    length = min(160.0, height - GAP - FONT - 8)
    step = length / SCALE_STEPS
    for place in range(SCALE_STEPS):
        y, fill = top + length - step * (place + 1), colour((place + 0.5) / SCALE_STEPS)
        size = {"width": 10, "height": f"{step + 0.3:.2f}"}
        parts.append(tag("rect", x=x, y=f"{y:.2f}", **size, fill=fill))
    parts.append(svg_text(x + 14, top + FONT * 0.7, f"{largest:.2f}"))
    parts.append(svg_text(x + 14, top + length, "0"))
    return svg_image(title, x + SCALE_WIDTH, num_rows * height, *parts)
