"""A correction is applied as far as it helps the register that it helps least."""

import copy

import pytest
import torch
from torch import nn

from headwise.objectives.evaluation import Estimate, Evaluation
from headwise.objectives.losses import NextToken
from headwise.objectives.objective import Losses
from headwise.objectives.registers import RegisterEvaluation, RegisterLosses
from headwise.pruning.refit.shrinkage import shrink_towards


def shrink(
    start: nn.Module, corrected: nn.Module, goal: float, monkeypatch: pytest.MonkeyPatch
) -> float:
    """The share that is kept if the loss is the distance of all weights from a share `goal`."""
    before = dict(start.named_parameters())
    after = {name: value.detach().clone() for name, value in corrected.named_parameters()}

    def distances(text: RegisterEvaluation) -> RegisterLosses:
        total = 0.0
        for name, value in text.parts["news"].model.named_parameters():
            old = before[name] if name in before else torch.zeros_like(value)
            total += float((value - old - goal * (after[name] - old)).norm())
        loss = Estimate(total, 0.0)
        return RegisterLosses({"news": loss}, loss, Losses(torch.zeros(1), torch.ones(1)))

    monkeypatch.setattr(RegisterEvaluation, "losses", distances)
    parts = {"news": Evaluation(start, NextToken(), ())}
    return shrink_towards(start, corrected, RegisterEvaluation(parts))


@pytest.mark.parametrize(
    ("goal", "share"), [(1.3, 1.0), (0.7, 0.75), (0.3, 0.25), (0.05, 0.0), (-1.0, 0.0)]
)
def test_the_best_share_of_the_way_is_kept(
    goal: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(3, 5, bias=False), nn.Linear(5, 2)).double()
    corrected = copy.deepcopy(start)
    corrected[0].bias = nn.Parameter(torch.randn(5).double())
    with torch.no_grad():
        corrected[0].weight.add_(torch.randn(5, 3))
    whole = copy.deepcopy(corrected)
    assert shrink(start, corrected, goal, monkeypatch) == share
    moved = share * (whole[0].weight - start[0].weight)
    torch.testing.assert_close(corrected[0].weight, start[0].weight + moved)
    torch.testing.assert_close(corrected[0].bias, share * whole[0].bias)
    assert torch.equal(corrected[1].weight, start[1].weight)


def test_without_a_change_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(3, 2)
    monkeypatch.setattr(RegisterEvaluation, "losses", pytest.fail)
    assert shrink_towards(model, copy.deepcopy(model), RegisterEvaluation({})) == 0.0
