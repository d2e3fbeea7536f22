"""The report's section on roles: the strongest heads of each, with their attention maps.

In: ReportData. Out: HTML that says what each score is and what a role does not prove.
"""

from headwise.drawing.heatmap import HeatMap, heat_svg
from headwise.drawing.html import Html, bullets, figure_html, join_html, section, tag
from headwise.drawing.table import Table
from headwise.formats import format_count, format_number, format_share
from headwise.heads import HeadRow
from headwise.report.data import ReportData, number_or_nan
from headwise.report.maps import MAPS_PER_ROLE, SHARPNESS, sharpest_heads
from headwise.roles import ROLES, UNKNOWN_ROLE
from headwise.views.heads import strongest_of

HEADS_PER_ROLE = 3
RELATIONAL = ("syntactic", "semantic", "coreference")
"""Roles about pairs of words: their maps leave out special tokens."""
SCORE_COLUMNS = ("score", "threshold", "baseline")
READINGS = {
    "dependent": "the dependent looks at its governor",
    "governor": "the governor looks at its dependent",
    "column": "of all words, the governor looks at the dependent most",
}


def roles_section(data: ReportData) -> Html:
    """The strongest heads of each role, and their maps."""
    maps, table = data.maps, data.table
    if maps.by_head:
        reading = (
            "In a map, each row is a token that looks, and each column a token that is looked at; "
            "the stronger the colour, the larger the weight. A row adds up to 1, or to less if the "
            "model's heads have sinks that are not tokens. Maps of roles that relate words leave "
            "out special tokens, so the weight on those is missing from the rows."
        )
        intro = tag("p", join_html([reading, "The sentence:", tag("q", maps.text)], " "))
    else:
        reason = maps.reason or "none were requested"
        intro = tag("p", f"This report has no attention maps: {reason}.", class_="limit")
    parts = [_role_part(data, role) for role in table.held_roles]
    if maps.by_head and not parts:
        parts = [_sharpest_part(data)]
    for title, others in (
        ("Roles that no head has", table.missed_roles),
        ("Roles that were not tested", table.untested_roles),
    ):
        if others:
            meanings = ((tag("b", f"{role}."), ROLES[role].meaning) for role in others)
            parts += [tag("h3", title), bullets(join_html(pair, " ") for pair in meanings)]
    return section(
        "roles",
        "The strongest heads of each role",
        tag(
            "p",
            "A head has a role if its score reaches the threshold and beats the baseline: the "
            "score of a head without the habit. For broad, the baseline is the model's median "
            "head, so no head is broad if all of them are.",
        ),
        intro,
        *parts,
    )


def role_class(role: str) -> str:
    """A role's name in the style sheet's classes."""
    return ROLES.get(role, UNKNOWN_ROLE).name


def role_chip(role: str) -> Html:
    """A role's letter on its colour."""
    letter = ROLES.get(role, UNKNOWN_ROLE).letter
    return tag("span", letter, class_=f"chip a-{role_class(role)}")


def _role_part(data: ReportData, name: str) -> Html:
    """One role: its claim, its strongest heads, their maps."""
    role, heads = ROLES.get(name, UNKNOWN_ROLE), data.table.with_role(name)
    strongest = strongest_of(data.table, name, HEADS_PER_ROLE)
    claim, unknown, limit = role.meaning.partition("Unknown: ")
    drawn = data.maps.words_by_head if name in RELATIONAL else data.maps.by_head
    pairs = [(row, drawn.get(str(row.name))) for row in strongest[:MAPS_PER_ROLE]]
    figures = [
        _map_figure(heat_map, _map_caption(row, name))
        for row, heat_map in pairs
        if heat_map is not None and heat_map.has_cells
    ]
    return tag(
        "div",
        tag("h3", join_html([role_chip(name), f"{name}: {format_count(len(heads), 'head')}"], " ")),
        tag("p", join_html([tag("b", claim), f"{unknown}{limit}"], " ")),
        tag("p", describe_head(strongest[0], name)),
        _score_table(strongest, name, f"Score: {role.score}."),
        tag("p", f"All of them: {' '.join(map(str, heads))}", class_="names"),
        tag("div", *figures, class_="maps") if figures else "",
        class_="role",
    )


