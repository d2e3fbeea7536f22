"""Pruning cuts what it was asked to, proves it, writes it, and leaves the given model alone."""

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
from headwise.formats import finite
from headwise.heads import HeadId
from headwise.models.loading import load
from headwise.objectives.losses import CustomLoss, Divergence, Embedding, NextToken
from headwise.pruning import prune as pruning
from headwise.pruning.bench import describe_budget
from headwise.pruning.export.model_card import measured_lines
from headwise.pruning.prune import Pruned, plan_of, prune
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.selection.methods import CutOrder
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.pruning.units import Unit
from headwise.report.cut_sections import cuts

from ..report.report_cases import cut_of, everything
from ..watching.helpers import run
from .subjects import (
    assert_close,
    assert_unchanged,
    model_of,
    plain,
    state_of,
    texts,
    words_tokenizer,
)
from .test_bench import SMALL, bench_of

UNFITTED = replace(SMALL, refit="none")


def pruned(model: nn.Module, out: Path | None = None, **options: Any) -> Pruned:
    """The model pruned on tiny texts."""
    given = {"tokenizer": words_tokenizer(), "settings": UNFITTED, "texts": texts(48)} | options
    return prune(model, out, **given)


@pytest.fixture(scope="module")
def shipped(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Pruned, Path, nn.Module, dict[str, Any]]:
    """A grouped Llama pruned with everything, the directory, and the model as it was."""
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


