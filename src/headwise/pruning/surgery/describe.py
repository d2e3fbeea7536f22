"""Describe: the facts that were found about a model's layers, as text and numbers.

In: a model, and inputs for it or None. Out: one `LayerDescription` for layers with equal facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from headwise.pruning.surgery.attention_layers import AttentionLayer, Size
from headwise.pruning.surgery.find_layers import examine_layers
from headwise.reading.batch import Inputs
from headwise.watching.discovery import OwnedAxis


@dataclass(frozen=True)
class LayerDescription:
    """Facts about layers that are built alike, or the reason why they cannot be cut."""

    layers: tuple[str, ...]
    attention: str
    """Class of the attention module."""
    num_heads: int = 0
    num_kv_heads: int = 0
    projections: Mapping[str, str] | None = None
    """For each parameter with numbers of single heads, how these are laid out."""
    attributes: Mapping[str, str] | None = None
    """For each attribute that a cut changes, what it counts."""
    shared: bool = False
    """Whether the layers share one module, so that a cut removes a head from all of them."""
    refusal: str = ""


def describe_layers(model: nn.Module, inputs: Inputs | None = None) -> list[LayerDescription]:
    """Every layer's facts, those of equal layers together, then the refused ones."""
    found = examine_layers(model, inputs)
    groups: dict[str, tuple[AttentionLayer, list[str]]] = {}
    for layer in found.layers:
        key = repr((type(layer.module), layer.facts, layer.names if len(layer.names) > 1 else ""))
        groups.setdefault(key, (layer, []))[1].extend(layer.names)
    descriptions = [_describe(layer, tuple(names)) for layer, names in groups.values()]
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, sentence in found.refused.items():
        where, _, reason = sentence.partition("cannot be cut: ")[2].partition("): ")
        reasons.setdefault((where.partition(" (")[0], reason), []).append(name)
    return descriptions + [
        LayerDescription(tuple(names), attention, refusal=reason)
        for (attention, reason), names in reasons.items()
    ]


def _describe(layer: AttentionLayer, names: tuple[str, ...]) -> LayerDescription:
    facts = layer.facts
    configs = {f"config.{name}": size for name, size in facts.configs.items()}
    sizes = {**facts.attributes, **configs}
    return LayerDescription(
        layers=names,
        attention=type(layer.module).__name__,
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        projections={axis.path: describe_axis(axis) for axis in facts.heads.axes},
        attributes={name: _describe_size(size) for name, size in sizes.items()},
        shared=len(layer.names) > 1,
    )


def describe_axis(axis: OwnedAxis) -> str:
    """Runs of neighbouring indices and the heads that own them, such as `8 of H0, 8 of H1, ...`."""
    runs: list[tuple[frozenset[int], int]] = []
    for owners in axis.owners:
        if runs and runs[-1][0] == owners:
            runs[-1] = owners, runs[-1][1] + 1
        else:
            runs.append((owners, 1))
    named = [f"{length} of {_name_owners(owners)}" for owners, length in runs]
    most = 4
    rest = f", ... ({len(runs)} parts)" if len(runs) > most else ""
    return f"axis {axis.axis}: {', '.join(named[:most])}{rest}"


def _name_owners(owners: frozenset[int]) -> str:
    heads = sorted(owners)
    if len(heads) > 1:
        return f"H{heads[0]}-{heads[-1]}"
    return f"H{heads[0]}" if heads else "no head"


def _describe_size(size: Size | tuple[Size, ...]) -> str:
    if not isinstance(size, Size):
        return f"[{', '.join(map(_describe_size, size))}]"
    names = ("heads", "KV heads", "heads per KV head")
    counts = zip(names, (size.per_head, size.per_kv_head, size.per_group), strict=True)
    parts = [name if count == 1 else f"{count} x {name}" for name, count in counts if count]
    return " + ".join([*parts, *([str(size.rest)] if size.rest else [])])
