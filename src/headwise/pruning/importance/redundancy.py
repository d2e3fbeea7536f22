"""Redundancy: heads that can replace each other, with the evidence.

In: an evaluation and the heads' interactions. Out: groups of heads that cost clearly more to cut
together than one at a time: their effects on the model's output correlate and their outputs are
similar, in both halves of the examples, and exact ablation confirms the costs. Heads that this test
says nothing about are in no group.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.formats import format_count
from headwise.heads import HeadId, abbreviate
from headwise.measures.similarity import ROWS, centred_kernels, cka, pairwise_hsic
from headwise.objectives.evaluation import Estimate, Evaluation, estimate_ratio
from headwise.objectives.objective import Sample
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.ablation import AddedLosses, added_losses
from headwise.pruning.importance.gradients import Gradients
from headwise.watching.calls import Call
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

LEAST_CORRELATION = 0.3
"""Two heads are linked only if the correlation of their effects on the output is this high."""
LEAST_CKA = 0.2
"""Two heads are linked only if the linear CKA between their outputs is at least this."""
LEAST_IN_HALF = 2 / 3
"""Each half of the examples must show at least this share of both limits."""
FEWEST_EXAMPLES = 8
"""Smallest number of examples: each half then has four."""
FEWEST_ROWS = 4
"""Smallest number of rows: the unbiased CKA divides by the number of rows minus three."""
LARGEST_GROUP = 8
"""Maximum number of heads in a group; in small models, a quarter of all heads."""
MOST_GROUPS = 24
"""Maximum number of groups whose costs are measured."""
CLEARLY = 2.0
"""A group's cost exceeds the sum of its heads' costs by at least this many standard errors ..."""
LEAST_EXCESS = 0.25
"""... and by at least this share of the sum. Two heads with equally large effects that correlate
at LEAST_CORRELATION exceed it by a share of 0.3."""
CANCELLED = 1e-3
"""A norm cancels the common scale of a layer's heads if scaling all of them together has at most
this share of the effect of scaling each."""


@dataclass(frozen=True)
class RedundantHeads:
    """Heads that can replace each other, linked by similar effects and similar outputs."""

    heads: tuple[HeadId, ...]
    correlation: float
    """Smallest correlation between two heads' effects on the model's output."""
    cka: float
    """Smallest linear CKA between two heads' outputs."""
    cost_apart: float
    """Sum of the losses that silencing each head alone adds, measured."""
    cost_together: float
    """Loss that silencing all the heads together adds, measured."""
    excess_se: float = 0.0
    """Standard error of `cost_together - cost_apart`."""

    @property
    def is_clear(self) -> bool:
        """Whether cutting all costs clearly more than the sum of cutting each."""
        excess = self.cost_together - self.cost_apart
        return excess > max(CLEARLY * self.excess_se, LEAST_EXCESS * self.cost_apart)

    def __str__(self) -> str:
        return (
            f"{' '.join(map(str, self.heads))}: effects correlate at {self.correlation:.2f} or "
            f"more, outputs have a CKA of {self.cka:.2f} or more; silencing all costs "
            f"{self.cost_together:.4f}, but the separate costs add up to {self.cost_apart:.4f} "
            f"(difference ± {self.excess_se:.1g})"
        )


@dataclass(frozen=True)
class Redundancy:
    """Groups of heads that can replace each other, and the heads that could not be tested."""

    groups: tuple[RedundantHeads, ...] = ()
    untested: str = ""
    """Which heads the test says nothing about, and why; "" if it covers all."""


