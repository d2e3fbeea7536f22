"""What heads are worth and what a cut did, as sections of the report.

In: what importance and prune folders hold. Out: HTML. Figures stand beside their standard errors,
and a cut beside the uncut model, random cuts and the floor.
"""

import math

import pandas as pd

from headwise.drawing.html import (
    Html,
    bar,
    bullets,
    details,
    figure,
    join_html,
    section,
    tag,
)
from headwise.drawing.table import Table
from headwise.formats import format_count, format_number
from headwise.heads import HeadId, HeadTable
from headwise.report.data import Cut, ReportData, Worth, is_same_model, number
from headwise.report.grids import Cell, grid, value_cell
from headwise.views.pruning import MEASURES, SIZES

ENDS = 8
"""Heads shown at either end of the ranking; all of them are there folded up."""
MOST_DECIMALS = 8
MEANT = {
    "zero": "silent",
    "mean": "replaced by its mean",
    "michel": "Michel's score",
    "fisher": "Fisher information",
    "expected": "expected cost",
}
EXPLAINED = {
    "zero": "loss added when the head gives nothing, measured",
    "mean": "loss added when it always gives its mean, measured",
    "michel": "how strongly the loss reacts to the head's gate, from gradients",
    "fisher": "the same squared, which stresses the examples that need the head",
    "expected": "loss added by cutting it, as the interaction of all heads predicts",
}
METHODS = {
    "rounds": "those expected to cost least together, some at a time, measured again each time",
    "quadratic": "those expected to cost least together, measured once",
    "greedy": "the one that costs least, measured again after every cut",
    "ablation": "those that cost least when silenced alone",
    "michel": "those with the least gradient score",
    "fisher": "those with the least Fisher information",
    "random": "heads by chance",
    "named": "the heads that were named",
}


# What heads are worth.


def importance(worth: Worth) -> Html:
    """What every head is worth: a grid and the two ends of the ranking."""
    table, about = worth.table, worth.table.about
    ranked = table.top("zero", len(table))["name"].tolist()
    few = ranked if len(ranked) <= 2 * ENDS else [*ranked[:ENDS], *ranked[-ENDS:]]
    examples = about.get("examples")
    where = f" on {format_count(examples, 'example')}" if isinstance(examples, int) else ""
    return section(
        "importance",
        "What heads are worth",
        tag(
            "p",
            f"Each head was silenced alone{where}, and the figure is by how much the loss "
            f"({about.get('objective', 'of the model')}) grew. A small figure does not show that "
            "several such heads can go at once: one may stand in for another.",
        ),
        *(
            grid(
                "Loss added when silent, % of the costliest head's",
                table,
                stack,
                worth_cells(table),
            )
            for stack in table.stacks
        ),
        bullets(
            join_html([tag("b", f"{MEANT[name]}:"), f"{EXPLAINED[name]}."], " ")
            for name in MEASURES
            if name in table.df
        ),
        ranking(
            "The costliest heads, then the cheapest" if few != ranked else "Every head", table, few
        ),
        details("Every head", ranking("Every head, the costliest first", table, ranked))
        if few != ranked
        else "",
        one_left(worth),
    )


def worth_cells(table: HeadTable) -> Cell:
    """What gives the cell of a head in the grid of costs."""
    costs = table.df["zero"].tolist()
    largest = max([cost for cost in costs if cost > 0], default=1.0)

    def cell(head: HeadId, row: int) -> Html:
        share = costs[row] / largest
        words = f"{head}: silent it adds {costs[row]:.2g} of loss"
        return value_cell(share, f"{100 * share:.0f}", words)

    return cell


