"""Ragged: padded batches whose sequences have lengths, or cached positions, of their own.

In: a padded batch and its `Rules`. Out: either the same rules with a mask in the place of the
lengths, or the sequences one by one and their results put back into a padded batch. How one
sequence is computed is the caller's business.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from headwise.attention.kernels import Mixed, can_be_read
from headwise.attention.rules import Rules, also_hiding, four_axes
from headwise.attention.task import checked_mask
from headwise.errors import ShapeError

CALL_PAIRS = 30_000
"""Query-key pairs, over all heads, whose computation costs about what one more fused call costs."""


def is_ragged(rules: Rules, batch: int) -> bool:
    """Whether there are sequences, and they differ in what they hold."""
    return batch > 0 and (
        rules.lengths is not None
        or rules.query_lengths is not None
        or isinstance(rules.offset, Tensor)
    )


def without_full_lengths(rules: Rules, queries: Tensor, keys: Tensor) -> Rules:
    """The same rules without lengths that every sequence fills: they would cost a dense mask."""
    if not is_ragged(rules, len(queries)) or not can_be_read(queries):
        return rules
    batch, rows, columns = len(queries), queries.shape[2], keys.shape[2]
    are_full = sizes(rules.lengths, "lengths", batch, columns) == [columns] * batch
    are_queries_full = sizes(rules.query_lengths, "query_lengths", batch, rows) == [rows] * batch
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


def why_one_by_one(queries: Tensor, keys: Tensor, rules: Rules) -> str | None:
    """Why the sequences are better computed one by one, or None if one masked call is better."""
    if isinstance(rules.offset, Tensor):
        return "each sequence has an offset of its own"
    if not can_be_read(queries):
        return None
    batch, heads, num_queries, num_keys = *queries.shape[:3], keys.shape[2]
    pairs, padded = real_pairs(rules, batch, num_queries, num_keys), batch * num_queries * num_keys
    if heads * (padded - pairs) <= batch * CALL_PAIRS:
        return None
    return f"{1 - pairs / padded:.0%} of the padded work is padding"


def real_pairs(rules: Rules, batch: int, num_queries: int, num_keys: int) -> int:
    """Query-key pairs of the batch that are not padding."""
    rows = sizes(rules.query_lengths, "query_lengths", batch, num_queries)
    columns = sizes(rules.lengths, "lengths", batch, num_keys)
    return sum(row * column for row, column in zip(rows, columns, strict=True))


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
    batch, device = queries.shape[0], queries.device
    if batch == 0:
        return replace(rules, lengths=None, query_lengths=None, offset=None)
    if not is_ragged(rules, batch):
        return rules
    allowed = torch.ones((), dtype=torch.bool, device=device)
    for name, count in (("lengths", keys.shape[2]), ("query_lengths", queries.shape[2])):
        lengths: Tensor | None = getattr(rules, name)
        if lengths is None:
            continue
        check_shape(lengths, name, batch)
        if can_be_read(lengths):
            sizes(lengths, name, batch, count)
        real = torch.arange(count, device=device) < lengths.to(device)[:, None]
        allowed = allowed & (real[:, None, None] if name == "lengths" else real[:, None, :, None])
    mask = None if rules.mask is None else four_axes(rules.mask)
    return replace(rules, lengths=None, query_lengths=None, mask=also_hiding(mask, allowed))


def sequences_of(
    queries: Tensor, keys: Tensor, values: Tensor, rules: Rules
) -> Iterator[tuple[tuple[Tensor, Tensor, Tensor], Rules]]:
    """Each sequence at its full padded size, with the rules that are its own."""
    # Split once: the backward pass of a slice fills a gradient as large as the whole batch.
    apart = zip(queries.split(1), keys.split(1), values.split(1), strict=True)
    for index, tensors in enumerate(apart):
        one = slice(index, index + 1)
        alone = replace(
            rules,
            lengths=None if rules.lengths is None else rules.lengths[one],
            query_lengths=None if rules.query_lengths is None else rules.query_lengths[one],
            offset=own_offset(rules, index, keys.shape[2] - queries.shape[2]),
            mask=own_mask(rules.mask, index),
        )
        yield tensors, alone


def own_offset(rules: Rules, index: int, bottom_right: int) -> int:
    """Key position of one sequence's first query, in the padded batch."""
    if isinstance(rules.offset, Tensor):
        return int(rules.offset[index])
    return bottom_right if rules.offset is None else rules.offset


def own_mask(mask: Tensor | None, index: int) -> Tensor | None:
    """One sequence's part of a mask."""
    if mask is None:
        return None
    mask = four_axes(mask)
    return mask if mask.shape[0] == 1 else mask[index : index + 1]


def one_by_one(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rules: Rules,
    alone: Callable[[Tensor, Tensor, Tensor, Rules], Mixed],
) -> Mixed:
    """Every sequence computed at its own length, the results padded with zeros."""
    batch, heads, num_queries = queries.shape[:3]
    rows = sizes(rules.query_lengths, "query_lengths", batch, num_queries)
    columns = sizes(rules.lengths, "lengths", batch, keys.shape[2])
    unseen = queries.new_full((), -torch.inf) if rules.sinks is None else rules.sinks
    outputs, lses = [], []
    for (tensors, own), row, column in zip(
        sequences_of(queries, keys, values, rules), rows, columns, strict=True
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
            lses += [lse[0].transpose(0, 1), unseen.to(lse.dtype).expand(padding, heads)]
    output = torch.cat(outputs).unflatten(0, (batch, num_queries)).transpose(1, 2)
    lse = torch.cat(lses).unflatten(0, (batch, num_queries)).transpose(1, 2) if lses else None
    return Mixed(output, lse)


def crop(mask: Tensor | None, rows: int, columns: int) -> Tensor | None:
    """The mask of the first rows and columns; axes of size 1 serve them all."""
    if mask is None:
        return None
    mask = mask if mask.shape[2] == 1 else mask[:, :, :rows]
    return mask if mask.shape[3] == 1 else mask[..., :columns]
