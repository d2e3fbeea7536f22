"""Traces as terminal tables, as a notebook fragment and as an HTML page.

In: a Trace, Maps or rows of weights. Out: rich tables, sentences, SVG and HTML.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text
from torch import Tensor

from headwise.drawing.heatmap import MOST_LABELS, HeatMap, heat_svg
from headwise.drawing.html import STYLE, Html, join_html, notebook_html, page, tag
from headwise.drawing.table import Table, is_small
from headwise.formats import format_rounded
from headwise.tracing.blur import Blur, Row, Sharpness
from headwise.tracing.maps import Maps
from headwise.tracing.record import Trace, TraceStep, closing_lines

SHOWN_HEADS = 4
"""Heads whose maps a notebook or a terminal shows by default."""
SHOWN_KEYS = 6
"""Keys whose weights the comparison with a single row shows."""
COLUMN_GAP = 3
"""Characters between two columns of a ruled table: padding and the place of a line."""


def steps_table(trace: Trace) -> RichTable:
    """Every step with its formula and its shape in words."""
    drawn = _steps(trace).to_rich()
    drawn.columns[0].no_wrap = drawn.columns[2].no_wrap = True
    return drawn


def _steps(trace: Trace) -> Table:
    rows = tuple((step.name, step.formula, step.shape) for step in trace.steps.values())
    return Table("", ("step", "formula", "shape"), rows)


def matrix(
    title: str, values: Tensor, rows: Sequence[str], columns: Sequence[str], *, digits: int = 2
) -> RenderableType:
    """A small matrix in full with its labels; a large one as its size and range."""
    if not is_small(*values.shape):
        finite = values[values.isfinite()]
        return (
            f"{title}: {values.shape[0]} x {values.shape[1]}, from {float(finite.min()):.3g} to "
            f"{float(finite.max()):.3g}, mean {float(finite.mean()):.3g}"
        )
    cells = [[format_rounded(value, digits) for value in row] for row in values.tolist()]
    return Matrix(title, tuple(rows), tuple(columns), cells)


@dataclass(frozen=True)
class Matrix:
    """A labelled matrix that wraps its columns onto further lines on a narrow terminal."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: list[list[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As many columns as fit, then the next ones below."""
        start = 0
        while start < len(self.columns):
            stop = start + 1
            while stop < len(self.columns) and self._width(start, stop + 1) <= options.max_width:
                stop += 1
            yield self._part(start, stop)
            start = stop

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """The width of all columns, at most the terminal's."""
        width = min(self._width(0, len(self.columns)), options.max_width)
        return Measurement(width, width)

    def _width(self, start: int, stop: int) -> int:
        sizes = [max(map(cell_len, self.rows))]
        for column in range(start, stop):
            longest = max(len(row[column]) for row in self.cells)
            sizes.append(max(cell_len(self.columns[column]), longest))
        return sum(sizes) + COLUMN_GAP * len(sizes) + 1

    def _part(self, start: int, stop: int) -> RichTable:
        title = self.title if start == 0 else f"{self.title}, continued"
        table = RichTable(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        table.add_column("")
        for column in self.columns[start:stop]:
            table.add_column(Text(column), justify="right")
        for name, row in zip(self.rows, self.cells, strict=True):
            table.add_row(Text(name), *row[start:stop])
        return table


def step_matrices(trace: Trace, step: TraceStep) -> list[RenderableType]:
    """The values of one step: a matrix per chosen head, or one for all."""
    return [matrix(*labelled) for labelled in trace.matrices(step)]


def map_tables(maps: Maps) -> Columns:
    """The weights of the chosen heads, side by side if they fit."""
    labels = maps.labels
    return Columns(
        [
            matrix(name, weights, labels.queries, labels.keys)
            for name, weights in zip(maps.heads, maps.weights, strict=True)
        ]
    )


def contributions_table(trace: Trace) -> RichTable:
    """Mean length of each head's contribution to the output, and its share."""
    leads = trace.shares_after.argmax(0).bincount(minlength=trace.num_heads)
    rows = tuple(
        (*row, str(int(leads[head]))) for head, row in enumerate(_contributions(trace).rows)
    )
    columns = (*_contributions(trace).columns, "largest in dimensions")
    return Table("", columns, rows, frozenset(columns[1:])).to_rich()


def _contributions(trace: Trace) -> Table:
    rows = tuple(
        (trace.name_of(head), str(trace.kv_head_of[head]), f"{length:.3f}", f"{share:.1%}")
        for head, (length, share) in enumerate(trace.lengths)
    )
    columns = ("head", "KV head", "mean length", "share")
    return Table("", columns, rows, frozenset(columns[1:]))


def shares_table(trace: Trace, most: int = 4) -> RichTable:
    """Share of each head in a few columns of the concat, evenly spaced, and of the output."""
    before, after = trace.shares_before, trace.shares_after
    count = min(most, after.shape[1])
    places = [round(at * (before.shape[1] - 1) / max(count - 1, 1)) for at in range(count)]
    concat, out = (
        (f"concat {place + 1}" for place in places),
        (f"out {n + 1}" for n in range(count)),
    )
    columns = ("head", *concat, *out)
    rows = []
    for head in range(trace.num_heads):
        shares = [*before[head, places].tolist(), *after[head, :count].tolist()]
        rows.append((trace.name_of(head), *(f"{share:.0%}" for share in shares)))
    return Table("", columns, tuple(rows), frozenset(columns[1:])).to_rich()


def blur_table(blur: Blur, single: Row | None = None) -> RichTable:
    """The heads' rows at one query, then the single row, by default the heads' average."""
    largest = [max(float(row.weights[key]) for row in blur.heads) for key in range(len(blur.keys))]
    best = sorted(range(len(blur.keys)), key=lambda key: -largest[key])
    keys = sorted(best[:SHOWN_KEYS])
    columns = (blur.query, *(blur.keys[key] for key in keys), "entropy", "largest")
    rows = tuple(
        (
            row.name,
            *(f"{float(row.weights[key]):.2f}" for key in keys),
            f"{row.entropy:.2f}",
            f"{row.largest:.2f}",
        )
        for row in (*blur.heads, single or blur.single)
    )
    drawn = Table("", columns, rows, frozenset(columns[1:])).to_rich()
    drawn.columns[0].justify, drawn.columns[0].no_wrap = "left", True
    drawn.rows[-1].style = "bold"
    return drawn


def sharpness_line(means: Sharpness) -> str:
    """A sentence that compares the heads' rows with the single row over all queries."""
    return (
        f"Averaged over all queries: a head's row has {means.entropy_of_heads:.2f} nats of entropy "
        f"and a largest weight of {means.largest_of_heads:.2f}; the single row has "
        f"{means.entropy_of_single:.2f} nats and {means.largest_of_single:.2f}."
    )


def dimensions_table(shapes: Iterable[tuple[str, str, Sequence[int]]]) -> RichTable:
    """The shape of every step; `shapes` has the name, axes and shape of each."""
    rows = tuple((step, str(list(shape)), axes) for step, axes, shape in shapes)
    return Table("", ("step", "shape", "axes"), rows).to_rich()


def heat_maps(maps: Maps) -> list[HeatMap]:
    """The map of each chosen head, for drawing."""
    labels = maps.labels
    pairs = zip(maps.heads, maps.weights.tolist(), strict=True)
    return [HeatMap(name, weights, labels.queries, labels.keys) for name, weights in pairs]


def maps_svg(maps: Maps) -> str:
    """The maps of all chosen heads in one image."""
    return heat_svg(heat_maps(maps))


def trace_fragment(trace: Trace) -> str:
    """HTML for a notebook: steps, a few maps, and what was checked."""
    maps = trace.maps()
    parts: list[Html] = [tag("h3", trace.title), _steps(trace).to_html()]
    if max(len(maps.labels.queries), len(maps.labels.keys)) <= MOST_LABELS:
        parts.append(Html(maps_svg(maps.first(SHOWN_HEADS))))
    return notebook_html(*parts, _checks_html(trace))


def trace_page(trace: Trace, maps: Maps) -> str:
    """A self-contained page: steps, maps, contributions of the heads, every small matrix."""
    reading = (
        "In a map, each row is a token that looks, the query, and each column a token that is "
        "looked at, the key."
    )
    parts = [
        tag("h1", trace.title),
        tag("p", tag("q", " ".join(trace.labels.queries))),
        _steps(trace).to_html(),
        tag("p", reading),
        Html(maps_svg(maps)),
        _checks_html(trace),
        tag("h2", "What each head adds to the output"),
        _contributions(trace).to_html(),
        *(_step_html(trace, step) for step in trace.steps.values()),
    ]
    return page(trace.title, STYLE, tag("body", *parts, class_="headwise"))


def _checks_html(trace: Trace) -> Html:
    return join_html(tag("p", line) for line in closing_lines(trace))


def _step_html(trace: Trace, step: TraceStep) -> Html:
    """The values of one step; only the size of large matrices."""
    parts = [tag("h2", f"{step.name}: {step.formula}")]
    for name, values, rows, columns in trace.matrices(step):
        parts.append(tag("h3", name))
        if not is_small(*values.shape):
            parts.append(tag("p", f"{values.shape[0]} x {values.shape[1]} numbers"))
            continue
        cells = ([format_rounded(value, 3) for value in row] for row in values.tolist())
        lines = tuple((label, *row) for label, row in zip(rows, cells, strict=True))
        parts.append(Table("", ("", *columns), lines, frozenset(columns)).to_html())
    return join_html(parts)
