"""Traces as HTML pages: small matrices in full, large ones as pictures.

In: a trace and the maps to draw. Out: a page that needs no other file and fits a phone.
"""

from collections.abc import Iterator, Sequence

from torch import Tensor
from torch.nn import functional

from headwise.drawing.heatmap import HeatMap, heat_svg
from headwise.drawing.html import Html, page, scrolling, tag, to_html
from headwise.drawing.pixels import matrix_uri, scale_colours
from headwise.drawing.table import Table, is_small
from headwise.formats import format_number
from headwise.tracing.maps import Maps
from headwise.tracing.record import Trace, TraceStep, closing_lines
from headwise.views.trace import contributions

MOST_CELLS = 40
"""A map with more tokens is a picture without a label and a tooltip for every cell."""
MOST_OPEN = 256
"""A step with more numbers is closed until the reader opens it."""
MOST_PIXELS = 384
"""A larger matrix is drawn with the largest number of each block."""
READING = (
    "In a map, each row is a token that looks, and each column a token that it looks at. "
    "Each row sums to 1."
)
STYLE = """<style>
body{margin:0 auto;padding:1.5rem 1.25rem 4rem;max-width:84rem;background:#fff;color:#161a21;
font:15px/1.5 Inter,system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
h1{margin:0 0 .25rem;font:400 2.06rem/1.25 Charter,"Bitstream Charter","Iowan Old Style",Georgia,
"Noto Serif",Cambria,serif}
h2{margin:2.5rem 0 .25rem;font-size:1.13rem}
h3{margin:0;font-size:.8125rem;font-weight:600}
p{max-width:46rem;margin:.5rem 0}
q{font-family:Charter,"Bitstream Charter","Iowan Old Style",Georgia,"Noto Serif",Cambria,serif;
font-size:1.2rem}
.soft,.shape{color:#5a6472}.shape{font-size:.8125rem}
.maps,.matrices{display:flex;flex-wrap:wrap;gap:1.25rem 1.5rem;margin:.75rem 0;
align-items:flex-start}
figure{margin:0;max-width:100%}
.maps svg{display:block;max-width:min(100%,20rem);height:auto}
.map-image,.image{display:block;image-rendering:pixelated;border:1px solid #dfe3e8;max-width:100%}
.map-image{width:20rem;height:auto}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.8125rem}
th,td{padding:.2rem .6rem .2rem 0;text-align:left;border-bottom:1px solid #dfe3e8;font-weight:400}
thead th{color:#5a6472}
.n{text-align:right}
.scale{display:inline-block;width:7rem;height:.75rem;border:1px solid #dfe3e8;
vertical-align:middle}
details{border-top:1px solid #dfe3e8;padding:.6rem 0}
summary{cursor:pointer;min-height:1.5rem}
summary b{margin-right:.75rem}
a{color:inherit}
:focus-visible{outline:3px solid #161a21;outline-offset:2px}
@media(max-width:44rem){summary .shape{display:block}}
</style>"""


def trace_page(trace: Trace, maps: Maps, note: str = "") -> str:
    """A self-contained page: maps first, then every step; `note` says why this layer is shown."""
    parts = [
        tag("h1", trace.title),
        tag("p", tag("q", " ".join(trace.labels.queries))),
        tag("p", note, class_="soft") if note else "",
        tag("p", READING, class_="soft"),
        tag("div", *_maps(maps), class_="maps"),
        tag("h2", "What each head adds to the output"),
        contributions(trace).to_html(),
        *(tag("p", line) for line in closing_lines(trace)),
        tag("h2", "Every step"),
        _legend(),
        *(_step(trace, step) for step in trace.steps.values()),
    ]
    return page(trace.title, STYLE, tag("body", *parts))


def _maps(maps: Maps) -> Iterator[Html]:
    """A figure for each head; the same colour stands for the same weight in all of them."""
    labels = maps.labels
    largest = float(maps.weights.max()) if maps.weights.numel() else 1.0
    is_drawn = max(len(labels.queries), len(labels.keys)) <= MOST_CELLS
    for name, weights in zip(maps.heads, maps.weights, strict=True):
        if is_drawn:
            drawn = HeatMap(name, weights.tolist(), labels.queries, labels.keys)
            yield tag("figure", Html(heat_svg([drawn], largest, has_scale=False)))
        else:
            yield tag("figure", tag("h3", name), _image(weights, f"Weights of {name}", "map-image"))


def _legend() -> Html:
    low, middle, high = scale_colours()
    gradient = f"background:linear-gradient(90deg,{low},{middle},{high})"
    bar = tag("span", class_="scale", style=gradient)
    return tag(
        "p",
        "Small matrices are printed in full. Large ones are pictures: orange is negative, white is "
        "zero, blue is positive ",
        bar,
        ", and the strongest colour is the largest number of the matrix.",
        class_="soft",
    )


def _step(trace: Trace, step: TraceStep) -> Html:
    """One step with all of its matrices, open if these are small and few."""
    matrices = list(trace.matrices(step))
    shown = tag("div", *(_matrix(*each) for each in matrices), class_="matrices")
    summary = tag(
        "summary", tag("b", step.name), step.formula, " ", tag("span", step.shape, class_="shape")
    )
    is_open = sum(values.numel() for _, values, _, _ in matrices) <= MOST_OPEN
    return tag("details", summary, shown, **({"open": ""} if is_open else {}))


def _matrix(name: str, values: Tensor, rows: Sequence[str], columns: Sequence[str]) -> Html:
    """A small matrix as a table, a large one as a picture with its size and range."""
    if is_small(*values.shape):
        cells = ([format_number(value, 3) for value in row] for row in values.tolist())
        lines = [(label, *row) for label, row in zip(rows, cells, strict=True)]
        table = Table("", ("", *columns), lines, columns).to_html()
        return tag("figure", tag("h3", name), table)
    finite = values[values.isfinite()]
    size = f"{values.shape[0]} x {values.shape[1]}"
    spread = f"{float(finite.min()):.3g} to {float(finite.max()):.3g}" if finite.numel() else ""
    caption = f"{size}, {spread}" if spread else size
    return tag(
        "figure",
        tag("h3", name, " ", tag("span", caption, class_="shape")),
        scrolling("", _image(values, f"{name}, {caption}", "image")),
    )


def _image(values: Tensor, label: str, kind: str) -> Html:
    """A picture of the matrix, twice as large on the page if it is small."""
    finite = values[values.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    cells = _shrink(values)
    times = 4 if max(cells.shape) <= 96 else 2 if max(cells.shape) <= 192 else 1
    height, width = (times * size for size in cells.shape)
    uri = matrix_uri(cells.tolist(), largest)
    size = "" if kind == "map-image" else f' width="{width}" height="{height}"'
    return Html(f'<img class="{kind}" src="{uri}" alt="{to_html(label)}"{size}>')


def _shrink(values: Tensor) -> Tensor:
    """The matrix with at most MOST_PIXELS rows and columns: of each block, the largest number."""
    stride = [-(-size // MOST_PIXELS) for size in values.shape]
    if stride == [1, 1]:
        return values
    filled = values.float().nan_to_num(0, 0, 0)[None]
    high, low = (
        functional.max_pool2d(sign * filled, stride, ceil_mode=True)[0] for sign in (1, -1)
    )
    return high.where(high >= low, -low)
