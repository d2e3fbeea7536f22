"""Places: where in a model attention happens, and where each head's output goes next.

In: a model's modules. Out: one `Site` per attention layer, named by stack and layer. A new family
is a row of facts below; nothing here computes attention.
"""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwise.errors import ModelError, warn_user
from headwise.heads import HeadId

CROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "cross_attention")
"""Module names of attention from a decoder to an encoder's output."""

STACKS = {
    "text_model": "text",
    "language_model": "text",
    "vision_model": "vision",
    "vision_tower": "vision",
    "visual": "vision",
    "audio_model": "audio",
    "audio_tower": "audio",
    "encoder": "encoder",
    "decoder": "decoder",
}
"""Module names that say which stack what is inside them belongs to; the first in a path counts."""

OUTPUT_PROJECTIONS = (
    "o_proj",
    "out_proj",
    "c_proj",
    "Wo",
    "out_lin",
    "o",
    "dense",
    "proj",
    "../output/dense",
)
"""Where the output projection lives, from the attention module; the first that is there."""

WEIGHTS_RETURNED = {
    "MPNetSelfAttention",
    "FalconAttention",
    "DisentangledSelfAttention",
    "GPTNeoSelfAttention",
    "GPTJAttention",
    "CodeGenAttention",
    "BloomAttention",
    "MptAttention",
    "XGLMAttention",
}
"""Attention modules that do not ask transformers' interface, but return their weights."""


HEAD_COUNTS = ("num_attention_heads", "num_heads", "n_heads")
"""What modules and configs call their number of heads."""


@dataclass(frozen=True)
class Site:
    """One attention layer of a model, and the module that computes it."""

    stack: str
    """"" in a model with one stack; else encoder, decoder, cross, text, vision ..."""
    layer: int
    name: str
    """The module's path among the model's modules."""
    module: nn.Module
    output_projection: nn.Module | None
    is_routed: bool
    """Whether it asks transformers' attention interface; else it returns its weights."""
    turn: int = 0
    """Which of the layers that share the module, one after the other."""
    loop: nn.Module | None = None
    """What runs the layers that share the module, where they do."""

    @property
    def layer_name(self) -> str:
        """`L3`, or `encoder.L3` in a model with several stacks."""
        return HeadId(self.layer, 0, self.stack).layer_name

    @property
    def num_heads(self) -> int | None:
        """How many heads its module, or else that module's config, says it has."""
        for owner in (self.module, getattr(self.module, "config", None)):
            for name in HEAD_COUNTS:
                if isinstance(count := getattr(owner, name, None), int):
                    return count
        return None


def find_sites(model: nn.Module) -> tuple[Site, ...]:
    """Every place of attention, stack by stack, layers in order."""
    modules = dict(model.named_modules())
    found = {
        name: module
        for name, module in modules.items()
        if is_routed(module) or type(module).__name__ in WEIGHTS_RETURNED
    }
    if not found:
        raise ModelError(refusal(model))
    if missed := missed_attention(found, modules):
        warn_user(
            f"{type(model).__name__} is watched in part: its {', '.join(missed)} neither asks "
            "transformers' attention interface nor is known to return its weights, and heads there "
            "are left out (docs/extend.md says how to add it)"
        )
    stacks, layers = stacks_of(found), layers_of(found, modules)
    places = [
        Site(
            stack=stacks[pattern_of(name)],
            layer=layer,
            name=name,
            module=module,
            output_projection=output_projection(name, modules),
            is_routed=is_routed(module),
            turn=turn,
            loop=modules[loop_of(name)] if len(layers[name]) > 1 else None,
        )
        for name, module in found.items()
        for turn, layer in enumerate(layers[name])
    ]
    order = list(stacks.values())
    return tuple(sorted(places, key=lambda place: (order.index(place.stack), place.layer)))


def is_routed(module: nn.Module) -> bool:
    """Whether the module's forward asks transformers' attention interface what to call."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def pattern_of(name: str) -> str:
    """A module's path without the numbers in it: the same for all layers of a stack."""
    return NUMBER.sub("*", f".{name}")


def stacks_of(found: Mapping[str, nn.Module]) -> dict[str, str]:
    """The stack of each pattern of paths; "" where there is but one, a path where names clash."""
    patterns = list(dict.fromkeys(map(pattern_of, found)))
    if len(patterns) == 1:
        return {patterns[0]: ""}
    named = {pattern: stack_name(pattern) for pattern in patterns}
    if "cross" in named.values():  # what is not cross attention there is the decoder's own
        named = {pattern: name or "decoder" for pattern, name in named.items()}
    names = list(named.values())
    return {
        pattern: name if name and names.count(name) == 1 else pattern.strip(".").replace(".*", "")
        for pattern, name in named.items()
    }


