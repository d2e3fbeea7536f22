"""Places: where in a model attention happens, and where each head's output goes next.

In: a model's modules. Out: one `Place` per attention module, named by stack and layer. A new family
is a row of facts below; nothing here computes attention.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from headwise.errors import ModelError

CROSS = ("encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "cross_attention")
"""Module names of attention from a decoder to an encoder's output."""

TOWERS = {"text_model": "text", "vision_model": "vision", "audio_model": "audio"}

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


@dataclass(frozen=True)
class Place:
    """One attention module of a model."""

    stack: str
    """"" in a model with one stack; else encoder, decoder, cross, text, vision ..."""
    layer: int
    name: str
    """Its path among the model's modules."""
    module: nn.Module
    output_projection: nn.Module | None
    is_routed: bool
    """Whether it asks transformers' attention interface; else it returns its weights."""
    turn: int = 0
    """Which of the layers that share the module, one after the other."""
    turns: int = 1
    """How many layers share the module."""


def find_places(model: nn.Module) -> tuple[Place, ...]:
    """Every place of attention, stack by stack, layers in order."""
    modules = dict(model.named_modules())
    found = [(name, module) for name, module in modules.items() if is_routed(module)]
    if not found:
        found = [
            (name, module)
            for name, module in modules.items()
            if type(module).__name__ in WEIGHTS_RETURNED
        ]
    if not found:
        raise ModelError(refusal(model))
    groups = {INDEX.sub(".*", f".{name}") for name, _ in found}
    turns = layers_each(model, len(found))
    places = [
        Place(
            stack=stack_of(name, model) if len(groups) > 1 else "",
            layer=layer_of(name) * turns + turn,
            name=name,
            module=module,
            output_projection=output_projection(name, modules),
            is_routed=is_routed(module),
            turn=turn,
            turns=turns,
        )
        for name, module in found
        for turn in range(turns)
    ]
    return tuple(places)


def layers_each(model: nn.Module, found: int) -> int:
    """How many layers share each attention module: more than one in ALBERT."""
    config = getattr(model, "config", None)
    if not hasattr(config, "num_hidden_groups"):
        return 1
    return max(1, int(config.num_hidden_layers) // found)


INDEX = re.compile(r"\.\d+")


def is_routed(module: nn.Module) -> bool:
    """Whether the module's forward asks transformers' attention interface what to call."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def layer_of(name: str) -> int:
    """The first number in a module's path."""
    found = re.search(r"(?:^|\.)(\d+)(?:\.|$)", name)
    return int(found[1]) if found else 0


def stack_of(name: str, model: nn.Module) -> str:
    """The stack that a module's path says it belongs to."""
    parts = name.split(".")
    if any(part in CROSS for part in parts):
        return "cross"
    for part in parts:
        if part in TOWERS:
            return TOWERS[part]
    for part in parts:
        if part in ("encoder", "decoder"):
            return part
    return INDEX.sub("", f".{name}").strip(".").replace(".", "_")


def output_projection(name: str, modules: dict[str, nn.Module]) -> nn.Module | None:
    """The linear layer that mixes the heads of the attention module of that name."""
    for path in OUTPUT_PROJECTIONS:
        parts, steps = name.split("."), path.split("/")
        if steps[0] == "..":
            parts, steps = parts[:-1], steps[1:]
        module = modules.get(".".join([*parts, *steps]))
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
        "is known to return its weights"
        if names
        else "no module of it looks like attention"
    )
    return f"{type(model).__name__} cannot be watched: {reason}"


def attention_like(model: nn.Module) -> Iterator[str]:
    """Class names of modules that seem to compute attention."""
    for module in model.modules():
        name = type(module).__name__
        if "Attention" in name or "attention" in name:
            yield name