def _score_table(heads: list[HeadRow], role: str, caption: str) -> Html:
    rows = [
        (
            str(row.name),
            *(format_number(number_or_nan(row, f"{role}_{name}")) for name in SCORE_COLUMNS),
            _describe_detail(str(row.get(f"{role}_detail", ""))),
        )
        for row in heads
    ]
    columns = ("head", *SCORE_COLUMNS, "detail")
    count = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
    cells = tuple(row[:count] for row in rows)
    return Table(caption, columns[:count], cells, frozenset(SCORE_COLUMNS)).to_html()


def _sharpest_part(data: ReportData) -> Html:
    """Maps of the heads with the least entropy, for a model without roles."""
    pairs = [(head, data.maps.by_head.get(str(head))) for head in sharpest_heads(data.table)]
    figures = [
        _map_figure(
            heat_map,
            f"normalised entropy {format_number(number_or_nan(data.table[head], SHARPNESS), 2)}",
        )
        for head, heat_map in pairs
        if heat_map is not None and heat_map.has_cells
    ]
    return tag(
        "div",
        tag("h3", "The sharpest heads"),
        tag("p", "No head has a role. These heads spread their attention least."),
        tag("div", *figures, class_="maps") if figures else "",
        class_="role",
    )


def _describe_detail(detail: str) -> str:
    """A role's detail in words: a distance or a relation; other details are returned unchanged.

    >>> _describe_detail("-1"), _describe_detail("verb-object, governor")
    ('1 back', 'verb-object: the governor looks at its dependent')
    """
    if _is_offset(detail):
        return f"{detail[1:]} {'back' if detail[0] == '-' else 'ahead'}"
    relation, _, reading = detail.partition(", ")
    return f"{relation}: {READINGS[reading]}" if reading in READINGS else detail


def _is_offset(detail: str) -> bool:
    return detail[:1] in ("-", "+") and detail[1:].isdigit()


def _map_caption(head: HeadRow, role: str) -> str:
    score = format_number(number_or_nan(head, f"{role}_score"), 2)
    words_only = ", special tokens left out" if role in RELATIONAL else ""
    return f"{role}{f' {score}' if score else ''}{words_only}"


def _map_figure(heat_map: HeatMap, fact: str) -> Html:
    """One head's map with a fact about the head, and the map's largest weight in words."""
    cells = [
        (value, query, key, row == column)
        for row, (query, line) in enumerate(zip(heat_map.rows, heat_map.values, strict=True))
        for column, (key, value) in enumerate(zip(heat_map.columns, line, strict=True))
    ]
    value, query, key, is_self = max(cells, key=lambda cell: (not cell[3], cell[0]))
    caption = (
        f"{heat_map.name}, {fact}. The largest weight "
        f"{'here' if is_self else 'between two tokens'} is {value:.2f}, from \u201c{query}\u201d "
        f"to \u201c{key}\u201d."
    )
    tokens = format_count(len(heat_map.columns), "token")
    return figure_html(
        heat_svg([heat_map]), f"Attention map of {heat_map.name} over {tokens}", caption
    )


def describe_head(row: HeadRow, role: str) -> str:
    """One sentence about a head and the score of its role."""
    name, detail = str(row.name), str(row.get(f"{role}_detail", ""))
    score = format_share(number_or_nan(row, f"{role}_score"))
    guess = format_share(number_or_nan(row, f"{role}_baseline"))
    if not score:
        return f"{name} is {role}."
    if role in RELATIONAL:
        relation, _, reading = detail.partition(", ")
        how = f" ({READINGS[reading]})" if reading in READINGS else ""
        beside = f"; the best simple guess: {guess}" if guess else ""
        return f"{name} finds {relation or 'the relation'} {score} of the time{how}{beside}."
    if role == "broad":
        return f"{name} spreads its attention to {score} of the largest possible entropy."
    if role == "positional" and _is_offset(detail):
        distance = "" if detail[1:] == "1" else f"{detail[1:]} "
        where = f"the token {distance}{'before' if detail[0] == '-' else 'after'}"
    else:
        where = {
            "delimiter": f"{detail} tokens" if detail == "special" else detail or "separators",
            "sink": "the first four tokens" if detail == "first four" else "the first token",
            "induction": "what followed earlier copies of a token",
            "duplicate": "earlier copies of a token",
        }.get(role, "one place")
    beside = f"; equal weights would give {guess}" if guess else ""
    return f"{name} gives {score} of its attention to {where}{beside}."
