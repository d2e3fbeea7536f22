"""Steps share no text, refits are kept only if they help, and the largest cut is found."""

import copy
import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.objectives.evaluation import Estimate, Evaluation
from headwise.objectives.scored_model import open_scored_model
from headwise.pruning import prune as pruning
from headwise.pruning.prune import cut_and_refit, largest_within
from headwise.pruning.refit.refit import LayerFit
from headwise.pruning.selection.methods import order_units
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import CHECKED, PruneSetup, prepare_setup
from headwise.pruning.surgery.cut import cut
from headwise.reading.batch import Inputs

from ..watching.tiny import inputs as inputs_of
from ..watching.tiny_configs import FAMILIES
from .differences import every_head, tiny_of
from .kin import REFUSED
from .tiny_models import (
    assert_unchanged,
    model_of,
    model_of_similar_tokens,
    plain,
    split,
    state_of,
    texts,
    words_tokenizer,
)

SMALL = PruneSettings(
    choose_tokens=200,
    fit_tokens=600,
    held_tokens=150,
    method="quadratic",
    draws_curve=False,
    times_speed=False,
)


def prepare(
    model: nn.Module,
    documents: str | list[str] | None = None,
    *,
    objective: Any = None,
    settings: PruneSettings = SMALL,
    batches: list[Inputs] | None = None,
) -> PruneSetup:
    scored = open_scored_model(model, words_tokenizer(), objective)
    return prepare_setup(scored, settings, texts=documents, batches=batches)


def setup_of(name: str, objective: Any = None, **options: Any) -> PruneSetup:
    """A tiny model with tiny texts."""
    settings = replace(SMALL, **options)
    return prepare(model_of(name), texts(48), objective=objective, settings=settings)


def rows_of(setup: PruneSetup, step: str) -> set[tuple[int, ...]]:
    """The tokens of every example of a step."""
    samples = getattr(setup, step).samples
    return {
        tuple(ids[mask.bool()].tolist())
        for sample in samples
        for ids, mask in zip(
            sample.inputs["input_ids"], sample.inputs["attention_mask"], strict=True
        )
    }


def test_reported_figures_rest_on_separate_text() -> None:
    setup = setup_of("gpt2")
    fit, ridge, held_out = (rows_of(setup, name) for name in ("fit", "ridge", "held_out"))
    assert not fit & ridge and not fit & held_out and not ridge & held_out
    assert not rows_of(setup, "choose") & (ridge | held_out)
    use = setup.text_use()
    assert use.chosen_on.examples == setup.search.evaluation.num_examples
    assert use.fitted_on.examples == len(fit) and use.ridge_chosen_on.examples == len(ridge)
    assert use.measured_on.examples == len(held_out)
    real = [int(sample.inputs["attention_mask"].sum()) for sample in setup.held_out.samples]
    assert use.measured_on.tokens == sum(real)
    assert use.measured_on.sha256 != use.fitted_on.sha256
    assert use == setup_of("gpt2").text_use() and use.source == "given"
    assert len(setup.inputs["input_ids"]) <= CHECKED


def test_each_batch_serves_one_step() -> None:
    for count in (3, 4, 11):
        batches = split(inputs_of(FAMILIES["gpt2"], count, 7), *[1] * count)
        setup = prepare(model_of("gpt2"), batches=batches)
        used = [rows_of(setup, name) for name in ("fit", "ridge", "held_out")]
        assert all(used) and sum(map(len, used)) == count == len(set.union(*used))
        assert rows_of(setup, "choose") == used[0]


def test_too_few_batches_and_batches_beside_texts_raise() -> None:
    with pytest.raises(OptionError, match=r"batches.* 2.* 3"):
        prepare(model_of("gpt2"), batches=[plain("gpt2")] * 2)
    with pytest.raises(OptionError, match=r"texts.*batches"):
        prepare(model_of("gpt2"), texts(), batches=[plain("gpt2")] * 3)


