"""Paths: the one place that decides how a task is computed, and the code of each way.

In: a `Task`. Out: its mixed values, log-sum-exps when asked for, and which path it took and why.
The structure of the work (causal, window, ragged, cached) picks the path, so that no dense mask is
made where structure will do. Numbers are the kernels' business, tensors' sizes the task's.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headwise.attention.bias import bias_tile
from headwise.attention.kernels import (
    Mixed,
    fold_groups,
    fused,
    has_flash,
    is_transformed,
    plain_mixed,
    unfold_groups,
)
from headwise.attention.prepare import Computation
from headwise.errors import PathError

PATHS = {
    "fused": "one fused call: every key, or the causal triangle",
    "folded": "grouped heads folded into the query axis of one fused call, each key read once",
    "past": "cached keys and the causal triangle in two fused calls, joined by their log-sum-exps",
    "masked": "one fused call with a dense mask or bias",
    "blocks": "fused calls over blocks of queries, each with the keys its rows can see",
    "steps": "plain steps, the whole weight matrix at once",
    "step_blocks": "plain steps over blocks of queries, recomputed in the backward pass",
    "ragged": "each sequence of a padded batch by itself, at its own length",
}

TILE_BYTES = 32 << 20
"""Largest score tile of the block paths: it fits a last-level cache and is small beside a model."""

LONGEST_SHORT = 128
"""Keys up to which half-precision training takes plain steps (benchmarks/layer.py has the rows)."""


class PathChoice(NamedTuple):
    """The path a computation takes, and the reason in words."""

    path: str
    reason: str


def choose_path(task: Computation, *, with_lse: bool) -> PathChoice:
    """The fastest path that computes the task."""
    obstacle = why_not_fused(task, with_lse=with_lse)
    if obstacle is not None:
        whole = score_bytes(task.queries, task.num_queries, task.num_keys) <= TILE_BYTES
        return PathChoice("steps" if whole or is_transformed() else "step_blocks", obstacle)
    if trains_short_in_half(task.queries, task.keys, task.values):
        return PathChoice("steps", "the fused backward pass is slow on short half-precision input")
    if task.has_bias:
        return choose_biased(task, with_lse=with_lse)
    if task.band.is_full and task.groups > 1:
        return PathChoice("folded", f"{task.groups} heads share each KV head and see every key")
    if task.band.is_full:
        return PathChoice("fused", "every query sees every key")
    if causal_from_start(task):
        return PathChoice("fused", "causal from the first key")
    if task.band.is_causal and has_fused_lse(task):
        return PathChoice("past", f"causal after {task.band.offset} cached keys")
    return PathChoice("blocks", "each block of queries sees only a part of the keys")


def trains_short_in_half(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether gradients in half precision are wanted of so few keys that plain steps are faster.

    On the CPU the fused backward pass in bfloat16 takes up to three times as long as float32's.
    """
    return (
        queries.dtype in (torch.bfloat16, torch.float16)
        and keys.shape[2] <= LONGEST_SHORT
        and score_bytes(queries, queries.shape[2], keys.shape[2]) <= TILE_BYTES
        and queries.device.type == "cpu"
        and torch.is_grad_enabled()
        and (queries.requires_grad or keys.requires_grad or values.requires_grad)
    )


def choose_biased(task: Computation, *, with_lse: bool) -> PathChoice:
    """The path for a task with a mask or a bias."""
    by_distance = task.rules.slopes is not None or task.rules.distance_bias is not None
    if by_distance and score_bytes(task.queries, task.num_queries, task.num_keys) > TILE_BYTES:
        return PathChoice("blocks", "the bias of all pairs at once would be too large")
    if task.band.is_full or (causal_from_start(task) and not with_lse):
        return PathChoice("masked", "a dense mask or bias was given")
    return PathChoice("blocks", "a mask together with a causal or window structure")


def causal_from_start(task: Computation) -> bool:
    """Whether the fused kernel's own causal flag says what the task means."""
    return task.band.is_causal and task.band.offset == 0


