"""Ablation: the loss that silencing heads adds, measured exactly.

In: an evaluation and units of heads. Out: for each unit, the loss added by replacing its heads'
outputs with zeros or with their means, with a standard error over examples. Layers below the
silenced heads are not computed again, and several units in one layer share a forward pass, each
with its own copy of the batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadId
from headwise.objectives.evaluation import ROOM, Estimate, Evaluation, estimate_ratio
from headwise.objectives.objective import Sample
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.partial_passes import Block, find_blocks, replay_blocks
from headwise.pruning.stages import PruneStage
from headwise.watching.gates import MeanOutputs, gate
from headwise.watching.hooks import record

MOST_TOKENS = 8192
"""Maximum number of tokens in all copies of a batch: larger passes save no more time."""
Unit = tuple[HeadId, ...]
"""Heads of one layer that are silenced or cut together."""


def ablate(
    evaluation: Evaluation,
    units: Sequence[Unit],
    *,
    means: MeanOutputs | None = None,
    progress: Progress = no_progress,
) -> list[Estimate]:
    """Loss that silencing each unit adds to the evaluation's mean loss."""
    objective = evaluation.objective
    blocks = {block.name: block for block in find_blocks(evaluation.model)}
    modules = {name: block.module for name, block in blocks.items()}
    changes, weights = [], []
    for number, sample in enumerate(evaluation.samples):
        progress(PruneStage.ABLATION, number, len(evaluation.samples))
        with torch.no_grad(), record(modules) as calls:
            output = objective.output(evaluation.model, sample.inputs)
        losses = objective.losses(output, sample)
        base = losses.sums.double().cpu()
        recorded = [(blocks[call.name], call.result) for call in calls]
        if len(calls) != len(blocks):  # a block ran twice or not at all: replay none
            recorded = []
        states = [call.output for call in calls] or sample.inputs.values()
        tokens = max(state.shape[:2].numel() for state in states)  # inputs may be images
        copies = max(1, min(ROOM // output.numel(), MOST_TOKENS // tokens))
        change = torch.zeros(len(units), len(sample), dtype=torch.float64)
        for indices in _units_per_pass(units, copies):
            silent = [units[index] for index in indices]
            repeated = sample.repeated(len(indices))
            outputs = _outputs_without(evaluation, silent, repeated, recorded, means)
            sums = objective.losses(outputs, repeated).sums.double().cpu()
            change[indices] = sums.view(len(indices), -1) - base
        changes.append(change)
        weights.append(losses.weights.double().cpu())
    weight = torch.cat(weights)
    return [estimate_ratio(sums, weight) for sums in torch.cat(changes, 1)]


def _units_per_pass(units: Sequence[Unit], most: int) -> Iterator[list[int]]:
    """Yield the indices of up to `most` successive units at a time, all in the same layer."""
    for _, group in groupby(range(len(units)), lambda index: units[index][0].layer_name):
        indices = list(group)
        yield from (indices[start : start + most] for start in range(0, len(indices), most))


@torch.no_grad()
def _outputs_without(
    evaluation: Evaluation,
    units: Sequence[Unit],
    repeated: Sample,
    recorded: Iterable[tuple[Block, Any]],
    means: MeanOutputs | None,
) -> Float[Tensor, "copies ..."]:
    """Outputs for one copy of the batch per unit, each copy with its own unit silenced."""
    layer, batch = units[0][0].layer_name, len(repeated) // len(units)
    gates = torch.ones(len(units), batch, evaluation.counts[layer][0])
    for row, unit in enumerate(units):
        gates[row, :, [head.head for head in unit]] = 0
    below = takewhile(
        lambda pair: all(site.layer_name != layer for site in pair[0].sites), recorded
    )
    with (
        replay_blocks(below, batch=batch, copies=len(units)),
        gate(evaluation.model, {layer: gates.flatten(0, 1)}, means=means),
    ):
        return evaluation.objective.output(evaluation.model, repeated.inputs)
