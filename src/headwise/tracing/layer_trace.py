"""Layers: the steps of one of our own layers, and the record that steps make.

In: a `MultiHeadAttention` and its input, or steps that were found elsewhere. Out: a `Trace`.
transformers is not needed here, and so is not imported.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.attention.attend import attend_in_steps
from headwise.attention.layer import MultiHeadAttention
from headwise.attention.reference import layer_by_definition
from headwise.attention.rules import Rules, mask_part
from headwise.errors import ShapeError
from headwise.formats import format_count
from headwise.reading.labels import Labels
from headwise.tracing.record import STEPS, Trace, TraceStep, checked_heads
from headwise.watching.calls import at_least_float32
from headwise.watching.running import in_evaluation
from headwise.watching.sequence_weights import LOWEST

AXES = {
    "input": "batch position d_model",
    "Wq": "heads d_model d_key",
    "Wk": "kv_heads d_model d_key",
    "Wv": "kv_heads d_model d_value",
    "queries": "batch heads query d_key",
    "keys": "batch kv_heads key d_key",
    "values": "batch kv_heads key d_value",
    "scores": "batch heads query key",
    "scaled": "batch heads query key",
    "masked": "batch heads query key",
    "weights": "batch heads query key",
    "mixed": "batch heads query d_value",
    "concat": "batch query concat",
    "Wo": "concat d_model",
    "contributions": "batch heads query d_model",
    "output": "batch query d_model",
}


UNBIASED = {"output": "concat Wo"}
"""Formulas of a layer whose Wo has no bias."""


@torch.no_grad()
def trace_layer(
    layer: MultiHeadAttention,
    x: Float[Tensor, "*batch position d_model"],
    *,
    heads: Sequence[int] | None = None,
    mask: Tensor | None = None,
    tokens: Sequence[str] | None = None,
) -> Trace:
    """One of our own layers on its input."""
    x = x[None] if x.dim() == 2 else x
    if x.dim() != 3 or x.shape[-1] != layer.d_model:
        raise ShapeError(
            f"x is {list(x.shape)}; this layer takes [batch, position, d_model {layer.d_model}]"
        )
    if x.numel() == 0 or x.dtype != layer.Wq.weight.dtype:
        raise ShapeError(
            f"x is {list(x.shape)} of {x.dtype}; this layer takes at least one position of "
            f"{layer.Wq.weight.dtype}"
        )
    if tokens is not None and len(tokens) != x.shape[1]:
        raise ShapeError(f"{len(tokens)} tokens name {x.shape[1]} positions")
    with in_evaluation(layer):
        output = layer(x, mask=mask)
        projected = layer.projected(x, x)
        rules = layer.rules_for(mask, None, is_self=True, device=x.device)
        by_head = torch.stack(
            [
                layer_by_definition(
                    layer, one, mask=mask_part(mask, slice(index, index + 1))
                ).output
                for index, one in enumerate(x)
            ]
        )
    found = {"input": x, **small_matrices(layer), **steps_of(*projected, rules)}
    names = tuple(tokens or map(str, range(x.shape[1])))
    made = make_trace(
        found | {"output": output},
        layer.Wo.weight.detach().T,
        layer.Wo.bias,
        title=f"{type(layer).__name__}({layer.d_model}, {layer.num_heads})",
        labels=Labels(names, names),
        heads=heads,
        num_kv_heads=layer.num_kv_heads,
        formulas=formulas_of(rules, layer.d_key),
    )
    return replace(
        made,
        difference=float((output - by_head).abs().max()),
        compared="small matrices for each head and large ones for all",
    )


def small_matrices(layer: MultiHeadAttention) -> dict[str, Tensor]:
    """Each head's own small matrix of the three that read the input."""
    counts = {"Wq": layer.num_heads, "Wk": layer.num_kv_heads, "Wv": layer.num_kv_heads}
    return {
        name: getattr(layer, name).weight.detach().T.unflatten(1, (count, -1)).movedim(1, 0)
        for name, count in counts.items()
    }


