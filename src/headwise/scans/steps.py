"""Steps: what a scan does with one batch: run the model on it and count what its heads do.

In: a model and a batch. Out: sums in a tally. Which batches there are, and in what order, is the
scan's business.
"""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import OWN, HeadwiseError, OptionError
from headwise.measures.counter import HeadCounter, LayerCache, RowChoice, views_of
from headwise.measures.measure import measure_rows
from headwise.measures.repeats import Repeats
from headwise.measures.uniform import Uniform
from headwise.models.load_errors import one_sentence
from headwise.probes.scoring import RelationScores
from headwise.probes.sentences import ProbeSentence
from headwise.reading.batch import Batch
from headwise.reading.tensors import check_input_names, non_text_inputs, why_unreadable
from headwise.reading.words import Encoded, word_weights
from headwise.scans.sums import ScanSums
from headwise.watching.calls import Call
from headwise.watching.running import forward_batch
from headwise.watching.watch import watch


def read(model: nn.Module, batch: Batch) -> None:
    """Let the model read; what it stumbles over is told in a sentence, if possible with why."""
    name = type(model).__name__
    try:
        forward_batch(model, batch.inputs)
    except (HeadwiseError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as err:  # models fail in any way over what they are not given
        if is_our_own(err):
            raise
        if reason := why_unreadable(getattr(model, "config", None), batch.inputs):
            raise OptionError(f"{name} cannot read this: {reason}") from err
        if isinstance(err, TypeError | ValueError):
            check_input_names(model, batch.inputs, is_strict=True)
        what = "these inputs" if non_text_inputs(batch.inputs) else "text alone"
        raise OptionError(
            f"{name} cannot read {what} ({one_sentence(err)}): give inputs=[...] with everything "
            "it takes"
        ) from err


def is_our_own(error: Exception) -> bool:
    """Whether it was raised by headwise's own code, which runs inside of the model's."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return innermost.f_globals.get("__name__", "").split(".")[0] in OWN


class TextStep:
    """Counts every measure of one batch."""

    def __init__(self, count: HeadCounter) -> None:
        """What is counted, and how."""
        self.count = count

    def run(self, model: nn.Module, batch: Batch) -> None:
        """Run the model on the batch and count."""

        def each(call: Call) -> None:
            self.count.add(call, batch)

        with torch.inference_mode(), watch(model, each, needs_lse=True):
            read(model, batch)
        self.count.finish()
        self.count.kept.say_what_is_left_out()


ON_REPEATS = {
    "text_induction": "induction",
    "value_text_induction": "value_induction",
    "uniform_duplicate": "uniform_induction",
}
"""What the columns are called when they are of repeated random tokens."""


class RepeatStep:
    """Counts induction on repeated random tokens, under names of its own."""

    def __init__(self, tally: ScanSums, kept: LayerCache | None = None) -> None:
        """Where to count."""
        self.tally, self.kept = tally, kept or LayerCache()

    def run(self, model: nn.Module, batch: Batch) -> None:
        """Run the model on the batch and count."""
        measures = [Repeats(), Uniform()]

        def each(call: Call) -> None:
            key = (call.stack, call.layer)
            for _, view in views_of(call, batch, RowChoice("all"), self.kept):
                columns = measure_rows(view, measures)
                for name, ours in ON_REPEATS.items():
                    if name in columns:
                        self.tally.totals.add(key, ours, columns[name], 1.0)

        with torch.inference_mode(), watch(model, each, needs_lse=True):
            read(model, batch)
        self.kept.say_what_is_left_out()


@dataclass(frozen=True, eq=False)
class EncodedSentence:
    """A sentence with gold relations, its tokens, and its place among all."""

    index: int
    sentence: ProbeSentence
    encoded: Encoded


class RelationStep:
    """Counts how often heads find the gold partner of a word."""

    def __init__(self, tally: ScanSums, source: str) -> None:
        """Where to count, and what the sentences are called."""
        self.tally, self.source = tally, source

    def run(self, model: nn.Module, batch: Batch, sentences: Sequence[EncodedSentence]) -> None:
        """Run the model on the sentences and count; of a layer only weights between words stay."""
        found: dict[str, list[list[Tensor]]] = {}  # of each stack, layer and sentence

        def each(call: Call) -> None:
            if call.stack == "cross":
                return
            weights = call.weights()
            self.tally.num_heads[call.stack, call.layer] = call.num_heads
            if call.stack not in found:
                found[call.stack], is_causal[call.stack] = [], looks_back(weights)
            found[call.stack].append(
                [words_of(one, sentence) for one, sentence in zip(weights, sentences, strict=True)]
            )

        is_causal: dict[str, bool] = {}
        with torch.inference_mode(), watch(model, each):
            read(model, batch)
            for stack, layers in found.items():
                self.count(stack, layers, sentences, is_causal=is_causal[stack])

    def count(
        self,
        stack: str,
        layers: list[list[Tensor]],
        sentences: Sequence[EncodedSentence],
        *,
        is_causal: bool,
    ) -> None:
        """Add the hits of every head of one stack."""
        source, heads = f"{self.source}|{stack}", sum(len(layer[0]) for layer in layers)
        if source not in self.tally.relations:
            self.tally.relations[source] = RelationScores(heads, is_causal=is_causal)
        for sentence, words in zip(sentences, zip(*layers, strict=True), strict=True):
            self.tally.relations[source].add(
                sentence.index, sentence.sentence, torch.cat(words), sentence.encoded.pieces
            )


def words_of(
    weights: Float[Tensor, "heads query key"], sentence: EncodedSentence
) -> Float[Tensor, "heads word word"]:
    """One layer's weights between the words of a sentence, its padding left out."""
    size = len(sentence.encoded.input_ids)
    return word_weights(weights[:, :size, :size].float(), sentence.encoded.word_of_token).cpu()


def looks_back(weights: Tensor) -> bool:
    """Whether no weight of a layer lies after its query."""
    return not bool(weights[0].triu(1).any())
