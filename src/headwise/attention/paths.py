"""Paths: the ways to compute attention, and the one place that chooses among them.

In: a `Computation`. Out: its mixed values, log-sum-exps on request, and which path it took and why.
The structure (causal, window, cached) decides, so that a dense mask is made only if it has to be.
`kernels.py` computes each piece; `prepare.py` checks sizes and joins sequences.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headwise.attention.bias import bias_tile
from headwise.attention.kernels import (
    Mixed,
    attend_fused,
    fold_groups,
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
"""Largest tile of scores: it fits a last-level cache and is small beside a model."""

LONGEST_SHORT = 128
"""Keys up to which half-precision training takes plain steps; benchmarks/layer.py measures it."""


class PathChoice(NamedTuple):
    """The path a computation takes, and the reason in words."""

    path: str
    reason: str


def choose_path(computation: Computation, *, with_lse: bool, path: str | None = None) -> PathChoice:
    """The fastest path that can carry out the computation, or `path`; PathError if it cannot."""
    band, queries, num_keys = computation.band, computation.queries, computation.num_keys
    if 0 in queries.shape or num_keys == 0:
        return PathChoice("steps", "no query can see a key")
    if path is not None:
        if (reason := _why_not(path, computation, with_lse=with_lse)) is not None:
            raise PathError(f"path {path!r} cannot compute this: {reason}")
        return PathChoice(path, "it was requested")
    obstacle = _why_not_fused(computation, with_lse=with_lse)
    if obstacle is not None:
        is_small = score_bytes(queries, queries.shape[2], num_keys) <= TILE_BYTES
        return PathChoice("steps" if is_small or is_transformed() else "step_blocks", obstacle)
    if trains_short_in_half(*computation.tensors):
        return PathChoice("steps", "the fused backward pass is slow on short half-precision input")
    if computation.has_bias:
        has_distances = computation.rules.has_distances
        if has_distances and score_bytes(queries, queries.shape[2], num_keys) > TILE_BYTES:
            return PathChoice("blocks", "the bias of all pairs at once would be too large")
        if band.is_full or (band.is_triangle and not with_lse):
            return PathChoice("masked", "a dense mask or bias was given")
        return PathChoice("blocks", "a mask together with a causal or window structure")
    if band.is_full and computation.groups > 1:
        reason = f"{computation.groups} heads share each KV head and see every key"
        return PathChoice("folded", reason)
    if band.is_full:
        return PathChoice("fused", "every query sees every key")
    if band.is_triangle:
        return PathChoice("fused", "causal from the first key")
    if band.is_causal and has_flash(queries):
        return PathChoice("past", f"causal after {band.offset} cached keys")
    return PathChoice("blocks", "each block of queries sees only a part of the keys")


def trains_short_in_half(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether this is half-precision training on an input short enough for plain steps.

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


def _why_not_fused(computation: Computation, *, with_lse: bool) -> str | None:
    """Reason why the fused kernels cannot carry out the computation; None if they can."""
    if computation.rules.softcap is not None:
        return "softcap changes the scores before the softmax"
    if computation.rules.dropout > 0:
        return "dropout acts on single weights"
    if is_transformed():
        return "a torch.func transform needs plain operations"
    if torch.is_grad_enabled():
        learned = (computation.mask, computation.rules.slopes, computation.rules.distance_bias)
        if any(tensor is not None and tensor.requires_grad for tensor in learned):
            return "the bias is learned and needs a gradient"
    if with_lse and not has_flash(computation.queries):
        return f"no fused kernel on {computation.queries.device.type} returns the log-sum-exp"
    return None


def _why_not(path: str, computation: Computation, *, with_lse: bool) -> str | None:
    """Reason why a requested path cannot carry out the computation; None if it can."""
    if path in ("steps", "step_blocks"):
        return None
    obstacle = _why_not_fused(computation, with_lse=with_lse)
    if obstacle is not None or path == "blocks":
        return obstacle
    if path != "masked" and computation.has_bias:
        return "it takes no mask or bias"
    band = computation.band
    is_past = band.is_causal and band.offset > 0 and has_flash(computation.queries)
    needs = {
        "fused": (band.is_triangle, "every key visible, or the causal triangle"),
        "folded": (False, "every query to see every key"),
        "past": (is_past, "causal queries after cached keys, on the CPU"),
        "masked": (
            band.is_triangle and not with_lse,
            "every key visible, or the causal triangle without lse",
        ),
    }
    fits, need = needs[path]
    return None if fits or (band.is_full and path != "past") else f"it needs {need}"


def _run_fused(computation: Computation, with_lse: bool) -> Mixed:
    is_causal, scale = not computation.band.is_full, computation.scale
    return attend_fused(*computation.tensors, scale=scale, is_causal=is_causal, with_lse=with_lse)


def _run_folded(computation: Computation, with_lse: bool) -> Mixed:
    """Heads that share keys become more queries of the same head."""
    queries, keys, values = computation.tensors
    num_heads, kv_heads = queries.shape[1], keys.shape[1]
    folded = fold_groups(queries, kv_heads)
    output, lse = attend_fused(folded, keys, values, scale=computation.scale, with_lse=with_lse)
    if lse is not None:
        lse = unfold_groups(lse[..., None], num_heads)[..., 0]
    return Mixed(unfold_groups(output, num_heads), lse)


def _run_past(computation: Computation, with_lse: bool) -> Mixed:
    """All cached keys without a mask, then the new ones causally, joined and rounded once."""
    _, keys, values = computation.tensors
    band, offset = computation.band, computation.band.offset
    cached = replace(
        computation,
        keys=keys[:, :, :offset],
        values=values[:, :, :offset],
        band=replace(band, after=None),
    )
    fresh = replace(
        computation,
        keys=keys[:, :, offset:],
        values=values[:, :, offset:],
        band=replace(band, offset=0),
    )
    before, after = _run_folded(cached, True), _run_fused(fresh, True)
    assert before.lse is not None and after.lse is not None
    share = torch.sigmoid(after.lse - before.lse)[..., None]
    wide = torch.lerp(before.output.to(share.dtype), after.output.to(share.dtype), share)
    lse = torch.logaddexp(before.lse, after.lse) if with_lse else None
    return Mixed(wide.to(keys.dtype), lse)


def _run_masked(computation: Computation, with_lse: bool) -> Mixed:
    by_kernel = not computation.band.is_full and has_flash(computation.queries)
    biased = computation
    if by_kernel:  # the kernel adds the triangle itself
        biased = replace(computation, band=replace(computation.band, before=None, after=None))
    return attend_fused(
        *computation.tensors,
        scale=computation.scale,
        bias=bias_tile(biased, slice(0, computation.num_queries), 0, computation.num_keys),
        is_causal=by_kernel,
        with_lse=with_lse,
    )


class QueryTile(NamedTuple):
    """Queries `first..last` and the keys `low..high` that they can see, half-open."""

    first: int
    last: int
    low: int
    high: int

    def bias(self, computation: Computation) -> Tensor | None:
        """Bias on the scores of these queries and keys."""
        return bias_tile(computation, slice(self.first, self.last), self.low, self.high)


TileFunction = Callable[[QueryTile, Tensor, Tensor, Tensor], Mixed]
"""From a tile and its queries, keys and values to the queries' result."""


