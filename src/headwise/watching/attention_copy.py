"""Attention copies: one attention layer of a model, copied out of it, to run experiments on.

In: a model, its sites and inputs. Out: an `AttentionCopy` for a site, with random weights and the
arguments of one call, which can be run with its heads' outputs changed. The model stays as it is.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from transformers import Cache, EncoderDecoderCache

from headwise.errors import ModelError
from headwise.reading.batch import Inputs
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.interface import CallObserver, observe_routed
from headwise.watching.module_paths import path_inside
from headwise.watching.running import forward_batch, in_evaluation
from headwise.watching.sites import Site

SPREAD = 0.3
"""Standard deviation of the noise added to biases and to the weights of norms."""
SEED = 13

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class CopyRun:
    """One run of an attention copy."""

    outputs: tuple[Tensor, ...]
    """Every floating-point tensor that the copy returned."""
    mixed: Tensor | None
    """The heads' outputs `[batch heads query d_value]`; None if the module is not routed."""
    num_kv_heads: int | None
    """Number of KV heads that attention received; None if the module is not routed."""
    read: Any
    """The input of the output projection; None if it did not run."""
    arguments: Mapping[str, Tensor]
    """Floating-point arguments of the attention module, by name."""
    after: tuple[tuple[str, Tensor, Tensor], ...] = ()
    """Name, input and output of each of the module's children that ran after the projection."""
    result: Any = None
    """The result of the attention module itself."""


@dataclass(frozen=True, eq=False)
class AttentionCopy:
    """The smallest part of a model that contains an attention module and its output projection."""

    unit: nn.Module
    path: str
    """Path of the attention module in the unit; "" if it is the unit."""
    output: str
    """Path of the output projection in the unit."""
    site: Site
    arguments: Arguments

    @property
    def module(self) -> nn.Module:
        """The attention module."""
        return self.unit.get_submodule(self.path)

    @property
    def projection(self) -> nn.Module:
        """The output projection."""
        return self.unit.get_submodule(self.output)

    def again(self) -> "AttentionCopy":
        """A copy of this copy."""
        unit = copy_module(self.unit)
        return replace(self, unit=unit)

    def run(self, change: Change | None = None, *, needs_projection: bool = True) -> CopyRun:
        """Run the copy; `change` maps the heads' outputs to those to use instead."""
        seen: dict[str, Any] = {"calls": [], "after": [], "mixed": []}
        args, kwargs = fresh(self.arguments)
        site = replace(
            self.site, module=self.module, output_projection=None, layer_loop=None, call_index=0
        )
        with ExitStack() as stack:
            stack.enter_context(_record_arguments(self.module, seen))
            stack.enter_context(_record_ending(self.module, self.projection, seen))
            if self.site.is_routed:
                observer = CallObserver(
                    each=seen["calls"].append, change=partial(_remember, seen, change)
                )
                stack.enter_context(observe_routed([(site, observer)]))
            elif change is not None:
                hook = partial(_change_read, change, self.num_heads)
                handle = self.projection.register_forward_pre_hook(hook, prepend=True)
                stack.enter_context(handle)
            result = self.unit(*args, **kwargs)
        if "read" not in seen and needs_projection:
            raise ModelError("its output projection did not run")
        if self.site.is_routed and not seen["mixed"]:
            raise ModelError("it did not use transformers' attention interface")
        call: Call | None = next(iter(seen["calls"]), None)
        return CopyRun(
            outputs=tuple(floats_in(result)),
            mixed=seen["mixed"][0] if seen["mixed"] else None,
            num_kv_heads=call.keys.shape[1] if isinstance(call, AttentionCall) else None,
            read=seen.get("read"),
            arguments=seen["arguments"],
            after=tuple(seen["after"]),
            result=seen["result"],
        )

    def run_plain(self) -> tuple[Tensor, ...]:
        """Every floating-point tensor that the copy returns, as it is."""
        args, kwargs = fresh(self.arguments)
        return tuple(floats_in(self.unit(*args, **kwargs)))

    @property
    def num_heads(self) -> int:
        """Number of heads that the module states."""
        if self.site.num_heads is None:
            raise ModelError("its number of heads is unknown")
        return self.site.num_heads


def _remember(seen: dict[str, Any], change: Change | None, mixed: Tensor) -> Tensor:
    seen["mixed"].append(mixed)
    return mixed if change is None else change(mixed)


