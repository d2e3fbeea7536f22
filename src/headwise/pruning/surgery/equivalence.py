"""Checking: does a cut model say what it said with the same heads silenced?

In: a model before and after a cut, and inputs. Out: the largest difference, or an error that names
the first layer where it is more than rounding explains.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.heads import HeadId
from headwise.pruning.surgery.attention_layers import AttentionLayer
from headwise.watching.gates import silence
from headwise.watching.running import in_evaluation

Said = dict[str, Tensor]
"""What layers and the model as a whole give, by the layer's name or the output's."""

HALVES = (torch.float16, torch.bfloat16)
SURE = 6.0
"""Roundings add up like a random walk: a sum of n is off by more than this times sqrt(n) units of
rounding with a chance below 2 exp(-SURE**2 / 2), 3e-8 (Higham and Mary, 2019,
https://doi.org/10.1137/18M1226312)."""


def silenced(
    model: nn.Module,
    heads: Sequence[HeadId],
    layers: Sequence[AttentionLayer],
    inputs: Mapping[str, Any],
) -> Said:
    """What the layers and the model give with the heads silenced."""
    with silence(model, heads):
        return layer_outputs(model, layers, inputs)


def difference(
    model: nn.Module, layers: Sequence[AttentionLayer], inputs: Mapping[str, Any], wanted: Said
) -> float:
    """How far the cut model is from what was wanted, at most; an error if it is too far."""
    got, largest = layer_outputs(model, layers, inputs), 0.0
    for name, want in wanted.items():
        here, allowed = largest_difference(got[name], want), rounding_bound(model, want)
        if here > allowed:
            raise ModelError(
                f"cutting {type(model).__name__} is not what silencing is: {name} differs by "
                f"{here:.3g}, and rounding explains {allowed:.3g}; the model is as it was before"
            )
        largest = max(largest, here)
    return largest


def largest_difference(one: Tensor, other: Tensor) -> float:
    """Largest difference of two tensors; infinite where their shapes are not the same."""
    if one.shape != other.shape:
        return math.inf
    same = (one == other) | (one.isnan() & other.isnan())
    gaps = (one.double() - other.double()).abs().masked_fill(same, 0.0)
    return gaps.nan_to_num(nan=math.inf).max().item() if gaps.numel() else 0.0


def rounding_bound(model: nn.Module, want: Tensor) -> float:
    """The largest difference that rounding explains, in a model of that many sums.

    Models in float64 round to float32 on the way, in norms and in softmax. Half precision rounds
    once a product of matrices, for their sums are kept in float32.
    """
    dtype = torch.float32 if want.dtype == torch.float64 else want.dtype
    is_half = dtype in HALVES
    weights = [weight for weight in model.parameters() if weight.dim() == 2]
    roundings = sum(1 if is_half else min(weight.shape) for weight in weights)
    finite = want[want.isfinite()].abs()
    size = max(1.0, finite.max().item()) if finite.numel() else 1.0
    return SURE * math.sqrt(roundings) * torch.finfo(dtype).eps * size


@contextmanager
def in_full_precision(model: nn.Module, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """While it lasts, what the model holds in half precision is float32, to the same values.

    Gives the inputs, of which the same is true. In half precision rounding would explain
    differences that a wrong cut makes.
    """
    halves = {name: one.dtype for name, one in held_tensors(model) if one.dtype in HALVES}
    try:
        for name, one in held_tensors(model):
            if name in halves:
                one.data = one.data.float()
        yield {name: full(one) if halves else one for name, one in inputs.items()}
    finally:
        for name, one in held_tensors(model):
            if name in halves:
                one.data = one.data.to(halves[name])


def full(one: Any) -> Any:
    """A tensor of half precision in float32; anything else as it is."""
    return one.float() if isinstance(one, Tensor) and one.dtype in HALVES else one


def held_tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers by name, each once."""
    return [*model.named_parameters(), *model.named_buffers()]


def layer_outputs(
    model: nn.Module, layers: Sequence[AttentionLayer], inputs: Mapping[str, Any]
) -> Said:
    """What some layers, and then the model, give for the inputs, without dropout."""
    heard: Said = {}
    with torch.no_grad(), in_evaluation(model), heard_layers(layers, heard):
        outputs: Any = model(**inputs)
    if isinstance(outputs, Tensor):
        outputs = {"output": outputs}
    elif isinstance(outputs, tuple | list):
        outputs = {f"output {number}": output for number, output in enumerate(outputs)}
    for name, output in outputs.items():
        if isinstance(output, Tensor) and output.is_floating_point():
            heard[f"the model's {name}"] = output
    return heard


@contextmanager
def heard_layers(layers: Sequence[AttentionLayer], heard: Said) -> Iterator[None]:
    """While it lasts, what each layer gives is kept; of one that is several layers, the last."""
    hooks = []
    for layer in layers:
        name = " and ".join(layer.names)

        def keep(_module: nn.Module, _args: Any, output: Any, name: str = name) -> None:
            heard[name] = output[0] if isinstance(output, tuple) else output

        path = layer.path if layer.has_output_inside else layer.output
        hooks.append(layer.base.get_submodule(path).register_forward_hook(keep))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
