"""The report's first two sections: the scan in a few sentences, and a grid of every head."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from headwise.drawing.heatmap import colour
from headwise.drawing.html import Html, bullets, details, join_html, scrolling, section, tag
from headwise.drawing.table import Table
from headwise.formats import format_count, format_number, format_share, join_words
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.report.data import ReportData
from headwise.report.relations_section import rank_pairs
from headwise.report.roles_section import example_html, role_chip
from headwise.roles import ROLES, UNKNOWN_ROLE
from headwise.views.findings import describe_head
from headwise.views.heads import MORE, NONE, role_counts, strongest_of

WHITE_TEXT_FROM = 0.718
"""Share from which white text has more contrast than black on `colour(share)`."""

COLUMN_TITLES = {
    "normalised_entropy": "how widely",
    "distance": "how far (tokens)",
    "previous": "token before",
    "next": "token after",
    "first": "first token",
    "special": "special",
    "punctuation": "punctuation",
    "output_share": "share of output",
}
"""Titles of the columns in the table of all heads."""


def summary_section(data: ReportData) -> Html:
    """The scan in words."""
    table = data.table
    num_with_role = len(table) - len(table.without_role)
    read = [f"{format_count(data.tokens, 'token')} of text"] if data.tokens else []
    sentences = sum(count for name, count in data.counts.items() if name.endswith("_sentences"))
    read += [f"{format_count(sentences, 'sentence')} with known relations"] if sentences else []
    measured = f" They were measured on {join_words(read)}." if read else ""
    roles = [f"Heads per role (a head can have several): {role_counts(table)}."]
    if table.missed_roles:
        roles.append(f"No head is {join_words(table.missed_roles, 'or')}.")
    if table.untested_roles:
        untested = ", ".join(table.untested_roles)
        roles.append(f"Not tested, because the scan read no data for them: {untested}.")
    return section(
        "summary",
        "In short",
        tag(
            "p",
            f"{data.model} has {format_count(len(table), 'attention head')} in "
            f"{format_count(table.num_layers, 'layer')}.{measured} "
            f"{_role_sentence(num_with_role, len(table))}",
        ),
        tag("p", " ".join(roles)),
        bullets(_highlights(data)),
        tag(
            "p",
            "A role says where a head looks. It does not prove what the model does with what the "
            "head finds there, that no other head does the same, or that the head is needed.",
            class_="limit",
        ),
    )


def _role_sentence(count: int, total: int) -> str:
    if count == total:
        return "Every head meets the criteria for at least one role."
    useless = f"which does not make {'it' if total - count == 1 else 'them'} useless"
    if not count:
        return f"No head meets the criteria for any role, {useless}."
    others = "the other one has" if total - count == 1 else f"the other {total - count} have"
    return (
        f"{count} of them {'meets' if count == 1 else 'meet'} the criteria for at least one role; "
        f"{others} no role that this scan looks for, {useless}."
    )


def _highlights(data: ReportData) -> Iterator[str | Html]:
    table = data.table
    for role in ("positional", "sink", "induction", "syntactic", "semantic", "coreference"):
        if role in table.held_roles:
            head = strongest_of(table, role, 1)[0]
            yield join_html([describe_head(head, role), example_html(data, head, role)], " ")
    layers = Counter(head.layer_name for head in table.without_role).most_common(2)
    if layers and (len(layers) == 1 or layers[0][1] > layers[1][1]):
        layer, count = layers[0]
        size = sum(head.layer_name == layer for head in table.heads)
        yield f"{layer} has the most heads without a role: {count} of its {size}."
    for row in rank_pairs(data.scan.pairs).head(1).itertuples():
        yield f"{row.a} and {row.b} have the most similar outputs: CKA {row.cka:.2f} of 1."
    worth = None if data.importance is None else data.importance.table
    if worth is not None and "zero" in worth.df and worth.df["zero"].notna().any():
        costs = worth.top("zero", len(table))
        first, last = costs.iloc[0], costs.iloc[-1]
        yield (
            f"Silencing {first['name']} costs the most ({first['zero']:.2g} of loss), silencing "
            f"{last['name']} the least ({last['zero']:.2g})."
        )
    if data.cut is not None:
        count, quality = len(data.cut.heads_cut), data.cut.quality
        median = quality.random_median
        random = (
            ""
            if median is None
            else (
                f", compared with {format_number(median.value)} if the same number is cut at random"
            )
        )
        yield (
            f"{format_count(count, 'head')} {'was' if count == 1 else 'were'} cut; {quality.unit} "
            f"is now {format_number(quality.scores.final.value)}{random}."
        )


def grid_section(table: HeadTable) -> Html:
    """Grids of every head, by role and by entropy."""
    grids = [head_grids("First role of each head", _role_cells(table))]
    if "normalised_entropy" in table.df:
        cells = {}
        for head, entropy in zip(table.heads, table.df["normalised_entropy"], strict=True):
            share = format_share(entropy) or "unknown"
            cells[head] = value_cell(entropy, share.rstrip("%"), f"{head}: entropy {share}")
        grids.append(head_grids("How widely each head looks: entropy, % of the maximum", cells))
    return section(
        "grid",
        "Every head by layer",
        tag(
            "p",
            "Each row is a layer and each column a head, both counted from 0; L3H11 is head 11 of "
            "layer 3. In the first grid, the letter is the head's first role, and a coloured "
            "corner is its second. In the second grid, 0 means that every token looks at only one "
            "token, and 100 that it looks at all of them equally. Point at a cell for its numbers.",
        ),
        _legend(table),
        *(tag("div", *of_stack, class_="grids") for of_stack in zip(*grids, strict=True)),
        details("Every head in numbers", _head_numbers(table)),
    )


def _role_cells(table: HeadTable) -> dict[HeadId, Html]:
    entropies = table.df.get("normalised_entropy", [math.nan] * len(table))
    cells = {}
    for head, names, entropy in zip(table.heads, table.df["roles"], entropies, strict=True):
        spread = "" if math.isnan(entropy) else f"; entropy {entropy:.0%}"
        label = f"{head}: {', '.join(names) or 'no role'}{spread}"
        roles = [ROLES.get(name, UNKNOWN_ROLE) for name in names]
        text, classes = NONE, "none"
        if roles:
            text = roles[0].letter + MORE * (len(roles) > 2)
            colours = zip("ab", roles, strict=False)  # of the cell and its corner
            classes = " ".join(["has", *(f"{place}-{role.name}" for place, role in colours)])
        cells[head] = tag("td", text, class_=classes, title=label, aria_label=label)
    return cells


def _legend(table: HeadTable) -> Html:
    entries = [
        tag("li", join_html([role_chip(role), f"{role} ({len(table.with_role(role))})"], " "))
        for role in table.held_roles
    ]
    if table.without_role:
        entries.append(tag("li", f"{NONE} no role ({len(table.without_role)})"))
    if any(len(roles) > 2 for roles in table.df["roles"]):
        entries.append(tag("li", f"{MORE} more than two roles"))
    return tag("ul", *entries, class_="legend")


def _head_numbers(table: HeadTable) -> Html:
    titles = {name: title for name, title in COLUMN_TITLES.items() if name in table.df}
    values = table.df[list(titles)].to_numpy(float)
    rows = [
        (str(head), ", ".join(roles) or "-", *(format_number(value, 2) for value in line))
        for head, roles, line in zip(table.heads, table.df["roles"], values, strict=True)
    ]
    caption = (
        "Means over the rows that were measured. How widely: entropy as a share of the maximum. "
        "Masses and shares are from 0 to 1."
    )
    columns = ("head", "roles", *titles.values())
    return Table(caption, columns, rows, titles.values()).to_html()


def head_grids(caption: str, cells: Mapping[HeadId, Html]) -> list[Html]:
    """A grid per stack with a row per layer; blank for heads that a layer does not have."""
    grids = []
    for stack in dict.fromkeys(head.stack for head in cells):
        heads = [head for head in cells if head.stack == stack]
        columns = range(max(head.head for head in heads) + 1)
        header = [tag("td", ""), *(tag("th", number, scope="col") for number in columns)]
        lines = []
        for layer in dict.fromkeys(head.layer for head in heads):
            line = (cells.get(HeadId(layer, number, stack), tag("td", "")) for number in columns)
            lines.append(tag("tr", tag("th", f"L{layer}", scope="row"), *line))
        title = f"{stack}: {caption}" if stack else caption
        parts = [tag("caption", tag("span", title)), tag("thead", tag("tr", *header))]
        table = tag("table", *parts, tag("tbody", *lines), class_="grid")
        grids.append(scrolling(title, table))
    return grids


def value_cell(share: float, text: str, label: str) -> Html:
    """A grid cell with a number, coloured by its share of the largest; blank for NaN."""
    if math.isnan(share):
        return tag("td", "", title=label, aria_label=label)
    style = f"background:{colour(share)};color:{'#fff' if share >= WHITE_TEXT_FROM else '#000'}"
    return tag("td", text, class_="value", style=style, title=label, aria_label=label)
