"""The final norm of a model as a linear map: what one part of the stream contributes to its output.

In: a LayerNorm or RMSNorm of any class, and the states that it read. Out: the map with the norm's
scale held constant. It is measured on the norm itself, so no class needs to be known.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError

TOLERANCE = 1e3 * torch.finfo(torch.float32).eps
"""Largest error, as a share of the norm's output; most norms round to float32."""


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """`scale * (part - mean of part) + bias`, or without the mean for an RMSNorm."""

    scale: Float[Tensor, "batch d_model"]
    bias: Float[Tensor, " d_model"]
    subtracts_mean: bool

    @classmethod
    @torch.no_grad()
    def of(cls, norm: nn.Module, states: Float[Tensor, "batch d_model"]) -> "FrozenNorm":
        """The map of `norm` at `states`; raises ModelError if `norm` is another kind of layer."""
        size = states.shape[-1]
        probe = states.new_ones(size)
        probe[1::2] = -1  # no entry is near 0, before and after its mean is subtracted
        bias = _apply(norm, torch.zeros_like(probe))
        goal, at_probe = _apply(norm, states) - bias, _apply(norm, probe) - bias
        for subtracts_mean in (False, True):
            around, centred = (
                each - each.mean(-1, keepdim=True) * subtracts_mean for each in (probe, states)
            )
            shape = at_probe / around * centred
            length = (shape**2).sum(-1, keepdim=True).clamp(min=torch.finfo(shape.dtype).tiny)
            ratio = (goal * shape).sum(-1, keepdim=True) / length
            error = (goal - ratio * shape).abs().max()
            if error <= TOLERANCE * goal.abs().max():
                return cls(ratio * at_probe / around, bias, subtracts_mean)
        raise ModelError(
            f"{type(norm).__name__} is neither a LayerNorm nor an RMSNorm, so what heads write "
            "through it is unknown: patch without direct effects (direct=False)"
        )

    def contribution(
        self, part: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_model"]:
        """Share of the norm's output that comes from one part of the states."""
        centre = part.mean(-1, keepdim=True) if self.subtracts_mean else 0.0
        return self.scale * (part - centre)


def _apply(norm: nn.Module, states: Tensor) -> Tensor:
    """The norm's output for states of any shape; norms expect a batch of sequences."""
    output: Tensor = norm(states.view(1, -1, states.shape[-1]))
    return output.view(states.shape)
