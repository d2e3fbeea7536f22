"""The peers: attention as people use it today, set up the fastest way each one documents."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from x_transformers.x_transformers import Attention


class Textbook(nn.Module):
    """The textbook class: four linear layers and the full weight matrix; `mask == 0` hides keys."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        """Create new weights."""
        super().__init__()
        self.num_heads, self.d_key = num_heads, d_model // num_heads
        self.Wq, self.Wk, self.Wv, self.Wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        """Split `x` into heads, and move the head axis before the positions."""
        return x.view(*x.shape[:2], self.num_heads, self.d_key).transpose(1, 2)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, context: Tensor | None = None
    ) -> Tensor:
        """Attention from `x` to itself or to `context`."""
        source = x if context is None else context
        queries, keys = self.split(self.Wq(x)), self.split(self.Wk(source))
        scores = queries @ keys.transpose(-2, -1) / self.d_key**0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ self.split(self.Wv(source))
        return self.Wo(mixed.transpose(1, 2).reshape(x.shape))


class TransformersSdpa(nn.Module):
    """Four linear layers around transformers' own sdpa function, as in its models."""

    def __init__(self, d_model: int, num_heads: int, *, is_causal: bool = False) -> None:
        """Create new weights."""
        super().__init__()
        self.d_key, self.is_causal = d_model // num_heads, is_causal
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def forward(
        self, x: Tensor, mask: Tensor | None = None, context: Tensor | None = None
    ) -> Tensor:
        """Attention from `x` to itself or to `context`."""
        source = x if context is None else context
        shape = (x.shape[0], -1, self.o_proj.in_features // self.d_key, self.d_key)
        queries = self.q_proj(x).view(shape).transpose(1, 2)
        keys = self.k_proj(source).view(shape).transpose(1, 2)
        values = self.v_proj(source).view(shape).transpose(1, 2)
        mixed, _ = sdpa_attention_forward(self, queries, keys, values, mask)
        return self.o_proj(mixed.reshape(*x.shape[:2], -1))


def x_attention(d_model: int, num_heads: int, *, is_causal: bool = False) -> Attention:
    """x-transformers' attention on the fused kernel, with biases like all the others."""
    attention = Attention(
        d_model, heads=num_heads, dim_head=d_model // num_heads, causal=is_causal, flash=True
    )
    for linear in (attention.to_q, attention.to_k, attention.to_v, attention.to_out):
        linear.bias = nn.Parameter(torch.zeros(linear.out_features))
    return attention


def dense_mask(num_queries: int, num_keys: int, window: int | None = None) -> Tensor:
    """A causal mask, limited to the window if there is one; True where a query may attend."""
    ahead = torch.arange(num_keys) - torch.arange(num_keys - num_queries, num_keys)[:, None]
    return (ahead <= 0) if window is None else (ahead <= 0) & (ahead > -window)


def dense_sdpa(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """torch's fused attention with a dense mask."""
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
