"""Comparing the outputs of tiny models: do two ways to run a model differ by more than rounding?

In: models, inputs and ways to run them. Out: the largest difference relative to the outputs' size,
or `Wrong`. Also whether a model has attention at all.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from tiny_inputs import in_float64
from tiny_models import TinyModel, run
from tiny_sizes import Inputs
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.errors import HeadwiseError

ROUNDING = 3e-4
"""Largest relative difference of float32 outputs; wrong results differ by a thousand times more."""
ROUNDING_IN_FLOAT64 = 1e-6
"""The same in float64, where transformers still rounds to float32 in some places."""


class Wrong(Exception):
    """A result differs from the model's own."""


def compare(
    model: nn.Module,
    inputs: Inputs,
    changed: Callable[[nn.Module, Inputs], list[Tensor]],
    words: str,
    *,
    mask: Tensor | None = None,
    expected: Callable[[nn.Module, Inputs], list[Tensor]] = run,
) -> str:
    """The largest relative difference; Wrong if it is not rounding, in float64 either."""
    gap = largest_gap(changed(model, inputs), expected(model, inputs), mask)
    if gap > ROUNDING:
        try:
            double, given = copy.deepcopy(model).double(), in_float64(inputs)
            again = largest_gap(changed(double, given), expected(double, given), mask)
        except (HeadwiseError, Wrong):
            raise
        except Exception:
            again = gap
        if again > ROUNDING_IN_FLOAT64:
            if largest_gap(expected(model, inputs), expected(model, inputs), mask) > ROUNDING:
                return "the model's own outputs vary"
            raise Wrong(f"{words}, outputs differ by {gap:.1g} of their size")
    return f"{gap:.0e}"


def largest_gap(
    actual: Iterable[Tensor], expected: Iterable[Tensor], mask: Tensor | None = None
) -> float:
    """Largest difference between outputs, relative to their root mean square; NaN equals NaN."""
    largest = 0.0
    pairs = list(zip(actual, expected, strict=True))
    for one, other in pairs:
        if one.shape != other.shape:
            return float("inf")
        if mask is not None and one.shape[:2] == mask.shape and not mask.all():
            one, other = one[mask.bool()], other[mask.bool()]
        finite = other[other.abs() < 1e30].double()
        size = max(finite.square().mean().sqrt().item(), 1e-6) if finite.numel() else 1.0
        same = (one == other) | (one.isnan() & other.isnan())
        gap = (one.double() - other.double()).abs().masked_fill(same, 0.0)
        largest = max(largest, gap.nan_to_num(nan=torch.inf).max().item() / size)
    return largest


def same_values(some: list[Tensor], others: list[Tensor]) -> bool:
    """Whether two lists have the same tensors, except for rounding."""
    return len(some) == len(others) and all(
        one.shape == other.shape and torch.allclose(one, other, atol=1e-4, equal_nan=True)
        for one, other in zip(some, others, strict=True)
    )


class SoftmaxSeen(TorchDispatchMode):
    """Notices whether anything is attended to: a softmax over an axis, or a fused kernel."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and remember it if it is attention."""
        result = func(*args, **(kwargs or {}))
        name = str(func)
        if "attention" in name or "logsumexp" in name:
            self.seen = True
        if "softmax" in name and isinstance(result, Tensor):
            self.seen |= result.dim() >= 3 and result.shape[-1] > 1
        return result


def has_attention(tiny: TinyModel) -> bool:
    """Whether modules of the model are named attention, and a pass computes a softmax."""
    names = {type(module).__name__.lower() for module in tiny.model.modules()}
    if not any("attention" in name or "attn" in name for name in names):
        return False
    with SoftmaxSeen() as mode:
        run(tiny.model, tiny.inputs)
    return mode.seen
