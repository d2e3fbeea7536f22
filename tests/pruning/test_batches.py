"""Models that read no text are measured and pruned on batches of their own inputs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.errors import HeadwiseError, OptionError
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import LabelLoss, NextToken
from headwise.pruning.importance.importance import importance
from headwise.pruning.prune import prune
from headwise.pruning.refit.refit import find_feed_forward
from headwise.pruning.settings import PruneSettings
from headwise.watching.hooks import record
from headwise.watching.running import forward, without_labels
from headwise.watching.sites import find_sites

from ..attention.tolerance import assert_same
from ..watching.helpers import allow_weights
from ..watching.tiny import tiny

pytestmark = allow_weights
QUICK = PruneSettings(refit="full", times_speed=False)
BARE = replace(QUICK, refit="none", method="ablation")


def batches(
    count: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.nn.Module, list[Mapping[str, Tensor]]]:
    """A tiny ViT classifier, and batches of noise with labels."""
    model, inputs = tiny("vit", dtype=dtype)
    random = torch.Generator().manual_seed(3)
    shape = inputs["pixel_values"].shape
    classes = model.config.num_labels
    return model, [
        {
            "pixel_values": torch.randn(shape, generator=random).to(dtype),
            "labels": torch.randint(0, classes, (shape[0],), generator=random),
        }
        for _ in range(count)
    ]


def test_classifier_is_measured_by_its_labels() -> None:
    model, given = batches(2)
    found = importance(model, batches=given)
    assert found.table.about["objective"] == "loss on labels"
    pictures = torch.cat([one["pixel_values"] for one in given])
    labels = torch.cat([one["labels"] for one in given])
    with torch.no_grad():
        logits = forward(model, {"pixel_values": pictures}).logits
    want = torch.nn.functional.cross_entropy(logits, labels)
    assert_same(torch.tensor(found.table.about["loss"]), want.double(), roundings=256)
    unlabelled = [{"pixel_values": one["pixel_values"]} for one in given]
    assert importance(model, batches=unlabelled).table.about["loss"] == pytest.approx(0, abs=1e-6)


def test_a_picture_model_is_pruned_on_batches() -> None:
    model, given = batches(5)
    found = prune(model, cut=2, batches=given, settings=replace(QUICK, draws_curve=True))
    assert len(found.plan) == 2
    assert found.record.after.parameters < found.record.before.parameters
    assert found.curve is not None
    assert list(found.record.quality.registers) == ["given"] and found.record.quality.other is None


def test_unusable_batches_raise() -> None:
    model, given = batches(3)
    with pytest.raises(OptionError, match=r"3.* 4"):
        prune(model, cut=1, batches=given, settings=QUICK)
    with pytest.raises(OptionError, match=r"1.* 4"):
        prune(model, cut=1, batches=given[:1], settings=QUICK)
    with pytest.raises(OptionError, match=r"texts.*batches"):
        prune(model, cut=1, batches=given * 2, texts=["a text"], settings=QUICK)
    with pytest.raises(OptionError, match=r"labels.* pixel_values"):
        LabelLoss().prepare({"pixel_values": given[0]["pixel_values"]}, 0)


def test_a_picture_model_in_bfloat16_is_pruned_on_any_stream_of_batches() -> None:
    model, given = batches(4, torch.bfloat16)
    found = prune(model, cut=2, batches=iter(given), settings=BARE)
    assert len(found.plan) == 2
    text = found.record.text
    digests = {part.sha256 for part in (text.fit, text.shrink, text.decide, text.report)}
    assert len(digests) == 4
    assert text.choose.sha256 == text.fit.sha256  # heads are chosen on what is fitted on


def test_the_card_of_a_picture_model_counts_examples(tmp_path: Path) -> None:
    model, given = batches(4)
    prune(model, tmp_path / "out", cut=2, batches=given, settings=BARE)
    card = (tmp_path / "out/README.md").read_text("utf-8")
    assert "loss on labels, on its maker's own data" in card
    assert "was measured on 4 examples that decided nothing" in card
    assert "text" not in card.partition("Made from")[2].partition("```")[0]


def test_models_that_read_more_than_tokens_are_not_timed() -> None:
    model, inputs = tiny("clip", dtype=torch.float32)
    stages: list[str] = []
    found = prune(
        model,
        cut=1,
        batches=[inputs] * 4,
        objective=lambda model, inputs: model(**inputs).text_embeds.square().sum(1),
        settings=replace(BARE, times_speed=True, method="random"),
        progress=lambda stage, done, total: stages.append(stage),
    )
    assert found.record.speed == ()
    assert stages[-1] == "speed is not measured for models that read pixel_values"


def surprise(model: torch.nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """Negative log-probability of each example's labels."""
    logits = forward(model, without_labels(inputs)).logits
    each = torch.nn.functional.cross_entropy(logits.mT, inputs["labels"], reduction="none")
    return each.mean(1)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_labels_reach_a_custom_loss_but_not_the_model(name: str, tmp_path: Path) -> None:
    model, inputs = tiny(name, dtype=torch.float32)
    given = [{**inputs, "labels": inputs["input_ids"].flip(1)}] * 4
    stages: list[str] = []
    found = prune(
        model,
        tmp_path / "out",
        heads="L0H0 L0H1 L0H2",
        batches=given,
        objective=surprise,
        settings=replace(QUICK, times_speed=True),
        progress=lambda stage, done, total: stages.append(stage),
    )
    assert [speed.batch for speed in found.record.speed] == [1, 4]
    assert not any("labels" in stage for stage in stages)


