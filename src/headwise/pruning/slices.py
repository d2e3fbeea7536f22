"""Slices: which numbers of which parameters stay when a layer keeps some of its heads.

In: a layer of a model, and the heads that it keeps. Out: slices, by the paths of its parameters,
and the attributes that count what is left. It changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from headwise.pruning.families import NUM_GROUPS, NUM_HEADS, NUM_KV_HEADS, Family
from headwise.pruning.layers import Layer, axes_of, size_out
from headwise.pruning.layouts import LAYOUTS, Heads, entries


@dataclass(frozen=True)
class Slice:
    """What stays of a parameter along one of its axes."""

    path: str
    axis: int
    kept: list[int]
    attribute: str = ""
    """What the parameter's module calls the length of the axis."""


def slices(layer: Layer, heads: Heads) -> list[Slice]:
    """What stays of every parameter that has numbers for single heads."""
    family, kept = layer.family, heads.kept
    found: list[Slice] = []
    if family.packed:
        units = LAYOUTS[family.layout](heads)
        found += of_outputs(layer, family.packed, entries(units, layer.head_size))
    for name, stays, count in by_head(family, heads):
        found += of_heads(layer, name, stays, count)
    for name in family.columns:
        if isinstance(layer.part(name), nn.Module):
            path = f"{layer.path_to(name)}.weight"
            found.append(Slice(path, 1, list(kept), "embedding_dim"))
    axes = axes_of(layer.base.get_submodule(layer.output))
    inputs = entries(kept, layer.head_size)
    return [*found, Slice(f"{layer.output}.weight", axes.inputs, inputs, axes.num_inputs)]


def by_head(family: Family, heads: Heads) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Parts of a module with outputs head by head: which heads stay, and of how many."""
    queries = heads.kept, heads.num_heads
    keys = heads.kept_kv, heads.num_kv_heads
    counts = [*zip(family.apart, (queries, keys, keys), strict=False)]  # none where packed
    counts += [(name, queries) for name in family.per_head]
    counts += zip(family.norms, (queries, keys), strict=False)
    yield from ((name, kept, count) for name, (kept, count) in counts)


def of_heads(layer: Layer, name: str, kept: tuple[int, ...], count: int) -> list[Slice]:
    """What stays of a part that has so many equal pieces, one a head; norms of one head all."""
    part = layer.part(name)
    if isinstance(part, nn.Parameter):
        return [Slice(layer.path_to(name), 0, entries(kept, len(part) // max(count, 1)))]
    if part is None:
        return []
    if name in layer.family.norms:
        weight = getattr(part, "weight", None)
        is_shared = weight is None or weight.dim() < 2
        return [] if is_shared else [Slice(f"{layer.path_to(name)}.weight", 0, list(kept))]
    return of_outputs(layer, name, entries(kept, size_out(part) // max(count, 1)))


def of_outputs(layer: Layer, name: str, kept: list[int]) -> list[Slice]:
    """What stays of a projection that keeps some of its outputs."""
    part, path = layer.part(name), layer.path_to(name)
    axes = axes_of(part)
    found = [Slice(f"{path}.weight", axes.outputs, kept, axes.num_outputs)]
    if isinstance(getattr(part, "bias", None), Tensor):
        found.append(Slice(f"{path}.bias", 0, kept))
    return found


def attributes(layer: Layer, heads: Heads) -> dict[str, int]:
    """What the attention module says of itself when it keeps some of its heads."""
    num_heads, num_kv_heads = len(heads.kept), len(heads.kept_kv)
    known = dict.fromkeys(NUM_HEADS, num_heads) | dict.fromkeys(NUM_KV_HEADS, num_kv_heads)
    known |= dict.fromkeys(layer.family.widths, num_heads * layer.head_size)
    if num_kv_heads:
        known |= dict.fromkeys(NUM_GROUPS, num_heads // num_kv_heads)
    return {name: value for name, value in known.items() if hasattr(layer.module, name)}
