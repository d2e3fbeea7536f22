"""Models that read no text are measured and pruned on batches of what they take."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from headwise.errors import OptionError
from headwise.pruning.feedforward import FeedForward, find_feed_forward
from headwise.pruning.importance import importance
from headwise.pruning.objective import LabelLoss
from headwise.pruning.prune import prune
from headwise.pruning.settings import PruneSettings
from headwise.watching.places import find_places
from headwise.watching.running import run

from ..attention.tolerance import assert_same
from ..watching.helpers import allow_weights
from ..watching.tiny import tiny

pytestmark = allow_weights
QUICK = PruneSettings(times_speed=False)


def batches(count: int) -> tuple[torch.nn.Module, list[Mapping[str, Tensor]]]:
    """A tiny ViT classifier, and batches of noise with labels."""
    model, inputs = tiny("vit", dtype=torch.float32)
    random = torch.Generator().manual_seed(3)
    shape = inputs["pixel_values"].shape
    classes = model.config.num_labels
    return model, [
        {
            "pixel_values": torch.randn(shape, generator=random),
            "labels": torch.randint(0, classes, (shape[0],), generator=random),
        }
        for _ in range(count)
    ]


def test_labels_are_what_a_classifier_is_measured_by() -> None:
    model, given = batches(2)
    found = importance(model, batches=given)
    assert found.table.about["objective"] == "loss on labels"
    pictures = torch.cat([one["pixel_values"] for one in given])
    labels = torch.cat([one["labels"] for one in given])
    with torch.no_grad():
        logits = run(model, {"pixel_values": pictures}).logits
    want = torch.nn.functional.cross_entropy(logits, labels)
    assert_same(torch.tensor(found.table.about["loss"]), want.double(), roundings=256)
    unlabelled = [{"pixel_values": one["pixel_values"]} for one in given]
    assert importance(model, batches=unlabelled).table.about["loss"] == pytest.approx(0, abs=1e-6)


def test_a_picture_model_is_pruned_on_batches() -> None:
    model, given = batches(5)
    found = prune(model, cut=2, batches=given, settings=QUICK)
    assert len(found.plan) == 2
    sizes = found.record["sizes"]
    assert sizes["after"]["parameters"] < sizes["before"]["parameters"]
    assert found.curve is not None


def test_batches_that_do_not_do_are_refused() -> None:
    model, given = batches(2)
    with pytest.raises(OptionError, match="there are 2 batches: give at least 3"):
        prune(model, cut=1, batches=given, settings=QUICK)
    with pytest.raises(OptionError, match="texts and batches to measure on: give one of them"):
        prune(model, cut=1, batches=given * 2, texts=["a text"], settings=QUICK)
    with pytest.raises(OptionError, match="the batches have no labels: they have pixel_values"):
        LabelLoss().prepare({"pixel_values": given[0]["pixel_values"]}, 0)


@pytest.mark.parametrize(
    ("family", "path", "want"),
    [
        ("bert", "bert.encoder.layer.0", FeedForward("output.dense", "intermediate")),
        ("llama", "model.layers.0", FeedForward("mlp.down_proj", "post_attention_layernorm")),
        ("gpt2", "transformer.h.0", FeedForward("mlp.c_proj", "ln_2")),
        ("gemma2", "model.layers.0", None),  # a norm stands between the layer and the stream
        ("gptj", "transformer.h.0", None),  # attention and feed-forward stand side by side
    ],
)
def test_feed_forward_parts_are_found_by_what_they_add_to(
    family: str, path: str, want: FeedForward | None
) -> None:
    model, inputs = tiny(family)
    places = [one for one in find_places(model) if one.name.startswith(f"{path}.")]
    known = [one.module for one in places]
    known += [one.output_projection for one in places if one.output_projection is not None]
    block = model.get_submodule(path)
    with torch.no_grad():
        found = find_feed_forward(block, lambda: run(model, inputs), without=tuple(known))
    assert found == want
