"""Layouts: in which order a projection that makes queries, keys and values at once holds them.

In: numbers of heads, and those to keep. Out: the units to keep of the projection's outputs, in the
order in which they lie there; a unit is as many outputs as one head has.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Heads(NamedTuple):
    """A layer's numbers of heads, and those of them that stay."""

    num_heads: int
    num_kv_heads: int
    kept: tuple[int, ...]

    @property
    def group(self) -> int:
        """How many query heads share one KV head; 0 in a layer without heads."""
        return self.num_heads // max(self.num_kv_heads, 1)

    @property
    def kept_kv(self) -> tuple[int, ...]:
        """KV heads that a kept query head uses."""
        return tuple(dict.fromkeys(head // self.group for head in self.kept))


def blocks(heads: Heads) -> list[int]:
    """All queries, then all keys, then all values, as in GPT-2, Phi-3 and ModernBERT."""
    keys = heads.num_heads
    values = keys + heads.num_kv_heads
    kept_kv = heads.kept_kv
    return [*heads.kept, *(keys + one for one in kept_kv), *(values + one for one in kept_kv)]


def interleaved(heads: Heads) -> list[int]:
    """Group by group its queries, its key, its value, as in GPT-NeoX, BLOOM and Falcon."""
    units: list[int] = []
    for one in heads.kept_kv:
        start, first = one * (heads.group + 2), one * heads.group
        units += [start + head - first for head in heads.kept if head // heads.group == one]
        units += [start + heads.group, start + heads.group + 1]
    return units


LAYOUTS: dict[str, Callable[[Heads], list[int]]] = {"blocks": blocks, "interleaved": interleaved}


def entries(units: Iterable[int], size: int) -> list[int]:
    """Places of all numbers of some units, each unit so many numbers long."""
    return [unit * size + place for unit in units for place in range(size)]
