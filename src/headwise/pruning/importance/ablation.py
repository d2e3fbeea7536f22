"""Ablation: the loss that silencing heads adds, measured exactly.

In: an evaluation and units of heads. Out: for each unit, the loss added by replacing its heads'
outputs with zeros or with their means, with a standard error over examples. Several units in the
same layers share a forward pass, each with its own copy of the batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadId
from headwise.objectives.evaluation import Estimate, Evaluation, estimate_ratio
from headwise.objectives.recorded_pass import RecordedPass, record_pass
from headwise.progress import Progress, no_progress
from headwise.pruning.stages import PruneStage
from headwise.watching.gates import MeanOutputs

MOST_TOKENS = 2048
"""Maximum number of tokens in all copies of a batch. Larger passes take longer per token, because
the operating system takes large tensors' memory back after each use."""
MOST_VALUES = 25_000_000
"""Maximum number of values in the output for all copies of a batch, for the same reason."""
Unit = tuple[HeadId, ...]
"""Heads that are silenced or cut together."""


@dataclass(frozen=True, eq=False)
class AddedLosses:
    """The loss that silencing each unit adds, example by example."""

    sums: Float[Tensor, "units examples"]
    weights: Float[Tensor, " examples"]

    def estimates(self) -> list[Estimate]:
        """The mean added loss of each unit."""
        return [estimate_ratio(sums, self.weights) for sums in self.sums]


def ablate(
    evaluation: Evaluation,
    units: Sequence[Unit],
    *,
    means: MeanOutputs | None = None,
    progress: Progress = no_progress,
) -> list[Estimate]:
    """Loss that silencing each unit adds to the evaluation's mean loss."""
    return added_losses(evaluation, units, [means], progress=progress)[0].estimates()


def added_losses(
    evaluation: Evaluation,
    units: Sequence[Unit],
    replacements: Sequence[MeanOutputs | None] = (None,),
    *,
    progress: Progress = no_progress,
) -> list[AddedLosses]:
    """The loss that silencing each unit adds, for each way of `replacements`: None for zeros."""
    objective, samples = evaluation.objective, evaluation.samples
    parts: list[list[Tensor]] = [[] for _ in replacements]
    weights = []
    for number, sample in enumerate(samples):
        progress(PruneStage.ABLATION, number, len(samples))
        recorded = record_pass(evaluation, sample)
        base = objective.losses(recorded.output, sample)
        weights.append(base.weights.double().cpu())
        values = recorded.output.numel()
        copies = max(1, min(MOST_VALUES // values, MOST_TOKENS // recorded.num_tokens))
        for changes, means in zip(parts, replacements, strict=True):
            change = torch.zeros(len(units), len(sample), dtype=torch.float64)
            for indices in _units_per_pass(units, copies, recorded):
                silent = [units[index] for index in indices]
                losses = objective.losses(*recorded.outputs_without(silent, means))
                added = losses.sums.double().cpu().view(len(indices), -1)
                change[indices] = added - base.sums.double().cpu()
            changes.append(change)
    return [AddedLosses(torch.cat(changes, 1), torch.cat(weights)) for changes in parts]


def _units_per_pass(
    units: Sequence[Unit], copies: int, recorded: RecordedPass
) -> Iterator[list[int]]:
    """Yield the indices of up to `copies` successive units at a time, all in the same layers."""
    layers = [{head.layer_name for head in unit} for unit in units]
    for _, group in groupby(range(len(units)), layers.__getitem__):
        indices = list(group)
        most = recorded.most_copies(units[indices[0]]) or copies
        yield from (indices[start : start + most] for start in range(0, len(indices), most))
