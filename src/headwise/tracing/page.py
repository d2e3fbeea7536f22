"""A trace as HTML and SVG: a fragment for a notebook, a page of its own, an image of its heads."""

from html import escape

from headwise.drawing.heat import MOST_LABELS, HeatMap, heat_svg
from headwise.drawing.tables import STYLE, number_table, page, words_table
from headwise.tracing.maps import Maps
from headwise.tracing.record import Step, Trace, closing_lines

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
    return f'{STYLE}<div class="headwise">{"".join(parts)}</div>'


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
    return page(trace.title, "".join(parts))


def steps_html(trace: Trace) -> str:
    """Every step with formula and shape."""
    rows = [(step.name, step.formula, step.shape) for step in trace.steps.values()]
    return words_table(("step", "formula", "shape"), rows)


def checks_html(trace: Trace) -> str:
    """What was checked, and how the heads are mixed."""
    return "".join(f"<p>{escape(line)}</p>" for line in closing_lines(trace))


def shares_html(trace: Trace) -> str:
    """What each head adds to the output, as lengths and shares."""
    rows = [
        (trace.name_of(head), str(trace.kv_head_of[head]), f"{length:.3f}", f"{share:.1%}")
        for head, (length, share) in enumerate(trace.lengths)
    ]
    table = words_table(("head", "KV head", "mean length", "share"), rows)
    return f"<h2>What each head adds to the output</h2>{table}"


def matrices_html(trace: Trace, step: Step) -> str:
    """The values of one step, where they are small enough to be read."""
    parts = [f"<h2>{escape(step.name)}: {escape(step.formula)}</h2>"]
    for name, values, rows, columns in trace.matrices(step):
        parts.append(f"<h3>{escape(name)}</h3>{number_table(values.tolist(), rows, columns)}")
    return "".join(parts)
