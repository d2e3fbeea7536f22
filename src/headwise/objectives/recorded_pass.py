"""Recorded pass: a pass of the unchanged model, and passes with silent heads that reuse it.

In: an evaluation and one of its samples. Out: the model's outputs with heads silenced, each unit of
heads in its own copy of the batch. Blocks below the silent heads do not run again, nor does the
attention of a single layer's heads: only its output projection does.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.objective import Sample
from headwise.watching.gates import MeanOutputs, gate, scale_heads
from headwise.watching.hooks import ModuleCall, record
from headwise.watching.interface import CallObserver
from headwise.watching.partial_passes import Block, can_replay, find_blocks, replay_blocks
from headwise.watching.routing import route_attention
from headwise.watching.sites import Site, find_sites
from headwise.watching.watch import observe


@dataclass(frozen=True, eq=False)
class RecordedAttention:
    """One layer's attention on a batch: its heads' outputs, and the module's result."""

    site: Site
    mixed: Float[Tensor, "batch heads query d_value"]
    result: Any
    is_projected: bool
    """Whether the module returns the output projection's output; otherwise, its input."""

    def result_with(
        self,
        gates: Float[Tensor, "*copies_and_batch heads"],
        means: MeanOutputs | None,
        *,
        copies: int,
    ) -> Any:
        """The module's result on copies of the batch, with the heads' outputs scaled by `gates`."""
        mixed = self.mixed.repeat(copies, 1, 1, 1)
        mean = None if means is None else means.of(self.site)
        output = scale_heads(self.site, gates, mean, mixed).transpose(1, 2).flatten(2)
        if self.is_projected:
            assert self.site.output_projection is not None
            output = self.site.output_projection(output)
        return (output, *self.result[1:]) if isinstance(self.result, tuple) else output


@dataclass(frozen=True, eq=False)
class RecordedPass:
    """The unchanged model's output on a sample, and the results of its blocks and attention."""

    evaluation: Evaluation
    sample: Sample
    output: Tensor
    num_tokens: int
    """Number of positions in the batch, padding included."""
    blocks: tuple[tuple[Block, Any], ...]
    """Every block with its result, in the order they ran; empty if they cannot be replayed."""
    attention: Mapping[str, RecordedAttention]
    """Attention that need not run again if heads are silenced, by layer name."""
    windowed: frozenset[str]
    """Layers whose attention has another batch than the sample, as within windows of an image."""

    def most_copies(self, unit: Sequence[HeadId]) -> int | None:
        """Maximum number of units like this one that can share a pass; None if it is unlimited."""
        return None if self.windowed.isdisjoint(head.layer_name for head in unit) else 1

    @torch.no_grad()
    def outputs_without(
        self, units: Sequence[Sequence[HeadId]], means: MeanOutputs | None
    ) -> tuple[Tensor, Sample]:
        """The outputs on one copy of the batch per unit, each with its unit silenced; the copies.

        All units have heads in the same layers.
        """
        evaluation, batch = self.evaluation, len(self.sample)
        model, repeated = evaluation.model, self.sample.repeated(len(units))
        layers = {head.layer_name for head in units[0]}
        gates = {layer: torch.ones(len(repeated), evaluation.counts[layer][0]) for layer in layers}
        for row, unit in enumerate(units):
            for head in unit:
                gates[head.layer_name][row * batch : (row + 1) * batch, head.head] = 0
        if len(units) == 1:  # the same for the whole batch, however a layer divides it
            gates = {layer: factors[0] for layer, factors in gates.items()}
        below = takewhile(
            lambda pair: all(site.layer_name not in layers for site in pair[0].sites), self.blocks
        )
        with (
            replay_blocks(below, batch=batch, copies=len(units)),
            self._silence_copies(gates, means, copies=len(units)),
        ):
            return evaluation.objective.output(model, repeated.inputs), repeated

    @contextmanager
    def _silence_copies(
        self,
        gates: Mapping[str, Float[Tensor, "*copies_and_batch heads"]],
        means: MeanOutputs | None,
        *,
        copies: int,
    ) -> Iterator[None]:
        """Scale the heads' outputs by `gates` inside the block; a single layer's are replayed."""
        model, layer = self.evaluation.model, next(iter(gates))
        reused = self.attention.get(layer) if len(gates) == 1 else None
        if reused is None:
            with gate(model, gates, means=means):
                yield
            return
        site, batch = reused.site, len(self.sample)
        attention = Block(site.name, site.module, (site,))
        result = reused.result_with(gates[layer], means, copies=copies)
        with (
            route_attention(model, find_sites(model)),  # as in the recorded pass
            replay_blocks([(attention, result)], batch=batch, copies=copies),
        ):
            yield


@torch.no_grad()
def record_pass(evaluation: Evaluation, sample: Sample) -> RecordedPass:
    """Run the unchanged model on the sample."""
    model, mixed = evaluation.model, dict[str, Tensor]()
    is_replayable = can_replay(model, sample.inputs)
    replayable = find_blocks(model) if is_replayable else ()
    blocks = {f"block {block.name}": block for block in replayable}
    sites = find_sites(model)
    observed = [site for site in sites if evaluation.counts.get(site.layer_name, (0, 0))[0]]
    modules: dict[str, nn.Module] = {name: block.module for name, block in blocks.items()}
    for site in observed:
        modules[f"attention {site.layer_name}"] = site.module
        if site.output_projection is not None:
            modules[f"projection {site.layer_name}"] = site.output_projection

    def keep(layer: str, outputs: Tensor) -> Tensor:
        mixed[layer] = outputs
        return outputs

    observers = [(site, CallObserver(change=partial(keep, site.layer_name))) for site in observed]
    with observe(model, sites, observers), record(modules) as calls:
        output = evaluation.objective.output(model, sample.inputs)
    names = [call.name for call in calls]
    once = {call.name: call for call in calls if names.count(call.name) == 1}
    ran = [(blocks[call.name], call.result) for call in calls if call.name in blocks]
    states = [once[name].output for name in blocks if name in once] or sample.inputs.values()
    return RecordedPass(
        evaluation,
        sample,
        output,
        num_tokens=max(state.shape[:2].numel() for state in states),  # inputs may be images
        blocks=tuple(ran) if len(once.keys() & blocks) == len(blocks) else (),
        attention={
            site.layer_name: attention
            for site in observed
            if is_replayable
            if (attention := _reusable_attention(site, mixed, once)) is not None
        },
        windowed=frozenset(name for name, each in mixed.items() if len(each) != len(sample)),
    )


def _reusable_attention(
    site: Site, mixed: Mapping[str, Tensor], calls: Mapping[str, ModuleCall]
) -> RecordedAttention | None:
    """The recorded attention; None if silencing a head changes more than the output projection.

    This is so if a gate or a norm comes between the heads and the projection, or if the module
    adds a residual.
    """
    outputs = mixed.get(site.layer_name)
    call = calls.get(f"attention {site.layer_name}")
    projection = calls.get(f"projection {site.layer_name}")
    if outputs is None or call is None or projection is None:
        return None
    concat = outputs.transpose(1, 2).flatten(2)
    if not _are_identical(projection.input, concat):
        return None
    for is_projected, tensor in ((False, concat), (True, projection.output)):
        if _are_identical(call.output, tensor):
            return RecordedAttention(site, outputs, call.result, is_projected)
    return None


def _are_identical(value: Any, tensor: Tensor) -> bool:
    """Whether `value` is a tensor with this shape and these numbers."""
    return isinstance(value, Tensor) and value.shape == tensor.shape and torch.equal(value, tensor)