def _run_blocks(computation: Computation, with_lse: bool) -> Mixed:
    memo: tuple[tuple[int, int, int], Tensor | None] | None = None

    def fuse(tile: QueryTile, queries: Tensor, keys: Tensor, values: Tensor) -> Mixed:
        nonlocal memo
        # Away from the edges every tile of a pure window has the same mask.
        shape = (tile.last - tile.first, tile.high - tile.low, tile.low - tile.first)
        if computation.has_bias or memo is None or memo[0] != shape:
            memo = shape, tile.bias(computation)
        scale = computation.scale
        return attend_fused(queries, keys, values, scale=scale, bias=memo[1], with_lse=with_lse)

    return _over_tiles(computation, fuse, is_dense=computation.has_bias)


def _run_steps(computation: Computation, with_lse: bool) -> Mixed:
    tile = QueryTile(0, computation.num_queries, 0, computation.num_keys)
    return _plain_tile(computation, with_lse, tile, *computation.tensors)


def _run_step_blocks(computation: Computation, with_lse: bool) -> Mixed:
    function: TileFunction = partial(_plain_tile, computation, with_lse)
    if torch.is_grad_enabled():  # the backward pass computes the scores again
        function = partial(checkpoint, function, use_reentrant=False)
    return _over_tiles(computation, function, is_dense=True)


