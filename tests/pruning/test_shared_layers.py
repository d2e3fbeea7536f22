"""ALBERT, whose layers share their weights, is pruned head by head for all of its layers."""

import copy
import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AlbertForMaskedLM

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.models.loading import load
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.prune import Pruned, prune
from headwise.pruning.refit.mean_correction import add_mean_outputs
from headwise.pruning.selection.methods import (
    METHODS,
    CutSearch,
    order_units,
    random_cut,
)
from headwise.pruning.settings import PruneSettings
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.watching.gates import silence

from ..watching.helpers import run
from ..watching.tiny_configs import VOCABULARY
from .test_setup import SMALL, prepare, setup_of
from .tiny_models import assert_close, model_of, plain, task_of, texts, words_tokenizer

BIAS = replace(SMALL, refit="bias")
LAYERS = ("L0", "L1", "L2")
NUM_HEADS = 5


@functools.cache
def search_of_albert() -> CutSearch:
    return setup_of("albert", refit="bias").search


def in_every_layer(*heads: int) -> list[str]:
    return [f"{layer}H{head}" for layer in LAYERS for head in heads]


def pruned(out: Path | None = None, model: nn.Module | None = None, **options: Any) -> Pruned:
    given = {"tokenizer": words_tokenizer(), "settings": BIAS, "texts": texts(48)} | options
    return prune(model or model_of("albert"), out, **given)


def assert_is_shared(heads: Any) -> set[int]:
    """The numbers of the heads, which must be the same in all layers."""
    numbers = {head.head for head in heads}
    assert {str(head) for head in heads} == set(in_every_layer(*numbers))
    return numbers


def test_a_unit_is_the_same_head_in_all_layers() -> None:
    units = search_of_albert().units
    assert [assert_is_shared(unit) for unit in units] == [{head} for head in range(NUM_HEADS)]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_orders_the_units(method: str) -> None:
    order = order_units(method, search_of_albert(), count=3)
    assert len(assert_is_shared(order.first(3))) == 3 == len(order.units)


def test_ablating_a_unit_silences_its_head_in_all_layers() -> None:
    search, task = search_of_albert(), task_of("albert")
    (unit, *_), uncut = search.units, task.loss().value
    with silence(task.model, in_every_layer(0)):
        expected = task.loss().value - uncut
    assert ablate(task, [unit])[0].value == pytest.approx(expected, rel=1e-6)


def test_layers_that_share_weights_share_mean_outputs() -> None:
    means = search_of_albert().means
    assert means is not None
    first, *others = (means.by_layer["", layer] for layer in range(len(LAYERS)))
    for other in others:
        assert torch.equal(first, other)


@pytest.mark.parametrize("heads", [(1,), (0, 3)])
def test_random_cuts_remove_as_many_heads_from_all_layers(heads: tuple[int, ...]) -> None:
    plan = [HeadId.parse(name) for name in in_every_layer(*heads)]
    cuts = {random_cut(search_of_albert(), plan, seed) for seed in range(8)}
    assert len(cuts) > 1
    assert all(len(assert_is_shared(cut)) == len(heads) for cut in cuts)


def test_the_mean_correction_is_the_mean_over_all_layers() -> None:
    """Silencing heads with these means equals cutting them and correcting the shared bias."""
    search, model = search_of_albert(), model_of("albert")
    heads = [HeadId.parse(name) for name in in_every_layer(1, 4)]
    with torch.no_grad(), silence(search.evaluation.model, heads, means=search.means):
        expected = run(search.evaluation.model, plain("albert")).logits
    cut(model, heads)
    assert add_mean_outputs(model, model_of("albert"), heads, search.evaluation.samples) == 1
    assert_close(run(model, plain("albert")).logits, expected, torch.float32)


def test_the_pruned_model_loads_and_equals_silencing(tmp_path: Path) -> None:
    settings = replace(BIAS, refit="none", draws_curve=True)
    result = pruned(tmp_path / "out", cut=6, settings=settings)
    assert len(assert_is_shared(result.plan.heads)) == 2
    assert result.record.cut_against_silenced is not None
    assert dict(head_counts(result.model)) == dict.fromkeys(LAYERS, (3, 3))
    inputs, uncut = plain("albert"), model_of("albert")
    with silence(uncut, result.plan.heads):
        expected = run(uncut, inputs).logits
    assert expected.shape[-1] == VOCABULARY
    for model in (result.model, load(tmp_path / "out").model):
        assert_close(run(model, inputs).logits, expected, torch.float32)


def test_a_corrected_model_loads(tmp_path: Path) -> None:
    result = pruned(tmp_path / "out", keep=0.6)
    loaded, inputs = load(tmp_path / "out").model, plain("albert")
    assert_close(run(loaded, inputs).logits, run(result.model, inputs).logits, torch.float32)


def test_named_heads_must_be_cut_in_all_layers() -> None:
    with pytest.raises(OptionError, match="also cut L1H2, L2H2"):
        pruned(heads="L0H2")
    assert assert_is_shared(pruned(heads=" ".join(in_every_layer(2))).plan.heads) == {2}


def test_the_smallest_cut_is_a_head_of_every_layer() -> None:
    with pytest.raises(OptionError, match=r"cannot cut 2 heads.*removes 3"):
        pruned(cut=2)


@pytest.mark.parametrize("refit", ["full", "wide"])
def test_a_refit_of_shared_weights_raises_before_the_work(refit: str) -> None:
    messages: list[str] = []
    with pytest.raises(
        OptionError, match=f"refit is '{refit}'.*AlbertForMaskedLM are shared.*bias or none"
    ):
        pruned(
            cut=3,
            settings=PruneSettings(refit=refit),
            progress=lambda stage, *_: messages.append(stage),
        )
    assert not messages


def test_random_cuts_of_several_shared_modules_can_be_cut() -> None:
    config = copy.deepcopy(model_of("albert").config)
    config.num_hidden_layers, config.num_hidden_groups = 5, 2
    model = AlbertForMaskedLM(config).double().eval()
    search = prepare(model, texts(48), settings=BIAS).search
    assert sorted(map(len, search.units)) == [2] * NUM_HEADS + [3] * NUM_HEADS
    for plan in (search.units[0], search.units[0] + search.units[-1]):
        for seed in range(6):
            heads = random_cut(search, plan, seed)
            assert len(heads) == len(plan)
            cut(copy.deepcopy(model), heads)
