"""The report's section on roles: the strongest heads for each role, with attention maps."""

from collections.abc import Mapping

from headwise.drawing.heatmap import HeatMap, heat_svg
from headwise.drawing.html import Html, bullets, figure_html, join_html, section, tag
from headwise.drawing.table import Table
from headwise.formats import format_count, format_number
from headwise.head_table import HeadRow
from headwise.report.data import ReportData
from headwise.report.maps import MAPS_PER_ROLE, SHARPNESS, sharpest_heads
from headwise.roles import RELATIONAL, ROLES, UNKNOWN_ROLE
from headwise.views.findings import describe_detail, describe_head, find_example
from headwise.views.heads import SCORE_COLUMNS, score_cells, strongest_of

HEADS_PER_ROLE = 3
READINGS = {
    "dependent": "the dependent looks at its governor",
    "governor": "the governor looks at its dependent",
    "column": "the governor looks at the dependent more than other words do",
}


def roles_section(data: ReportData) -> Html:
    """The strongest heads for each role, and their maps."""
    maps, table = data.maps, data.table
    if maps.by_head:
        reading = (
            "In a map, each row is a token that looks, and each column is a token looked at; the "
            "stronger the colour, the larger the weight. A row adds up to 1, or to less if the "
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
        "The strongest heads for each role",
        tag(
            "p",
            "A head has a role if its score reaches the threshold and beats the baseline, "
            "which is the score of a head without the habit. For the role \u201cbroad\u201d, the "
            "baseline is the score of the model's median head, so no head is broad if all are "
            "equally broad.",
        ),
        intro,
        *parts,
    )


def role_chip(name: str) -> Html:
    """A role's letter on a background in its colour."""
    role = ROLES.get(name, UNKNOWN_ROLE)
    return tag("span", role.letter, class_=f"chip a-{role.name}")


def _role_part(data: ReportData, name: str) -> Html:
    role, heads = ROLES.get(name, UNKNOWN_ROLE), data.table.with_role(name)
    strongest = strongest_of(data.table, name, HEADS_PER_ROLE)
    claim, unknown, limit = role.meaning.partition(" Unknown: ")
    is_relational = name in RELATIONAL
    words_only = ", special tokens left out" if is_relational else ""
    facts = {}
    for row in strongest[:MAPS_PER_ROLE]:
        score = format_number(row.get(f"{name}_score"), 2)
        facts[str(row.name)] = f"{name}{f' {score}' if score else ''}{words_only}"
    return tag(
        "div",
        tag("h3", join_html([role_chip(name), f"{name}: {format_count(len(heads), 'head')}"], " ")),
        tag("p", join_html([tag("b", claim), f"{unknown.lstrip()}{limit}"], " ")),
        tag("p", describe_head(strongest[0], name), " ", example_html(data, strongest[0], name)),
        _score_table(strongest, name, f"Score: {role.score}."),
        tag("p", f"All of them: {' '.join(map(str, heads))}", class_="names"),
        _map_figures(data.maps.words_by_head if is_relational else data.maps.by_head, facts),
        class_="role",
    )


def example_html(data: ReportData, head: HeadRow, role: str) -> Html:
    """A sentence in which the head does this, with the two words marked; empty if there is none."""
    example = find_example(data.table, head, role)
    if example is None:
        return Html("")
    parts = [tag("mark", part) if at % 2 else part for at, part in enumerate(example.parts)]
    looks = f"{head.name}: {example.looks} \u2192 {example.at}"
    return tag("span", tag("b", looks), " in ", tag("q", *parts), class_="example")


def _score_table(heads: list[HeadRow], role: str, caption: str) -> Html:
    details = [describe_detail(str(row.get(f"{role}_detail", ""))) for row in heads]
    columns = ("head", *SCORE_COLUMNS, "detail")
    count = len(columns) if any(details) else len(columns) - 1
    rows = [
        (str(row.name), *score_cells(row, role), detail)[:count]
        for row, detail in zip(heads, details, strict=True)
    ]
    return Table(caption, columns[:count], rows, SCORE_COLUMNS).to_html()


def _sharpest_part(data: ReportData) -> Html:
    """Maps of the heads with the lowest entropy, for a model whose heads have no roles."""
    facts = {
        str(head): f"normalised entropy {format_number(data.table[head][SHARPNESS], 2)}"
        for head in sharpest_heads(data.table)
    }
    return tag(
        "div",
        tag("h3", "The sharpest heads"),
        tag("p", "No head has a role. These heads spread their attention least."),
        _map_figures(data.maps.by_head, facts),
        class_="role",
    )


def _map_figures(maps: Mapping[str, HeatMap], facts: Mapping[str, str]) -> Html:
    """The heads' maps, with captions that give a fact about the head and the largest weight."""
    figures = []
    for name, fact in facts.items():
        heat_map = maps.get(name)
        if heat_map is None or not heat_map.columns:  # there may be only special tokens
            continue
        cells = [
            (row != column, value, query, key)
            for row, (query, line) in enumerate(zip(heat_map.rows, heat_map.values, strict=True))
            for column, (key, value) in enumerate(zip(heat_map.columns, line, strict=True))
        ]
        is_between, value, query, key = max(cells, key=lambda cell: cell[:2])
        caption = (
            f"{name}, {fact}. The largest weight {'between two tokens' if is_between else 'here'} "
            f"is {value:.2f}, from \u201c{query}\u201d to \u201c{key}\u201d."
        )
        tokens = format_count(len(heat_map.columns), "token")
        label = f"Attention map of {name} over {tokens}"
        figures.append(figure_html(heat_svg([heat_map]), label, caption))
    return tag("div", *figures, class_="maps") if figures else Html("")
