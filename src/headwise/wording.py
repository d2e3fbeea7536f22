"""Wording: counts and lists as sentences say them."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """A number and what it counts.

    >>> counted(1, "head"), counted(1200, "token")
    ('1 head', '1,200 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """Items with commas, and a word before the last.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(["a", "b"], "or")
    ('a', 'a, b and c', 'a or b')
    """
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
