"""Feed-forward: where a block's second half ends, found by looking at what it computes.

In: a block that runs. Out: the linear layer whose output is added to the residual stream after the
attention, and the module whose input that stream is. No names of families: a layer is taken for it
only if the sum of the two is seen going on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

LINEAR = ("Linear", "Conv1D")
"""Classes of linear layers, by name: GPT-2's is transformers' own."""


@dataclass(frozen=True)
class FeedForward:
    """Paths within a block."""

    projection: str
    """The linear layer that the feed-forward part ends in."""
    stream: str
    """The module whose input its output is added to."""


def find_feed_forward(
    block: nn.Module, run: Callable[[], Any], *, without: tuple[nn.Module, ...] = ()
) -> FeedForward | None:
    """The feed-forward part of a block while `run` runs it; None where none is seen.

    `without` are modules that are known to be something else, with all that is in them.
    """
    known = {id(part) for one in without for part in one.modules()}
    given, made = heard(block, run)
    sums = [*given.values(), *([made[""]] if "" in made else [])]
    for name, module in reversed(list(block.named_modules())):
        if type(module).__name__ not in LINEAR or id(module) in known or name not in made:
            continue
        for stream, state in given.items():
            if state.shape != made[name].shape:
                continue
            whole = state + made[name]
            if any(is_same(whole, one) for one in sums):
                return FeedForward(name, stream)
    return None


def heard(block: nn.Module, run: Callable[[], Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What every module of a block is given first, and what it makes of it, by its path."""
    given: dict[str, Tensor] = {}
    made: dict[str, Tensor] = {}
    hooks = []
    for name, module in block.named_modules():

        def enter(_: nn.Module, args: tuple[Any, ...], name: str = name) -> None:
            if args and isinstance(args[0], Tensor):
                given.setdefault(name, args[0].detach())

        def leave(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, Tensor):
                made.setdefault(name, first.detach())

        hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return given, made


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal but for rounding."""
    if one.shape != other.shape:
        return False
    near = 16 * torch.finfo(one.dtype).eps * float(one.abs().max())
    return float((one - other).abs().max()) <= near
