"""Passes with silent heads equal silencing, and run nothing that silent heads cannot change."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import Divergence
from headwise.objectives.recorded_pass import RecordedPass, record_pass
from headwise.pruning.refit.refit import refit
from headwise.watching.gates import MeanOutputs, mean_outputs, silence
from headwise.watching.partial_passes import can_replay

from ..pruning.differences import tiny_of
from ..pruning.kin import REFUSED
from ..pruning.modern import CUT, FULL, SLIDING
from ..pruning.tiny_models import (
    assert_close,
    assert_unchanged,
    model_of,
    objective_of,
    plain,
    state_of,
)
from ..watching.helpers import allow_weights
from ..watching.tiny import build
from ..watching.tiny_configs import FAMILIES

pytestmark = allow_weights
AGAIN = {"albert", "bloom"}
"""ALBERT's layers share their modules, and Bloom's attention adds the residual itself."""


def recorded(model: nn.Module, name: str) -> RecordedPass:
    """A recorded pass of the model on a batch without padding."""
    evaluation = Evaluation.of_batches(model, objective_of(name), [plain(name)], has_losses=False)
    return record_pass(evaluation, evaluation.samples[0])


def silenced(unchanged: RecordedPass, heads: list[HeadId], means: MeanOutputs | None) -> Tensor:
    """The output of the model with the heads silenced."""
    evaluation = unchanged.evaluation
    with torch.no_grad(), silence(evaluation.model, heads, means=means):
        return evaluation.objective.output(evaluation.model, unchanged.sample.inputs)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_reuses_attention_and_equals_silencing(name: str) -> None:
    model = model_of(name)
    unchanged, before = recorded(model, name), state_of(model)
    layers = unchanged.evaluation.counts
    assert set(unchanged.attention) == (set() if name in AGAIN else set(layers))
    means = mean_outputs(model, [unchanged.sample.inputs])
    for layer in layers:
        heads = [head for head in unchanged.evaluation.heads if head.layer_name == layer]
        units = [[heads[1]], [heads[0], heads[2]]]
        for replacement in (None, means):
            got, copies = unchanged.outputs_without(units, replacement)
            want = torch.cat([silenced(unchanged, unit, replacement) for unit in units])
            assert len(copies) == len(want)
            assert_close(got, want, FAMILIES[name].softmax_in, f"{name} without heads of {layer}")
    assert_unchanged(model, before)


def test_layers_that_read_keys_of_others_are_not_replayed() -> None:
    """The last layers of Gemma 3n attend to keys that a layer below computes."""
    family = CUT["gemma3n"]
    shares = {"num_hidden_layers": 3, "num_kv_shared_layers": 1, "intermediate_size": [41] * 3}
    shares |= {"layer_types": [FULL, SLIDING, FULL], "activation_sparsity_pattern": [0.0] * 3}
    model, inputs = tiny_of(replace(family, config={**family.config, **shares}))
    evaluation = Evaluation.of_batches(model, Divergence(), [inputs], has_losses=False)
    unchanged = record_pass(evaluation, evaluation.samples[0])
    assert unchanged.blocks == () and can_replay(model_of("gpt2"), plain("gpt2"))
    for unit in ([evaluation.heads[0]], [evaluation.heads[-1]]):
        got, _ = unchanged.outputs_without([unit], None)
        assert_close(got, silenced(unchanged, unit, None), torch.float32)
    with pytest.raises(OptionError, match=r"Gemma3n.* output of the block below.*bias or none"):
        refit(model, model, evaluation.samples, {"other": evaluation.samples})


def test_heads_of_several_layers_are_silenced_together() -> None:
    unchanged = recorded(model_of("gpt2"), "gpt2")
    unit = [HeadId(1, 2), HeadId(2, 0), HeadId(2, 4)]
    got, _ = unchanged.outputs_without([unit], None)
    assert_close(got, silenced(unchanged, unit, None), torch.float64)


@pytest.mark.parametrize(
    ("name", "queries"),
    [
        ("bert", "bert.encoder.layer.1.attention.self.query"),
        ("llama", "model.layers.1.self_attn.q_proj"),
    ],
)
def test_queries_of_a_silent_head_are_not_computed_again(name: str, queries: str) -> None:
    model = model_of(name)
    unchanged = recorded(model, name)
    want = silenced(unchanged, [HeadId(1, 2)], None)
    with torch.no_grad():
        model.get_submodule(queries).weight.fill_(torch.nan)
    assert_close(unchanged.outputs_without([[HeadId(1, 2)]], None)[0], want, torch.float64)
    assert unchanged.outputs_without([[HeadId(0, 2)]], None)[0].isnan().any()


def test_attention_with_a_norm_before_its_projection_runs_again() -> None:
    model = build(REFUSED["bitnet"][0])
    evaluation = Evaluation.of_batches(model, objective_of("llama"), [plain("llama")])
    unchanged = record_pass(evaluation, evaluation.samples[0])
    assert not unchanged.attention and len(unchanged.blocks) == 2
    got, _ = unchanged.outputs_without([[HeadId(1, 2)]], None)
    assert_close(got, silenced(unchanged, [HeadId(1, 2)], None), torch.float32)


def test_silencing_around_the_passes_is_kept() -> None:
    model = model_of("llama")
    with silence(model, "L0H1 L1H3"):
        got, _ = recorded(model, "llama").outputs_without([[HeadId(1, 2)]], None)
    want = silenced(recorded(model, "llama"), [HeadId(0, 1), HeadId(1, 2), HeadId(1, 3)], None)
    assert_close(got, want, torch.float32)
