"""Findings: a sentence about the strongest head of each role, with an example.

In: a HeadTable. Out: sentences and examples, for the terminal and the report.
"""

from typing import NamedTuple

from rich.table import Table as RichTable
from rich.text import Text

from headwise.formats import format_share
from headwise.head_table import HeadRow, HeadTable
from headwise.roles import RELATIONAL, ROLES, UNKNOWN_ROLE
from headwise.views.heads import dict_in, strongest_of

MARK = "*"
"""Surrounds the two words, so that they stand out in terminals without bold type."""


class Example(NamedTuple):
    """A sentence in which a head does what its role says: alternating plain and marked parts."""

    looks: str
    at: str
    parts: tuple[str, str, str, str, str]
    """Text before, a marked word, text between, a marked word, text after."""


def findings(table: HeadTable) -> RichTable:
    """For each role a line about its strongest head, and an example if there is one."""
    lines = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for role in table.held_roles:
        head = strongest_of(table, role, 1)[0]
        colour = ROLES.get(role, UNKNOWN_ROLE).terminal_colour
        lines.add_row(Text(role, colour), str(head.name), describe_briefly(head, role))
        if example := find_example(table, head, role):
            line = Text(f"{example.looks} -> {example.at}: ")
            for number, part in enumerate(example.parts):
                is_word = number % 2 == 1
                line.append(f"{MARK}{part}{MARK}" if is_word else part, "bold" if is_word else "")
            lines.add_row("", "", line)
    return lines


def find_example(table: HeadTable, head: HeadRow, role: str) -> Example | None:
    """The example that the scan kept for this head and role."""
    found = dict_in(dict_in(table.about, "examples"), str(head.name)).get(role)
    if not isinstance(found, dict):
        return None
    text, looks, at = found["text"], found["looks"], found["at"]
    (a, b), (c, d) = sorted((looks, at))
    parts = (text[:a], text[a:b], text[b:c], text[c:d], text[d:])
    return Example(text[slice(*looks)], text[slice(*at)], parts)


def describe_detail(detail: str) -> str:
    """A role's detail in words if it is a distance; other details are returned unchanged.

    >>> describe_detail("-1"), describe_detail("obj (verb -> object)")
    ('1 back', 'obj (verb -> object)')
    """
    if _is_offset(detail):
        return f"{detail[1:]} {'back' if detail[0] == '-' else 'ahead'}"
    return detail


def _is_offset(detail: str) -> bool:
    return detail[:1] in ("-", "+") and detail[1:].isdigit()


def describe_briefly(row: HeadRow, role: str) -> str:
    """A head's habit, how often it shows, and the baseline; just the detail without a score."""
    detail = str(row.get(f"{role}_detail", ""))
    score, guess = (format_share(row.get(f"{role}_{name}")) for name in ("score", "baseline"))
    if not score:
        return detail
    if role in RELATIONAL:
        return f"{detail}: {score} found (baseline: {guess})"
    if role == "broad":
        return f"entropy {score} of the maximum (median head: {guess})"
    return f"{score} on {_describe_target(role, detail)} (equal weights: {guess})"


def describe_head(row: HeadRow, role: str) -> str:
    """One sentence about a head and the score of its role."""
    name, detail = str(row.name), str(row.get(f"{role}_detail", ""))
    score, guess = (format_share(row.get(f"{role}_{name}")) for name in ("score", "baseline"))
    if not score:
        return f"{name} is {role}."
    if role in RELATIONAL:
        beside = f"; the best simple guess: {guess}" if guess else ""
        return f"{name} finds {detail or 'the relation'} {score} of the time{beside}."
    if role == "broad":
        return f"{name} spreads its attention widely: its entropy is {score} of the maximum."
    beside = f"; equal weights would give {guess}" if guess else ""
    return f"{name} gives {score} of its attention to {_describe_target(role, detail)}{beside}."


def _describe_target(role: str, detail: str) -> str:
    """Where a head with this role and detail looks."""
    if role == "positional" and _is_offset(detail):
        distance = "" if detail[1:] == "1" else f"{detail[1:]} "
        return f"the token {distance}{'before' if detail[0] == '-' else 'after'}"
    return {
        "delimiter": f"{detail} tokens" if detail == "special" else detail or "separators",
        "sink": "the first four tokens" if detail == "first four" else "the first token",
        "induction": "what followed earlier copies of a token",
        "duplicate": "earlier copies of a token",
    }.get(role, "one place")
