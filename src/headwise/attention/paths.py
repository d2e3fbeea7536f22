"""Paths: the ways to compute attention, and the one place that chooses among them.

The structure of a `Computation` (causal, window, cached) decides, so that a dense mask is only
built if needed. `kernels.py` has the fused and the plain operations.
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
    attend_fused,
    fold_groups,
    has_flash,
    plain_mixed,
    unfold_groups,
)
from headwise.attention.prepare import Computation, Mixed, is_transformed
from headwise.attention.rules import mask_part
from headwise.errors import PathError

PATHS = {
    "fused": "one fused call: every key, or the causal triangle",
    "folded": "one fused call, grouped heads folded into the query axis so each key is read once",
    "past": "cached keys and the causal triangle in two fused calls, joined by their log-sum-exps",
    "masked": "one fused call with a dense mask or bias",
    "blocks": "fused calls over blocks of queries, each with only the keys its queries can see",
    "steps": "separate operations on the whole weight matrix at once",
    "step_blocks": "separate operations on blocks of queries, recomputed in the backward pass",
    "ragged": "each sequence in a padded batch separately, at its own length",
}

TILE_BYTES = 32 << 20
"""Size limit for a tile of scores: it fits in a last-level cache and is small next to a model."""

LONGEST_SHORT = 128
"""Half-precision training with up to this many keys is faster unfused (benchmarks/layer.py)."""


class PathChoice(NamedTuple):
    """The path a computation takes, and the reason in words."""

    path: str
    reason: str


def choose_path(computation: Computation, *, with_lse: bool, path: str | None = None) -> PathChoice:
    """The fastest path for the computation, or `path`; raises PathError if that cannot run it."""
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
    if band.is_full and (groups := computation.groups) > 1:
        return PathChoice("folded", f"{groups} heads share each KV head and see every key")
    if band.is_full:
        return PathChoice("fused", "every query sees every key")
    if band.is_triangle:
        return PathChoice("fused", "causal from the first key")
    if band.is_causal and has_flash(queries):
        return PathChoice("past", f"causal after {band.offset} cached keys")
    return PathChoice("blocks", "each block of queries sees only part of the keys")


def trains_short_in_half(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether this is half-precision training on an input short enough to run unfused.

    On the CPU the fused backward pass in bfloat16 takes up to three times as long as in float32.
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
    """Reason why the fused kernels cannot run the computation; None if they can."""
    if computation.rules.softcap is not None:
        return "softcap changes the scores before the softmax"
    if computation.rules.dropout > 0:
        return "dropout acts on individual weights"
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
    """Reason why a requested path cannot run the computation; None if it can."""
    if path in ("steps", "step_blocks"):
        return None
    obstacle = _why_not_fused(computation, with_lse=with_lse)
    if obstacle is not None or path == "blocks":
        return obstacle
    if path != "masked" and computation.has_bias:
        return "it supports no mask or bias"
    band = computation.band
    is_past = band.is_causal and band.offset > 0 and has_flash(computation.queries)
    is_masked = band.is_full or (band.is_triangle and not with_lse)
    needs = {
        "fused": (band.is_full or band.is_triangle, "every key visible, or the causal triangle"),
        "folded": (band.is_full, "every query to see every key"),
        "past": (is_past, "causal queries after cached keys, on the CPU"),
        "masked": (is_masked, "every key visible, or the causal triangle without lse"),
    }
    fits, need = needs[path]
    return None if fits else f"it needs {need}"


def _run_fused(computation: Computation, with_lse: bool) -> Mixed:
    return attend_fused(computation, is_causal=not computation.band.is_full, with_lse=with_lse)


def _run_folded(computation: Computation, with_lse: bool) -> Mixed:
    """Treat heads that share keys as additional queries of one head."""
    queries, num_heads = computation.queries, computation.queries.shape[1]
    folded = replace(computation, queries=fold_groups(queries, computation.keys.shape[1]))
    output, lse = attend_fused(folded, with_lse=with_lse)
    if lse is not None:
        lse = unfold_groups(lse[..., None], num_heads)[..., 0]
    return Mixed(unfold_groups(output, num_heads), lse)


def _run_past(computation: Computation, with_lse: bool) -> Mixed:
    """Attend to cached keys without a mask and to new keys causally, and join both results."""
    (queries, keys, values), offset = computation.tensors, computation.band.offset
    cached = computation.with_tensors(queries, keys[:, :, :offset], values[:, :, :offset])
    fresh = computation.with_tensors(queries, keys[:, :, offset:], values[:, :, offset:])
    before = _run_folded(cached, True)
    after = attend_fused(fresh, is_causal=True, with_lse=True)
    assert before.lse is not None and after.lse is not None
    share = torch.sigmoid(after.lse - before.lse)[..., None]
    wide = torch.lerp(before.output.to(share.dtype), after.output.to(share.dtype), share)
    lse = torch.logaddexp(before.lse, after.lse) if with_lse else None
    return Mixed(wide.to(keys.dtype), lse)


def _run_masked(computation: Computation, with_lse: bool) -> Mixed:
    by_kernel = not computation.band.is_full and has_flash(computation.queries)
    biased = computation
    if by_kernel:  # the kernel applies the triangle itself
        biased = replace(computation, band=replace(computation.band, before=None, after=None))
    bias = bias_tile(biased)
    return attend_fused(computation, bias=bias, is_causal=by_kernel, with_lse=with_lse)


def _run_blocks(computation: Computation, with_lse: bool) -> Mixed:
    bias, shape = None, None

    def fuse(tile: Computation) -> Mixed:
        nonlocal bias, shape
        # Away from the edges every tile of a pure window has the same mask.
        tile_shape = (tile.num_queries, tile.num_keys, tile.band.offset)
        if tile.has_bias or shape != tile_shape:
            bias, shape = bias_tile(tile), tile_shape
        return attend_fused(tile, bias=bias, with_lse=with_lse)

    return _over_tiles(computation, fuse, is_dense=computation.has_bias)


def _run_steps(computation: Computation, with_lse: bool) -> Mixed:
    return plain_mixed(computation, bias_tile(computation), with_lse=with_lse)


def _run_step_blocks(computation: Computation, with_lse: bool) -> Mixed:
    def run(tile: Computation, *tensors: Tensor) -> Mixed:
        return _run_steps(tile.with_tensors(*tensors), with_lse)

    def recompute(tile: Computation) -> Mixed:
        # The backward pass recomputes the scores. `checkpoint` restores the random state for
        # dropout on the devices of the tensors it is passed.
        result: Mixed = checkpoint(run, tile, *tile.tensors, use_reentrant=False)
        return result

    function = recompute if torch.is_grad_enabled() else partial(_run_steps, with_lse=with_lse)
    return _over_tiles(computation, function, is_dense=True)


def _over_tiles(
    computation: Computation, function: Callable[[Computation], Mixed], *, is_dense: bool
) -> Mixed:
    """Results of `function` on each tile of queries and their keys, joined on the query axis."""
    tiles = _tiles(computation, tile_rows(computation, is_dense=is_dense))
    results = {index: function(tile) for index, tile in tiles}
    ordered = [results[index] for index in range(len(results))]
    outputs = torch.cat([mixed.output.transpose(1, 2) for mixed in ordered], 1).transpose(1, 2)
    lses = [mixed.lse for mixed in ordered if mixed.lse is not None]
    return Mixed(outputs, torch.cat(lses, 2) if lses else None)


def _tiles(computation: Computation, size: int) -> Iterator[tuple[int, Computation]]:
    """Tiles of `size` queries and the keys they can see, each with its index.

    Slicing for each tile would make the backward pass fill a full-size gradient per tile. So
    queries, and keys if they need gradients, are split once, and each tile joins the pieces it
    needs. Tiles with the most keys come first: the memory they free is large enough for all that
    follow, while growing tiles would each need new memory.
    """
    (queries, keys, values), num_keys = computation.tensors, computation.num_keys
    has_grad = torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad)
    if has_grad:
        key_pieces, value_pieces = keys.split(size, 2), values.split(size, 2)
    query_pieces, band, align = queries.split(size, 2), computation.band, size if has_grad else 1
    spans = []
    for index, piece in enumerate(query_pieces):
        low, high = band.keys_of(index * size, index * size + piece.shape[2] - 1, num_keys)
        if low == high:  # rows that see no key get one, which their tile blocks
            low, high = max(low - 1, 0), max(low, 1)
        spans.append((index, low // align * align, min(-(-high // align) * align, num_keys)))
    if not torch.compiler.is_compiling():  # symbolic sizes cannot be sorted
        spans.sort(key=lambda span: span[1] - span[2])
    for index, low, high in spans:
        tile_keys, tile_values = keys[:, :, low:high], values[:, :, low:high]
        if has_grad:
            pieces = slice(low // size, -(-high // size))
            tile_keys = torch.cat(key_pieces[pieces], 2)
            tile_values = torch.cat(value_pieces[pieces], 2)
        rows = slice(index * size, index * size + query_pieces[index].shape[2])
        tile = replace(
            computation,
            queries=query_pieces[index],
            keys=tile_keys,
            values=tile_values,
            mask=mask_part(computation.mask, queries=rows, keys=slice(low, high)),
            band=replace(band, offset=band.offset + rows.start - low),
        )
        yield index, tile


def tile_rows(computation: Computation, *, is_dense: bool) -> int:
    """Number of queries per tile: half a window, or fewer to fit a dense tile in `TILE_BYTES`.

    A dense tile stores a score or a bias for every query-key pair in all heads; a fused kernel
    needs neither for a pure window.
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


def score_bytes(queries: Tensor, num_queries: int, num_keys: int) -> int:
    """Bytes for the scores of `num_queries` x `num_keys` pairs in all heads and sequences."""
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
