"""Reference: attention one sequence and one head at a time, to test every fast path against.

Returns every step of every head in the dtype of the tensors (float64 in tests), without any fused
kernel. Rotary frequencies, slopes and buckets come from the fast code; tests compare these with
transformers.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.attention.layer import MultiHeadAttention
from headwise.attention.positions import (
    RelativeBias,
    Rotary,
    alibi_slopes,
    relative_buckets,
    rotary_frequencies,
)
from headwise.attention.rules import Rules


class HeadSteps(NamedTuple):
    """One head's computation on one sequence, step by step."""

    queries: Float[Tensor, "query d_key"]
    keys: Float[Tensor, "key d_key"]
    values: Float[Tensor, "key d_value"]
    scores: Float[Tensor, "query key"]
    """Products of queries and keys."""
    scaled: Float[Tensor, "query key"]
    """Scores times the scale, after the softcap."""
    masked: Float[Tensor, "query key"]
    """Scaled scores plus biases, and minus infinity where a query may not attend to a key."""
    weights: Float[Tensor, "query key"]
    mixed: Float[Tensor, "query d_value"]
    lse: Float[Tensor, " query"]


class LayerSteps(NamedTuple):
    """A layer's computation on one sequence."""

    heads: list[HeadSteps]
    concat: Float[Tensor, "query stacked"]
    contributions: list[Float[Tensor, "query d_model"]]
    """Each head's part of the output: its mixed values times its own rows of Wo."""
    output: Float[Tensor, "query d_model"]


def head_steps(
    queries: Float[Tensor, "query d_key"],
    keys: Float[Tensor, "key d_key"],
    values: Float[Tensor, "key d_value"],
    *,
    rules: Rules,
    batch: int = 0,
    head: int = 0,
) -> HeadSteps:
    """Attention of one head on the sequence that has index `batch` in the rules' tensors."""
    scale = 1 / math.sqrt(queries.shape[1]) if rules.scale is None else rules.scale
    scores = queries @ keys.T
    scaled = scores * scale
    if rules.softcap is not None:
        scaled = rules.softcap * torch.tanh(scaled / rules.softcap)
    masked = scaled + bias_by_definition(rules, batch, head, *scores.shape).to(scaled.dtype)
    logits = masked
    if rules.sinks is not None:
        sink = rules.sinks[head].to(masked.dtype).expand(len(masked), 1)
        logits = torch.cat([masked, sink], 1)
    sees_nothing = (logits == -math.inf).all(1)
    safe = logits.masked_fill(sees_nothing[:, None], 0.0)  # a row of -inf would give NaN gradients
    shares = torch.softmax(safe, 1)[:, : masked.shape[1]]
    weights = shares.masked_fill(masked == -math.inf, 0.0)
    lse = torch.logsumexp(safe, 1).masked_fill(sees_nothing, -math.inf)
    return HeadSteps(queries, keys, values, scores, scaled, masked, weights, weights @ values, lse)


def bias_by_definition(
    rules: Rules, batch: int, head: int, num_queries: int, num_keys: int
) -> Float[Tensor, "query key"]:
    """Bias that the rules add to each score; minus infinity where a query may not see a key."""
    position = _value_for(rules.offset, batch, default=num_keys - num_queries)
    real_keys = _value_for(rules.lengths, batch, default=num_keys)
    real_queries = _value_for(rules.query_lengths, batch, default=num_queries)
    query, key = torch.arange(num_queries)[:, None], torch.arange(num_keys)
    distances = key - (query + position)
    may_attend = (query < real_queries) & (key < real_keys)
    if isinstance(rules.window, tuple):
        before, after = (math.inf if side is None else side for side in rules.window)
        may_attend &= (distances >= -before) & (distances <= after)
    elif rules.window is not None:
        may_attend &= distances.abs() < rules.window
    if rules.is_causal:
        may_attend &= distances <= 0
    total = torch.zeros(num_queries, num_keys, dtype=torch.float64).where(may_attend, -math.inf)
    if rules.slopes is not None:
        total = total - rules.slopes[head].double() * distances.abs()
    if rules.distance_bias is not None:
        reach = rules.distance_bias.shape[1] // 2
        total = total + rules.distance_bias[head][distances.clamp(-reach, reach) + reach]
    if rules.mask is not None:
        mask = rules.mask if rules.mask.dim() == 2 else rules.mask[batch % len(rules.mask)]
        mask = mask if mask.dim() == 2 else mask[head % len(mask)]
        is_added = mask.is_floating_point()
        total = total + mask.double() if is_added else total.masked_fill(mask == 0, -math.inf)
    return total


