"""Objective: what a model is for, as a loss of each example that heads can be judged by.

In: a model's output on a batch. Out: the loss of every example, and random scalars whose gradients'
outer products average to the curvature of that loss. It knows no heads.

What is measured is chosen by the model: next-token loss for causal models, masked-token loss for
masked ones, cosine distance of the pooled embedding from the uncut model's for embedding models,
divergence of the logits from the uncut model's for the rest; or a function of the user's own.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from headwise.errors import ModelError, OptionError
from headwise.reading.batch import NO_LABEL, Inputs
from headwise.watching.running import forward, without_labels

MASKED_SHARE = 0.15
"""Of the tokens of a masked model's batch; Devlin et al. 2019, https://arxiv.org/abs/1810.04805."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One batch of examples, and what the uncut model makes of it where that is the measure."""

    inputs: Inputs
    targets: Int[Tensor, "*batch"] | None = None
    """Token or label to be predicted, at each position if there are any; NOTHING where none is."""
    reference: Tensor | None = None

    def __len__(self) -> int:
        """Number of examples."""
        return len(next(iter(self.inputs.values())))

    @property
    def is_real(self) -> Tensor | None:
        """Which positions of each example hold a token; None where no mask says so."""
        mask = self.inputs.get("decoder_attention_mask", self.inputs.get("attention_mask"))
        return None if mask is None else mask.bool()

    @property
    def is_token(self) -> Tensor | None:
        """The same, where all ids are tokens if no mask says so; None if the model reads none."""
        ids = self.inputs.get("decoder_input_ids", self.inputs.get("input_ids"))
        if self.is_real is not None or ids is None:
            return self.is_real
        return torch.ones_like(ids, dtype=torch.bool)

    @property
    def num_tokens(self) -> int:
        """Tokens without padding; examples where the model reads no tokens."""
        return len(self) if self.is_token is None else int(self.is_token.sum())

    def repeated(self, copies: int) -> "Sample":
        """The batch so many times over, one after the other."""
        return Sample(
            {name: repeat(value, copies) for name, value in self.inputs.items()},
            None if self.targets is None else repeat(self.targets, copies),
            None if self.reference is None else repeat(self.reference, copies),
        )


def repeat(values: Tensor, copies: int) -> Tensor:
    """A batch so many times over, one after the other."""
    return values.repeat(copies, *[1] * (values.dim() - 1))


def precise(values: Tensor) -> Tensor:
    """The same in float32, where they are in less."""
    return values if values.dtype == torch.float64 else values.float()


@dataclass(frozen=True, eq=False)
class Losses:
    """The loss of each example as a sum over what is counted in it, and how much is counted."""

    sums: Float[Tensor, " batch"]
    weights: Float[Tensor, " batch"]


class Objective(ABC):
    """What is measured of a model's output."""

    name: ClassVar[str]
    needs_reference: ClassVar[bool] = False
    """Whether examples are compared with what the uncut model gives."""

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """A batch with its targets; `number` is its place among the batches."""
        return Sample(inputs)

    @abstractmethod
    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """What of the model's output is measured."""

    @abstractmethod
    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The loss of each example."""

    @abstractmethod
    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """A random scalar of each example: its gradient's outer product has the mean curvature.

        So `1/2 d^T E[g g^T] d` is the loss that a small change d of the output's causes adds, in
        the unit of `Losses.sums`.
        """

    def shown(self, loss: float) -> str:
        """A mean loss as people in the field write it."""
        return f"{loss:.4f}"

    @property
    def unit(self) -> str:
        """What `shown` shows."""
        return self.name


def logits_of(model: nn.Module, inputs: Inputs) -> Tensor:
    """What the model predicts, before the softmax."""
    found = forward(model, inputs)
    logits = getattr(found, "logits", None)
    if not isinstance(logits, Tensor):
        raise ModelError(f"{type(model).__name__} gives no logits: measure its embedding instead")
    return logits


def token_ids(inputs: Inputs) -> Tensor:
    """The tokens of a batch, which are what is to be predicted."""
    if "input_ids" not in inputs:
        raise OptionError(
            f"the batches have no input_ids to predict: they have {', '.join(inputs)}; give "
            "input_ids, or labels"
        )
    return inputs["input_ids"]


def check_labels(logits: Tensor, labels: Tensor) -> None:
    """Raise unless there is a label for every row of logits, and each is one of their classes."""
    *rows, classes = logits.shape
    if classes == 1:  # its softmax is 1 whatever it says, and no head would matter
        raise ModelError(
            "the model predicts one number, and labels are classes: give an objective of your own"
        )
    if list(labels.shape) != rows:
        raise OptionError(
            f"the labels are {list(labels.shape)}, and the model predicts {classes} classes for "
            f"each of {rows}: give one label each, or an objective of your own"
        )
    wrong = labels[(labels != NO_LABEL) & ((labels < 0) | (labels >= classes))]
    if len(wrong):
        raise OptionError(
            f"a label is {int(wrong[0])}, and the model predicts {classes} classes: give 0 to "
            f"{classes - 1}, or {NO_LABEL} where there is none"
        )


class TokenLoss(Objective):
    """Mean negative log-probability of tokens that the model has to predict, in nats."""

    def output(self, model: nn.Module, inputs: Inputs) -> Float[Tensor, "batch position word"]:
        """Logits."""
        return logits_of(model, inputs)

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """Summed over the predicted tokens of each example."""
        assert sample.targets is not None
        check_labels(output, sample.targets)
        each = functional.cross_entropy(
            precise(output.flatten(0, 1)), sample.targets.flatten(), reduction="none"
        )
        counted = sample.targets != NO_LABEL
        return Losses(each.view_as(sample.targets).sum(1), counted.sum(1).float())

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Log-probability of tokens that the model itself draws, summed: Fisher's information."""
        assert sample.targets is not None
        counted = sample.targets != NO_LABEL
        return drawn_log_probability(output, counted, random)

    def shown(self, loss: float) -> str:
        """Perplexity."""
        return f"{math.exp(min(loss, 700)):.2f}"

    @property
    def unit(self) -> str:
        """Perplexity."""
        return "perplexity"