def find_redundancy(
    evaluation: Evaluation,
    gradients: Gradients,
    exact: Evaluation,
    *,
    alone: AddedLosses | None = None,
    progress: Progress = no_progress,
) -> Redundancy:
    """Groups of redundant heads among those of the evaluation; their costs are those on `exact`.

    `alone` is the loss that silencing each head adds on `exact`, if it is known.
    """
    is_tested, untested = find_testable(evaluation, gradients)
    if not is_tested.any():
        return Redundancy(untested=untested)
    links = link_heads(gradients, output_hsic(evaluation), is_tested)
    largest = max(2, min(LARGEST_GROUP, len(is_tested) // 4))
    is_popular = links.is_linked.sum(1) >= largest
    if is_popular.any():
        reason = f"each is similar to at least {largest} others"
        popular = f"{format_count(int(is_popular.sum()), 'head')} ({reason})"
        untested = "; ".join(filter(None, (untested, popular)))
    candidates = list(_candidates(links, gradients, ~is_popular, largest))[:MOST_GROUPS]
    excesses = _measure_excess(candidates, gradients.heads, exact, alone, progress)
    groups = [
        links.describe(group, gradients.heads, apart, excess)
        for group, (apart, excess) in zip(candidates, excesses, strict=True)
    ]
    confirmed = [group for group in groups if group.is_clear]
    confirmed.sort(key=lambda group: group.cost_apart - group.cost_together)
    return Redundancy(tuple(confirmed), untested)


def find_testable(
    evaluation: Evaluation, gradients: Gradients
) -> tuple[Bool[Tensor, " heads"], str]:
    """Which heads the test can say something about, and a sentence about the others."""
    heads, examples = gradients.heads, format_count(evaluation.num_examples, "example")
    reason = ""
    if evaluation.num_examples < FEWEST_EXAMPLES:
        reason = f"{examples} were read, but at least {FEWEST_EXAMPLES} are needed"
    elif not gradients.interaction.any():
        reason = "the curvature of the loss is unknown"
    if reason:
        return torch.zeros(len(heads), dtype=torch.bool), f"all heads ({reason})"
    shared = {site.layer_name for site in find_sites(evaluation.model) if site.layer_loop}
    layers = [head.layer_name for head in heads]
    scaled = {layer for layer in layers if _is_scale_cancelled(gradients, layer)}
    reasons = {
        "they share their weights with other layers": shared,
        "a norm after attention cancels the common scale of their heads": scaled - shared,
    }
    sentences = [
        f"{abbreviate([layer for layer in dict.fromkeys(layers) if layer in names])} ({reason})"
        for reason, names in reasons.items()
        if names
    ]
    return torch.tensor([name not in shared | scaled for name in layers]), "; ".join(sentences)


def _is_scale_cancelled(gradients: Gradients, layer: str) -> bool:
    """Whether scaling all heads of the layer together changes nothing: rows of G sum to zero."""
    rows = [index for index, head in enumerate(gradients.heads) if head.layer_name == layer]
    part = gradients.interaction[rows][:, rows]
    return len(rows) > 1 and bool(part.sum() <= CANCELLED * part.trace() > 0)


def effect_correlations(interaction: Float[Tensor, "heads heads"]) -> Float[Tensor, "heads heads"]:
    """Correlation of every two heads' effects on the output, -1 to 1; 0 if either has no effect."""
    norms = interaction.diagonal().clamp(min=0).sqrt()
    scale = norms[:, None] * norms
    return torch.where(scale > 0, interaction / scale.clamp(min=torch.finfo(norms.dtype).tiny), 0.0)


@torch.no_grad()
def output_hsic(evaluation: Evaluation) -> Float[Tensor, "halves heads heads"]:
    """HSIC of every two heads' outputs, summed over the even and over the odd examples."""
    num_heads = len(evaluation.heads)
    totals = torch.zeros(2, num_heads, num_heads, dtype=torch.float64)
    number = 0
    for sample in evaluation.samples:
        for outputs in _head_outputs(evaluation, sample):
            if outputs.shape[1] >= FEWEST_ROWS:
                totals[number % 2] += pairwise_hsic(centred_kernels(outputs))
            number += 1
    return totals


def _head_outputs(
    evaluation: Evaluation, sample: Sample
) -> Iterator[Float[Tensor, "heads row d_value"]]:
    """Every head's outputs on the first rows of each example that are not padding."""
    by_layer: dict[str, tuple[Tensor, Tensor]] = {}

    def keep(call: Call) -> None:
        is_real = real_queries(evaluation.model, sample.inputs, call.stack, call.mixed[:, 0])
        by_layer[call.site.layer_name] = call.mixed, is_real

    with watch(evaluation.model, keep):
        forward_batch(evaluation.model, sample.inputs)
    layers = [by_layer[layer] for layer, (num_heads, _) in evaluation.counts.items() if num_heads]
    widest = max(mixed.shape[3] for mixed, _ in layers)
    for example in range(len(sample)):
        rows = [is_real[example].nonzero()[:ROWS, 0] for _, is_real in layers]
        fewest = min(map(len, rows))
        yield torch.cat(
            [
                torch.nn.functional.pad(
                    mixed[example][:, chosen[:fewest]].double(), (0, widest - mixed.shape[3])
                )
                for (mixed, _), chosen in zip(layers, rows, strict=True)
            ]
        )


@dataclass(frozen=True, eq=False)
class HeadLinks:
    """How similar every two heads are."""

    correlation: Float[Tensor, "heads heads"]
    cka: Float[Tensor, "heads heads"]
    is_linked: Bool[Tensor, "heads heads"]
    """Whether two different heads are similar by both measures, in both halves of the examples."""

    def describe(
        self, group: tuple[int, ...], heads: tuple[HeadId, ...], apart: Estimate, excess: Estimate
    ) -> RedundantHeads:
        """The group with its evidence."""
        pairs = list(combinations(group, 2))
        return RedundantHeads(
            heads=tuple(heads[index] for index in group),
            correlation=min(float(self.correlation[pair]) for pair in pairs),
            cka=min(float(self.cka[pair]) for pair in pairs),
            cost_apart=apart.value,
            cost_together=apart.value + excess.value,
            excess_se=excess.error,
        )


def link_heads(
    gradients: Gradients,
    hsic: Float[Tensor, "halves heads heads"],
    is_tested: Bool[Tensor, " heads"],
) -> HeadLinks:
    """Link heads by the correlation of their effects and by the CKA of their outputs."""
    interactions = torch.stack([torch.stack(gradients.parts[half::2]).sum(0) for half in range(2)])
    correlation, cka_of_all = effect_correlations(interactions.sum(0)), cka(hsic.sum(0))
    is_linked = is_tested[:, None] & is_tested & (correlation >= LEAST_CORRELATION)
    is_linked &= cka_of_all >= LEAST_CKA  # False for NaN
    for interaction, similarity in zip(interactions, hsic, strict=True):
        is_linked &= effect_correlations(interaction) >= LEAST_IN_HALF * LEAST_CORRELATION
        is_linked &= cka(similarity) >= LEAST_IN_HALF * LEAST_CKA
    return HeadLinks(correlation, cka_of_all, is_linked.fill_diagonal_(False))


def _candidates(
    links: HeadLinks, gradients: Gradients, is_candidate: Bool[Tensor, " heads"], largest: int
) -> Iterator[tuple[int, ...]]:
    """Disjoint groups of heads that are all linked with each other, clearly costlier together.

    The group with the largest expected excess comes first.
    """
    left = {index for index, is_free in enumerate(is_candidate.tolist()) if is_free}
    excess = gradients.interaction  # of two heads' cost over the sum of their separate costs
    pairs = [(a, b) for a, b in combinations(sorted(left), 2) if links.is_linked[a, b]]
    for pair in sorted(pairs, key=lambda pair: -float(excess[pair])):
        if not left.issuperset(pair):
            continue
        group = list(pair)
        while len(group) < largest:
            joining = [
                index for index in left.difference(group) if links.is_linked[index, group].all()
            ]
            if not joining:
                break
            group.append(max(joining, key=lambda index: float(excess[index, group].sum())))
        if _is_expected_clearly(gradients, group):
            left -= set(group)
            yield tuple(sorted(group))


def _is_expected_clearly(gradients: Gradients, group: Iterable[int]) -> bool:
    """Whether the group is expected to cost more than its heads alone, beyond standard error."""
    index = list(group)
    blocks = [part[index][:, index] for part in gradients.parts]
    sums = torch.stack([(block.sum() - block.trace()) / 2 for block in blocks])
    weights = torch.tensor(gradients.part_weights, dtype=sums.dtype)
    excess = estimate_ratio(sums[weights > 0], weights[weights > 0])
    return excess.value > CLEARLY * excess.error


def _measure_excess(
    candidates: Sequence[tuple[int, ...]],
    heads: tuple[HeadId, ...],
    exact: Evaluation,
    alone: AddedLosses | None,
    progress: Progress,
) -> Iterator[tuple[Estimate, Estimate]]:
    """For each group, the sum of its heads' separate costs, and the excess of the joint cost."""
    if not candidates:
        return
    members = sorted({index for group in candidates for index in group})
    units = [tuple(heads[index] for index in group) for group in candidates]
    if alone is None:
        units += [(heads[index],) for index in members]
    (added,) = added_losses(exact, units, progress=progress)
    own = added.sums[len(candidates) :] if alone is None else alone.sums[members]
    costs = dict(zip(members, own, strict=True))
    for group, together in zip(candidates, added.sums, strict=False):
        apart = torch.stack([costs[index] for index in group]).sum(0)
        yield (
            estimate_ratio(apart, added.weights),
            estimate_ratio(together - apart, added.weights),
        )
