"""Attention layers: a model's attention modules, and which part of each weight belongs to a head.

In: a model and the heads that a layer keeps. Out: an `AttentionLayer` per module and a `Slice` per
weight. `discovery.py` in `watching/` finds the numbers of each head, and `settings.py` the
attributes; `find_layers.py` runs both on a whole model, and `cut.py` applies the slices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import nn

from headwise.watching.discovery import HeadMap, OwnedAxis
from headwise.watching.module_paths import is_inside, join_path


@dataclass(frozen=True)
class Bias:
    """A bias on the scores that is computed once for all heads and shared by all layers."""

    argument: str
    place: int
    """Index of the bias among the positional arguments, if it is passed as one."""
    axis: int
    """Index of the head axis."""
    is_passed_on: bool = False
    """Whether the first layer computes the bias and each layer passes it to the next, as in T5."""


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


class Size(NamedTuple):
    """A number that depends on the heads of a layer: a sum of multiples of its counts."""

    per_head: int = 0
    per_kv_head: int = 0
    per_group: int = 0
    rest: int = 0

    def of(self, num_heads: int, num_kv_heads: int) -> int:
        """The number for these counts."""
        group = num_heads // num_kv_heads if num_kv_heads else 0
        counts = self.per_head * num_heads + self.per_kv_head * num_kv_heads
        return counts + self.per_group * group + self.rest


@dataclass(frozen=True)
class HeadFacts:
    """Facts about an attention layer, found by experiment; all paths start at its unit."""

    heads: HeadMap
    module: str
    """Path of the attention module; "" if it is the unit."""
    output: str
    """Path of the output projection."""
    attributes: Mapping[str, Size | tuple[Size, ...]]
    """Attributes of modules, by path, that change with the number of heads."""
    configs: Mapping[str, Size]
    """Settings that the attention module reads from its config whenever it runs."""
    biases: tuple[Bias, ...] = ()
    ending: Mapping[str, Any] | None = None
    """How a module without heads makes its output; None if it cannot lose all heads."""

    def after(self, kept: tuple[int, ...]) -> "HeadFacts":
        """The facts after a cut that keeps these heads."""
        counts = KeptHeads(self.heads.num_heads, self.heads.num_kv_heads, kept)
        heads = replace(
            self.heads,
            num_heads=len(kept),
            num_kv_heads=len(counts.kept_kv),
            axes=tuple(axis.restricted(kept) for axis in self.heads.axes),
        )
        return replace(self, heads=heads)


@dataclass(frozen=True)
class AttentionLayer:
    """An attention module that heads can be cut from. In ALBERT, one serves several layers."""

    names: tuple[str, ...]
    base: nn.Module
    unit: str
    """Path in the base model of the smallest module with the attention and its projection."""
    facts: HeadFacts

    @property
    def path(self) -> str:
        """Path of the attention module in the base model."""
        return join_path(self.unit, self.facts.module)

    @property
    def module(self) -> Any:
        """The attention module."""
        return self.base.get_submodule(self.path)

    @property
    def output(self) -> str:
        """Path of the output projection in the base model."""
        return join_path(self.unit, self.facts.output)

    @property
    def has_output_inside(self) -> bool:
        """Whether the output projection is part of the attention module."""
        return is_inside(self.output, self.path)

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self.facts.heads.num_heads

    @property
    def num_kv_heads(self) -> int:
        """Number of KV heads."""
        return self.facts.heads.num_kv_heads


@dataclass(frozen=True)
class Slice:
    """The part of a parameter to keep along one axis."""

    path: str
    axis: int
    kept: list[int]
    attribute: str = ""
    """Attribute of the parameter's module that stores the length of the axis."""


SIZES_OF_MODULES = {
    "Linear": ("out_features", "in_features"),
    "Conv1D": ("nx", "nf"),
    "Embedding": ("num_embeddings", "embedding_dim"),
}
"""Attributes that store the lengths of a weight's axes, by the module's class."""


def kept_slices(layer: AttentionLayer, kept: Iterable[int]) -> list[Slice]:
    """A slice for every axis of a parameter with numbers that belong to individual heads."""
    heads = tuple(kept)
    return [_slice(layer, axis, axis.kept(heads)) for axis in layer.facts.heads.axes]


def _slice(layer: AttentionLayer, axis: OwnedAxis, kept: list[int]) -> Slice:
    path = join_path(layer.unit, axis.path)
    owner, _, name = path.rpartition(".")
    sizes = module_sizes(layer.base.get_submodule(owner))
    attribute = sizes[axis.axis] if name == "weight" and axis.axis < len(sizes) else ""
    return Slice(path, axis.axis, kept, attribute)


def module_sizes(module: nn.Module) -> tuple[str, ...]:
    """Attributes that store the lengths of a module's weight; empty if its class is unknown."""
    names = (base.__name__ for base in type(module).__mro__)
    return next((SIZES_OF_MODULES[name] for name in names if name in SIZES_OF_MODULES), ())


def changed_sizes(
    sizes: Mapping[str, Size | tuple[Size, ...]], heads: KeptHeads
) -> dict[str, int | list[int]]:
    """The values after the cut; empty layers keep their numbers of heads per group."""
    counts = len(heads.kept), len(heads.kept_kv)
    return {
        name: size.of(*counts) if isinstance(size, Size) else [one.of(*counts) for one in size]
        for name, size in sizes.items()
        if counts[1] or not (isinstance(size, Size) and size.per_group)
    }
