"""Computation: queries, keys and values with their rules, checked; what every path computes.

In: tensors and `Rules`. Out: a `Computation` whose sizes agree and whose structure is as simple as
possible, and the bias it adds to any tile of the scores. How it is computed: see paths, kernels.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.attention.kernels import Mixed, can_be_read
from headwise.attention.rules import Band, Rules, as_4d_mask, restrict_mask
from headwise.errors import MaskError, ShapeError


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """One attention computation, checked and ready; heads grouped over `kv_heads` as they came."""

    queries: Float[Tensor, "batch heads query d_key"]
    keys: Float[Tensor, "batch kv_heads key d_key"]
    values: Float[Tensor, "batch kv_heads key d_value"]
    band: Band
    scale: float
    mask: Tensor | None
    rules: Rules
    """For slopes, distance_bias, softcap, sinks and dropout; the rest is resolved above."""

    @property
    def groups(self) -> int:
        """Query heads served by each KV head."""
        return self.queries.shape[1] // self.keys.shape[1]

    @property
    def num_queries(self) -> int:
        """Rows of the weight matrix."""
        return self.queries.shape[2]

    @property
    def num_keys(self) -> int:
        """Columns of the weight matrix."""
        return self.keys.shape[2]

    @property
    def has_bias(self) -> bool:
        """Something other than structure is added to the scores."""
        return (
            self.mask is not None
            or self.rules.slopes is not None
            or self.rules.distance_bias is not None
        )


def make_task(queries: Tensor, keys: Tensor, values: Tensor, rules: Rules) -> Computation:
    """Rules and tensors as one checked task; the rules hold no lengths, and one offset for all."""
    values = check_sizes(queries, keys, values)
    num_queries, num_keys = queries.shape[2], keys.shape[2]
    offset = num_keys - num_queries if rules.offset is None else rules.offset
    assert not isinstance(offset, Tensor), "sequences with their own offsets come one by one"
    band = Band(*rules.bounds, offset)
    if not band.is_full:
        band = band.simplified(num_queries, num_keys)
    mask = None if rules.mask is None else checked_mask(rules.mask, queries, num_keys)
    scale = 1 / math.sqrt(queries.shape[-1]) if rules.scale is None else rules.scale
    if scale <= 0:  # the fused kernel scales after it has blocked, which turns -inf around
        queries, scale = queries * scale, 1.0
    return Computation(queries, keys, values, band, scale, mask, rules)


def drop_hidden_keys(task: Computation) -> Computation:
    """The task without the keys that no query can see."""
    if task.band.is_full:
        return task
    low, high = task.band.keys_of(0, task.num_queries - 1, task.num_keys)
    if (low, high) == (0, task.num_keys):
        return task
    mask = task.mask
    if mask is not None and mask.shape[-1] != 1:
        mask = mask[..., low:high]
    band = replace(task.band, offset=task.band.offset - low)
    return replace(
        task,
        keys=task.keys[:, :, low:high],
        values=task.values[:, :, low:high],
        mask=mask,
        band=band.simplified(task.num_queries, high - low),
    )


def shapes_of(queries: Tensor, keys: Tensor, values: Tensor) -> str:
    """What was given, for a message."""
    shapes = [list(tensor.shape) for tensor in (queries, keys, values)]
    return "got queries {}, keys {}, values {}".format(*shapes)


def are_tensors(queries: object, keys: object, values: object) -> bool:
    """Whether all three are tensors."""
    return isinstance(queries, Tensor) and isinstance(keys, Tensor) and isinstance(values, Tensor)


def check_axes(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Raise unless all three have the four axes of attention."""
    if not are_tensors(queries, keys, values):
        kinds = ", ".join(type(one).__name__ for one in (queries, keys, values))
        raise ShapeError(f"attention takes tensors; queries, keys and values are {kinds}")
    if not queries.dim() == keys.dim() == values.dim() == 4:
        got = shapes_of(queries, keys, values)
        raise ShapeError(f"attention takes [batch, heads, position, size] tensors; {got}")


