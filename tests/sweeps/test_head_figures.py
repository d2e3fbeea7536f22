"""Figures of heads: against a second definition in plain loops, and on heads planted by hand."""

import math

import pytest
import torch
from torch import Tensor

from headwise.attention.layer import MultiHeadAttention
from headwise.sweeps.characters import Characters
from headwise.sweeps.head_figures import SEQUENCES, HeadFigures, figures_of_heads
from headwise.sweeps.model import SweepBlock, SweepModel
from headwise.sweeps.synthetic_tasks import Brackets, Relations
from headwise.sweeps.task import NOWHERE, Examples, SweepTask
from headwise.sweeps.variants import Variant

from ..attention.tolerance import assert_same

VARIANT = Variant("free", 3, 5, 7)
ROUNDINGS = 2 * (19 + 5 + 17) * 8
"""Sums over d_model, d_key and keys in two layers, in scores of a size of about 8."""


def drawn(task: SweepTask, count: int) -> Examples:
    return task.examples(count, torch.Generator().manual_seed(5), held_out=True)


def sharp_model(task: SweepTask, variant: Variant, *, d_model: int, layers: int) -> SweepModel:
    """Fresh weights, with queries so large that rows differ clearly from even ones."""
    model = SweepModel(task, variant, d_model=d_model, layers=layers)
    for one in attentions(model):
        torch.nn.init.normal_(one.Wq.weight)
        torch.nn.init.normal_(one.Wk.bias)
    return model


def attentions(model: SweepModel) -> list[MultiHeadAttention]:
    return [one for one in model.modules() if isinstance(one, MultiHeadAttention)]


def weights_of(model: SweepModel, symbols: Tensor) -> list[Tensor]:
    """Softmax of causal scores, layer by layer and head by head: `[batch, heads, query, key]`."""
    x = model.symbols(symbols).sum(2) + model.places.weight[: symbols.shape[1]]
    found = []
    for layer, attention in zip(model.layers, attentions(model), strict=True):
        assert isinstance(layer, SweepBlock)
        seen = layer.before(x)
        heads = []
        for number in range(model.variant.num_heads):
            part = slice(number * model.variant.d_key, (number + 1) * model.variant.d_key)
            queries = seen @ attention.Wq.weight[part].T + attention.Wq.bias[part]
            keys = seen @ attention.Wk.weight[part].T + attention.Wk.bias[part]
            scores = queries @ keys.transpose(1, 2) / math.sqrt(model.variant.d_key)
            ahead = torch.ones_like(scores, dtype=torch.bool).triu(1)
            heads.append(scores.masked_fill(ahead, -math.inf).softmax(-1))
        found.append(torch.stack(heads, 1))
        x = layer(x)
    return found


def figures_by_loops(weights: Tensor, places: Tensor) -> tuple[float, float, list[float]]:
    """Normalised entropy, mean of the largest, and mean weight at each question's places."""
    entropies, largest = [], []
    looks: list[list[float]] = [[] for _ in range(places.shape[-1])]
    for row, pattern in enumerate(weights.tolist()):
        for at, shares in enumerate(pattern):
            seen = shares[: at + 1]
            largest.append(max(seen))
            if at > 0:
                nats = -sum(share * math.log(share) for share in seen if share > 0)
                entropies.append(nats / math.log(at + 1))
            for number, place in enumerate(places[row, at].tolist()):
                if place != NOWHERE:
                    looks[number].append(shares[place])
    means = [sum(found) / len(found) for found in looks]
    return sum(entropies) / len(entropies), sum(largest) / len(largest), means


@pytest.mark.parametrize(
    ("task", "layers"),
    [
        (Relations(relations=5, letters=11, classes=3, length=13), 1),
        (Brackets(labels=5, depth=3, length=17), 2),
    ],
    ids=lambda one: str(getattr(one, "name", one)),
)
@torch.inference_mode()
def test_figures_are_those_of_the_full_weights(task: SweepTask, layers: int) -> None:
    model = sharp_model(task, VARIANT, d_model=19, layers=layers)
    examples = drawn(task, SEQUENCES + 3)
    figures = figures_of_heads(model, examples)
    patterns = weights_of(model, examples.symbols[:SEQUENCES])
    names = [f"L{layer}H{head}" for layer in range(layers) for head in range(3)]
    assert [one.head for one in figures] == names
    for number, one in enumerate(figures):
        weights = patterns[number // 3][:, number % 3].double()
        entropy, largest, looks = figures_by_loops(weights, examples.places)
        assert tuple(one.looks) == task.questions
        found = torch.tensor([one.entropy, one.largest, *one.looks.values()])
        wanted = torch.tensor([entropy, largest, *looks])
        assert_same(found, wanted, roundings=ROUNDINGS, name=one.head)
    assert len({round(one.entropy, 4) for one in figures}) == len(figures), "heads differ"


def planted(offset: int, symbols: int = 11, length: int = 13) -> tuple[SweepModel, Examples]:
    """Two heads: the first looks so many positions back, the second at all alike."""
    task = Relations(relations=4, letters=symbols, length=length)
    model = SweepModel(task, Variant("free", 2, length, 3), d_model=length, layers=1)
    (attention,) = attentions(model)
    with torch.no_grad():
        model.symbols.weight.zero_()
        model.places.weight.copy_(torch.eye(length))
        attention.Wq.weight.zero_()
        attention.Wk.weight.zero_()
        # a query at position p asks for the key of position p - offset, and is loud
        attention.Wq.weight[:length] = 30 * torch.eye(length).roll(-offset, 0)
        attention.Wk.weight[:length] = torch.eye(length)
    return model, drawn(task, SEQUENCES)


def test_a_head_planted_to_look_one_back_is_found() -> None:
    previous, even = figures_of_heads(*planted(1))
    assert previous.looks["previous"] > 0.99
    assert previous.looks["second"] < 0.01
    assert "positional" in previous.roles
    assert previous.largest > 0.95 and previous.entropy < 0.05
    assert "positional" not in even.roles
    assert even.entropy == pytest.approx(1.0) and "broad" in even.roles
    assert even.looks["previous"] < 0.25


def test_a_head_planted_to_look_two_back_is_not_taken_for_one() -> None:
    second, _ = figures_of_heads(*planted(2))
    assert second.looks["second"] > 0.99
    assert second.looks["previous"] < 0.1  # the second position has nothing two before it
    assert "positional" in second.roles


def test_a_question_whose_places_are_not_known_has_no_look() -> None:
    task = Characters(length=7)
    model = sharp_model(task, VARIANT, d_model=19, layers=1)
    figures = figures_of_heads(model, drawn(task, 4))
    assert len(figures) == 3
    assert [one.looks for one in figures] == [{}, {}, {}]
    assert all(0 < one.entropy < 1 and 1 / 7 < one.largest < 1 for one in figures)


def test_measuring_leaves_a_model_as_it_was() -> None:
    model, examples = planted(1)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    said = model(examples.symbols)
    figures = figures_of_heads(model, examples)
    assert isinstance(figures[0], HeadFigures)
    assert torch.equal(model(examples.symbols), said)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert not any(one._forward_pre_hooks for one in model.modules())
