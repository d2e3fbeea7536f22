"""Equivalence: do two models return the same outputs, except for rounding?

In: a model's outputs and the expected outputs. Out: their largest difference, or a ModelError that
names the first output that differs by more than rounding explains.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ModelError

HALF_DTYPES = (torch.float16, torch.bfloat16)
SIGMAS = 6.0
"""Rounding errors add up like a random walk: the probability that a sum of n terms is off by more
than SIGMAS * sqrt(n) unit roundoffs is below 2 exp(-SIGMAS**2 / 2), or 3e-8 (Higham and Mary, 2019,
https://doi.org/10.1137/18M1226312)."""


@dataclass(frozen=True)
class Difference:
    """An output that differs between two models."""

    name: str
    gap: float
    """Largest absolute difference; infinite if the output is missing or has another shape."""
    bound: float
    """The largest difference that rounding explains."""

    @property
    def is_rounding(self) -> bool:
        """Whether rounding explains the difference."""
        return self.gap <= self.bound


def differences(
    model: nn.Module, actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> Iterator[Difference]:
    """The difference in every output of `model`."""
    for name in {**expected, **actual}:
        gap, bound = math.inf, 0.0
        if name in actual and name in expected:
            gap = _largest_difference(actual[name], expected[name])
            bound = rounding_bound(model, expected[name])
        yield Difference(name, gap, bound)


def check_equivalence(
    model: nn.Module, actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], problem: str
) -> float:
    """Largest difference between the `actual` and the `expected` outputs of `model`.

    Raises ModelError, with a message that starts with `problem`, if rounding does not explain it.
    """
    largest = 0.0
    for difference in differences(model, actual, expected):
        if not difference.is_rounding:
            raise ModelError(
                f"{problem}: {difference.name} changed by {difference.gap:.3g}, but rounding "
                f"explains only {difference.bound:.3g}"
            )
        largest = max(largest, difference.gap)
    return largest


def _largest_difference(actual: Tensor, expected: Tensor) -> float:
    """Largest absolute difference between two tensors; infinite if their shapes differ."""
    if actual.shape != expected.shape:
        return math.inf
    is_equal = (actual == expected) | (actual.isnan() & expected.isnan())
    gaps = (actual.double() - expected.double()).abs().masked_fill(is_equal, 0.0)
    return gaps.nan_to_num(nan=math.inf).max().item() if gaps.numel() else 0.0


def rounding_bound(model: nn.Module, output: Tensor) -> float:
    """The largest difference in `output` that rounding explains, given the lengths of its sums.

    Even float64 models round to float32 in places, such as norms and softmax. Half precision rounds
    once per matrix product, because kernels keep the sums in float32.
    """
    dtype = torch.float32 if output.dtype == torch.float64 else output.dtype
    is_half = dtype in HALF_DTYPES
    weights = [weight for weight in model.parameters() if weight.dim() == 2]
    roundings = sum(1 if is_half else min(weight.shape) for weight in weights)
    finite = output[output.isfinite()].abs()
    size = max(1.0, finite.max().item()) if finite.numel() else 1.0
    return SIGMAS * math.sqrt(roundings) * torch.finfo(dtype).eps * size


@contextmanager
def in_full_precision(model: nn.Module, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Convert the model's half-precision tensors to float32 inside the block.

    Yields the inputs, converted in the same way. In half precision, rounding would explain even the
    differences that a wrong cut makes. The conversion itself changes no values.
    """
    tensors = tensors_by_name(model).items()
    halves = {name: tensor.dtype for name, tensor in tensors if tensor.dtype in HALF_DTYPES}
    try:
        for name, tensor in tensors:
            if name in halves:
                tensor.data = tensor.data.float()
        yield {
            name: value.float()
            if halves and isinstance(value, Tensor) and value.dtype in HALF_DTYPES
            else value
            for name, value in inputs.items()
        }
    finally:
        for name, tensor in tensors_by_name(model).items():  # a cut replaces parameters
            if name in halves:
                tensor.data = tensor.data.to(halves[name])


def tensors_by_name(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by name; a tied tensor appears under each of its names."""
    tensors = dict[str, Tensor](model.named_parameters(remove_duplicate=False))
    return tensors | dict(model.named_buffers(remove_duplicate=False))


@contextmanager
def in_dtype(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Convert the model's narrower tensors to `dtype` inside the block, then put them back."""
    owners = [(tensor, tensor.data) for tensor in {*model.parameters(), *model.buffers()}]
    with torch.inference_mode(False):  # such tensors could not be trained afterwards
        for tensor, data in owners:
            if is_narrower(data, dtype):
                tensor.data = data.to(dtype)
    try:
        yield
    finally:
        with torch.inference_mode(False):
            for tensor, data in owners:
                tensor.data = data


def is_narrower(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether the tensor has floating-point numbers of fewer bytes than `dtype` has."""
    return tensor.is_floating_point() and tensor.element_size() < dtype.itemsize


def fits_in_memory(model: nn.Module, dtype: torch.dtype) -> bool:
    """Whether converted copies of the model's narrower tensors fit into free memory."""
    sizes: dict[torch.device, int] = {}
    for tensor in {*model.parameters(), *model.buffers()}:
        if is_narrower(tensor, dtype):
            sizes[tensor.device] = sizes.get(tensor.device, 0) + tensor.numel() * dtype.itemsize
    return all(size <= _free_memory(device) for device, size in sizes.items())


def _free_memory(device: torch.device) -> float:
    """Free bytes of memory; infinite if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    facts = Path("/proc/meminfo")
    if device.type != "cpu" or not facts.is_file():
        return math.inf
    sizes = dict(line.split(":") for line in facts.read_text("utf-8").splitlines())
    return float(sizes["MemAvailable"].removesuffix("kB")) * 1024
