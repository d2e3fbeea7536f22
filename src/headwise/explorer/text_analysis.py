"""Readings: one text, read once, and everything that a model's heads did with it.

In: a model and a text. Out: what every layer computed, kept so that any part of any map can be
asked for later, and every measure of every head on this text. Nothing here is ever a whole tensor
of weights.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadId, HeadTable, abbreviate, check_head
from headwise.measures.counter import HeadCounter, LayerCache, RowChoice, make_measures
from headwise.measures.head_sums import HeadSums
from headwise.pruning.setting import Subject
from headwise.reading.batch import Batch
from headwise.reading.labels import Labels, token_labels
from headwise.reading.reader import Reader
from headwise.scans.tables import head_table
from headwise.watching.calls import Call, WeightsCall, at_least_float32
from headwise.watching.running import forward_batch, in_evaluation
from headwise.watching.sequence_weights import SequenceWeights
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

LONGEST = 4096
"""Tokens that are read at most, whatever the model could take."""
ROWS_MEASURED = 512
"""Rows of a text, drawn at random where it has more, that measures are means of."""
Progress = Callable[[int, int], None]
"""Told how many of how many layers are done; may raise to stop the work."""


@dataclass(frozen=True, eq=False)
class TextAnalysis:
    """A text that a model has read."""

    name: str
    """A digest of the text."""
    batch: Batch
    calls: Mapping[str, Call]
    """By layer's name, in the order of the layers."""
    table: HeadTable
    """Every measure on this text alone."""
    left_out: int
    """Tokens of the text that were too many."""
    tokenizer: object = field(repr=False)
    kept: LayerCache = field(repr=False)

    def call(self, layer: str) -> Call:
        """One layer's attention."""
        if layer not in self.calls:
            raise OptionError(f"there is no layer {layer}: it has {abbreviate(list(self.calls))}")
        return self.calls[layer]

    def checked(self, head: HeadId) -> HeadId:
        """The head, if the model has it."""
        return check_head(head, {name: call.num_heads for name, call in self.calls.items()})

    def sequence(self, layer: str, head: int | None = None) -> SequenceWeights:
        """The layer's weights, or one head's, ready to be worked out a block at a time."""
        if layer not in self._sequences:
            self._sequences[layer] = self.call(layer).sequence(0, slice(None), slice(None))
        found = self._sequences[layer]
        return found if head is None else found.of_head(head)

    def labels(self, layer: str) -> Labels:
        """What stands at each position of the layer's queries and keys."""
        call = self.call(layer)
        if call.stack not in self._labels:
            found = token_labels(
                self.batch, call.stack, self.tokenizer, call.num_queries, call.num_keys
            )
            self._labels[call.stack] = found
        return self._labels[call.stack]

    def roots(self, layer: str) -> Tensor | None:
        """Small matrices that give lengths after each head's part of the output projection."""
        return self.kept.output_roots(self.call(layer))

    @cached_property
    def _sequences(self) -> dict[str, SequenceWeights]:
        return {}

    @cached_property
    def _labels(self) -> dict[str, Labels]:
        return {}

    @property
    def num_tokens(self) -> int:
        """Tokens that were read."""
        return self.batch.num_tokens

    @property
    def num_measured(self) -> int:
        """Rows that every measure is a mean of."""
        return min(self.num_tokens, ROWS_MEASURED)

    @cached_property
    def bytes(self) -> int:
        """What is kept of it in memory, roughly, once every layer was looked at."""
        return sum(bytes_of(one) for call in self.calls.values() for one in tensors_of(call))


def tensors_of(call: Call) -> tuple[Tensor, ...]:
    """The large tensors that a call holds."""
    if isinstance(call, WeightsCall):
        return call.known_weights, call.mixed
    return call.queries, call.keys, call.values, call.mixed


def bytes_of(tensor: Tensor) -> int:
    """What a tensor takes in memory, with the wider copy that a sequence has of half precision."""
    wide = at_least_float32(tensor)
    copied = 0 if wide == tensor.dtype else wide.itemsize
    return tensor.numel() * (tensor.element_size() + copied)


def name_of(text: str) -> str:
    """A short name that the same text always has."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_heads_left(name: str, layers: Collection[str]) -> None:
    """Raise where no layer of the model has a head."""
    if not layers:
        raise ModelError(f"{name} has no head left to look at")


def read(subject: Subject, text: str, *, progress: Progress | None = None) -> TextAnalysis:
    """Let the model read a text, or its beginning where it is too long."""
    reader = Reader(subject.tokenizer, subject.model.config, length=LONGEST)
    window = reader.windows([text])[0]
    batch = reader.batch([window], subject.device)
    total = len(find_sites(subject.model))
    sums, kept = HeadSums(), LayerCache()
    count = HeadCounter(sums, make_measures(), RowChoice(ROWS_MEASURED), compares=False, cache=kept)
    calls: dict[str, Call] = {}

    def each(call: Call) -> None:
        calls[call.site.layer_name] = call
        count.add(call, batch)
        if progress is not None:
            progress(len(calls), total)

    model = subject.model
    with torch.inference_mode(), in_evaluation(model), watch(model, each, needs_lse=True):
        forward_batch(model, batch.inputs)
    check_heads_left(subject.name, calls)
    table = head_table(sums, {"model": subject.name})
    around = sum(map(len, reader.around))
    return TextAnalysis(
        name=name_of(text),
        batch=batch,
        calls=calls,
        table=table,
        left_out=len(reader.ids(text)) + around - len(window.ids),
        tokenizer=subject.tokenizer,
        kept=kept,
    )


class AnalysisCache:
    """The last few readings, as many as fit."""

    def __init__(self, *, most: int = 8, most_bytes: int = 1 << 30) -> None:
        """How many, and how large together; the last one always stays."""
        self.most, self.most_bytes = most, most_bytes
        self._kept: OrderedDict[str, TextAnalysis] = OrderedDict()
        self._lock = threading.Lock()  # readings are put by one thread and found by another

    def put(self, reading: TextAnalysis) -> None:
        """Keep a reading, and let go of the oldest ones that no longer fit."""
        with self._lock:
            self._kept[reading.name] = reading
            self._kept.move_to_end(reading.name)
            while len(self._kept) > 1 and (
                len(self._kept) > self.most
                or sum(one.bytes for one in self._kept.values()) > self.most_bytes
            ):
                self._kept.popitem(last=False)

    def find(self, name: str) -> TextAnalysis | None:
        """A reading that is still there."""
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
            return found

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)
