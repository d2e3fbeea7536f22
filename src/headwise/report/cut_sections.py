"""The report's sections on importance and on a cut.

Numbers have standard errors; a cut is compared with the uncut model, random cuts and silent heads.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from headwise.comparing.comparison import Comparison
from headwise.drawing.html import (
    Html,
    bar_html,
    bullets,
    details,
    figure_html,
    join_html,
    section,
    tag,
)
from headwise.drawing.table import Table
from headwise.formats import format_count, format_with_error
from headwise.head_table import HeadTable
from headwise.pruning.importance.importance_tables import Importance
from headwise.pruning.importance.workload import ABLATIONS
from headwise.pruning.record import PruneRecord
from headwise.pruning.selection.curve import Curve
from headwise.report.data import ReportData, is_same_model
from headwise.report.heads_section import head_grids, value_cell
from headwise.views.pruning import (
    cut_warnings,
    held_out_line,
    layers_table,
    quality_table,
    register_table,
    size_rows,
    speed_table,
)

ENDS = 8
"""Number of heads shown at each end of the ranking; the whole of it is in a collapsed part."""
MEASURES = {
    "zero": ("silent", "loss added if the head outputs zeros, measured"),
    "mean": ("replaced by its mean", "loss added if the head always outputs its mean, measured"),
    "michel": ("Michel's score", "how strongly the loss reacts to the head's gate, from gradients"),
    "fisher": (
        "Fisher information",
        "Michel's score with squares, which emphasises the examples that need the head",
    ),
    "expected": (
        "expected cost",
        "loss added by cutting the head, as predicted from the interaction of all heads",
    ),
}
"""Titles and meanings of the importance measures."""
METHOD_MEANINGS = {
    "rounds": "the heads expected to cost least together, a few per round, remeasured every round",
    "quadratic": "the heads expected to cost least together, measured once",
    "greedy": "the head that costs least, measured again after every cut",
    "ablation": "the heads that cost least if silenced one at a time",
    "michel": "the heads with the smallest gradient score",
    "fisher": "the heads with the smallest Fisher information",
    "random": "heads at random",
    "named": "the heads that were named",
}


def importance_section(importance: Importance) -> Html:
    """The loss that silencing each head adds, or another measure of it, and what a layer needs."""
    objective = importance.table.about.get("objective", "of the model")
    text = (
        f"Added losses are increases in the loss ({objective}). A small number does not show that "
        "several such heads can be cut at once: one may stand in for another."
    )
    layers = layers_table(importance)
    return section(
        "importance",
        "Importance of each head",
        tag("p", text),
        *_head_parts(importance),
        "" if layers is None else layers.to_html(),
    )


def _head_parts(importance: Importance) -> Iterator[Html]:
    """A grid and the two ends of a ranking, by the first measure that the table has."""
    table, about, measure = importance.table, importance.table.about, importance.ranked_by
    if measure is None:
        return
    name, meaning = MEASURES[measure]
    examples = about.get("examples")
    if measure in ABLATIONS:
        examples = about.get("exact_examples", examples)
    amount = f", on {format_count(examples, 'example')}" if isinstance(examples, int) else ""
    yield tag("p", f"Heads are ranked by {name}: {meaning}{amount}.")
    values = dict(zip(table.heads, table.df[measure], strict=True))
    largest = max((value for value in values.values() if value > 0), default=1.0)
    cells = {}
    for head, value in values.items():
        share = value / largest
        cells[head] = value_cell(share, f"{100 * share:.0f}", f"{head}: {name} {value:.2g}")
    yield from head_grids(f"{name[0].upper()}{name[1:]}, % of the largest", cells)
    yield bullets(
        join_html([tag("b", f"{title}:"), f"{meaning}."], " ")
        for column, (title, meaning) in MEASURES.items()
        if column in table.df
    )
    names = table.top(measure, len(table))["name"].tolist()
    is_long = len(names) > 2 * ENDS
    ends = [*names[:ENDS], *names[-ENDS:]] if is_long else names
    yield _ranking("The largest, then the smallest" if is_long else "Every head", table, ends)
    if is_long:
        yield details("Every head", _ranking("The largest first", table, names))


def _ranking(caption: str, table: HeadTable, names: list[str]) -> Html:
    measures, has_stand_ins = (
        [name for name in MEASURES if name in table.df],
        "stand_ins" in table.df,
    )
    rows = []
    for name in names:
        row = table[name]
        cells = (
            format_with_error(row[measure], row.get(f"{measure}_se", math.nan))
            for measure in measures
        )
        rows.append((name, *cells, *([row["stand_ins"] or "-"] if has_stand_ins else [])))
    titles = [MEASURES[name][0] for name in measures]
    last = ("stand-ins",) if has_stand_ins else ()
    return Table(caption, ("head", *titles, *last), rows, titles).to_html()


def stand_ins_part(importance: Importance | None) -> Html:
    """Groups of heads that stand in for each other, with the measured cost of silencing them."""
    if importance is None or "stand_ins" not in importance.measures:
        return Html("")
    title = tag("h3", "Heads that stand in for each other")
    untested = importance.table.about.get("stand_ins_untested")
    remark = tag("p", f"Not tested: {untested}.") if untested else Html("")
    if not importance.groups:
        none = "No group of heads meets the criteria for standing in for each other."
        return join_html([title, tag("p", none), remark])
    rows = [
        (
            " ".join(map(str, group.heads)),
            f"{group.cost_apart:.4f}",
            f"{group.cost_together:.4f}",
            f"{group.excess_se:.1g}",
        )
        for group in importance.groups
    ]
    columns = ("heads", "cost one by one, added up", "cost together", "error of the difference")
    caption = "Measured loss: silencing them together costs more than the sum of silencing each"
    table = Table(caption, columns, rows, columns[1:])
    text = (
        "Their effects on the output point the same way and their outputs are similar, in two "
        "halves of the examples. One makes up for the loss of another, but not for all."
    )
    return join_html([title, tag("p", text), table.to_html(), remark])


def cut_section(data: ReportData, cut: PruneRecord) -> Html:
    """A cut: sizes and quality before and after, the curve, speed, and the heads cut."""
    method = cut.method or "named"
    meaning = f" ({METHOD_MEANINGS[method]})" if method in METHOD_MEANINGS else ""
    was = "was" if len(cut.heads_cut) == 1 else "were"
    sentences = [
        f"{format_count(len(cut.heads_cut), 'head')} {was} cut, chosen by the method "
        f"\u201c{method}\u201d{meaning}."
    ]
    if is_same_model(cut.model.name, data.model) and cut.heads_cut:
        roles = dict(zip(data.table.heads, data.table.df["roles"], strict=True))
        num_without = sum(not roles.get(head) for head in cut.heads_cut)
        sentences.append(f"{num_without} of them had no role in this scan.")
    difference = cut.cut_against_silenced
    if difference is not None:
        exactness = f"to within {difference:.1e}" if difference else "to the last bit"
        sentences.append(
            "The outputs of the cut model equal those of the uncut model with these heads "
            f"silenced, {exactness}."
        )
    caption = (
        f"{cut.quality.unit.capitalize()} on text that decided nothing ({cut.quality.objective}). "
        f"{held_out_line(cut)} ± is a standard error."
    )
    return section(
        "cut",
        "What a cut costs",
        tag("p", " ".join(sentences)),
        size_bars(cut),
        replace(quality_table(cut), title=caption).to_html(),
        register_table(cut).to_html(),
        *(tag("p", warning) for warning in cut_warnings(cut)),
        _curve_figure(data.curve, cut),
        speed_table(cut).to_html(),
        tag("p", f"Heads cut: {' '.join(map(str, cut.heads_cut)) or 'none'}", class_="names"),
    )


def size_bars(record: PruneRecord | Comparison) -> Html:
    """Sizes before and after, with a bar for the share left."""
    rows = [
        (*sizes, f"{1 - left:.1%}", bar_html(left, math.nan, f"{left:.0%} left"))
        for *sizes, left in size_rows(record)
    ]
    columns = ("size", "before", "after", "removed", "left")
    return Table("Size of the model", columns, rows, columns[1:4]).to_html()


def _curve_figure(curve: Curve | None, cut: PruneRecord) -> Html:
    if curve is None:
        return tag("p", "No curve was measured with this cut.")
    unit = cut.quality.unit
    elbow = " The elbow is where the chosen method's line bends most." if curve.elbow else ""
    caption = (
        f"{unit} on held-out text as more heads are cut. The band around the line of random cuts "
        "spans the worst to the best of them. The floor is the model with every head "
        f"silent.{elbow}"
    )
    svg = curve.svg(f"{cut.model.name}: {unit} against heads cut")
    return figure_html(svg, f"Curves of {unit} against the share of heads cut", caption)
