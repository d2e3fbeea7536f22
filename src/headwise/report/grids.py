"""Every head at its place, as a section of the report: by role, and by how widely it looks.

In: a head table. Out: HTML. It decides no role; colours and letters are those of the roles given.
"""

import math
from collections.abc import Callable

from headwise.drawing.heatmap import colour
from headwise.drawing.html import Html, details, join_html, scrolling, section, tag
from headwise.drawing.table import Table
from headwise.formats import format_number, format_share
from headwise.heads import HeadId, HeadTable
from headwise.roles import ROLES, UNKNOWN_ROLE
from headwise.views.heads import MORE, NONE

HALFWAY = 0.1791
"""The luminance at which black and white are read equally well: (L + .05)^2 = 1.05 x .05."""

Cell = Callable[[HeadId, int], Html]
"""The HTML cell of a head, from its row in the table."""

MEASURED = {
    "normalised_entropy": "how widely",
    "distance": "how far (tokens)",
    "previous": "token before",
    "next": "token after",
    "first": "first token",
    "special": "special",
    "punctuation": "punctuation",
    "output_share": "share of output",
}
"""Columns of the table of every head, and what they are called there."""


def grids(table: HeadTable) -> Html:
    """Every head at its place, by role and by how widely it looks."""
    drawn = []
    for stack in table.stacks:
        both = [grid("First role of each head", table, stack, role_cells(table))]
        if "normalised_entropy" in table.df:
            caption = "How widely it looks: entropy, % of the largest"
            both.append(grid(caption, table, stack, entropy_cells(table)))
        drawn.append(tag("div", *both, class_="grids"))
    return section(
        "grid",
        "Every head at its place",
        tag(
            "p",
            "A row is a layer and a column a head, both counted from 0; L3H11 is head 11 of layer "
            "3. In the first grid the letter is the head's first role, and a coloured corner its "
            "second. In the second grid 0 means that every token looks at one token alone, and "
            "100 that it looks at all of them alike. Point at a cell to see its figures.",
        ),
        legend(table),
        *drawn,
        details("Every head in numbers", every_head(table)),
    )


def role_cells(table: HeadTable) -> Cell:
    """What gives the cell of a head in the grid of roles."""
    roles = table.df["roles"].tolist()
    entropy = table.df.get("normalised_entropy", [math.nan] * len(table))

    def cell(head: HeadId, row: int) -> Html:
        held = roles[row]
        wide = f"; entropy {entropy[row]:.0%}" if entropy[row] == entropy[row] else ""
        words = f"{head}: {', '.join(held) or 'no role'}{wide}"
        if not held:
            return tag("td", NONE, class_="none", title=words, aria_label=words)
        classes = f"has a-{known(held[0])}" + (f" b-{known(held[1])}" if len(held) > 1 else "")
        text = letter(held[0]) + MORE * (len(held) > 2)
        return tag("td", text, class_=classes, title=words, aria_label=words)

    return cell


def entropy_cells(table: HeadTable) -> Cell:
    """What gives the cell of a head in the grid of entropies."""
    entropy = table.df["normalised_entropy"].tolist()

    def cell(head: HeadId, row: int) -> Html:
        said = format_share(entropy[row]) or "unknown"
        return value_cell(entropy[row], said.rstrip("%"), f"{head}: entropy {said}")

    return cell


def known(role: str) -> str:
    """A role as the style sheet names it."""
    return role if role in ROLES else "other"


def letter(role: str) -> str:
    """The letter of a role."""
    return ROLES.get(role, UNKNOWN_ROLE).letter


def chip(role: str) -> Html:
    """The letter of a role in its colour."""
    return tag("span", letter(role), class_=f"chip a-{known(role)}")


def legend(table: HeadTable) -> Html:
    """What the letters mean."""
    entries = [
        tag("li", join_html([chip(role), f"{role} ({len(table.with_role(role))})"], " "))
        for role in table.held_roles
    ]
    if table.without_role:
        entries.append(tag("li", f"{NONE} no role ({len(table.without_role)})"))
    if any(len(roles) > 2 for roles in table.df["roles"]):
        entries.append(tag("li", f"{MORE} more than two roles"))
    return tag("ul", *entries, class_="legend")


def every_head(table: HeadTable) -> Html:
    """A row for each head with the measures that say most."""
    columns = {name: title for name, title in MEASURED.items() if name in table.df}
    values = table.df[list(columns)].to_numpy(float)
    rows = [
        (str(head), ", ".join(roles) or "-", *(format_number(value, 2) for value in line))
        for head, roles, line in zip(table.heads, table.df["roles"], values, strict=True)
    ]
    caption = (
        "Means over the rows that were read. How widely: 0 to 1 of the largest entropy; masses and "
        "shares: 0 to 1."
    )
    titles = tuple(columns.values())
    return Table(caption, ("head", "roles", *titles), tuple(rows), frozenset(titles)).to_html()


def grid(caption: str, table: HeadTable, stack: str, cell_of: Cell) -> Html:
    """Layers down, heads across; a blank where a layer has fewer heads."""
    rows = {
        head: row
        for row, head in enumerate(table.heads)
        if head.stack == stack
    }  # fmt: skip
    layers = list(dict.fromkeys(head.layer for head in rows))
    width = max(head.head for head in rows) + 1
    numbers = [tag("td", ""), *(tag("th", head, scope="col") for head in range(width))]
    lines = []
    for layer in layers:
        heads = [HeadId(layer, head, stack) for head in range(width)]
        cells = [cell_of(head, rows[head]) if head in rows else tag("td", "") for head in heads]
        lines.append(tag("tr", tag("th", f"L{layer}", scope="row"), *cells))
    said = f"{stack}: {caption}" if stack else caption
    whole = join_html(
        [tag("caption", tag("span", said)), tag("thead", tag("tr", *numbers)), tag("tbody", *lines)]
    )
    return scrolling(said, tag("table", whole, class_="grid"))


def value_cell(share: float, text: str, words: str) -> Html:
    """A cell of a grid with a number in it, coloured by its share of the largest."""
    if math.isnan(share):
        return tag("td", "", title=words, aria_label=words)
    back = colour(share)
    look = f"background:{back};color:{ink_on(back)}"
    return tag("td", text, class_="value", style=look, title=words, aria_label=words)


def ink_on(back: str) -> str:
    """Black or white, whichever is read better on a colour.

    >>> ink_on("#ffffff"), ink_on("#08306b")
    ('#000', '#fff')
    """
    return "#fff" if luminance(back) < HALFWAY else "#000"


def luminance(colour_: str) -> float:
    """Relative luminance of a colour such as #08306b, 0 to 1.

    https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
    """
    parts = [int(colour_[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
