"""The strongest heads of each role with their attention maps, as a section of the report.

In: `Findings`. Out: HTML. It says what a score is and what a role does not prove.
"""

from headwise.drawing.heatmap import HeatMap, heat_svg
from headwise.drawing.html import Html, bullets, figure, join_html, section, tag
from headwise.drawing.table import Table
from headwise.formats import format_count, format_number, format_share
from headwise.heads import HeadRow
from headwise.report.data import ReportData, number
from headwise.report.grids import chip
from headwise.report.maps import MAPS_A_ROLE, SHARPNESS, sharpest_heads
from headwise.roles import ROLES, UNKNOWN_ROLE
from headwise.views.heads import strongest_of

HEADS_A_ROLE = 3
RELATIONAL = ("syntactic", "semantic", "coreference")
"""Roles that are judged between words: special tokens are left out of their maps."""

READINGS = {
    "dependent": "the dependent looks at its governor",
    "governor": "the governor looks at its dependent",
    "column": "of all words, the governor looks at the dependent most",
}


def roles(found: ReportData) -> Html:
    """The strongest heads of each role, and their maps."""
    drawn, table = found.drawn, found.table
    reading = (
        "In a map a row is a token that looks, and a column a token that is looked at; the "
        "stronger the colour, the larger the share. A row adds up to 1, or to less where the "
        "model's heads have sinks that are not tokens. Special tokens are left out where a role is "
        "about words alone; what goes to them is then missing from the rows."
    )
    told = [tag("p", join_html([reading, "The sentence:", tag("q", drawn.text)], " "))]
    if not drawn.maps:
        reason = drawn.reason or "none were asked for"
        told = [tag("p", f"There are no attention maps in this report: {reason}.", class_="limit")]
    parts = [role_part(found, role) for role in table.held_roles]
    if drawn.maps and not parts:
        parts = [sharpest_part(found)]
    for title, others in (
        ("Roles that no head has", table.missed_roles),
        ("Roles that were not tested", table.untested_roles),
    ):
        if others:
            parts.append(tag("h3", title))
            parts.append(
                bullets(join_html([tag("b", f"{one}."), ROLES[one].meaning], " ") for one in others)
            )
    return section(
        "roles",
        "The strongest heads of each role",
        tag(
            "p",
            "A head has a role where its score reaches the threshold and beats the baseline, which "
            "is what a head without the habit would score. For broad the baseline is the model's "
            "median head, so that no head is broad where all are.",
        ),
        *told,
        *parts,
    )


def role_part(found: ReportData, role: str) -> Html:
    """One role: what it claims, who has it most, how that looks."""
    table = found.table
    best, heads = strongest_of(table, role, HEADS_A_ROLE), table.with_role(role)
    known = ROLES.get(role, UNKNOWN_ROLE)
    claim, unknown, limit = known.meaning.partition(" Unknown: ")
    said = join_html([tag("b", claim), f"{unknown}{limit}"])
    rows = [
        (
            str(row.name),
            *(
                format_number(number(row, f"{role}_{name}"))
                for name in ("score", "threshold", "baseline")
            ),
            in_detail(str(row.get(f"{role}_detail", ""))),
        )
        for row in best
    ]
    columns = ["head", "score", "threshold", "baseline", "detail"]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    caption = f"Score: {known.score}."
    drawn = found.drawn.words if role in RELATIONAL else found.drawn.maps
    mine = [(row, drawn.get(str(row.name))) for row in best[:MAPS_A_ROLE]]
    maps = [role_map(one, row, role) for row, one in mine if one is not None and one.has_cells]
    return tag(
        "div",
        tag("h3", join_html([chip(role), f"{role}: {format_count(len(heads), 'head')}"], " ")),
        tag("p", said),
        tag("p", in_words(best[0], role)),
        Table(
            caption, tuple(columns), tuple(rows), frozenset({"score", "threshold", "baseline"})
        ).to_html(),
        tag("p", f"All of them: {' '.join(map(str, heads))}", class_="names"),
        tag("div", *maps, class_="maps") if maps else "",
        class_="role",
    )


