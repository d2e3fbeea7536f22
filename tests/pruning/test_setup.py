"""Steps share no text, refits are kept only if they help, and the largest cut is found."""

import copy
import math
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadCounts, HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.objective import Losses
from headwise.objectives.registers import RegisterEvaluation
from headwise.objectives.scored_model import open_scored_model
from headwise.progress import Progress, no_progress
from headwise.pruning import prune as pruning
from headwise.pruning.prune import cut_and_refit, largest_within
from headwise.pruning.refit.refit import LayerFit
from headwise.pruning.selection.methods import order_units
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import CHECKED, PruneSetup, _policy, prepare_setup
from headwise.pruning.surgery.cut import cut
from headwise.pruning.text_sets import OWN_TEXT, SAMPLES, builtin_sets, other_texts
from headwise.reading.batch import Inputs

from ..watching.tiny import inputs as inputs_of
from ..watching.tiny_configs import FAMILIES
from .differences import every_head, tiny_of
from .kin import REFUSED
from .tiny_models import (
    assert_close,
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
    refit="full",
    times_speed=False,
)


def prepare(
    model: nn.Module,
    documents: str | list[str] | None = None,
    *,
    objective: Any = None,
    settings: PruneSettings = SMALL,
    batches: list[Inputs] | None = None,
    progress: Progress = no_progress,
) -> PruneSetup:
    scored = open_scored_model(model, words_tokenizer(), objective)
    return prepare_setup(scored, settings, texts=documents, batches=batches, progress=progress)


def setup_of(name: str, objective: Any = None, **options: Any) -> PruneSetup:
    """A tiny model with tiny texts."""
    settings = replace(SMALL, **options)
    return prepare(model_of(name), texts(48), objective=objective, settings=settings)


STEPS = ("fit", "shrink", "decide", "report")
"""Steps whose text is disjoint; heads are chosen on the text that corrections are fitted on."""


def rows_of(setup: PruneSetup, step: str) -> set[tuple[int, ...]]:
    """The tokens of every example of a step."""
    evaluation: RegisterEvaluation = getattr(setup, step)
    return {
        tuple(ids[mask.bool()].tolist())
        for sample in evaluation.whole.samples
        for ids, mask in zip(
            sample.inputs["input_ids"], sample.inputs["attention_mask"], strict=True
        )
    }


def test_reported_figures_rest_on_separate_text() -> None:
    setup = setup_of("gpt2")
    for one, other in combinations(STEPS, 2):
        assert not rows_of(setup, one) & rows_of(setup, other)
    for step in STEPS[1:]:
        assert not rows_of(setup, "choose") & rows_of(setup, step)
    use = setup.text_use()
    assert use.choose.examples == setup.search.evaluation.num_examples
    for step in STEPS:
        assert getattr(use, step).examples == len(rows_of(setup, step))
        assert getattr(use, step).registers == (OWN_TEXT,)
    real = [int(sample.inputs["attention_mask"].sum()) for sample in setup.report.whole.samples]
    assert use.report.tokens == sum(real)
    assert len({getattr(use, step).sha256 for step in STEPS}) == len(STEPS)
    assert use == setup_of("gpt2").text_use() and use.is_given
    assert len(setup.inputs["input_ids"]) <= CHECKED


def test_each_batch_serves_one_step() -> None:
    for count in (4, 5, 11):
        batches = split(inputs_of(FAMILIES["gpt2"], count, 7), *[1] * count)
        setup = prepare(model_of("gpt2"), batches=batches)
        used = [rows_of(setup, name) for name in STEPS]
        assert all(used) and sum(map(len, used)) == count == len(set.union(*used))
        assert rows_of(setup, "choose") == used[0]
        assert setup.text_use().is_given and setup.other is None


def test_too_few_batches_and_batches_beside_texts_raise() -> None:
    with pytest.raises(OptionError, match=r"batches.* 3.* 4"):
        prepare(model_of("gpt2"), batches=[plain("gpt2")] * 3)
    with pytest.raises(OptionError, match=r"texts.*batches"):
        prepare(model_of("gpt2"), texts(), batches=[plain("gpt2")] * 4)


# Built-in text.


