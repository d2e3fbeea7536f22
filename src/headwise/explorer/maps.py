"""Looks: parts of one layer's maps as they are looked at: by piece or word, with or without sink.

In: a reading, a layer, which rows and which keys. Out: just those weights, merged, weighted and
thinned out as asked. A map of 2,048 tokens is never there as a whole.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId
from headwise.measures.sequence_view import LEAST_LOG, value_lengths
from headwise.reading.labels import Labels
from headwise.reading.words import NO_WORD
from headwise.watching.sequence_weights import SequenceWeights as Weights

AT_ONCE = 1 << 21
"""Weights, over all heads of a layer, that are worked out at a time."""
TILE, OVERVIEW = 256, 512
"""Most rows and columns of a part of a map that is sent, and of a whole one thinned out."""
STEPS = 65535
"""A weight is sent as one of so many steps: two bytes, and no more error than a printed digit."""


@dataclass(frozen=True)
class MapOptions:
    """How maps are looked at."""

    is_by_word: bool = False
    hides_special: bool = False
    drops_sink: bool = False
    """The first key left out, and what remains of each row made to sum to one again."""
    is_valued: bool = False
    """Weights times the length of what each value adds to the output."""


@dataclass(frozen=True)
class MapAxis:
    """What the rows or columns of a map are: each a run of one or more positions."""

    labels: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        """Rows or columns."""
        return len(self.groups)

    def positions(self, part: slice) -> list[int]:
        """Every position of some rows or columns."""
        return [position for group in self.groups[part] for position in group]

    def sizes(self, part: slice) -> list[int]:
        """How many positions each of them has."""
        return [len(group) for group in self.groups[part]]


@functools.lru_cache(maxsize=64)
def axes_of(labels: Labels, look: MapOptions) -> tuple[MapAxis, MapAxis]:
    """Rows and columns of a layer's maps."""
    sides = labels.queries, labels.keys
    rows, keys = (tuple((place,) for place in range(len(side))) for side in sides)
    if look.is_by_word:
        if not labels.word_of or not labels.is_self:
            raise OptionError("words are not known here: look at pieces")
        words = groups_by(labels.word_of)
        if not words:
            raise OptionError("there are no words: all tokens are special ones; look at pieces")
        axis = MapAxis(tuple("".join(labels.keys[one] for one in word) for word in words), words)
        return axis, axis
    if look.hides_special and labels.is_special:
        ordinary = tuple((one,) for one, special in enumerate(labels.is_special) if not special)
        if not ordinary:
            raise OptionError("all tokens are special ones: look at them, too")
        keys, rows = ordinary, ordinary if labels.is_self else rows
    return axis_of(labels.queries, rows), axis_of(labels.keys, keys)


def axis_of(labels: Sequence[str], groups: tuple[tuple[int, ...], ...]) -> MapAxis:
    """Single positions as they are labelled."""
    return MapAxis(tuple(labels[group[0]] for group in groups), groups)


