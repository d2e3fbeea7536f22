"""Layers: the attention modules of a model, each with what is known of its heads.

In: a model. Out: its layers, or one sentence that says why heads cannot be cut from it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.formats import join_words
from headwise.models.families import (
    HEAD_SIZES,
    NUM_GROUPS,
    NUM_HEADS,
    NUM_KV_HEADS,
    REFUSED,
    Family,
    family_of,
)
from headwise.watching.sites import Site, find_sites


@dataclass(frozen=True)
class AttentionLayer:
    """An attention module that heads can be cut from; ALBERT's is several layers at once."""

    names: tuple[str, ...]
    path: str
    """From the base model to the module; parameters are found by such paths."""
    base: nn.Module
    family: Family

    @property
    def module(self) -> Any:
        """The attention module."""
        return self.base.get_submodule(self.path)

    @property
    def head_size(self) -> int:
        """How many numbers one head gives."""
        for name in HEAD_SIZES:
            size = getattr(self.module, name, None)
            if size is not None:
                return int(size)
        raise ModelError(
            f"heads of {type(self.module).__name__} cannot be cut: it does not say how large a "
            f"head is, as an attribute {join_words(HEAD_SIZES, 'or')}"
        )

    @property
    def output(self) -> str:
        """Path of the output projection."""
        return self.path_to(self.family.output)

    @property
    def has_output_inside(self) -> bool:
        """Whether the output projection is a part of the module."""
        return not self.family.output.startswith("..")

    @property
    def num_heads(self) -> int:
        """Query heads that the layer has now."""
        return size_in(self.base.get_submodule(self.output)) // self.head_size

    @property
    def num_kv_heads(self) -> int:
        """KV heads that the layer has now."""
        if self.family.packed:
            units = size_out(self.part(self.family.packed)) // self.head_size
            return (units - self.num_heads) // 2
        if not self.family.apart:
            return self.num_heads
        return size_out(self.part(self.family.apart[1])) // self.head_size

    def path_to(self, part: str) -> str:
        """Path of a part of the module, or with `..` of what is beside it."""
        parts = self.path.split(".") if self.path else []
        for step in part.split("/"):
            parts = parts[:-1] if step == ".." else [*parts, *step.split(".")]
        return ".".join(parts)

    def part(self, name: str) -> Any:
        """A module or parameter of the attention module, None if it has none of that name."""
        return getattr(self.module, name, None)


@dataclass(frozen=True)
class Axes:
    """Where a kind of linear layer keeps what."""

    outputs: int
    inputs: int
    num_outputs: str
    num_inputs: str


LINEAR = Axes(outputs=0, inputs=1, num_outputs="out_features", num_inputs="in_features")
CONV1D = Axes(outputs=1, inputs=0, num_outputs="nf", num_inputs="nx")


def axes_of(projection: Any) -> Axes:
    """Where a projection keeps its inputs and outputs."""
    return CONV1D if type(projection).__name__ == "Conv1D" else LINEAR


def size_in(projection: Any) -> int:
    """How many numbers a projection reads."""
    return int(projection.weight.shape[axes_of(projection).inputs])


def size_out(projection: Any) -> int:
    """How many numbers a projection makes."""
    return int(projection.weight.shape[axes_of(projection).outputs])


NO_ROW = (
    "headwise has no row of facts about where its heads are; docs/extend.md says how to add one"
)


def find_layers(model: nn.Module) -> tuple[AttentionLayer, ...]:
    """Every attention module of the model, in the order of its layers."""
    base: Any = getattr(model, "base_model", model)
    paths = {id(module): path for path, module in base.named_modules()}
    shared: dict[int, list[Site]] = {}
    for place in find_sites(model):
        shared.setdefault(id(place.module), []).append(place)
    if not hasattr(model, "config"):
        raise ModelError(
            f"heads of {type(model).__name__} cannot be cut: it has no config, in which a "
            "transformers model says how many heads it has"
        )
    layers = []
    for key, places in shared.items():
        module, family = places[0].module, family_of(places[0].module)
        reason = REFUSED.get(type(module).__name__)
        if family is None:
            reason = reason or NO_ROW
        elif key not in paths:
            reason = f"it lies outside {type(base).__name__}, whose parts the facts are about"
        else:
            names = tuple(place.layer_name for place in places)
            layers.append(AttentionLayer(names, paths[key], base, family))
            reason = next(obstacles(layers[-1]), None)
        if reason is not None:
            where = f"{type(module).__name__} ({places[0].name})"
            raise ModelError(f"heads of {type(model).__name__} cannot be cut: {where}: {reason}")
    return tuple(layers)


