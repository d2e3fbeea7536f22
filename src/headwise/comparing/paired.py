"""Paired results: the losses, predictions and embeddings of two models on the same examples.

In: an evaluation of each model on the same text. Out: sums for every example, from which `compare`
computes means and the standard errors of paired differences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import Embedding, LogitLoss, kl_divergence
from headwise.objectives.objective import Objective, Sample
from headwise.watching.failures import explain_failures

ROWS = 1024
"""Number of examples whose similarities to all others are computed at once."""
ROUNDING = 1e-6
"""Cosines this close are ties: dot products of float32 unit vectors are rounded by less."""


@dataclass(frozen=True, eq=False)
class PairedResults:
    """Results of two models on the same examples, in float64; None if not applicable."""

    before: Float[Tensor, " examples"]
    """The first model's summed loss on each example."""
    after: Float[Tensor, " examples"]
    weights: Float[Tensor, " examples"]
    """Number of terms in each sum: predictions, or 1 for an embedding."""
    agreeing: Float[Tensor, " examples"] | None = None
    """Number of predictions for which both models prefer the same token or class."""
    divergence: Float[Tensor, " examples"] | None = None
    """Divergence of the second model's predictions from the first's, summed."""
    embeddings: Float[Tensor, "examples both d_model"] | None = None
    neighbours_kept: Float[Tensor, " examples"] | None = None
    """Share of nearest neighbours that both models have; `with_neighbours` computes it."""


def join_results(parts: Sequence[PairedResults]) -> PairedResults:
    """The results on all examples of several batches or texts."""
    joined: dict[str, Any] = {}
    for column in fields(PairedResults):
        values = [getattr(part, column.name) for part in parts]
        joined[column.name] = None if values[0] is None else torch.cat(values)
    return PairedResults(**joined)


@torch.no_grad()
def run_both(before: Evaluation, after: Evaluation, names: tuple[str, str]) -> PairedResults:
    """Run both models on their samples, which must have the same tokens.

    `names` are the names of the models in error messages.
    """
    results = []
    for sample, twin in zip(before.samples, after.samples, strict=True):
        with explain_failures(before.model, sample.inputs):
            output = before.objective.output(before.model, sample.inputs)
        with explain_failures(after.model, twin.inputs):
            other = after.objective.output(after.model, twin.inputs).to(output.device)
        if output.shape != other.shape:
            sizes = f"{output.shape[-1]:,} and {other.shape[-1]:,}"
            what = "logits" if before.objective.reads_logits else "embeddings"
            raise OptionError(
                f"the {what} of {names[0]} and {names[1]} have different sizes, {sizes}: compare "
                "models with outputs of the same size"
            )
        results.append(compare_outputs(before.objective, sample, output, other))
    return join_results(results)


def compare_outputs(
    objective: Objective, sample: Sample, output: Tensor, other: Tensor
) -> PairedResults:
    """Results of two models on one batch; `output` is the first model's."""
    if objective.needs_reference:
        sample = replace(sample, reference=output)
    losses, other_losses = (objective.losses(part, sample) for part in (output, other))
    sums = (losses.sums, other_losses.sums, losses.weights)
    results = PairedResults(*(part.double().cpu() for part in sums))
    if isinstance(objective, LogitLoss):
        is_counted = objective.is_counted(output, sample)
        agreements = [  # one example at a time, because logits take a lot of memory
            _agreement(logits[counted], twins[counted])
            for logits, twins, counted in zip(output, other, is_counted, strict=True)
        ]
        agreeing, divergence = torch.tensor(agreements, dtype=torch.float64).unbind(1)
        results = replace(results, agreeing=agreeing, divergence=divergence)
    if isinstance(objective, Embedding):
        results = replace(results, embeddings=torch.stack((output, other), 1).cpu())
    return results


def _agreement(
    logits: Float[Tensor, "rows classes"], others: Float[Tensor, "rows classes"]
) -> tuple[float, float]:
    """Number of rows with the same largest logit, and the sum of the rows' divergences."""
    same = logits.argmax(-1) == others.argmax(-1)
    return float(same.sum()), float(kl_divergence(logits, others).double().sum())


def with_neighbours(texts: Sequence[PairedResults], most: int) -> tuple[list[PairedResults], int]:
    """The results with the share of nearest neighbours kept, and how many were compared.

    The neighbours of an example are sought among the examples of all texts. At most half of them
    and at most `most` are compared: with all examples as neighbours, the share would always be 1.
    """
    embeddings = join_results(texts).embeddings
    count = 0 if embeddings is None else min(most, (len(embeddings) - 1) // 2)
    if embeddings is None or count == 0:
        return list(texts), 0
    before, after = embeddings.unbind(1)
    kept = neighbours_kept(before, after, count)
    shares = kept.split([len(text.weights) for text in texts])
    parts = zip(texts, shares, strict=True)
    return [replace(text, neighbours_kept=share) for text, share in parts], count


def neighbours_kept(
    before: Float[Tensor, "examples d_model"], after: Float[Tensor, "examples d_model"], count: int
) -> Float[Tensor, " examples"]:
    """Share of each example's `count` nearest neighbours that are still among the nearest after.

    Nearest means the largest dot product. Examples that tie for the last place all count as kept.
    """
    shares = []
    for start in range(0, len(before), ROWS):
        old, new = (part[start : start + ROWS] @ part.mT for part in (before, after))
        for products in (old, new):
            products.diagonal(start).fill_(-math.inf)  # an example is not its own neighbour
        nearest = new.gather(1, old.topk(count).indices)
        shares.append((nearest >= new.topk(count).values[:, -1:] - ROUNDING).double().mean(1))
    return torch.cat(shares)