def _plain_tile(
    computation: Computation, with_lse: bool, tile: QueryTile, *tensors: Tensor
) -> Mixed:
    return plain_mixed(
        *tensors,
        scale=computation.scale,
        bias=tile.bias(computation),
        softcap=computation.rules.softcap,
        dropout=computation.rules.dropout,
        with_lse=with_lse,
    )


def _over_tiles(computation: Computation, function: TileFunction, *, is_dense: bool) -> Mixed:
    """`function` on every tile of queries with their keys, joined along the query axis.

    A slice for each tile would make the backward pass fill a full-size gradient for each. So
    queries, and keys if they need gradients, are split once, and each tile joins the pieces it
    needs. Tiles with most keys come first: the memory they free is large enough for all that
    follow, while tiles that grow would each need fresh memory.
    """
    size = tile_rows(computation, is_dense=is_dense)
    queries, keys, values = computation.tensors
    has_grad = torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad)
    if has_grad:
        key_pieces, value_pieces = keys.split(size, 2), values.split(size, 2)
    tiles = _query_tiles(computation, size, size if has_grad else 1)
    pairs = list(zip(tiles, queries.split(size, 2), strict=True))
    results: dict[int, Mixed] = {}
    largest_first = pairs
    if not torch.compiler.is_compiling():  # then sizes may be symbols, which have no order
        largest_first = sorted(pairs, key=lambda pair: pair[0].low - pair[0].high)
    for tile, own_queries in largest_first:
        if has_grad:
            pieces = slice(tile.low // size, -(-tile.high // size))
            own_keys = torch.cat(key_pieces[pieces], 2)
            own_values = torch.cat(value_pieces[pieces], 2)
        else:
            own_keys = keys[:, :, tile.low : tile.high]
            own_values = values[:, :, tile.low : tile.high]
        results[tile.first] = function(tile, own_queries, own_keys, own_values)
    ordered = [results[tile.first] for tile, _ in pairs]
    outputs = torch.cat([mixed.output.transpose(1, 2) for mixed in ordered], 1).transpose(1, 2)
    lses = [mixed.lse for mixed in ordered if mixed.lse is not None]
    return Mixed(outputs, torch.cat(lses, 2) if lses else None)


def tile_rows(computation: Computation, *, is_dense: bool) -> int:
    """Queries per tile: half a window, and no tile larger than `TILE_BYTES` if it `is_dense`.

    A dense tile has a number for every pair of all heads, a score or a bias; a fused kernel needs
    none for a pure window.
    """
    per_query = TILE_BYTES // score_bytes(computation.queries, 1, computation.num_keys)
    before, after = computation.band.before, computation.band.after
    if before is None or after is None:
        size = per_query
    else:
        reach = before + after
        size = (reach + 1) // 2
        if is_dense:  # a tile has size * (size + reach) pairs
            pairs = TILE_BYTES // score_bytes(computation.queries, 1, 1)
            square = math.isqrt(reach * reach + 4 * pairs)
            size = min(size, max(per_query, (square - reach) // 2))
    return max(64, min(size // 64 * 64, 1024))


def _query_tiles(computation: Computation, size: int, align: int) -> Iterator[QueryTile]:
    """Tiles of `size` queries, their key ranges widened to multiples of `align`."""
    num_queries, num_keys = computation.num_queries, computation.num_keys
    for first in range(0, num_queries, size):
        last = min(first + size, num_queries)
        low, high = computation.band.keys_of(first, last - 1, num_keys)
        if low == high:  # rows that see nothing: one key, which their tile blocks
            low, high = max(low - 1, 0), max(low, 1)
        low, high = low // align * align, min(-(-high // align) * align, num_keys)
        yield QueryTile(first, last, low, high)


def score_bytes(queries: Tensor, num_queries: int, num_keys: int) -> int:
    """Size of the scores of `num_queries` and `num_keys` in all heads and sequences."""
    batch, heads = queries.shape[:2]
    return batch * heads * num_queries * num_keys * max(4, queries.element_size())


RUNNERS: dict[str, Callable[[Computation, bool], Mixed]] = {
    "fused": _run_fused,
    "folded": _run_folded,
    "past": _run_past,
    "masked": _run_masked,
    "blocks": _run_blocks,
    "steps": _run_steps,
    "step_blocks": _run_step_blocks,
}