def formulas_of(rules: Rules, d_key: int) -> dict[str, str]:
    """The formulas of the steps that depend on a layer's rules."""
    found = {"scaled": scale_of(rules, d_key)}
    if has_bias(rules):
        found["masked"] = "scaled + bias, -inf where a query may not look"
    if rules.sinks is not None:
        found["weights"] = "softmax of each row and a sink, so that rows sum to less than 1"
    return found


def has_bias(rules: Rules) -> bool:
    """Whether more than a mask is added to the scores."""
    mask = rules.mask
    if mask is not None and mask.is_floating_point():
        if ((mask != 0) & (mask > LOWEST)).any():
            return True
    return rules.slopes is not None or rules.distance_bias is not None


def scale_of(rules: Rules, d_key: int) -> str:
    """What scores are multiplied by, in numbers, and what else happens to them."""
    usual = 1 / math.sqrt(d_key)
    scale = usual if rules.scale is None else rules.scale
    root = f", which is 1 / sqrt({d_key})" if math.isclose(scale, usual) else ""
    return f"scores x {scale:.4g}{root}{', then capped' if rules.softcap else ''}"


def steps_of(queries: Tensor, keys: Tensor, values: Tensor, rules: Rules) -> dict[str, Tensor]:
    """Every step from queries to mixed values."""
    wide = at_least_float32(queries)
    queries, keys, values = (part.detach().to(wide) for part in (queries, keys, values))
    steps = attend_in_steps(queries, keys, values, rules=rules)
    group = queries.shape[1] // keys.shape[1]
    return {
        "queries": queries,
        "keys": keys,
        "values": values,
        "scores": queries @ keys.repeat_interleave(group, 1).mT,
        "scaled": steps.capped,
        "masked": steps.biased,
        "weights": steps.weights,
        "mixed": steps.mixed,
    }


def make_trace(  # noqa: PLR0913 - one field of the record each
    found: dict[str, Tensor],
    output_weight: Float[Tensor, "concat d_model"],
    bias: Tensor | None,
    *,
    title: str,
    labels: Labels,
    heads: Sequence[int] | None,
    num_kv_heads: int,
    formulas: Mapping[str, str] | None = None,
    prefix: str = "L0",
) -> Trace:
    """The record of a layer's steps, with the concat and each head's contribution worked out.

    `formulas` are those of this layer where they differ from those of `STEPS`.
    """
    mixed = found["mixed"]
    num_heads, wide, dtype = mixed.shape[1], mixed.dtype, found["output"].dtype
    parts = output_weight.detach().to(wide).unflatten(0, (num_heads, -1))
    found = {
        **found,
        "concat": mixed.transpose(1, 2).flatten(2),
        "Wo": parts.flatten(0, 1),
        "contributions": mixed @ parts,
        "output": found["output"].detach().to(wide),
    }
    group = num_heads // num_kv_heads
    said = STEPS | ({} if bias is not None else UNBIASED) | dict(formulas or {})
    return Trace(
        title=title,
        steps={
            name: TraceStep(
                name,
                tuple(AXES[name].split()),
                found[name].detach(),
                formula + split_of(name, found[name]),
            )
            for name, formula in said.items()
            if name in found
        },
        heads=checked_heads(heads, num_heads),
        kv_head_of=tuple(head // group for head in range(num_heads)),
        labels=labels,
        bias=None if bias is None else bias.detach().to(wide),
        rounding=torch.finfo(dtype).eps,
        prefix=prefix,
    )


def split_of(name: str, values: Tensor) -> str:
    """How the columns of queries, keys and values were split into heads; "" for other steps."""
    if name not in ("queries", "keys", "values"):
        return ""
    heads, width = values.shape[1], values.shape[3]
    return f", split into {format_count(heads, 'head')} of {width}"
