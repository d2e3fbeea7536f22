"""Any part of a text's attention maps, by token or by word, with or without the sink.

In: a TextAnalysis, a head or layer, and MapOptions. Out: only the requested weights, as a tensor or
as MapCells for the browser. A long text's whole map is never in memory: it is reduced in tiles.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from headwise.errors import OptionError
from headwise.explorer.api_types import AxisLabels, MapCells, MapView
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId
from headwise.measures.sequence_view import LEAST_LOG, value_lengths
from headwise.reading.labels import Labels
from headwise.reading.words import NO_WORD
from headwise.watching.sequence_weights import SequenceWeights

AT_ONCE = 1 << 21
"""Approximate number of weights computed at a time, in all heads together."""
TILE, OVERVIEW = 256, 512
"""Largest number of rows or columns in an exact part of a map, and in a reduced map."""
STEPS = 65535
"""Number of steps that weights are rounded to: the most that two bytes can hold."""
THUMB_ROWS = 8
"""Number of rows computed for each row of a thumbnail."""
LINKS = 3
"""Number of links per row: its largest weights, however small."""


@dataclass(frozen=True)
class MapOptions:
    """How maps are shown."""

    is_by_word: bool = False
    hides_special: bool = False
    drops_sink: bool = False
    """Set the first key's weight to 0 and rescale each row to sum to one."""
    is_valued: bool = False
    """Multiply each weight by the length of the vector that the key's value adds to the output."""

    @property
    def view(self) -> MapView:
        """The tokens that rows and columns stand for."""
        if self.is_by_word:
            return "words"
        return "ordinary" if self.hides_special else "pieces"


@dataclass(frozen=True)
class MapAxis:
    """The rows or columns of a map, each with a label and one or more positions."""

    labels: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.groups)


@functools.lru_cache(maxsize=64)
def map_axes(labels: Labels, options: MapOptions) -> tuple[MapAxis, MapAxis]:
    """Rows and columns of a layer's maps."""
    groups: list[tuple[int, ...]] = [(position,) for position in range(len(labels.keys))]
    if options.is_by_word:
        if not labels.word_of or not labels.is_self:
            raise OptionError("whole words are not available for this text or layer: turn them off")
        words = groupby(range(len(labels.keys)), key=labels.word_of.__getitem__)
        groups = [tuple(positions) for word, positions in words if word != NO_WORD]
        if not groups:
            raise OptionError("this text has no words, only special tokens: turn off whole words")
    elif options.hides_special and labels.is_special:
        groups = [group for group in groups if not labels.is_special[group[0]]]
        if not groups:
            raise OptionError("all tokens in this text are special: show special tokens")
    names = ("".join(labels.keys[position] for position in group) for group in groups)
    keys = MapAxis(tuple(names), tuple(groups))
    if labels.is_self:
        return keys, keys
    rows = MapAxis(labels.queries, tuple((position,) for position in range(len(labels.queries))))
    return rows, keys


def view_labels(labels: Labels) -> dict[MapView, AxisLabels]:
    """Map labels of a stack, for each view that is possible for the text."""
    by_view: dict[MapView, AxisLabels] = {}
    for options in (MapOptions(), MapOptions(is_by_word=True), MapOptions(hides_special=True)):
        try:
            rows, keys = map_axes(labels, options)
        except OptionError:
            continue
        key_labels = None if rows.labels == keys.labels else list(keys.labels)
        by_view[options.view] = AxisLabels(list(rows.labels), key_labels)
    return by_view


@torch.inference_mode()
def map_weights(
    analysis: TextAnalysis,
    layer: str,
    options: MapOptions,
    rows: slice,
    keys: slice,
    *,
    head: int | None = None,
) -> Float[Tensor, "heads row key"]:
    """Weights between `rows` and `keys` in one head of a layer, or in all its heads."""
    sequence = analysis.sequence(layer, head)
    row_axis, key_axis = map_axes(analysis.labels(layer), options)
    row_groups, key_groups = row_axis.groups[rows], key_axis.groups[keys]
    if not row_groups or not key_groups:
        return torch.zeros(sequence.num_heads, len(row_groups), len(key_groups))
    device = sequence.mixed.device
    queries = torch.tensor([*chain(*row_groups)], device=device)
    columns = torch.tensor([*chain(*key_groups)], device=device)
    low, high = int(columns.min()), int(columns.max()) + 1
    weights = _tile(sequence, queries, low, high)
    if options.drops_sink:
        rest = 1 - _tile(sequence, queries, 0, 1)
        if low == 0:
            weights[:, :, 0] = 0
        weights /= rest.masked_fill(rest <= 1e-6, 1)
    if options.is_valued:
        lengths = _value_lengths(analysis, layer)[:, None, low:high]
        weights *= lengths if head is None else lengths[head]
    if len(columns) < high - low:
        weights = weights[:, :, columns - low]
    if not options.is_by_word:
        return weights
    weights = _sum_groups(weights, key_groups, dim=2)
    sizes = torch.tensor([len(group) for group in row_groups], device=device)
    return _sum_groups(weights, row_groups, dim=1) / sizes[:, None]


