"""Task: a model, what it is measured by, and the examples that it is measured on.

In: a model and batches. Out: its mean loss with a standard error, as it is or with heads silenced.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.formats import format_count
from headwise.heads import HeadCounts, HeadId
from headwise.objectives.objective import Losses, Objective, Sample
from headwise.reading.batch import NO_LABEL, Inputs
from headwise.reading.reader import Reader
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.gates import silence
from headwise.watching.running import forward_batch
from headwise.watching.sites import Site, find_sites
from headwise.watching.watch import watch


class Estimate(NamedTuple):
    """A mean over examples, and its standard error."""

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model in evaluation mode, an objective and samples."""

    model: nn.Module
    objective: Objective
    samples: tuple[Sample, ...]

    @property
    def places(self) -> tuple[Site, ...]:
        """Where the model's attention is."""
        return find_sites(self.model)

    @property
    def num_examples(self) -> int:
        """Examples in all."""
        return sum(map(len, self.samples))

    @property
    def num_tokens(self) -> int:
        """Tokens without padding; examples where the model reads no tokens."""
        return sum(sample.num_tokens for sample in self.samples)

    @property
    def amount(self) -> str:
        """How much is measured on, in words."""
        reads_tokens = self.samples[0].is_token is not None
        return format_count(self.num_tokens, "token" if reads_tokens else "example")

    @torch.no_grad()
    def losses(self) -> Losses:
        """The loss of every example, as the model is at this moment."""
        found = [
            self.objective.losses(self.objective.output(self.model, sample.inputs), sample)
            for sample in self.samples
        ]
        return joined(found)

    def loss(self, silenced: Sequence[HeadId] = ()) -> Estimate:
        """The mean loss, with some heads silenced."""
        if not silenced:
            return mean_of(self.losses())
        with silence(self.model, silenced):
            return mean_of(self.losses())

    def checked_loss(self, name: str) -> Estimate:
        """The mean loss of the model as it is; an error if no head can be measured by it."""
        found = self.loss()
        if not math.isfinite(found.value):
            raise OptionError(
                f"the loss of {name} is {found.value}, and no head can be measured by it: give "
                "other examples, or another objective"
            )
        return found

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """What is measured of every example, one after the other."""
        return torch.cat([self.objective.output(self.model, one.inputs) for one in self.samples])

    def of(self, model: nn.Module) -> "Evaluation":
        """The same of another model; what it is compared with stays."""
        return replace(self, model=model)


@torch.no_grad()
def make_evaluation(
    model: nn.Module, objective: Objective, batches: Iterable[Inputs], *, is_measured: bool = True
) -> Evaluation:
    """A task on some batches; where outputs are compared with the uncut model's, this is it.

    With `is_measured` off there is nothing to compare with: enough for refitting.
    """
    model.eval()
    samples = []
    for number, inputs in enumerate(batches):
        sample = objective.prepare(inputs, number)
        if objective.needs_reference and is_measured:
            sample = replace(sample, reference=objective.output(model, sample.inputs))
        samples.append(sample)
    if not samples:
        raise OptionError("there is nothing to measure on: give at least one batch")
    return Evaluation(model, objective, tuple(samples))


def counted_batches(count: int) -> str:
    """How many batches there are, in words."""
    return f"{count:,} batch{'' if count == 1 else 'es'}"


def text_batches(
    reader: Reader,
    texts: Iterable[str],
    *,
    max_tokens: int | None,
    most_tokens: int,
    device: torch.device,
) -> list[Inputs]:
    """Texts as batches of what a model takes, none of more than `most_tokens` if that can be."""
    windows = reader.windows(texts, max_tokens)
    found = []
    for group in reader.batches(windows):
        size = max(1, most_tokens // len(group[0].ids))
        found += [
            reader.batch(group[start : start + size], device).inputs
            for start in range(0, len(group), size)
        ]
    return found


def joined(losses: Sequence[Losses]) -> Losses:
    """The losses of several batches, one after the other."""
    sums = torch.cat([one.sums.double().cpu() for one in losses])
    return Losses(sums, torch.cat([one.weights.double().cpu() for one in losses]))


def mean_of(losses: Losses) -> Estimate:
    """Sum of losses over sum of weights, and its standard error over examples."""
    return ratio(losses.sums, losses.weights)


def ratio(sums: Tensor, weights: Tensor) -> Estimate:
    """A ratio of sums, and its standard error from how far examples are off it; inf of one."""
    total = float(weights.sum())
    if total == 0:
        raise OptionError(
            "the examples hold nothing to predict: give longer texts, or labels of which some are "
            f"not {NO_LABEL}"
        )
    value = float(sums.sum()) / total
    off = sums - value * weights
    count = len(sums)
    if count == 1:
        return Estimate(value, math.inf)
    inflation = count / (count - 1)
    return Estimate(value, math.sqrt(float((off**2).sum()) * inflation) / total)


@torch.no_grad()
def count_heads(model: nn.Module, inputs: Inputs) -> HeadCounts:
    """How many heads each layer has, seen while the model reads one example; in order of places."""
    first = {name: value[:1] for name, value in inputs.items()}
    counts: dict[str, tuple[int, int]] = {}

    def count(call: Call) -> None:
        kv_heads = call.keys.shape[1] if isinstance(call, AttentionCall) else call.num_heads
        counts[call.site.layer_name] = (call.num_heads, kv_heads)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that weights are read: here they are dropped at once
        with watch(model, count):
            forward_batch(model, first)
    names = [place.layer_name for place in find_sites(model)]
    return {name: counts[name] for name in names if name in counts}


def head_ids(places: Sequence[Site], counts: HeadCounts) -> tuple[HeadId, ...]:
    """Every head of a model, layer by layer."""
    return tuple(
        HeadId(place.layer, head, place.stack)
        for place in places
        for head in range(counts.get(place.layer_name, (0, 0))[0])
    )
