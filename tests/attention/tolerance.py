"""Tolerance: how far rounding alone can move a result, and comparisons that allow no more.

In: a result, the expected result, and the number of roundings between them. Out: nothing, or an
AssertionError with the largest difference.
"""

import math

import torch
from torch import Tensor


def rounding(want: Tensor, *, dtype: torch.dtype, roundings: int) -> float:
    """Largest difference from `want` that `roundings` in `dtype` explain.

    A chain of n sums and products is off by at most n eps / 2 of the magnitudes that it adds up
    (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). Both sides of a comparison make
    the chain, hence eps; magnitudes are taken to be those of the largest result, and at least 1,
    the size of the inputs.
    """
    size = max(1.0, want.detach().nan_to_num(0.0, 0.0, 0.0).abs().max().item())
    return torch.finfo(dtype).eps * roundings * size


def differences(got: Tensor, want: Tensor) -> Tensor:
    """Absolute differences in float64: 0 where both are the same infinity, inf where one is NaN."""
    got, want = got.detach().double(), want.detach().double()
    apart = (got - want).abs().masked_fill(got == want, 0.0)
    return apart.nan_to_num(nan=math.inf, posinf=math.inf)


def assert_same(
    got: Tensor,
    want: Tensor,
    *,
    roundings: int,
    dtype: torch.dtype | None = None,
    name: str = "result",
) -> None:
    """The two have one shape, and no entry differs by more than `roundings` in `dtype` explain.

    `dtype` is the dtype of the computation; by default, that of `got`. With `roundings=0` the
    two must be equal.
    """
    assert got.shape == want.shape, f"{name}: got {list(got.shape)}, want {list(want.shape)}"
    if want.numel() == 0:
        return
    difference = differences(got, want)
    allowed = rounding(want, dtype=dtype or got.dtype, roundings=roundings)
    largest = difference.max().item()
    if largest <= allowed:
        return
    place = [int(index) for index in torch.unravel_index(difference.argmax(), difference.shape)]
    raise AssertionError(
        f"{name}: largest difference {largest:.3g} at {place}, "
        f"got {got[tuple(place)].item():.9g}, want {want[tuple(place)].item():.9g}; "
        f"{roundings} roundings explain {allowed:.3g}"
    )
