"""Texts share nothing, refits are kept where they help, and the largest cut is the largest."""

import copy
import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.objectives.evaluation import Estimate, Evaluation
from headwise.pruning import bench as benching
from headwise.pruning.bench import (
    CHECKED,
    PruneSetup,
    about_text,
    cut_and_refit,
    largest_within,
    make_bench,
)
from headwise.pruning.selection.methods import order_units
from headwise.pruning.setting import make_subject
from headwise.pruning.settings import PruneSettings
from headwise.pruning.surgery.cut import cut
from headwise.reading.batch import Inputs

from ..watching.tiny import inputs as inputs_of
from ..watching.tiny_configs import FAMILIES
from .differences import every_head, tiny_of
from .kin import REFUSED
from .subjects import (
    assert_unchanged,
    model_of,
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


def bench_of(name: str, objective: Any = None, **options: Any) -> PruneSetup:
    """A tiny model with tiny texts."""
    subject = make_subject(model_of(name), words_tokenizer(), objective)
    return make_bench(subject, texts(48), replace(SMALL, **options))


def rows_of(bench: PruneSetup, task: str) -> set[tuple[int, ...]]:
    """The tokens of every example of a task."""
    samples = bench.problem.task.samples if task == "choose" else getattr(bench, task).samples
    return {
        tuple(ids[mask.bool()].tolist())
        for sample in samples
        for ids, mask in zip(
            sample.inputs["input_ids"], sample.inputs["attention_mask"], strict=True
        )
    }


def test_what_is_reported_is_measured_on_text_of_its_own() -> None:
    bench = bench_of("gpt2")
    fit, ridge, held_out = (rows_of(bench, name) for name in ("fit", "ridge", "held_out"))
    assert not fit & ridge and not fit & held_out and not ridge & held_out
    assert not rows_of(bench, "choose") & (ridge | held_out)
    about = about_text(bench)
    assert {name: one["examples"] for name, one in about.items()} == {
        "chosen_on": bench.problem.task.num_examples,
        "fitted_on": len(fit),
        "ridge_chosen_on": len(ridge),
        "measured_on": len(held_out),
    }
    real = [int(one.inputs["attention_mask"].sum()) for one in bench.held_out.samples]
    assert about["measured_on"]["tokens"] == sum(real)
    assert about["measured_on"]["sha256"] != about["fitted_on"]["sha256"]
    assert about == about_text(bench_of("gpt2"))
    assert len(bench.inputs["input_ids"]) <= CHECKED and bench.has_own_text


def test_batches_are_dealt_out_each_to_one_use() -> None:
    subject = make_subject(model_of("gpt2"))
    for count in (3, 4, 11):
        batches = split(inputs_of(FAMILIES["gpt2"], count, 7), *[1] * count)
        bench = make_bench(subject, None, SMALL, batches=batches)
        used = [rows_of(bench, name) for name in ("fit", "ridge", "held_out")]
        assert all(used) and sum(map(len, used)) == count == len(set.union(*used))
        assert rows_of(bench, "choose") == used[0]


def test_too_few_batches_or_texts_beside_them_are_refused() -> None:
    subject = make_subject(model_of("gpt2"))
    with pytest.raises(OptionError, match="there are 2 batches: give at least 3, to fit on, to"):
        make_bench(subject, None, SMALL, batches=[plain("gpt2")] * 2)
    with pytest.raises(OptionError, match="texts and batches to measure on: give one of them"):
        make_bench(subject, texts(), SMALL, batches=[plain("gpt2")] * 3)


def test_whole_groups_or_one_head_of_each_go() -> None:
    groups, even = bench_of("llama"), bench_of("llama", policy="even", is_uniform=True)
    assert {len(unit.heads) for unit in groups.problem.units} == {3}
    assert not groups.problem.is_nested
    assert {len(unit.heads) for unit in even.problem.units} == {2}
    assert even.problem.is_nested and even.problem.is_uniform and len(even.problem.units) == 6
    order = order_units("quadratic", even.problem)
    found = cut_and_refit(even, order.first(3))
    assert {len(heads) for heads in found.surgery.kept.values()} == {4}


def test_the_cut_model_is_another_and_the_given_one_stays() -> None:
    bench = bench_of("llama", refit="none")
    before = state_of(bench.subject.model)
    heads = bench.problem.units[1].heads
    found = cut_and_refit(bench, heads)
    assert_unchanged(bench.subject.model, before)
    assert found.unrefitted == found.loss and found.fits == ()
    silent = bench.held_out.loss(heads)
    assert found.loss == pytest.approx(silent, rel=1e3 * torch.finfo(torch.float32).eps)
    assert found.surgery.difference is not None
    nothing = cut_and_refit(replace(bench, settings=replace(SMALL, refit="full")), ())
    assert nothing.fits == () and nothing.loss == bench.held_out.loss()


class Contrary(Evaluation):
    """A task whose losses have the other sign: what helps elsewhere does harm here."""

    def loss(self, *args: Any, **options: Any) -> Estimate:
        found = super().loss(*args, **options)
        return Estimate(-found.value, found.error)


def contrary(task: Evaluation) -> Evaluation:
    return Contrary(**{one.name: getattr(task, one.name) for one in fields(task)})


@pytest.mark.parametrize("part", ["ridge", "held_out"])
def test_a_refit_has_to_help_on_both_texts(part: str) -> None:
    bench = bench_of("embedding")
    heads = order_units("random", bench.problem).first(5)
    assert cut_and_refit(bench, heads).fits
    spoiled = replace(bench, **{part: contrary(getattr(bench, part))})
    found = cut_and_refit(spoiled, heads)
    assert found.is_dropped and found.fits == () and found.loss == found.unrefitted
    goal = copy.deepcopy(bench.subject.model)
    cut(goal, heads)
    assert_unchanged(found.model, state_of(goal))


def ramp(bias: Tensor) -> Tensor:
    """A shift that no norm takes away."""
    return torch.linspace(-3, 3, len(bias), dtype=bias.dtype)


@pytest.mark.parametrize("helps", [True, False])
def test_a_refit_is_kept_only_where_it_helps(helps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of("embedding")
    heads = bench.problem.units[3].heads
    fits = (benching.LayerFit("L0", 0.1, 1.0, 0.5, True),)
    goal = copy.deepcopy(bench.subject.model)
    cut(goal, heads)
    want = state_of(goal)

    def instead(model: nn.Module, *_: Any, **__: Any) -> Any:
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name.endswith("attention.output.dense.bias"):
                    value.copy_(want[name] if helps else value + ramp(value))
        return fits

    if helps:  # spoil the bias of the uncut model, which the refit then mends
        with torch.no_grad():
            for name, value in bench.subject.model.named_parameters():
                if name.endswith("attention.output.dense.bias"):
                    value.add_(ramp(value))
    monkeypatch.setattr(benching, "refit", instead)
    found = cut_and_refit(bench, heads)
    assert found.fits == (fits if helps else ())
    is_changed = found.loss.value != found.unrefitted.value
    assert is_changed == helps
    if helps:
        assert found.loss == bench.held_out.of(found.model).loss()
    else:
        assert_unchanged(found.model, want)


def test_a_real_refit_helps_a_model_that_lost_much() -> None:
    bench = bench_of("embedding")
    found = cut_and_refit(bench, order_units("random", bench.problem).first(5))
    assert found.fits and found.loss.value < found.unrefitted.value
    assert found.loss == bench.held_out.of(found.model).loss()


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
    bench = bench_of(name, objective, refit="none")
    base = bench.held_out.loss().value
    if objective is not None:
        most = base + abs(base) * max_loss
    else:
        most = math.log(math.exp(base) * (1 + max_loss)) if name == "gpt2" else base + max_loss
    order = order_units("ablation", bench.problem)
    count, found = largest_within(bench, order.units, max_loss)
    assert found.loss.value <= most and len(found.surgery.heads) == len(order.first(count))
    assert bench.held_out.loss(order.first(count)).value <= most
    assert count == len(order.units) or bench.held_out.loss(order.first(count + 1)).value > most
    assert largest_within(bench, order.units, 1e9)[0] == len(order.units)


def test_a_loss_that_no_cut_keeps_within_is_told_with_what_the_smallest_costs() -> None:
    bench = bench_of("embedding", None, refit="none")
    units = order_units("ablation", bench.problem).units
    least = bench.held_out.loss(units[0].heads).value
    said = rf"no cut stays within 1e-09 of cosine: the smallest adds {least:.3g} to a loss of"
    with pytest.raises(OptionError, match=said):
        largest_within(bench, units, 1e-9)


def test_a_model_that_cannot_be_cut_is_refused_with_the_reason() -> None:
    family, reason = REFUSED["olmo2"]
    subject = make_subject(tiny_of(family)[0], words_tokenizer())
    with pytest.raises(ModelError, match=reason):
        make_bench(subject, texts(), SMALL)


def test_a_model_without_groups_or_heads_is_refused() -> None:
    with pytest.raises(OptionError, match="policy even leaves nothing to cut: every KV head serve"):
        bench_of("gpt2", policy="even")
    model = model_of("gpt2")
    cut(model, every_head(model))
    with pytest.raises(OptionError, match="GPT2LMHeadModel has no head left to cut"):
        make_bench(make_subject(model, words_tokenizer()), texts(), SMALL)


def test_a_text_that_cannot_be_split_is_refused() -> None:
    with pytest.raises(OptionError, match="a text of 1 paragraph cannot be split"):
        make_bench(make_subject(model_of("gpt2"), words_tokenizer()), texts(1), SMALL)


def test_a_text_of_two_paragraphs_lacks_one_to_choose_a_ridge_on() -> None:
    subject = make_subject(model_of("gpt2"), words_tokenizer())
    with pytest.raises(OptionError, match="the text has 2 paragraphs: give at least 3, to fit on"):
        make_bench(subject, "\n\n".join(texts(2)), SMALL)


def test_a_loss_that_is_no_number_is_refused_before_anything_is_chosen() -> None:
    def broken(model: nn.Module, inputs: Inputs) -> Tensor:
        return torch.full((len(inputs["input_ids"]),), math.nan)

    with pytest.raises(OptionError, match="the loss of GPT2LMHeadModel is nan, and no head can be"):
        bench_of("gpt2", broken)