def ranking(caption: str, table: HeadTable, names: list[str]) -> Html:
    """Some heads with every measure, and its standard error where there is one."""
    measures = [name for name in MEASURES if name in table.df]
    rows = []
    for name in names:
        row = table[name]
        cells = [with_error(number(row, one), number(row, f"{one}_se")) for one in measures]
        rows.append((name, *cells, row.get("stand_ins", "") or "-"))
    titles = [MEANT[name] for name in measures]
    columns = ("head", *titles, "stand-ins")
    return Table(caption, columns, tuple(rows), frozenset(titles)).to_html()


def with_error(value: float, error: float) -> str:
    """A figure and its standard error, to as many decimals as the error has.

    >>> with_error(0.0006812, 0.0000633), with_error(3.456e-12, 1.2e-13)
    ('0.00068 ± 0.00006', '3.5e-12 ± 1e-13')
    """
    if math.isnan(value):
        return ""
    if not math.isfinite(error) or error <= 0:
        return f"{value:.2g}"
    decimals = max(0, -math.floor(math.log10(error)))
    if decimals > MOST_DECIMALS:
        return f"{value:.2g} ± {error:.1g}"
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def one_left(worth: Worth) -> Html:
    """What it costs to leave one head in a layer."""
    if worth.layers is None or worth.layers.empty:
        return Html("")
    unit = str(worth.table.about.get("unit", "quality"))
    rows = [
        (
            row["layer"],
            str(row["heads"]),
            row["best"],
            with_error(number(row, "added"), number(row, "added_se")),
            row["shown"],
        )
        for _, row in worth.layers.iterrows()
    ]
    title = "One head left in a layer, all its others silent, one layer at a time"
    columns = ("layer", "heads", "best head", "loss added", unit)
    return Table(title, columns, tuple(rows), frozenset({"heads", "loss added", unit})).to_html()


def stand_ins(worth: Worth | None) -> Html:
    """Groups of heads that stand in for each other, with what cutting them is expected to cost."""
    if worth is None or "stand_ins" not in worth.table.df:
        return Html("")
    title = tag("h3", "Heads that stand in for each other")
    groups = groups_of(worth.table)
    if not groups:
        return join_html([title, tag("p", "No group of heads passes the bar for that.")])
    matrix = worth.interaction
    rows = []
    for names in groups:
        costs = ["", ""]
        if matrix is not None and "expected" in worth.table.df:
            costs = [f"{cost:.4f}" for cost in expected_costs(worth.table, matrix, names)]
        rows.append((" ".join(names), *costs))
    columns = ("heads", "cost one by one, added up", "cost together")
    table = Table(
        "Loss expected from cutting: more together than one by one, as each hides the other",
        columns,
        tuple(rows),
        frozenset(columns[1:]),
    ).to_html()
    words = (
        "Their effects on the output point the same way and their outputs are alike, so that any "
        "one is cheap to cut and all of them together are costly."
    )
    return join_html([title, tag("p", words), table])


def expected_costs(
    table: HeadTable, interaction: pd.DataFrame, names: list[str]
) -> tuple[float, float]:
    """Loss expected from cutting these heads one by one, added up, and together.

    Alone, a head is expected to cost half of its own interaction less the slope of the loss by its
    gate; together, every two heads add their interaction.
    """
    part = interaction.loc[names, names].to_numpy(float)
    apart = sum(number(table[name], "expected") for name in names)
    return apart, apart + float(part.sum() - part.trace()) / 2


def groups_of(table: HeadTable) -> list[list[str]]:
    """Heads that name each other, each group once."""
    found = {}
    for head, others in zip(table.heads, table.df["stand_ins"], strict=True):
        if others:
            names = sorted({head, *map(HeadId.parse, others.split())})
            found[tuple(names)] = [str(name) for name in names]
    return list(found.values())


# What a cut did.


