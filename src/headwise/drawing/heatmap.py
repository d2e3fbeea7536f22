"""Heat maps of attention weights as one SVG image, without scripts or embedded fonts.

In: labelled matrices. Out: SVG text, also for other plots the width of labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.drawing.html import to_html
from headwise.errors import OptionError

RAMP = (
    *("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6"),
    *("#4292c6", "#2171b5", "#08519c", "#08306b"),
)
"""ColorBrewer's Blues, from 0 to the largest number in the image."""
CELL, FONT, GAP = 18, 11, 26
LETTER = 0.58
"""Width of a letter in a sans-serif font, in font sizes, on average."""
MOST_LABELS = 96
"""With more, labels cannot be read, and a map has over nine thousand cells."""


@dataclass(frozen=True)
class HeatMap:
    """A matrix of numbers from 0 up, with a name and a label for every row and column."""

    name: str
    values: Sequence[Sequence[float]]
    rows: Sequence[str]
    columns: Sequence[str]

    @property
    def has_cells(self) -> bool:
        """Whether there is a number to draw."""
        return bool(self.rows) and bool(self.columns)

    @property
    def left(self) -> int:
        """Width of the row labels."""
        return room(self.rows)

    @property
    def top(self) -> int:
        """Height of the name and the column labels."""
        return room(self.columns) + FONT + 8

    @property
    def width(self) -> int:
        """Width of the whole map."""
        return self.left + CELL * len(self.columns)

    @property
    def height(self) -> int:
        """Height of the whole map."""
        return self.top + CELL * len(self.rows)

    def draw(self, largest: float) -> str:
        """SVG of the map, its top left corner at 0, 0."""
        middle = self.left + CELL * len(self.columns) / 2
        parts = [
            f'<text x="{middle:.0f}" y="{FONT}" text-anchor="middle" font-weight="bold">'
            f"{to_html(self.name)}</text>"
        ]
        for row, name in enumerate(self.rows):
            y = self.top + CELL * (row + 0.5) + FONT * 0.36
            parts.append(
                f'<text x="{self.left - 5:.0f}" y="{y:.1f}" text-anchor="end">'
                f"{to_html(name)}</text>"
            )
        for column, name in enumerate(self.columns):
            x = self.left + CELL * (column + 0.5) + FONT * 0.36
            parts.append(
                f'<text transform="translate({x:.1f} {self.top - 5:.0f}) rotate(-90)">'
                f"{to_html(name)}</text>"
            )
        parts += self.cells(largest)
        parts.append(
            f'<rect x="{self.left:.0f}" y="{self.top:.0f}" width="{CELL * len(self.columns)}" '
            f'height="{CELL * len(self.rows)}" fill="none" stroke="#8a8a8a" stroke-width="0.6"/>'
        )
        return "".join(parts)

    def cells(self, largest: float) -> list[str]:
        """A square for every number, with the number as its tooltip."""
        squares = []
        for row, (name, line) in enumerate(zip(self.rows, self.values, strict=True)):
            for column, (other, value) in enumerate(zip(self.columns, line, strict=True)):
                label = to_html(f"{name} -> {other}: {value:.3f}")
                squares.append(
                    f'<rect x="{round(self.left) + CELL * column}" '
                    f'y="{round(self.top) + CELL * row}" width="{CELL}" height="{CELL}" '
                    f'fill="{colour(value / largest)}"><title>{label}</title></rect>'
                )
        return squares


def colour(share: float) -> str:
    """The colour of a number, given as a share of the largest.

    >>> colour(0.0), colour(1.0)
    ('#f7fbff', '#08306b')
    """
    place = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    parts = []
    for at in (1, 3, 5):
        start, end = int(RAMP[low][at : at + 2], 16), int(RAMP[low + 1][at : at + 2], 16)
        parts.append(round(start + (end - start) * (place - low)))
    return "#{:02x}{:02x}{:02x}".format(*parts)


def room(labels: Sequence[str]) -> int:
    """Width of the longest label."""
    return round(max(map(len, labels), default=0) * FONT * LETTER + 8)


def heat_svg(maps: Sequence[HeatMap]) -> str:
    """All maps in one image that is as square as possible."""
    most = max(max(len(heat_map.rows), len(heat_map.columns)) for heat_map in maps)
    if most > MOST_LABELS:
        raise OptionError(
            f"{most} tokens are too many for an image: trace at most {MOST_LABELS}, or merge "
            "pieces into words"
        )
    columns = min(round(len(maps) ** 0.5 + 0.499), len(maps))
    rows = [row for heat_map in maps for row in heat_map.values]
    largest = max((max(row, default=0) for row in rows), default=0) or 1.0
    width, height = (
        max(heat_map.width for heat_map in maps),
        max(heat_map.height for heat_map in maps),
    )
    placed = [
        f'<g transform="translate({GAP / 2 + (place % columns) * (width + GAP):.0f} '
        f'{GAP / 2 + (place // columns) * (height + GAP):.0f})">{heat_map.draw(largest)}</g>'
        for place, heat_map in enumerate(maps)
    ]
    whole, total = columns * (width + GAP), -(-len(maps) // columns) * (height + GAP)
    names = to_html(", ".join(heat_map.name for heat_map in maps))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole + 60:.0f} {total:.0f}" '
        f'width="{whole + 60:.0f}" height="{total:.0f}" role="img" font-size="{FONT}" '
        f'font-family="Helvetica, Arial, sans-serif" fill="#1b1b1b">'
        f"<title>Attention weights of {names}</title>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(placed)}'
        f"{_colour_scale(largest, x=whole, height=height)}</svg>\n"
    )


def _colour_scale(largest: float, *, x: int, height: int) -> str:
    steps, top = 32, GAP / 2 + FONT + 8
    length = min(160.0, height - FONT - 8)
    each = length / steps
    cells = "".join(
        f'<rect x="{x:.0f}" y="{top + length - each * (step + 1):.2f}" width="10" '
        f'height="{each + 0.3:.2f}" fill="{colour((step + 0.5) / steps)}"/>'
        for step in range(steps)
    )
    return (
        f'{cells}<text x="{x + 14:.0f}" y="{top + FONT * 0.7:.1f}">{largest:.2f}</text>'
        f'<text x="{x + 14:.0f}" y="{top + length:.1f}">0</text>'
    )
