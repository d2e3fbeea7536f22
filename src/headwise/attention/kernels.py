"""Kernels: the two ways to compute attention, in one fused call or step by step.

Either way, a query that sees no key gets zeros, a log-sum-exp of -inf and finite gradients.
`paths.py` decides what is computed in one call.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headwise.attention.prepare import Computation, Mixed
from headwise.attention.rules import Rules
from headwise.errors import PathError

flash_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class AttentionSteps(NamedTuple):
    """Every intermediate result of attention, from scores to mixed values."""

    scores: Float[Tensor, "batch heads query key"]
    """Scaled products of queries and keys."""
    capped: Float[Tensor, "batch heads query key"]
    """Scores after the softcap; equal to `scores` if there is none."""
    biased: Float[Tensor, "batch heads query key"]
    """Scores after masks and biases; -inf where a query may not see a key."""
    weights: Float[Tensor, "batch heads query key"]
    """Attention weights after the softmax, before dropout."""
    mixed: Float[Tensor, "batch heads query d_value"]
    lse: Float[Tensor, "batch heads query"]


def has_flash(queries: Tensor) -> bool:
    """Whether to use the CPU's fused kernel: it returns the lse and allows a bias if causal."""
    return queries.device.type == "cpu" and not torch.compiler.is_compiling()


def attend_fused(
    computation: Computation,
    *,
    bias: Tensor | None = None,
    is_causal: bool = False,
    with_lse: bool = False,
) -> Mixed:
    """One fused call, with memory linear in the length; if causal, the first query is at key 0."""
    (queries, keys, values), scale = computation.tensors, computation.scale
    d_key, d_value = keys.shape[-1], values.shape[-1]
    if d_value < d_key:  # fused kernels support only one head size
        values = F.pad(values, (0, d_key - d_value))
    elif d_value > d_key:
        queries = F.pad(queries, (0, d_value - d_key))
        keys = F.pad(keys, (0, d_value - d_key))
    if has_flash(queries):
        # The kernel needs contiguous elements on the last axis.
        queries, keys, values = (
            tensor if tensor.stride(-1) == 1 else tensor.contiguous()
            for tensor in (queries, keys, values)
        )
        if with_lse and torch.is_grad_enabled():
            output, lse = _FusedWithLse.apply(queries, keys, values, bias, is_causal, scale)  # type: ignore[no-untyped-call]
        else:
            output, lse = flash_forward(
                queries, keys, values, 0.0, is_causal, attn_mask=bias, scale=scale
            )
    else:
        assert not with_lse, "paths.py computes log-sum-exps on other devices unfused"
        assert bias is None or not is_causal, "torch's own function accepts only one of the two"
        output = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=None if bias is None else bias.to(queries.dtype),
            is_causal=is_causal,
            scale=scale,
            enable_gqa=queries.shape[1] != keys.shape[1],
        )
        lse = None
    if with_lse and bias is not None:
        lse = lse.masked_fill((bias == -math.inf).all(-1), -math.inf)
    if d_value < d_key:
        output = output[..., :d_value]
    return Mixed(output, lse if with_lse else None)


