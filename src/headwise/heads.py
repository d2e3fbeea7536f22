"""Heads by name: `L3H11`, or `encoder.L3H11` in a model with several stacks."""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwise.checks import whole_number
from headwise.errors import OptionError


@functools.total_ordering
@dataclass(frozen=True)
class HeadId:
    """One head of a model: layer and head counted from 0. Sorts by stack, layer, head.

    >>> str(HeadId(3, 11)), HeadId.parse("decoder.L0H2").stack
    ('L3H11', 'decoder')
    """

    layer: int
    head: int
    stack: str = ""

    def __post_init__(self) -> None:
        for name in ("layer", "head"):
            whole_number(name, getattr(self, name))
        if min(self.layer, self.head) < 0:
            raise OptionError(f"{self} is not a head: layer and head numbers start at 0")

    def __repr__(self) -> str:
        return f"{self.stack}{'.' if self.stack else ''}L{self.layer}H{self.head}"

    @property
    def layer_name(self) -> str:
        """Name of the head's layer: `L3`, or `encoder.L3`."""
        return str(self).rpartition("H")[0]

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, HeadId):
            return NotImplemented
        return (self.stack, self.layer, self.head) < (other.stack, other.layer, other.head)

    @classmethod
    def parse(cls, text: str) -> "HeadId":
        """The head with this name, such as "L3H11" or "encoder.L3H11"."""
        match = re.fullmatch(r"(?:(.+)\.)?L([0-9]+)H([0-9]+)", text, re.DOTALL)
        if match is None:
            raise OptionError(
                f"{text!r} is not a head: write L3H11, or encoder.L3H11 in a model with several "
                "stacks"
            )
        return cls(int(match[2]), int(match[3]), match[1] or "")


def check_head(head: HeadId, counts: Mapping[str, int]) -> HeadId:
    """Return `head`; raise OptionError unless its layer is in `counts` and has enough heads."""
    check_layer(head, list(counts))
    count = counts[head.layer_name]
    if head.head >= count:
        existing = f"heads 0..{count - 1}" if count else "no heads left"
        raise OptionError(f"{head} is not in this model: {head.layer_name} has {existing}")
    return head


def check_layer(head: HeadId, names: list[str]) -> None:
    """Raise OptionError if the head's layer is not in `names`."""
    if head.layer_name not in names:
        layers = f"its layers are {abbreviate(names)}" if names else "it has no layers"
        raise OptionError(f"{head} is not in this model: {layers}")


def abbreviate(names: list[str]) -> str:
    """The names separated by commas; "..." replaces the middle of a long list."""
    return ", ".join(names if len(names) < 8 else [*names[:3], "...", *names[-2:]])


Heads = str | HeadId | Iterable[str | HeadId]
"""Heads of a model, given by name or as HeadIds."""


def parse_heads(heads: Heads) -> tuple[HeadId, ...]:
    """HeadIds in the given order, without repeats; strings are split at spaces and commas.

    >>> [str(head) for head in parse_heads("L0H1 L2H3, L0H1")]
    ['L0H1', 'L2H3']
    """
    if not isinstance(heads, str | HeadId | Iterable):
        raise OptionError(f"heads are {heads!r}: pass names such as 'L0H1 L2H3', or a list of them")
    parsed: list[HeadId] = []
    for part in [heads] if isinstance(heads, str | HeadId) else heads:
        texts = re.findall(r"[^\s,]+", part) if isinstance(part, str) else [str(part)]
        parsed += map(HeadId.parse, texts)
    return tuple(dict.fromkeys(parsed))


def as_head(head: object) -> HeadId:
    """A head given as a HeadId or by its name; raises OptionError for anything else."""
    if isinstance(head, HeadId):
        return head
    if not isinstance(head, str):
        raise OptionError(f"{head!r} is not a head: pass a name such as 'L3H11', or a HeadId")
    return HeadId.parse(head)


HeadCounts = Mapping[str, tuple[int, int]]
"""Numbers of heads and KV heads in each layer, by layer name (`L0` or `encoder.L0`)."""
