"""Direct effects and the parts that are not heads add up to the logit difference."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from headwise.errors import ModelError
from headwise.patching.direct_effect import direct_effects
from headwise.patching.frozen_norm import FrozenNorm
from headwise.patching.metrics import LogitDifference
from headwise.patching.runs import run_pairs

from ..watching.helpers import allow_weights
from .tiny_runs import assert_same, batch_of, heads_of, runs_of

pytestmark = allow_weights
ADDS_UP = ["gpt2", "gpt_neox", "llama", "opt", "phi3", "qwen2", "qwen3"]


@pytest.mark.parametrize("name", ADDS_UP)
def test_direct_effects_add_up_to_the_logit_difference(name: str) -> None:
    runs = runs_of(name, LogitDifference())
    effects = direct_effects(runs, heads_of(runs))
    assert_same(effects.sum, runs.clean)
    assert float(effects.heads.abs().max()) > 1e-3


def test_direct_effects_are_those_at_the_answers_position() -> None:
    model, batch = batch_of("llama")
    earlier = replace(batch, position=batch.position - 3)
    runs = run_pairs(model, earlier, LogitDifference())
    effects = direct_effects(runs, heads_of(runs))
    assert_same(effects.sum, runs.clean)
    last = direct_effects(runs_of("llama", LogitDifference()), heads_of(runs))
    assert not torch.allclose(effects.heads, last.heads)


def test_a_norm_after_attention_is_refused_by_name() -> None:
    runs = runs_of("gemma2", LogitDifference())
    with pytest.raises(ModelError, match=r"Gemma2.*unchanged"):
        direct_effects(runs, heads_of(runs))


def test_low_precision_is_refused_by_name() -> None:
    model, batch = batch_of("llama")
    runs = run_pairs(model.bfloat16(), batch, LogitDifference())
    with pytest.raises(ModelError, match=r"LlamaForCausalLM is in bfloat16.*float32"):
        direct_effects(runs, heads_of(runs))


@pytest.mark.parametrize("size", [12, 17])
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_a_frozen_norm_adds_up_to_the_norm(kind: type[nn.Module], size: int) -> None:
    norm = kind(size).double()
    with torch.no_grad():
        for weight in norm.parameters():
            weight.copy_(torch.randn_like(weight))
    states = torch.randn(3, size, dtype=torch.float64)
    frozen = FrozenNorm.of(norm, states)
    parts = torch.randn(5, 3, size, dtype=torch.float64)
    parts[-1] = states - parts[:-1].sum(0)
    assert_same(frozen.contribution(parts).sum(0) + frozen.bias, norm(states).detach())


def test_other_layers_are_not_taken_for_a_norm() -> None:
    with pytest.raises(ModelError, match="Linear is neither a LayerNorm nor an RMSNorm"):
        FrozenNorm.of(nn.Linear(6, 6), torch.randn(2, 6))
