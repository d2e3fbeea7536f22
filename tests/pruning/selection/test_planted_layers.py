"""Layers that gradients cannot see: where a norm follows attention, an indispensable layer is kept.

Multiplying all heads of such a layer by the same number changes nothing, so the interactions of its
heads add up to zero, and cutting the whole layer seems to be free.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import Divergence
from headwise.objectives.registers import RegisterEvaluation
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.importance.gradients import Gradients, gradients
from headwise.pruning.importance.importance import importance
from headwise.pruning.prune import Pruned, prune
from headwise.pruning.selection import methods
from headwise.pruning.selection.methods import (
    CutOrder,
    CutSearch,
    membership,
    one_of_each_group,
    order_units,
    whole_groups,
)
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import cut_search
from headwise.reading.batch import Inputs
from headwise.watching.gates import mean_outputs

from ...watching.tiny import build, inputs as inputs_of
from ...watching.tiny_configs import FAMILIES
from ..kin import KIN, REFUSED
from ..tiny_models import split

NORMS = {
    "gemma2": "post_attention_layernorm",
    "gemma3": "post_attention_layernorm",
    "exaone4": "post_attention_layernorm",
    "glm4": "post_self_attn_layernorm",
}
"""Families with a norm after attention, and its name."""
UNCUTTABLE = {"olmo2": "post_attention_layernorm", "olmo3": "post_attention_layernorm"}
"""Families with such a norm whose heads can be measured, but not cut."""
ROWS = FAMILIES | KIN | {name: family for name, (family, _) in REFUSED.items()}
GROUPED = [("gemma2", 2), ("gemma2", 3), ("gemma3", 5), ("exaone4", 3), ("glm4", 3)]
"""Families with several KV heads per layer; Gemma 3 here has as many as query heads."""
SINGLE = [(name, 1) for name in NORMS]
PLANTED, LARGE, SMALL = 1, 30.0, 0.03
"""The indispensable layer, and the weights of its norm and of the other layers' norms."""
KEPT, PAIR = HeadId(PLANTED, 1), (2, 3)
"""The planted layer's only useful head, and two heads that may cancel each other."""
PRUNED = PruneSettings(times_speed=False, refit="none")
BATCHES = split(inputs_of(FAMILIES["llama"], 8, 13), 2, 2, 2, 2)
"""Batches for `prune`, which reports on the last one."""


@torch.no_grad()
def planted_model(name: str, kv_heads: int) -> nn.Module:
    """A tiny model whose other layers add little to the residual stream."""
    row = ROWS[name]
    row = replace(row, config={**row.config, "num_key_value_heads": kv_heads})
    model = build(row)
    for index, layer in enumerate(layers_of(model)):
        norm = layer.get_submodule((NORMS | UNCUTTABLE)[name])
        size = LARGE if index == PLANTED else SMALL
        norm.weight.fill_(size - 1 if name.startswith("gemma") else size)  # Gemma's is 1 + weight
    return model


def layers_of(model: nn.Module) -> list[nn.Module]:
    return list(model.get_submodule("model.layers").children())


