"""Gradients: scores of all heads at once, from backward passes.

In: an evaluation. Out: Michel's score and Fisher information for every head, and the interaction
of every pair of heads. Each example has its own gates, so one backward pass yields the gradient of
every example's loss with respect to every head's gate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.objective import Sample
from headwise.progress import Progress, no_progress
from headwise.pruning.stages import PruneStage
from headwise.watching.gates import MeanOutputs, gate
from headwise.watching.running import without_weight_gradients

DRAWS = 8
"""Number of random scalars per example: with 400 examples, enough to rank the heads."""
PARTS = 8
"""Number of disjoint sets of examples whose interactions are also kept apart."""
FLAT = 1e-3
"""A loss is at its minimum if its gradients are at most this share of the random scalars'."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Scores of heads, each a mean over examples."""

    heads: tuple[HeadId, ...]
    michel: Float[Tensor, " heads"]
    """Mean of |dL/dg|, where g is the head's gate: Michel et al. 2019, arxiv.org/abs/1905.10650."""
    michel_error: Float[Tensor, " heads"]
    fisher: Float[Tensor, " heads"]
    """Mean of (dL/dg)^2."""
    fisher_error: Float[Tensor, " heads"]
    interaction: Float[Tensor, "heads heads"]
    """G = E[J^T J], where J is the Jacobian of the output with respect to the gates: a change d in
    the gates adds `d^T G d / 2` to the loss."""
    expected_error: Float[Tensor, " heads"]
    pull: Float[Tensor, " heads"]
    """E[dL/dg], the slope of the loss in each gate; 0 for a model that is compared with itself."""
    parts: tuple[Float[Tensor, "heads heads"], ...] = ()
    """`interaction` on disjoint sets of examples, as sums: example `n` is in part `n % PARTS`."""
    part_weights: tuple[float, ...] = ()
    """The weight of each part's examples: their sum times `interaction` is the sum of `parts`."""

    @property
    def expected(self) -> Float[Tensor, " heads"]:
        """Loss that silencing each head alone is expected to add."""
        return self.interaction.diagonal() / 2 - self.pull

    def expected_cost(self, indices: Sequence[int]) -> float:
        """Loss that silencing the heads at `indices` together is expected to add."""
        index = list(indices)
        part = self.interaction[index][:, index]
        return float(part.sum() / 2 - self.pull[index].sum())


def gradients(
    evaluation: Evaluation,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    means: MeanOutputs | None = None,
    has_slopes: bool = True,
    advice: str = "",
    progress: Progress = no_progress,
) -> Gradients:
    """Scores and interactions of all heads, from `draws + 1` backward passes per batch.

    With `means`, silencing a head leaves its mean output; otherwise, it leaves zeros. A model that
    is compared with itself is at the minimum of the loss, where the gradient is 0. Michel's score
    and Fisher information are then computed from the random scalars instead; so they are if
    `has_slopes` is False, which leaves out the pass for the loss itself. The error message for an
    objective without gradients ends with `advice`.
    """
    heads, samples = evaluation.heads, evaluation.samples
    random = torch.Generator().manual_seed(seed)
    parts = torch.zeros(PARTS, len(heads), len(heads), dtype=torch.float64)
    num_examples = 0
    pull = torch.zeros(len(heads), dtype=torch.float64)
    weights, expected = list[Tensor](), list[Tensor]()
    scores: dict[str, list[Tensor]] = {"loss": [], "draws": []}  # Michel, then Fisher
    with without_weight_gradients(evaluation.model):
        for number, sample in enumerate(samples):
            progress(PruneStage.GRADIENTS, number, len(samples))
            of_loss, of_draws, weight = _per_example(
                evaluation, sample, draws, random, means, advice, has_slopes=has_slopes
            )
            for row in range(min(PARTS, len(sample))):
                flat = of_draws[:, row::PARTS].flatten(0, 1)
                parts[(num_examples + row) % PARTS] += flat.T @ flat / draws
            num_examples += len(sample)
            pull += of_loss.sum(0)
            weights.append(weight)
            expected.append((of_draws**2).mean(0) / 2 - of_loss)
            scale = weight.clamp(min=1)[:, None]
            for name, values in (("loss", of_loss[None] / scale), ("draws", of_draws / scale)):
                scores[name].append(torch.stack([values.abs().mean(0), (values**2).mean(0)]))
    by_source = {name: torch.cat(parts, 1) for name, parts in scores.items()}
    is_flat = by_source["loss"][0].max() <= FLAT * by_source["draws"][0].max()
    michel, fisher = by_source["draws" if is_flat else "loss"]
    all_weights, costs = torch.cat(weights), torch.cat(expected)
    total = float(all_weights.sum())
    residuals = costs - costs.sum(0) / total * all_weights[:, None]
    return Gradients(
        heads=heads,
        michel=michel.mean(0),
        michel_error=_standard_error(michel),
        fisher=fisher.mean(0),
        fisher_error=_standard_error(fisher),
        interaction=parts.sum(0) / total,
        expected_error=_standard_error(residuals) * len(residuals) / total,
        pull=pull / total,
        parts=tuple(parts),
        part_weights=tuple(float(all_weights[part::PARTS].sum()) for part in range(PARTS)),
    )