def test_the_directory_says_how_it_came_about(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    found, out, _, _ = shipped
    assert json.loads((out / "prune.json").read_text("utf-8")) == found.record
    card = (out / "README.md").read_text("utf-8")
    numbers = [found.record["sizes"][when]["parameters"] for when in ("before", "after")]
    assert f"| parameters | {numbers[0]:,} | {numbers[1]:,} |" in card
    held = found.record["text"]["measured_on"]
    perplexities = [found.record["quality"][one]["perplexity"] for one in ("uncut", "cut")]
    assert f"| perplexity | {perplexities[0]:.4f} | {perplexities[1]:.4f} |" in card
    assert f"on {held['tokens']:,} tokens of its maker's own data, on which no head was" in card
    assert found.record["amount"] == {"keep": 0.5}
    assert "The same examples decided whether the refit stays." in card
    assert "Heads have new numbers" in card
    assert CutPlan.from_json((out / "plan.json").read_text("utf-8")) == found.plan
    assert found.curve is not None
    points = pd.read_csv(out / "curve.csv")
    assert list(points.columns) == [*found.curve.points.columns, "is_elbow"]
    assert len(points) == len(found.curve.points) + 1
    assert points.method.iloc[-1] == "floor" and not points.is_elbow.iloc[-1]
    assert points.is_elbow.sum() == (found.curve.elbow > 0)
    assert "LlamaForCausalLM: quality against heads cut" in (out / "curve.svg").read_text("utf-8")


def test_the_record_is_strict_json_with_real_sizes(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    found, _, model, _ = shipped
    record = found.record
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    for when, one in (("before", model), ("after", found.model)):
        sizes = record["sizes"][when]
        assert sizes["parameters"] == sum(part.numel() for part in one.parameters())
    assert record["sizes"]["before"]["cache_bytes_per_token"] == 3 * 2 * 2 * 8 * 8
    assert record["sizes"]["after"]["cache_bytes_per_token"] == 3 * 2 * 1 * 8 * 8
    assert record["sizes"]["after"]["positions"] == 61
    assert [one["batch"] for one in record["speed"]] == [1, 16]
    assert record["heads_cut"] == str(found.plan) and record["method"] == "quadratic"
    assert record["text"]["source"] == "given"
    assert len(record["quality"]["random"]) == 5
    assert record["quality"]["floor"]["loss"] > 0
    assert record["cut_against_silenced"] < 1e-4


def test_a_uniform_cut_takes_as_many_of_every_layer_and_says_why(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    plan = shipped[0].plan
    assert Counter(head.layer for head in plan) == {0: 3, 1: 3, 2: 3}
    assert plan.counts == {"L0": (6, 2), "L1": (6, 2), "L2": (6, 2)}
    assert set(plan.reasons) == set(plan.costs) == set(plan.heads)
    assert all("by quadratic" in why for why in plan.reasons.values())
    assert all(why.endswith("with 2 others") for why in plan.reasons.values())


def test_a_uniform_cut_of_a_model_cut_before_takes_as_many_of_every_layer() -> None:
    model = model_of("gpt2")
    cut(model, "L0H0 L0H1")
    settings = replace(UNFITTED, is_uniform=True)
    with pytest.raises(OptionError, match="12 heads are to go, and only 9 of the model's 13 can"):
        pruned(model, cut=12, settings=settings)
    found = pruned(model, cut=9, settings=settings)
    assert Counter(head.layer for head in found.plan) == {0: 3, 1: 3, 2: 3}


def test_the_given_model_is_what_it_was(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    _, _, model, before = shipped
    assert_unchanged(model, before)
    assert head_counts(model) == {"L0": (6, 2), "L1": (6, 2), "L2": (6, 2)}
    assert not hasattr(model.config, "headwise")


def test_what_is_there_is_not_overwritten(
    shipped: tuple[Pruned, Path, nn.Module, dict[str, Any]],
) -> None:
    _, out, model, _ = shipped
    with pytest.raises(OutputError, match="smaller"):
        pruned(model, out, cut=3)


# How much goes.


def test_named_heads_go_and_no_others() -> None:
    found = pruned(model_of("gpt2"), heads="L2H3 L0H1")
    assert str(found.plan) == "L0H1 L2H3" and found.plan.method == "named"
    assert head_counts(found.model) == {"L0": (4, 4), "L1": (5, 5), "L2": (4, 4)}
    assert found.curve is None and found.export is None and found.onnx_difference is None
    assert found.record["speed"] == [] and "floor" not in found.record["quality"]


def test_a_plan_goes_with_its_reasons() -> None:
    given = CutPlan.parse("L1H2")
    given = replace(given, reasons={HeadId(1, 2): "mine"}, method="by hand")
    found = pruned(model_of("gpt2"), heads=given)
    assert found.plan.reasons == {HeadId(1, 2): "mine"} and found.plan.method == "by hand"
    assert found.plan.counts == {"L0": (5, 5), "L1": (5, 5), "L2": (5, 5)}


def test_a_plan_without_a_method_is_one_of_named_heads(tmp_path: Path) -> None:
    found = pruned(model_of("gpt2"), tmp_path / "out", heads=CutPlan.parse("L1H2"))
    assert found.plan.method == found.record["method"] == "named"
    assert "Its maker named the heads." in (tmp_path / "out/README.md").read_text("utf-8")
    told = str(cuts(everything(), replace(cut_of(), method="")))
    assert "chosen by the method \u201cnamed\u201d (the heads that were named)" in told


@pytest.mark.parametrize(
    ("amount", "count"), [({"cut": 4}, 4), ({"keep": 0.8}, 3), ({"cut": 0}, 0), ({"keep": 1.0}, 0)]
)
def test_a_number_of_heads_goes(amount: dict[str, Any], count: int) -> None:
    found = pruned(model_of("gpt2"), **amount)
    assert len(found.plan) == count
    assert sum(heads for heads, _ in head_counts(found.model).values()) == 15 - count


def test_a_loss_that_is_borne_is_not_exceeded() -> None:
    found = pruned(model_of("embedding"), max_loss=0.01, settings=SMALL)
    quality = found.record["quality"]
    last = quality["refitted"] or quality["cut"]
    assert last["cosine"] >= quality["uncut"]["cosine"] - 0.01
    assert 0 < len(found.plan) < 15
    assert found.record["amount"] == {"max_loss": 0.01}
    said = "The same examples decided how much was cut and whether the refit stays."
    assert said in measured_lines(found.record)


def test_the_largest_loss_is_told_in_its_own_unit() -> None:
    words = {
        NextToken(): "1% of perplexity",
        Embedding(): "0.01 of cosine",
        Divergence(): "0.01 nats",
        CustomLoss(lambda model, inputs: torch.zeros(1)): "1% of the loss",
    }
    for objective, want in words.items():
        assert describe_budget(objective, 0.01) == want


def test_the_random_cuts_beside_named_heads_take_as_many() -> None:
    quality = pruned(model_of("llama"), heads="L0H0 L0H4").record["quality"]
    assert all(one["loss"] != quality["uncut"]["loss"] for one in quality["random"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cut": 1}, "1 head is to go, and the smallest cut of this model takes 3: give at"),
        ({"cut": 2}, "2 heads are to go, and the smallest cut of this model takes 3: give at"),
        (
            {"cut": 6, "settings": replace(UNFITTED, is_uniform=True)},
            "6 heads are to go, and the smallest cut of this model takes 9",
        ),
        (
            {"cut": 3, "settings": replace(SMALL, refit="bias")},
            "LlamaForCausalLM's output projections have no bias to refit: choose full or scale",
        ),
    ],
)
def test_what_cannot_be_is_told_before_the_work(options: dict[str, Any], said: str) -> None:
    told: list[str] = []
    with pytest.raises(OptionError, match=said):
        pruned(model_of("llama"), progress=lambda stage, *_: told.append(stage), **options)
    assert told == []


@pytest.fixture
def writes_onnx(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let something else write the ONNX file."""
    for name in ("check_packages", "check_model"):
        monkeypatch.setattr(pruning, name, lambda *_: None)
    return lambda instead: monkeypatch.setattr(pruning, "export_onnx", instead)


def test_an_onnx_file_comes_beside_a_model_that_is_there(
    tmp_path: Path, writes_onnx: Callable[[Any], None]
) -> None:
    def write(model: nn.Module, path: Path, inputs: Any) -> float:
        load(path.parent)  # it is there already
        path.write_text("onnx")
        return 0.25

    writes_onnx(write)
    found = pruned(model_of("gpt2"), tmp_path / "out", heads="L0H1", with_onnx=True)
    held = json.loads((tmp_path / "out/prune.json").read_text("utf-8"))
    assert held == found.record and held["onnx_difference"] == found.onnx_difference == 0.25
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
    with pytest.raises(ModelError, match=f"as ONNX; the smaller model itself is in {out}"):
        pruned(model_of("gpt2"), out, heads="L0H1", with_onnx=True)
    assert head_counts(load(out).model)["L0"] == (4, 4)
    assert "onnx_difference" not in json.loads((out / "prune.json").read_text("utf-8"))


def test_batches_are_timed_that_the_logits_leave_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "most_tokens", lambda subject: 61 * 3)
    settings = replace(UNFITTED, times_speed=True)
    found = pruned(model_of("gpt2"), heads="L0H1", settings=settings)
    assert [one["batch"] for one in found.record["speed"]] == [1, 3]


def test_a_random_choice_has_no_costs() -> None:
    found = pruned(model_of("gpt2"), cut=2, settings=replace(UNFITTED, method="random"))
    assert not found.plan.costs and set(found.plan.reasons.values()) == {
        "number 1 by random",
        "number 2 by random",
    }


@pytest.mark.parametrize("cost", [math.inf, -math.inf, math.nan])
def test_a_cost_that_is_no_number_is_left_out(cost: float) -> None:
    bench = bench_of("llama")
    order = CutOrder("greedy", bench.problem.units[:2], (0.25, cost))
    plan = plan_of(bench, order, 2)
    assert list(plan.costs) == list(order.units[0].heads)
    assert plan.reasons[order.units[1].heads[0]].startswith("number 2 by greedy")


def test_a_pair_of_heads_goes_with_one_other() -> None:
    bench = bench_of("gpt2")
    pair = Unit((HeadId(0, 0), HeadId(0, 1)))
    plan = plan_of(bench, CutOrder("greedy", (pair,), (0.5,)), 1)
    assert plan.reasons[HeadId(0, 1)] == "number 1 by greedy, with 1 other"


def test_every_head_can_go() -> None:
    found = pruned(model_of("gpt2"), keep=0.0)
    assert set(head_counts(found.model).values()) == {(0, 0)}
    assert found.record["sizes"]["after"]["heads"] == 0


@pytest.mark.parametrize("name", ["bert", "embedding", "bart", "t5"])
def test_other_kinds_of_models_are_pruned_by_their_own_measure(name: str) -> None:
    is_whole = name in ("bert", "t5")  # one of each kind is refitted and timed, too
    settings = replace(SMALL if is_whole else UNFITTED, times_speed=is_whole)
    found = pruned(model_of(name), cut=3, settings=settings)
    units = {"bert": "perplexity", "embedding": "cosine"}
    assert len(found.plan) == 3
    assert found.record["quality"]["unit"] == units.get(name, "divergence of logits")
    assert found.record["quality"]["cut"]["loss"] > 0
    json.dumps(found.record, allow_nan=False)


def test_a_model_of_pictures_is_pruned_on_batches_with_labels(tmp_path: Path) -> None:
    labelled = {**plain("vit"), "labels": torch.tensor([0, 1, 1, 0])}
    settings = replace(SMALL, times_speed=True)
    model = model_of("vit")
    found = prune(model, tmp_path / "out", cut=2, batches=[labelled] * 4, settings=settings)
    assert found.record["quality"]["objective"] == "loss on labels"
    assert found.record["speed"] == [] and found.export is not None
    loaded = load(tmp_path / "out").model
    got, want = (run(one, plain("vit")).logits for one in (loaded, found.model))
    assert_close(got, want, torch.float32)


# What cannot be.


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ({}, "by none of them here"),
        ({"cut": 1, "max_loss": 0.1}, "by cut and max_loss here"),
        ({"cut": 16}, "16 heads are to go, and only 15 of the model's 15 can"),
        ({"heads": "L7H0"}, "L7H0"),
        ({"heads": "L0H9"}, "L0H9"),
        ({"heads": CutPlan.parse("L0H5")}, "L0H5"),
    ],
)
def test_what_cannot_go_is_refused(amount: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        pruned(model_of("gpt2"), **amount)


def test_numbers_that_json_cannot_hold_are_none() -> None:
    assert finite({"a": [1.0, float("nan")], "b": {"c": float("inf")}, "d": "x"}) == {
        "a": [1.0, None],
        "b": {"c": None},
        "d": "x",
    }


def test_an_onnx_file_needs_a_directory_to_stand_in() -> None:
    with pytest.raises(OptionError, match="an ONNX file is written beside a model: give out, a d"):
        pruned(model_of("gpt2"), heads="L0H1", with_onnx=True)


def test_a_model_that_could_not_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    model = BertModel(model_of("bert").config, add_pooling_layer=False)
    words = r"it has no pooler\.dense\.weight, which its class and config make: give a model that"
    with pytest.raises(ModelError, match=words):
        pruned(model, tmp_path / "out", heads="L0H1", texts=[])


def seeing_model() -> LlavaForConditionalGeneration:
    """A tiny model that reads text, and pictures where there are some."""
    torch.manual_seed(0)
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        image_size=8, patch_size=4, projection_dim=16,
    )  # fmt: skip
    text = model_of("llama").config
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=1)
    return LlavaForConditionalGeneration(config).double().eval()


def test_text_alone_prunes_and_refits_a_model_that_also_sees() -> None:
    found = pruned(seeing_model(), cut=3, settings=SMALL)
    sizes = found.record["sizes"]
    assert sizes["before"]["heads"] - sizes["after"]["heads"] == 3 == len(found.plan)
    assert all(head.layer_name.startswith("text") or not head.stack for head in found.plan.heads)


def test_the_card_holds_the_cut_alone_against_random_ones() -> None:
    record = pruned(model_of("llama"), cut=6).record
    quality, unit = record["quality"], record["quality"]["unit"]
    assert "Without the refit" not in measured_lines(record)
    quality["refitted"] = quality["uncut"]
    card = measured_lines(record)
    assert f"Without the refit this cut has {quality['cut'][unit]:.4f}. With as many " in card
    assert f"and none refitted, it is {quality['random_mean'][unit]:.4f}. " in card
