"""Blocks: a model's layers one by one, so that a forward pass can begin and end in the middle.

In: a model and where its attention is. Out: the blocks in the order in which they run, what each
gave, and passes in which the blocks below one are not computed again. It knows no losses.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.objectives.objective import repeat
from headwise.reading.batch import Inputs
from headwise.watching.hooks import detached
from headwise.watching.running import forward_batch
from headwise.watching.sites import NUMBER, Site


@dataclass(frozen=True, eq=False)
class Block:
    """One layer of a model: attention and whatever else is computed with it."""

    name: str
    module: nn.Module
    places: tuple[Site, ...]


def find_blocks(model: nn.Module, places: Sequence[Site]) -> tuple[Block, ...]:
    """The blocks that attention lies in, in the order of the model's modules.

    None where a block computes several layers, as in ALBERT: it cannot be left out for one of them.
    """
    if any(place.layer_loop is not None for place in places):
        return ()
    inside: dict[str, list[Site]] = {}
    for place in places:
        inside.setdefault(block_name(place.name), []).append(place)
    modules = dict(model.named_modules())
    return tuple(Block(name, modules[name], tuple(found)) for name, found in inside.items())


def block_name(name: str) -> str:
    """A module's path up to its first number: `encoder.layer.3` of `encoder.layer.3.attention`."""
    found = NUMBER.search(f".{name}")
    return name if found is None else name[: found.end() - 1]


@dataclass(frozen=True, eq=False)
class Recording:
    """What every block gave in one pass, in the order in which they ran."""

    blocks: list[Block] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


@contextmanager
def recorded(blocks: Sequence[Block]) -> Iterator[Recording]:
    """While it lasts, what each block gives is kept."""
    found = Recording()

    def keep(block: Block, _: nn.Module, __: Any, output: Any) -> None:
        found.blocks.append(block)
        found.outputs.append(detached(output))

    hooks = [block.module.register_forward_hook(partial(keep, block)) for block in blocks]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def skip_blocks(found: Recording, count: int, *, batch: int, copies: int = 1) -> Iterator[None]:
    """While it lasts, the first `count` blocks give what they gave, for a repeated batch."""
    with ExitStack() as stack:
        for block, output in zip(found.blocks[:count], found.outputs[:count], strict=True):
            give = partial(replay, output, batch, copies)
            stack.enter_context(replaced_forward(block.module, give))
        yield


@contextmanager
def replaced_forward(module: nn.Module, forward: Any) -> Iterator[None]:
    """While it lasts, a module computes something else; its hooks go on as ever."""
    before = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def replay(output: Any, batch: int, copies: int, *_: Any, **__: Any) -> Any:
    """What a block gave, for a batch that is repeated."""
    if isinstance(output, tuple):
        return tuple(replay(one, batch, copies) for one in output)
    if isinstance(output, Tensor) and copies > 1 and output.dim() and len(output) == batch:
        return repeat(output, copies)
    return output


class StopForward(Exception):
    """No error: a pass has come to the block after which it need not go on."""


States = dict[str, Any]
"""By a stack's path, what the last of its blocks that has run gave."""


def stack_of(block: Block) -> str:
    """Path of the list that a block is in: `encoder.layer` of `encoder.layer.3`."""
    return block.name.rpartition(".")[0]


@torch.no_grad()
def run_block(
    model: nn.Module, blocks: Sequence[Block], index: int, inputs: Inputs, states: States
) -> Any:
    """What one block gives when those before it gave `states`; blocks above are not computed."""

    def end(_: nn.Module, __: Any, output: Any) -> None:
        found.append(detached(output))
        raise StopForward

    found: list[Any] = []
    with ExitStack() as stack:
        for block in blocks[:index]:
            give = partial(replay, states[stack_of(block)], 0, 1)
            stack.enter_context(replaced_forward(block.module, give))
        hook = blocks[index].module.register_forward_hook(end)
        stack.callback(hook.remove)
        try:
            forward_batch(model, inputs)
        except StopForward:
            pass
    return found[0]
