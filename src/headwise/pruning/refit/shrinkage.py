"""Shrinkage: how much of a correction to apply.

In: a corrected model and registers that it was not fitted on. Out: the share of the correction that
helps most in the register that it helps least. A correction follows the text that it was fitted on,
so all of it is often too much elsewhere.
"""

from collections.abc import Callable

import torch
from torch import nn

from headwise.objectives.registers import RegisterEvaluation

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Shares of a correction to try, the largest first."""


@torch.no_grad()
def shrink_towards(start: nn.Module, corrected: nn.Module, shrink: RegisterEvaluation) -> float:
    """Move the parameters of `corrected` part of the way back to those of `start`, in place.

    Returns the share of the way from `start` that is left. Parameters that `start` lacks count as
    zeros there.
    """
    before, changes = dict(start.named_parameters()), []
    for name, value in corrected.named_parameters():
        old = before[name] if name in before else torch.zeros_like(value)
        if not torch.equal(old, value):
            changes.append((value, old.clone(), value - old))

    def apply_share(share: float) -> None:
        for value, old, change in changes:
            value.copy_(old + share * change)

    best = choose_share(shrink.with_model(corrected), apply_share) if changes else 0.0
    apply_share(best)
    return best


def choose_share(shrink: RegisterEvaluation, apply_share: Callable[[float], None]) -> float:
    """The best share for the register that is worst off; 0 if none helps there.

    `apply_share` changes the evaluated model.
    """
    apply_share(0.0)
    without = shrink.losses()
    best, least = 0.0, 0.0
    for share in SHARES:
        apply_share(share)
        added = shrink.losses().worst_increase(without)
        if best and not added < least:  # the loss has one minimum
            break
        if added < least:
            best, least = share, added
    return best