def cuts(found: ReportData, cut: Cut) -> Html:
    """Before and after: sizes, quality, the curve, and which heads went."""
    went = f"Gone: {' '.join(map(str, cut.heads)) or 'none'}"
    roles = dict(zip(found.table.heads, found.table.df["roles"], strict=True))
    told = ""
    if is_same_model(cut.model, found.model) and cut.heads:
        bare = sum(not roles.get(head) for head in cut.heads)
        told = f"{bare} of them had no role in this scan."
    method = cut.method or "named"
    chosen = f" ({METHODS[method]})" if method in METHODS else ""
    exact = ""
    if cut.difference is not None:
        least = f"to within {cut.difference:.1e}" if cut.difference else "to the last bit"
        exact = f"The cut model gives what the uncut one gives with those heads silent, {least}."
    return section(
        "cut",
        "What a cut costs",
        tag(
            "p",
            f"{format_count(len(cut.heads), 'head')} {'was' if len(cut.heads) == 1 else 'were'} "
            "cut, chosen by the "
            f"method \u201c{method}\u201d{chosen}. {told} {exact}",
        ),
        sizes(cut),
        quality(cut),
        curve(cut),
        speeds(cut),
        tag("p", went, class_="names"),
    )


def sizes(cut: Cut) -> Html:
    """Before and after, and what is gone."""
    known = {name: (before, after) for name, before, after in cut.sizes if before}
    rows = []
    for name in [name for name in SIZES if name in known]:
        (words, format_value), (before, after) = SIZES[name], known[name]
        left = after / before
        sizes = (format_value(int(before)), format_value(int(after)))
        rows.append((words, *sizes, f"{1 - left:.1%}", bar(left, math.nan, f"{left:.0%} left")))
    columns = ("of the model", "before", "after", "gone", "left")
    title = "What the model is made of"
    return Table(title, columns, tuple(rows), frozenset(columns[1:4])).to_html()


def quality(cut: Cut) -> Html:
    """What the model scores on held-out text, cut in several ways."""
    rows = []
    for name in ("uncut", "refitted", "cut", "random_mean", "floor"):
        if name in cut.qualities:
            loss, value = cut.qualities[name]
            rows.append((quality_name(name, cut), format_number(value, 4), format_number(loss, 4)))
    caption = (
        f"On held-out text, which chose no head and fitted nothing ({cut.objective}); read a cut "
        "between the uncut model and the floor"
    )
    columns = ("model", cut.unit, "loss")
    return Table(caption, columns, tuple(rows), frozenset(columns[1:])).to_html()


def quality_name(name: str, cut: Cut) -> str:
    """What a row of the qualities is of."""
    if name == "random_mean":
        ends = f", {min(cut.random):.3f} to {max(cut.random):.3f}" if cut.random else ""
        return f"as many heads cut at random, mean of {len(cut.random)}{ends}"
    names = {"refitted": "cut and refitted", "floor": "floor: every head silent"}
    return names.get(name, name)


def curve(cut: Cut) -> Html:
    """Quality against heads cut."""
    if cut.curve is None:
        return tag("p", "No curve was measured with this cut.")
    label = f"Curves of {cut.unit} against the share of heads cut"
    elbow = " The elbow is where the chosen method's line turns." if cut.curve.elbow else ""
    caption = (
        f"{cut.unit} on held-out text as more heads go. The band around the line of random cuts "
        "runs from the worst of them to the best. The floor is the model with every head "
        f"silent.{elbow}"
    )
    return figure(cut.curve.svg(f"{cut.model}: {cut.unit} against heads cut"), label, caption)


def speeds(cut: Cut) -> Html:
    """How long both models take."""
    rows = [
        (
            f"{one['batch']:.0f} x {one['positions']:.0f} tokens",
            f"{one['before']:.3f} s",
            f"{one['after']:.3f} s",
            f"{one['ratio']:.2f} ± {one['spread']:.2f}",
        )
        for one in cut.speeds
    ]
    columns = ("batch", "before", "after", "times as fast")
    caption = "Time of one pass, both models in turns on the machine that cut it"
    return Table(caption, columns, tuple(rows), frozenset(columns[1:])).to_html()
