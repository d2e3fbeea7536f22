"""What a Computation adds to its scores: for a tile, for some rows, or for single pairs."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.attention.prepare import Computation
from headwise.errors import OptionError


def bias_tile(
    task: Computation, first: int, last: int, low: int, high: int
) -> Float[Tensor, "#batch #heads query key"] | None:
    """What is added to the scores of queries `first..last` and keys `low..high`: -inf blocks.

    Half-open ranges. None where nothing is added. Float32 for the half-precision dtypes.
    """
    rows = torch.arange(first, last, device=task.queries.device)
    return bias_of(task, rows, slice(first, last), low, high)


def bias_at(
    task: Computation, rows: Int[Tensor, " query"], low: int, high: int
) -> Float[Tensor, "#batch #heads query key"] | None:
    """`bias_tile` of queries that need not be neighbours."""
    return bias_of(task, rows, rows, low, high)


def bias_of_pairs(
    task: Computation, query: Int[Tensor, " pairs"], key: Int[Tensor, " pairs"]
) -> Float[Tensor, "#batch #heads pairs"] | None:
    """`bias_tile` of single pairs of a query and a key, in memory linear in their number."""
    part: Tensor | None = None
    if task.mask is not None:
        rows = query if task.mask.shape[2] > 1 else torch.zeros_like(query)
        columns = key if task.mask.shape[3] > 1 else torch.zeros_like(key)
        part = task.mask[:, :, rows, columns]
    visible = None if task.band.is_full else task.band.visible(query, key[:, None])[:, 0]
    far = distance_tile(task, query, key[:, None])
    return summed_bias(task, part, None if far is None else far[..., 0], visible)


def bias_of(
    task: Computation, rows: Tensor, picked: slice | Tensor, low: int, high: int
) -> Float[Tensor, "#batch #heads query key"] | None:
    """What is added to the scores of some rows, `picked` from the mask, and keys `low..high`."""
    columns = torch.arange(low, high, device=task.queries.device)
    part: Tensor | None = None
    if task.mask is not None:
        part = task.mask if task.mask.shape[2] == 1 else task.mask[:, :, picked]
        part = part if task.mask.shape[3] == 1 else part[..., low:high]
    visible = None if task.band.is_full else task.band.visible(rows, columns)
    bias = summed_bias(task, part, distance_tile(task, rows, columns), visible)
    return None if bias is None else bias.expand(-1, -1, rows.shape[0], high - low)


def summed_bias(
    task: Computation, mask: Tensor | None, by_distance: Tensor | None, visible: Tensor | None
) -> Tensor | None:
    """Parts of a mask, of what distances add and of what the band shows, as one bias."""
    dtype = bias_dtype(task)
    bias: Tensor | None = None
    if mask is not None:
        bias = blocked_to_bias(mask, dtype) if mask.dtype == torch.bool else mask.to(dtype)
    if by_distance is not None:
        bias = by_distance if bias is None else bias + by_distance
    if visible is not None:
        if bias is None:
            bias = blocked_to_bias(visible[None, None], dtype)
        else:
            bias = bias.masked_fill(~visible, -math.inf)
    return bias


def blocked_to_bias(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where allowed, -inf elsewhere."""
    return torch.zeros((), dtype=dtype, device=allowed.device).where(allowed, -math.inf)


def distance_tile(
    task: Computation, rows: Tensor, columns: Tensor
) -> Float[Tensor, "1 heads query key"] | None:
    """ALiBi and relative bias of every pair, from the distance between key and query."""
    if task.rules.slopes is None and task.rules.distance_bias is None:
        return None
    dtype = bias_dtype(task)
    ahead = columns - (rows + task.band.offset)[:, None]
    tile = torch.zeros((), dtype=dtype, device=ahead.device)
    if task.rules.slopes is not None:
        slopes = check_per_head(task, task.rules.slopes, "slopes")
        tile = tile - slopes[:, None, None].to(dtype) * ahead.abs()
    if task.rules.distance_bias is not None:
        table = check_per_head(task, task.rules.distance_bias, "distance_bias")
        reach = table.shape[-1] // 2
        tile = tile + table.to(dtype)[:, ahead.clamp(-reach, reach) + reach]
    return tile[None]


def bias_dtype(task: Computation) -> torch.dtype:
    """What biases are added up in: at least single precision."""
    return torch.promote_types(task.queries.dtype, torch.float32)


def check_per_head(task: Computation, tensor: Tensor, name: str) -> Tensor:
    """The tensor, which must have one row a query head."""
    if tensor.shape[0] != task.queries.shape[1]:
        raise OptionError(
            f"{name} is for {tensor.shape[0]} heads; the queries have {task.queries.shape[1]}"
        )
    return tensor
