"""Ablation: the loss that silencing heads adds, measured exactly.

In: an evaluation and units of heads. Out: for each unit the added loss with a standard error over
examples, heads replaced by zeros or by their mean output. Layers below the silenced one are not
computed again, and several units of a layer share one pass, each on its own copy of the batch.
"""

from collections.abc import Iterator, Sequence

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
"""Tokens in all copies of a batch: more in one pass is no faster."""
Unit = tuple[HeadId, ...]
"""Heads of one layer that are silenced or cut together."""


def ablate(
    evaluation: Evaluation,
    units: Sequence[Unit],
    *,
    means: MeanOutputs | None = None,
    progress: Progress = no_progress,
) -> list[Estimate]:
    """Loss that each unit adds when it is silent, in the unit of the evaluation's mean loss."""
    blocks = find_blocks(evaluation.model)
    changes, weights = [], []
    for number, sample in enumerate(evaluation.samples):
        progress(PruneStage.ABLATION, number, len(evaluation.samples))
        batch = _AblatedBatch(evaluation, blocks, sample, means)
        losses = evaluation.objective.losses(batch.output, sample)
        base = losses.sums.double().cpu()
        change = torch.zeros(len(units), len(sample), dtype=torch.float64)
        for indices, outputs in batch.outputs(units):
            repeated = sample.repeated(len(indices))
            sums = evaluation.objective.losses(outputs, repeated).sums.double().cpu()
            change[indices] = sums.view(len(indices), -1) - base
        changes.append(change)
        weights.append(losses.weights.double().cpu())
    weight = torch.cat(weights)
    return [estimate_ratio(sums, weight) for sums in torch.cat(changes, 1)]


class _AblatedBatch:
    """One batch, to be run with units of heads silenced in turn."""

    def __init__(
        self,
        evaluation: Evaluation,
        blocks: Sequence[Block],
        sample: Sample,
        means: MeanOutputs | None,
    ) -> None:
        """Run the batch once with every head, recording the blocks' outputs."""
        self.evaluation, self.sample, self.means = evaluation, sample, means
        by_name = {block.name: block for block in blocks}
        with torch.no_grad(), record({block.name: block.module for block in blocks}) as calls:
            self.output = evaluation.objective.output(evaluation.model, sample.inputs)
        self.recorded = [(by_name[call.name], call.result) for call in calls]
        self.skippable: dict[str, int] = {}
        """For each layer, the number of blocks that ran before its own."""
        if len(calls) == len(blocks):  # else one ran twice or not at all: skip none
            self.skippable = {
                site.layer_name: index
                for index, (block, _) in enumerate(self.recorded)
                for site in block.sites
            }

    def outputs(self, units: Sequence[Unit]) -> Iterator[tuple[list[int], Tensor]]:
        """Outputs without each unit, several units of one layer at a time.

        Yields the units' indices and `[units * batch ...]`: one copy of the batch per unit.
        """
        by_layer: dict[str, list[int]] = {}
        for index, unit in enumerate(units):
            by_layer.setdefault(unit[0].layer_name, []).append(index)
        states = [result[0] if isinstance(result, tuple) else result for _, result in self.recorded]
        tensors = states or self.sample.inputs.values()  # images have other axes than tokens
        tokens = max(tensor.shape[:2].numel() for tensor in tensors)
        copies = max(1, min(ROOM // self.output.numel(), MOST_TOKENS // tokens))
        for layer, indices in by_layer.items():
            for start in range(0, len(indices), copies):
                part = indices[start : start + copies]
                yield part, self._output_without(layer, [units[index] for index in part])

    @torch.no_grad()
    def _output_without(self, layer: str, units: Sequence[Unit]) -> Float[Tensor, "copies ..."]:
        copies, batch = len(units), len(self.sample)
        gates = torch.ones(copies, batch, self.evaluation.counts[layer][0])
        for row, unit in enumerate(units):
            gates[row, :, [head.head for head in unit]] = 0
        model, objective = self.evaluation.model, self.evaluation.objective
        skipped = self.recorded[: self.skippable.get(layer, 0)]
        with (
            replay_blocks(skipped, batch=batch, copies=copies),
            gate(model, {layer: gates.flatten(0, 1)}, means=self.means),
        ):
            return objective.output(model, self.sample.repeated(copies).inputs)