def sharpest_part(found: ReportData) -> Html:
    """Maps of the heads with the least entropy: what there is to see where no head has a role."""
    drawn = [(head, found.drawn.maps.get(str(head))) for head in sharpest_heads(found.table)]
    maps = [
        head_map(
            one, f"normalised entropy {format_number(number(found.table[head], SHARPNESS), 2)}"
        )
        for head, one in drawn
        if one is not None and one.has_cells
    ]
    return tag(
        "div",
        tag("h3", "The sharpest heads"),
        tag("p", "No head has a role. These spread their attention least."),
        tag("div", *maps, class_="maps") if maps else "",
        class_="role",
    )


def in_detail(detail: str) -> str:
    """What a table calls a detail: a distance or a relation in words, anything else as it is.

    >>> in_detail("-1"), in_detail("verb-object, governor")
    ('1 back', 'verb-object: the governor looks at its dependent')
    """
    if detail[:1] in ("-", "+") and detail[1:].isdigit():
        return f"{detail[1:]} {'back' if detail[0] == '-' else 'ahead'}"
    relation, _, reading = detail.partition(", ")
    return f"{relation}: {READINGS[reading]}" if reading in READINGS else detail


def role_map(drawn: HeatMap, head: HeadRow, role: str) -> Html:
    """The map of one head of a role."""
    score = format_number(number(head, f"{role}_score"), 2)
    bare = ", special tokens left out" if role in RELATIONAL else ""
    return head_map(drawn, f"{role}{f' {score}' if score else ''}{bare}")


def head_map(drawn: HeatMap, known: str) -> Html:
    """The map of one head, what is known of it, and its largest weight in words."""
    cells = [
        (value, query, key, row == column)
        for row, (query, line) in enumerate(zip(drawn.rows, drawn.values, strict=True))
        for column, (key, value) in enumerate(zip(drawn.columns, line, strict=True))
    ]
    value, query, key, is_self = max(cells, key=lambda cell: (not cell[3], cell[0]))
    caption = (
        f"{drawn.name}, {known}. The largest weight "
        f"{'here' if is_self else 'between two tokens'} is {value:.2f}, from \u201c{query}\u201d "
        f"to \u201c{key}\u201d."
    )
    label = f"Attention map of {drawn.name} over {format_count(len(drawn.columns), 'token')}"
    return figure(heat_svg([drawn]), label, caption)


def in_words(row: HeadRow, role: str) -> str:
    """What one head does, in a sentence."""
    name, detail = str(row.name), str(row.get(f"{role}_detail", ""))
    score, baseline = format_share(number(row, f"{role}_score")), number(row, f"{role}_baseline")
    if not score:
        return f"{name} is {role}."
    beside = f"; equal weights would give {format_share(baseline)}" if baseline == baseline else ""
    if role in RELATIONAL:
        relation, _, reading = detail.partition(", ")
        how = f" ({READINGS[reading]})" if reading in READINGS else ""
        beside = f"; the best simple guess: {format_share(baseline)}" if beside else ""
        return f"{name} finds {relation or 'the relation'} {score} of the time{how}{beside}."
    if role == "broad":
        return f"{name} spreads its attention to {score} of the largest possible entropy."
    if role == "positional" and detail[:1] in ("-", "+") and detail[1:].isdigit():
        far = "" if detail[1:] == "1" else f"{detail[1:]} "
        where = f"the token {far}{'before' if detail[0] == '-' else 'after'}"
    else:
        where = {
            "delimiter": f"{detail} tokens" if detail == "special" else detail or "separators",
            "sink": "the first four tokens" if detail == "first four" else "the first token",
            "induction": "what followed earlier copies of a token",
            "duplicate": "earlier copies of a token",
        }.get(role, "one place")
    return f"{name} gives {score} of its attention to {where}{beside}."
