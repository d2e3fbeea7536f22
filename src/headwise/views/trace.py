"""A trace in the terminal: its steps, its matrices with token labels, and what each head adds."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from torch import Tensor

from headwise.attention.worked_example import NamedShape
from headwise.drawing.heatmap import MOST_LABELS, HeatMap, heat_svg
from headwise.drawing.html import STYLE, Html, notebook_html, page
from headwise.drawing.table import Table as DataTable, is_small
from headwise.tracing.blur import Blur, Row, Sharpness
from headwise.tracing.maps import Maps
from headwise.tracing.record import Trace, TraceStep, closing_lines


def steps_table(trace: Trace) -> Table:
    """Every step with its formula and its shape in words."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("step", style="bold", no_wrap=True)
    table.add_column("formula")
    table.add_column("shape", no_wrap=True)
    for step in trace.steps.values():
        table.add_row(step.name, step.formula, Text(step.shape))
    return table


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
    cells = [[number(value, digits) for value in row] for row in values.tolist()]
    return Matrix(title, tuple(rows), tuple(columns), cells)


@dataclass(frozen=True)
class Matrix:
    """Numbers with labels, in as many parts as it takes for every column to be read."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: list[list[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The whole table where it fits, else its columns one part after the other."""
        start = 0
        while start < len(self.columns):
            stop = start + 1
            while stop < len(self.columns) and self.width(start, stop + 1) <= options.max_width:
                stop += 1
            yield self.table(start, stop)
            start = stop

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """As wide as the whole, or as there is room."""
        width = min(self.width(0, len(self.columns)), options.max_width)
        return Measurement(width, width)

    def width(self, start: int, stop: int) -> int:
        """Characters that some of the columns take beside the labels of the rows."""
        sizes = [max(map(cell_len, self.rows))]
        for place in range(start, stop):
            longest = max(len(row[place]) for row in self.cells)
            sizes.append(max(cell_len(self.columns[place]), longest))
        return sum(sizes) + BETWEEN * len(sizes) + 1

    def table(self, start: int, stop: int) -> Table:
        """Some of the columns."""
        title = self.title if start == 0 else f"{self.title}, continued"
        table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        table.add_column("")
        for column in self.columns[start:stop]:
            table.add_column(Text(column), justify="right")
        for name, row in zip(self.rows, self.cells, strict=True):
            table.add_row(Text(name), *row[start:stop])
        return table


BETWEEN = 3
"""Characters between two columns of a table: its padding, and where a line would stand."""


def number(value: float, digits: int) -> str:
    """A value, with minus nothing for nothing."""
    return f"{round(value, digits) + 0.0:.{digits}f}"


def step_matrices(trace: Trace, step: TraceStep) -> list[RenderableType]:
    """The values of one step: a matrix for each chosen head, or one for all."""
    return [matrix(*one) for one in trace.matrices(step)]


def map_tables(maps: Maps) -> Columns:
    """The weights of the chosen heads, side by side where they fit."""
    labels = maps.labels
    return Columns(
        [
            matrix(name, weights, labels.queries, labels.keys)
            for name, weights in zip(maps.heads, maps.weights, strict=True)
        ]
    )


def contributions_table(trace: Trace) -> Table:
    """What each head adds to the output: how long it is, and which share of it all."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("head", style="bold", no_wrap=True)
    for heading in ("KV head", "mean length", "share", "largest in dimensions"):
        table.add_column(heading, justify="right")
    leads = trace.shares_after.argmax(0).bincount(minlength=trace.num_heads)
    for head, (length, share) in enumerate(trace.lengths):
        table.add_row(
            trace.name_of(head),
            str(trace.kv_head_of[head]),
            f"{length:.3f}",
            f"{share:.1%}",
            str(int(leads[head])),
        )
    return table


def shares_table(trace: Trace, most: int = 4) -> Table:
    """Share of each head in a few columns of the concat, spread over it, and of the output."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("head", style="bold", no_wrap=True)
    before, after = trace.shares_before, trace.shares_after
    shown = min(most, after.shape[1])
    places = [round(place * (before.shape[1] - 1) / max(shown - 1, 1)) for place in range(shown)]
    headings = [
        *(f"concat {place + 1}" for place in places),
        *(f"out {n + 1}" for n in range(shown)),
    ]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for head in range(trace.num_heads):
        shares = [*before[head, places].tolist(), *after[head, :shown].tolist()]
        table.add_row(trace.name_of(head), *(f"{share:.0%}" for share in shares))
    return table


