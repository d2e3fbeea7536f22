"""The class that teaching texts print: four linear layers, a reshape, a softmax, a reshape back."""

import math

import torch
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention as in a textbook; a mask's zeros block."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        """Four square projections with biases; `num_heads` divides `d_model`."""
        super().__init__()
        self.num_heads = num_heads
        self.d_key = d_model // num_heads
        self.Wq = nn.Linear(d_model, d_model)
        self.Wk = nn.Linear(d_model, d_model)
        self.Wv = nn.Linear(d_model, d_model)
        self.Wo = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Every position's mix of all the others, `[batch, position, d_model]`."""
        batch, positions, d_model = x.shape

        def split(projected: Tensor) -> Tensor:
            return projected.view(batch, positions, self.num_heads, self.d_key).transpose(1, 2)

        queries, keys, values = split(self.Wq(x)), split(self.Wk(x)), split(self.Wv(x))
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(self.d_key)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -math.inf)
        mixed = torch.softmax(scores, dim=-1) @ values
        concat = mixed.transpose(1, 2).reshape(batch, positions, d_model)
        output: Tensor = self.Wo(concat)
        return output
