"""Helpers of the tests of watching: one model per family, its weights, and tolerances.

Models are built once and used by many tests. `test_watch.py`, which claims that watching leaves a
model unchanged, builds its own.
"""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..attention.tolerance import assert_same
from .tiny import Inputs, eager_weights, tiny
from .tiny_configs import FAMILIES

ROUTED = [name for name, family in FAMILIES.items() if family.is_routed]
UNROUTED = [name for name, family in FAMILIES.items() if not family.is_routed]
LENGTHS = (7, 13, 1, 11)
ROUNDINGS = 3 * (48 + 17 + 43)
"""Roundings in the longest chain: three layers with sums over d_model, keys and hidden units."""

each_family = pytest.mark.parametrize("name", FAMILIES)
each_routed = pytest.mark.parametrize("name", ROUTED)
each_unrouted = pytest.mark.parametrize("name", UNROUTED)
allow_weights = pytest.mark.filterwarnings("ignore:.*does not use transformers")


@functools.cache
def family_model(name: str) -> tuple[PreTrainedModel, Inputs]:
    """The family's model and inputs, the same objects at every call."""
    return tiny(name)


@functools.cache
def family_weights(name: str) -> dict[str, list[Tensor]]:
    """The model's own eager weights on those inputs, by stack."""
    return eager_weights(*family_model(name))


def assert_close(name: str, got: Tensor, want: Tensor, what: str = "result") -> None:
    """Assert that results differ by no more than the family's roundings."""
    assert_same(got, want, roundings=ROUNDINGS, dtype=FAMILIES[name].softmax_in, name=what)


def assert_all_weights(name: str, calls: list[Any], want: dict[str, list[Tensor]]) -> None:
    """Assert that the calls have exactly these weights, for each layer of every stack."""
    places = sorted((call.stack, call.layer) for call in calls)
    assert places == sorted(
        (stack, n) for stack, layers in want.items() for n in range(len(layers))
    )
    for call in calls:
        what = f"weights of {call.stack}.L{call.layer}"
        assert_close(name, call.weights(), want[call.stack][call.layer], what)


def run(model: PreTrainedModel, inputs: Inputs) -> Any:
    with torch.no_grad():
        return model(**inputs)
