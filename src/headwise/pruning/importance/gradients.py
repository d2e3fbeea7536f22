"""Gradients: what a model's loss and output say of all heads at once.

In: a task. Out: for every head Michel's score and Fisher information, and for every two heads how
they act together. Each example has gates of its own, so that one backward pass gives the gradients
of every example by every head.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadCounts, HeadId
from headwise.objectives.evaluation import Evaluation, head_ids
from headwise.objectives.objective import Given, Sample
from headwise.pruning.importance.ablation import Progress, untold
from headwise.watching.gates import gate

DRAWS = 8
"""Random projections of each example's output: at 400 examples the order of heads is settled."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Means over examples of what backward passes gave, by head."""

    heads: tuple[HeadId, ...]
    michel: Float[Tensor, " heads"]
    """Mean over examples of |dL/dg|, g being the head's gate: Michel et al. 2019."""
    michel_error: Float[Tensor, " heads"]
    fisher: Float[Tensor, " heads"]
    """Mean over examples of (dL/dg)^2."""
    fisher_error: Float[Tensor, " heads"]
    interaction: Float[Tensor, "heads heads"]
    """G = E[J^T J], J the output's derivative by the gates: half the quadratic form of a change of
    the gates is the loss that it adds."""
    expected_error: Float[Tensor, " heads"]
    """Standard error of the loss that silencing each head alone is expected to add."""
    pull: Float[Tensor, " heads"]
    """E[dL/dg]: what a small change of a gate adds to the loss; 0 for an uncut model that is
    compared with itself."""

    @property
    def expected(self) -> Float[Tensor, " heads"]:
        """Loss that silencing each head alone is expected to add."""
        return self.interaction.diagonal() / 2 - self.pull

    def cost_of(self, chosen: Sequence[int]) -> float:
        """Loss that silencing these heads together is expected to add."""
        index = list(chosen)
        part = self.interaction[index][:, index]
        return float(part.sum() / 2 - self.pull[index].sum())


def gradients(
    task: Evaluation,
    counts: HeadCounts,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Progress = untold,
) -> Gradients:
    """Every head's scores and every two heads' interaction, from backward passes."""
    heads = head_ids(task.places, counts)
    random = torch.Generator().manual_seed(seed)
    totals = GradientSums(len(heads))
    with without_weight_gradients(task.model):
        for number, sample in enumerate(task.samples):
            progress("backward passes", number, len(task.samples))
            totals.add(*per_example(task, sample, counts, draws, random))
    return totals.gradients(heads)


