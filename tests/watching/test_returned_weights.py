"""Modules that return their weights are watched without a row of facts, after a check of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise import scan, silence, watch
from headwise.errors import HeadwiseWarning, ModelError
from headwise.scans.settings import ScanSettings
from headwise.watching.returned_weights import why_not_weights
from headwise.watching.sites import find_sites

from ..attention.tolerance import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:.*full weights are read")
HEADS, D_VALUE, WIDTH = 3, 5, 15
Change = Callable[[Tensor], Tensor]


class ForeignAttention(nn.Module):
    """Attention of a class that headwise has never seen, with packed values."""

    num_heads = HEADS

    def __init__(self, *, changes: Change | None = None, gates: Change | None = None) -> None:
        super().__init__()
        self.kv, self.query = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.changes, self.gates = changes, gates

    def forward(self, x: Tensor, output_attentions: bool = False) -> tuple[Tensor, ...]:
        queries, keys, values = (
            part.unflatten(-1, (HEADS, D_VALUE)).transpose(1, 2)
            for part in (self.query(x), *self.kv(x).chunk(2, -1))
        )
        weights = (queries @ keys.mT / D_VALUE**0.5).softmax(-1)
        mixed = (weights @ values).transpose(1, 2).flatten(2)
        output = self.projection(mixed if self.gates is None else self.gates(mixed))
        returned = weights if self.changes is None else self.changes(weights)
        return (output, returned) if output_attentions else (output,)


class ForeignModel(nn.Module):
    """Two layers of such attention."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers or [ForeignAttention(), ForeignAttention()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)[0]
        return x


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 7, WIDTH)


def test_returned_weights_are_watched_without_a_row_of_facts(x: Tensor) -> None:
    model = ForeignModel().eval()
    with watch(model) as watched:
        got = model(x)
    assert torch.equal(got, model(x))
    want = model.layers[0](x, output_attentions=True)[1]
    assert torch.equal(watched.calls[0].weights(), want)
    assert [call.is_direct for call in watched.calls] == [True, True]
    assert watched.calls[0].mixed.shape == (2, HEADS, 7, D_VALUE)


def test_weights_with_batch_and_heads_in_one_axis_are_read_if_they_give_the_output() -> None:
    model = ForeignModel(ForeignAttention(changes=lambda weights: weights.flatten(0, 1))).eval()
    x = torch.randn(HEADS, 7, WIDTH)  # a batch that could also be one sequence of all heads
    with watch(model) as watched:
        model(x)
    assert watched.calls[0].weights().shape == (HEADS, HEADS, 7, 7) and watched.calls[0].is_direct
    averaged = ForeignModel(ForeignAttention(changes=lambda weights: weights.mean(1))).eval()
    with pytest.raises(ModelError, match="no weights per head"), watch(averaged):
        averaged(x)


@pytest.mark.parametrize("head", range(HEADS))
def test_silencing_zeroes_one_head_before_the_projection(head: int, x: Tensor) -> None:
    model = ForeignModel(ForeignAttention()).eval()
    layer: Any = model.layers[0]
    kept = torch.ones(HEADS, D_VALUE)
    kept[head] = 0
    with silence(model, [f"L0H{head}"]):
        got = model(x)
    layer.gates = lambda mixed: mixed * kept.flatten()
    assert_same(got, model(x), roundings=WIDTH)


def test_a_model_of_such_layers_is_scanned(x: Tensor) -> None:
    table = scan(ForeignModel(), inputs=[{"x": x}], settings=ScanSettings(compares=False))
    assert len(table) == 2 * HEADS
    assert table.df[["entropy", "previous", "output_share"]].notna().all().all()


NOT_WEIGHTS: dict[str, tuple[Change, str]] = {
    "scores": (lambda weights: weights - 0.5, "negative"),
    "halves": (lambda weights: weights / 2, "sum to one"),
    "columns": (lambda weights: weights.mT.contiguous(), "sum to one"),
    "one for all heads": (lambda weights: weights.mean(1), "no weights"),
    "infinite": (lambda weights: weights / 0, "not finite"),
}


@pytest.mark.parametrize("kind", NOT_WEIGHTS)
def test_numbers_that_are_not_weights_are_never_read_as_weights(kind: str, x: Tensor) -> None:
    changes, reason = NOT_WEIGHTS[kind]
    wrong = ForeignAttention(changes=changes)
    only = ForeignModel(wrong).eval()
    with pytest.raises(ModelError, match=rf"layers\.0 \(ForeignAttention\).*{reason}"), watch(only):
        only(x)
    partly = ForeignModel(wrong, ForeignAttention()).eval()
    with pytest.warns(HeadwiseWarning, match=rf"only partly watched: layers\.0.*{reason}"):
        table = scan(partly, inputs=[{"x": x}], settings=ScanSettings(compares=False))
    assert table.df["layer"].tolist() == [1] * HEADS
    assert reason in table.about["left_out"]["L0"]


def test_heads_that_are_changed_before_the_projection_are_not_silenced(x: Tensor) -> None:
    model = ForeignModel(ForeignAttention(gates=torch.tanh)).eval()
    with watch(model) as watched:
        model(x)
    assert not watched.calls[0].is_direct
    with pytest.raises(ModelError, match=r"layers\.0.* cannot be silenced"), silence(model, "L0H1"):
        model(x)


def test_rows_that_see_no_key_are_weights() -> None:
    weights = torch.rand(2, HEADS, 7, 11).softmax(-1)
    weights[1, :, 4:] = 0
    assert why_not_weights(weights) == ""
    assert why_not_weights(weights.half()) == ""
    assert "sum" in why_not_weights(weights * 0)


def test_the_innermost_of_nested_modules_is_the_site() -> None:
    class OuterAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ForeignAttention()

        def forward(self, x: Tensor, output_attentions: bool = False) -> Any:
            return self.inner(x, output_attentions=output_attentions)

    model = ForeignModel(OuterAttention(), OuterAttention())
    assert [site.name for site in find_sites(model)] == ["layers.0.inner", "layers.1.inner"]