def _value_for(setting: int | Tensor | None, batch: int, *, default: int) -> int:
    """One sequence's value of a setting that all sequences may share or that may be omitted."""
    if setting is None:
        return default
    return int(setting[batch]) if isinstance(setting, Tensor) else setting


def layer_by_definition(
    layer: MultiHeadAttention,
    x: Float[Tensor, "query d_model"],
    context: Float[Tensor, "key d_context"] | None = None,
    *,
    mask: Tensor | None = None,
    gates: Float[Tensor, " heads"] | None = None,
) -> LayerSteps:
    """A layer without dropout on one sequence, from each head's slices of Wq, Wk, Wv and Wo."""
    source, distance_bias = x if context is None else context, None
    if layer.relative_bias is not None and isinstance(layer.position, RelativeBias):
        reach = layer.position.max_distance
        ahead = torch.arange(-reach, reach + 1)
        buckets = relative_buckets(ahead, layer.position, is_causal=layer.is_causal)
        distance_bias = layer.relative_bias.weight[buckets].T
    rules = Rules(
        is_causal=layer.is_causal,
        window=layer.window,
        mask=mask,
        softcap=layer.softcap,
        slopes=None if layer.slopes is None else alibi_slopes(layer.num_heads).double(),
        distance_bias=distance_bias,
        sinks=None if layer.sinks is None else layer.sinks.values,
    )
    steps, contributions = [], []
    for head, slices in enumerate(layer.heads):
        queries = _project(x, slices.Wq, slices.bq)
        keys = _project(source, slices.Wk, slices.bk)
        values = _project(source, slices.Wv, slices.bv)
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = _rms_norm(queries, layer.q_norm), _rms_norm(keys, layer.k_norm)
        if isinstance(layer.position, Rotary):
            queries = _rotate(queries, layer.position, first=len(keys) - len(queries))
            keys = _rotate(keys, layer.position, first=0)
        step = head_steps(queries, keys, values, rules=rules, head=head)
        if gates is not None:
            step = step._replace(mixed=step.mixed * gates[head])
        steps.append(step)
        contributions.append(step.mixed @ slices.Wo)
    output = torch.stack(contributions).sum(0)
    if layer.Wo.bias is not None:
        output = output + layer.Wo.bias
    concat = torch.cat([step.mixed for step in steps], 1)
    return LayerSteps(steps, concat, contributions, output)


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight if bias is None else x @ weight + bias


def _rms_norm(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """Each row divided by its root mean square, times the learned gains."""
    eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
    return x / torch.sqrt((x * x).mean(1, keepdim=True) + eps) * norm.weight


def _rotate(x: Float[Tensor, "position width"], rotary: Rotary, *, first: int) -> Tensor:
    """Each pair of channels multiplied by `exp(i * position * frequency)`, as complex numbers."""
    frequencies, factor = rotary_frequencies(rotary, x.shape[1])
    angles = torch.arange(first, first + len(x), dtype=torch.float64)[:, None] * frequencies
    phases = torch.polar(torch.full_like(angles, factor), angles)
    half, d_rotary = len(frequencies), 2 * len(frequencies)
    if rotary.layout == "half":
        pairs = torch.complex(x[:, :half], x[:, half:d_rotary]) * phases
        rotated = torch.cat([pairs.real, pairs.imag], 1)
    else:
        pairs = torch.complex(x[:, 0:d_rotary:2], x[:, 1:d_rotary:2]) * phases
        rotated = torch.stack([pairs.real, pairs.imag], 2).flatten(1)
    return torch.cat([rotated.to(x.dtype), x[:, d_rotary:]], 1)
