"""Bias on attention scores: the sum of masks, the band, ALiBi's slopes and distance biases.

Both functions return the sum of everything that a `Computation` adds to the scores of the chosen
queries and keys: -inf where a query may not see a key, and None if nothing is added.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.attention.prepare import Computation


def bias_tile(
    computation: Computation,
    rows: Int[Tensor, " query"] | None = None,
    low: int = 0,
    high: int | None = None,
) -> Float[Tensor, "#batch #heads query key"] | None:
    """Bias for the queries `rows` (default: all) and keys `low..high`, in float32 or wider."""
    mask, device = computation.mask, computation.queries.device
    high = computation.num_keys if high is None else high
    if mask is not None:
        mask = mask if rows is None or mask.shape[2] == 1 else mask[:, :, rows]
        mask = mask if mask.shape[3] == 1 else mask[..., low:high]
    rows = torch.arange(computation.num_queries, device=device) if rows is None else rows
    columns = torch.arange(low, high, device=device)
    bias = _add_up(computation, mask, rows[:, None], columns)
    # Not len(), which would fix the length when the layer is exported.
    return None if bias is None else bias.expand(-1, -1, rows.shape[0], columns.shape[0])


def bias_of_pairs(
    computation: Computation, query: Int[Tensor, " pairs"], key: Int[Tensor, " pairs"]
) -> Float[Tensor, "#batch #heads pairs"] | None:
    """Bias for each query-key pair, with memory linear in the number of pairs."""
    mask = computation.mask
    if mask is not None:
        rows = query if mask.shape[2] > 1 else torch.zeros_like(query)
        columns = key if mask.shape[3] > 1 else torch.zeros_like(key)
        mask = mask[:, :, rows, columns]
    return _add_up(computation, mask, query, key)


def _add_up(
    computation: Computation, mask: Tensor | None, query: Tensor, key: Tensor
) -> Tensor | None:
    """Sum of this part of the mask, the distance biases, and -inf for pairs outside the band."""
    rules, band = computation.rules, computation.band
    if band.is_full and not computation.has_bias:
        return None
    dtype = torch.promote_types(computation.queries.dtype, torch.float32)
    bias = torch.zeros((), dtype=dtype, device=computation.queries.device)
    if mask is not None:
        bias = bias.where(mask, -math.inf) if mask.dtype == torch.bool else mask.to(dtype)
    if band.is_full and not rules.has_distances:
        return bias
    ahead = key - (query + band.offset)
    if rules.slopes is not None:
        slopes = rules.slopes.to(dtype).view(-1, *(1,) * ahead.dim())
        bias = bias - (slopes * ahead.abs())[None]
    if rules.distance_bias is not None:
        reach = rules.distance_bias.shape[-1] // 2
        columns = ahead.clamp(-reach, reach) + reach
        bias = bias + rules.distance_bias.to(dtype)[None, :, columns]
    return bias if band.is_full else bias.where(band.sees(ahead)[None, None], -math.inf)