def drawn_log_probability(
    logits: Tensor, counted: Tensor, random: torch.Generator
) -> Float[Tensor, " batch"]:
    """Log-probability of labels drawn from the model's own prediction, over counted positions."""
    logs = precise(logits).log_softmax(-1)
    with torch.no_grad():
        noise = torch.rand(logs.shape, generator=random).to(logs)
        drawn = (logs - (-noise.log()).log()).argmax(-1)  # Gumbel's way to draw from a softmax
    picked = logs.gather(-1, drawn[..., None])[..., 0]
    return (picked * counted).flatten(1).sum(1)


class NextToken(TokenLoss):
    """Every token of a text is predicted from those before it."""

    name = "next-token loss"

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """Targets are the tokens, or the labels that are given, one place to the right."""
        words = inputs["labels"] if "labels" in inputs else token_ids(inputs)
        targets = torch.full_like(words, NO_LABEL)
        targets[:, :-1] = words[:, 1:]
        sample = Sample(without_labels(inputs))
        if sample.is_real is not None:
            is_pair = sample.is_real[:, 1:] & sample.is_real[:, :-1]
            targets[:, :-1][~is_pair] = NO_LABEL
        return replace(sample, targets=targets)


@dataclass(frozen=True)
class MaskedToken(TokenLoss):
    """Some tokens are hidden, and predicted from all others."""

    mask_id: int | None
    """None where no tokenizer says it: then batches need labels."""
    special_ids: frozenset[int] = frozenset()
    name: ClassVar[str] = "masked-token loss"

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """A share of the ordinary tokens is hidden, the same whenever the batch is prepared.

        Batches with labels are taken as they are.
        """
        if "labels" in inputs:
            return Sample(without_labels(inputs), inputs["labels"])
        if self.mask_id is None:
            raise OptionError(
                "the model predicts masked tokens, and no tokenizer says which token is the mask: "
                "give a tokenizer that does, batches with labels, or an objective"
            )
        ids = token_ids(inputs)
        special = torch.tensor(sorted(self.special_ids), dtype=ids.dtype, device=ids.device)
        random = torch.Generator().manual_seed(number)
        is_hidden = (torch.rand(ids.shape, generator=random) < MASKED_SHARE).to(ids.device)
        is_hidden &= ~torch.isin(ids, special)
        sample = Sample(inputs)
        if sample.is_real is not None:
            is_hidden &= sample.is_real
        targets = ids.masked_fill(~is_hidden, NO_LABEL)
        return Sample({**inputs, "input_ids": ids.masked_fill(is_hidden, self.mask_id)}, targets)


