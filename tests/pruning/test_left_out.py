"""Layers whose heads cannot be silenced are left out by name, and the rest is measured and cut."""

import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import (
    BigBirdPegasusConfig,
    BigBirdPegasusForConditionalGeneration,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
    PreTrainedModel,
)

from headwise.errors import HeadwiseWarning, ModelError
from headwise.models.loading import load
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import Divergence, Embedding
from headwise.pruning.importance.importance import importance
from headwise.pruning.prune import prune
from headwise.pruning.surgery.describe import describe_layers

from ..watching.helpers import allow_weights
from ..watching.tiny import spread_out
from ..watching.tiny_configs import VOCABULARY
from .test_setup import SMALL
from .tiny_models import model_of

pytestmark = allow_weights
SIZES = {
    **{f"{stack}_layers": 2 for stack in ("encoder", "decoder")},
    **{f"{stack}_attention_heads": 5 for stack in ("encoder", "decoder")},
    **{f"{stack}_ffn_dim": 37 for stack in ("encoder", "decoder")},
    "d_model": 30,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
    "eos_token_id": 1,
}
DECODERS = {"decoder", "cross"}


def summariser(name: str) -> PreTrainedModel:
    """A model whose encoder's attention is not its returned weights times its values."""
    torch.manual_seed(5)
    if name == "pegasus_x":
        sizes = {"num_global_tokens": 3, "block_size": 8}
        model = PegasusXForConditionalGeneration(PegasusXConfig(**SIZES, **sizes))
    else:
        model = BigBirdPegasusForConditionalGeneration(BigBirdPegasusConfig(**SIZES, block_size=4))
    spread_out(model)
    return model.eval()


def batches() -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(7)
    names = ("input_ids", "decoder_input_ids")
    return [
        {name: torch.randint(5, VOCABULARY, (2, 13), generator=generator) for name in names}
        for _ in range(8)
    ]


@pytest.mark.parametrize("name", ["pegasus_x", "bigbird_pegasus"])
def test_importance_leaves_out_an_encoder_by_name(name: str) -> None:
    with pytest.warns(
        HeadwiseWarning, match=r"heads of encoder.* are left out: .*cannot be silenc"
    ):
        measured = importance(summariser(name), batches=batches(), measures=("zero",))
    assert {head.stack for head in measured.table.heads} == DECODERS


@pytest.mark.parametrize("name", ["pegasus_x", "bigbird_pegasus"])
def test_prune_cuts_the_other_stacks(name: str, tmp_path: Path) -> None:
    stages: list[str] = []
    pruned = prune(
        summariser(name),
        tmp_path / "out",
        cut=5,
        batches=batches(),
        settings=replace(SMALL, refit="bias"),
        progress=lambda stage, *_: stages.append(stage),
    )
    assert any(re.match(r"leaving encoder\.L0 and encoder\.L1 as they are", one) for one in stages)
    assert len(pruned.plan) == 5 and {head.stack for head in pruned.plan.heads} <= DECODERS
    assert load(tmp_path / "out").model.config.headwise["kept"]


def test_a_model_that_replaces_its_modules_is_described() -> None:
    """BigBird-Pegasus replaces its encoder's attention when it first reads a short text."""
    encoder, *decoders = sorted(
        describe_layers(summariser("bigbird_pegasus")), key=lambda layer: not layer.refusal
    )
    assert encoder.layers == ("encoder.L0", "encoder.L1")
    assert all(not layer.refusal for layer in decoders)


def test_evaluations_of_other_models_leave_out_nothing() -> None:
    for name in ("gpt2", "deberta_v2"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", HeadwiseWarning)
            inputs = {"input_ids": torch.arange(5, 12)[None]}
            evaluation = Evaluation.of_batches(model_of(name), Divergence(), [inputs])
            assert evaluation.left_out == {}


def test_a_model_without_any_silenceable_heads_raises() -> None:
    encoder = summariser("pegasus_x").get_encoder()
    evaluation = Evaluation.of_batches(
        encoder, Embedding(), [{"input_ids": batches()[0]["input_ids"]}]
    )
    with pytest.raises(ModelError, match="cannot be silenced"):
        _ = evaluation.counts
