"""The report's first two sections: the scan in a few sentences, and a grid of every head.

In: ReportData or a HeadTable. Out: HTML. Roles are decided in headwise.scans.role_decisions.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator

from headwise.drawing.heatmap import colour
from headwise.drawing.html import (
    Html,
    bullets,
    details,
    join_html,
    scrolling,
    section,
    tag,
)
from headwise.drawing.table import Table
from headwise.formats import format_count, format_number, format_share, join_words
from headwise.heads import HeadId, HeadTable
from headwise.pruning.record import PruneRecord
from headwise.report.data import ReportData
from headwise.report.relations_section import rank_pairs
from headwise.report.roles_section import describe_head, role_chip, role_class
from headwise.roles import ROLES, UNKNOWN_ROLE
from headwise.views.heads import MORE, NONE, strongest_of

MIDDLE_LUMINANCE = 0.1791
"""Black and white text have equal contrast on this luminance: (L + .05)^2 = 1.05 x .05."""

HeadCell = Callable[[HeadId, int], Html]
"""The HTML cell of a head, from the head and its row in the table."""

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
"""Columns of the table of all heads, and their titles in it."""


def summary_section(data: ReportData) -> Html:
    """The scan in words."""
    table = data.table
    num_with_role = len(table) - len(table.without_role)
    read = [f"{format_count(data.tokens, 'token')} of text"] if data.tokens else []
    sentences = sum(count for name, count in data.counts.items() if name.endswith("_sentences"))
    read += [f"{format_count(sentences, 'sentence')} with known relations"] if sentences else []
    measured = f" They were measured on {join_words(read)}." if read else ""
    return section(
        "summary",
        "In short",
        tag(
            "p",
            f"{data.model} has {format_count(len(table), 'attention head')} in "
            f"{format_count(table.num_layers, 'layer')}.{measured} "
            f"{_role_sentence(num_with_role, len(table))}",
        ),
        tag("p", _count_roles(table)),
        bullets(_highlights(data)),
        tag(
            "p",
            "A role says where a head looks. It does not prove what the model does with what is "
            "found there, that no other head does the same, or that the head is needed.",
            class_="limit",
        ),
    )


def _role_sentence(count: int, total: int) -> str:
    if count == total:
        return "Every head meets the criteria of at least one role."
    useless = (
        "which does not make it useless"
        if total - count == 1
        else "which does not make them useless"
    )
    if not count:
        return f"No head meets the criteria of any role, {useless}."
    others = "the other one has" if total - count == 1 else f"the other {total - count} have"
    return (
        f"{count} of them {'meets' if count == 1 else 'meet'} the criteria of at least one role; "
        f"{others} no role that this scan looks for, {useless}."
    )


def _count_roles(table: HeadTable) -> str:
    counts = [f"{role} {len(table.with_role(role))}" for role in table.held_roles]
    counts.append(f"no role {len(table.without_role)}")
    sentences = [f"Heads per role (a head can have several): {', '.join(counts)}."]
    if table.missed_roles:
        sentences.append(f"No head is {join_words(table.missed_roles, 'or')}.")
    if table.untested_roles:
        untested = ", ".join(table.untested_roles)
        sentences.append(f"Not tested, because the scan read nothing to decide them: {untested}.")
    return " ".join(sentences)


def _highlights(data: ReportData) -> Iterator[str]:
    table = data.table
    for role in ("positional", "sink", "induction", "syntactic", "coreference"):
        if role in table.held_roles:
            yield describe_head(strongest_of(table, role, 1)[0], role)
    layers = Counter(head.layer_name for head in table.without_role).most_common(2)
    if layers and (len(layers) == 1 or layers[0][1] > layers[1][1]):
        layer, count = layers[0]
        size = sum(head.layer_name == layer for head in table.heads)
        yield f"{layer} has the most heads without a role: {count} of its {size}."
    for row in rank_pairs(data.scan.pairs).head(1).itertuples():
        yield f"{row.a} and {row.b} have the most similar outputs: CKA {row.cka:.2f} of 1."
    if data.importance is not None and data.importance.table.df["zero"].notna().any():
        costs = data.importance.table.top("zero", len(table))
        first, last = costs.iloc[0], costs.iloc[-1]
        yield (
            f"Silencing {first['name']} costs most ({first['zero']:.2g} of loss), silencing "
            f"{last['name']} least ({last['zero']:.2g})."
        )
    if data.cut is not None:
        yield _describe_cut(data.cut)


def _describe_cut(cut: PruneRecord) -> str:
    was = "was" if len(cut.heads_cut) == 1 else "were"
    return (
        f"{format_count(len(cut.heads_cut), 'head')} {was} cut; {cut.quality.unit} is then "
        f"{format_number(cut.quality.final.value)}, and "
        f"{format_number(cut.quality.random_mean.value)} with the same number cut at random."
    )


def grid_section(table: HeadTable) -> Html:
    """Every head at its place, by role and by entropy."""
    grids = []
    for stack in table.stacks:
        drawn = [head_grid_html("First role of each head", table, stack, _role_cells(table))]
        if "normalised_entropy" in table.df:
            caption = "How widely it looks: entropy, % of the largest"
            drawn.append(head_grid_html(caption, table, stack, _entropy_cells(table)))
        grids.append(tag("div", *drawn, class_="grids"))
    return section(
        "grid",
        "Every head at its place",
        tag(
            "p",
            "Each row is a layer and each column a head, both counted from 0; L3H11 is head 11 of "
            "layer 3. In the first grid the letter is the head's first role, and a coloured corner "
            "its second. In the second grid 0 means that every token looks at only one token, and "
            "100 that it looks at all of them alike. Point at a cell to see its numbers.",
        ),
        _legend(table),
        *grids,
        details("Every head in numbers", _head_numbers(table)),
    )


def _role_cells(table: HeadTable) -> HeadCell:
    roles_of_row = table.df["roles"].tolist()
    entropy = table.df.get("normalised_entropy", [math.nan] * len(table))

    def cell(head: HeadId, row: int) -> Html:
        roles = roles_of_row[row]
        spread = f"; entropy {entropy[row]:.0%}" if entropy[row] == entropy[row] else ""
        label = f"{head}: {', '.join(roles) or 'no role'}{spread}"
        if not roles:
            return tag("td", NONE, class_="none", title=label, aria_label=label)
        classes = f"has a-{role_class(roles[0])}"
        if len(roles) > 1:
            classes += f" b-{role_class(roles[1])}"
        letter = ROLES.get(roles[0], UNKNOWN_ROLE).letter
        text = letter + MORE * (len(roles) > 2)
        return tag("td", text, class_=classes, title=label, aria_label=label)

    return cell


def _entropy_cells(table: HeadTable) -> HeadCell:
    entropy = table.df["normalised_entropy"].tolist()

    def cell(head: HeadId, row: int) -> Html:
        share = format_share(entropy[row]) or "unknown"
        return value_cell(entropy[row], share.rstrip("%"), f"{head}: entropy {share}")

    return cell


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
    rows = tuple(
        (str(head), ", ".join(roles) or "-", *(format_number(value, 2) for value in line))
        for head, roles, line in zip(table.heads, table.df["roles"], values, strict=True)
    )
    caption = (
        "Means over the rows that were read. How widely: entropy as a share of the largest; "
        "masses and shares: 0 to 1."
    )
    columns = ("head", "roles", *titles.values())
    return Table(caption, columns, rows, frozenset(titles.values())).to_html()


def head_grid_html(caption: str, table: HeadTable, stack: str, cell: HeadCell) -> Html:
    """One stack's heads, a row per layer; blank for heads that a layer does not have."""
    rows = {head: row for row, head in enumerate(table.heads) if head.stack == stack}
    width = max(head.head for head in rows) + 1
    header = [tag("td", ""), *(tag("th", number, scope="col") for number in range(width))]
    lines = []
    for layer in dict.fromkeys(head.layer for head in rows):
        heads = [HeadId(layer, number, stack) for number in range(width)]
        cells = [cell(head, rows[head]) if head in rows else tag("td", "") for head in heads]
        lines.append(tag("tr", tag("th", f"L{layer}", scope="row"), *cells))
    title = f"{stack}: {caption}" if stack else caption
    parts = [tag("caption", tag("span", title)), tag("thead", tag("tr", *header))]
    return scrolling(title, tag("table", *parts, tag("tbody", *lines), class_="grid"))


def value_cell(share: float, text: str, label: str) -> Html:
    """A grid cell with a number, coloured by its share of the largest; blank for NaN."""
    if math.isnan(share):
        return tag("td", "", title=label, aria_label=label)
    background = colour(share)
    style = f"background:{background};color:{text_colour(background)}"
    return tag("td", text, class_="value", style=style, title=label, aria_label=label)


def text_colour(background: str) -> str:
    """Black or white, whichever has more contrast on a background.

    >>> text_colour("#ffffff"), text_colour("#08306b")
    ('#000', '#fff')
    """
    return "#fff" if luminance(background) < MIDDLE_LUMINANCE else "#000"


def luminance(hex_colour: str) -> float:
    """Relative luminance of a colour such as #08306b, 0 to 1.

    https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
    """
    channels = [int(hex_colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