def _tile(sequence: SequenceWeights, rows: Tensor, low: int, high: int) -> Tensor:
    """Weights of the queries `rows` on keys `low` to `high - 1`; 0 where a key is masked."""
    first, last = sequence.band.range_of(rows, sequence.num_keys)
    start, stop = max(low, int(first.min())), min(high, int(last.max()))
    if stop <= start:
        return torch.zeros(sequence.num_heads, len(rows), high - low, device=rows.device)
    logs = sequence.log_weights(sequence.tile(rows, start, stop))
    weights = logs.clamp_(min=LEAST_LOG).exp_()
    return pad(weights, (start - low, high - stop))


def _value_lengths(analysis: TextAnalysis, layer: str) -> Float[Tensor, "heads key"]:
    lengths = value_lengths(analysis.sequence(layer), analysis.roots(layer))
    if lengths is None:
        raise OptionError(f"{layer} returns only weights, not values: turn off weighing by values")
    return lengths


def _sum_groups(tensor: Tensor, groups: Sequence[Sequence[int]], *, dim: int) -> Tensor:
    sizes = torch.tensor([len(group) for group in groups], device=tensor.device)
    index = torch.arange(len(groups), device=tensor.device).repeat_interleave(sizes)
    shape = [*tensor.shape[:dim], len(groups), *tensor.shape[dim + 1 :]]
    return tensor.new_zeros(shape).index_add_(dim, index, tensor)


def reduce_maps(
    analysis: TextAnalysis,
    layer: str,
    options: MapOptions,
    most: int,
    *,
    head: int | None = None,
    sampled_rows: int | None = None,
) -> Float[Tensor, "heads row key"]:
    """A layer's whole maps, max-pooled to at most `most` rows and columns.

    With `sampled_rows`, compute only about that many evenly spaced rows of every block.
    """
    row_axis, key_axis = map_axes(analysis.labels(layer), options)
    height, width = (max(1, -(-len(axis) // most)) for axis in (row_axis, key_axis))
    step = 1 if sampled_rows is None else max(1, height // sampled_rows)
    block_rows = -(-height // step)
    heads = analysis.call(layer).num_heads if head is None else 1
    blocks = max(1, AT_ONCE // (heads * max(1, len(key_axis)) * block_rows))
    parts = []
    for start in range(0, len(row_axis), blocks * block_rows * step):
        rows = slice(start, min(start + blocks * block_rows * step, len(row_axis)), step)
        weights = map_weights(analysis, layer, options, rows, slice(None), head=head)
        parts.append(max_pool2d(weights, (block_rows, width), ceil_mode=True))
    return torch.cat(parts, 1) if parts else torch.zeros(heads, 0, 0)


def map_cells(
    analysis: TextAnalysis,
    head: HeadId,
    options: MapOptions,
    window: tuple[slice, slice] | None = None,
) -> MapCells:
    """The part of a head's map in `window`; the whole map if `window` is None or too large."""
    layer, axes = head.layer_name, map_axes(analysis.labels(head.layer_name), options)
    rows, keys = window or [slice(0, len(axis)) for axis in axes]
    if max(part.stop - part.start for part in (rows, keys)) <= TILE:
        weights = map_weights(analysis, layer, options, rows, keys, head=head.head)[0]
    else:
        rows, keys = (slice(0, len(axis)) for axis in axes)
        weights = reduce_maps(analysis, layer, options, OVERVIEW, head=head.head)[0]
    largest = 1.0
    if options.is_valued:
        largest = float(_value_lengths(analysis, layer)[head.head].max())
    steps = (weights / (largest or 1) * STEPS).round().clamp(0, STEPS)
    return MapCells(
        rows=[rows.start, rows.stop],
        keys=[keys.start, keys.stop],
        shape=list(weights.shape),
        values=steps.to(torch.int32).cpu().numpy().astype("<u2").tobytes(),
        largest=largest,
        tile=TILE,
    )


def thumbnails(
    analysis: TextAnalysis, layer: str, options: MapOptions, size: int
) -> npt.NDArray[np.uint8]:
    """A layer's reduced maps as bytes: square roots of weights, so that small ones show."""
    weights = reduce_maps(analysis, layer, options, size, sampled_rows=THUMB_ROWS)
    return (weights.clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu().numpy()


def strongest_links(
    analysis: TextAnalysis, head: HeadId, options: MapOptions, rows: slice
) -> list[list[int | float]]:
    """Row, key and weight of the largest weights in each of `rows`, except zeros."""
    plain = replace(options, is_valued=False)
    weights = map_weights(analysis, head.layer_name, plain, rows, slice(None), head=head.head)[0]
    values, places = weights.topk(min(LINKS, weights.shape[1]), dim=1)
    return [
        [row, key, weight]
        for row, pairs in enumerate(zip(values.tolist(), places.tolist(), strict=True), rows.start)
        for value, key in zip(*pairs, strict=True)
        if (weight := round(value, 4)) > 0
    ]