def test_policies_cut_whole_groups_or_one_head_of_each() -> None:
    groups, even = setup_of("llama"), setup_of("llama", policy="even", is_uniform=True)
    assert {len(unit) for unit in groups.search.units} == {3}
    assert not groups.search.is_nested
    assert {len(unit) for unit in even.search.units} == {2}
    assert even.search.is_nested and even.search.is_uniform and len(even.search.units) == 6
    order = order_units("quadratic", even.search)
    found = cut_and_refit(even, order.first(3))
    assert {len(heads) for heads in found.surgery.kept.values()} == {4}


def test_cutting_leaves_the_uncut_model_unchanged() -> None:
    setup = setup_of("llama", refit="none")
    before = state_of(setup.scored.model)
    heads = setup.search.units[1]
    found = cut_and_refit(setup, heads)
    assert_unchanged(setup.scored.model, before)
    assert found.unrefitted == found.loss and found.fits == ()
    silent = setup.held_out.loss(heads)
    assert found.loss == pytest.approx(silent, rel=1e3 * torch.finfo(torch.float32).eps)
    assert found.surgery.difference is not None
    nothing = cut_and_refit(replace(setup, settings=replace(SMALL, refit="full")), ())
    assert nothing.fits == () and nothing.loss == setup.held_out.loss()


class Contrary(Evaluation):
    """A task whose losses have the other sign: what helps elsewhere does harm here."""

    def loss(self, *args: Any, **options: Any) -> Estimate:
        found = super().loss(*args, **options)
        return Estimate(-found.value, found.error)


def contrary(task: Evaluation) -> Evaluation:
    return Contrary(**{one.name: getattr(task, one.name) for one in fields(task)})


@pytest.mark.parametrize("part", ["ridge", "held_out"])
@pytest.mark.parametrize("name", ["embedding", "llama"])
def test_refit_must_help_on_both_texts(name: str, part: str) -> None:
    if name == "embedding":
        setup = setup_of(name)
        heads = order_units("random", setup.search).first(5)
    else:  # the refit adds biases, which must not stay
        setup = prepare(model_of_similar_tokens(name), texts(48))
        heads = tuple(setup.search.units[0])
    assert cut_and_refit(setup, heads).fits
    spoiled = replace(setup, **{part: contrary(getattr(setup, part))})
    found = cut_and_refit(spoiled, heads)
    assert found.is_dropped and found.fits == () and found.loss == found.unrefitted
    goal = copy.deepcopy(setup.scored.model)
    cut(goal, heads)
    assert_unchanged(found.model, state_of(goal))


def ramp(bias: Tensor) -> Tensor:
    """A shift that no norm removes."""
    return torch.linspace(-3, 3, len(bias), dtype=bias.dtype)


