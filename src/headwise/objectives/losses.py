"""Objectives: next token, masked token, labels, divergence, embedding, and a user's own loss.

In: a model's output on a prepared batch. Out: the loss of every example, in nats unless the class
says otherwise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from headwise.errors import ModelError, OptionError
from headwise.objectives.objective import Losses, Objective, Sample, upcast_to_float32
from headwise.reading.batch import NO_LABEL, Inputs
from headwise.watching.running import forward, without_labels

MASKED_SHARE = 0.15
"""Share of tokens to mask; Devlin et al. 2019, https://arxiv.org/abs/1810.04805."""
POOLINGS = ("mean", "cls")
EMBEDDINGS = ("image_embeds", "text_embeds")
CACHED_VALUES = 400_000
"""Number of logits to compute with at a time: as many as stay in a processor's cache. With 49,152
classes, a divergence takes a fifth of the time that it takes for all rows at once."""


def read_logits(model: nn.Module, inputs: Inputs) -> Tensor:
    """The model's logits; raises ModelError if it returns none."""
    logits = getattr(forward(model, inputs), "logits", None)
    if not isinstance(logits, Tensor):
        raise ModelError(f"{type(model).__name__} returns no logits: measure its embedding instead")
    return logits


def map_rows(function: Callable[..., Tensor], *logits: Tensor) -> Tensor:
    """`function` of a few rows of logits at a time, joined; it returns one number per row."""
    rows = [each.reshape(-1, each.shape[-1]) for each in logits]
    size = max(1, CACHED_VALUES // rows[0].shape[-1])
    parts = [function(*each) for each in zip(*(each.split(size) for each in rows), strict=True)]
    return torch.cat(parts).view(logits[0].shape[:-1])


def _token_ids(inputs: Inputs) -> Tensor:
    if "input_ids" not in inputs:
        raise OptionError(
            f"the batches have no input_ids to predict, only {', '.join(inputs)}: add input_ids or "
            "labels"
        )
    return inputs["input_ids"]


class LogitLoss(Objective):
    """Negative log-probability of the targets, in nats."""

    def distance(self) -> Objective:
        """`Divergence`, where the loss counts."""
        return Divergence()

    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """Logits: one row per example, or one per position."""
        logits = read_logits(model, inputs)
        if logits.shape[-1] == 1:  # softmax of one logit is 1: no head would matter
            raise ModelError(
                f"{type(model).__name__} predicts one number, not classes: pass your own objective"
            )
        return logits

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The loss of each example, summed over its targets; NO_LABEL counts as no target."""
        assert sample.targets is not None
        _check_labels(output, sample.targets)
        rows = upcast_to_float32(output.flatten(0, -2))
        each = functional.cross_entropy(rows, sample.targets.flatten(), reduction="none")
        is_counted = self.is_counted(output, sample).view(len(sample.targets), -1)
        return Losses(each.view_as(is_counted).sum(1), is_counted.sum(1).float())

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Log-probability of labels drawn from the model's own predictions (Fisher information)."""
        logs = upcast_to_float32(output).log_softmax(-1)

        def draw_label(some: Tensor) -> Tensor:
            noise = torch.rand(some.shape, generator=random).to(some)
            return (some - (-noise.log()).log()).argmax(-1)  # samples by the Gumbel-max trick

        with torch.no_grad():
            labels = map_rows(draw_label, logs)
        picked = logs.gather(-1, labels[..., None])[..., 0] * self.is_counted(output, sample)
        return picked.view(len(picked), -1).sum(1)

    def is_counted(self, output: Tensor, sample: Sample) -> Tensor:
        """True for each row of logits that the loss counts."""
        assert sample.targets is not None
        return sample.targets != NO_LABEL


def _check_labels(logits: Tensor, labels: Tensor) -> None:
    *rows, classes = logits.shape
    if list(labels.shape) != rows:
        raise OptionError(
            f"the labels have shape {list(labels.shape)}, but the model's predictions have shape "
            f"{rows}, each over {classes} classes: pass one label per prediction, or your own "
            "objective"
        )
    wrong = labels[(labels != NO_LABEL) & ((labels < 0) | (labels >= classes))]
    if len(wrong):
        raise OptionError(
            f"a label is {int(wrong[0])}, but the model predicts {classes} classes: use 0 to "
            f"{classes - 1}, or {NO_LABEL} for no label"
        )


class TokenLoss(LogitLoss):
    """Mean negative log-probability of the tokens to predict, in nats."""

    unit = "perplexity"

    def budget(self, base: float, max_loss: float) -> float:
        """The loss at which perplexity has grown by the fraction `max_loss`."""
        return base + math.log1p(max_loss)

    def describe_budget(self, max_loss: float) -> str:
        """`max_loss` as a percentage of perplexity."""
        return f"{100 * max_loss:g}% of perplexity"


class NextToken(TokenLoss):
    """Predict every token of a text from those before it."""

    name = "next-token loss"

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """Shift the labels, or the tokens if there are none, left by one to get the targets."""
        words = inputs["labels"] if "labels" in inputs else _token_ids(inputs)
        targets = torch.full_like(words, NO_LABEL)
        targets[:, :-1] = words[:, 1:]
        sample = Sample(without_labels(inputs))
        if sample.is_real is not None:
            is_pair = sample.is_real[:, 1:] & sample.is_real[:, :-1]
            targets[:, :-1][~is_pair] = NO_LABEL
        return replace(sample, targets=targets)


@dataclass(frozen=True)
class MaskedToken(TokenLoss):
    """Mask some tokens and predict them from all others."""

    mask_id: int | None
    """None if the tokenizer has no mask token; batches then need labels."""
    special_ids: frozenset[int] = frozenset()
    name: ClassVar[str] = "masked-token loss"

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """Mask MASKED_SHARE of the ordinary tokens, at least one, unless there are labels.

        The random choice is seeded by `number`.
        """
        if "labels" in inputs:
            return Sample(without_labels(inputs), inputs["labels"])
        if self.mask_id is None:
            raise OptionError(
                "the model predicts masked tokens, but its tokenizer has no mask token: pass a "
                "tokenizer with one, batches with labels, or an objective"
            )
        ids = _token_ids(inputs)
        special = torch.tensor(sorted(self.special_ids), dtype=ids.dtype, device=ids.device)
        is_ordinary = ~torch.isin(ids, special)
        is_real = Sample(inputs).is_real
        if is_real is not None:
            is_ordinary &= is_real
        random = torch.Generator().manual_seed(number)
        is_masked = (torch.rand(ids.shape, generator=random) < MASKED_SHARE).to(ids.device)
        is_masked &= is_ordinary
        if not is_masked.any():  # a short text must not be left with nothing to predict
            is_masked[tuple(is_ordinary.nonzero()[:1].T)] = True
        targets = ids.masked_fill(~is_masked, NO_LABEL)
        return Sample({**inputs, "input_ids": ids.masked_fill(is_masked, self.mask_id)}, targets)


@dataclass(frozen=True)
class Embedding(Objective):
    """One minus the cosine between the model's embedding of a text and the uncut model's."""

    pooling: str = "mean"
    """`mean` of all tokens without padding, or `cls`, the first token."""
    name: ClassVar[str] = "cosine distance of embeddings"
    unit: ClassVar[str] = "cosine"
    needs_reference: ClassVar[bool] = True
    reads_logits: ClassVar[bool] = False
    reads_sentences: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise OptionError(
                f"pooling is {self.pooling!r}: choose from {', '.join(POOLINGS)}", option="pooling"
            )

    @property
    def description(self) -> str:
        """The name and the pooling."""
        return f"{self.name}, {self.pooling} pooling"

    def when_choosing(self) -> Objective:
        """`ComparedEmbedding`, because embeddings are made to be compared with each other."""
        return ComparedEmbedding(self.pooling)

    def output(self, model: nn.Module, inputs: Inputs) -> Float[Tensor, "batch d_model"]:
        """The embedding, scaled to length 1."""
        states = upcast_to_float32(_states_to_pool(model, forward(model, inputs)))
        if self.pooling == "cls":
            return functional.normalize(states[:, 0], dim=-1)
        is_real = Sample(inputs).is_real
        if is_real is None or is_real.shape != states.shape[:2]:
            return functional.normalize(states.mean(1), dim=-1)
        shares = is_real.to(states)[..., None]
        return functional.normalize((states * shares).sum(1), dim=-1)

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The cosine distance for each example."""
        assert sample.reference is not None
        distance = 1 - (output * sample.reference).sum(-1)
        return Losses(distance, torch.ones_like(distance))

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """A random projection, because the loss is half a squared distance between unit vectors."""
        signs = torch.randint(0, 2, output.shape, generator=random).to(output) * 2 - 1
        return (output * signs).sum(-1)

    def describe_budget(self, max_loss: float) -> str:
        """`max_loss` as a difference in cosine."""
        return f"{max_loss:g} of cosine"


def _states_to_pool(model: nn.Module, output: Any) -> Float[Tensor, "batch position d_model"]:
    """A model's last states, or the embeddings of image and text that CLIP returns instead.

    Raises ModelError if it returns neither.
    """
    states = getattr(output, "last_hidden_state", None)
    if isinstance(states, Tensor):
        return states.flatten(2).mT if states.dim() == 4 else states  # [batch d_model height width]
    parts = [getattr(output, name, None) for name in EMBEDDINGS]
    embeddings = [part for part in parts if isinstance(part, Tensor) and part.dim() == 2]
    if not embeddings or len({len(part) for part in embeddings}) > 1:
        raise ModelError(
            f"{type(model).__name__} is not an embedding model, because it returns no "
            "last_hidden_state: leave out the pooling, or pass another objective"
        )
    return torch.cat(embeddings, -1)[:, None]


class ComparedEmbedding(Embedding):
    """The loss of `Embedding` with another curvature: that of similarities to other embeddings.

    An error counts as far as it lies in directions in which embeddings differ from each other.
    """

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Similarity to another example of the batch, as large as a random projection."""
        others = sample.reference
        if others is None or len(others) == 1:
            return super().draw(output, sample, random)
        shift = int(torch.randint(1, len(others), (), generator=random))
        directions = functional.normalize(others - others.mean(0), dim=-1).roll(shift, 0)
        signs = torch.randint(0, 2, (len(others),), generator=random).to(output) * 2 - 1
        return (output * directions).sum(-1) * signs * math.sqrt(output.shape[-1])


def kl_divergence(
    reference: Float[Tensor, "*rows classes"], logits: Float[Tensor, "*rows classes"]
) -> Float[Tensor, "*rows"]:
    """Kullback-Leibler divergence of the predictions in `logits` from the reference, in nats."""

    def of_rows(reference: Tensor, logits: Tensor) -> Tensor:
        before, after = (
            upcast_to_float32(values).log_softmax(-1) for values in (reference, logits)
        )
        return (before.exp() * (before - after)).sum(-1)

    return map_rows(of_rows, reference, logits)


class Divergence(LogitLoss):
    """Kullback-Leibler divergence of the model's predictions from the uncut model's, in nats."""

    name = "divergence of logits"
    unit = name
    needs_reference = True

    def distance(self) -> Objective:
        """The divergence itself."""
        return self

    def on_labels(self) -> Objective:
        """`LabelLoss`, which needs no comparison with the uncut model."""
        return LabelLoss()

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The divergence for each example, summed over its rows of logits without padding."""
        assert sample.reference is not None
        is_counted = self.is_counted(output, sample).view(len(output), -1)
        each = kl_divergence(sample.reference, output)
        return Losses((each.view_as(is_counted) * is_counted).sum(1), is_counted.sum(1).float())

    def is_counted(self, output: Tensor, sample: Sample) -> Tensor:
        """True for each row of logits with a target; without targets, for all but padding."""
        if sample.targets is not None:
            return super().is_counted(output, sample)
        is_real = sample.is_real
        if is_real is None or is_real.shape != output.shape[:-1]:
            return torch.ones(output.shape[:-1], dtype=torch.bool, device=output.device)
        return is_real


class LabelLoss(LogitLoss):
    """Negative log-probability of the labels in the batches, in nats."""

    name = "loss on labels"
    unit = name

    def prepare(self, inputs: Inputs, number: int) -> Sample:
        """Move the labels from the model's inputs to the targets."""
        if "labels" not in inputs:
            raise OptionError(
                f"the batches have no labels, only {', '.join(inputs)}: add labels, or choose "
                "another objective"
            )
        labels = inputs["labels"]
        if labels.is_floating_point():
            raise OptionError(
                f"the labels are {labels.dtype}, but classes are whole numbers: pass your own "
                "function as the objective"
            )
        return Sample(without_labels(inputs), labels)


@dataclass(frozen=True)
class CustomLoss(Objective):
    """A user's function that maps a model and its inputs to one loss per example."""

    function: Callable[[nn.Module, Inputs], Tensor]
    name: ClassVar[str] = "custom loss"
    unit: ClassVar[str] = name

    def output(self, model: nn.Module, inputs: Inputs) -> Tensor:
        """The function's losses; raises OptionError unless there is one per example."""
        losses = self.function(model, inputs)
        batch = len(next(iter(inputs.values())))
        if not isinstance(losses, Tensor) or losses.shape != (batch,):
            kind = list(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise OptionError(
                f"the loss function returned {kind}: it must return one loss for each of the "
                f"{batch} examples in the batch"
            )
        return losses

    def losses(self, output: Tensor, sample: Sample) -> Losses:
        """The losses in `output`, each with weight 1."""
        return Losses(upcast_to_float32(output), torch.ones_like(output, dtype=torch.float))

    def draw(
        self, output: Tensor, sample: Sample, random: torch.Generator
    ) -> Float[Tensor, " batch"]:
        """Zeros, because the curvature of the user's function is unknown."""
        return upcast_to_float32(output) * 0

    def budget(self, base: float, max_loss: float) -> float:
        """`base` increased by the fraction `max_loss` of its absolute value."""
        return base + abs(base) * max_loss

    def describe_budget(self, max_loss: float) -> str:
        """`max_loss` as a percentage of the loss."""
        return f"{100 * max_loss:g}% of the loss"
