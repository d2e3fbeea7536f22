"""Redundancy: heads that stand in for each other, with the evidence.

In: a task and how heads act together. Out: groups of heads of which any one is cheap to cut and all
are dear: what they add to the model's output points the same way, and what they give is alike.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadCounts, HeadId
from headwise.measures.similarity import ROWS, centred_kernels, cka, pairwise_hsic
from headwise.objectives.evaluation import Evaluation, head_ids
from headwise.objectives.objective import Sample
from headwise.pruning.importance.gradients import Gradients
from headwise.watching.calls import Call
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.watch import watch

SAME_WAY = 0.3
"""Correlation of two heads' effects on the output from which they may stand in for each other."""
ALIKE = 0.2
"""Linear CKA of two heads' outputs from which they may."""


@dataclass(frozen=True)
class Redundant:
    """Heads that stand in for each other."""

    heads: tuple[HeadId, ...]
    correlation: float
    """Smallest correlation of two neighbours' effects on the model's output."""
    cka: float
    """Smallest linear CKA of two neighbours' outputs."""
    cost_apart: float
    """Loss expected from cutting each alone, added up."""
    cost_together: float
    """Loss expected from cutting all of them."""

    def __str__(self) -> str:
        """The heads and the evidence, on one line."""
        return (
            f"{' '.join(map(str, self.heads))}: effects correlate by {self.correlation:.2f} or "
            f"more, outputs are alike by a CKA of {self.cka:.2f} or more; cutting all costs "
            f"{self.cost_together:.4f}, one by one they would cost {self.cost_apart:.4f}"
        )


def correlations(interaction: Float[Tensor, "heads heads"]) -> Float[Tensor, "heads heads"]:
    """How far two heads' effects on the output point the same way, -1 to 1; 0 without an effect."""
    own = interaction.diagonal().clamp(min=0).sqrt()
    scale = own[:, None] * own
    return torch.where(scale > 0, interaction / scale.clamp(min=torch.finfo(own.dtype).tiny), 0.0)


@torch.no_grad()
def alikeness(task: Evaluation, counts: HeadCounts) -> Float[Tensor, "heads heads"]:
    """Linear CKA of every two heads' outputs, on some rows of every batch's first example."""
    heads = head_ids(task.places, counts)
    total = torch.zeros(len(heads), len(heads), dtype=torch.float64)
    for sample in task.samples:
        found = outputs_of(task, sample, counts)
        if found is not None:
            total += pairwise_hsic(centred_kernels(found))
    return cka(total)


FEWEST_ROWS = 4
"""The unbiased estimate divides by three less than the number of rows."""


def outputs_of(
    task: Evaluation, sample: Sample, counts: HeadCounts
) -> Float[Tensor, "heads row d_value"] | None:
    """What every head gives on the same rows of one example; None where there are too few.

    Each stack's rows are the first that are no padding there.
    """
    by_layer: dict[str, Tensor] = {}
    first = Sample({name: value[:1] for name, value in sample.inputs.items()})

    def keep(call: Call) -> None:
        is_real = real_queries(task.model, first.inputs, call.stack, call.mixed[:, 0])[0]
        rows = is_real.nonzero()[:ROWS, 0]
        by_layer[call.site.layer_name] = call.mixed[0][:, rows].double()

    with watch(task.model, keep):
        forward_batch(task.model, first.inputs)
    widest = max(one.shape[2] for one in by_layer.values())
    fewest = min(one.shape[1] for one in by_layer.values())
    if fewest < FEWEST_ROWS:
        return None
    padded = [
        torch.nn.functional.pad(by_layer[layer][:, :fewest], (0, widest - by_layer[layer].shape[2]))
        for layer, (num_heads, _) in counts.items()
        if num_heads
    ]
    return torch.cat(padded)


def redundant_groups(
    found: Gradients, alike: Float[Tensor, "heads heads"]
) -> tuple[Redundant, ...]:
    """Groups of heads joined by pairs that act the same way and are alike; dearest first."""
    same = correlations(found.interaction)
    joined = (same >= SAME_WAY) & (alike >= ALIKE)
    joined.fill_diagonal_(False)
    groups = [group for group in components(joined) if len(group) > 1]
    every = [redundant(group, found, same, alike, joined) for group in groups]
    return tuple(sorted(every, key=lambda one: one.cost_apart - one.cost_together))


def redundant(
    group: list[int], found: Gradients, same: Tensor, alike: Tensor, joined: Tensor
) -> Redundant:
    """One group and its evidence."""
    pairs = [(one, other) for one in group for other in group if one < other and joined[one, other]]
    return Redundant(
        heads=tuple(found.heads[one] for one in group),
        correlation=min(float(same[pair]) for pair in pairs),
        cka=min(float(alike[pair]) for pair in pairs),
        cost_apart=sum(found.cost_of([one]) for one in group),
        cost_together=found.cost_of(group),
    )


def components(joined: Tensor) -> list[list[int]]:
    """Groups of numbers that are joined, directly or through others."""
    left, found = set(range(len(joined))), []
    while left:
        group, reached = [], {min(left)}
        while reached:
            one = reached.pop()
            left.discard(one)
            group.append(one)
            reached |= {int(other) for other in joined[one].nonzero()[:, 0]} & left
        found.append(sorted(group))
    return found
