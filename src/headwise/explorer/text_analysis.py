"""Read a text once: record every layer's attention call and every head's measures.

In: a model and a text. Out: a TextAnalysis, from which maps.py computes any part of any map later.
No weight matrix is ever stored whole. AnalysisCache keeps the last few analyses.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from headwise.errors import ModelError, OptionError
from headwise.explorer.stage_words import StageText, Tokens, read_stage_text
from headwise.head_table import HeadTable
from headwise.heads import abbreviate
from headwise.measures.counter import HeadCounter, LayerCache, RowChoice, make_measures
from headwise.measures.head_sums import HeadSums
from headwise.models.loaded import LoadedModel
from headwise.progress import Progress, no_progress
from headwise.reading.batch import Batch
from headwise.reading.reader import Reader
from headwise.scans.tables import head_table
from headwise.watching.calls import Call, WeightsCall, at_least_float32
from headwise.watching.running import forward_batch, in_evaluation
from headwise.watching.sequence_weights import SequenceWeights
from headwise.watching.sites import find_sites
from headwise.watching.watch import watch

STAGE = "Reading layer {done} of {total}"
LONGEST = 4096
"""Largest number of tokens read, even if the model could read more."""
ROWS_MEASURED = 512
"""Largest number of rows that measures average over; longer texts are sampled."""


@dataclass(frozen=True, eq=False, repr=False)
class TextAnalysis:
    """A text that a model has read."""

    name: str
    """A digest of the text."""
    batch: Batch
    calls: Mapping[str, Call]
    """Attention calls by layer name, in layer order."""
    table: HeadTable
    """Every head's measures on this text only."""
    left_out: int
    """Number of tokens at the end of the text that were not read."""
    text: str
    stage: StageText
    """The text's words and pieces."""
    layer_cache: LayerCache
    _sequences: dict[str, SequenceWeights] = field(default_factory=dict)

    def call(self, layer: str) -> Call:
        """The attention call of a layer."""
        if layer not in self.calls:
            layers = abbreviate(list(self.calls))
            raise OptionError(f"layer is {layer!r}: the model has {layers}", option="layer")
        return self.calls[layer]

    def sequence(self, layer: str, head: int | None = None) -> SequenceWeights:
        """Weights of a layer or of one of its heads, computed tile by tile on request."""
        if layer not in self._sequences:
            self._sequences[layer] = self.call(layer).sequence(0, slice(None), slice(None))
        sequence = self._sequences[layer]
        return sequence if head is None else sequence.of_head(head)

    def roots(self, layer: str) -> Tensor | None:
        """One matrix per head that changes lengths as Wo does; None if Wo is unknown."""
        return self.layer_cache.output_roots(self.call(layer))

    @cached_property
    def rests_on_first(self) -> bool:
        """Whether no row sees later keys, so that heads may rest on the first token."""
        sequence = self.sequence(next(iter(self.calls)))
        return sequence.band.is_causal

    @cached_property
    def bytes(self) -> int:
        """Approximate number of bytes in memory once every layer has been shown."""
        total = 0
        for call in self.calls.values():
            if isinstance(call, WeightsCall):
                tensors = [call.known_weights, call.mixed]
            else:
                tensors = [call.queries, call.keys, call.values, call.mixed]
            for tensor in tensors:
                wide = at_least_float32(tensor)  # sequences copy half precision to float32
                copied = 0 if wide == tensor.dtype else wide.itemsize
                total += tensor.numel() * (tensor.element_size() + copied)
        return total


def text_name(text: str) -> str:
    """A short digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_heads_left(name: str, layers: Collection[str]) -> None:
    """Raise ModelError if no layer of the model has a head."""
    if not layers:
        raise ModelError(f"{name} has no heads left: choose a model with attention heads")


def analyse_text(
    loaded: LoadedModel, text: str, *, progress: Progress = no_progress
) -> TextAnalysis:
    """Run the model on a text, or on its beginning if it is too long."""
    model = loaded.model
    reader = Reader(loaded.tokenizer, model.config, length=LONGEST)
    window = reader.windows([text])[0]
    batch = reader.batch([window], loaded.device)
    num_layers = len(find_sites(model))
    sums, layer_cache = HeadSums(), LayerCache()
    counter = HeadCounter(
        sums, make_measures(), RowChoice(ROWS_MEASURED), compares=False, cache=layer_cache
    )
    calls: dict[str, Call] = {}
    tokens = Tokens.of_window(reader, window)

    def add(call: Call) -> None:
        calls[call.site.layer_name] = call
        counter.add(call, batch)
        progress(STAGE, len(calls), num_layers)

    with torch.inference_mode(), in_evaluation(model), watch(model, add, needs_lse=True):
        forward_batch(model, batch.inputs)
    check_heads_left(loaded.name, calls)
    return TextAnalysis(
        name=text_name(text),
        batch=batch,
        calls=calls,
        table=head_table(sums, {"model": loaded.name}),
        left_out=len(reader.ids(text)) + reader.num_around - len(window.ids),
        text=text,
        stage=replace(read_stage_text(text, tokens), is_unknown=tokens.is_unknown),
        layer_cache=layer_cache,
    )


class AnalysisCache:
    """The most recently used analyses, by the name of their text."""

    def __init__(self, *, most: int = 8, most_bytes: int = 1 << 30) -> None:
        """Keep at most `most` analyses and `most_bytes` bytes, but always the last analysis."""
        self.most, self.most_bytes = most, most_bytes
        self._analyses: OrderedDict[str, TextAnalysis] = OrderedDict()
        self._lock = threading.Lock()  # one thread adds analyses, another reads them

    def put(self, analysis: TextAnalysis) -> None:
        """Add an analysis, then drop the least recently used ones until the rest fit."""
        with self._lock:
            self._analyses[analysis.name] = analysis
            self._analyses.move_to_end(analysis.name)
            while len(self._analyses) > 1 and (
                len(self._analyses) > self.most
                or sum(each.bytes for each in self._analyses.values()) > self.most_bytes
            ):
                self._analyses.popitem(last=False)

    def get(self, name: str) -> TextAnalysis | None:
        """The analysis of a text; None if it was dropped."""
        with self._lock:
            if name in self._analyses:
                self._analyses.move_to_end(name)
            return self._analyses.get(name)
