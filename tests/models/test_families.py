"""Tests of families: rows that users add."""

import re

import pytest
import torch
from torch import Tensor, nn

import headwise
from headwise.errors import OptionError
from headwise.models import families
from headwise.watching.sites import find_sites


class OddAttention(nn.Module):
    """Attention that no row of the table describes and whose code shows no softmax."""

    num_heads = 2

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        heads = self.query(hidden).unflatten(-1, (2, 2)).transpose(1, 2)
        weights = (heads @ heads.mT).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        return self.out((weights @ heads).transpose(1, 2).flatten(2)), weights


@pytest.fixture(autouse=True)
def _restore_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "FAMILIES", families.FAMILIES)


@pytest.mark.filterwarnings("ignore:.*full weights are read")
def test_added_family_can_be_watched() -> None:
    model = nn.Sequential(OddAttention())
    with pytest.raises(headwise.HeadwiseError, match="OddAttention"):
        find_sites(model)
    row = headwise.Family(("OddAttention",), "out", returns_weights=True)
    headwise.add_family(row)
    assert families.FAMILIES[0] is row
    with headwise.watch(model) as watched:
        _, weights = model(torch.randn(1, 3, 4))
    assert torch.equal(watched.calls[0].weights(), weights)


def test_added_family_with_a_refusal_cannot_be_cut() -> None:
    row = headwise.Family(
        ("OddAttention",), "out", returns_weights=True, refusal="its heads share norms"
    )
    headwise.add_family(row)
    model = nn.Sequential(OddAttention())
    model.config = object()  # type: ignore[assignment]
    with pytest.raises(headwise.HeadwiseError, match=r"OddAttention.*its heads share norms"):
        headwise.cut(model, "L0H0")


@pytest.mark.parametrize(
    ("classes", "fact"),
    [
        ((), "()"),
        ("OddAttention", "'OddAttention'"),
        ((OddAttention,), "class names"),
        (("OddAttention", "BloomAttention"), "BloomAttention"),
        (("CodeGenAttention",), "CodeGenAttention"),
    ],
)
def test_add_family_rejects_bad_or_known_class_names(classes: object, fact: str) -> None:
    before = families.FAMILIES
    with pytest.raises(OptionError, match=re.escape(fact)) as caught:
        headwise.add_family(headwise.Family(classes, "out"))  # type: ignore[arg-type]
    assert caught.value.option == "classes"
    assert families.FAMILIES == before


def test_add_family_rejects_what_is_not_a_row() -> None:
    with pytest.raises(OptionError, match="dict"):
        headwise.add_family({"classes": ("OddAttention",)})  # type: ignore[arg-type]