def test_custom_loss_may_use_labels_that_are_not_classes() -> None:
    model, inputs = tiny("gpt2", dtype=torch.float32)
    given = {**inputs, "labels": torch.arange(float(len(inputs["input_ids"])))}
    found = importance(
        model,
        batches=[given],
        objective=lambda model, inputs: (
            forward(model, without_labels(inputs)).logits.mean((1, 2)) - inputs["labels"]
        ).square(),
    )
    assert len(found.table.df) == 15


def test_a_decoder_may_read_tokens_that_are_made_of_labels() -> None:
    model, inputs = tiny("bart", dtype=torch.float32)
    given = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    given["labels"] = inputs["decoder_input_ids"]
    found = prune(
        model,
        cut=2,
        batches=[given] * 4,
        objective=lambda model, inputs: forward(model, inputs).logits.square().mean((1, 2)),
        settings=replace(BARE, times_speed=True),
    )
    assert len(found.plan) == 2 and found.record.speed == ()


@pytest.mark.parametrize(
    ("labels", "classes", "facts"),
    [
        ([0, 1, 7, 2], 3, "7.* 3 classes.* 0 to 2"),
        ([0, 1, -1, 2], 3, "-1.* 3 classes"),
        ([[0, 1, 0]] * 4, 3, r"\[4, 3\].* 3 classes"),
    ],
)
def test_labels_that_are_not_classes_raise(labels: Any, classes: int, facts: str) -> None:
    inputs = {"pixel_values": torch.zeros(4, 2), "labels": torch.tensor(labels)}
    sample = LabelLoss().prepare(inputs, 0)
    with pytest.raises(HeadwiseError, match=facts):
        LabelLoss().losses(torch.zeros(4, classes), sample)


def test_tokens_may_be_given_as_embeddings_with_labels() -> None:
    model, inputs = tiny("gpt2", dtype=torch.float32)
    embedded = {"inputs_embeds": model.get_input_embeddings()(inputs["input_ids"]).detach()}
    objective = NextToken()
    found = objective.prepare({**embedded, "labels": inputs["input_ids"]}, 0)
    want = objective.prepare({"input_ids": inputs["input_ids"]}, 0)
    with torch.no_grad():
        losses = [
            objective.losses(objective.output(model, one.inputs), one) for one in (found, want)
        ]
    assert_same(losses[0].sums, losses[1].sums, roundings=256)
    with pytest.raises(OptionError, match=r"input_ids.* inputs_embeds"):
        objective.prepare(embedded, 0)


def test_labels_without_a_single_target_raise() -> None:
    model, inputs = tiny("gpt2", dtype=torch.float32)
    nothing = {**inputs, "labels": torch.full_like(inputs["input_ids"], -100)}
    with pytest.raises(OptionError, match="-100"):
        Evaluation.of_batches(model, NextToken(), [nothing]).loss()


@pytest.mark.parametrize(
    ("family", "path", "want"),
    [
        ("bert", "bert.encoder.layer.0", ("output.dense", "intermediate")),
        ("llama", "model.layers.0", ("mlp.down_proj", "post_attention_layernorm")),
        ("gpt2", "transformer.h.0", ("mlp.c_proj", "ln_2")),
        ("gemma2", "model.layers.0", None),  # a norm comes between the layer and the stream
        ("gptj", "transformer.h.0", None),  # attention and feed-forward run in parallel
    ],
)
def test_feed_forward_parts_are_found_by_what_they_add_to(
    family: str, path: str, want: tuple[str, str] | None
) -> None:
    model, inputs = tiny(family)
    places = [one for one in find_sites(model) if one.name.startswith(f"{path}.")]
    known = [one.module for one in places]
    known += [one.output_projection for one in places if one.output_projection is not None]
    block = model.get_submodule(path)
    with torch.no_grad(), record(dict(block.named_modules())) as calls:
        forward(model, inputs)
    found = find_feed_forward(block, {call.name: call for call in calls}, without=known)
    assert found == (want and dict(zip(("projection", "stream"), want, strict=True)))