@pytest.mark.parametrize("fold", [0, 3])
@pytest.mark.parametrize("name", ["llama", "embedding"])
def test_each_builtin_register_serves_one_step(name: str, fold: int) -> None:
    settings = replace(SMALL, fold=fold, samples_text=False)
    setup = prepare(model_of(name), settings=settings)
    use, sets = setup.text_use(), builtin_sets(fold, is_causal=name == "llama")
    for step in ("choose", *STEPS):
        assert getattr(use, step).registers == tuple(getattr(sets, step))
    assert not use.is_given and setup.other is None


def test_tokens_are_shared_out_evenly_among_registers() -> None:
    settings = replace(SMALL, samples_text=False, choose_tokens=600, fit_tokens=240)
    setup = prepare(model_of("gpt2"), settings=settings)
    for evaluation, tokens in ((setup.choose, 600), (setup.fit, 240)):
        share = tokens // len(evaluation.parts)
        for part in evaluation.parts.values():
            assert share <= part.num_tokens < share + 61  # a window of the tiny model


def test_causal_models_also_choose_on_text_that_they_write() -> None:
    lines: list[str] = []
    with_samples = prepare(model_of("llama"), progress=lambda line, *_: lines.append(line))
    assert with_samples.text_use().choose.registers[-1] == SAMPLES
    assert any("sampling text" in line for line in lines)
    written = with_samples.choose.parts[SAMPLES]
    assert written.num_tokens >= SMALL.choose_tokens // len(with_samples.choose.parts)
    lines.clear()
    settings = replace(SMALL, samples_text=False)
    without = prepare(
        model_of("llama"), settings=settings, progress=lambda line, *_: lines.append(line)
    )
    assert SAMPLES not in without.choose.parts and not any("sampling" in line for line in lines)


def test_models_that_write_no_text_choose_on_builtin_text_only() -> None:
    setup = prepare(model_of("embedding"))
    assert SAMPLES not in setup.choose.parts


def test_named_heads_need_no_sampled_text() -> None:
    scored = open_scored_model(model_of("llama"), words_tokenizer(), None)
    setup = prepare_setup(scored, SMALL, chooses=False)
    assert SAMPLES not in setup.choose.parts


def test_the_users_text_is_compared_with_every_builtin_register() -> None:
    setup = setup_of("gpt2")
    assert setup.other is not None and tuple(setup.other.parts) == tuple(other_texts())
    assert SAMPLES not in setup.choose.parts


def test_other_text_that_the_tokenizer_does_not_know_is_left_out() -> None:
    setup = setup_of("bert")  # its tokenizer knows no English word, so none can be masked
    assert setup.other is None


def test_policies_cut_whole_groups_or_one_head_of_each() -> None:
    groups, even = setup_of("llama"), setup_of("llama", policy="even", is_uniform=True)
    assert {len(unit) for unit in groups.search.units} == {3}
    assert not groups.search.is_nested
    assert {len(unit) for unit in even.search.units} == {2}
    assert even.search.is_nested and even.search.is_uniform and len(even.search.units) == 6
    order = order_units("quadratic", even.search)
    found = cut_and_refit(even, order.first(3))
    assert {len(heads) for heads in found.surgery.kept.values()} == {4}


def test_single_query_heads_are_cut_if_each_layer_has_one_kv_head() -> None:
    lines: list[str] = []
    model = model_of("gemma3")
    setup = prepare(model, texts(48), progress=lambda line, *_: lines.append(line))
    assert setup.search.is_nested and {len(unit) for unit in setup.search.units} == {1}
    assert len(setup.search.units) == 3 * (5 - 1)
    (line,) = {line for line in lines if "policy" in line}
    assert "one KV head" in line and "single query heads" in line and "even" in line
    with pytest.raises(OptionError, match=r"policy is 'groups'.*one KV head.*even") as caught:
        prepare(model, texts(48), settings=replace(SMALL, policy="groups"))
    assert caught.value.option == "policy"
    same = prepare(model, texts(48), settings=replace(SMALL, policy="even"))
    assert same.search.units == setup.search.units


@pytest.mark.parametrize(
    ("counts", "policy"),
    [
        ({"L0": (5, 1), "L1": (5, 1)}, "even"),
        ({"L0": (1, 1), "L1": (5, 1)}, "even"),
        ({"L0": (5, 1), "L1": (6, 2)}, "groups"),
        ({"L0": (6, 2)}, "groups"),
        ({"L0": (5, 5)}, "groups"),
        ({"L0": (1, 1)}, "groups"),  # the only head, which may be cut
    ],
)
def test_the_automatic_policy_depends_on_the_kv_heads(counts: HeadCounts, policy: str) -> None:
    lines: list[str] = []
    assert _policy("auto", counts, lambda line, *_: lines.append(line)) == policy
    assert bool(lines) == (policy == "even")