def obstacles(layer: AttentionLayer) -> Iterator[str]:
    """What about this very module stands in the way of cutting its heads."""
    projections = [*layer.family.apart, *filter(None, [layer.family.packed])]
    parts = {name: layer.part(name) for name in projections}
    more = {name: layer.part(name) for name in layer.family.per_head}
    parts |= {name: part for name, part in more.items() if isinstance(part, nn.Module)}
    parts[layer.family.output] = layer.base.get_submodule(layer.output)
    for name, part in parts.items():
        if not is_plain(part):
            kind = type(part).__name__
            yield f"its {name} is a {kind}, and only plain linear layers can be sliced"
    for name in layer.family.norms:
        weight = getattr(layer.part(name), "weight", None)
        if weight is not None and weight.shape[-1] != layer.head_size:
            yield f"its {name} spans all heads, so that every head changes with each that is cut"
    for flag, reason in layer.family.flags.items():
        if flag_of(layer.module, flag):
            yield reason
    known = (*projections, layer.family.output, layer.family.norm)
    known += layer.family.per_head + layer.family.columns + layer.family.norms
    known += layer.family.untouched
    for path, _ in layer.module.named_parameters():
        if not any(path == name or path.startswith(f"{name}.") for name in known):
            yield f"of its {path} it is not known which numbers belong to which head"


def is_plain(projection: Any) -> bool:
    """Whether a projection is one whose weight holds a number for each output and input."""
    if type(projection).__name__ == "Conv1D":
        return True
    is_linear = isinstance(projection, nn.Linear) and projection.weight.dim() == 2
    return is_linear and projection.weight.is_floating_point()


def flag_of(module: Any, name: str) -> Any:
    """What the module, or its config, says under a name."""
    return getattr(module, name, getattr(getattr(module, "config", None), name, None))


class KeptHeads(NamedTuple):
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


def blocks(heads: KeptHeads) -> list[int]:
    """All queries, then all keys, then all values, as in GPT-2, Phi-3 and ModernBERT."""
    keys = heads.num_heads
    values = keys + heads.num_kv_heads
    kept_kv = heads.kept_kv
    return [*heads.kept, *(keys + one for one in kept_kv), *(values + one for one in kept_kv)]


def interleaved(heads: KeptHeads) -> list[int]:
    """Group by group its queries, its key, its value, as in GPT-NeoX, BLOOM and Falcon."""
    units: list[int] = []
    for one in heads.kept_kv:
        start, first = one * (heads.group + 2), one * heads.group
        units += [start + head - first for head in heads.kept if head // heads.group == one]
        units += [start + heads.group, start + heads.group + 1]
    return units


LAYOUTS: dict[str, Callable[[KeptHeads], list[int]]] = {
    "blocks": blocks,
    "interleaved": interleaved,
}


def entries(units: Iterable[int], size: int) -> list[int]:
    """Places of all numbers of some units, each unit so many numbers long."""
    return [unit * size + place for unit in units for place in range(size)]


@dataclass(frozen=True)
class Slice:
    """What stays of a parameter along one of its axes."""

    path: str
    axis: int
    kept: list[int]
    attribute: str = ""
    """What the parameter's module calls the length of the axis."""


def kept_slices(layer: AttentionLayer, heads: KeptHeads) -> list[Slice]:
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


def by_head(family: Family, heads: KeptHeads) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Parts of a module with outputs head by head: which heads stay, and of how many."""
    queries = heads.kept, heads.num_heads
    keys = heads.kept_kv, heads.num_kv_heads
    counts = [*zip(family.apart, (queries, keys, keys), strict=False)]  # none where packed
    counts += [(name, queries) for name in family.per_head]
    counts += zip(family.norms, (queries, keys), strict=False)
    yield from ((name, kept, count) for name, (kept, count) in counts)


def of_heads(layer: AttentionLayer, name: str, kept: tuple[int, ...], count: int) -> list[Slice]:
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


def of_outputs(layer: AttentionLayer, name: str, kept: list[int]) -> list[Slice]:
    """What stays of a projection that keeps some of its outputs."""
    part, path = layer.part(name), layer.path_to(name)
    axes = axes_of(part)
    found = [Slice(f"{path}.weight", axes.outputs, kept, axes.num_outputs)]
    if isinstance(getattr(part, "bias", None), Tensor):
        found.append(Slice(f"{path}.bias", 0, kept))
    return found


def attributes(layer: AttentionLayer, heads: KeptHeads) -> dict[str, int]:
    """What the attention module says of itself when it keeps some of its heads."""
    num_heads, num_kv_heads = len(heads.kept), len(heads.kept_kv)
    known = dict.fromkeys(NUM_HEADS, num_heads) | dict.fromkeys(NUM_KV_HEADS, num_kv_heads)
    known |= dict.fromkeys(layer.family.widths, num_heads * layer.head_size)
    if num_kv_heads:
        known |= dict.fromkeys(NUM_GROUPS, num_heads // num_kv_heads)
    return {name: value for name, value in known.items() if hasattr(layer.module, name)}
