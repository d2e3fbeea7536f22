"""Settings and amounts are checked before anything is loaded."""

from typing import Any

import pytest

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.pruning.prune import _units_within
from headwise.pruning.selection.methods import METHODS
from headwise.pruning.settings import POLICIES, REFITS, Amount, PruneSettings


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({}, "not set.*heads, cut, keep and max_loss"),
        ({"cut": 3, "keep": 0.5}, "cut and keep are set"),
        ({"cut": -1}, "cut is -1"),
        ({"keep": 1.5}, r"keep is 1\.5.*0 to 1"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"keep": "60%"}, r"keep is '60%'.*0\.6"),
        ({"cut": "3"}, "cut is '3'"),
        ({"max_loss": "1%"}, r"max_loss is '1%'.*0\.01"),
        ({"max_loss": -0.1}, r"max_loss is -0\.1"),
        ({"max_loss": float("inf")}, "max_loss is inf"),
        ({"max_loss": float("nan")}, "max_loss is nan"),
    ],
)
def test_impossible_amounts_raise(options: dict[str, Any], facts: str) -> None:
    with pytest.raises(OptionError, match=facts) as caught:
        Amount(**options)
    assert caught.value.option == (next(iter(options)) if len(options) == 1 else "")


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"method": "best"}, f"method is 'best'.*{', '.join(METHODS)}"),
        ({"policy": "some"}, f"policy is 'some'.*{', '.join(POLICIES)}"),
        ({"refit": "half"}, f"refit is 'half'.*{', '.join(REFITS)}"),
        ({"choose_tokens": 0}, "choose_tokens is 0.*16"),
        ({"fit_tokens": -5}, "fit_tokens is -5.*64"),
        ({"held_tokens": 0}, "held_tokens is 0.*16"),
        ({"fold": 4}, "fold is 4.*0 to 3"),
        ({"fold": -1}, "fold is -1"),
    ],
)
def test_unknown_names_and_small_numbers_raise(options: dict[str, Any], facts: str) -> None:
    with pytest.raises(OptionError, match=facts) as caught:
        PruneSettings(**options)
    assert caught.value.option == next(iter(options))


def test_the_defaults_are_quick_and_transfer() -> None:
    settings = PruneSettings()
    assert (settings.policy, settings.refit, settings.draws_curve) == ("auto", "bias", False)


def test_amount_becomes_a_number_of_heads() -> None:
    assert Amount(cut=7).head_count(18, 18) == 7
    assert Amount(keep=0.5).head_count(18, 18) == 9
    assert Amount(keep=0.0).head_count(18, 18) == 18
    assert Amount(keep=1.0).head_count(18, 18) == 0
    assert Amount(max_loss=0.1).head_count(18, 18) is None
    assert Amount(heads="L0H1").head_count(18, 18) is None
    with pytest.raises(OptionError, match=r"keep .*0\.99.* 18 heads"):
        Amount(keep=0.99).head_count(18, 18)
    with pytest.raises(OptionError, match=r"19 heads.* 18 .* 18"):
        Amount(cut=19).head_count(18, 18)
    with pytest.raises(OptionError, match=r"18 heads.* 12 .* 18"):
        Amount(keep=0.0).head_count(18, 12)


def test_units_never_exceed_the_count_and_come_in_steps() -> None:
    layers = ((0, (0, 1)), (1, (0, 1, 2)), (0, (2,)))
    units = [tuple(HeadId(layer, head) for head in heads) for layer, heads in layers]
    assert [_units_within(units, count, 1) for count in range(8)] == [0, 0, 1, 1, 1, 2, 3, 3]
    assert [_units_within(units, count, 2) for count in (4, 5, 7)] == [0, 2, 2]
