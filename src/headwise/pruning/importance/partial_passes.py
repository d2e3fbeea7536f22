"""Partial passes: forward passes that start or end at any block of a model.

In: a model and its attention sites. Out: its blocks, their recorded outputs, and passes in which
the blocks below one are not computed again. Knows nothing of losses.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.objectives.objective import repeat_batch
from headwise.reading.batch import Inputs
from headwise.watching.hooks import detach_all, record
from headwise.watching.running import forward_batch
from headwise.watching.sites import NUMBER, Site


@dataclass(frozen=True, eq=False)
class Block:
    """One block of a transformer: attention with its feed-forward part and norms."""

    name: str
    module: nn.Module
    sites: tuple[Site, ...]

    @property
    def stack(self) -> str:
        """Path of the list that the block is in: `encoder.layer` for `encoder.layer.3`."""
        return self.name.rpartition(".")[0]


def find_blocks(model: nn.Module, sites: Sequence[Site]) -> tuple[Block, ...]:
    """The blocks that contain the sites, in the order of the model's modules.

    Empty if a block computes several layers, as in ALBERT: it cannot be skipped for one of them.
    """
    if any(site.layer_loop is not None for site in sites):
        return ()
    by_block: dict[str, list[Site]] = {}
    for site in sites:
        by_block.setdefault(_block_name(site.name), []).append(site)
    modules = dict(model.named_modules())
    return tuple(Block(name, modules[name], tuple(own)) for name, own in by_block.items())


def _block_name(name: str) -> str:
    """A module's path up to its first number: `encoder.layer.3` of `encoder.layer.3.attention`."""
    number = NUMBER.search(f".{name}")
    return name if number is None else name[: number.end() - 1]


@dataclass(frozen=True, eq=False)
class BlockRecording:
    """The output of every block in one pass, in the order in which they ran."""

    blocks: list[Block] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)


@contextmanager
def record_blocks(blocks: Sequence[Block]) -> Iterator[BlockRecording]:
    """Record the output of every block that runs inside the `with` block."""
    recording = BlockRecording()
    by_name = {block.name: block for block in blocks}
    with record({block.name: block.module for block in blocks}) as calls:
        yield recording
    recording.blocks.extend(by_name[call.name] for call in calls)
    recording.outputs.extend(call.result for call in calls)


@contextmanager
def skip_blocks(
    recording: BlockRecording, count: int, *, batch: int, copies: int = 1
) -> Iterator[None]:
    """Let the first `count` blocks return their recorded outputs, repeated `copies` times."""
    with ExitStack() as stack:
        for block, output in zip(recording.blocks[:count], recording.outputs[:count], strict=True):
            stack.enter_context(
                _replace_forward(block.module, partial(_replay, output, batch, copies))
            )
        yield


@contextmanager
def _replace_forward(module: nn.Module, forward: Any) -> Iterator[None]:
    """Replace a module's `forward` inside the `with` block. Its hooks still run."""
    before = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def _replay(output: Any, batch: int, copies: int, *_: Any, **__: Any) -> Any:
    """A block's recorded output, for a batch that is repeated `copies` times."""
    if isinstance(output, tuple):
        return tuple(_replay(part, batch, copies) for part in output)
    if isinstance(output, Tensor) and copies > 1 and output.dim() and len(output) == batch:
        return repeat_batch(output, copies)
    return output


class StopForward(Exception):
    """Not an error: ends a pass after the last block that is needed."""


@torch.no_grad()
def run_block(
    model: nn.Module,
    blocks: Sequence[Block],
    index: int,
    inputs: Inputs,
    states: dict[str, Any],
) -> Any:
    """The output of one block, if those before it return `states`; blocks above do not run.

    `states` has the output of the block that ran last in each stack, by the stack's path.
    """
    output: list[Any] = []

    def stop(_: nn.Module, __: Any, result: Any) -> None:
        output.append(detach_all(result))
        raise StopForward

    with ExitStack() as stack:
        for block in blocks[:index]:
            give = partial(_replay, states[block.stack], 0, 1)
            stack.enter_context(_replace_forward(block.module, give))
        stack.callback(blocks[index].module.register_forward_hook(stop).remove)
        try:
            forward_batch(model, inputs)
        except StopForward:
            pass
    return output[0]
