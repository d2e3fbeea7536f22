"""Traces as terminal tables, notebook fragments and images; trace_page.py makes HTML pages."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text
from torch import Tensor

from headwise.drawing.heatmap import MOST_LABELS, HeatMap, heat_svg
from headwise.drawing.html import Html, join_html, notebook_html, tag
from headwise.drawing.table import Table, is_small
from headwise.formats import format_number
from headwise.tracing.blur import Blur, Row, compare_heads, sharpness, three_targets
from headwise.tracing.maps import Maps
from headwise.tracing.record import Trace, TraceStep, closing_lines
from headwise.views.terminal import show_table

SHOWN_HEADS, SHOWN_KEYS, SHOWN_COLUMNS = 4, 6, 4
"""Numbers of maps, of keys in the single-head comparison, and of columns of shares to print."""
COLUMN_GAP = 3
"""Number of characters between two columns of a ruled table: padding and a separator."""


def print_trace(console: Console, trace: Trace, maps: Maps, *, shows_all: bool) -> None:
    """Print the steps, the weights of some heads, and what each head adds to the output."""
    console.print(f"[bold]{escape(trace.title)}[/bold]")
    steps = _steps(trace).to_rich()
    steps.columns[0].no_wrap = steps.columns[2].no_wrap = True
    console.print(steps)
    if not shows_all and len(maps.heads) > SHOWN_HEADS:
        console.print(
            f"Weights of {SHOWN_HEADS} of {len(maps.heads)} heads; --heads chooses others."
        )
        maps = maps.first(SHOWN_HEADS)
    console.print(_map_columns(maps))
    console.print("What each head adds to the output:")
    table = contributions(trace)
    leads = trace.shares_after.argmax(0).bincount(minlength=trace.num_heads).tolist()
    rows = [(*row, str(lead)) for row, lead in zip(table.rows, leads, strict=True)]
    columns = (*table.columns, "largest in dimensions")
    console.print(Table("", columns, rows, columns[1:]).to_rich())
    console.print("Each head's share of some columns, before Wo (concat) and after it (out):")
    _print_shares(console, trace)


def print_step(console: Console, trace: Trace, name: str, maps: Maps) -> None:
    """Print the values of one step."""
    step = trace[name]
    console.print(f"[bold]{escape(trace.title)}[/bold], {name}: {step.formula}", end="  ")
    console.print(step.shape, markup=False)
    matrices = [_map_columns(maps)] if name == "weights" else _step_matrices(trace, step)
    console.print(*matrices, sep="\n")


def print_every_step(console: Console, trace: Trace) -> None:
    """Print every step in full, for examples small enough to follow by hand."""
    console.print(f"[bold]{escape(' '.join(trace.labels.queries))}[/bold], {escape(trace.title)}")
    for step in trace.steps.values():
        console.rule(f"{step.name}: {step.formula}", align="left")
        console.print(step.shape, markup=False)
        console.print(Columns(_step_matrices(trace, step)))
    console.rule("heads before and after Wo", align="left")
    _print_shares(console, trace)


def print_blur(console: Console, trace: Trace, query: int | None) -> None:
    """Print the heads' rows at `query` and their average, then the textbook example."""
    if query is None:  # use the last token that is not special
        special = trace.labels.is_special or (False,) * len(trace.labels.queries)
        ordinary = [place for place, is_special in enumerate(special) if not is_special]
        query = ordinary[-1] if ordinary else len(special) - 1
    blur, means = compare_heads(trace, query), sharpness(trace)
    console.print(f"[bold]{escape(trace.title)}[/bold]: where each head looks from one token")
    console.print(_blur_table(blur))
    console.print(
        f"Averaged over all queries: a head's row has {means.entropy_of_heads:.2f} nats of entropy "
        f"and a largest weight of {means.largest_of_heads:.2f}; the single row has "
        f"{means.entropy_of_single:.2f} nats and {means.largest_of_single:.2f}."
    )
    console.print("\nTextbook example: three keys to look at, with three heads or one softmax")
    console.print(_blur_table(*three_targets()))


def _print_shares(console: Console, trace: Trace) -> None:
    """Print each head's share of evenly spaced concat columns and of the first output columns."""
    before, after = trace.shares_before, trace.shares_after
    count = min(SHOWN_COLUMNS, after.shape[1])
    places = [round(at * (before.shape[1] - 1) / max(count - 1, 1)) for at in range(count)]
    concat = [f"concat {place + 1}" for place in places]
    columns = ("head", *concat, *(f"out {place + 1}" for place in range(count)))
    rows = []
    for head in range(trace.num_heads):
        shares = [*before[head, places].tolist(), *after[head, :count].tolist()]
        rows.append((trace.name_of(head), *(f"{share:.0%}" for share in shares)))
    show_table(console, Table("", columns, rows, columns[1:]))
    console.print(*closing_lines(trace), sep="\n")