def why_not_fused(task: Computation, *, with_lse: bool) -> str | None:
    """What keeps the fused kernels from this task, or None."""
    if task.rules.softcap is not None:
        return "softcap changes the scores before the softmax"
    if task.rules.dropout > 0:
        return "dropout acts on single weights"
    if is_transformed():
        return "a torch.func transform needs plain operations"
    if torch.is_grad_enabled():
        learned = (task.mask, task.rules.slopes, task.rules.distance_bias)
        if any(tensor is not None and tensor.requires_grad for tensor in learned):
            return "the bias is learned and needs a gradient"
    if with_lse and not has_fused_lse(task):
        return f"no fused kernel on {task.queries.device.type} returns the log-sum-exp"
    return None


def has_fused_lse(task: Computation) -> bool:
    """Whether the fused kernel at hand gives the log-sum-exp of its rows."""
    return has_flash(task.queries)


def cannot(path: str, task: Computation, *, with_lse: bool) -> str | None:
    """Why an asked-for path cannot compute this task, or None."""
    if path in ("steps", "step_blocks"):
        return None
    obstacle = why_not_fused(task, with_lse=with_lse)
    if obstacle is not None or path == "blocks":
        return obstacle
    if path == "masked":
        plain = task.band.is_full or (causal_from_start(task) and not with_lse)
        return None if plain else "it takes a full or plainly causal structure"
    if task.has_bias:
        return "it takes no mask or bias"
    if path == "past":
        serves = task.band.is_causal and task.band.offset and has_fused_lse(task)
        return None if serves else "it needs causal queries after cached keys, on the CPU"
    if path == "folded":
        return None if task.band.is_full else "it needs every query to see every key"
    return None if task.band.is_full or causal_from_start(task) else "its structure is another"


def compute(task: Computation, *, with_lse: bool = False, path: str | None = None) -> Mixed:
    """The task's mixed values by the best path, or by the one asked for; sinks not yet applied.

    The log-sum-exp is None unless it was asked for.
    """
    if 0 in task.queries.shape or task.num_keys == 0:
        return nothing_seen(task, with_lse)
    if path is None:
        path = choose_path(task, with_lse=with_lse).path
    else:
        reason = cannot(path, task, with_lse=with_lse)
        if reason is not None:
            raise PathError(f"path {path!r} cannot compute this: {reason}")
    output, lse = RUNNERS[path](task, with_lse)
    return Mixed(output, lse if with_lse else None)


def nothing_seen(task: Computation, with_lse: bool) -> Mixed:
    """Zeros with a graph: there is nothing to attend, or nobody to attend to it."""
    tensors = (task.queries, task.keys, task.values)
    zero = sum((tensor.flatten()[:0].sum() for tensor in tensors), task.queries.new_zeros(()))
    output = zero.expand(*task.queries.shape[:3], task.values.shape[-1])
    dtype = torch.promote_types(task.queries.dtype, torch.float32)
    lse = torch.full_like(task.queries[..., 0], -torch.inf, dtype=dtype)
    return Mixed(output, lse if with_lse else None)


def run_fused(task: Computation, with_lse: bool) -> Mixed:
    """Everything in one call."""
    return fused(
        task.queries,
        task.keys,
        task.values,
        scale=task.scale,
        is_causal=not task.band.is_full,
        with_lse=with_lse,
    )


def run_folded(task: Computation, with_lse: bool) -> Mixed:
    """Heads that share keys become more queries of the same head."""
    num_heads = task.queries.shape[1]
    queries = fold_groups(task.queries, task.keys.shape[1])
    output, lse = fused(queries, task.keys, task.values, scale=task.scale, with_lse=with_lse)
    if lse is not None:
        lse = unfold_groups(lse[..., None], num_heads)[..., 0]
    return Mixed(unfold_groups(output, num_heads), lse)


