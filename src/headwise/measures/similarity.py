"""Similarity: how similar two heads are, in their outputs and in where they look.

In: outputs and weights of a few rows. Out: linear CKA of the outputs of every pair of heads, and
the Jensen-Shannon divergence of their weights.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

ROWS = 128
"""Maximum number of rows per document for comparing outputs."""
LOOKS = 8
"""Maximum number of rows per document for comparing weights."""
PAIRS_AT_ONCE = 32
"""Number of pairs of heads whose weights are compared at once."""


def centred_kernels(outputs: Float[Tensor, "heads row d_value"]) -> Float[Tensor, "heads row row"]:
    """Inner products of every two rows' outputs, corrected for the bias of a small sample.

    The inner product of two such kernels is `n (n - 3)` times the unbiased HSIC of
    https://arxiv.org/abs/2010.15327, which can be summed over documents of any lengths.
    """
    count = outputs.shape[1]
    outputs = outputs - outputs.mean(1, keepdim=True)  # only reduces rounding errors
    kernels = outputs @ outputs.mT
    kernels.diagonal(dim1=1, dim2=2).zero_()
    rows = kernels.sum(-1) / (count - 2)
    rows = rows - rows.sum(-1, keepdim=True) / (2 * (count - 1))
    kernels -= rows[:, :, None]
    kernels -= rows[:, None, :]
    kernels.diagonal(dim1=1, dim2=2).zero_()
    return kernels


def pairwise_hsic(kernels: Float[Tensor, "heads row row"]) -> Float[Tensor, "heads heads"]:
    """Unbiased HSIC of every pair of heads, computed from their kernels."""
    count = kernels.shape[1]
    flat = kernels.flatten(1)
    return flat @ flat.T / (count * (count - 3))


def cka(hsic: Float[Tensor, "heads heads"]) -> Float[Tensor, "heads heads"]:
    """Linear CKA of every pair of heads from summed HSIC; 1 if outputs differ only by rotation."""
    norms = hsic.diagonal().clamp(min=0).sqrt()
    scale = norms[:, None] * norms
    return (hsic / scale.masked_fill(scale == 0, math.nan)).clamp(max=1)


def divergences(weights: Float[Tensor, "heads row key"]) -> Float[Tensor, "heads heads row"]:
    """Jensen-Shannon divergence between every two heads in each row, in nats, 0 to ln 2."""
    entropies = _entropies(weights)
    results = weights.new_zeros(len(weights), len(weights), weights.shape[1])
    pairs = torch.combinations(torch.arange(len(weights), device=weights.device))
    for first, second in (part.T for part in pairs.split(PAIRS_AT_ONCE)):
        means = weights.index_select(0, first).add_(weights.index_select(0, second)).div_(2)
        gaps = _entropies(means) - (entropies[first] + entropies[second]) / 2
        results[first, second] = results[second, first] = gaps.clamp_(min=0)
    return results


def _entropies(weights: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows"]:
    """Entropy of each row in nats; `torch.special.entr` takes three times as long."""
    tiny = torch.finfo(weights.dtype).tiny  # its log is finite, and a weight of 0 adds nothing
    negative: Tensor = torch.linalg.vecdot(weights, weights.clamp(min=tiny).log_())
    return -negative