@pytest.mark.parametrize("helps", [True, False])
def test_refit_stays_only_if_it_helps(helps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = setup_of("embedding")
    heads = setup.search.units[3]
    fits = (LayerFit("L0", 0.1, 1.0, 0.5, True),)
    goal = copy.deepcopy(setup.scored.model)
    cut(goal, heads)
    want = state_of(goal)

    def instead(model: nn.Module, *_: Any, **__: Any) -> Any:
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name.endswith("attention.output.dense.bias"):
                    value.copy_(want[name] if helps else value + ramp(value))
        return fits

    if helps:  # spoil the bias of the uncut model, which the refit then corrects
        with torch.no_grad():
            for name, value in setup.scored.model.named_parameters():
                if name.endswith("attention.output.dense.bias"):
                    value.add_(ramp(value))
    monkeypatch.setattr(pruning, "refit", instead)
    found = cut_and_refit(setup, heads)
    assert found.fits == (fits if helps else ())
    is_changed = found.loss.value != found.unrefitted.value
    assert is_changed == helps
    if helps:
        assert found.loss == setup.held_out.with_model(found.model).loss()
    else:
        assert_unchanged(found.model, want)


def test_a_real_refit_helps_a_model_that_lost_much() -> None:
    setup = setup_of("embedding")
    found = cut_and_refit(setup, order_units("random", setup.search).first(5))
    assert found.fits and found.loss.value < found.unrefitted.value
    assert found.loss == setup.held_out.with_model(found.model).loss()


def own_loss(model: nn.Module, inputs: Inputs) -> Tensor:
    logits: Tensor = model(**inputs).logits
    return logits.square().mean((1, 2)) - 10


@pytest.mark.parametrize(
    ("name", "objective", "max_loss"),
    [("gpt2", None, 0.6), ("embedding", None, 0.05), ("gpt2", own_loss, 0.05)],
)
def test_the_largest_cut_within_a_loss_can_lose_no_further_unit(
    name: str, objective: Any, max_loss: float
) -> None:
    setup = setup_of(name, objective, refit="none")
    base = setup.held_out.loss().value
    if objective is not None:
        most = base + abs(base) * max_loss
    else:
        most = math.log(math.exp(base) * (1 + max_loss)) if name == "gpt2" else base + max_loss
    order = order_units("ablation", setup.search)
    count, found = largest_within(setup, order.units, max_loss)
    assert found.loss.value <= most and len(found.surgery.heads) == len(order.first(count))
    assert setup.held_out.loss(order.first(count)).value <= most
    assert count == len(order.units) or setup.held_out.loss(order.first(count + 1)).value > most
    assert largest_within(setup, order.units, 1e9)[0] == len(order.units)


def test_impossible_budget_names_the_cost_of_the_smallest_cut() -> None:
    setup = setup_of("embedding", None, refit="none")
    units = order_units("ablation", setup.search).units
    least = setup.held_out.loss(units[0]).value
    with pytest.raises(OptionError, match=rf"1e-09 of cosine.* {least:.3g} "):
        largest_within(setup, units, 1e-9)


def test_uncuttable_model_raises_with_the_reason() -> None:
    family, reason = REFUSED["olmo2"]
    with pytest.raises(ModelError, match=reason):
        prepare(tiny_of(family)[0], texts())


def test_model_without_groups_or_heads_raises() -> None:
    with pytest.raises(OptionError, match=r"policy.*even.*groups"):
        setup_of("gpt2", policy="even")
    model = model_of("gpt2")
    cut(model, every_head(model))
    with pytest.raises(OptionError, match=r"GPT2LMHeadModel.*heads"):
        prepare(model, texts())


def test_text_that_cannot_be_split_raises() -> None:
    with pytest.raises(OptionError, match="1 paragraph"):
        prepare(model_of("gpt2"), texts(1))


def test_text_of_two_paragraphs_raises() -> None:
    with pytest.raises(OptionError, match=r"2 paragraphs.* 3"):
        prepare(model_of("gpt2"), "\n\n".join(texts(2)))


def test_loss_that_is_not_finite_raises_before_heads_are_chosen() -> None:
    def broken(model: nn.Module, inputs: Inputs) -> Tensor:
        return torch.full((len(inputs["input_ids"]),), math.nan)

    with pytest.raises(OptionError, match=r"GPT2LMHeadModel.*nan"):
        setup_of("gpt2", broken)


def test_whole_texts_are_divided_among_the_steps_unchanged() -> None:
    lines = ["w9 w10", *(f"{text}. Again {text}" for text in texts(12)), "w11 w12"]
    settings = replace(SMALL, keeps_texts_whole=True)
    setup = prepare(model_of("embedding"), lines, settings=settings)
    tokenizer = words_tokenizer()
    every = {tuple(tokenizer(line)["input_ids"]) for line in lines}
    parts = [rows_of(setup, name) for name in ("fit", "ridge", "held_out")]
    assert all(part and part <= every for part in parts)
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_whole_texts_must_be_at_least_three() -> None:
    settings = replace(SMALL, keeps_texts_whole=True)
    with pytest.raises(OptionError, match="at least 3 different"):
        prepare(model_of("gpt2"), ["w9 w10 w11", "w12 w13 w14"], settings=settings)
    with pytest.raises(OptionError, match="1 example"):
        prepare(model_of("gpt2"), "w9 w10 w11\n\nw12 w13 w14", settings=settings)
