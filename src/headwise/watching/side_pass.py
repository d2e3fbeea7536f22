"""Side pass: one forward pass of a model that nobody notices, beside the pass that the user runs.

In: a model and the arguments of a call. Out: its outputs by name. The model's caches, its mode,
everybody's hooks and observers and all random states are afterwards as before.
"""

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from headwise.watching.equivalence import is_narrower
from headwise.watching.hooks import record
from headwise.watching.input_kinds import Arguments, bind_arguments
from headwise.watching.interface import pause_observers
from headwise.watching.running import in_evaluation

LIBRARIES = {"accelerate", "bitsandbytes", "deepspeed", "peft", "torch", "transformers"}
"""Packages whose hooks take part in a model's computation, or place it on devices."""
HOOKS = ("_forward_pre_hooks", "_forward_hooks")
NOT_COMPARED = ("attentions", "loss")
"""Outputs that only some implementations return, or that padding changes."""


@dataclass(frozen=True, eq=False)
class SidePass:
    """A call that can be repeated beside the user's own."""

    model: nn.Module
    """The whole model; `module`, which is called, may be a part of it."""
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Arguments
    inside: Mapping[str, nn.Module]
    """Modules whose outputs are compared too, by what to call them."""

    @property
    def arguments(self) -> Arguments:
        """The arguments by name."""
        return bind_arguments(self.module, self.args, self.kwargs)

    def part(self, choose: Callable[[Tensor], Tensor]) -> "SidePass":
        """The call with the chosen part of every tensor among its arguments."""
        args, kwargs = tree_map_only(Tensor, choose, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)

    def outputs(self, dtype: torch.dtype | None) -> dict[str, Tensor]:
        """The outputs at real positions, by name; narrower arguments are converted to `dtype`."""
        args, kwargs = (copy_state(part, dtype) for part in (self.args, dict(self.kwargs)))
        with ExitStack() as stack:
            stack.enter_context(_random_states(self.model))
            stack.enter_context(_only_library_hooks(self.model))
            stack.enter_context(pause_observers(self.model))
            stack.enter_context(in_evaluation(self.model))
            stack.enter_context(torch.no_grad())
            for device in {tensor.device.type for tensor in self.model.parameters()} - {"meta"}:
                stack.enter_context(torch.autocast(device, enabled=False))
            calls = stack.enter_context(record(self.inside))
            result = self.module(*args, **kwargs)
        outputs = {call.name: call.output for call in calls} | dict(_flatten("the output", result))
        real = {name: self._real_positions(name, output) for name, output in outputs.items()}
        return {name: output for name, output in real.items() if output is not None}

    def _real_positions(self, name: str, output: Any) -> Tensor | None:
        """The output without padding; None if it has no floating-point numbers."""
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return None
        config, arguments = getattr(self.module, "config", None), self.arguments
        is_decoded = getattr(config, "is_encoder_decoder", False) and "encoder" not in name
        mask = arguments.get("decoder_attention_mask" if is_decoded else "attention_mask")
        if not isinstance(mask, Tensor) or mask.dim() != 2 or output.dim() < 3:
            return output
        count = output.shape[1]
        if len(mask) != len(output) or count > mask.shape[1]:
            return output
        return output[mask[:, mask.shape[1] - count :].bool()]  # masks include cached positions


def _flatten(name: str, result: Any) -> Iterator[tuple[str, Any]]:
    """Every part of a model's result with its name."""
    if isinstance(result, Mapping):
        for key, value in result.items():
            if not key.endswith(NOT_COMPARED):
                yield from _flatten(key, value)
    elif isinstance(result, tuple | list):
        for number, value in enumerate(result):
            yield from _flatten(f"{name} {number}", value)
    else:
        yield name, result


def copy_state(value: Any, dtype: torch.dtype | None, *, is_cached: bool = False) -> Any:
    """A copy of arguments, in which narrower tensors are converted and caches may be written to.

    `is_cached` says that the value is part of a cache, so that its tensors may change in place.
    """
    if isinstance(value, Tensor):
        tensor = value.detach()
        if dtype is not None and is_narrower(tensor, dtype):
            return tensor.to(dtype)
        return tensor.clone() if is_cached else tensor
    copied = partial(copy_state, dtype=dtype, is_cached=is_cached)
    if type(value) in (tuple, list):
        return type(value)(map(copied, value))
    if isinstance(value, dict):
        new = copy.copy(value)
        for key, part in value.items():
            new[key] = copied(part)
        return new
    if hasattr(value, "__dict__") and not callable(value):  # such as a cache
        new = copy.copy(value)
        for key, part in vars(value).items():
            new.__dict__[key] = copy_state(part, dtype, is_cached=True)
        return new
    return value


@contextmanager
def _random_states(model: nn.Module) -> Iterator[None]:
    """Restore the random states of Python, numpy and torch after the block."""
    devices = {tensor.device for tensor in model.parameters() if tensor.device.type == "cuda"}
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


@contextmanager
def _only_library_hooks(model: nn.Module) -> Iterator[None]:
    """Inside the block, only hooks of `LIBRARIES` run."""
    all_hooks = [getattr(module, kind) for module in model.modules() for kind in HOOKS]
    before = [dict(hooks) for hooks in all_hooks]
    for hooks, others in zip(all_hooks, before, strict=True):
        for key, hook in others.items():
            if _package_of(hook) not in LIBRARIES:
                del hooks[key]
    try:
        yield
    finally:
        for hooks, others in zip(all_hooks, before, strict=True):
            added = {key: hook for key, hook in hooks.items() if key not in others}
            hooks.clear()
            hooks.update(others | added)  # transformers adds hooks when it first needs them


def _package_of(hook: Any) -> str:
    """Name of the package that defines a hook."""
    while isinstance(hook, partial):
        hook = hook.func
    name = getattr(hook, "__module__", None) or type(hook).__module__
    return name.partition(".")[0]
