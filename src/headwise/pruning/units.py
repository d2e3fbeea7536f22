"""Units: the smallest cuts of a model, a head or the heads that share one KV head.

In: how many heads each layer has. Out: units, each some heads of one layer. Cutting single query
heads out of a group would leave groups of different sizes, which no model computes.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadCounts, HeadId

Unit = tuple[HeadId, ...]
"""Heads of one layer that are cut together."""


def whole_groups(heads: Sequence[HeadId], counts: HeadCounts) -> tuple[Unit, ...]:
    """One unit per KV head, with all heads that it serves."""
    return tuple(map(tuple, _by_group(heads, counts).values()))


def one_of_each_group(
    heads: Sequence[HeadId], counts: HeadCounts, scores: Sequence[float]
) -> tuple[Unit, ...]:
    """Per layer, the lowest-scored head of each KV group as a unit, then the second, and so on.

    Cutting any number of a layer's units, first ones first, leaves its groups of one size. The last
    head of each group stays: without it a KV head would serve nobody.
    """
    score_of = dict(zip(heads, scores, strict=True))
    layers: dict[str, list[list[HeadId]]] = {}
    for (layer, _), group in _by_group(heads, counts).items():
        layers.setdefault(layer, []).append(sorted(group, key=lambda head: (score_of[head], head)))
    return tuple(
        tuple(sorted(ranked))
        for groups in layers.values()
        for ranked in list(zip(*groups, strict=True))[:-1]
    )


def _by_group(heads: Sequence[HeadId], counts: HeadCounts) -> dict[tuple[str, int], list[HeadId]]:
    groups: dict[tuple[str, int], list[HeadId]] = {}
    for head in heads:
        num_heads, num_kv_heads = counts[head.layer_name]
        group = head.head // (num_heads // num_kv_heads)
        groups.setdefault((head.layer_name, group), []).append(head)
    return groups


def membership(units: Sequence[Unit], heads: Sequence[HeadId]) -> Float[Tensor, "units heads"]:
    """1 for each head in its unit, 0 elsewhere."""
    index = {head: number for number, head in enumerate(heads)}
    member = torch.zeros(len(units), len(heads), dtype=torch.float64)
    for row, unit in enumerate(units):
        member[row, [index[head] for head in unit]] = 1
    return member