def _change_read(
    change: Change, num_heads: int, _: nn.Module, inputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    heads = inputs[0].unflatten(-1, (num_heads, -1)).movedim(-2, 1)
    return (change(heads).movedim(1, -2).flatten(-2), *inputs[1:])


@contextmanager
def _record_arguments(module: nn.Module, seen: dict[str, Any]) -> Iterator[None]:
    """Record the module's tensor arguments; those without gradients get them."""
    names = list(inspect.signature(type(module).forward).parameters)[1:]

    def tracked(value: Any) -> Any:
        if type(value) is not Tensor or not value.is_floating_point() or value.requires_grad:
            return value
        return value.clone().requires_grad_(torch.is_grad_enabled())

    def begin(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        args = tuple(map(tracked, args))
        kwargs = {name: tracked(value) for name, value in kwargs.items()}
        named = dict(zip(names, args, strict=False)) | kwargs
        seen["arguments"] = {
            name: value
            for name, value in named.items()
            if type(value) is Tensor and value.is_floating_point()
        }
        return args, kwargs

    def end(_: nn.Module, __: Any, result: Any) -> None:
        seen["result"] = result

    with (
        module.register_forward_pre_hook(begin, with_kwargs=True),
        module.register_forward_hook(end),
    ):
        yield


@contextmanager
def _record_ending(
    module: nn.Module, projection: nn.Module, seen: dict[str, Any]
) -> Iterator[None]:
    """Record the input of the projection, and the module's children that run after it."""

    def read(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen["read"] = next(iter((*inputs, *named.values())), None)

    def child(name: str, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if "read" in seen and inputs and isinstance(output, Tensor):
            seen["after"].append((name, inputs[0], output))

    with ExitStack() as stack:
        stack.enter_context(projection.register_forward_pre_hook(read, with_kwargs=True))
        for name, part in module.named_children():
            stack.enter_context(part.register_forward_hook(partial(child, name)))
        yield


def floats_in(value: Any) -> list[Tensor]:
    """Every floating-point tensor in a nested value."""
    if isinstance(value, Cache | EncoderDecoderCache):
        return []
    leaves = tree_leaves(dict(value) if isinstance(value, Mapping) else value)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def fresh(arguments: Any) -> Any:
    """The arguments with copies of caches, which every call would extend."""
    return tree_map(
        lambda value: (
            copy.deepcopy(value) if isinstance(value, Cache | EncoderDecoderCache) else value
        ),
        arguments,
    )


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy that shares its configs with the original and has no hooks."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for name, value in vars(part).items():
            if name == "config":
                memo[id(value)] = value
    return copy.deepcopy(module, memo)


@torch.no_grad()
def randomise(module: nn.Module) -> None:
    """Draw new weights, because untrained gates and biases are often zero."""
    device = next((parameter.device for parameter in module.parameters()), "cpu")
    random = torch.Generator(device).manual_seed(SEED)
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if not parameter.is_floating_point():
                continue
            noise = torch.randn(
                parameter.shape, generator=random, device=device, dtype=torch.float32
            ).to(parameter)
            if parameter.dim() < 2:
                parameter.add_(SPREAD * noise)
            else:
                fan_in = min(parameter[0].numel(), parameter.shape[-2] * parameter[0, 0].numel())
                parameter.copy_(noise / math.sqrt(max(fan_in, 1)))


@dataclass(eq=False)
class RecordedCalls:
    """The arguments of the first call of each module that ran, by path."""

    arguments: dict[str, Arguments] = field(default_factory=dict)
    has_run: bool = False

    def of(self, path: str) -> Arguments | None:
        """The module's arguments; None if the inputs did not reach it."""
        return self.arguments.get(path)


@torch.no_grad()
def record_calls(
    model: nn.Module, base: nn.Module, paths: set[str], inputs: Inputs, calls: RecordedCalls
) -> None:
    """Run the model once, and add to `calls` the arguments of these modules of `base`."""

    def keep(path: str, _: nn.Module, args: Any, kwargs: Any) -> None:
        if path not in calls.arguments:
            calls.arguments[path] = fresh((args, kwargs))

    with ExitStack() as stack, in_evaluation(model):
        for path in paths:
            hook = partial(keep, path)
            module = base.get_submodule(path)
            stack.enter_context(module.register_forward_pre_hook(hook, with_kwargs=True))
        forward_batch(model, inputs)
    calls.has_run = True


def copy_attention(
    base: nn.Module,
    unit_path: str,
    module_path: str,
    output_path: str,
    site: Site,
    calls: Arguments,
) -> AttentionCopy:
    """A copy of the module at `unit_path` with random weights, in float32 or wider."""
    unit = copy_module(base.get_submodule(unit_path)).eval()
    halves = {parameter.dtype for parameter in unit.parameters()} & {torch.float16, torch.bfloat16}
    if halves:
        unit = unit.float()
    randomise(unit)
    for parameter in unit.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return AttentionCopy(
        unit=unit,
        path=path_inside(module_path, unit_path),
        output=path_inside(output_path, unit_path),
        site=site,
        arguments=_noisy(tree_map(partial(_widened, bool(halves)), calls)),
    )


def _widened(is_half: bool, value: Any) -> Any:
    if type(value) is Tensor and is_half and value.dtype in (torch.float16, torch.bfloat16):
        return value.float()
    return value


def _noisy(arguments: Arguments) -> Arguments:
    """The arguments with noise added to the hidden states, which may all be equal."""
    args, kwargs = arguments
    random = torch.Generator().manual_seed(SEED)

    def noisy(value: Any) -> Any:
        noise = torch.randn(value.shape, generator=random).to(value)
        return value + noise

    is_states = [type(value) is Tensor and value.is_floating_point() for value in args]
    if is_states and is_states[0]:
        args = (noisy(args[0]), *args[1:])
    kwargs = {
        name: noisy(value)
        if "states" in name and type(value) is Tensor and value.is_floating_point()
        else value
        for name, value in kwargs.items()
    }
    return args, kwargs