def test_policy_even_needs_no_gradients() -> None:
    @torch.no_grad()
    def without_gradients(model: nn.Module, inputs: Inputs) -> Tensor:
        logits: Tensor = model(**inputs).logits
        return logits.square().mean((1, 2))

    settings = replace(SMALL, method="ablation")
    setup = prepare(model_of("gemma3"), texts(48), objective=without_gradients, settings=settings)
    assert setup.search.is_nested and len(order_units("ablation", setup.search).units) == 12


def test_cutting_leaves_the_uncut_model_unchanged() -> None:
    setup = setup_of("llama", refit="none")
    before = state_of(setup.scored.model)
    heads = setup.search.units[1]
    found = cut_and_refit(setup, heads)
    assert_unchanged(setup.scored.model, before)
    assert (found.correction, found.fits, found.is_dropped) == ("none", (), False)
    silent = setup.decide.losses(heads).overall
    assert found.decided.overall == pytest.approx(silent, rel=1e3 * torch.finfo(torch.float32).eps)
    assert found.surgery.difference is not None
    nothing = cut_and_refit(replace(setup, settings=replace(SMALL, refit="full")), ())
    assert nothing.correction == "none" and not nothing.is_dropped
    assert nothing.decided.overall == setup.uncut_decide.overall


# Corrections.


class Contrary(Evaluation):
    """An evaluation whose losses have the other sign: what helps elsewhere does harm here."""

    def losses(self) -> Losses:
        losses = super().losses()
        return Losses(-losses.sums, losses.weights)


def contrary(part: Evaluation) -> Evaluation:
    return Contrary(**{one.name: getattr(part, one.name) for one in fields(part)})


def with_contrary_register(setup: PruneSetup) -> PruneSetup:
    """The setup in which corrections do harm on a second register of the text that decides."""
    parts = setup.decide.parts
    registers = {**parts, "contrary": contrary(parts[OWN_TEXT])}
    return replace(setup, decide=RegisterEvaluation(registers))


def setup_and_heads(name: str) -> tuple[PruneSetup, tuple[HeadId, ...]]:
    """A setup with heads whose loss corrections reduce."""
    if name == "embedding":
        setup = setup_of(name)
        return setup, order_units("random", setup.search).first(5)
    setup = prepare(model_of_similar_tokens(name), texts(48))
    return setup, tuple(setup.search.units[0])


@pytest.mark.parametrize("name", ["embedding", "llama"])
def test_corrections_must_help_in_every_register_that_decides(name: str) -> None:
    setup, heads = setup_and_heads(name)
    assert cut_and_refit(setup, heads).correction != "none"
    found = cut_and_refit(with_contrary_register(setup), heads)
    assert found.is_dropped and found.correction == "none" and found.fits == ()
    goal = copy.deepcopy(setup.scored.model)
    cut(goal, heads)
    assert_unchanged(found.model, state_of(goal))  # biases that were added are gone


def ramp(bias: Tensor) -> Tensor:
    """A shift that no norm removes."""
    return torch.linspace(-3, 3, len(bias), dtype=bias.dtype)


FITS = (LayerFit("L0", "weights", 0.1, 1.0, 0.5, True),)


def shift_biases(model: nn.Module, size: float) -> None:
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("attention.output.dense.bias"):
                value.add_(size * ramp(value))