def groups_by(word_of: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Positions of each word, in order; those of no word are left out."""
    found: dict[int, list[int]] = {}
    for position, word in enumerate(word_of):
        if word != NO_WORD:
            found.setdefault(word, []).append(position)
    return tuple(tuple(found[word]) for word in sorted(found))


@torch.inference_mode()
def weights_between(
    reading: TextAnalysis,
    layer: str,
    look: MapOptions,
    rows: slice,
    keys: slice,
    *,
    head: int | None = None,
) -> Float[Tensor, "heads row key"]:
    """Weights of all heads of a layer, or of one, between some rows and some keys."""
    sequence = reading.sequence(layer, head)
    row_axis, key_axis = axes_of(reading.labels(layer), look)
    device = sequence.mixed.device
    queries = torch.tensor(row_axis.positions(rows), device=device)
    columns = torch.tensor(key_axis.positions(keys), device=device)
    if not len(queries) or not len(columns):
        return torch.zeros(
            sequence.num_heads, len(row_axis.groups[rows]), len(key_axis.groups[keys])
        )
    low, high = int(columns.min()), int(columns.max()) + 1
    found = exact(sequence, queries, low, high)
    if look.drops_sink:
        first = exact(sequence, queries, 0, 1)
        if low == 0:
            found[:, :, 0] = 0
        rest = 1 - first
        found /= rest.masked_fill(rest <= 1e-6, 1)
    if look.is_valued:
        of_all = lengths(reading, layer)[:, None, low:high]
        found *= of_all if head is None else of_all[head]
    if len(columns) < high - low:
        found = found[:, :, columns - low]
    if not look.is_by_word:
        return found
    found = added(found, key_axis.sizes(keys), dim=2)
    sizes = row_axis.sizes(rows)
    return added(found, sizes, dim=1) / torch.tensor(sizes, device=device)[:, None]


def exact(sequence: Weights, rows: Tensor, low: int, high: int) -> Tensor:
    """Weights between some positions and the keys `low..high`; none where no row may look."""
    seen_from, seen_to = sequence.band.range_of(rows, sequence.num_keys)
    start, stop = max(low, int(seen_from.min())), min(high, int(seen_to.max()))
    if stop <= start:
        return torch.zeros(sequence.num_heads, len(rows), high - low, device=rows.device)
    logs = sequence.log_weights(sequence.tile(rows, start, stop))
    found = logs.clamp_(min=LEAST_LOG).exp_()
    return torch.nn.functional.pad(found, (start - low, high - stop))


def lengths(reading: TextAnalysis, layer: str) -> Float[Tensor, "heads key"]:
    """How long what each key's value adds to the output is, head by head."""
    found = value_lengths(reading.sequence(layer), reading.roots(layer))
    if found is None:
        raise OptionError(f"{layer} shows its weights alone: it has no values to weigh them by")
    return found


def added(tensor: Tensor, sizes: Sequence[int], *, dim: int) -> Tensor:
    """Neighbours along an axis added up, so many at a time."""
    place = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(tensor.device)
    shape = list(tensor.shape)
    shape[dim] = len(sizes)
    return tensor.new_zeros(shape).index_add_(dim, place, tensor)


def thinned(
    reading: TextAnalysis,
    layer: str,
    look: MapOptions,
    most: int,
    *,
    head: int | None = None,
    looked_at: int | None = None,
) -> Float[Tensor, "heads row key"]:
    """The whole maps of a layer in at most so many rows and columns: the largest of each block.

    Of every block about `looked_at` rows are worked out, evenly spread, if that is given.
    """
    row_axis, key_axis = axes_of(reading.labels(layer), look)
    tall, wide = (max(1, -(-len(axis) // most)) for axis in (row_axis, key_axis))
    step = 1 if looked_at is None else max(1, tall // looked_at)
    of_block = -(-tall // step)
    heads = reading.call(layer).num_heads if head is None else 1
    blocks = max(1, AT_ONCE // (heads * max(1, len(key_axis)) * of_block))
    parts = []
    for start in range(0, len(row_axis), blocks * of_block * step):
        rows = slice(start, min(start + blocks * of_block * step, len(row_axis)), step)
        whole = slice(0, len(key_axis))
        weights = weights_between(reading, layer, look, rows, whole, head=head)
        parts.append(largest_of_blocks(weights, of_block, wide))
    return torch.cat(parts, 1) if parts else torch.zeros(heads, 0, 0)


def largest_of_blocks(weights: Tensor, tall: int, wide: int) -> Tensor:
    """The largest number of every block of so many rows and columns."""
    rows, columns = -(-weights.shape[1] // tall), -(-weights.shape[2] // wide)
    padding = (0, columns * wide - weights.shape[2], 0, rows * tall - weights.shape[1])
    padded = torch.nn.functional.pad(weights, padding) if any(padding) else weights
    found: Tensor = padded.unflatten(2, (columns, wide)).amax(3).unflatten(1, (rows, tall)).amax(2)
    return found


def part_of_map(
    reading: TextAnalysis, head: HeadId, look: MapOptions, rows: slice, keys: slice
) -> tuple[npt.NDArray[np.uint16], float]:
    """A part of one head's map as steps, and what the largest step stands for."""
    found = weights_between(reading, head.layer_name, look, rows, keys, head=head.head)[0]
    return as_steps(found, largest := scale(reading, head, look)), largest


def whole_map(
    reading: TextAnalysis, head: HeadId, look: MapOptions, most: int = OVERVIEW
) -> tuple[npt.NDArray[np.uint16], float]:
    """One head's whole map, thinned out, as steps, and what the largest step stands for."""
    found = thinned(reading, head.layer_name, look, most, head=head.head)[0]
    return as_steps(found, largest := scale(reading, head, look)), largest


def scale(reading: TextAnalysis, head: HeadId, look: MapOptions) -> float:
    """The largest number that a head's map can have: the same for all its parts."""
    return float(lengths(reading, head.layer_name)[head.head].max()) if look.is_valued else 1.0


def as_steps(weights: Tensor, largest: float) -> npt.NDArray[np.uint16]:
    """Numbers from 0 to the largest, as steps of two bytes."""
    steps = (weights / (largest or 1) * STEPS).round().clamp(0, STEPS)
    return steps.to(torch.int32).cpu().numpy().astype("<u2")


def as_bytes(weights: Tensor) -> npt.NDArray[np.uint8]:
    """Roots of weights as single bytes: what is small stays visible in a small picture."""
    return (weights.clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu().numpy()
