"""Facts about a model and its heads, as the page shows them: titles, roles, measures, scans.

In: names and head tables. Out: answers. Also has the built-in sentences and pairs.
"""

import math
from collections.abc import Mapping
from typing import Any

from headwise.explorer import api_types as api
from headwise.explorer.findings import scan_findings
from headwise.explorer.role_details import role_detail
from headwise.formats import replace_nonfinite
from headwise.head_table import HeadTable
from headwise.roles import RELATIONAL, ROLES

TITLES = {"minilm": "all-MiniLM-L6-v2", "smollm2": "SmolLM2-135M-Instruct"}
"""Full names of the embedded models."""
BUILTIN_TEXT = "The animal didn't cross the street because it was too tired."
SWAPPED, SWAPPED_FOR, PRONOUN = "tired", "wide", "it"
OTHER_BUILTIN_TEXT = BUILTIN_TEXT.replace(SWAPPED, SWAPPED_FOR)
PAIR_HEADS = {"minilm": "L3H1", "smollm2": "L4H2"}
"""The head of each embedded model whose links the built-in pair moves most tellingly."""
BUILTIN_SWAP = api.Finding("swap", word=SWAPPED_FOR, text=OTHER_BUILTIN_TEXT)
LESSON_PAIR = api.LessonPair(
    text="Simon questioned the girl because he was worried.",
    other="Simon questioned the girl because she was worried.",
    head="L1H3",
    source=6,
    candidates=[1, 4],
)
"""The pair of short sentences in which a head of minilm moves its link most cleanly; found by
benchmarks/lesson_pair.py."""
OTHER_TEXTS = (
    "A kitten rested on the rug since it felt cosy.",
    "The stock market fell sharply after the announcement.",
)
"""Sentences that a similarity model compares a text with."""
MEASURES = {
    "normalised_entropy": "How widely it looks: 0 at one token, 1 at all equally",
    "confidence": "Mean of its largest weight",
    "distance": "Mean distance in tokens",
    "previous": "On the token before",
    "next": "On the token after",
    "self": "On the token itself",
    "first": "On the first token",
    "special": "On special tokens",
    "punctuation": "On punctuation",
    "duplicate": "On earlier copies of the token",
    "text_induction": "On what followed an earlier copy",
    "output_share": "Share of its layer's output",
}
"""Measures that can colour the grid, with their meanings."""
JOB_MEASURES = {
    "scan": {"induction": "On what followed an earlier copy, in repeated random tokens"},
    "importance": {
        "zero": "Loss added when it is silenced, on built-in text",
        "michel": "Michel's gradient score, on built-in text",
    },
}
"""Measures that each job adds, with their meanings."""
MEASURE_GROUPS = {
    "How it looks": ["normalised_entropy", "confidence", "distance"],
    "Where it looks": ["previous", "next", "self", "first", "special", "punctuation"],
    "Repeated words": ["duplicate", "text_induction", "induction"],
    "What it adds": ["output_share", "zero", "michel"],
}
"""Names of all measures by group."""


FIGURES = {
    **dict.fromkeys(RELATIONAL, "found"),
    "broad": "of the largest entropy",
}
"""Meaning of a role's score; other roles have a share of the head's attention."""


def model_title(name: str) -> str:
    """The model's full name, or the last part of a path or hub id."""
    return TITLES.get(name) or name.rstrip("/").rpartition("/")[2] or name


def role_facts() -> dict[str, api.RoleFacts]:
    """How the page shows each role, in lead order."""
    return {
        name: api.RoleFacts(
            letter=role.letter,
            light=role.light,
            dark=role.dark,
            meaning=role.meaning,
            tendency=role.tendency,
            phrase=role.phrase,
        )
        for name, role in ROLES.items()
    }


def describe_scan(table: HeadTable, first_token: str | None) -> api.ScanFacts:
    """Roles, details and findings of a scan; `first_token` begins every text, if it is special."""
    return api.ScanFacts(
        tokens=int(table.about.get("tokens", 0)),
        names=[str(head) for head in table.heads],
        roles=[list(roles) for roles in table.df["roles"]],
        details=[
            {role: role_detail(role, str(row.get(f"{role}_detail", ""))) for role in row["roles"]}
            for _, row in table.df.iterrows()
        ],
        figures=[
            {role: figure for role in row["roles"] if (figure := role_figure(role, row.to_dict()))}
            for _, row in table.df.iterrows()
        ],
        findings=scan_findings(table, first_token),
    )


def role_figure(role: str, row: Mapping[Any, Any]) -> str:
    """Score of a role and its baseline, such as "63% found, 50% by chance"; "" if not measured."""
    score, chance = (
        float(value) if isinstance(value := row.get(f"{role}_{name}"), float) else math.nan
        for name in ("score", "baseline")
    )
    if not math.isfinite(score):
        return ""
    figure = f"{score:.0%} {FIGURES.get(role, 'of its attention')}"
    return f"{figure}, {chance:.0%} by chance" if math.isfinite(chance) else figure


def make_grid(table: HeadTable, meanings: Mapping[str, str]) -> api.HeadGrid:
    """The columns of a table that `meanings` explains."""
    columns = [name for name in meanings if name in table.df]
    return api.HeadGrid(
        names=[str(head) for head in table.heads],
        roles=[list(roles) for roles in table.df["roles"]],
        measures={
            name: replace_nonfinite(table.df[name].astype(float).tolist()) for name in columns
        },
        words={name: meanings[name] for name in columns},
    )