def _per_example(
    evaluation: Evaluation,
    sample: Sample,
    draws: int,
    random: torch.Generator,
    means: MeanOutputs | None,
    advice: str,
    *,
    has_slopes: bool,
) -> tuple[
    Float[Tensor, "batch heads"], Float[Tensor, "draws batch heads"], Float[Tensor, " batch"]
]:
    """Gradients, per gate, of each example's loss and random scalars, and the examples' weights."""
    objective, gates = evaluation.objective, _open_gates(evaluation, sample)

    def by_gate(scalar: Tensor) -> Tensor:
        parts = torch.autograd.grad(
            scalar, list(gates.values()), retain_graph=True, materialize_grads=True
        )  # 0 for the gates of a stack that the loss does not depend on
        return torch.cat(parts, 1).double()

    with torch.enable_grad(), gate(evaluation.model, gates, means=means):
        output = objective.output(evaluation.model, sample.inputs)
        losses = objective.losses(output, sample)
        if not losses.sums.requires_grad:
            raise OptionError(
                "the objective's losses have no gradients: compute them without torch.no_grad and "
                f"argmax{', or ' if advice else ''}{advice}"
            )
        of_draws = [by_gate(objective.draw(output, sample, random).sum()) for _ in range(draws)]
        of_loss = by_gate(losses.sums.sum()) if has_slopes else torch.zeros_like(of_draws[0])
    return of_loss, torch.stack(of_draws), losses.weights.double().cpu()


def _open_gates(evaluation: Evaluation, sample: Sample) -> dict[str, Tensor]:
    return {
        layer: torch.ones(len(sample), num_heads, requires_grad=True)
        for layer, (num_heads, _) in evaluation.counts.items()
        if num_heads
    }


def has_gradients(evaluation: Evaluation) -> bool:
    """Whether the objective has gradients with respect to heads; a custom one may have none."""
    model, sample = evaluation.model, evaluation.samples[0]
    gates = {layer: gate[0] for layer, gate in _open_gates(evaluation, sample).items()}
    with torch.enable_grad(), without_weight_gradients(model), gate(model, gates):
        return evaluation.objective.output(model, sample.inputs).requires_grad


def _standard_error(scores: Float[Tensor, "example heads"]) -> Float[Tensor, " heads"]:
    """Standard errors of means over examples; infinite for one example."""
    if len(scores) == 1:
        return torch.full_like(scores[0], torch.inf)
    return scores.std(0) / math.sqrt(len(scores))


def divide_by_layer_norm(scores: Tensor, heads: Sequence[HeadId]) -> Tensor:
    """Each score divided by the L2 norm of its layer's scores, as in Michel et al."""
    scaled = torch.empty_like(scores)
    for layer in {head.layer_name for head in heads}:
        rows = [index for index, head in enumerate(heads) if head.layer_name == layer]
        scaled[rows] = scores[rows] / scores[rows].norm().clamp(min=torch.finfo(scores.dtype).tiny)
    return scaled
