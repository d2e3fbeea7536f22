"""Line plots as one SVG image that is readable in greyscale, with no label on top of a line.

Names of lines and levels are to the right of the plot, each level with the end of its line; names
of marks are above the plot.
"""

import math
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeVar

from headwise.drawing.html import FONT, INK, Html, label_width, svg_image, svg_text, tag

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colour-blind-safe palette, without yellow, which is faint on white."""
MARKERS = (
    "M1.1 0A1.1 1.1 0 1 1-1.1 0A1.1 1.1 0 1 1 1.1 0Z",
    *("M-1-1H1V1H-1Z", "M0-1.3L1.2 .9H-1.2Z", "M0-1.4L1.4 0L0 1.4L-1.4 0Z"),
    *("M0 1.3L1.2-.9H-1.2Z", "M-1.2-.4H-.4V-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2Z"),
    *("M-1.2-1.2L0-.4L1.2-1.2V1.2L0 .4L-1.2 1.2Z", "M-1.2-.6H1.2V.6H-1.2Z"),
)
"""Shapes centred at (0, 0), one more than colours, so that no pair repeats within 56 lines."""
PLOT_WIDTH, PLOT_HEIGHT, EDGE, LEADING = 440.0, 280.0, 14.0, 15.0
KEY = 52.0
"""Distance from the plot to the names on its right, with space for a leader line and a sample."""
MARKER_SIZE, MOST_MARKERS, MOST_STEPS, MOST_LETTERS = 3, 24, 6, 76
LARGEST, TINY = 1e250, 1e-250
"""Larger numbers are left out like infinities, because a margin around them would overflow."""
GREY, FAINT = "#6a6a6a", "#e4e4e4"

Number = float | int  # the type checks in the tests do not accept an int as a float
Point = tuple[Number, Number]
Named = tuple[tuple[Number, str], ...]
_Any = TypeVar("_Any")


@dataclass(frozen=True)
class Line:
    """Points in the order they are joined, and the low and high ends of the spread at each."""

    name: str
    points: tuple[Point, ...]
    spread: tuple[Point, ...] | None = None
    is_dashed: bool = False
    has_bars: bool = False
    """Whether the spread is drawn as error bars, for discrete x values, instead of a band."""


def elbow(points: Iterable[Point]) -> float:
    """The smallest x where a curve is farthest from the chord between its ends; NaN if straight.

    This is Kneedle without smoothing (https://doi.org/10.1109/ICDCSW.2011.20). The units of the
    axes do not matter.

    >>> elbow([(0.0, 0.0), (1.0, 0.1), (2.0, 0.2), (3.0, 4.0)])
    2.0
    """
    known = sorted(point for point in points if all(map(_is_shown, point)))
    if not known or known[0][0] == known[-1][0]:
        return math.nan
    (left, first), (right, last) = known[0], known[-1]
    chord = [first + (last - first) * ((x - left) / (right - left)) for x, _ in known]
    away = [abs(y - straight) for (_, y), straight in zip(known, chord, strict=True)]
    rounding = 4 * sys.float_info.epsilon * max(abs(y) for _, y in known)
    return known[away.index(max(away))][0] if max(away) > rounding else math.nan


def curves_svg(  # noqa: PLR0913 - all but the first by keyword
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    marks: Named = (),
    levels: Named = (),
    x_names: Named = (),
    is_percent_x: bool = False,
    log_y: bool = False,
) -> str:
    """The lines in one image, with vertical marks and horizontal levels.

    Points with numbers that are not finite, or with `log_y` not positive, leave a gap in the line.
    With `is_percent_x`, an x of 1 is written as 100%. `x_names` replaces the ticks of the x axis.
    """
    marks = tuple(mark for mark in marks if _is_shown(mark[0]))
    levels = tuple(level for level in levels if _is_shown(level[0], is_log=log_y))
    x_names = tuple(name for name in x_names if _is_shown(name[0]))
    heading = textwrap.wrap(title, MOST_LETTERS)
    low, high = _y_range(lines, levels, log_y)
    y_names = tick_labels(PlotAxis(low, high, 0.0, 1.0, log_y).ticks(), is_even=not log_y)
    left = EDGE + LEADING + label_width(y_names)
    x = PlotAxis(*_x_range(lines, marks, log_y), left, left + PLOT_WIDTH)
    placed = _place_marks(x, marks)
    rows = max((mark.row for mark in placed), default=-1) + 1
    top = EDGE + LEADING * (len(heading) + rows) + 8
    bottom = top + max(PLOT_HEIGHT, LEADING * (len(lines) + len(levels)))
    frame = _Frame(x, PlotAxis(low, high, bottom, top, log_y))
    x_labels = tick_labels(x.ticks(), is_percent=is_percent_x)
    is_empty = not any(point for line in lines for point in frame.points(line))
    entries = _key_entries(frame, lines, levels)
    parts = [
        *(svg_text(left, EDGE + FONT + row * LEADING, line, font_weight="bold")
          for row, line in enumerate(heading)),
        *_draw_axes(frame, y_names, x_names or zip(x.ticks(), x_labels, strict=True)),
        *_draw_labels(frame, x_label, y_label, is_empty=is_empty),
        *(part for mark in placed for part in _draw_mark(frame, mark)),
        *(_stroke(f"M{x.start:.1f} {frame.y.place(at):.1f}H{x.end:.1f}", GREY, "4 4")
          for at, _ in levels),
        *(part for place, line in enumerate(lines) for part in _draw_line(frame, line, place)),
        *_draw_key(frame, entries),
    ]  # fmt: skip
    key_end = x.end + KEY + label_width([entry.name for entry in entries])
    mark_ends = (mark.x + label_width([mark.name]) for mark in placed)
    right = max(key_end, left + label_width(heading), *mark_ends)
    return svg_image(title, right + EDGE, bottom + 2.5 * LEADING + EDGE, *parts)


# Numbers: which ones are drawn, where, and their labels.


@dataclass(frozen=True)
class PlotAxis:
    """An axis for numbers from `low` to `high`, drawn from `start` to `end` in the image."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: Number) -> float:
        """Coordinate of a number in the image; the nearer end of the axis if it is beyond that."""
        value, low, high = min(max(value, self.low), self.high), self.low, self.high
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        return self.start + (self.end - self.start) * ((value - low) / (high - low))

    def ticks(self) -> list[float]:
        """Two or more round numbers on the axis, with at most six steps between them.

        On a log axis they are powers of ten, plus 2 and 5 times each if there are only a few.

        >>> PlotAxis(0.0, 47.0, start=0.0, end=1.0).ticks()
        [0.0, 10.0, 20.0, 30.0, 40.0]
        """
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            powers = range(first, last + 1, -(-(last - first) // MOST_STEPS))
            factors = (1, 2, 5) if last - first < 3 else (1,)
            values = (factor * 10.0**power for power in powers for factor in factors)
            ticks = [value for value in values if self.low <= value <= self.high]
            if len(ticks) > 1:
                return ticks
        step = _tick_step(self.low, self.high)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]


@dataclass(frozen=True)
class _Frame:
    """The two axes of a plot; y grows upwards, so its axis starts at the bottom."""

    x: PlotAxis
    y: PlotAxis

    def at(self, x: Number, y: Number) -> Point | None:
        """Coordinates of a point in the image; None if it cannot be drawn."""
        can_draw = _is_shown(x) and _is_shown(y, is_log=self.y.is_log)
        return (self.x.place(x), self.y.place(y)) if can_draw else None

    def points(self, line: Line) -> list[Point | None]:
        return [self.at(x, y) for x, y in line.points]

    def band(self, line: Line) -> list[tuple[Point, Point] | None]:
        """Coordinates of the spread's two ends at each point; None if they cannot be drawn."""
        ends: list[tuple[Point, Point] | None] = []
        for (x, _), (low, high) in zip(line.points, line.spread or (), strict=False):
            upper = self.at(x, high) if low <= high else None
            ends.append(((upper[0], self.y.place(low)), upper) if upper else None)
        return ends


def _is_shown(value: Number, *, is_log: bool = False) -> bool:
    return abs(value) < LARGEST and (value > TINY or not is_log)


def _tick_step(low: float, high: float) -> float:
    """The smallest round step that divides the range into at most MOST_STEPS parts."""
    least = (high - low) / MOST_STEPS
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10, 20) if times * power >= least)


