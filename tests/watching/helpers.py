"""What the tests of watching share: one model a family, its weights, and how far they may differ.

Models are built once and used by many tests; that watching leaves a model as it was is a claim of
`test_watch.py`, and not trusted there.
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
"""Of the longest chain: three layers, each with sums over d_model, keys and the hidden units."""

each_family = pytest.mark.parametrize("name", FAMILIES)
each_routed = pytest.mark.parametrize("name", ROUTED)
each_unrouted = pytest.mark.parametrize("name", UNROUTED)
allow_weights = pytest.mark.filterwarnings("ignore:.*does not ask transformers")


@functools.cache
def family_model(name: str) -> tuple[PreTrainedModel, Inputs]:
    """The family's model and inputs, the same objects at every call."""
    return tiny(name)


@functools.cache
def family_weights(name: str) -> dict[str, list[Tensor]]:
    """The model's own eager weights on those inputs, by stack."""
    return eager_weights(*family_model(name))


def assert_close(name: str, got: Tensor, want: Tensor, what: str = "result") -> None:
    """No more apart than the family's roundings explain."""
    assert_same(got, want, roundings=ROUNDINGS, dtype=FAMILIES[name].softmax_in, name=what)


def assert_all_weights(name: str, calls: list[Any], want: dict[str, list[Tensor]]) -> None:
    """The calls' weights are these, layer by layer of every stack, and there are no others."""
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
