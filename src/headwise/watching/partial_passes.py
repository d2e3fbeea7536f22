"""Partial passes: forward passes that start or end at any block of a model.

In: a model. Out: its blocks, and passes in which every block before a chosen one returns its
recorded output. Does not compute losses.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headwise.reading.batch import Inputs
from headwise.watching.hooks import detach_all, record
from headwise.watching.running import forward_batch
from headwise.watching.sites import NUMBER, Site, find_sites

MOST_CHANGED = 0.02
"""Largest change of a replayed block's output, relative to its largest number: rounding, in
bfloat16 as well. A block that lacks what it reads fails, or changes far more."""


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


_IS_REPLAYABLE: "WeakKeyDictionary[nn.Module, bool]" = WeakKeyDictionary()


def can_replay(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the last block computes the same if the others return recorded outputs.

    Not so if it reads more than the output of the block below, such as another layer's keys in
    Gemma 3n. The model runs twice to find out, once on two copies of the batch.
    """
    if model not in _IS_REPLAYABLE:
        _IS_REPLAYABLE[model] = _try_replay(model, inputs)
    return _IS_REPLAYABLE[model]


@torch.no_grad()
def _try_replay(model: nn.Module, inputs: Inputs) -> bool:
    blocks = {block.name: block for block in find_blocks(model)}
    with record({name: block.module for name, block in blocks.items()}) as calls:
        forward_batch(model, inputs)
    if not calls:
        return False
    *below, last = calls
    recorded = [(blocks[call.name], call.result) for call in below]
    module = {last.name: blocks[last.name].module}
    doubled = {name: torch.cat([value, value]) for name, value in inputs.items()}
    batch = len(next(iter(inputs.values())))
    try:
        with replay_blocks(recorded, batch=batch, copies=2), record(module) as again:
            forward_batch(model, doubled)
    except Exception:  # the model's own code, without the state that it expects
        return False
    expected = torch.cat([last.output, last.output]).nan_to_num()
    actual = again[-1].output.nan_to_num()
    scale = float(expected.abs().max()) + torch.finfo(expected.dtype).tiny
    if actual.shape != expected.shape:
        return False
    return float((actual - expected).abs().max()) < MOST_CHANGED * scale


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
