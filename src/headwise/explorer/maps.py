"""Any part of a text's attention maps, by token or by word, with or without the sink.

In: a TextAnalysis, a head or layer, and MapOptions. Out: only the requested weights, as a tensor or
as bytes. A long text's whole map is never in memory: it is reduced in tiles.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import max_pool1d, max_pool2d, pad

from headwise.errors import OptionError
from headwise.explorer.api_requests import BarsQuery
from headwise.explorer.api_types import StackAxes, StageAxis, StageWord
from headwise.explorer.stage_words import NO_TOKENS
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId
from headwise.measures.sequence_view import LEAST_LOG, value_lengths
from headwise.reading.batch import query_stack
from headwise.watching.sequence_weights import SequenceWeights

AT_ONCE = 1 << 21
"""Approximate number of weights computed at a time, in all heads together."""
TILE, OVERVIEW = 256, 512
"""Largest number of rows or columns in an exact part of a map, and in a reduced map."""
STEPS = 65535
"""Number of steps that weights are rounded to: the most that two bytes can hold."""
THUMB_ROWS = 8
"""Number of rows computed for each row of a thumbnail."""
MAX_SMALL = 1 << 22
"""Largest number of weights of all heads that are sent at once: 8 MiB."""
LEAST_SUM = 1e-6
"""Smallest sum of a row that is rescaled to one: the rest of a row is noise below it."""
EVERY = slice(None)


@dataclass(frozen=True)
class MapOptions:
    """How maps are shown."""

    is_by_word: bool = False
    drops_sink: bool = False
    """Set the first key's weight to 0 and rescale each row to sum to one."""
    is_valued: bool = False
    """Weigh each key by the length of the vector that its value adds; rows still sum to one."""


@dataclass(frozen=True)
class MapAxis:
    """The rows or columns of a map: words, or pieces of words, with one or more positions each."""

    words: tuple[StageWord, ...]
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of_pieces(cls, pieces: tuple[StageWord, ...]) -> "MapAxis":
        """One row or column per token."""
        return cls(pieces, tuple((position,) for position in range(len(pieces))))

    def __len__(self) -> int:
        return len(self.groups)


def map_axes(analysis: TextAnalysis, layer: str, options: MapOptions) -> tuple[MapAxis, MapAxis]:
    """Rows and columns of a layer's maps."""
    call, stage = analysis.call(layer), analysis.stage
    sizes = (call.num_queries, call.num_keys)
    are_tokens = [size == len(stage.pieces) for size in sizes]
    if options.is_by_word:
        if not stage.groups or not all(are_tokens):
            reason = stage.why_no_words or NO_TOKENS
            raise OptionError(f"whole words are not available: {reason}; turn them off")
        axis = MapAxis(stage.words, stage.groups)
        return axis, axis
    rows, keys = (
        MapAxis.of_pieces(stage.pieces if is_tokens else _numbered(size))
        for size, is_tokens in zip(sizes, are_tokens, strict=True)
    )
    return rows, keys


def _numbered(size: int) -> tuple[StageWord, ...]:
    """Words for positions that are not tokens: their numbers."""
    return tuple(StageWord(str(number), number > 0, "word") for number in range(size))


def stack_axes(analysis: TextAnalysis, layer: str) -> StackAxes:
    """Words and pieces of a stack that contains `layer`."""
    by_word = None
    with suppress(OptionError):
        by_word = _stage_axis(analysis, layer, MapOptions(is_by_word=True))
    return StackAxes(by_word, _stage_axis(analysis, layer, MapOptions()))


def _stage_axis(analysis: TextAnalysis, layer: str, options: MapOptions) -> StageAxis:
    rows, keys = map_axes(analysis, layer, options)
    is_self = query_stack(stack := analysis.call(layer).stack) == stack and rows.words == keys.words
    return StageAxis(list(rows.words), None if is_self else list(keys.words))


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
    row_axis, key_axis = map_axes(analysis, layer, options)
    row_groups, key_groups = row_axis.groups[rows], key_axis.groups[keys]
    if not row_groups or not key_groups:
        return torch.zeros(sequence.num_heads, len(row_groups), len(key_groups))
    device = sequence.mixed.device
    queries = torch.tensor([*chain(*row_groups)], device=device)
    columns = torch.tensor([*chain(*key_groups)], device=device)
    low, high = int(columns.min()), int(columns.max()) + 1
    if options.drops_sink or options.is_valued:
        weights = _rescaled(analysis, layer, options, queries, head)[:, :, low:high]
    else:
        weights = _tile(sequence, queries, low, high)
    if len(columns) < high - low:
        weights = weights[:, :, columns - low]
    if not options.is_by_word:
        return weights
    weights = _sum_groups(weights, key_groups, dim=2)
    sizes = torch.tensor([len(group) for group in row_groups], device=device)
    return _sum_groups(weights, row_groups, dim=1) / sizes[:, None]