@pytest.mark.parametrize(
    ("bias", "refit", "kept"),
    [
        (0.5, 1.0, "full"),
        (1.0, 0.5, "bias"),  # the refit helps, but less than the biases
        (0.5, -1.0, "bias"),
        (-1.0, 0.5, "full"),
        (-1.0, -1.0, "none"),
        (0.0, 0.0, "none"),  # as good as without
    ],
)
def test_the_correction_that_helps_most_is_kept(
    bias: float, refit: float, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corrections undo a share of a shift that was added to the uncut model's biases."""
    setup = setup_of("embedding")
    heads = setup.search.units[3]
    shift_biases(setup.scored.model, 1.0)
    spoiled = copy.deepcopy(setup.scored.model)
    cut(spoiled, heads)

    def add_instead(model: nn.Module, *_: Any, **__: Any) -> float:
        shift_biases(model, -bias)
        return 0.5

    monkeypatch.setattr(pruning, "add_mean_outputs", add_instead)

    def refit_instead(model: nn.Module, *_: Any, **__: Any) -> tuple[LayerFit, ...]:
        shift_biases(model, -refit)
        return FITS

    monkeypatch.setattr(pruning, "refit", refit_instead)
    found = cut_and_refit(setup, heads)
    assert found.correction == kept and found.is_dropped == (kept == "none")
    assert found.fits == (FITS if kept == "full" else ())
    assert found.share == {"bias": 0.5, "full": 1.0, "none": 0.0}[kept]
    assert found.decided.overall == setup.decide.with_model(found.model).losses().overall
    shift_biases(spoiled, {"bias": -bias, "full": -refit, "none": 0.0}[kept])
    for name, value in spoiled.state_dict().items():
        assert_close(found.model.state_dict()[name], value, torch.float64, name)


def test_the_bias_variant_fits_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    setup, heads = setup_and_heads("embedding")
    monkeypatch.setattr(pruning, "refit", pytest.fail)
    found = cut_and_refit(replace(setup, settings=replace(SMALL, refit="bias")), heads)
    assert found.correction == "bias" and found.fits == ()


def test_a_real_refit_helps_a_model_that_lost_much() -> None:
    setup, heads = setup_and_heads("embedding")
    found = cut_and_refit(setup, heads)
    assert found.correction == "full" and found.fits
    silent = setup.decide.losses(heads)
    assert found.decided.helps(silent, setup.uncut_decide)
    assert found.decided.overall == setup.decide.with_model(found.model).losses().overall


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
    base = setup.uncut_decide.overall.value
    if objective is not None:
        most = base + abs(base) * max_loss
    else:
        most = math.log(math.exp(base) * (1 + max_loss)) if name == "gpt2" else base + max_loss
    order = order_units("ablation", setup.search)
    count, found = largest_within(setup, order.units, max_loss)
    assert found.decided.overall.value <= most and len(found.surgery.heads) == len(
        order.first(count)
    )
    decide = setup.decide.whole
    assert decide.loss(order.first(count)).value <= most
    assert count == len(order.units) or decide.loss(order.first(count + 1)).value > most
    assert largest_within(setup, order.units, 1e9)[0] == len(order.units)


def test_impossible_budget_names_the_cost_of_the_smallest_cut() -> None:
    setup = setup_of("embedding", None, refit="none")
    units = order_units("ablation", setup.search).units
    least = setup.decide.whole.loss(units[0]).value
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


def test_text_of_three_paragraphs_raises() -> None:
    with pytest.raises(OptionError, match=r"3 paragraphs.* 4 parts.* blank lines"):
        prepare(model_of("gpt2"), "\n\n".join(texts(3)))


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
    parts = [rows_of(setup, name) for name in STEPS]
    assert all(part and part <= every for part in parts)
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_whole_texts_must_be_at_least_four() -> None:
    settings = replace(SMALL, keeps_texts_whole=True)
    lines = ["w9 w10 w11", "w12 w13 w14", "w15 w16"]
    with pytest.raises(OptionError, match=r"3 examples .* 4 parts"):
        prepare(model_of("gpt2"), lines, settings=settings)
    with pytest.raises(OptionError, match="1 example"):
        prepare(model_of("gpt2"), "w9 w10 w11\n\nw12 w13 w14", settings=settings)


def test_layers_that_cannot_be_cut_are_left_out_of_the_choice() -> None:
    model, inputs = tiny_of(FAMILIES["llama"])
    attention = model.model.layers[1].self_attn
    attention.q_proj = nn.Sequential(attention.q_proj, nn.LayerNorm(48, dtype=torch.float64))
    scored = open_scored_model(model)
    told: list[str] = []
    setup = prepare_setup(
        scored,
        PruneSettings(refit="none"),
        batches=split(inputs, 1, 1, 1, 1) * 2,
        progress=lambda stage, *_: told.append(stage),
    )
    assert set(setup.search.units_by_layer) == {"L0", "L2"}
    assert set(setup.counts) == {"L0", "L1", "L2"}
    assert any("L1" in stage for stage in told)
