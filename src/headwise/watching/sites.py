"""Sites: where a model computes attention, and which module projects the result.

In: a model. Out: one `Site` per attention layer. Facts about families are in `models/families.py`.
"""

import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwise.errors import ModelError, warn_user
from headwise.heads import HeadId
from headwise.models.families import CROSS, NUM_HEADS, OUTPUT_PROJECTIONS, STACKS, find_family
from headwise.watching.candidates import may_return_weights
from headwise.watching.module_paths import path_and_parents

NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
ALBERT = re.compile(r"\.?albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.")
UNKNOWN = (
    "neither uses transformers' attention interface nor is known to return its weights "
    "(docs/extend.md shows how to add it)"
)


@dataclass(frozen=True)
class Site:
    """One attention layer of a model, and the module that computes it."""

    stack: str
    """"" in a model with one stack; otherwise encoder, decoder, cross, text, vision ..."""
    layer: int
    name: str
    """The module's path in the model."""
    module: nn.Module
    output_projection: nn.Module | None
    is_routed: bool
    """Whether the module uses transformers' attention interface; otherwise it returns weights."""
    is_guess: bool = False
    """Whether only the module's code suggests that it returns its weights; calls are checked."""
    call_index: int = 0
    """Index of this layer's call among the module's calls in a forward pass."""
    layer_loop: nn.Module | None = None
    """The module that calls `module` once per layer; None if layers do not share `module`."""

    @property
    def layer_name(self) -> str:
        """`L3`, or `encoder.L3` in a model with several stacks."""
        return HeadId(self.layer, 0, self.stack).layer_name

    @property
    def description(self) -> str:
        """The module's path and class, for messages."""
        return f"{self.name} ({type(self.module).__name__})"

    @property
    def num_heads(self) -> int | None:
        """Number of heads, from the module's attributes or else its config; None if in neither."""
        for owner in (self.module, getattr(self.module, "config", None)):
            for name in ("num_attention_heads", *NUM_HEADS):
                if isinstance(count := getattr(owner, name, None), int):
                    return count
        return None


def find_sites(model: nn.Module) -> tuple[Site, ...]:
    """Every attention layer of the model, grouped by stack, in layer order."""
    modules = dict(model.named_modules())
    known = [name for name, module in modules.items() if _is_watchable(module)]
    guesses = _find_guesses(known, modules)
    attention = [name for name in modules if name in {*known, *guesses}]
    unknown = ", ".join(
        sorted({type(module).__name__ for module in find_unknown(attention, modules)})
    )
    if not attention:
        reason = f"its attention ({unknown}) {UNKNOWN}" if unknown else "it has no attention layers"
        raise ModelError(f"{type(model).__name__} cannot be watched: {reason}")
    if unknown:
        warn_user(
            f"{type(model).__name__} is only partly watched: heads of its {unknown} are left out, "
            f"because it {UNKNOWN}"
        )
    by_pattern: dict[str, list[str]] = {}
    for name in attention:
        by_pattern.setdefault(NUMBER.sub("*", f".{name}"), []).append(name)
    stacks = _stack_names(by_pattern)
    sites = [
        Site(
            stack=stacks[pattern],
            layer=layer,
            name=name,
            module=modules[name],
            output_projection=find_output_projection(name, modules),
            is_routed=is_routed(modules[name]),
            is_guess=name in guesses,
            call_index=index,
            layer_loop=modules[_loop_path(name)] if len(layers) > 1 else None,
        )
        for pattern, names in by_pattern.items()
        for name, layers in _layer_numbers(names, modules).items()
        for index, layer in enumerate(layers)
    ]
    order = list(stacks.values())
    return tuple(sorted(sites, key=lambda site: (order.index(site.stack), site.layer)))