def run_past(task: Computation, with_lse: bool) -> Mixed:
    """All cached keys without a mask, then the new ones causally."""
    offset = task.band.offset
    full, causal = replace(task.band, after=None), replace(task.band, offset=0)
    cached = replace(
        task, keys=task.keys[:, :, :offset], values=task.values[:, :, :offset], band=full
    )
    fresh = replace(
        task, keys=task.keys[:, :, offset:], values=task.values[:, :, offset:], band=causal
    )
    return join(run_folded(cached, True), run_fused(fresh, True))


def join(left: Mixed, right: Mixed) -> Mixed:
    """Attention over two sets of keys from attention over each, rounded once."""
    assert left.lse is not None and right.lse is not None
    share = torch.sigmoid(right.lse - left.lse)[..., None]
    before, after = (side.output.to(share.dtype) for side in (left, right))
    mixed = torch.lerp(before, after, share).to(left.output.dtype)
    return Mixed(mixed, torch.logaddexp(left.lse, right.lse))


def run_masked(task: Computation, with_lse: bool) -> Mixed:
    """One call with everything that is added to the scores laid out."""
    by_kernel = not task.band.is_full and has_flash(task.queries)
    added = task
    if by_kernel:  # which adds the triangle itself
        added = replace(task, band=replace(task.band, before=None, after=None))
    return fused(
        task.queries,
        task.keys,
        task.values,
        scale=task.scale,
        bias=bias_tile(added, 0, task.num_queries, 0, task.num_keys),
        is_causal=by_kernel,
        with_lse=with_lse,
    )


@dataclass(frozen=True, slots=True)
class QueryTile:
    """Queries `first..last` and the keys `low..high` that they can see, half-open."""

    first: int
    last: int
    low: int
    high: int


