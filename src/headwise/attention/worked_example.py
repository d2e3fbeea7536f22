"""Worked examples: a two-token sentence to compute by hand, and a table of shapes."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.attention.attend import attend_in_steps
from headwise.attention.layer import MultiHeadAttention


class WorkedExample(NamedTuple):
    """A layer, a sentence and its embedding."""

    layer: MultiHeadAttention
    tokens: list[str]
    x: Float[Tensor, "position d_model"]


def cat_sleeps() -> WorkedExample:
    """Two tokens, two heads of size 2: head 0 reads columns 1-2 (Cat), head 1 columns 3-4 (sleeps).

    Wo adds the heads in the first half of the output and subtracts them in the second, so every
    output column mixes both.
    """
    layer = MultiHeadAttention(4, 2, bias=False)
    identity, half = torch.eye(4), torch.eye(2) / 2
    with torch.no_grad():
        for projection in (layer.Wq, layer.Wk, layer.Wv):
            projection.weight.copy_(identity)
        layer.Wo.weight.copy_(torch.cat([torch.cat([half, half]), torch.cat([half, -half])], 1))
    x = torch.tensor([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 1.0]])
    return WorkedExample(layer, ["Cat", "sleeps"], x)


class NamedShape(NamedTuple):
    """A step of the computation and the shape of its result."""

    step: str
    axes: str
    shape: tuple[int, ...]


def dimensions(batch: int, position: int, d_model: int, num_heads: int) -> list[NamedShape]:
    """Shape after each step of a forward pass, read from the tensors of a real one."""
    layer = MultiHeadAttention(d_model, num_heads)
    x = torch.zeros(batch, position, d_model)
    projected = layer.Wq(x)
    by_head = projected.unflatten(-1, (-1, layer.d_key))
    queries, keys, values = layer.project(x, x)
    steps = attend_in_steps(queries, keys, values)
    by_position = steps.mixed.transpose(1, 2)
    concat = by_position.flatten(2)
    tensors = [
        ("input", "batch position d_model", x),
        ("queries (keys, values)", "batch position d_model", projected),
        ("  split into heads", "batch position heads d_key", by_head),
        ("  heads before positions", "batch heads position d_key", queries),
        ("scores", "batch heads query key", steps.scores),
        ("weights", "batch heads query key", steps.weights),
        ("mixed", "batch heads position d_value", steps.mixed),
        ("  positions before heads", "batch position heads d_value", by_position),
        ("concat", "batch position d_model", concat),
        ("output", "batch position d_model", layer.Wo(concat)),
    ]
    return [NamedShape(step, axes, tuple(tensor.shape)) for step, axes, tensor in tensors]
