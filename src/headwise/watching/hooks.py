"""Hooks: record the inputs and outputs of modules, call by call.

In: modules by name. Out: a `ModuleCall` for every call inside a `with` block.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of a module: its arguments as passed, and its result without gradients."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @cached_property
    def input(self) -> Tensor:
        """The first floating-point tensor among the arguments, without gradients."""
        arguments = (*self.args, *self.kwargs.values())
        tensors = (value for value in arguments if isinstance(value, Tensor))
        return next(tensor for tensor in tensors if tensor.is_floating_point()).detach()

    @property
    def output(self) -> Any:
        """The result; the first entry if the module returns a tuple."""
        return (
            self.result[0] if isinstance(self.result, tuple | list) and self.result else self.result
        )


@contextmanager
def record(modules: Mapping[str, nn.Module]) -> Iterator[list[ModuleCall]]:
    """Record every call of these modules inside the block, in the order the calls return."""
    calls: list[ModuleCall] = []

    def keep(
        name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        calls.append(ModuleCall(name, args, kwargs, detach_all(result)))

    with ExitStack() as hooks:
        for name, module in modules.items():
            hook = module.register_forward_hook(partial(keep, name), with_kwargs=True)
            hooks.enter_context(hook)
        yield calls


def detach_all(value: Any) -> Any:
    """A tensor or a tuple of tensors, detached; any other value is returned as it is."""
    if isinstance(value, Tensor):
        return value.detach()
    return tuple(map(detach_all, value)) if type(value) is tuple else value
