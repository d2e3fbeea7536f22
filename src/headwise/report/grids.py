"""Every head at its place, as a section of the report: by role, and by how widely it looks.

In: a head table. Out: HTML. It decides no role; colours and letters are those of the roles given.
"""

import math

from headwise.drawing.html import (
    Cell,
    Html,
    data_table,
    folded,
    grid,
    joined,
    section,
    tag,
    value_cell,
)
from headwise.formats import format_number, format_share
from headwise.heads import HeadId, HeadTable
from headwise.views.heads import GLYPHS, MORE, NONE, UNKNOWN

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
        folded("Every head in numbers", every_head(table)),
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
    return role if role in GLYPHS else "other"


def letter(role: str) -> str:
    """The letter of a role."""
    return GLYPHS.get(role, UNKNOWN).letter


def chip(role: str) -> Html:
    """The letter of a role in its colour."""
    return tag("span", letter(role), class_=f"chip a-{known(role)}")


def legend(table: HeadTable) -> Html:
    """What the letters mean."""
    entries = [
        tag("li", joined([chip(role), f"{role} ({len(table.with_role(role))})"], " "))
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
        (head, ", ".join(roles) or "-", *(format_number(value, 2) for value in line))
        for head, roles, line in zip(table.heads, table.df["roles"], values, strict=True)
    ]
    caption = (
        "Means over the rows that were read. How widely: 0 to 1 of the largest entropy; masses and "
        "shares: 0 to 1."
    )
    return data_table(
        caption, ("head", "roles", *columns.values()), rows, numbers=tuple(columns.values())
    )
