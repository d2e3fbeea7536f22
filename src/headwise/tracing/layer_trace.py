"""The steps of one attention layer, and their comparison with the reference.

In: a MultiHeadAttention and its input, or an AttentionCall. Out: a Trace, or its steps.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.attention.attend import attend_in_steps
from headwise.attention.layer import MultiHeadAttention
from headwise.attention.reference import head_steps, layer_by_definition
from headwise.attention.rules import Rules, mask_part
from headwise.errors import ShapeError
from headwise.reading.labels import Labels
from headwise.tracing.record import Trace
from headwise.watching.calls import AttentionCall, at_least_float32
from headwise.watching.running import in_evaluation
from headwise.watching.sequence_weights import LOWEST


@torch.no_grad()
def trace_layer(
    layer: MultiHeadAttention,
    x: Float[Tensor, "*batch position d_model"],
    *,
    heads: Sequence[int] | None = None,
    mask: Tensor | None = None,
    tokens: Sequence[str] | None = None,
) -> Trace:
    """Trace a `MultiHeadAttention` on its input `x`; `tokens` has one label per position."""
    x = x[None] if x.dim() == 2 else x
    dtype = layer.Wq.weight.dtype
    if x.dim() != 3 or x.shape[-1] != layer.d_model or not x.numel() or x.dtype != dtype:
        raise ShapeError(
            f"x is {list(x.shape)} of {x.dtype}: this layer needs [batch, position, d_model "
            f"{layer.d_model}] of {dtype}, with at least one position"
        )
    with in_evaluation(layer):
        output = layer(x, mask=mask)
        projected = layer.project(x, x)
        rules = layer.make_rules(mask, None, is_self=True, device=x.device)
        references = [
            layer_by_definition(layer, sequence, mask=mask_part(mask, slice(index, index + 1)))
            for index, sequence in enumerate(x)
        ]
    counts = {"Wq": layer.num_heads, "Wk": layer.num_kv_heads, "Wv": layer.num_kv_heads}
    weights = {
        name: getattr(layer, name).weight.detach().T.unflatten(1, (count, -1)).movedim(1, 0)
        for name, count in counts.items()
    }
    names = tuple(tokens or map(str, range(x.shape[1])))
    reference = torch.stack([each.output for each in references])
    return Trace.of(
        {"input": x, **weights, **steps_of_call(*projected, rules), "output": output},
        layer.Wo.weight.detach().T,
        layer.Wo.bias,
        title=f"{type(layer).__name__}({layer.d_model}, {layer.num_heads})",
        labels=Labels(names, names),
        heads=heads,
        num_kv_heads=layer.num_kv_heads,
        formulas=formulas(rules, layer.d_key),
        difference=float((output - reference).abs().max()),
        compared="small matrices per head and large ones for all heads",
    )


def steps_of_call(queries: Tensor, keys: Tensor, values: Tensor, rules: Rules) -> dict[str, Tensor]:
    """Every step from queries to mixed values, in float32 or wider."""
    dtype = at_least_float32(queries)
    queries, keys, values = (part.detach().to(dtype) for part in (queries, keys, values))
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


def formulas(rules: Rules, d_key: int) -> dict[str, str]:
    """Formulas for the steps that depend on a layer's rules."""
    usual = 1 / math.sqrt(d_key)
    scale = usual if rules.scale is None else rules.scale
    root = f", which is 1 / sqrt({d_key})" if math.isclose(scale, usual) else ""
    special = {"scaled": f"scores x {scale:.4g}{root}{', then capped' if rules.softcap else ''}"}
    mask, has_bias = rules.mask, rules.slopes is not None or rules.distance_bias is not None
    if mask is not None and mask.is_floating_point():
        has_bias |= bool(((mask != 0) & (mask > LOWEST)).any())  # not only -inf, which hides keys
    if has_bias:
        special["masked"] = "scaled + bias, -inf where a query may not look"
    if rules.sinks is not None:
        special["weights"] = "softmax of each row and a sink, so rows sum to less than 1"
    return special


def compare_with_reference(call: AttentionCall, output: Tensor, bias: Tensor | None) -> float:
    """Largest difference between a layer's output and the reference, computed head by head."""
    assert call.output_weight is not None
    dtype, group = at_least_float32(call.mixed), call.num_heads // call.keys.shape[1]
    weights = call.output_weight.to(dtype).unflatten(0, (call.num_heads, -1))
    reference = torch.zeros_like(output, dtype=dtype)
    for sequence in range(len(call.queries)):
        for head in range(call.num_heads):
            steps = head_steps(
                call.queries[sequence, head].to(dtype),
                call.keys[sequence, head // group].to(dtype),
                call.values[sequence, head // group].to(dtype),
                rules=call.rules,
                batch=sequence,
                head=head,
            )
            reference[sequence] += steps.mixed @ weights[head]
    if bias is not None:
        reference += bias.detach()
    return float((reference - output.detach()).abs().max())
