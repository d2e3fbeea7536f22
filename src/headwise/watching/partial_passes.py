"""Partial passes: forward passes that start or end at any block of a model.

In: a model. Out: its blocks, and passes in which every block before a chosen one returns its
recorded output. Does not compute losses.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.reading.batch import Inputs
from headwise.watching.hooks import detach_all
from headwise.watching.running import forward_batch
from headwise.watching.sites import NUMBER, Site, find_sites


@dataclass(frozen=True, eq=False)
class Block:
    """One block of a transformer: attention with its feed-forward part and norms."""

    name: str
    module: nn.Module
    sites: tuple[Site, ...]

    @property
    def stack(self) -> str:
        """Path of the list that contains the block: `encoder.layer` for `encoder.layer.3`."""
        return self.name.rpartition(".")[0]


def find_blocks(model: nn.Module) -> tuple[Block, ...]:
    """The blocks that contain attention, in the order of the model's modules.

    Empty if a block computes several layers, as in ALBERT: it cannot be skipped for only one.
    """
    sites = find_sites(model)
    if any(site.layer_loop is not None for site in sites):
        return ()
    by_block: dict[str, list[Site]] = {}
    for site in sites:
        by_block.setdefault(_block_name(site.name), []).append(site)
    modules = dict(model.named_modules())
    return tuple(Block(name, modules[name], tuple(inside)) for name, inside in by_block.items())


def _block_name(name: str) -> str:
    """A module's path up to its first number: `encoder.layer.3` for `encoder.layer.3.attention`."""
    number = NUMBER.search(f".{name}")
    return name if number is None else name[: number.end() - 1]


@contextmanager
def replay_blocks(
    recorded: Iterable[tuple[Block, Any]], *, batch: int = 0, copies: int = 1
) -> Iterator[None]:
    """Make blocks return their recorded outputs inside the `with` block; their hooks still run.

    Tensors with `batch` examples are repeated `copies` times.
    """
    with ExitStack() as stack:
        for block, output in recorded:
            module: Any = block.module
            if "forward" in vars(module):  # already replaced, for instance by a cut of all heads
                stack.callback(setattr, module, "forward", module.forward)
            else:
                stack.callback(delattr, module, "forward")
            module.forward = partial(_replay, output, batch, copies)
        yield


def _replay(output: Any, batch: int, copies: int, *_: Any, **__: Any) -> Any:
    if isinstance(output, tuple):
        return tuple(_replay(part, batch, copies) for part in output)
    if isinstance(output, Tensor) and copies > 1 and output.dim() and len(output) == batch:
        return torch.cat([output] * copies)
    return output


class StopForward(Exception):
    """Raised to end a pass after the last block that is needed; not an error."""


@torch.no_grad()
def run_block(
    model: nn.Module, blocks: Sequence[Block], index: int, inputs: Inputs, states: dict[str, Any]
) -> Any:
    """The output of block `index` if earlier blocks return `states`; later blocks do not run.

    `states` maps the path of each stack to the output of the last block that ran in it.
    """
    output: list[Any] = []

    def stop(_: nn.Module, __: Any, result: Any) -> None:
        output.append(detach_all(result))
        raise StopForward

    recorded = [(block, states[block.stack]) for block in blocks[:index]]
    hook = blocks[index].module.register_forward_hook(stop)
    with suppress(StopForward), replay_blocks(recorded), hook:
        forward_batch(model, inputs)
    return output[0]