def _rescaled(
    analysis: TextAnalysis, layer: str, options: MapOptions, rows: Tensor, head: int | None
) -> Float[Tensor, "heads row key"]:
    """Weights of the queries `rows` on all keys, changed as the options say, as shares of one."""
    sequence = analysis.sequence(layer, head)
    weights = _tile(sequence, rows, 0, sequence.num_keys)
    if options.drops_sink:
        weights[:, :, 0] = 0
    if options.is_valued:
        lengths = _value_lengths(analysis, layer)[:, None]
        weights *= lengths if head is None else lengths[head]
    sums = weights.sum(-1, keepdim=True)
    return weights / sums.masked_fill(sums <= LEAST_SUM, 1)


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
    row_axis, key_axis = map_axes(analysis, layer, options)
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
) -> Float[Tensor, "row key"]:
    """The part of a head's map in `window`; the whole map, perhaps reduced, if it is None."""
    layer, axes = head.layer_name, map_axes(analysis, head.layer_name, options)
    rows, keys = window or [slice(0, len(axis)) for axis in axes]
    if max(part.stop - part.start for part in (rows, keys)) <= TILE:
        return map_weights(analysis, layer, options, rows, keys, head=head.head)[0]
    return reduce_maps(analysis, layer, options, OVERVIEW, head=head.head)[0]


def thumbnails(
    analysis: TextAnalysis, layer: str, options: MapOptions, size: int
) -> npt.NDArray[np.uint8]:
    """A layer's reduced maps as bytes: square roots of weights, so that small ones show."""
    weights = reduce_maps(analysis, layer, options, size, sampled_rows=THUMB_ROWS)
    return (weights.clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu().numpy()


def as_steps(shares: Tensor) -> bytes:
    """Shares as two bytes each, little-endian; 65535 means 1."""
    steps = (shares * STEPS).round().clamp(0, STEPS)
    return steps.to(torch.int32).cpu().numpy().astype("<u2").tobytes()


def stack_layers(analysis: TextAnalysis, stack: str) -> list[str]:
    """Names of a stack's layers, in order."""
    layers = [name for name, call in analysis.calls.items() if call.stack == stack]
    if not layers:
        stacks = ", ".join(dict.fromkeys(repr(call.stack) for call in analysis.calls.values()))
        raise OptionError(f"stack is {stack[:40]!r}: choose from {stacks}", option="stack")
    return layers


def fits_at_once(analysis: TextAnalysis) -> bool:
    """Whether the weights of all heads between all pieces may be sent at once."""
    calls = analysis.calls.values()
    return sum(call.num_heads * call.num_queries * call.num_keys for call in calls) <= MAX_SMALL


def stack_weights(
    analysis: TextAnalysis, stack: str, options: MapOptions
) -> Float[Tensor, "heads row key"]:
    """All weights of all heads in a stack, layer by layer."""
    layers = stack_layers(analysis, stack)
    rows, keys = (len(axis) for axis in map_axes(analysis, layers[0], options))
    count = sum(analysis.call(layer).num_heads for layer in layers) * rows * keys
    if count > MAX_SMALL:
        raise OptionError(
            f"all heads have {count:,} weights on this text: request at most {MAX_SMALL:,}, or one "
            "head's map"
        )
    parts = [map_weights(analysis, layer, options, EVERY, EVERY) for layer in layers]
    return torch.cat(parts)


def map_row(
    analysis: TextAnalysis, head: HeadId, options: MapOptions, at: int, *, by: bool = False
) -> Float[Tensor, " key"]:
    """Shares of row `at` in a head's map; with `by`, of column `at`."""
    _check_place(map_axes(analysis, head.layer_name, options)[int(by)], at)
    part = slice(at, at + 1)
    rows, keys = (EVERY, part) if by else (part, EVERY)
    return map_weights(analysis, head.layer_name, options, rows, keys, head=head.head).flatten()


def map_bars(
    analysis: TextAnalysis, options: MapOptions, query: BarsQuery
) -> npt.NDArray[np.uint8]:
    """A row or column of a stack's heads as bytes: the largest share in each of `size` blocks."""
    layers = stack_layers(analysis, query.stack)
    axes = map_axes(analysis, layers[0], options)
    _check_place(axes[int(query.by)], query.at)
    width = max(1, -(-len(axes[1 - int(query.by)]) // query.size))
    part = slice(query.at, query.at + 1)
    rows, keys = (EVERY, part) if query.by else (part, EVERY)
    parts = [map_weights(analysis, layer, options, rows, keys).flatten(1) for layer in layers]
    blocks = max_pool1d(torch.cat(parts), width, ceil_mode=True)
    return (blocks.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()


def _check_place(axis: MapAxis, at: int) -> None:
    if not at < len(axis):
        raise OptionError(f"at is {at}: this text has places 0..{len(axis) - 1}", option="at")