def _blur_table(blur: Blur, single: Row | None = None) -> RichTable:
    """The heads' rows at one query, then the row `single`, by default the heads' average."""
    largest = [max(float(row.weights[key]) for row in blur.heads) for key in range(len(blur.keys))]
    best = sorted(range(len(blur.keys)), key=lambda key: -largest[key])
    keys = sorted(best[:SHOWN_KEYS])
    columns = (blur.query, *(blur.keys[key] for key in keys), "entropy", "largest")
    rows = [
        (
            row.name,
            *(f"{float(row.weights[key]):.2f}" for key in keys),
            f"{row.entropy:.2f}",
            f"{row.largest:.2f}",
        )
        for row in (*blur.heads, single or blur.single)
    ]
    table = Table("", columns, rows, columns[1:]).to_rich()
    table.columns[0].justify, table.columns[0].no_wrap = "left", True
    table.rows[-1].style = "bold"
    return table


def _steps(trace: Trace) -> Table:
    rows = [(step.name, step.formula, step.shape) for step in trace.steps.values()]
    return Table("", ("step", "formula", "shape"), rows)


def contributions(trace: Trace) -> Table:
    """Length of what each head adds to the output, and its share."""
    rows = [
        (trace.name_of(head), str(trace.kv_head_of[head]), f"{length:.3f}", f"{share:.1%}")
        for head, (length, share) in enumerate(trace.lengths)
    ]
    columns = ("head", "KV head", "mean length", "share")
    return Table("", columns, rows, columns[1:])


def _step_matrices(trace: Trace, step: TraceStep) -> list[RenderableType]:
    return [matrix(*labelled) for labelled in trace.matrices(step)]


def _map_columns(maps: Maps) -> Columns:
    labels = maps.labels
    pairs = zip(maps.heads, maps.weights, strict=True)
    return Columns([matrix(name, weights, labels.queries, labels.keys) for name, weights in pairs])


def matrix(
    title: str, values: Tensor, rows: Sequence[str], columns: Sequence[str]
) -> RenderableType:
    """A small matrix in full, with labels; only the size, range and mean of a large one."""
    if not is_small(*values.shape):
        finite = values[values.isfinite()]
        return (
            f"{title}: {values.shape[0]} x {values.shape[1]}, from {float(finite.min()):.3g} to "
            f"{float(finite.max()):.3g}, mean {float(finite.mean()):.3g}"
        )
    cells = [[format_number(value, 2) for value in row] for row in values.tolist()]
    return _Matrix(title, rows, columns, cells)


@dataclass(frozen=True)
class _Matrix:
    """A labelled matrix that wraps its columns onto further lines on a narrow terminal."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: list[list[str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        start = 0
        while start < len(self.columns):
            stop = start + 1
            while stop < len(self.columns) and self._width(start, stop + 1) <= options.max_width:
                stop += 1
            title = self.title if start == 0 else f"{self.title}, continued"
            part = RichTable(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
            part.add_column("")
            for column in self.columns[start:stop]:
                part.add_column(Text(column), justify="right")
            for name, row in zip(self.rows, self.cells, strict=True):
                part.add_row(Text(name), *row[start:stop])
            yield part
            start = stop

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = min(self._width(0, len(self.columns)), options.max_width)
        return Measurement(width, width)

    def _width(self, start: int, stop: int) -> int:
        sizes = [max(map(cell_len, self.rows))]
        for column in range(start, stop):
            longest = max(len(row[column]) for row in self.cells)
            sizes.append(max(cell_len(self.columns[column]), longest))
        return sum(sizes) + COLUMN_GAP * len(sizes) + 1


def heat_maps(maps: Maps) -> list[HeatMap]:
    """The map of each chosen head, for drawing."""
    labels = maps.labels
    pairs = zip(maps.heads, maps.weights.tolist(), strict=True)
    return [HeatMap(name, weights, labels.queries, labels.keys) for name, weights in pairs]


def maps_svg(maps: Maps) -> str:
    """The maps of all chosen heads in one image."""
    return heat_svg(heat_maps(maps))


def trace_fragment(trace: Trace) -> str:
    """HTML for a notebook: steps, a few maps, and the results of the checks."""
    maps = trace.maps()
    parts: list[Html] = [tag("h3", trace.title), _steps(trace).to_html()]
    if max(len(maps.labels.queries), len(maps.labels.keys)) <= MOST_LABELS:
        parts.append(Html(maps_svg(maps.first(SHOWN_HEADS))))
    return notebook_html(*parts, _checks_html(trace))


def _checks_html(trace: Trace) -> Html:
    return join_html(tag("p", line) for line in closing_lines(trace))
