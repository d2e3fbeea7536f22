"""Exact patching: the metric after each head's output is replaced, one head at a time.

In: the runs of a batch of pairs. Out: the change of the metric for every head and pair. All heads
of a layer share the pass below it, and several are computed in one pass, each in its own copy of
the batch.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadId
from headwise.objectives.recorded_pass import record_pass
from headwise.patching.runs import PairRuns
from headwise.watching.gates import HeadOutputs

MOST_TOKENS = 2048
"""Maximum number of tokens in all copies of a batch: larger passes take longer per token."""


@torch.no_grad()
def patch_layers(
    runs: PairRuns, direction: str, outputs: HeadOutputs, heads: Sequence[HeadId]
) -> Iterator[tuple[str, Float[Tensor, "heads pairs"]]]:
    """Yield each layer's name, and the change of the metric for each of its heads.

    The change is that of the run in which this head alone outputs what it does in `outputs`.
    `heads` are grouped by layer.
    """
    if not heads:
        return
    evaluation, base = runs.evaluation(direction), runs.base(direction).cpu()
    recorded = record_pass(evaluation, evaluation.samples[0])
    copies = max(1, MOST_TOKENS // recorded.num_tokens)
    for name, group in groupby(heads, attrgetter("layer_name")):
        layer, changes = list(group), []
        for start in range(0, len(layer), copies):
            some = layer[start : start + copies]
            result, _ = recorded.outputs_without([(head,) for head in some], outputs)
            values = runs.objective.values(result).double().cpu()
            changes.append(values.view(len(some), -1) - base)
        yield name, torch.cat(changes)


def patch_each_head(
    runs: PairRuns, direction: str, outputs: HeadOutputs, heads: Sequence[HeadId]
) -> Float[Tensor, "heads pairs"]:
    """Change of the metric when one head at a time outputs what it does in `outputs`."""
    return torch.cat([part for _, part in patch_layers(runs, direction, outputs, heads)])