def block_size(task: Computation, *, lays_out: bool) -> int:
    """Queries per block: half a window, and no tile larger than `TILE_BYTES` where tiles are made.

    A block `lays_out` a tile of numbers for all its heads, scores or biases, or lets a fused kernel
    do without.
    """
    per_query = TILE_BYTES // score_bytes(task.queries, 1, task.num_keys)
    before, after = task.band.before, task.band.after
    if before is None or after is None:
        return whole_units(per_query)
    reach = before + after
    half = (reach + 1) // 2
    if not lays_out:
        return whole_units(half)
    # Pairs of a tile, of which a block has size * (size + reach).
    pairs = TILE_BYTES // score_bytes(task.queries, 1, 1)
    square = math.isqrt(reach * reach + 4 * pairs)
    return whole_units(min(half, max(per_query, (square - reach) // 2)))


def whole_units(size: int) -> int:
    """The size in whole units of 64, at least one and at most 16."""
    return max(64, min(size // 64 * 64, 1024))


def score_bytes(queries: Tensor, num_queries: int, num_keys: int) -> int:
    """Size of the scores of so many queries and keys, all heads and sequences of these."""
    batch, heads = queries.shape[:2]
    return batch * heads * num_queries * num_keys * max(4, queries.element_size())


def blocks_of(task: Computation, size: int, align: int) -> Iterator[QueryTile]:
    """Blocks of `size` queries, their key ranges widened to multiples of `align`."""
    for first in range(0, task.num_queries, size):
        last = min(first + size, task.num_queries)
        low, high = task.band.keys_of(first, last - 1, task.num_keys)
        if low == high:  # rows that see nothing: one key, which their tile blocks
            low, high = max(low - 1, 0), max(low, 1)
        yield QueryTile(
            first, last, low // align * align, min(-(-high // align) * align, task.num_keys)
        )


def run_blocks(task: Computation, with_lse: bool) -> Mixed:
    """Fused calls over blocks of queries."""
    memo: tuple[tuple[int, int, int], Tensor | None] | None = None

    def one(block: QueryTile, queries: Tensor, keys: Tensor, values: Tensor) -> Mixed:
        nonlocal memo
        # Away from the edges every tile of a pure window has the same mask.
        shape = (block.last - block.first, block.high - block.low, block.low - block.first)
        if task.has_bias or memo is None or memo[0] != shape:
            memo = shape, bias_tile(task, block.first, block.last, block.low, block.high)
        return fused(queries, keys, values, scale=task.scale, bias=memo[1], with_lse=with_lse)

    return over_blocks(task, one, lays_out=task.has_bias)


def run_steps(task: Computation, with_lse: bool) -> Mixed:
    """The whole matrix."""
    whole = QueryTile(0, task.num_queries, 0, task.num_keys)
    return steps_of(task, with_lse, whole, task.queries, task.keys, task.values)


def run_step_blocks(task: Computation, with_lse: bool) -> Mixed:
    """Plain steps over blocks of queries, whose scores the backward pass computes again."""

    def plain(block: QueryTile, queries: Tensor, keys: Tensor, values: Tensor) -> Mixed:
        return steps_of(task, with_lse, block, queries, keys, values)

    def recomputed(block: QueryTile, queries: Tensor, keys: Tensor, values: Tensor) -> Mixed:
        result: Mixed = checkpoint(plain, block, queries, keys, values, use_reentrant=False)
        return result

    one = recomputed if torch.is_grad_enabled() else plain
    return over_blocks(task, one, lays_out=True)


def steps_of(
    task: Computation,
    with_lse: bool,
    block: QueryTile,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Mixed:
    """Plain steps of one block of the task."""
    return plain_mixed(
        queries,
        keys,
        values,
        scale=task.scale,
        bias=bias_tile(task, block.first, block.last, block.low, block.high),
        softcap=task.rules.softcap,
        dropout=task.rules.dropout,
        with_lse=with_lse,
    )


def over_blocks(
    task: Computation, one: Callable[[QueryTile, Tensor, Tensor, Tensor], Mixed], *, lays_out: bool
) -> Mixed:
    """`one` on every block of queries with its keys and values, joined along the query axis.

    Slicing a tensor anew for each block would make the backward pass fill a full-size gradient for
    each; queries, and keys where gradients are wanted, are split once, and each block joins the
    pieces it needs. Blocks with most keys come first: what they free is large enough for all that
    follow, while tiles that grow would each need fresh memory.
    """
    size = block_size(task, lays_out=lays_out)
    has_grad = torch.is_grad_enabled() and (task.keys.requires_grad or task.values.requires_grad)
    if has_grad:
        keys, values = task.keys.split(size, 2), task.values.split(size, 2)
    blocks = blocks_of(task, size, size if has_grad else 1)
    split = list(zip(blocks, task.queries.split(size, 2), strict=True))
    results: dict[int, Mixed] = {}
    largest_first = split
    if not torch.compiler.is_compiling():  # where sizes may be symbols, which have no order
        largest_first = sorted(split, key=lambda pair: pair[0].low - pair[0].high)
    for block, own_queries in largest_first:
        if has_grad:
            pieces = slice(block.low // size, -(-block.high // size))
            block_keys, block_values = torch.cat(keys[pieces], 2), torch.cat(values[pieces], 2)
        else:
            block_keys = task.keys[:, :, block.low : block.high]
            block_values = task.values[:, :, block.low : block.high]
        results[block.first] = one(block, own_queries, block_keys, block_values)
    ordered = [results[block.first] for block, _ in split]
    outputs = torch.cat([mixed.output.transpose(1, 2) for mixed in ordered], 1).transpose(1, 2)
    lses = [mixed.lse for mixed in ordered if mixed.lse is not None]
    return Mixed(outputs, torch.cat(lses, 2) if lses else None)


RUNNERS: dict[str, Callable[[Computation, bool], Mixed]] = {
    "fused": run_fused,
    "folded": run_folded,
    "past": run_past,
    "masked": run_masked,
    "blocks": run_blocks,
    "steps": run_steps,
    "step_blocks": run_step_blocks,
}
