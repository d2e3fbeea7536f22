"""Evaluation: a model's mean loss on examples, under an objective.

In: a model, and texts or batches. Out: the mean loss with its standard error; the model's heads.
"""

import math
import random
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.formats import format_count
from headwise.heads import HeadCounts, HeadId
from headwise.models.modalities import check_reads_text
from headwise.objectives.objective import Losses, Objective, Sample
from headwise.objectives.scored_model import ScoredModel
from headwise.reading.batch import NO_LABEL, Inputs, has_decoder
from headwise.reading.corpus import calibration_texts
from headwise.reading.python_manual import split_sentences
from headwise.reading.reader import Reader, Window, as_documents
from headwise.reading.tensors import as_batches, check_input_names
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.failures import explain_failures
from headwise.watching.gates import silence
from headwise.watching.returned_weights import why_not_silenced
from headwise.watching.running import forward_batch
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

LENGTH = 256
"""Maximum tokens in a window of text: short windows give more examples."""
WHOLE_LENGTH = 512
"""Maximum tokens in a text that is kept whole: the limit of BERT, which most examples respect."""
ROOM = 100_000_000
"""Maximum number of values in the output of one forward pass: 400 MB in float32."""


SHORTEST_SHARE = 7 / 8
"""Length of the shortest window in a batch, as a share of the longest: little padding saves up to
a third of the time of ablation, whose passes contain copies of a batch."""


class Estimate(NamedTuple):
    """A mean over examples and its standard error."""

    value: float
    error: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model in eval mode, with the objective and the samples to measure it on."""

    model: nn.Module
    objective: Objective
    samples: tuple[Sample, ...]

    @classmethod
    @torch.no_grad()
    def of_batches(
        cls,
        model: nn.Module,
        objective: Objective,
        batches: Sequence[Inputs],
        *,
        has_losses: bool = True,
    ) -> "Evaluation":
        """An evaluation on batches of model inputs; labels in them may change the objective.

        For objectives that need a reference output, `model` computes it, unless `has_losses` is
        False; refitting needs no losses.
        """
        if not batches:
            raise OptionError("there are no batches to measure on: pass at least one")
        if "labels" in batches[0]:
            unlabelled, objective = objective, objective.on_labels()
            is_pair = has_decoder(getattr(model, "config", None))
            if objective is not unlabelled and is_pair and "decoder_input_ids" not in batches[0]:
                raise OptionError(
                    f"the batches for {type(model).__name__} have labels but no decoder_input_ids: "
                    "add decoder_input_ids, because the model has an encoder and a decoder"
                )
        model.eval()
        samples = [objective.prepare(inputs, number) for number, inputs in enumerate(batches)]
        if objective.needs_reference and has_losses:
            samples = [
                replace(sample, reference=_output(model, objective, sample)) for sample in samples
            ]
        return cls(model, objective, tuple(samples))

    @classmethod
    def of_texts(
        cls,
        scored: ScoredModel,
        texts: Sequence[str],
        *,
        max_tokens: int | None,
        seed: int = 0,
        has_losses: bool = True,
        keeps_whole: bool = False,
    ) -> "Evaluation":
        """An evaluation on texts, split into sentences or windows as the objective requires.

        With `keeps_whole`, each text is an example of its own. Only one that is longer than
        WHOLE_LENGTH, or than the model's limit, is split.
        """
        model, objective, tokenizer = scored.model, scored.objective, scored.tokenizer
        check_reads_text(scored)
        if tokenizer is None:
            raise OptionError(f"{scored.name} has no tokenizer: pass batches of its inputs instead")
        texts = list(texts)
        if objective.reads_sentences and not keeps_whole:
            texts = list(split_sentences(texts)) or texts
        random.Random(seed).shuffle(texts)  # so that the first max_tokens come from many documents
        length = WHOLE_LENGTH if keeps_whole else LENGTH
        reader = Reader(tokenizer, model.config, length=length)
        windows = reader.windows(texts, max_tokens, keeps_whole=keeps_whole)
        return cls.of_windows(scored, windows, has_losses=has_losses)

    @classmethod
    def of_windows(
        cls, scored: ScoredModel, windows: Sequence[Window], *, has_losses: bool = True
    ) -> "Evaluation":
        """An evaluation on windows of tokens, such as those from `sample_windows`."""
        model, objective = scored.model, scored.objective
        reader = Reader(scored.tokenizer, model.config)
        room = max_batch_tokens(model, objective)
        batches = []
        for group in reader.batches(windows, shortest=SHORTEST_SHARE):
            size = max(1, room // len(group[0].ids))
            batches += [
                reader.batch(group[start : start + size], scored.device).inputs
                for start in range(0, len(group), size)
            ]
        return cls.of_batches(model, objective, batches, has_losses=has_losses)

    @property
    def counts(self) -> HeadCounts:
        """Heads and KV heads in every layer that runs and that is not in `left_out`.

        Raises ModelError if no layer's heads can be silenced.
        """
        counts, left_out = self._layers
        if left_out and not counts:
            raise ModelError(next(iter(left_out.values())))
        return counts

    @property
    def left_out(self) -> Mapping[str, str]:
        """A sentence for every layer whose heads cannot be silenced."""
        return self._layers[1]

    @cached_property
    def _layers(self) -> tuple[HeadCounts, Mapping[str, str]]:
        inputs = self.samples[0].inputs
        with explain_failures(self.model, inputs):
            calls = _calls_by_layer(self.model, inputs)
        reasons = {name: why_not_silenced(call) for name, call in calls.items()}
        counts = {name: _count(call) for name, call in calls.items() if not reasons[name]}
        return counts, {name: reason for name, reason in reasons.items() if reason}

    @cached_property
    def heads(self) -> tuple[HeadId, ...]:
        """Every head, layer by layer."""
        return tuple(
            HeadId.parse(f"{layer}H{head}")
            for layer, (num_heads, _) in self.counts.items()
            for head in range(num_heads)
        )

    @property
    def num_examples(self) -> int:
        """Number of examples in all samples."""
        return sum(map(len, self.samples))

    @property
    def num_tokens(self) -> int:
        """Number of tokens without padding; if the model reads no tokens, number of examples."""
        return sum(sample.num_tokens for sample in self.samples)

    def describe_size(self) -> str:
        """`num_tokens` with its unit, such as "1,200 tokens"."""
        reads_tokens = self.samples[0].is_token is not None
        return format_count(self.num_tokens, "token" if reads_tokens else "example")

    @torch.no_grad()
    def losses(self) -> Losses:
        """The loss on every example, with the model in its current state."""
        losses = [
            self.objective.losses(_output(self.model, self.objective, sample), sample)
            for sample in self.samples
        ]
        return Losses(
            torch.cat([batch.sums.double().cpu() for batch in losses]),
            torch.cat([batch.weights.double().cpu() for batch in losses]),
        )

    def loss(self, silenced: Sequence[HeadId] = ()) -> Estimate:
        """The mean loss while the heads in `silenced` are silenced."""
        with silence(self.model, silenced) if silenced else nullcontext():
            losses = self.losses()
        return estimate_ratio(losses.sums, losses.weights)

    def finite_loss(self, name: str) -> Estimate:
        """The mean loss; raises OptionError, with the model's `name`, if it is not finite."""
        loss = self.loss()
        if not math.isfinite(loss.value):
            raise OptionError(
                f"the loss of {name} is {loss.value}, so no head can be measured by it: use other "
                "examples or another objective"
            )
        return loss

    def with_model(self, model: nn.Module) -> "Evaluation":
        """The same evaluation of another model; the reference output stays the same."""
        return replace(self, model=model)


