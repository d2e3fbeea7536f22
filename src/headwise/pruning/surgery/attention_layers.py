"""Attention layers: a model's attention modules, and which part of each weight belongs to a head.

In: a model and the heads that a layer keeps. Out: an `AttentionLayer` per module and a `Slice` per
weight, or a ModelError that says why heads cannot be cut. `cut.py` applies the slices.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.formats import join_words
from headwise.models.families import (
    HEAD_SIZES,
    NUM_GROUPS,
    NUM_HEADS,
    NUM_KV_HEADS,
    Family,
    find_family,
)
from headwise.watching.sites import Site, find_sites, output_weight


@dataclass(frozen=True)
class AttentionLayer:
    """An attention module that heads can be cut from. In ALBERT, one serves several layers."""

    names: tuple[str, ...]
    path: str
    """Path of the module in the base model."""
    base: nn.Module
    family: Family

    @property
    def module(self) -> Any:
        """The attention module."""
        return self.base.get_submodule(self.path)

    @property
    def head_size(self) -> int:
        """Number of values that one head outputs per token."""
        for name in HEAD_SIZES:
            size = getattr(self.module, name, None)
            if size is not None:
                return int(size)
        raise ModelError(
            f"heads of {type(self.module).__name__} cannot be cut: it has no attribute "
            f"{join_words(HEAD_SIZES, 'or')}, so the size of its heads is unknown"
        )

    @property
    def output(self) -> str:
        """Path of the output projection."""
        return self.path_to(self.family.output)

    @property
    def has_output_inside(self) -> bool:
        """Whether the output projection is part of the attention module."""
        return not self.family.output.startswith("..")

    @property
    def num_heads(self) -> int:
        """Number of query heads, computed from the weights' shapes."""
        return output_weight(self.base.get_submodule(self.output)).shape[0] // self.head_size

    @property
    def num_kv_heads(self) -> int:
        """Number of KV heads, computed from the weights' shapes."""
        if not self.family.packed and not self.family.apart:
            return self.num_heads
        projection = self.part(self.family.packed or self.family.apart[1])
        units = output_weight(projection).shape[1] // self.head_size
        return (units - self.num_heads) // 2 if self.family.packed else units

    def path_to(self, part: str) -> str:
        """Path of a part of the module; a leading `..` means the module's parent."""
        parts = self.path.split(".") if self.path else []
        for step in part.split("/"):
            parts = parts[:-1] if step == ".." else [*parts, *step.split(".")]
        return ".".join(parts)

    def part(self, name: str) -> Any:
        """The module's submodule or parameter called `name`; None if there is none."""
        return getattr(self.module, name, None)


def _axis(projection: Any, side: Literal["inputs", "outputs"]) -> tuple[int, str]:
    """The axis of a weight for its inputs or outputs, and the attribute that stores its length."""
    if type(projection).__name__ == "Conv1D":
        return {"inputs": (0, "nx"), "outputs": (1, "nf")}[side]
    return {"inputs": (1, "in_features"), "outputs": (0, "out_features")}[side]


def find_layers(model: nn.Module) -> tuple[AttentionLayer, ...]:
    """Every attention layer, in model order. Raises ModelError if heads cannot be cut from one."""
    base: Any = getattr(model, "base_model", model)
    paths = {id(module): path for path, module in base.named_modules()}
    sites_by_module: dict[int, list[Site]] = {}
    for site in find_sites(model):
        sites_by_module.setdefault(id(site.module), []).append(site)
    if not hasattr(model, "config"):
        raise ModelError(
            f"heads of {type(model).__name__} cannot be cut: it has no config, which would "
            "state its number of heads"
        )
    layers = []
    for key, sites in sites_by_module.items():
        module, family = sites[0].module, find_family(sites[0].module)
        reason: str | None
        if family is None:
            reason = "headwise does not know this class; docs/extend.md shows how to add it"
        elif family.refusal:
            reason = family.refusal
        elif key not in paths:
            reason = f"it is outside {type(base).__name__}, the only part to cut heads from"
        else:
            names = tuple(site.layer_name for site in sites)
            layers.append(AttentionLayer(names, paths[key], base, family))
            reason = next(_obstacles(layers[-1]), None)
        if reason is not None:
            where = f"{type(module).__name__} ({sites[0].name})"
            raise ModelError(f"heads of {type(model).__name__} cannot be cut: {where}: {reason}")
    return tuple(layers)


def _obstacles(layer: AttentionLayer) -> Iterator[str]:
    family = layer.family
    projections = [*family.apart, *filter(None, [family.packed])]
    parts = {name: layer.part(name) for name in projections}
    per_head = {name: layer.part(name) for name in family.per_head}
    parts |= {name: part for name, part in per_head.items() if isinstance(part, nn.Module)}
    parts[family.output] = layer.base.get_submodule(layer.output)
    for name, part in parts.items():
        is_matrix = isinstance(part, nn.Linear) and part.weight.dim() == 2
        is_plain = is_matrix and part.weight.is_floating_point()
        if not is_plain and type(part).__name__ != "Conv1D":
            yield f"{name} is a {type(part).__name__}, but only plain linear layers can be sliced"
    for name in family.norms:
        weight = getattr(layer.part(name), "weight", None)
        if weight is not None and weight.shape[-1] != layer.head_size:
            yield f"{name} spans all heads, so cutting one head would change all others"
    for flag, reason in family.flags.items():
        config = getattr(layer.module, "config", None)
        if getattr(layer.module, flag, getattr(config, flag, None)):
            yield reason
    known = (*projections, family.output, family.norm, *family.per_head, *family.columns)
    known += family.norms + family.untouched
    for path, _ in layer.module.named_parameters():
        if not any(path == name or path.startswith(f"{name}.") for name in known):
            yield f"headwise does not know which values in {path} belong to which head"


