"""Figures of heads, compared with a definition in plain loops and with heads planted by hand."""

import math

import pytest
import torch
from torch import Tensor

from headwise.attention.layer import MultiHeadAttention
from headwise.sweeps.characters import Characters
from headwise.sweeps.head_figures import SEQUENCES, HeadFigures, measure_heads
from headwise.sweeps.settings import Variant
from headwise.sweeps.synthetic_tasks import Brackets, Relations
from headwise.sweeps.task import NOWHERE, SweepTask, TaskExamples
from headwise.sweeps.training import SweepBlock, SweepModel

from ..attention.tolerance import assert_same

VARIANT = Variant("free", 3, 5, 7)
ROUNDINGS = 2 * (19 + 5 + 17) * 8
"""Sums over d_model, d_key and keys in two layers, in scores of a size of about 8."""


def draw(task: SweepTask, count: int) -> TaskExamples:
    return task.examples(count, torch.Generator().manual_seed(5), held_out=True)


def sharp_model(task: SweepTask, variant: Variant, *, d_model: int, layers: int) -> SweepModel:
    """Fresh weights, with queries large enough that rows differ clearly from even ones."""
    model = SweepModel(task, variant, d_model=d_model, layers=layers)
    for layer in attentions(model):
        torch.nn.init.normal_(layer.Wq.weight)
        torch.nn.init.normal_(layer.Wk.bias)
    return model


def attentions(model: SweepModel) -> list[MultiHeadAttention]:
    return [layer for layer in model.modules() if isinstance(layer, MultiHeadAttention)]


def weights_of(model: SweepModel, symbols: Tensor) -> list[Tensor]:
    """Softmax of causal scores, layer by layer and head by head: `[batch, heads, query, key]`."""
    x = model.symbols(symbols).sum(2) + model.places.weight[: symbols.shape[1]]
    layer_weights = []
    for layer, attention in zip(model.layers, attentions(model), strict=True):
        assert isinstance(layer, SweepBlock)
        normed = layer.before(x)
        heads = []
        for number in range(attention.num_heads):
            part = slice(number * attention.d_key, (number + 1) * attention.d_key)
            queries = normed @ attention.Wq.weight[part].T + attention.Wq.bias[part]
            keys = normed @ attention.Wk.weight[part].T + attention.Wk.bias[part]
            scores = queries @ keys.transpose(1, 2) / math.sqrt(attention.d_key)
            ahead = torch.ones_like(scores, dtype=torch.bool).triu(1)
            heads.append(scores.masked_fill(ahead, -math.inf).softmax(-1))
        layer_weights.append(torch.stack(heads, 1))
        x = layer(x)
    return layer_weights


def figures_by_loops(weights: Tensor, places: Tensor) -> tuple[float, float, list[float]]:
    """Normalised entropy, mean of the largest, and mean weight at each question's places."""
    entropies, largest = [], []
    looks: list[list[float]] = [[] for _ in range(places.shape[-1])]
    for row, pattern in enumerate(weights.tolist()):
        for query, shares in enumerate(pattern):
            seen = shares[: query + 1]
            largest.append(max(seen))
            if query > 0:
                nats = -sum(share * math.log(share) for share in seen if share > 0)
                entropies.append(nats / math.log(query + 1))
            for number, place in enumerate(places[row, query].tolist()):
                if place != NOWHERE:
                    looks[number].append(shares[place])
    means = [sum(weights) / len(weights) for weights in looks]
    return sum(entropies) / len(entropies), sum(largest) / len(largest), means


@pytest.mark.parametrize(
    ("task", "layers"),
    [
        (Relations(relations=5, letters=11, classes=3, length=13), 1),
        (Brackets(labels=5, depth=3, length=17), 2),
    ],
    ids=lambda value: str(getattr(value, "name", value)),
)
@torch.inference_mode()
def test_figures_equal_those_of_the_full_weights(task: SweepTask, layers: int) -> None:
    model = sharp_model(task, VARIANT, d_model=19, layers=layers)
    examples = draw(task, SEQUENCES + 3)
    figures = measure_heads(model, examples, model.task.shape.questions)
    patterns = weights_of(model, examples.symbols[:SEQUENCES])
    names = [f"L{layer}H{head}" for layer in range(layers) for head in range(3)]
    assert [figure.head for figure in figures] == names
    for number, figure in enumerate(figures):
        weights = patterns[number // 3][:, number % 3].double()
        entropy, largest, looks = figures_by_loops(weights, examples.places)
        assert tuple(figure.looks) == task.shape.questions
        actual = torch.tensor([figure.entropy, figure.largest, *figure.looks.values()])
        expected = torch.tensor([entropy, largest, *looks])
        assert_same(actual, expected, roundings=ROUNDINGS, name=figure.head)
    assert len({round(figure.entropy, 4) for figure in figures}) == len(figures), "heads differ"


def planted(offset: int, symbols: int = 11, length: int = 13) -> tuple[SweepModel, TaskExamples]:
    """Two heads: the first attends `offset` positions back, the second to all equally."""
    task = Relations(relations=4, letters=symbols, length=length)
    model = SweepModel(task, Variant("free", 2, length, 3), d_model=length, layers=1)
    (attention,) = attentions(model)
    with torch.no_grad():
        model.symbols.weight.zero_()
        model.places.weight.copy_(torch.eye(length))
        attention.Wq.weight.zero_()
        attention.Wk.weight.zero_()
        # a query at position p matches the key of position p - offset, strongly
        attention.Wq.weight[:length] = 30 * torch.eye(length).roll(-offset, 0)
        attention.Wk.weight[:length] = torch.eye(length)
    return model, draw(task, SEQUENCES)


def measure_planted(offset: int) -> tuple[HeadFigures, ...]:
    model, examples = planted(offset)
    return measure_heads(model, examples, model.task.shape.questions)


def test_head_planted_one_back_is_recognised() -> None:
    previous, even = measure_planted(1)
    assert previous.looks["previous"] > 0.99
    assert previous.looks["second"] < 0.01
    assert "positional" in previous.roles
    assert previous.largest > 0.95 and previous.entropy < 0.05
    assert "positional" not in even.roles
    assert even.entropy == pytest.approx(1.0) and "broad" in even.roles
    assert even.looks["previous"] < 0.25


def test_head_planted_two_back_is_not_taken_for_one_back() -> None:
    second, _ = measure_planted(2)
    assert second.looks["second"] > 0.99
    assert second.looks["previous"] < 0.1  # the second position has nothing two before it
    assert "positional" in second.roles


def test_question_without_answer_positions_has_no_weight() -> None:
    task = Characters(length=7)
    model = sharp_model(task, VARIANT, d_model=19, layers=1)
    figures = measure_heads(model, draw(task, 4), model.task.shape.questions)
    assert len(figures) == 3
    assert [figure.looks for figure in figures] == [{}, {}, {}]
    assert all(0 < figure.entropy < 1 and 1 / 7 < figure.largest < 1 for figure in figures)


def test_measuring_heads_leaves_the_model_unchanged() -> None:
    model, examples = planted(1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    logits = model(examples.symbols)
    figures = measure_heads(model, examples, model.task.shape.questions)
    assert isinstance(figures[0], HeadFigures)
    assert torch.equal(model(examples.symbols), logits)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