def stack_name(pattern: str) -> str:
    """The stack that a path says it belongs to; "" if it does not say."""
    parts = pattern.split(".")
    if any(part in CROSS for part in parts):
        return "cross"
    return next((STACKS[part] for part in parts if part in STACKS), "")


def layers_of(
    found: Mapping[str, nn.Module], modules: Mapping[str, nn.Module]
) -> dict[str, tuple[int, ...]]:
    """The layers that each module computes: one, but several in ALBERT.

    A layer's number is the first in the module's path; where two modules of a stack would have the
    same, as in models with stages, they are counted through.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in found:
        groups[pattern_of(name)].append(name)
    layers: dict[str, tuple[int, ...]] = {}
    for names in groups.values():
        numbers = [first_number(name) for name in names]
        if len(set(numbers)) < len(numbers):
            numbers = list(range(len(numbers)))
        layers |= {name: (number,) for name, number in zip(names, numbers, strict=True)}
    shared = {name: albert_layers(name, modules) for name in found if ALBERT.search(name)}
    return layers | shared


def first_number(name: str) -> int:
    """The first number in a module's path, 0 if there is none."""
    number = NUMBER.search(f".{name}")
    return int(number[0]) if number else 0


ALBERT = re.compile(r"\.?albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\.")


def albert_layers(name: str, modules: Mapping[str, nn.Module]) -> tuple[int, ...]:
    """The layers of ALBERT that a module computes; groups of layers share theirs."""
    found = ALBERT.search(name)
    assert found is not None
    config: Any = modules[loop_of(name)].config
    group, inner = int(found[1]), int(found[2])
    per_group = config.num_hidden_layers / config.num_hidden_groups
    rounds = [one for one in range(config.num_hidden_layers) if int(one / per_group) == group]
    return tuple(one * config.inner_group_num + inner for one in rounds)


def loop_of(name: str) -> str:
    """Path of the module that holds the list of layers which a module is part of."""
    return re.split(r"\.?[^.]+\.\d+\.", name, maxsplit=1)[0]


def output_projection(name: str, modules: Mapping[str, nn.Module]) -> nn.Module | None:
    """The linear layer that mixes the heads of the attention module of that name."""
    for path in OUTPUT_PROJECTIONS:
        parts, steps = name.split("."), path.split("/")
        if steps[0] == "..":
            parts, steps = parts[:-1], steps[1:]
        module = modules.get(".".join([*filter(None, parts), *steps]))
        if module is not None and isinstance(getattr(module, "weight", None), Tensor):
            return module
    return None


def output_weight(projection: nn.Module) -> Tensor:
    """The projection's matrix as `[concat d_model]`: what each head dimension adds to the output.

    Linear layers keep it transposed; GPT-2's Conv1D keeps it so.
    """
    weight = projection.weight
    assert isinstance(weight, Tensor)
    return weight if type(projection).__name__ == "Conv1D" else weight.T


def refusal(model: nn.Module) -> str:
    """Why this model cannot be watched, with the names of the modules that would have to be."""
    names = sorted(set(attention_like(model)))
    reason = (
        f"its attention ({', '.join(names)}) neither asks transformers' attention interface nor "
        "is known to return its weights (docs/extend.md says how to add it)"
        if names
        else "no module of it looks like attention"
    )
    return f"{type(model).__name__} cannot be watched: {reason}"


def attention_like(model: nn.Module) -> Iterator[str]:
    """Class names of modules that seem to compute attention."""
    return (type(module).__name__ for module in model.modules() if seems_attention(module))


def seems_attention(module: nn.Module) -> bool:
    """Whether a module's class is named like attention."""
    return "attention" in type(module).__name__.lower()


def missed_attention(found: Mapping[str, nn.Module], modules: Mapping[str, nn.Module]) -> list[str]:
    """Classes named like attention of modules that are neither found, nor around or inside one.

    What pools the output of the last layer is no layer.
    """
    around = {above for name in found for above in paths_above(name)}

    def is_known(name: str) -> bool:
        inside = paths_above(name)
        return name in around or any(
            above in found or "Pool" in type(modules[above]).__name__ for above in inside
        )

    missed = {
        type(module).__name__
        for name, module in modules.items()
        if seems_attention(module) and not is_known(name)
    }
    return sorted(missed)


def paths_above(path: str) -> Iterator[str]:
    """A module's own path, and those of the modules that it is inside of."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield path
