"""Small layers of every kind, with every parameter random, for tests of the layer."""

from typing import Any

import torch
from torch import Tensor

from headwise import Alibi, MultiHeadAttention, RelativeBias, Rotary

BATCH, POSITIONS, D_MODEL, NUM_HEADS = 2, 7, 20, 5
KEYS, D_CONTEXT = 11, 13

LAYERS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"is_causal": True},
    "grouped": {"num_kv_heads": 1, "d_value": 3, "bias": False},
    "cross": {"d_context": D_CONTEXT},
    "rotary": {"is_causal": True, "position": Rotary()},
    "alibi and sinks": {"position": Alibi(), "sinks": True},
    "relative bias": {"position": RelativeBias(num_buckets=4, max_distance=5)},
    "window and softcap": {"window": 3, "softcap": 2.0},
    "norms": {"qk_norm": True, "bias": ("Wq", "Wo")},
}


def make_layer(name: str = "full", *, seed: int = 0, **options: Any) -> MultiHeadAttention:
    """A layer with random parameters and scores near 1."""
    generator = torch.Generator().manual_seed(seed)
    layer = MultiHeadAttention(D_MODEL, NUM_HEADS, **LAYERS[name] | options)
    with torch.no_grad():
        for parameter in layer.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * D_MODEL**-0.5)
    return layer


def inputs(layer: MultiHeadAttention, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Inputs of the layer: x, and a context if it takes one."""
    x = torch.randn(BATCH, POSITIONS, D_MODEL, dtype=dtype)
    if layer.d_context == D_MODEL:
        return (x,)
    return x, torch.randn(BATCH, KEYS, D_CONTEXT, dtype=dtype)


def roundings(layer: MultiHeadAttention) -> int:
    """Length of the longest chain of sums, forward and back."""
    sizes = D_MODEL, layer.d_context, layer.d_key, NUM_HEADS * layer.d_value, KEYS
    return 2 * sum(sizes) + BATCH * NUM_HEADS * POSITIONS


def gradients(layer: MultiHeadAttention, output: Tensor) -> dict[str, Tensor]:
    """Gradients of every parameter, of a fixed random mixture of the output."""
    generator = torch.Generator().manual_seed(1)
    seen_from = torch.randn(output.shape, generator=generator).to(output.dtype)
    values = torch.autograd.grad((output * seen_from).sum(), list(layer.parameters()))
    return dict(zip(dict(layer.named_parameters()), values, strict=True))
