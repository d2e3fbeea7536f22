"""Registers: a model's loss on several kinds of text, each measured by itself.

In: an evaluation for each register. Out: the loss on each, and on all together. A change that helps
on average can harm one kind of text, so decisions look at the register that suffers most.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from headwise.heads import HeadId
from headwise.objectives.evaluation import Estimate, Evaluation, estimate_ratio
from headwise.objectives.objective import Losses
from headwise.watching.gates import MeanOutputs, silence


@dataclass(frozen=True)
class RegisterLosses:
    """A model's mean loss on each register, and on all examples together."""

    by_register: Mapping[str, Estimate]
    overall: Estimate
    examples: Losses
    """The losses of all examples."""

    def lead_over(self, other: "RegisterLosses") -> Estimate:
        """How much lower than `other` the loss is on the same examples, with its error."""
        sums = other.examples.sums - self.examples.sums
        return estimate_ratio(sums, self.examples.weights)

    def increases(self, base: "RegisterLosses") -> dict[str, float]:
        """How much higher than `base` the loss is in each register."""
        return {
            name: loss.value - base.by_register[name].value
            for name, loss in self.by_register.items()
        }

    def worst_increase(self, base: "RegisterLosses") -> float:
        """The largest of the increases; NaN if one is NaN."""
        return max(self.increases(base).values(), key=lambda value: (math.isnan(value), value))

    def helps(self, before: "RegisterLosses", base: "RegisterLosses") -> bool:
        """Whether this model beats `before` on all text and in the register that suffers most.

        Suffering is measured from `base`, the losses of the uncut model. False for NaN.
        """
        is_better = self.overall.value < before.overall.value
        return is_better and self.worst_increase(base) < before.worst_increase(base)


@dataclass(frozen=True, eq=False)
class RegisterEvaluation:
    """One model, evaluated on several registers."""

    parts: Mapping[str, Evaluation]

    @cached_property
    def whole(self) -> Evaluation:
        """The evaluation on the samples of all registers."""
        first = next(iter(self.parts.values()))
        samples = tuple(sample for part in self.parts.values() for sample in part.samples)
        return Evaluation(first.model, first.objective, samples)

    def losses(
        self, silenced: Sequence[HeadId] = (), *, means: MeanOutputs | None = None
    ) -> RegisterLosses:
        """The losses while the heads in `silenced` are silent, or output their `means`."""
        with silence(self.whole.model, silenced, means=means) if silenced else nullcontext():
            losses = {name: part.losses() for name, part in self.parts.items()}
        sums, weights = (
            torch.cat([getattr(part, name) for part in losses.values()])
            for name in ("sums", "weights")
        )
        by_register = {
            name: estimate_ratio(part.sums, part.weights) for name, part in losses.items()
        }
        return RegisterLosses(by_register, estimate_ratio(sums, weights), Losses(sums, weights))

    def with_model(self, model: nn.Module) -> "RegisterEvaluation":
        """The same evaluation of another model; the reference output stays the same."""
        return RegisterEvaluation(
            {name: part.with_model(model) for name, part in self.parts.items()}
        )
