"""The roles a head can have: how each is shown, what it claims, and what its score measures.

Which head has which role is decided in headwise.scans.role_decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Role:
    """One role: a letter and two colours to show it, and its meaning in words."""

    name: str
    letter: str
    terminal_colour: str
    """One of the terminal's sixteen colours, by the name that rich uses."""
    page_colour: str
    """Background on HTML pages, dark enough for a white letter."""
    meaning: str
    """Behaviour of a head with the role, and what remains unknown about it."""
    score: str
    """Meaning of the role's score, as a noun phrase."""


ROLES: Mapping[str, Role] = MappingProxyType(
    {
        role.name: role
        for role in (
            Role(
                *("positional", "P", "blue", "#1f5fbf"),
                "Looks a fixed distance away, such as at the token before. Unknown: what it reads.",
                "the mean weight at its best distance, from 4 back to 4 ahead",
            ),
            Role(
                *("delimiter", "D", "yellow", "#85590a"),
                "Looks at special tokens and punctuation. Unknown: whether it is idle then.",
                "the mean weight on special tokens or on punctuation",
            ),
            Role(
                *("sink", "S", "red", "#b3261e"),
                "Looks at the first tokens, whatever they are. Unknown: what else it attends to.",
                "the mean weight on the first token, or on the first four",
            ),
            Role(
                *("syntactic", "Y", "green", "#1b7a3d"),
                "Finds a word's grammatical partner. Unknown: whether the model uses it.",
                "how often its largest weight finds the partner in natural sentences",
            ),
            Role(
                *("semantic", "M", "cyan", "#0b7285"),
                "Links words of related meaning. Unknown: whether the model uses the link.",
                "how often it picks the related word among candidates in natural sentences",
            ),
            Role(
                *("coreference", "C", "magenta", "#8e3aa8"),
                "Links a pronoun and the word it stands for. Unknown: whether it resolves it.",
                "how often it picks the right noun among candidates in running text",
            ),
            Role(
                *("induction", "I", "bright_blue", "#4338ca"),
                "Looks at what followed an earlier copy of the token. Unknown: whether it copies.",
                "the mean weight on what followed earlier copies, in repeated random tokens",
            ),
            Role(
                *("duplicate", "U", "bright_magenta", "#b02a74"),
                "Looks at earlier copies of the token itself. Unknown: how the model uses this.",
                "the mean weight on earlier copies of the token",
            ),
            Role(
                *("broad", "B", "bright_black", "#5c6470"),
                "Looks about equally at nearly all tokens, on average: single rows may be sharp.",
                "its entropy as a share of the largest possible",
            ),
        )
    }
)

RELATIONAL = ("syntactic", "semantic", "coreference")
"""Roles about pairs of words, which rest on sentences with gold relations."""

UNKNOWN_ROLE = Role(
    *("other", "?", "bold", "#3b4048"), "A role that headwise does not know.", "not known"
)
"""Used for role names that are not in ROLES, such as those a user adds to a table."""