def check_sizes(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The values, spread over batch and KV heads; raises where the three tensors cannot meet."""

    def got() -> str:
        return shapes_of(queries, keys, values)

    check_axes(queries, keys, values)
    batch, kv_heads, num_keys, d_key = keys.shape
    if queries.shape[0] != batch or queries.shape[3] != d_key or values.shape[2] != num_keys:
        raise ShapeError(
            f"queries and keys must share batch and d_key, keys and values their positions; {got()}"
        )
    if d_key == 0:
        raise ShapeError(f"heads of size 0 have no scores; {got()}")
    if kv_heads == 0 or queries.shape[1] % kv_heads:
        raise ShapeError(
            f"{queries.shape[1]} heads cannot share {kv_heads} KV heads evenly; {got()}"
        )
    if values.shape[:2] != keys.shape[:2]:
        if values.shape[0] not in (1, batch) or values.shape[1] not in (1, kv_heads):
            raise ShapeError(f"values must have the keys' batch and KV heads, or 1; {got()}")
        values = values.expand(batch, kv_heads, -1, -1)
    if not queries.dtype == keys.dtype == values.dtype:
        raise ShapeError(
            f"queries, keys and values must share a dtype; got {queries.dtype}, {keys.dtype}, "
            f"{values.dtype}"
        )
    if not queries.is_floating_point():
        raise ShapeError(
            f"queries, keys and values are {queries.dtype}: attention takes floating numbers"
        )
    return values


def checked_mask(mask: Tensor, queries: Tensor, num_keys: int) -> Tensor:
    """The mask with four axes, each 1 or the task's own size."""
    is_integer = not mask.is_floating_point() and mask.dtype != torch.bool
    if is_integer and can_be_read(mask) and bool((mask * mask != mask).any()):
        raise MaskError(
            f"the mask is {mask.dtype} and holds numbers from {int(mask.min())} to "
            f"{int(mask.max())}: integers are 1 for may attend and 0 for may not; a mask that is "
            "added to the scores is floating"
        )
    result = as_4d_mask(mask)
    wanted = (*queries.shape[:3], num_keys)
    if any(got not in (1, want) for got, want in zip(result.shape, wanted, strict=True)):
        hint = ""
        if mask.shape == (queries.shape[0], num_keys):
            hint = "; a mask of keys per sequence is mask[:, None, :]"
        raise MaskError(
            f"the mask is {list(mask.shape)}; it must fit [batch {wanted[0]}, heads {wanted[1]}, "
            f"query {wanted[2]}, key {wanted[3]}]{hint}"
        )
    return result


CALL_PAIRS = 30_000
"""Query-key pairs, over all heads, whose computation costs about what one more fused call costs."""


def is_ragged(rules: Rules, batch: int) -> bool:
    """Whether there are sequences, and they differ in what they hold."""
    return batch > 0 and (
        rules.lengths is not None
        or rules.query_lengths is not None
        or isinstance(rules.offset, Tensor)
    )


class SequenceLengths(NamedTuple):
    """Real positions of every sequence, read from the device once."""

    queries: list[int]
    keys: list[int]


def count(rules: Rules, queries: Tensor, keys: Tensor) -> SequenceLengths:
    """How many queries and keys of each sequence are real, checked against the padded sizes."""
    batch, rows, columns = queries.shape[0], queries.shape[2], keys.shape[2]
    found = sizes(rules.lengths, "lengths", batch, columns)
    if rules.query_lengths is rules.lengths and rows == columns:
        return SequenceLengths(found, found)
    return SequenceLengths(sizes(rules.query_lengths, "query_lengths", batch, rows), found)


def count_if_known(rules: Rules, queries: Tensor, keys: Tensor) -> SequenceLengths | None:
    """`count`, where sequences differ and numbers can be read; else None."""
    if not is_ragged(rules, queries.shape[0]) or not can_be_read(queries):
        return None
    return count(rules, queries, keys)


def without_full_lengths(
    rules: Rules, queries: Tensor, keys: Tensor, counts: SequenceLengths | None
) -> Rules:
    """The same rules without lengths that every sequence fills: they would cost a dense mask."""
    if counts is None:
        return rules
    are_queries_full = set(counts.queries) == {queries.shape[2]}
    are_full = set(counts.keys) == {keys.shape[2]}
    return replace(
        rules,
        lengths=None if are_full else rules.lengths,
        query_lengths=None if are_queries_full else rules.query_lengths,
    )


def check_batch(rules: Rules, queries: Tensor, keys: Tensor) -> None:
    """Raise unless what the rules say of single sequences fits the batch."""
    if not is_ragged(rules, len(queries)):
        return
    if isinstance(rules.offset, Tensor):
        check_shape(rules.offset, "offset", len(queries))
    if rules.mask is not None:
        checked_mask(rules.mask, queries, keys.shape[2])


def why_one_by_one(
    queries: Tensor, keys: Tensor, rules: Rules, counts: SequenceLengths | None
) -> str | None:
    """Why the sequences are better computed one by one, or None if one masked call is better."""
    if isinstance(rules.offset, Tensor):
        return "each sequence has an offset of its own"
    if counts is None:
        return None
    batch, heads, num_queries, num_keys = *queries.shape[:3], keys.shape[2]
    pairs = sum(row * column for row, column in zip(*counts, strict=True))
    padded = batch * num_queries * num_keys
    if heads * (padded - pairs) <= batch * CALL_PAIRS:
        return None
    return f"{1 - pairs / padded:.0%} of the padded work is padding"


def sizes(lengths: Tensor | None, name: str, batch: int, padded: int) -> list[int]:
    """The length of every sequence, checked against the padded size."""
    if lengths is None:
        return [padded] * batch
    check_shape(lengths, name, batch)
    found: list[int] = lengths.tolist()
    if found and not 0 <= min(found) <= max(found) <= padded:
        raise ShapeError(
            f"{name} run from {min(found)} to {max(found)}; they must lie in 0..{padded}"
        )
    return found


def check_shape(lengths: Tensor, name: str, batch: int) -> None:
    """Raise unless there is one length a sequence."""
    if lengths.shape != (batch,):
        raise ShapeError(f"{name} is {list(lengths.shape)}; it must be [batch {batch}]")


def lengths_as_mask(rules: Rules, queries: Tensor, keys: Tensor) -> Rules:
    """The same rules with a mask that hides padding keys from all, and all from padding queries."""
    padding = padding_queries(rules, queries)
    rules = keys_as_mask(rules, queries, keys)
    if padding is None:
        return rules
    mask = None if rules.mask is None else as_4d_mask(rules.mask)
    return replace(rules, mask=restrict_mask(mask, ~padding[:, None, :, None]))


def keys_as_mask(rules: Rules, queries: Tensor, keys: Tensor) -> Rules:
    """The same rules with a mask that hides padding keys; rows of padding are still computed."""
    if queries.shape[0] == 0:
        return replace(rules, lengths=None, query_lengths=None, offset=None)
    if rules.lengths is None:
        return rules if rules.query_lengths is None else replace(rules, query_lengths=None)
    padding = beyond(rules.lengths, "lengths", keys)
    mask = None if rules.mask is None else as_4d_mask(rules.mask)
    mask = restrict_mask(mask, ~padding[:, None, None])
    return replace(rules, lengths=None, query_lengths=None, mask=mask)


def with_padding_cleared(mixed: Mixed, rules: Rules, queries: Tensor) -> Mixed:
    """The result with rows of padding queries as those of queries that see no key."""
    padding = padding_queries(rules, queries)
    if padding is None:
        return mixed
    output, lse = mixed.output.masked_fill(padding[:, None, :, None], 0.0), mixed.lse
    if lse is not None:
        lse = torch.where(padding[:, None], lse_of_nothing(rules, lse)[:, None], lse)
    return Mixed(output, lse)


def padding_queries(rules: Rules, queries: Tensor) -> Bool[Tensor, "batch query"] | None:
    """Which queries are padding; None where none can be."""
    if rules.query_lengths is None or queries.shape[0] == 0:
        return None
    return beyond(rules.query_lengths, "query_lengths", queries)


def beyond(lengths: Tensor, name: str, padded: Tensor) -> Bool[Tensor, "batch position"]:
    """Which positions of queries or keys lie after the real ones of their sequence."""
    check_shape(lengths, name, padded.shape[0])
    places = torch.arange(padded.shape[2], device=padded.device)
    return places >= lengths.to(padded.device)[:, None]


def lse_of_nothing(rules: Rules, lse: Tensor) -> Float[Tensor, " #heads"]:
    """The log-sum-exp of each head where a query sees no key: its sink's logit, or -inf."""
    return lse.new_full((1,), -torch.inf) if rules.sinks is None else rules.sinks.to(lse.dtype)


def sequences_of(
    queries: Tensor, keys: Tensor, values: Tensor, rules: Rules
) -> Iterator[tuple[tuple[Tensor, Tensor, Tensor], Rules]]:
    """Each sequence at its full padded size, with the rules that are its own."""
    # Split once: the backward pass of a slice fills a gradient as large as the whole batch.
    apart = zip(queries.split(1), keys.split(1), values.split(1), strict=True)
    bottom_right = keys.shape[2] - queries.shape[2]
    offset = bottom_right if rules.offset is None else rules.offset
    offsets = offset.tolist() if isinstance(offset, Tensor) else [offset] * queries.shape[0]
    for index, tensors in enumerate(apart):
        one = slice(index, index + 1)
        alone = replace(
            rules,
            lengths=None if rules.lengths is None else rules.lengths[one],
            query_lengths=None if rules.query_lengths is None else rules.query_lengths[one],
            offset=offsets[index],
            mask=own_mask(rules.mask, index),
        )
        yield tensors, alone


def own_mask(mask: Tensor | None, index: int) -> Tensor | None:
    """One sequence's part of a mask."""
    if mask is None:
        return None
    mask = as_4d_mask(mask)
    return mask if mask.shape[0] == 1 else mask[index : index + 1]


def one_by_one(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rules: Rules,
    counts: SequenceLengths,
    alone: Callable[[Tensor, Tensor, Tensor, Rules], Mixed],
) -> Mixed:
    """Every sequence computed at its own length, the results padded with zeros."""
    batch, heads, num_queries = queries.shape[:3]
    outputs, lses = [], []
    for (tensors, own), row, column in zip(
        sequences_of(queries, keys, values, rules), *counts, strict=True
    ):
        own_queries, own_keys, own_values = tensors
        own = replace(own, lengths=None, query_lengths=None, mask=crop(own.mask, row, column))
        output, lse = alone(
            own_queries[:, :, :row], own_keys[:, :, :column], own_values[:, :, :column], own
        )
        padding = num_queries - row
        # Token-major, as the kernels write it, so that one copy puts the batch together.
        outputs += [output[0].transpose(0, 1), output.new_zeros(padding, heads, output.shape[-1])]
        if lse is not None:
            lses += [lse[0].transpose(0, 1), lse_of_nothing(rules, lse).expand(padding, heads)]
    output = torch.cat(outputs).unflatten(0, (batch, num_queries)).transpose(1, 2)
    lse = torch.cat(lses).unflatten(0, (batch, num_queries)).transpose(1, 2) if lses else None
    return Mixed(output, lse)


def crop(mask: Tensor | None, rows: int, columns: int) -> Tensor | None:
    """The mask of the first rows and columns; axes of size 1 serve them all."""
    if mask is None:
        return None
    mask = mask if mask.shape[2] == 1 else mask[:, :, :rows]
    return mask if mask.shape[3] == 1 else mask[..., :columns]