def _output(model: nn.Module, objective: Objective, sample: Sample) -> Tensor:
    """The output that the objective reads; raises OptionError if the model cannot read a sample."""
    with explain_failures(model, sample.inputs):
        return objective.output(model, sample.inputs)


def estimate_ratio(sums: Tensor, weights: Tensor) -> Estimate:
    """Sum of losses divided by sum of weights; its standard error is infinite for one example."""
    total = float(weights.sum())
    if total == 0:
        raise OptionError(
            "the examples contain nothing to predict: pass longer texts, or labels other than "
            f"{NO_LABEL}"
        )
    value, count = float(sums.sum()) / total, len(sums)
    if count == 1:
        return Estimate(value, math.inf)
    squares = float(((sums - value * weights) ** 2).sum())
    return Estimate(value, math.sqrt(squares * count / (count - 1)) / total)


def choose_texts(texts: str | Sequence[str] | None, *, keeps_whole: bool = False) -> Sequence[str]:
    """The user's documents, checked, or the built-in ones if `texts` is None.

    Raises OptionError if `texts` is None but `keeps_whole` asks for one example per text.
    """
    documents = as_documents(texts)
    if documents is None and keeps_whole:
        raise OptionError(
            "keeps_texts_whole is True, but texts is not set: pass a list of examples",
            option="keeps_texts_whole",
        )
    if documents is None:
        return [text for part in calibration_texts().values() for text in part]
    return documents


def choose_batches(
    model: nn.Module, batches: Iterable[Mapping[str, Tensor]], texts: object = None
) -> list[Inputs]:
    """The user's batches as a list; raises OptionError if `texts` is set or a name is unknown."""
    if texts is not None:
        raise OptionError("texts and batches are both given: pass only one of them")
    checked = as_batches(batches)
    for batch in checked:
        check_input_names(model, batch)
    return checked


def max_batch_tokens(model: nn.Module, objective: Objective) -> int:
    """Number of tokens whose output has about ROOM values, but at least LENGTH."""
    config: Any = model.config
    vocabulary = getattr(config.get_text_config(), "vocab_size", 1)
    return max(LENGTH, ROOM // vocabulary if objective.reads_logits else ROOM)


@torch.no_grad()
def count_heads(model: nn.Module, inputs: Inputs) -> HeadCounts:
    """Number of heads and KV heads in every layer that runs when the model reads one example."""
    return {name: _count(call) for name, call in _calls_by_layer(model, inputs).items()}


def _count(call: Call) -> tuple[int, int]:
    kv_heads = call.keys.shape[1] if isinstance(call, AttentionCall) else call.num_heads
    return call.num_heads, kv_heads


def _calls_by_layer(model: nn.Module, inputs: Inputs) -> dict[str, Call]:
    """The last call of every layer that runs when the model reads one example, in layer order."""
    first = {name: value[:1] for name, value in inputs.items()}
    calls: dict[str, Call] = {}

    def keep(call: Call) -> None:
        calls[call.site.layer_name] = call

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about memory for weights of one example
        with torch.no_grad(), watch(model, keep):
            forward_batch(model, first)
    names = [site.layer_name for site in find_sites(model)]
    return {name: calls[name] for name in names if name in calls}
