"""Metrics: one number per prompt that says what the model answers.

In: a model and a batch of prompt pairs. Out: the number for each pair, 0 to 1 or in logits, nats or
cosine. A metric is larger for the clean run than for the corrupted one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from headwise.errors import ModelError, OptionError
from headwise.objectives.losses import Embedding, kl_divergence
from headwise.objectives.objective import Losses, Objective, Sample, upcast_to_float32
from headwise.patching.alignment import PairBatch
from headwise.reading.batch import Inputs
from headwise.watching.running import forward


class Metric(ABC):
    """A measure of a run on a batch of prompts: one number per prompt."""

    name: ClassVar[str]
    unit: ClassVar[str]
    needs_answers: ClassVar[bool] = False
    """Whether every pair needs an `answer` and the word to compare it with, `instead`."""
    is_largest_when_clean: ClassVar[bool] = False
    """Whether no run can have more than the clean one; its gradient is 0 there."""

    @abstractmethod
    def output(self, model: nn.Module, inputs: Inputs, batch: PairBatch) -> Tensor:
        """The part of the model's output that the metric reads, one row per example."""

    @abstractmethod
    def values(
        self, output: Float[Tensor, "examples ..."], clean: Tensor | None, batch: PairBatch
    ) -> Float[Tensor, " examples"]:
        """The metric of each example; `clean` is the output of the clean run on the batch.

        `output` may repeat the batch several times.
        """


def _repeated(values: Tensor, output: Tensor) -> Tensor:
    """`values` repeated as often as `output` repeats the batch."""
    return values.repeat(len(output) // len(values), *[1] * (values.dim() - 1))


@dataclass(frozen=True)
class AnswerMetric(Metric):
    """Base class of metrics that read the logits at the answer's position."""

    predicts_tokens: bool = True
    """Whether the model predicts the next token or a masked one."""

    def output(
        self, model: nn.Module, inputs: Inputs, batch: PairBatch
    ) -> Float[Tensor, "examples classes"]:
        """The logits at the answer's position."""
        is_last = bool((batch.position == batch.length - 1).all())
        result = forward(model, inputs, **({"logits_to_keep": 1} if is_last else {}))
        logits = getattr(result, "logits", None)
        if not isinstance(logits, Tensor):
            raise ModelError(
                f"{type(model).__name__} returns no logits: measure it with the metric cosine"
            )
        if logits.dim() == 2:  # classes of a whole text
            return upcast_to_float32(logits)
        if not self.predicts_tokens:
            raise ModelError(
                f"{type(model).__name__} returns logits for every position, but predicts no "
                "tokens: pass a function as the metric"
            )
        if is_last:
            return upcast_to_float32(logits[:, -1])
        position = _repeated(batch.position, logits).to(logits.device)
        return upcast_to_float32(logits[torch.arange(len(logits)), position])


class LogitDifference(AnswerMetric):
    """Logit of the answer minus the logit of the word to compare it with."""

    name = "logit-difference"
    unit = "logits"
    needs_answers = True

    def values(
        self, output: Float[Tensor, "examples ..."], clean: Tensor | None, batch: PairBatch
    ) -> Float[Tensor, " examples"]:
        """Logit of `answer` minus logit of `instead`."""
        assert batch.answer is not None and batch.instead is not None
        answer, instead = (_repeated(ids, output) for ids in (batch.answer, batch.instead))
        rows = torch.arange(len(output))
        return output[rows, answer] - output[rows, instead]


class AnswerProbability(AnswerMetric):
    """Probability of the answer."""

    name = "probability"
    unit = "probability"
    needs_answers = True

    def values(
        self, output: Float[Tensor, "examples ..."], clean: Tensor | None, batch: PairBatch
    ) -> Float[Tensor, " examples"]:
        """Probability of `answer`, 0 to 1."""
        assert batch.answer is not None
        answer = _repeated(batch.answer, output)
        return output.softmax(-1)[torch.arange(len(output)), answer]


class CleanDivergence(AnswerMetric):
    """Minus the Kullback-Leibler divergence from the clean run's predictions."""

    name = "kl"
    unit = "nats"
    is_largest_when_clean = True

    def values(
        self, output: Float[Tensor, "examples ..."], clean: Tensor | None, batch: PairBatch
    ) -> Float[Tensor, " examples"]:
        """Minus the divergence, in nats; 0 for the clean run."""
        assert clean is not None
        return -kl_divergence(_repeated(clean, output), output)


@dataclass(frozen=True)
class CleanCosine(Metric):
    """Cosine between the embedding and the clean run's."""

    pooling: str = "mean"
    name: ClassVar[str] = "cosine"
    unit: ClassVar[str] = "cosine"
    is_largest_when_clean: ClassVar[bool] = True

    def output(
        self, model: nn.Module, inputs: Inputs, batch: PairBatch
    ) -> Float[Tensor, "examples d_model"]:
        """The embedding, scaled to length 1."""
        return Embedding(self.pooling).output(model, inputs)

    def values(
        self, output: Float[Tensor, "examples ..."], clean: Tensor | None, batch: PairBatch
    ) -> Float[Tensor, " examples"]:
        """The cosine; 1 for the clean run."""
        assert clean is not None
        return functional.cosine_similarity(output, _repeated(clean, output), dim=-1)


@dataclass(frozen=True)
class CustomMetric(Metric):
    """A user's function that maps a model and its inputs to one number per example."""

    function: Callable[[nn.Module, Inputs], Tensor]
    name: ClassVar[str] = "custom metric"
    unit: ClassVar[str] = "custom metric"

    def output(self, model: nn.Module, inputs: Inputs, batch: PairBatch) -> Tensor:
        """The function's numbers; raises OptionError unless there is one per example."""
        values, count = self.function(model, inputs), len(next(iter(inputs.values())))
        if not isinstance(values, Tensor) or values.shape != (count,):
            kind = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise OptionError(
                f"the metric returned {kind}: it must return one number for each of the {count} "
                "examples in the batch",
                option="metric",
            )
        return values

    def values(
        self, output: Float[Tensor, "examples ..."], clean: Tensor | None, batch: PairBatch
    ) -> Float[Tensor, " examples"]:
        """The numbers in `output`."""
        return output


METRICS: dict[str, Callable[[], Metric]] = {
    "logit-difference": LogitDifference,
    "probability": AnswerProbability,
    "kl": CleanDivergence,
    "cosine": CleanCosine,
}
"""Every built-in metric by name."""


def check_metric(name: object) -> None:
    """Raise OptionError unless `name` is a built-in metric, a function or None."""
    if name is not None and not callable(name) and name not in METRICS:
        raise OptionError(
            f"metric is {name!r}: choose from {', '.join(METRICS)}, or pass a function",
            option="metric",
        )


@dataclass(frozen=True)
class MetricObjective(Objective):
    """A metric on one batch, as an objective that passes of the model can be measured by."""

    metric: Metric
    batch: PairBatch
    clean: Tensor | None = None
    """The clean run's output."""
    name: ClassVar[str] = "metric"
    unit: ClassVar[str] = "metric"

    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """The part of the output that the metric reads."""
        return self.metric.output(model, inputs, self.batch)

    def values(self, output: Tensor) -> Float[Tensor, " examples"]:
        """The metric of each example."""
        return self.metric.values(output, self.clean, self.batch)

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The metric of each example, with weight 1."""
        values = self.values(output)
        return Losses(values, torch.ones_like(values))

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Raises NotImplementedError: the curvature of a metric is not needed."""
        raise NotImplementedError
