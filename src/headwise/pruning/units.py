"""Units: what can be cut from a model at a time, a head or the heads that one KV head serves.

In: how many heads each layer has. Out: units in order, each a run of heads of one layer. Cutting
single query heads out of a group would leave groups of different sizes, which no model computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadCounts, HeadId


@dataclass(frozen=True)
class Unit:
    """Heads of one layer that go together."""

    heads: tuple[HeadId, ...]

    @property
    def layer(self) -> str:
        """Name of the layer that it is in."""
        return self.heads[0].layer_name

    def __str__(self) -> str:
        """Its heads."""
        return " ".join(map(str, self.heads))


def whole_groups(heads: Sequence[HeadId], counts: HeadCounts) -> tuple[Unit, ...]:
    """The heads of every KV head as a unit; single heads where each has a KV head of its own."""
    found: dict[tuple[str, int], list[HeadId]] = {}
    for head in heads:
        num_heads, num_kv_heads = counts[head.layer_name]
        group = head.head // (num_heads // num_kv_heads)
        found.setdefault((head.layer_name, group), []).append(head)
    return tuple(Unit(tuple(one)) for one in found.values())


def single_heads(heads: Sequence[HeadId]) -> tuple[Unit, ...]:
    """Every head a unit of its own: for measuring, not for cutting."""
    return tuple(Unit((head,)) for head in heads)


def one_of_each_group(
    heads: Sequence[HeadId], counts: HeadCounts, scores: Sequence[float]
) -> tuple[Unit, ...]:
    """The least important head of each KV group of a layer as a unit, then the second, and so on.

    Cutting any number of a layer's units, first ones first, leaves its groups of one size. The last
    one of each group stays: it would leave KV heads that serve nobody.
    """
    found: dict[tuple[str, int], list[tuple[float, HeadId]]] = {}
    for head, score in zip(heads, scores, strict=True):
        num_heads, num_kv_heads = counts[head.layer_name]
        group = head.head // (num_heads // num_kv_heads)
        found.setdefault((head.layer_name, group), []).append((score, head))
    layers: dict[str, list[list[HeadId]]] = {}
    for (layer, _), scored in found.items():
        layers.setdefault(layer, []).append([head for _, head in sorted(scored)])
    return tuple(
        Unit(tuple(sorted(ranked)))
        for groups in layers.values()
        for ranked in list(zip(*groups, strict=True))[:-1]
    )


def by_unit(
    matrix: Float[Tensor, "heads heads"], units: Sequence[Unit], heads: Sequence[HeadId]
) -> Float[Tensor, "units units"]:
    """An interaction matrix of heads, added up for units of them."""
    member = membership(units, heads).to(matrix)
    return member @ matrix @ member.T


def membership(units: Sequence[Unit], heads: Sequence[HeadId]) -> Float[Tensor, "units heads"]:
    """1 where a head belongs to a unit."""
    place = {head: index for index, head in enumerate(heads)}
    found = torch.zeros(len(units), len(heads), dtype=torch.float64)
    for row, unit in enumerate(units):
        found[row, [place[head] for head in unit.heads]] = 1
    return found
