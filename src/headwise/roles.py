"""The roles a head can have: how each is shown, what it claims, and what its score measures.

Which head has which role is decided in headwise.scans.role_decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Role:
    """One role: a letter and colours to show it, and its meaning in words."""

    name: str
    letter: str
    terminal_colour: str
    """One of the terminal's sixteen colours, by the name that rich uses."""
    light: str
    """Colour on light pages, dark enough for text on white and for a white letter on it."""
    dark: str
    """Colour on dark pages."""
    phrase: str
    """Behaviour of a head with the role, as the rest of a sentence about the head."""
    meaning: str
    """Behaviour of a head with the role, and what remains unknown about it."""
    score: str
    """Meaning of the role's score, as a noun phrase."""

    @property
    def tendency(self) -> str:
        """The phrase without the claim that the head always does it."""
        verb, _, rest = self.phrase.partition(" ")
        return f"tends to {verb.removesuffix('s')} {rest}"


ROLES: Mapping[str, Role] = MappingProxyType(
    {
        role.name: role
        for role in (
            Role(
                *("induction", "I", "bright_blue", "#8257e6", "#c4b2ff"),
                "looks at what followed an earlier copy of the word",
                "Looks at what followed an earlier copy of the token. Unknown: whether it copies.",
                "the mean weight on what followed earlier copies, in repeated random tokens",
            ),
            Role(
                *("duplicate", "U", "bright_magenta", "#431458", "#efd3f7"),
                "looks at earlier copies of the same word",
                "Looks at earlier copies of the token itself. Unknown: how the model uses this.",
                "the mean weight on earlier copies of the token",
            ),
            Role(
                *("coreference", "C", "magenta", "#a80f68", "#ff86c2"),
                "looks back to a mention of the same thing",
                "Links a pronoun and the word it stands for. Unknown: whether it resolves it.",
                "how often it picks the right noun among candidates in running text",
            ),
            Role(
                *("positional", "P", "blue", "#1650b8", "#4f9bff"),
                "looks a fixed number of words away",
                "Looks a fixed distance away, such as at the token before. Unknown: what it reads.",
                "the mean weight at its best distance, from 4 back to 4 ahead",
            ),
            Role(
                *("syntactic", "Y", "green", "#0e5a2c", "#9be8a0"),
                "looks at a word's grammatical partner",
                "Finds a word's grammatical partner. Unknown: whether the model uses it.",
                "how often its largest weight finds the partner in natural sentences",
            ),
            Role(
                *("semantic", "M", "cyan", "#c65300", "#ff9a3d"),
                "looks at words of related meaning",
                "Links words of related meaning. Unknown: whether the model uses the link.",
                "how often it picks the related word among candidates in natural sentences",
            ),
            Role(
                *("sink", "S", "red", "#0a7f8c", "#35cfd6"),
                "looks at the first tokens, whatever they are",
                "Looks at the first tokens, whatever they are. Unknown: what else it attends to.",
                "the mean weight on the first token, or on the first four",
            ),
            Role(
                *("delimiter", "D", "yellow", "#6e5a10", "#b8a04a"),
                "looks at special tokens and punctuation",
                "Looks at special tokens and punctuation. Unknown: whether it is idle then.",
                "the mean weight on special tokens or on punctuation",
            ),
            Role(
                *("broad", "B", "bright_black", "#6b7480", "#8e99a8"),
                "spreads its attention over many words",
                "Spreads its attention over many tokens, on average: single rows may be sharp.",
                "its entropy as a share of the largest possible",
            ),
        )
    }
)
"""The roles, most specific first: the first of a head's roles leads and gives its letter."""

RELATIONAL = ("syntactic", "semantic", "coreference")
"""Roles about pairs of words, which rest on sentences with gold relations."""

UNKNOWN_ROLE = Role(
    *("other", "?", "bold", "#3b4048", "#c9ced6", "has a role that headwise does not know"),
    *("A role that headwise does not know.", "not known"),
)
"""Used for role names that are not in ROLES, such as those a user adds to a table."""