class KeptHeads(NamedTuple):
    """A layer's head counts, and the heads to keep."""

    num_heads: int
    num_kv_heads: int
    kept: tuple[int, ...]

    @property
    def group(self) -> int:
        """Number of query heads per KV head; 0 in a layer without heads."""
        return self.num_heads // max(self.num_kv_heads, 1)

    @property
    def kept_kv(self) -> tuple[int, ...]:
        """KV heads that at least one kept query head uses."""
        return tuple(dict.fromkeys(head // self.group for head in self.kept))


def _kept_rows(layout: str, heads: KeptHeads) -> list[int]:
    """Rows to keep in a packed projection, where one head's query, key or value is one row.

    In the layout `blocks` (GPT-2, Phi-3, ModernBERT), all queries come first, then all keys, then
    all values. In `interleaved` (GPT-NeoX, BLOOM, Falcon), each group's key and value follow its
    queries.
    """
    if layout == "blocks":
        keys = [heads.num_heads + head for head in heads.kept_kv]
        return [*heads.kept, *keys, *(heads.num_kv_heads + key for key in keys)]
    rows: list[int] = []
    for kv_head in heads.kept_kv:
        start, first = kv_head * (heads.group + 2), kv_head * heads.group
        rows += [start + head - first for head in heads.kept if head // heads.group == kv_head]
        rows += [start + heads.group, start + heads.group + 1]
    return rows


def _entries(units: Iterable[int], size: int) -> list[int]:
    """Indices of all elements in the given units, each of which is `size` elements long."""
    return [unit * size + offset for unit in units for offset in range(size)]


@dataclass(frozen=True)
class Slice:
    """The part of a parameter to keep along one axis."""

    path: str
    axis: int
    kept: list[int]
    attribute: str = ""
    """Attribute of the parameter's module that stores the length of the axis."""


def kept_slices(layer: AttentionLayer, heads: KeptHeads) -> list[Slice]:
    """A slice for every parameter with values that belong to individual heads."""
    family, slices = layer.family, list[Slice]()
    if family.packed:
        rows = _kept_rows(family.layout, heads)
        slices += _output_slices(layer, family.packed, _entries(rows, layer.head_size))
    queries, keys = (heads.kept, heads.num_heads), (heads.kept_kv, heads.num_kv_heads)
    parts = [*zip(family.apart, (queries, keys, keys), strict=False)]  # no parts if packed
    parts += [(name, queries) for name in family.per_head]
    parts += zip(family.norms, (queries, keys), strict=False)
    for name, (kept, count) in parts:
        slices += _head_slices(layer, name, kept, count)
    for name in family.columns:
        if isinstance(layer.part(name), nn.Module):
            path = f"{layer.path_to(name)}.weight"
            slices.append(Slice(path, 1, list(heads.kept), "embedding_dim"))
    axis, attribute = _axis(layer.base.get_submodule(layer.output), "inputs")
    inputs = _entries(heads.kept, layer.head_size)
    return [*slices, Slice(f"{layer.output}.weight", axis, inputs, attribute)]


def _head_slices(
    layer: AttentionLayer, name: str, kept: tuple[int, ...], count: int
) -> list[Slice]:
    """Slices of a part that `count` heads share equally; none for a norm that all heads use."""
    part = layer.part(name)
    if isinstance(part, nn.Parameter):
        return [Slice(layer.path_to(name), 0, _entries(kept, len(part) // max(count, 1)))]
    if part is None:
        return []
    if name in layer.family.norms:
        weight = getattr(part, "weight", None)
        is_shared = weight is None or weight.dim() < 2
        return [] if is_shared else [Slice(f"{layer.path_to(name)}.weight", 0, list(kept))]
    size = output_weight(part).shape[1] // max(count, 1)
    return _output_slices(layer, name, _entries(kept, size))


def _output_slices(layer: AttentionLayer, name: str, kept: list[int]) -> list[Slice]:
    part, path = layer.part(name), layer.path_to(name)
    axis, attribute = _axis(part, "outputs")
    slices = [Slice(f"{path}.weight", axis, kept, attribute)]
    if isinstance(getattr(part, "bias", None), Tensor):
        slices.append(Slice(f"{path}.bias", 0, kept))
    return slices


def count_attributes(owner: Any, heads: KeptHeads) -> dict[str, int]:
    """Head counts after the cut, by attribute of `owner`, which is a module or a config."""
    num_heads, num_kv_heads = len(heads.kept), len(heads.kept_kv)
    counts = dict.fromkeys(NUM_HEADS, num_heads) | dict.fromkeys(NUM_KV_HEADS, num_kv_heads)
    return {name: count for name, count in counts.items() if hasattr(owner, name)}


def size_attributes(layer: AttentionLayer, heads: KeptHeads) -> dict[str, int]:
    """Widths and group sizes after the cut, by attribute of the attention module."""
    num_heads, num_kv_heads = len(heads.kept), len(heads.kept_kv)
    sizes = dict.fromkeys(layer.family.widths, num_heads * layer.head_size)
    if num_kv_heads:
        sizes |= dict.fromkeys(NUM_GROUPS, num_heads // num_kv_heads)
    return {name: size for name, size in sizes.items() if hasattr(layer.module, name)}