def tick_labels(
    values: Sequence[float], *, is_even: bool = True, is_percent: bool = False
) -> list[str]:
    """Tick labels; with `is_even`, all have the same number of decimals."""
    unit, sign = (100, "%") if is_percent else (1, "")
    texts = [f"{value * unit:.10g}" for value in values]
    if is_even and not any("e" in text for text in texts):
        decimals = max(len(text.partition(".")[2]) for text in texts)
        texts = [f"{value * unit:.{decimals}f}" for value in values]
    return [text.replace("-", "\N{MINUS SIGN}") + sign for text in texts]


def _widen(values: Sequence[Number], least: float = TINY) -> Point:
    """The smallest and largest value, moved apart if they differ by at most `least`."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    size = max(abs(low), abs(high))
    if high - low > max(1e-7 * size, least):  # closer values need ticks with too many digits
        return low, high
    around = 0.1 * size if size > least else 1.0
    return low - around, high + around


def _x_range(lines: Sequence[Line], marks: Named, is_log: bool) -> Point:
    points = [point for line in lines for point in line.points]
    known = [x for x, y in points if _is_shown(x) and _is_shown(y, is_log=is_log)]
    low, high = _widen([*known, *(at for at, _ in marks)])
    return low - 0.02 * (high - low), high + 0.02 * (high - low)


def _y_range(lines: Sequence[Line], levels: Named, is_log: bool) -> Point:
    """Ends of the y axis: the nearest ticks around the values, or a small margin on a log axis."""
    values = [at for at, _ in levels]
    for line in lines:
        spread = line.spread or [(y, y) for _, y in line.points]
        for (x, y), pair in zip(line.points, spread, strict=True):
            values += [end for end in (y, *pair) if _is_shown(x) and _is_shown(end, is_log=is_log)]
    if is_log:
        low, high = _widen([math.log(value) for value in values], 1e-6)
        margin = 0.04 * (high - low)
        return math.exp(low - margin), math.exp(high + margin)
    low, high = _widen(values)
    step = _tick_step(low, high)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


# Names: placed so that none overlaps a line or another name.


class _Entry(NamedTuple):
    """The name of a line, to the right of the plot, with a sample of the line."""

    height: float
    name: str
    colour: str
    sample: Html
    is_at_end: bool = True  # whether the line reaches the right end of the plot


class _Mark(NamedTuple):
    """The name of a vertical line, above the plot and to the right of the line."""

    name: str
    x: float
    row: int  # counted upwards


def _key_entries(frame: _Frame, lines: Sequence[Line], levels: Named) -> list[_Entry]:
    places = [[point for point in frame.points(line) if point] for line in lines]
    right = max((x for points in places for x, _ in points), default=0.0)
    entries = []
    for place, (line, points) in enumerate(zip(lines, places, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        sample = _stroke("M0 0H22", colour, _dashes(line), 1.8) + _marker(place, (11.0, 0.0))
        name = line.name if points else f"{line.name} (no points)"
        x, y = points[-1] if points else (math.nan, frame.y.start)
        entries.append(_Entry(y, name, colour, Html(sample), is_at_end=x == right))
    sample = _stroke("M0 0H22", GREY, "4 4")
    return entries + [_Entry(frame.y.place(at), name, GREY, sample) for at, name in levels]


def _spread_out(best: Sequence[float], low: float, high: float) -> list[float]:
    """Sorted heights, moved at least a line of text apart, between `low` and `high`.

    >>> _spread_out([10.0, 12.0, 90.0], 0.0, 92.0)
    [10.0, 25.0, 84.5]
    """
    heights: list[float] = []
    for height in best:
        least = heights[-1] + LEADING if heights else low + LEADING / 2
        heights.append(max(height, least))
    most = high - LEADING / 2
    for place in reversed(range(len(heights))):
        heights[place] = min(heights[place], most)
        most = heights[place] - LEADING
    return heights


def _place_marks(x: PlotAxis, marks: Named) -> list[_Mark]:
    """The marks, each in a row above the marks to its right that its name would overlap."""
    placed: list[_Mark] = []
    for at, name in sorted(marks, reverse=True):
        here = x.place(at)
        below = [mark.row for mark in placed if mark.x < here + label_width([name])]
        placed.append(_Mark(name, here, max(below, default=-1) + 1))
    return placed


# Drawing: every function returns SVG elements.


def _draw_line(frame: _Frame, line: Line, place: int) -> Iterator[Html]:
    colour = COLOURS[place % len(COLOURS)]
    for band in _runs(frame.band(line)):
        if line.has_bars:
            for (x, low), (_, high) in band:
                ends = f"M{x - 4:.1f} {high:.1f}h8M{x - 4:.1f} {low:.1f}h8"
                yield _stroke(f"M{x:.1f} {low:.1f}V{high:.1f}{ends}", colour, width=1.2)
        else:
            around = [high for _, high in band] + [low for low, _ in reversed(band)]
            yield tag("path", d=f"M{_path(around)}Z", fill=colour, fill_opacity=0.16)
    for run in _runs(frame.points(line)):
        yield _stroke(f"M{_path(run)}h0", colour, _dashes(line), 1.8)
    pairs = zip(line.points, frame.points(line), strict=True)
    places = [(values, point) for values, point in pairs if point]
    for (x, y), point in places[:: -(-len(places) // MOST_MARKERS) or 1]:
        yield _marker(place, point, tag("title", f"{line.name}: {x:.4g}, {y:.4g}"))


def _runs(items: Iterable[_Any | None]) -> Iterator[list[_Any]]:
    """Runs of consecutive items that are not None."""
    for is_run, group in groupby(items, key=lambda item: item is not None):
        if is_run:
            yield [item for item in group if item is not None]


def _draw_axes(
    frame: _Frame, y_names: Sequence[str], x_names: Iterable[tuple[Number, str]]
) -> Iterator[Html]:
    x, y = frame.x, frame.y
    for at, name in zip(y.ticks(), y_names, strict=True):
        here = y.place(at)
        yield _stroke(f"M{x.start:.1f} {here:.1f}H{x.end:.1f}", FAINT)
        yield svg_text(x.start - 6, here + FONT * 0.36, name, "end")
    for at, name in x_names:
        here = x.place(at)
        yield _stroke(f"M{here:.1f} {y.start:.1f}v4", INK)
        yield svg_text(here, y.start + 4 + FONT, name, "middle")
    yield _stroke(f"M{x.start:.1f} {y.end:.1f}V{y.start:.1f}H{x.end:.1f}", INK)


def _draw_labels(frame: _Frame, x_label: str, y_label: str, *, is_empty: bool) -> Iterator[Html]:
    middle_x, middle_y = (frame.x.start + frame.x.end) / 2, (frame.y.start + frame.y.end) / 2
    yield svg_text(middle_x, frame.y.start + 8 + 2 * FONT + 4, x_label, "middle")
    turned = f"translate({EDGE + FONT * 0.6:.1f} {middle_y:.1f}) rotate(-90)"
    yield tag("text", y_label, transform=turned, text_anchor="middle")
    if is_empty:
        yield svg_text(middle_x, middle_y - LEADING / 2, "no points to draw", "middle")


def _draw_mark(frame: _Frame, mark: _Mark) -> Iterator[Html]:
    bottom = frame.y.end - 4 - mark.row * LEADING
    path = f"M{mark.x:.1f} {frame.y.start:.1f}V{bottom - FONT * 0.8:.1f}"
    yield _stroke(path, GREY, "1.5 3")
    yield svg_text(mark.x + 4, bottom, mark.name)


def _draw_key(frame: _Frame, entries: Sequence[_Entry]) -> Iterator[Html]:
    """The names on the right, with samples; a moved name has a leader from the end of its line."""
    ordered = sorted(entries, key=lambda entry: entry.height)
    right, start = frame.x.end, frame.x.end + KEY - 30
    heights = _spread_out([entry.height for entry in ordered], frame.y.end, frame.y.start)
    for entry, y in zip(ordered, heights, strict=True):
        if entry.is_at_end and abs(y - entry.height) > LEADING / 2:
            path = f"M{right + 3:.1f} {entry.height:.1f}L{start - 4:.1f} {y:.1f}"
            yield _stroke(path, entry.colour, width=0.6)
        yield tag("g", entry.sample, transform=f"translate({start:.1f} {y:.1f})")
        yield svg_text(start + 28, y + FONT * 0.36, entry.name)


def _dashes(line: Line) -> str:
    return "6 4" if line.is_dashed else ""


def _path(points: Iterable[Point]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _marker(place: int, at: Point, inner: Html | str = "") -> Html:
    """The marker of line number `place`: filled until every shape has been used, then hollow."""
    colour = COLOURS[place % len(COLOURS)]
    fill = "#ffffff" if place // len(MARKERS) % 2 else colour
    moved = f"translate({at[0]:.1f} {at[1]:.1f}) scale({MARKER_SIZE})"
    shape = MARKERS[place % len(MARKERS)]
    return tag("path", inner, d=shape, fill=fill, stroke=colour, stroke_width=0.4, transform=moved)


def _stroke(path: str, colour: str, dashes: str = "", width: float = 1.0) -> Html:
    """A path without a fill; `dashes` are the lengths of dashes and gaps."""
    more = {"stroke_dasharray": dashes} if dashes else {}
    return tag(
        "path", d=path, fill="none", stroke=colour, stroke_width=width,
        stroke_linecap="round", stroke_linejoin="round", **more,
    )  # fmt: skip