def attention_of(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The projections of the planted layer."""
    for name, module in layers_of(model)[PLANTED].get_submodule("self_attn").named_children():
        if isinstance(module, nn.Linear):
            yield name, module


@torch.no_grad()
def with_equal_groups(model: nn.Module, kv_heads: int) -> nn.Module:
    """The model with copies of one group in the planted layer: one of them is enough."""
    for name, module in attention_of(model):
        axis = 1 if name == "o_proj" else 0
        first = module.weight.chunk(kv_heads, axis)[0]
        module.weight.copy_(torch.cat([first] * kv_heads, axis))
        if module.bias is not None and name != "o_proj":
            module.bias.copy_(module.bias.chunk(kv_heads)[0].repeat(kv_heads))
    return model


@torch.no_grad()
def with_one_head(model: nn.Module, *, has_pair: bool = True) -> nn.Module:
    """The model whose planted layer outputs only what KEPT outputs, because other heads add zero.

    If `has_pair` is True, the two heads in PAIR add something, but cancel each other.
    """
    projections, heads = dict(attention_of(model)), evaluation_of(model).counts[f"L{PLANTED}"][0]
    queries, columns = (
        list(projections[name].weight.chunk(heads, axis))
        for name, axis in (("q_proj", 0), ("o_proj", 1))
    )
    first, second = PAIR
    if has_pair:
        queries[second].copy_(queries[first])  # both look at the same tokens
        columns[second].copy_(-columns[first])
    for head, column in enumerate(columns):
        if head != KEPT.head:
            column.mul_(0.01 if has_pair and head in PAIR else 0.0)
    return model


def evaluation_of(model: nn.Module, batches: list[Inputs] | None = None) -> Evaluation:
    """The divergence from the uncut model, on a batch without padding."""
    return Evaluation.of_batches(model, Divergence(), batches or [tokens(4)])


def tokens(batch: int) -> Inputs:
    return inputs_of(FAMILIES["llama"], batch, 13)


def heads_of_planted(heads: Iterable[HeadId]) -> list[HeadId]:
    return [head for head in heads if head.layer == PLANTED]


def search_of(model: nn.Module, *, has_means: bool = False) -> CutSearch:
    """A search that cuts whole KV groups."""
    task = evaluation_of(model)
    means = mean_outputs(model, [sample.inputs for sample in task.samples]) if has_means else None
    units = whole_groups(task.heads, task.counts)
    return CutSearch(RegisterEvaluation({"given": task}), units, means)


def order_by_interactions(search: CutSearch, monkeypatch: pytest.MonkeyPatch) -> CutOrder:
    """The order by interactions alone, as heads were once chosen."""
    with monkeypatch.context() as patch:
        patch.setattr(
            methods,
            "_measure_directly",
            lambda _, __, ___, units: {unit: place for place, unit in enumerate(units)},
        )
        return order_units("rounds", search)


def planted_places(order: CutOrder) -> list[int]:
    """Indices of the planted layer's units in an order."""
    return [index for index, unit in enumerate(order.units) if unit[0].layer == PLANTED]


@pytest.mark.parametrize(
    ("name", "kv_heads"), [*GROUPED, *SINGLE, *((name, 3) for name in UNCUTTABLE)]
)
def test_interactions_in_a_layer_with_a_norm_after_it_add_up_to_zero(
    name: str, kv_heads: int
) -> None:
    task = evaluation_of(planted_model(name, kv_heads))
    scores = gradients(task, draws=4)
    assert share_of_sums(scores) < 1e-4
    layer = tuple(heads_of_planted(task.heads))
    member = membership([layer], task.heads)
    predicted = float(member @ scores.interaction @ member.T) / 2
    measured = ablate(task, [layer])[0].value
    assert measured > 0.01 and abs(predicted) < 1e-6 * measured


def share_of_sums(scores: Gradients) -> float:
    """The largest sum of a head's interactions with the planted layer, compared with the largest
    interaction."""
    columns = [index for index, head in enumerate(scores.heads) if head.layer == PLANTED]
    sums = scores.interaction[:, columns].sum(1)
    return float(sums.abs().max() / scores.interaction[columns].abs().max())


def test_interactions_in_a_layer_without_such_a_norm_do_not_add_up_to_zero() -> None:
    assert share_of_sums(gradients(evaluation_of(build(FAMILIES["llama"])), draws=4)) > 0.1


@pytest.mark.parametrize(("name", "kv_heads"), GROUPED)
def test_the_last_group_of_an_indispensable_layer_is_cut_last(
    name: str, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_equal_groups(planted_model(name, kv_heads), kv_heads)
    search = search_of(model)
    before = order_by_interactions(search, monkeypatch)
    assert planted_places(before) == list(range(kv_heads))  # at once, as if it cost nothing
    for has_means in (False, True):
        order = order_units("rounds", search_of(model, has_means=has_means))
        assert planted_places(order)[-1] == len(order.units) - 1
        assert order.costs[-1] > (2 if has_means else 100) * max(order.costs[:-1])


@pytest.mark.parametrize(("name", "kv_heads"), SINGLE)
def test_an_indispensable_layer_with_one_kv_head_is_cut_last(
    name: str, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a whole layer, which `prune` no longer cuts in such a model."""
    model = planted_model(name, kv_heads)
    with torch.no_grad():  # the norm's epsilon then matters in the other layers
        for layer in {*layers_of(model)} - {layers_of(model)[PLANTED]}:
            layer.get_submodule("self_attn.o_proj").weight.mul_(1e-3)
    search = search_of(model)
    assert planted_places(order_by_interactions(search, monkeypatch)) == [0]
    for has_means in (False, True):
        order = order_units("rounds", search_of(model, has_means=has_means))
        assert planted_places(order) == [len(order.units) - 1]
        assert order.costs[-1] > 100 * max(order.costs[:-1])


@pytest.mark.parametrize("refit", ["none", "full"])
@pytest.mark.parametrize(("name", "kv_heads"), SINGLE)
def test_the_only_useful_head_of_a_layer_is_in_no_unit(
    name: str, kv_heads: int, refit: str
) -> None:
    task = evaluation_of(with_one_head(planted_model(name, kv_heads)))
    expected = gradients(task, draws=4).interaction.diagonal()
    by_gradients = one_of_each_group(task.heads, task.counts, expected.tolist())
    assert (KEPT,) in by_gradients  # its gradient is zero, and the pair's is not
    registers = RegisterEvaluation({"given": task})
    search = cut_search(registers, PruneSettings(refit=refit))
    assert search.is_nested and KEPT not in {head for unit in search.units for head in unit}
    assert planted_places(order_units("rounds", search))[0] == 0  # some of its heads are free


# The whole way.


@pytest.mark.parametrize(("name", "kv_heads"), GROUPED)
def test_prune_keeps_a_group_of_an_indispensable_layer(name: str, kv_heads: int) -> None:
    model = with_equal_groups(planted_model(name, kv_heads), kv_heads)
    layer = heads_of_planted(evaluation_of(model).heads)
    pruned = prune(model, cut=len(layer), batches=BATCHES, objective=Divergence(), settings=PRUNED)
    assert set(layer) > set(heads_of_planted(pruned.plan)) != set()
    assert_far_better_than_without(layer, pruned, model)


@pytest.mark.parametrize(("name", "kv_heads"), SINGLE)
def test_prune_keeps_the_only_useful_head(name: str, kv_heads: int) -> None:
    model = with_one_head(planted_model(name, kv_heads))
    layer = heads_of_planted(evaluation_of(model).heads)
    lines: list[str] = []
    pruned = prune(
        model,
        cut=2 * len(layer) - 2,
        batches=BATCHES,
        objective=Divergence(),
        settings=PRUNED,
        progress=lambda line, *_: lines.append(line),
    )
    assert KEPT not in pruned.plan and heads_of_planted(pruned.plan)
    assert any("one KV head" in line and "even" in line for line in lines)
    assert_far_better_than_without(layer, pruned, model)


def assert_far_better_than_without(
    layer: Sequence[HeadId], pruned: Pruned, model: nn.Module
) -> None:
    """The result has a hundredth of the loss that the model without the layer has."""
    without = evaluation_of(model, BATCHES[3::4]).loss(layer).value
    assert pruned.record.quality.scores.final.loss < without / 100


@pytest.mark.parametrize("name", UNCUTTABLE)
def test_importance_measures_a_head_whose_gradient_is_zero(name: str) -> None:
    model = with_one_head(planted_model(name, 3), has_pair=False)
    table = importance(model, batches=[tokens(4)], objective=Divergence()).table
    row = table[str(KEPT)]
    assert row["zero"] == table.df["zero"].max() > 0.01
    assert abs(row["expected"]) < 1e-6 * row["zero"]
