"""`record` keeps the inputs and outputs of modules, and leaves no hooks behind."""

import pytest
import torch
from torch import nn

from headwise.watching.hooks import record
from headwise.watching.sites import find_sites

from .helpers import run
from .tiny import tiny


class Twice(nn.Module):
    """Returns a tuple, and accepts its input by name after a tensor of token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 5)

    def forward(self, ids: torch.Tensor, states: torch.Tensor) -> tuple[torch.Tensor, str]:
        return self.inner(states), "second"


def test_calls_are_recorded_in_the_order_in_which_they_return() -> None:
    module, states = Twice(), torch.randn(2, 3, requires_grad=True)
    with record({"outer": module, "inner": module.inner}) as calls:
        output, _ = module(torch.ones(2, dtype=torch.long), states=states)
        module.inner(states * 2)
    assert [call.name for call in calls] == ["inner", "outer", "inner"]
    assert torch.equal(calls[1].input, states) and torch.equal(calls[2].input, states * 2)
    assert torch.equal(calls[1].output, output) and calls[1].result[1] == "second"
    assert not any(call.input.requires_grad or call.output.requires_grad for call in calls)
    assert output.requires_grad


def test_hooks_are_removed_after_an_error() -> None:
    module = Twice()
    with pytest.raises(KeyError), record({"inner": module.inner}) as calls:
        raise KeyError
    module.inner(torch.ones(2, 3))
    assert calls == [] and not module.inner._forward_hooks


def test_a_shared_module_is_recorded_once_per_layer() -> None:
    model, inputs = tiny("albert")
    sites = find_sites(model)
    with record({"attention": sites[0].module}) as calls:
        run(model, inputs)
    assert len(calls) == len(sites) == 3
    assert not torch.equal(calls[0].input, calls[1].input)