@dataclass(frozen=True)
class Embedding(Objective):
    """One less the cosine between a text's embedding and the one that the uncut model gives."""

    pooling: str = "mean"
    name: ClassVar[str] = "cosine distance of embeddings"
    needs_reference: ClassVar[bool] = True

    def output(self, model: nn.Module, inputs: Inputs) -> Float[Tensor, "batch d_model"]:
        """The embedding, of length 1."""
        states = getattr(forward(model, inputs), "last_hidden_state", None)
        if not isinstance(states, Tensor):
            raise ModelError(
                f"{type(model).__name__} gives no last_hidden_state: give an objective of your own"
            )
        states = precise(states)
        if self.pooling == "cls":
            return functional.normalize(states[:, 0], dim=-1)
        is_real = Sample(inputs).is_real
        if is_real is None or is_real.shape != states.shape[:2]:
            return functional.normalize(states.mean(1), dim=-1)
        shares = is_real.to(states)[..., None]
        return functional.normalize((states * shares).sum(1), dim=-1)

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The distance of each example."""
        assert sample.reference is not None
        distance = 1 - (output * sample.reference).sum(-1)
        return Losses(distance, torch.ones_like(distance))

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """A random projection: for unit vectors the distance is half the squared difference."""
        signs = torch.randint(0, 2, output.shape, generator=random).to(output) * 2 - 1
        return (output * signs).sum(-1)

    def shown(self, loss: float) -> str:
        """The cosine."""
        return f"{1 - loss:.4f}"

    @property
    def unit(self) -> str:
        """The cosine."""
        return "cosine"


class Divergence(Objective):
    """Kullback-Leibler divergence of what the model predicts from what the uncut one does."""

    name = "divergence of logits"
    needs_reference = True

    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """Logits: one row an example, or one a position."""
        found = logits_of(model, inputs)
        if found.shape[-1] == 1:  # its softmax is 1 whatever it says, and no head would matter
            raise ModelError(
                f"{type(model).__name__} predicts one number an example: give an objective of your "
                "own"
            )
        return found

    def counted(self, output: Tensor, sample: Sample) -> Tensor:
        """Which rows of logits are compared."""
        is_real = sample.is_real
        if is_real is None or is_real.shape != output.shape[:-1]:
            return torch.ones(output.shape[:-1], dtype=torch.bool, device=output.device)
        return is_real

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """Summed over an example's rows of logits."""
        assert sample.reference is not None
        ours, theirs = (precise(one).log_softmax(-1) for one in (output, sample.reference))
        each = (theirs.exp() * (theirs - ours)).sum(-1)
        counted = self.counted(output, sample)
        return Losses((each * counted).flatten(1).sum(1) if each.dim() > 1 else each, per(counted))

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Log-probability of labels that the model itself draws."""
        rows = output if output.dim() > 2 else output[:, None]
        counted = self.counted(output, sample).view(rows.shape[:-1])
        return drawn_log_probability(rows, counted, random)


class LabelLoss(Objective):
    """Negative log-probability of labels that came with the data, in nats."""

    name = "loss on labels"

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """The labels are targets, and no input of the model's."""
        if "labels" not in inputs:
            raise OptionError(
                f"the batches have no labels: they have {', '.join(inputs)}; give them, or measure "
                "something else"
            )
        labels = inputs["labels"]
        if labels.is_floating_point():
            raise OptionError(
                f"the labels are {labels.dtype}: classes are whole numbers; for others give a "
                "function of your own as the objective"
            )
        return Sample(without_labels(inputs), labels)

    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """Logits: one row an example, or one a position."""
        return logits_of(model, inputs)

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """Summed over the labels of each example; those of NOTHING count nothing."""
        assert sample.targets is not None
        check_labels(output, sample.targets)
        logits = precise(output.flatten(0, -2))
        each = functional.cross_entropy(logits, sample.targets.flatten(), reduction="none")
        counted = sample.targets != NO_LABEL
        return Losses(each.view(len(counted), -1).sum(1), per(counted))

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Log-probability of labels that the model itself draws."""
        assert sample.targets is not None
        rows = output if output.dim() > 2 else output[:, None]
        counted = (sample.targets != NO_LABEL).view(rows.shape[:-1])
        return drawn_log_probability(rows, counted, random)


def per(counted: Tensor) -> Float[Tensor, " batch"]:
    """How many rows are counted of each example."""
    return counted.flatten(1).sum(1).float() if counted.dim() > 1 else counted.float()


@dataclass(frozen=True)
class Given(Objective):
    """A function of the user's own: from model and inputs to one loss an example."""

    function: Callable[[nn.Module, Inputs], Tensor]
    name: ClassVar[str] = "given loss"

    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """The losses themselves."""
        found = self.function(model, inputs)
        batch = len(next(iter(inputs.values())))
        if not isinstance(found, Tensor) or found.shape != (batch,):
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise OptionError(
                f"the loss function gave {got}: it must give one loss for each of the {batch} "
                "examples of a batch"
            )
        return found

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """As they were given."""
        return Losses(precise(output), torch.ones_like(output, dtype=torch.float))

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Nothing: of a loss that is but a number, the curvature is unknown."""
        return precise(output) * 0


def objective_for(model: nn.Module, tokenizer: Any = None, *, pooling: str = "mean") -> Objective:
    """What a model is for, told by its class."""
    name = type(model).__name__
    is_decoder_alone = not getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if ("CausalLM" in name or "LMHead" in name) and is_decoder_alone:
        return NextToken()
    if "MaskedLM" in name:
        mask_id = getattr(tokenizer, "mask_token_id", None)
        return MaskedToken(mask_id, frozenset(getattr(tokenizer, "all_special_ids", ())))
    if re.search(r"For[A-Z]", name):
        return Divergence()
    return Embedding(pooling)
