"""Objective: the loss by which a model's heads are judged, and how to report it.

In: a model's output on a batch. Out: the loss of every example, random scalars whose gradients
measure the curvature of that loss, and the loss in a readable unit.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.reading.batch import NO_LABEL, Inputs


@dataclass(frozen=True, eq=False)
class Sample:
    """A batch of examples, with its targets or the uncut model's output on it."""

    inputs: Inputs
    targets: Int[Tensor, "*batch"] | None = None
    """The token or label to predict at each position or for each example; NO_LABEL for none."""
    reference: Tensor | None = None
    """The uncut model's output, for objectives that compare a model's output with it."""

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    @property
    def is_real(self) -> Tensor | None:
        """True for tokens, False for padding; None if the inputs have no mask."""
        mask = self.inputs.get("decoder_attention_mask", self.inputs.get("attention_mask"))
        return None if mask is None else mask.bool()

    @property
    def is_token(self) -> Tensor | None:
        """`is_real`, or all True if there is no mask; None if the model reads no tokens."""
        ids = self.inputs.get("decoder_input_ids", self.inputs.get("input_ids"))
        if self.is_real is not None or ids is None:
            return self.is_real
        return torch.ones_like(ids, dtype=torch.bool)

    @property
    def num_tokens(self) -> int:
        """Number of tokens without padding; if the model reads no tokens, number of examples."""
        return len(self) if self.is_token is None else int(self.is_token.sum())

    @property
    def has_targets(self) -> bool:
        """Whether there is something to predict; True if the objective needs no targets."""
        return self.targets is None or bool((self.targets != NO_LABEL).any())

    def repeated(self, copies: int) -> "Sample":
        """The whole batch repeated `copies` times."""
        return Sample(
            {name: torch.cat([value] * copies) for name, value in self.inputs.items()},
            None if self.targets is None else torch.cat([self.targets] * copies),
            None if self.reference is None else torch.cat([self.reference] * copies),
        )


@dataclass(frozen=True, eq=False)
class Losses:
    """The summed loss of each example and the number of terms in each sum."""

    sums: Float[Tensor, " batch"]
    weights: Float[Tensor, " batch"]


class Objective(ABC):
    """A per-example loss computed from a model's output."""

    name: ClassVar[str]
    unit: ClassVar[str]
    """Unit of `quality`: perplexity, cosine, or the name of the loss itself."""
    needs_reference: ClassVar[bool] = False
    """Whether the loss compares the model's output with the uncut model's."""
    reads_logits: ClassVar[bool] = True
    """Whether the loss needs logits, which take a lot of memory."""
    reads_sentences: ClassVar[bool] = False
    """Whether an example is one sentence rather than a window of text."""

    @property
    def description(self) -> str:
        """The name with the choices that the loss depends on, for records of what was measured."""
        return self.name

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """The batch with its targets; `number` is its index among the batches."""
        return Sample(inputs)

    def on_labels(self) -> "Objective":
        """The objective to use for batches with labels."""
        return self

    def when_choosing(self) -> "Objective":
        """The objective with the curvature by which heads to cut are chosen."""
        return self

    def distance(self) -> "Objective":
        """The objective that says how far a model's output is from the uncut model's, if known.

        It is less noisy than the loss: whether a target happens to be likely does not matter.
        """
        return self

    @abstractmethod
    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """The part of the model's output that the loss is computed from."""

    @abstractmethod
    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The loss of each example."""

    @abstractmethod
    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """A random scalar per example whose gradient g satisfies E[g g^T] = curvature of the loss.

        A small change d then adds `1/2 d^T E[g g^T] d` to `Losses.sums`.
        """

    def quality(self, loss: float) -> float:
        """A mean loss converted to the objective's `unit`."""
        return loss_in_unit(loss, self.unit)

    def budget(self, base: float, max_loss: float) -> float:
        """The largest loss that `max_loss` allows if the uncut model's loss is `base`."""
        return base + max_loss

    def describe_budget(self, max_loss: float) -> str:
        """`max_loss` as text with its unit."""
        return f"{max_loss:g} nats"


def loss_in_unit(loss: float, unit: str) -> float:
    """A mean loss converted to perplexity or cosine; unchanged for any other unit."""
    if unit == "perplexity":
        return math.exp(min(loss, 700.0))  # exp(710) overflows a float
    return 1 - loss if unit == "cosine" else loss


def upcast_to_float32(values: Tensor) -> Tensor:
    """`values` as float32, or unchanged if they are float64."""
    return values if values.dtype == torch.float64 else values.float()