class _FusedWithLse(torch.autograd.Function):
    """The CPU's fused attention with a log-sum-exp that can also be differentiated.

    A gradient `g` of the log-sum-exp adds `g * weights` to the gradient of the scores. The backward
    kernel computes `weights * (grad_output . values - grad_output . output)`; an extra column (1
    in the values, 0 in the output and `g` in the output's gradient) adds exactly that.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        bias: Tensor | None,
        is_causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        output, lse = flash_forward(
            queries, keys, values, 0.0, is_causal, attn_mask=bias, scale=scale
        )
        ctx.save_for_backward(queries, keys, values, output, lse, bias)
        ctx.is_causal, ctx.scale = is_causal, scale
        return output, lse

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, grad_lse: Tensor) -> tuple[Tensor | None, ...]:
        grads: tuple[Tensor, ...] = _FusedBackward.apply(  # type: ignore[no-untyped-call]
            ctx.is_causal, ctx.scale, grad_output, grad_lse, *ctx.saved_tensors
        )
        return (*grads, None, None, None)


class _FusedBackward(torch.autograd.Function):
    """The backward pass of `_FusedWithLse`; differentiating it again raises PathError."""

    @staticmethod
    def forward(
        ctx: Any, is_causal: bool, scale: float, grad_output: Tensor, grad_lse: Tensor, *saved: Any
    ) -> tuple[Tensor, ...]:
        queries, keys, values, output, lse, bias = saved
        grad_lse = grad_lse.to(grad_output.dtype)[..., None]
        grads = flash_backward(
            torch.cat([grad_output, grad_lse], -1),
            F.pad(queries, (0, 1)),
            F.pad(keys, (0, 1)),
            F.pad(values, (0, 1), value=1.0),
            F.pad(output, (0, 1)),
            lse,
            0.0,
            is_causal,
            attn_mask=bias,
            scale=scale,
        )
        return tuple(grad[..., : keys.shape[-1]] for grad in grads)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise PathError(
            "no fused kernel has a second derivative: call attend with path='steps', or the layer "
            "with need_weights=True"
        )


def plain_steps(computation: Computation, bias: Tensor | None) -> AttentionSteps:
    """Every intermediate result for all query-key pairs; half precision is computed in float32."""
    with _without_autocast(computation.queries):
        scores, capped, biased = _plain_scores(computation, bias)
        weights, lse = _row_softmax(biased, bias, with_lse=True)
        assert lse is not None
        return AttentionSteps(
            scores, capped, biased, weights, _plain_mix(weights, computation), lse
        )


def plain_mixed(computation: Computation, bias: Tensor | None, *, with_lse: bool) -> Mixed:
    """Output and lse of `plain_steps`, without keeping the other intermediate results."""
    with _without_autocast(computation.queries):
        biased = _plain_scores(computation, bias)[-1]
        weights, lse = _row_softmax(biased, bias, with_lse=with_lse)
        return Mixed(_plain_mix(weights, computation), lse)


def _without_autocast(queries: Tensor) -> torch.autocast:
    """A context that turns off autocast, which would round every product."""
    device = queries.device.type
    return torch.autocast("cpu" if device == "meta" else device, enabled=False)


def _plain_scores(computation: Computation, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, scores after the softcap, and scores after masks and biases."""
    queries, keys, softcap = computation.queries, computation.keys, computation.rules.softcap
    wide = torch.promote_types(queries.dtype, torch.float32)
    folded = fold_groups(queries, keys.shape[1]).to(wide)
    scores = unfold_groups(folded @ keys.to(wide).mT * computation.scale, queries.shape[1])
    capped = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    return scores, capped, capped if bias is None else capped + bias


def _row_softmax(
    biased: Tensor, bias: Tensor | None, *, with_lse: bool
) -> tuple[Tensor, Tensor | None]:
    if bias is None:
        return biased.softmax(-1), biased.logsumexp(-1) if with_lse else None
    empty = (bias == -math.inf).all(-1, keepdim=True)
    weights = biased.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
    if not with_lse:
        return weights, None
    lse = biased.masked_fill(empty, 0.0).logsumexp(-1)
    return weights, lse.masked_fill(empty[..., 0], -math.inf)


def _plain_mix(weights: Tensor, computation: Computation) -> Tensor:
    queries, _, values = computation.tensors
    dropout, num_heads, kv_heads = computation.rules.dropout, queries.shape[1], values.shape[1]
    weights = F.dropout(weights, dropout) if dropout else weights
    mixed = fold_groups(weights, kv_heads) @ values.to(weights.dtype)
    return unfold_groups(mixed, num_heads).to(queries.dtype)


def fold_groups(tensor: Tensor, kv_heads: int) -> Float[Tensor, "batch kv_heads rows width"]:
    """The tensor with the query heads that share a KV head stacked along the query axis."""
    batch, heads, rows, width = tensor.shape
    if heads == kv_heads:
        return tensor
    return tensor.reshape(batch, kv_heads, heads // kv_heads * rows, width)


def unfold_groups(tensor: Tensor, num_heads: int) -> Float[Tensor, "batch heads query width"]:
    """The inverse of `fold_groups`."""
    batch, kv_heads, rows, width = tensor.shape
    if kv_heads == num_heads:
        return tensor
    return tensor.reshape(batch, num_heads, rows * kv_heads // max(num_heads, 1), width)


def available_kernels() -> dict[str, str]:
    """For each dtype, whether the fused kernel runs here, and its error as a multiple of eps."""
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (
        torch.randn(1, 2, 5, 8, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    exact = Computation.of(queries, keys, values, Rules(scale=1.0))
    truth = plain_steps(exact, None).mixed
    report = {}
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        try:
            rounded = exact.with_tensors(*(tensor.to(dtype) for tensor in exact.tensors))
            output = attend_fused(rounded, with_lse=True).output
        except RuntimeError as error:
            report[name] = f"no: {str(error).splitlines()[0]}"
        else:
            error_in_eps = (output.double() - truth).abs().max().item() / torch.finfo(dtype).eps
            report[name] = f"yes, error {error_in_eps:.1f} eps"
    return report
