"""Models of images are measured and cut, whatever their attention does to the batch."""

from dataclasses import replace

import pytest
import torch
from transformers import (
    PreTrainedModel,
    PvtConfig,
    PvtModel,
    SegformerConfig,
    SegformerModel,
    SwinConfig,
    SwinModel,
    ViTMAEConfig,
    ViTMAEModel,
)

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import Embedding
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.importance.gradients import gradients
from headwise.pruning.prune import prune
from headwise.pruning.settings import PruneSettings
from headwise.pruning.surgery.cut import cut
from headwise.watching.calls import Call
from headwise.watching.watch import watch

from ..watching.helpers import allow_weights
from ..watching.tiny import Inputs, spread_out, tiny
from .tiny_models import added_by_hand

pytestmark = allow_weights


def pictures(count: int = 1, size: int = 32) -> Inputs:
    generator = torch.Generator().manual_seed(count)
    return {"pixel_values": torch.randn(count, 3, size, size, generator=generator)}


def image_model(name: str) -> PreTrainedModel:
    torch.manual_seed(3)
    model: PreTrainedModel
    if name == "swin":  # attends within windows
        sizes = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4], "window_size": 2}
        model = SwinModel(SwinConfig(image_size=32, patch_size=4, **sizes))
    elif name == "segformer":  # returns a map of states, and attends to fewer keys
        sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2]}
        sizes |= {"sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2]}
        model = SegformerModel(
            SegformerConfig(num_encoder_blocks=2, mlp_ratios=[2, 2], decoder_hidden_size=8, **sizes)
        )
    elif name == "pvt":  # the projection is outside the module that returns weights
        sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2]}
        sizes |= {"sequence_reduction_ratios": [2, 1], "patch_sizes": [4, 2], "strides": [4, 2]}
        model = PvtModel(PvtConfig(image_size=32, num_encoder_blocks=2, mlp_ratios=[2, 2], **sizes))
    else:  # masks patches at random
        sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
        model = ViTMAEModel(
            ViTMAEConfig(image_size=32, patch_size=8, intermediate_size=17, **sizes)
        )
    spread_out(model)
    return model.eval()


@pytest.mark.parametrize("name", ["swin", "segformer", "pvt"])
def test_ablation_equals_silencing_by_hand(name: str) -> None:
    model = image_model(name)
    for count in (1, 2):
        task = Evaluation.of_batches(model, Embedding(), [pictures(count)])
        units = [(head,) for head in task.heads]
        measured = [estimate.value for estimate in ablate(task, units)]
        by_hand = [added_by_hand(task, unit) for unit in units]
        assert measured == pytest.approx(by_hand, abs=1e-5) and max(by_hand) > 1e-4


def test_gradients_in_windows_need_batches_of_one_example() -> None:
    model = image_model("swin")
    alone = [pictures(1), pictures(1, size=32)]
    scores = gradients(Evaluation.of_batches(model, Embedding(), alone), draws=1)
    assert (scores.interaction.diagonal() > 0).all()
    with pytest.raises(OptionError, match=r"gates for L0 .*batches of one example"):
        gradients(Evaluation.of_batches(model, Embedding(), [pictures(2)]), draws=1)


@pytest.mark.parametrize("name", ["swin", "segformer"])
def test_image_models_are_pruned(name: str) -> None:
    batches = [pictures(1) | {} for _ in range(4)]
    settings = replace(PruneSettings(), times_speed=False, method="quadratic")
    assert len(prune(image_model(name), batches=batches, cut=2, settings=settings).plan) == 2


def test_a_layer_without_heads_before_an_outside_projection_is_watched() -> None:
    model, shapes = image_model("pvt"), list[tuple[int, ...]]()
    cut(model, [HeadId(1, 0), HeadId(1, 1)], inputs=pictures())

    def note(call: Call) -> None:
        shapes.append(tuple(call.mixed.shape))

    with torch.no_grad(), watch(model, note):
        model(**pictures())
    assert shapes[0][1] == 1 and all(shape[1] == 0 for shape in shapes[1:])


def test_a_model_that_masks_at_random_is_cut() -> None:
    surgery = cut(image_model("vit_mae"), "L0H1 L1H2", inputs=pictures(2))
    assert surgery.difference is not None


def test_embeddings_of_clip_are_those_of_image_and_text() -> None:
    model, inputs = tiny("clip")
    with torch.no_grad():
        found = Embedding().output(model, inputs)
        expected = model(**inputs)
    pair = torch.cat([expected.image_embeds, expected.text_embeds], -1)
    torch.testing.assert_close(found, torch.nn.functional.normalize(pair, dim=-1))
