"""Pruning cuts the right heads, measures and writes the result, and keeps the uncut model."""

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from transformers import (
    BertModel,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

from headwise.errors import ModelError, OptionError, OutputError
from headwise.formats import join_words
from headwise.heads import HeadId
from headwise.models.loading import load
from headwise.pruning import prune as pruning
from headwise.pruning.export.model_card import figures_section
from headwise.pruning.prune import Pruned, _plan_of_order, prune
from headwise.pruning.record import PruneRecord
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.selection.methods import CutOrder, random_cut
from headwise.pruning.settings import Amount
from headwise.pruning.stages import PruneStage
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.pruning.text_sets import SAMPLES, builtin_sets, other_texts

from ..watching.helpers import run
from .test_setup import SMALL, prepare, setup_of
from .tiny_models import (
    assert_close,
    assert_unchanged,
    model_of,
    model_of_similar_tokens,
    plain,
    state_of,
    texts,
    words_tokenizer,
)

UNFITTED = replace(SMALL, refit="none")


def pruned(model: nn.Module, out: Path | None = None, **options: Any) -> Pruned:
    """The model pruned on tiny texts."""
    given = {"tokenizer": words_tokenizer(), "settings": UNFITTED, "texts": texts(48)} | options
    return prune(model, out, **given)


@pytest.fixture(scope="module")
def shipped(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Pruned, Path, nn.Module, dict[str, Any]]:
    """A grouped Llama pruned with every option, the directory, and the uncut model."""
    model, out = model_of("llama"), tmp_path_factory.mktemp("pruned") / "smaller"
    before = state_of(model)
    settings = replace(SMALL, draws_curve=True, times_speed=True, is_uniform=True)
    return pruned(model, out, keep=0.5, settings=settings), out, model, before


def test_the_directory_loads_and_is_the_pruned_model(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    found, out, _, _ = shipped
    loaded = load(out)
    inputs = plain("llama")
    assert_close(run(loaded.model, inputs).logits, run(found.model, inputs).logits, torch.float32)
    assert loaded.tokenizer("w7 w9")["input_ids"] == [7, 9]
    assert head_counts(loaded.model) == {"L0": (3, 1), "L1": (3, 1), "L2": (3, 1)}


def test_directory_records_how_it_was_made(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    found, out, _, _ = shipped
    assert PruneRecord.read(out).to_json() == found.record.to_json()
    card = (out / "README.md").read_text("utf-8")
    record = found.record
    assert f"| parameters | {record.before.parameters:,} | {record.after.parameters:,} |" in card
    assert record.quality.other is not None
    for words, scores in (
        ("its maker's own data", record.quality.scores),
        ("other text", record.quality.other),
    ):
        cells = f"{scores.uncut.text} | {scores.final.text}"
        assert f"| perplexity, on {words} | {cells} |" in card
    assert "±" in record.quality.scores.final.text
    assert f"was measured on {record.text.report.tokens:,} tokens that decided nothing" in card
    assert record.amount == Amount(keep=0.5)
    assert "Heads have new numbers" in card
    assert CutPlan.from_json((out / "plan.json").read_text("utf-8")) == found.plan
    assert found.curve is not None
    points = pd.read_csv(out / "curve.csv")
    assert list(points.columns) == [*found.curve.points.columns, "is_elbow"]
    assert len(points) == len(found.curve.points) + 1
    assert points.method.iloc[-1] == "floor" and not points.is_elbow.iloc[-1]
    assert points.is_elbow.sum() == (found.curve.elbow > 0)
    assert "LlamaForCausalLM: quality against heads cut" in (out / "curve.svg").read_text("utf-8")


def test_record_has_the_sizes_of_both_models(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    found, _, model, _ = shipped
    record = found.record
    for sizes, one in ((record.before, model), (record.after, found.model)):
        assert sizes.parameters == sum(part.numel() for part in one.parameters())
    assert record.before.cache_bytes_per_token == 3 * 2 * 2 * 8 * 8
    assert record.after.cache_bytes_per_token == 3 * 2 * 1 * 8 * 8
    assert record.after.positions == 61
    assert [speed.batch for speed in record.speed] == [1, 4]
    assert record.heads_cut == found.plan.heads and record.method == "quadratic"
    assert record.text.is_given
    assert record.quality.floor is not None and record.quality.floor.loss > 0
    assert record.cut_against_silenced is not None and record.cut_against_silenced < 1e-4


def test_record_has_scores_by_register_with_standard_errors(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    found, out, _, _ = shipped
    quality = found.record.quality
    assert quality.registers == {"given": quality.scores}
    assert quality.other is not None and {*quality.other_registers} == {*other_texts()}
    for scores in (quality.scores, quality.other):
        for score in (scores.uncut, scores.cut, scores.final):
            assert 0 <= score.loss_se < math.inf  # 0 on English, every word of which is unknown
            assert score.value == pytest.approx(math.exp(score.loss))
            assert score.value_se == pytest.approx(score.value * score.loss_se)
    values = json.loads((out / "prune.json").read_text("utf-8"))
    assert values["quality"]["other_registers"].keys() == quality.other_registers.keys()
    assert {*values["text"]} == {"choose", "fit", "shrink", "decide", "report"}


def test_random_cuts_are_sorted_and_compared_on_the_same_examples(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    quality = shipped[0].record.quality
    losses = [score.loss for score in quality.random]
    assert losses == sorted(losses) and len(losses) == 5
    assert quality.random_median == quality.random[2]
    assert quality.random_lead == pytest.approx(losses[2] - quality.scores.final.loss)
    assert 0 < quality.random_lead_se < math.inf


def test_uniform_cut_removes_the_same_number_from_every_layer_with_reasons(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    plan = shipped[0].plan
    assert Counter(head.layer for head in plan) == {0: 3, 1: 3, 2: 3}
    assert plan.counts == {"L0": (6, 2), "L1": (6, 2), "L2": (6, 2)}
    assert set(plan.reasons) == set(plan.costs) == set(plan.heads)
    assert all("by quadratic" in why for why in plan.reasons.values())
    assert all(why.endswith("with 2 others") for why in plan.reasons.values())


def test_a_second_uniform_cut_removes_the_same_number_from_every_layer() -> None:
    model = model_of("gpt2")
    cut(model, "L0H0 L0H1")
    settings = replace(UNFITTED, is_uniform=True)
    with pytest.raises(OptionError, match=r"12 heads.* 9 .* 13"):
        pruned(model, cut=12, settings=settings)
    found = pruned(model, cut=9, settings=settings)
    assert Counter(head.layer for head in found.plan) == {0: 3, 1: 3, 2: 3}


def test_pruning_does_not_change_the_uncut_model(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    _, _, model, before = shipped
    assert_unchanged(model, before)
    assert head_counts(model) == {"L0": (6, 2), "L1": (6, 2), "L2": (6, 2)}
    assert not hasattr(model.config, "headwise")


def test_existing_directory_is_not_overwritten(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    _, out, model, _ = shipped
    with pytest.raises(OutputError, match="smaller"):
        pruned(model, out, cut=3)


# How much to cut.


def test_named_heads_are_cut_and_no_others() -> None:
    found = pruned(model_of("gpt2"), heads="L2H3 L0H1")
    assert str(found.plan) == "L0H1 L2H3" and found.plan.method == "named"
    assert head_counts(found.model) == {"L0": (4, 4), "L1": (5, 5), "L2": (4, 4)}
    assert found.curve is None and found.export is None
    assert found.record.speed == () and found.record.quality.floor is None


def test_plan_keeps_its_reasons_and_method() -> None:
    given = CutPlan.parse("L1H2")
    given = replace(given, reasons={HeadId(1, 2): "mine"}, method="by hand")
    found = pruned(model_of("gpt2"), heads=given)
    assert found.plan.reasons == {HeadId(1, 2): "mine"} and found.plan.method == "by hand"
    assert found.plan.counts == {"L0": (5, 5), "L1": (5, 5), "L2": (5, 5)}


def test_plan_without_a_method_counts_as_named(tmp_path: Path) -> None:
    found = pruned(model_of("gpt2"), tmp_path / "out", heads=CutPlan.parse("L1H2"))
    assert found.plan.method == found.record.method == "named"
    assert "Its maker named the heads." in (tmp_path / "out/README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("amount", "count"), [({"cut": 4}, 4), ({"keep": 0.8}, 3), ({"cut": 0}, 0), ({"keep": 1.0}, 0)]
)
def test_amount_decides_the_number_of_heads(amount: dict[str, Any], count: int) -> None:
    found = pruned(model_of("gpt2"), **amount)
    assert len(found.plan) == count
    assert sum(heads for heads, _ in head_counts(found.model).values()) == 15 - count


def test_max_loss_is_not_exceeded() -> None:
    found = pruned(model_of("embedding"), max_loss=0.01, settings=SMALL)
    assert 0 < len(found.plan) < 15
    assert found.record.amount == Amount(max_loss=0.01)
    setup = setup_of("embedding")
    decided = setup.decide.with_model(found.model).losses().overall.value
    assert decided <= setup.uncut_decide.overall.value + 0.01
    assert found.curve is not None  # always, with a largest loss


@pytest.mark.parametrize(("name", "is_plain"), [("llama", True), ("mistral", False)])
def test_the_mean_of_cut_heads_is_added_to_models_without_biases(
    name: str, is_plain: bool, tmp_path: Path
) -> None:
    uncut = model_of_similar_tokens(name)
    before = state_of(uncut)
    settings = replace(SMALL, refit="bias", is_uniform=True)
    found = pruned(uncut, tmp_path / "smaller", keep=0.5, settings=settings)
    assert_unchanged(uncut, before)
    quality, after = found.record.quality, found.record.after
    assert quality.correction == "bias" and found.record.refit == ()
    assert quality.scores.final.loss < 0.2 * quality.scores.cut.loss
    assert found.export is not None and found.export.is_plain == is_plain
    loaded, inputs = load(tmp_path / "smaller").model, plain(name)
    output = run(loaded, inputs).last_hidden_state
    assert_close(output, run(found.model, inputs).last_hidden_state, torch.float32)
    assert after.parameters == sum(weight.numel() for weight in loaded.parameters())
    assert f"| {after.parameters:,} |" in (tmp_path / "smaller/README.md").read_text("utf-8")


@pytest.mark.parametrize("refit", ["none", "bias"])
def test_random_cuts_are_corrected_if_the_cut_is(refit: str) -> None:
    model, settings = model_of_similar_tokens("llama"), replace(SMALL, refit=refit)
    found = pruned(model, cut=6, settings=settings)
    assert found.record.quality.correction == refit
    setup = prepare(model, texts(48), settings=settings)
    losses = [
        setup.report.losses(
            random_cut(setup.search, found.plan.heads, seed),
            means=None if refit == "none" else setup.search.means,
        ).overall.value
        for seed in range(1, 6)
    ]
    assert [score.loss for score in found.record.quality.random] == pytest.approx(sorted(losses))


def test_random_cuts_beside_named_heads_cut_something() -> None:
    quality = pruned(model_of("llama"), heads="L0H0 L0H4").record.quality
    assert all(score.loss != quality.scores.uncut.loss for score in quality.random)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"cut": 1}, "1 head.* 3"),
        ({"cut": 2}, "2 heads.* 3"),
        (
            {"cut": 6, "settings": replace(UNFITTED, is_uniform=True)},
            "6 heads.* 9",
        ),
    ],
)
def test_impossible_cuts_raise_before_the_work(options: dict[str, Any], facts: str) -> None:
    stages: list[str] = []
    with pytest.raises(OptionError, match=facts):
        pruned(model_of("llama"), progress=lambda stage, *_: stages.append(stage), **options)
    assert stages == []


@pytest.fixture
def writes_onnx(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let something else write the ONNX file."""
    for name in ("check_onnx_packages", "check_onnx_model"):
        monkeypatch.setattr(pruning, name, lambda *_: None)
    return lambda instead: monkeypatch.setattr(pruning, "export_onnx", instead)


def test_onnx_file_is_written_after_the_model(
    tmp_path: Path, writes_onnx: Callable[[Any], None]
) -> None:
    def write(model: nn.Module, path: Path, inputs: Any) -> float:
        load(path.parent)  # it exists already
        path.write_text("onnx")
        return 0.25

    writes_onnx(write)
    found = pruned(model_of("gpt2"), tmp_path / "out", heads="L0H1", with_onnx=True)
    record = PruneRecord.read(tmp_path / "out")
    assert record.to_json() == found.record.to_json() and record.onnx_difference == 0.25
    assert found.export is not None and found.export.files["model.onnx"] == len("onnx")
    there = [one for one in (tmp_path / "out").iterdir() if one.is_file()]
    assert found.export.bytes == sum(one.stat().st_size for one in there)


def test_a_failed_onnx_export_leaves_the_smaller_model(
    tmp_path: Path, writes_onnx: Callable[[Any], None]
) -> None:
    def fail(*_: Any) -> float:
        raise ModelError("it cannot be written as ONNX")

    writes_onnx(fail)
    out = tmp_path / "out"
    with pytest.raises(ModelError, match=f"ONNX.* {out}"):
        pruned(model_of("gpt2"), out, heads="L0H1", with_onnx=True)
    assert head_counts(load(out).model)["L0"] == (4, 4)
    assert PruneRecord.read(out).onnx_difference is None


def test_timed_batches_leave_room_for_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "max_batch_tokens", lambda *_: 61 * 3)
    settings = replace(UNFITTED, times_speed=True)
    found = pruned(model_of("gpt2"), heads="L0H1", settings=settings)
    assert [speed.batch for speed in found.record.speed] == [1, 3]


def test_a_random_choice_has_no_costs() -> None:
    found = pruned(model_of("gpt2"), cut=2, settings=replace(UNFITTED, method="random"))
    assert not found.plan.costs and set(found.plan.reasons.values()) == {
        "number 1 by random",
        "number 2 by random",
    }


@pytest.mark.parametrize("cost", [math.inf, -math.inf, math.nan])
def test_costs_that_are_not_finite_are_left_out(cost: float) -> None:
    setup = setup_of("llama")
    order = CutOrder("greedy", setup.search.units[:2], (0.25, cost))
    plan = _plan_of_order(setup, order, 2)
    assert list(plan.costs) == list(order.units[0])
    assert plan.reasons[order.units[1][0]].startswith("number 2 by greedy")


def test_reason_counts_the_other_heads_of_a_unit() -> None:
    setup = setup_of("gpt2")
    pair = (HeadId(0, 0), HeadId(0, 1))
    plan = _plan_of_order(setup, CutOrder("greedy", (pair,), (0.5,)), 1)
    assert plan.reasons[HeadId(0, 1)] == "number 1 by greedy, with 1 other"


def test_every_head_can_be_cut() -> None:
    found = pruned(model_of("gpt2"), keep=0.0)
    assert set(head_counts(found.model).values()) == {(0, 0)}
    assert found.record.after.heads == 0


@pytest.mark.parametrize("name", ["bert", "embedding", "bart", "t5"])
def test_each_kind_of_model_is_pruned_by_its_own_objective(name: str) -> None:
    is_whole = name in ("bert", "t5")  # one of each kind is refitted and timed, too
    settings = replace(SMALL if is_whole else UNFITTED, times_speed=is_whole)
    found = pruned(model_of(name), cut=3, settings=settings)
    units = {"bert": "perplexity", "embedding": "cosine"}
    assert len(found.plan) == 3
    assert found.record.quality.unit == units.get(name, "divergence of logits")
    assert found.record.quality.scores.cut.loss > 0


def test_a_model_of_pictures_is_pruned_on_batches_with_labels(tmp_path: Path) -> None:
    labelled = {**plain("vit"), "labels": torch.tensor([0, 1, 1, 0])}
    settings = replace(SMALL, times_speed=True)
    model = model_of("vit")
    found = prune(model, tmp_path / "out", cut=2, batches=[labelled] * 4, settings=settings)
    assert found.record.quality.objective == "loss on labels"
    assert found.record.speed == () and found.export is not None
    loaded = load(tmp_path / "out").model
    got, want = (run(one, plain("vit")).logits for one in (loaded, found.model))
    assert_close(got, want, torch.float32)


# Errors.


@pytest.mark.parametrize(
    ("amount", "facts"),
    [
        ({}, "heads, cut, keep and max_loss"),
        ({"cut": 1, "max_loss": 0.1}, "cut and max_loss"),
        ({"cut": 16}, "16 heads.* 15 "),
        ({"heads": "L7H0"}, "L7H0"),
        ({"heads": "L0H9"}, "L0H9"),
        ({"heads": CutPlan.parse("L0H5")}, "L0H5"),
    ],
)
def test_heads_and_counts_that_do_not_exist_raise(amount: dict[str, Any], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        pruned(model_of("gpt2"), **amount)


def test_onnx_needs_a_directory() -> None:
    with pytest.raises(OptionError, match=r"with_onnx.* out"):
        pruned(model_of("gpt2"), heads="L0H1", with_onnx=True)


def test_model_that_cannot_be_exported_raises_before_the_work(tmp_path: Path) -> None:
    model = BertModel(model_of("bert").config, add_pooling_layer=False)
    with pytest.raises(ModelError, match=r"pooler\.dense\.weight"):
        pruned(model, tmp_path / "out", heads="L0H1", texts=[])


def seeing_model() -> LlavaForConditionalGeneration:
    """A tiny model that reads text, and pictures if there are any."""
    torch.manual_seed(0)
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        image_size=8, patch_size=4, projection_dim=16,
    )  # fmt: skip
    text = model_of("llama").config
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=1)
    return LlavaForConditionalGeneration(config).double().eval()


def test_text_only_batches_prune_a_vision_language_model() -> None:
    found = pruned(seeing_model(), cut=3, settings=SMALL)
    record = found.record
    assert record.before.heads - record.after.heads == 3 == len(found.plan)
    assert all(head.layer_name.startswith("text") or not head.stack for head in found.plan.heads)


def test_card_compares_the_cut_with_random_ones_and_with_no_correction() -> None:
    record = pruned(model_of("llama"), cut=6).record
    assert "Without the correction" not in figures_section(record)
    quality = replace(record.quality, correction="bias")
    card = figures_section(replace(record, quality=quality))
    cut, median = quality.scores.cut, quality.random_median
    assert median is not None
    assert "mean outputs were added to the biases" in card
    assert f"Without the correction it is {cut.text}. " in card
    assert f"at random it is {median.text}. " in card


@pytest.mark.parametrize(
    ("amount", "draws", "has_curve"),
    [
        ({"heads": "L0H1"}, False, False),
        ({"heads": "L0H1"}, True, True),
        ({"cut": 2}, False, False),
        ({"keep": 0.8}, False, False),
        ({"max_loss": 0.5}, False, True),
    ],
)
def test_a_curve_is_measured_if_asked_for_and_with_a_largest_loss(
    amount: dict[str, Any], draws: bool, has_curve: bool
) -> None:
    stages: list[str] = []
    settings = replace(UNFITTED, draws_curve=draws)
    found = pruned(
        model_of("gpt2"),
        settings=settings,
        progress=lambda stage, *_: stages.append(stage),
        **amount,
    )
    assert (found.curve is not None) == has_curve
    assert (PruneStage.CURVE in stages) == has_curve
    assert (found.record.quality.floor is not None) == has_curve


def test_named_heads_are_not_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "order_units", pytest.fail)
    assert pruned(model_of("gpt2"), heads="L0H1").plan.method == "named"


def test_builtin_registers_report_apart(tmp_path: Path) -> None:
    settings = replace(SMALL, fold=1)
    found = pruned(model_of("llama"), tmp_path / "out", cut=6, texts=None, settings=settings)
    sets = builtin_sets(1, is_causal=True)
    assert {*found.record.quality.registers} == {*sets.report}
    assert found.record.quality.other is None
    text = json.loads((tmp_path / "out/prune.json").read_text("utf-8"))["text"]
    for step in ("fit", "shrink", "decide", "report"):
        assert text[step]["registers"] == [*getattr(sets, step)]
    assert text["choose"]["registers"] == [*sets.choose, SAMPLES]
    card = (tmp_path / "out/README.md").read_text("utf-8")
    assert f"| perplexity, on {join_words(list(sets.report))} | " in card
