"""Attribution patching: the effect of patching each head, estimated from gradients.

In: the runs of a batch of pairs. Out: for every head and pair, the change of the metric to first
order, from one backward pass for all heads. Gradients can be averaged between the two prompts, and
`attribute_with_drops` finds heads whose direct and indirect effects cancel. Memory grows linearly
with the length of the prompts, because attention runs in the fused kernel.

Kramar et al. 2024 (arxiv.org/abs/2403.00745) call the second GradDrop, a part of AtP*. Its other
part, the exact softmax for changed queries and keys, is in runs.py: the outputs for patched
patterns are computed, not estimated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.patching.runs import PairRuns
from headwise.watching.gates import HeadOutputs
from headwise.watching.interface import CallObserver
from headwise.watching.partial_passes import find_blocks
from headwise.watching.running import without_weight_gradients
from headwise.watching.sites import find_sites
from headwise.watching.watch import observe

Report = Callable[[int], None]


def attribute_heads(
    runs: PairRuns,
    direction: str,
    outputs: HeadOutputs,
    heads: Sequence[HeadId],
    *,
    steps: int = 0,
    report: Report = lambda done: None,
) -> Float[Tensor, "heads pairs"]:
    """Estimated change of the metric when each head outputs what it does in `outputs`.

    With `steps`, gradients are averaged over that many runs on inputs between the two prompts
    (integrated gradients: Hanna et al. 2024, arxiv.org/abs/2403.17806).
    """
    total = torch.zeros(len(heads), len(runs.batch.indices), dtype=torch.float64)
    points = [(step + 0.5) / steps for step in range(steps)] or [0.0]
    for number, point in enumerate(points):
        report(number)
        with _between_prompts(runs, direction, point), _moved(runs, direction, outputs) as shares:
            (changes,) = _gradients(runs, direction, shares, heads, [lambda: None])
        total += changes
    return total / len(points)


def attribute_with_drops(
    runs: PairRuns,
    direction: str,
    outputs: HeadOutputs,
    heads: Sequence[HeadId],
    *,
    report: Report = lambda done: None,
) -> Float[Tensor, "blocks heads pairs"]:
    """The estimates without the gradient that flows through each block, one block at a time.

    What a block adds to its input counts as constant. Where a head's effects through two blocks
    cancel, the estimate without one of them does not vanish.
    """
    blocks = [block.module for block in find_blocks(runs.model)]
    if len(blocks) < 2:
        raise OptionError(
            f"{type(runs.model).__name__} has no separate blocks to drop gradients through: set "
            "grad_drop to False",
            option="grad_drop",
        )
    switch = _Switch()

    def drop(number: int) -> None:
        report(number)
        switch.dropped = number

    with _moved(runs, direction, outputs) as shares, switch.attached(blocks):
        drops = [partial(drop, number) for number in range(len(blocks))]
        return torch.stack(_gradients(runs, direction, shares, heads, drops))


@contextmanager
def _between_prompts(runs: PairRuns, direction: str, share: float) -> Iterator[None]:
    """Move the embedded prompt a share of the way to the other one inside the block."""
    if not share:
        yield
        return
    model: Any = runs.model
    embedding = model.get_input_embeddings()
    other = "noise" if direction == "denoise" else "denoise"
    with torch.no_grad():
        goal: Tensor = embedding(runs.inputs(other)["input_ids"])

    def move(_: nn.Module, __: Any, embedded: Tensor) -> Tensor:
        moved: Tensor = embedded + share * (goal - embedded)
        return moved

    with embedding.register_forward_hook(move):
        yield


@contextmanager
def _moved(
    runs: PairRuns, direction: str, outputs: HeadOutputs
) -> Iterator[dict[str, Float[Tensor, "batch heads"]]]:
    """Add a share of the way to `outputs` to every head's output; yields the shares, all 0."""
    shares, entries, sites = {}, [], find_sites(runs.model)
    for call in runs.calls[direction]:
        way = outputs.of(call.site) - call.mixed
        share = way.new_zeros(way.shape[:2], requires_grad=True)
        shares[call.site.layer_name] = share
        observer = CallObserver(change=partial(_add_share, share, way))
        entries.append((call.site, observer))
    with torch.enable_grad(), observe(runs.model, sites, entries):
        yield shares


def _add_share(share: Tensor, way: Tensor, mixed: Tensor) -> Tensor:
    return mixed + share[..., None, None] * way


def _gradients(
    runs: PairRuns,
    direction: str,
    shares: Mapping[str, Tensor],
    heads: Sequence[HeadId],
    before_each: Sequence[Callable[[], None]],
) -> list[Float[Tensor, "heads pairs"]]:
    """The metric's gradient in each head's share, once for each of `before_each`."""
    with without_weight_gradients(runs.model):
        output = runs.metric.output(runs.model, runs.inputs(direction), runs.batch)
        values = runs.objective.values(output)
        if not values.requires_grad:
            raise OptionError(
                "the metric has no gradients: compute it without torch.no_grad and argmax, or "
                "set attribution to False",
                option="metric",
            )
        results = []
        for number, prepare in enumerate(before_each):
            prepare()
            parts = torch.autograd.grad(
                values.sum(),
                list(shares.values()),
                retain_graph=number + 1 < len(before_each),
                materialize_grads=True,
            )
            by_layer = dict(zip(shares, parts, strict=True))
            rows = [by_layer[head.layer_name][:, head.head] for head in heads]
            results.append(torch.stack(rows).double().cpu())
    return results


@dataclass(eq=False)
class _Switch:
    """Chooses the block through which no gradient flows."""

    dropped: int = -1

    @contextmanager
    def attached(self, blocks: Sequence[nn.Module]) -> Iterator[None]:
        """Let gradients skip the chosen block inside the `with` block."""
        with ExitStack() as hooks:
            for number, block in enumerate(blocks):
                hook = partial(self._skip, number)
                hooks.enter_context(block.register_forward_hook(hook, with_kwargs=True))
            yield

    def _skip(
        self, number: int, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> Any:
        stream = next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        result = out[0] if isinstance(out, tuple) else out
        if result.shape != stream.shape:
            raise OptionError(
                f"{type(block).__name__} does not add to its input, so gradients through it "
                "cannot be dropped: set grad_drop to False",
                option="grad_drop",
            )
        apply: Any = _DroppedGradient.apply
        result = apply(result, stream, self, number)
        return (result, *out[1:]) if isinstance(out, tuple) else result


class _DroppedGradient(torch.autograd.Function):
    """A block's output; its gradient goes to the block's input if the block is dropped."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, stream: Tensor, switch: _Switch, number: int) -> Tensor:
        ctx.switch, ctx.number = switch, number
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        if ctx.switch.dropped == ctx.number:
            return torch.zeros_like(gradient), gradient, None, None
        return gradient, torch.zeros_like(gradient), None, None
