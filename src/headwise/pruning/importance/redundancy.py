"""Redundancy: heads that can replace each other, with the evidence.

In: an evaluation and the heads' interactions. Out: groups of heads that are cheap to cut one at a
time, but not all together: their effects on the model's output correlate, and their outputs are
similar.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadId
from headwise.measures.similarity import ROWS, centred_kernels, cka, pairwise_hsic
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.objective import Sample
from headwise.pruning.importance.gradients import Gradients
from headwise.watching.calls import Call
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.watch import watch

LEAST_CORRELATION = 0.3
"""Two heads are linked only if the correlation of their effects on the output is this high."""
LEAST_CKA = 0.2
"""Two heads are linked only if the linear CKA between their outputs is at least this."""
FEWEST_ROWS = 4
"""Smallest number of rows: the unbiased CKA divides by the number of rows minus three."""


@dataclass(frozen=True)
class RedundantHeads:
    """Heads that can replace each other, linked by similar effects and similar outputs."""

    heads: tuple[HeadId, ...]
    correlation: float
    """Smallest correlation between two linked heads' effects on the model's output."""
    cka: float
    """Smallest linear CKA between two linked heads' outputs."""
    cost_apart: float
    """Sum of the losses expected from cutting each head alone."""
    cost_together: float
    """Loss expected from cutting all the heads together."""

    def __str__(self) -> str:
        return (
            f"{' '.join(map(str, self.heads))}: effects correlate at {self.correlation:.2f} or "
            f"more, outputs have a CKA of {self.cka:.2f} or more; cutting all costs "
            f"{self.cost_together:.4f}, but the separate costs add up to {self.cost_apart:.4f}"
        )


def effect_correlations(interaction: Float[Tensor, "heads heads"]) -> Float[Tensor, "heads heads"]:
    """Correlation of every two heads' effects on the output, -1 to 1; 0 if either has no effect."""
    norms = interaction.diagonal().clamp(min=0).sqrt()
    scale = norms[:, None] * norms
    return torch.where(scale > 0, interaction / scale.clamp(min=torch.finfo(norms.dtype).tiny), 0.0)


@torch.no_grad()
def output_similarity(evaluation: Evaluation) -> Float[Tensor, "heads heads"]:
    """Linear CKA between every two heads' outputs, on some rows of each batch's first example."""
    total = torch.zeros(len(evaluation.heads), len(evaluation.heads), dtype=torch.float64)
    for sample in evaluation.samples:
        outputs = _head_outputs(evaluation, sample)
        if outputs is not None:
            total += pairwise_hsic(centred_kernels(outputs))
    return cka(total)


def _head_outputs(
    evaluation: Evaluation, sample: Sample
) -> Float[Tensor, "heads row d_value"] | None:
    """Every head's outputs on the first rows that are not padding; None if a stack has too few."""
    by_layer: dict[str, Tensor] = {}
    inputs = {name: value[:1] for name, value in sample.inputs.items()}

    def keep(call: Call) -> None:
        is_real = real_queries(evaluation.model, inputs, call.stack, call.mixed[:, 0])[0]
        rows = is_real.nonzero()[:ROWS, 0]
        by_layer[call.site.layer_name] = call.mixed[0][:, rows].double()

    with watch(evaluation.model, keep):
        forward_batch(evaluation.model, inputs)
    widest = max(outputs.shape[2] for outputs in by_layer.values())
    fewest = min(outputs.shape[1] for outputs in by_layer.values())
    if fewest < FEWEST_ROWS:
        return None
    padded = [
        torch.nn.functional.pad(by_layer[layer][:, :fewest], (0, widest - by_layer[layer].shape[2]))
        for layer, (num_heads, _) in evaluation.counts.items()
        if num_heads
    ]
    return torch.cat(padded)


def redundant_groups(
    gradients: Gradients, similarity: Float[Tensor, "heads heads"]
) -> tuple[RedundantHeads, ...]:
    """Groups of linked heads; first the one whose joint cost most exceeds its separate costs."""
    correlations = effect_correlations(gradients.interaction)
    is_linked = (correlations >= LEAST_CORRELATION) & (similarity >= LEAST_CKA)
    reaches = is_linked.fill_diagonal_(True).float()
    for _ in range(len(reaches).bit_length()):  # heads within 2, 4, 8, ... links
        reaches = (reaches @ reaches > 0).float()
    groups = []
    for group in dict.fromkeys(tuple(row.nonzero()[:, 0].tolist()) for row in reaches):
        pairs = [(a, b) for a in group for b in group if a < b and is_linked[a, b]]
        if pairs:
            groups.append(
                RedundantHeads(
                    heads=tuple(gradients.heads[index] for index in group),
                    correlation=min(float(correlations[pair]) for pair in pairs),
                    cka=min(float(similarity[pair]) for pair in pairs),
                    cost_apart=sum(gradients.expected_cost([index]) for index in group),
                    cost_together=gradients.expected_cost(group),
                )
            )
    return tuple(sorted(groups, key=lambda group: group.cost_apart - group.cost_together))