def blur_table(blur: Blur, extra: Row | None = None) -> Table:
    """The heads' rows at one query, and the one row that stands for them all."""
    shown = [row.weights for row in blur.heads]
    best = sorted(range(len(blur.keys)), key=lambda key: -max(float(row[key]) for row in shown))
    places = sorted(best[:6])
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(Text(blur.query), style="bold", no_wrap=True)
    for heading in (*(blur.keys[place] for place in places), "entropy", "largest"):
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for row in (*blur.heads, extra or blur.single):
        table.add_row(
            row.name,
            *(f"{float(row.weights[place]):.2f}" for place in places),
            f"{row.entropy:.2f}",
            f"{row.largest:.2f}",
            style="bold" if row is extra or row not in blur.heads else None,
        )
    return table


def sharpness_line(found: Sharpness) -> str:
    """The same over all queries."""
    return (
        f"Averaged over all queries: a head's row has {found.entropy_of_heads:.2f} nats of entropy "
        f"and a largest weight of {found.largest_of_heads:.2f}; the single row has "
        f"{found.entropy_of_single:.2f} nats and {found.largest_of_single:.2f}."
    )


def dimensions_table(shapes: Sequence[NamedShape]) -> Table:
    """Every step's shape, axis by axis."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in ("step", "shape", "axes"):
        table.add_column(heading)
    for one in shapes:
        table.add_row(one.step, Text(str(list(one.shape))), one.axes)
    return table


SHOWN_HEADS = 4
"""Heads whose maps a notebook or a terminal shows where none were chosen."""


def heat_maps(maps: Maps) -> list[HeatMap]:
    """The map of each chosen head, ready to be drawn."""
    labels = maps.labels
    pairs = zip(maps.heads, maps.weights.tolist(), strict=True)
    return [HeatMap(name, weights, labels.queries, labels.keys) for name, weights in pairs]


def maps_svg(maps: Maps) -> str:
    """The maps of all chosen heads in one image."""
    return heat_svg(heat_maps(maps))


def trace_fragment(trace: Trace) -> str:
    """Steps, a few maps and what was checked."""
    maps = trace.maps()
    parts = [f"<h3>{escape(trace.title)}</h3>", steps_html(trace)]
    if max(len(maps.labels.queries), len(maps.labels.keys)) <= MOST_LABELS:
        parts.append(maps_svg(maps.first(SHOWN_HEADS)))
    parts.append(checks_html(trace))
    return notebook_html(*map(Html, parts))


MAPS_READ = (
    "In a map a row is a token that looks, the query, and a column one that is looked at, the key."
)


def trace_page(trace: Trace, maps: Maps) -> str:
    """One page that needs no other file: steps, maps, every small matrix, shares of the heads."""
    read = escape(" ".join(trace.labels.queries))
    parts = [f"<h1>{escape(trace.title)}</h1><p><q>{read}</q></p>", steps_html(trace)]
    parts += [f"<p>{MAPS_READ}</p>", maps_svg(maps)]
    parts += [checks_html(trace), shares_html(trace)]
    parts += [matrices_html(trace, step) for step in trace.steps.values()]
    return page(trace.title, STYLE, f'<body class="headwise">{"".join(parts)}</body>')


def steps_html(trace: Trace) -> str:
    """Every step with formula and shape."""
    rows = tuple((step.name, step.formula, step.shape) for step in trace.steps.values())
    return DataTable("", ("step", "formula", "shape"), rows).to_html()


def checks_html(trace: Trace) -> str:
    """What was checked, and how the heads are mixed."""
    return "".join(f"<p>{escape(line)}</p>" for line in closing_lines(trace))


def shares_html(trace: Trace) -> str:
    """What each head adds to the output, as lengths and shares."""
    rows = tuple(
        (trace.name_of(head), str(trace.kv_head_of[head]), f"{length:.3f}", f"{share:.1%}")
        for head, (length, share) in enumerate(trace.lengths)
    )
    columns = ("head", "KV head", "mean length", "share")
    table = DataTable("", columns, rows, frozenset(columns[1:])).to_html()
    return f"<h2>What each head adds to the output</h2>{table}"


def matrices_html(trace: Trace, step: TraceStep) -> str:
    """The values of one step, where they are small enough to be read."""
    parts = [f"<h2>{escape(step.name)}: {escape(step.formula)}</h2>"]
    for name, values, rows, columns in trace.matrices(step):
        parts.append(f"<h3>{escape(name)}</h3>{matrix_html(values, rows, columns)}")
    return "".join(parts)


def matrix_html(values: Tensor, rows: Sequence[str], columns: Sequence[str]) -> str:
    """A small matrix in full; the size of a large one."""
    if not is_small(*values.shape):
        return f"<p>{values.shape[0]} x {values.shape[1]} numbers</p>"
    cells = ([number(value, 3) for value in row] for row in values.tolist())
    lines = tuple((name, *row) for name, row in zip(rows, cells, strict=True))
    return DataTable("", ("", *columns), lines, frozenset(columns)).to_html()