def per_example(
    task: Evaluation, sample: Sample, counts: HeadCounts, draws: int, random: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by gate of each example's loss and of its random scalars, and its weight."""
    gates = open_gates(sample, counts)

    def by_gate(scalar: Tensor) -> Tensor:
        found = torch.autograd.grad(
            scalar, list(gates.values()), retain_graph=True, materialize_grads=True
        )  # 0 by the gates of a stack that the loss does not look at
        return torch.cat(found, 1).double()

    with torch.enable_grad(), gate(task.model, gates):
        output = task.objective.output(task.model, sample.inputs)
        losses = task.objective.losses(output, sample)
        if not losses.sums.requires_grad:
            raise NoGradients(
                "the objective gives losses without gradients: compute them without torch.no_grad "
                "and argmax"
            )
        of_loss = by_gate(losses.sums.sum())
        drawn = [by_gate(task.objective.draw(output, sample, random).sum()) for _ in range(draws)]
    return of_loss, torch.stack(drawn), losses.weights.double().cpu()


class NoGradients(OptionError):
    """What is measured has no gradients."""


@contextmanager
def or_else(advice: str) -> Iterator[None]:
    """While it lasts, losses without gradients are met with advice on how to do without."""
    try:
        yield
    except NoGradients as error:
        raise OptionError(f"{error}, or {advice}") from error


def open_gates(sample: Sample, counts: HeadCounts) -> dict[str, Tensor]:
    """Gates of 1 that ask for gradients, of every layer with heads and for each example."""
    return {
        layer: torch.ones(len(sample), num_heads, requires_grad=True)
        for layer, (num_heads, _) in counts.items()
        if num_heads
    }


def has_gradients(task: Evaluation, counts: HeadCounts) -> bool:
    """Whether what a task measures has a gradient by heads; a function of the user's may not."""
    sample = task.samples[0]
    if not isinstance(task.objective, Given):
        return True
    gates = open_gates(sample, counts)
    with torch.enable_grad(), without_weight_gradients(task.model), gate(task.model, gates):
        return task.objective.output(task.model, sample.inputs).requires_grad


class GradientSums:
    """Sums of gradients that grow batch by batch."""

    def __init__(self, num_heads: int) -> None:
        """Nothing yet."""
        self.interaction = torch.zeros(num_heads, num_heads, dtype=torch.float64)
        self.pull = torch.zeros(num_heads, dtype=torch.float64)
        self.weights: list[Tensor] = []
        self.michel: dict[str, list[Tensor]] = {"loss": [], "drawn": []}
        self.fisher: dict[str, list[Tensor]] = {"loss": [], "drawn": []}
        self.expected: list[Tensor] = []

    def add(self, of_loss: Tensor, drawn: Tensor, weights: Tensor) -> None:
        """One batch: gradients `[batch heads]`, of draws `[draws batch heads]`, and weights."""
        flat = drawn.flatten(0, 1)
        self.interaction += flat.T @ flat / len(drawn)
        self.pull += of_loss.sum(0)
        self.weights.append(weights)
        self.expected.append((drawn**2).mean(0) / 2 - of_loss)
        per_unit = weights.clamp(min=1)[:, None]
        for name, given in (("loss", of_loss[None] / per_unit), ("drawn", drawn / per_unit)):
            self.michel[name].append(given.abs().mean(0))
            self.fisher[name].append((given**2).mean(0))

    def gradients(self, heads: tuple[HeadId, ...]) -> Gradients:
        """The means.

        A model compared with itself is at the loss's minimum, and its gradient is 0: there the
        random scalars stand in for the loss.
        """
        largest = {name: float(torch.cat(parts).max()) for name, parts in self.michel.items()}
        used = "drawn" if largest["loss"] <= FLAT * largest["drawn"] else "loss"
        michel, fisher = torch.cat(self.michel[used]), torch.cat(self.fisher[used])
        weights, expected = torch.cat(self.weights), torch.cat(self.expected)
        weight = float(weights.sum())
        off = expected - expected.sum(0) / weight * weights[:, None]
        return Gradients(
            heads=heads,
            michel=michel.mean(0),
            michel_error=error_of(michel),
            fisher=fisher.mean(0),
            fisher_error=error_of(fisher),
            interaction=self.interaction / weight,
            expected_error=error_of(off) * len(off) / weight,
            pull=self.pull / weight,
        )


FLAT = 1e-3
"""Gradients of a loss at its minimum are rounding errors: this much of the others at most."""


def error_of(scores: Float[Tensor, "example heads"]) -> Float[Tensor, " heads"]:
    """Standard errors of means over examples; infinite for a single one."""
    if len(scores) == 1:
        return torch.full_like(scores[0], torch.inf)
    return scores.std(0) / math.sqrt(len(scores))


@contextmanager
def without_weight_gradients(model: nn.Module) -> Iterator[None]:
    """While it lasts no weight asks for a gradient, which halves what a backward pass keeps."""
    asking = [one for one in model.parameters() if one.requires_grad]
    for one in asking:
        one.requires_grad_(False)
    try:
        yield
    finally:
        for one in asking:
            one.requires_grad_(True)


def by_layer_norm(scores: Tensor, heads: Sequence[HeadId]) -> Tensor:
    """Scores divided by the L2 norm of their layer's, as Michel et al. do before ranking."""
    found = torch.empty_like(scores)
    for layer in {(head.stack, head.layer) for head in heads}:
        own = [index for index, head in enumerate(heads) if (head.stack, head.layer) == layer]
        found[own] = scores[own] / scores[own].norm().clamp(min=torch.finfo(scores.dtype).tiny)
    return found
