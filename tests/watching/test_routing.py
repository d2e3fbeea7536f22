"""Routing: models with unusual attention compute the same inside a block as outside.

Each test of `unusual_models.py` fails if headwise's name in a config equals no other, or if every
config of the model gets it.
"""

import copy
import pickle
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, eager_mask

from headwise import watch
from headwise.watching.interface import headwise_attention
from headwise.watching.masks import headwise_mask, real_mask
from headwise.watching.output_check import skip_check
from headwise.watching.routing import IMPLEMENTATION, NAMES, Routed, WithBoolMasks, WithFloatMasks
from headwise.watching.side_pass import SidePass

from ..attention.tolerance import assert_same
from .helpers import ROUNDINGS
from .tiny import Inputs
from .unusual_models import MODELS, SPARSE

LOWEST = torch.finfo(torch.float32).min
partly_watched = pytest.mark.filterwarnings("ignore:.*is only partly watched")


def outputs(model: nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Every output at real positions; models that draw random numbers draw the same ones."""
    return SidePass(model, model, (), inputs, {}).outputs(None)


@partly_watched
@pytest.mark.parametrize("name", MODELS)
def test_watching_an_unusual_model_changes_nothing(name: str) -> None:
    model, inputs = MODELS[name]()
    want = outputs(model, inputs)
    with skip_check(), watch(model) as watched:
        got = outputs(model, inputs)
        model(**inputs)
    assert watched.calls and want.keys() == got.keys()
    for key, expected in want.items():
        assert_same(got[key], expected, roundings=ROUNDINGS, dtype=torch.float32, name=key)


@pytest.mark.parametrize("name", SPARSE)
def test_the_calls_of_sparse_attention_have_the_weights_that_it_uses(name: str) -> None:
    model, inputs = MODELS[name]()
    with watch(model) as watched:
        model(**inputs)
    weights = watched.calls[-1].weights()
    seen = (weights > 0).sum(-1)[0, 0]
    assert seen[-1] < len(seen) // 2
    assert_same(
        weights
        @ watched.calls[-1].values.repeat_interleave(
            weights.shape[1] // watched.calls[-1].values.shape[1], 1
        ),
        watched.calls[-1].mixed,
        roundings=ROUNDINGS,
        dtype=torch.float32,
    )


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_attention_is_lost_under_a_name_that_equals_no_other(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = MODELS[name]()
    want = outputs(model, inputs)
    monkeypatch.setattr(Routed, "__eq__", str.__eq__)
    monkeypatch.setattr(Routed, "__ne__", str.__ne__)
    with skip_check(), watch(model):
        got = outputs(model, inputs)
    assert any((got[key] - want[key]).abs().max() > 0.1 for key in want)


@partly_watched
def test_a_config_without_routed_attention_gets_no_other_attention() -> None:
    model, _ = MODELS["git"]()
    with watch(model):
        assert str(getattr(model.config, IMPLEMENTATION)) == "eager"
        name = getattr(model.config.vision_config, IMPLEMENTATION)
        assert isinstance(name, WithFloatMasks) and str(name) != "eager"


def test_masks_of_an_eager_model_are_added_like_its_own() -> None:
    is_real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    sizes: dict[str, Any] = {"batch_size": 2, "q_length": 5, "kv_length": 5}
    options = {"attention_mask": is_real, "dtype": torch.float64}
    for function in (causal_mask_function, bidirectional_mask_function, lambda *at: at[2] != at[3]):
        want = eager_mask(**sizes, mask_function=function, **options)
        mask = headwise_mask(**sizes, mask_function=function, **options, is_float=True)
        assert mask.dtype == torch.float64 and mask.shape == want.shape
        assert torch.equal(real_mask(mask), want) and torch.equal(1 + mask, 1 + want)


@partly_watched
def test_image_attention_without_a_mask_stays_non_causal() -> None:
    model, inputs = MODELS["bridgetower"]()
    with watch(model) as watched:
        model(**inputs)
    images = [call for call in watched if call.num_queries == 5 == call.num_keys]
    assert images and all((call.weights() > 0).all() for call in images)


def test_gpt2_is_watched_where_its_eager_attention_bypasses_the_interface() -> None:
    config = transformers.GPT2Config(
        vocab_size=53,
        n_embd=24,
        n_layer=2,
        n_head=3,
        reorder_and_upcast_attn=True,
        attn_implementation="eager",
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with watch(model) as watched:
        model(torch.arange(11)[None])
    assert len(watched.calls) == 2


@pytest.mark.parametrize("kind", [WithBoolMasks, WithFloatMasks])
def test_a_name_equals_its_own_and_the_one_that_it_stands_for(kind: type[Routed]) -> None:
    name = kind(NAMES[kind])
    assert name == NAMES[kind] and name == kind.stands_for
    assert not name != kind.stands_for
    assert name != "flash_attention_2" and {name: 1}.get(NAMES[kind]) == 1
    assert {kind.stands_for: 1}.get(name) is None
    assert type(copy.deepcopy(name)) is type(pickle.loads(pickle.dumps(name))) is kind


def test_a_row_whose_keys_all_have_the_lowest_number_is_uniform_as_in_eager_attention() -> None:
    queries, keys, values = torch.randn(3, 2, 5, 7, 11).unbind(0)
    mask = torch.zeros(2, 1, 7, 7).masked_fill(torch.ones(7, 7).triu(1).bool(), LOWEST)
    mask[1, :, :3] = LOWEST
    output, _ = headwise_attention(nn.Module(), queries, keys, values, mask)
    want = values[1].mean(1, keepdim=True).expand(-1, 3, -1).transpose(0, 1)
    torch.testing.assert_close(output[1, :3], want)
    assert not torch.allclose(output[0, :3], values[0].mean(1)[None])