def is_routed(module: nn.Module) -> bool:
    """Whether the module's forward looks up its attention in transformers' interface."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _is_watchable(module: nn.Module) -> bool:
    family = find_family(module)
    return is_routed(module) or (family is not None and family.returns_weights)


def _find_guesses(known: list[str], modules: Mapping[str, nn.Module]) -> set[str]:
    """Innermost modules, neither in nor around a known one, that may return their weights."""
    around = {parent for name in known for parent in path_and_parents(name)}
    guesses = {
        name
        for name, module in modules.items()
        if name not in around and may_return_weights(module) and not _is_in(name, known, modules)
    }
    outer = {parent for name in guesses for parent in path_and_parents(name) if parent != name}
    return guesses - outer


def _is_in(name: str, known: Iterable[str], modules: Mapping[str, nn.Module]) -> bool:
    """Whether a module is inside one of the `known` ones, or inside a pooler."""
    paths = set(path_and_parents(name))
    is_in_pooler = any("Pool" in type(modules[path]).__name__ for path in paths)
    return is_in_pooler or not paths.isdisjoint(known)


def _stack_names(patterns: Iterable[str]) -> dict[str, str]:
    """Stack name for each path pattern: "" if it is the only one, its path if names clash."""
    stacks: dict[str, str] = {}
    for pattern in patterns:
        parts = pattern.split(".")
        is_cross = any(part in CROSS for part in parts)
        words = (STACKS[part] for part in parts if part in STACKS)
        stacks[pattern] = "cross" if is_cross else next(words, "")
    if len(stacks) == 1:
        return dict.fromkeys(stacks, "")
    if "cross" in stacks.values():  # with cross attention, unnamed layers are the decoder's
        stacks = {pattern: name or "decoder" for pattern, name in stacks.items()}
    names = list(stacks.values())
    return {
        pattern: name if name and names.count(name) == 1 else pattern.strip(".").replace(".*", "")
        for pattern, name in stacks.items()
    }


def _layer_numbers(
    names: list[str], modules: Mapping[str, nn.Module]
) -> dict[str, tuple[int, ...]]:
    """Numbers of the layers that each attention module computes: one, or several in ALBERT.

    A layer's number is the first number in the module's path; if two modules share that number, as
    in models with stages, the layers are numbered in order.
    """
    matches = [NUMBER.search(f".{name}") for name in names]
    numbers = [int(match[0]) if match else 0 for match in matches]
    if len(set(numbers)) < len(numbers):
        numbers = list(range(len(numbers)))
    layers: dict[str, tuple[int, ...]] = {}
    for name, number in zip(names, numbers, strict=True):
        layers[name] = (number,)
        if match := ALBERT.search(name):
            config: Any = modules[_loop_path(name)].config
            group, inner = int(match[1]), int(match[2])
            per_group = config.num_hidden_layers / config.num_hidden_groups
            layers[name] = tuple(
                step * config.inner_group_num + inner
                for step in range(config.num_hidden_layers)
                if int(step / per_group) == group
            )
    return layers


def _loop_path(name: str) -> str:
    """Path of the module whose list of layers contains this attention module."""
    return re.split(r"\.?[^.]+\.\d+\.", name, maxsplit=1)[0]


def find_output_projection(name: str, modules: Mapping[str, nn.Module]) -> nn.Module | None:
    """The linear layer that mixes an attention module's heads, found by its family or its name."""
    family = find_family(modules[name])
    known = family.output if family else ""
    for path in (*filter(None, [known]), *OUTPUT_PROJECTIONS):
        parts, steps = name.split("."), path.split("/")
        if steps[0] == "..":
            parts, steps = parts[:-1], steps[1:]
        module = modules.get(".".join([*filter(None, parts), *steps]))
        if module is not None and isinstance(getattr(module, "weight", None), Tensor):
            return module
    return None


def output_weight(projection: nn.Module) -> Tensor:
    """The projection's matrix as `[concat d_model]`, transposed unless it is GPT-2's Conv1D."""
    weight = projection.weight
    assert isinstance(weight, Tensor)
    return weight.T if output_axis(projection) == 0 else weight


def output_axis(projection: nn.Module) -> int:
    """Axis of the projection's weight with its outputs: 1 in GPT-2's Conv1D, otherwise 0."""
    return int(type(projection).__name__ == "Conv1D")


def is_linear(module: nn.Module) -> bool:
    """Whether the module is a linear layer, or GPT-2's Conv1D."""
    return isinstance(module, nn.Linear) or output_axis(module) == 1


def find_unknown(attention: Collection[str], modules: Mapping[str, nn.Module]) -> list[nn.Module]:
    """Attention modules with weights outside poolers, not in or around those at `attention`."""
    around = {parent for name in attention for parent in path_and_parents(name)}
    return [
        module
        for name, module in modules.items()
        if "attention" in type(module).__name__.lower()
        and next(module.parameters(), None) is not None
        and name not in around
        and not _is_in(name, attention, modules)
    ]
