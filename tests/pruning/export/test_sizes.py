"""Sizes are those of the remaining weights, and two models are timed on the same input."""

import pytest
import torch
from torch import nn

from headwise.pruning.export import sizes
from headwise.pruning.export.sizes import full_batch, sizes_of, time_both
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.reading.batch import Inputs
from headwise.watching.running import forward

from ...watching.tiny import tiny
from ..differences import ALL, tiny_of
from ..tiny_models import model_of, plain

LAYERS, WIDTH, SIZE, MIDDLE, WORDS = 3, 42, 8, 41, 101
POSITIONS = 19


def test_sizes_of_a_cut_llama_follow_from_its_config() -> None:
    model, inputs = tiny("llama", dtype=torch.bfloat16)
    cut(model, [f"L{layer}H{head}" for layer in range(LAYERS) for head in range(3)])
    cut(model, "L2H0 L2H1 L2H2")  # one KV head per layer is left, and none in the last
    found = sizes_of(model, head_counts(model), positions=POSITIONS)
    heads, kv_heads, layers = 3, 1, 2
    attention = layers * 2 * WIDTH * SIZE * (heads + kv_heads)
    rest = LAYERS * (3 * WIDTH * MIDDLE + 2 * WIDTH) + WIDTH + 2 * WORDS * WIDTH
    assert (found.heads, found.kv_heads) == (layers * heads, layers * kv_heads)
    assert found.attention_parameters == attention
    assert found.parameters == attention + rest
    assert found.bytes == 2 * found.parameters
    assert found.cache_bytes_per_token == layers * 2 * kv_heads * SIZE * 2
    products = layers * 2 * heads * SIZE * POSITIONS**2
    assert found.attention_multiply_adds == attention * POSITIONS + products
    assert found.positions == POSITIONS
    cache = model(**inputs, use_cache=True).past_key_values
    held = sum(
        one.numel() * one.element_size()
        for layer in cache.layers[:2]  # one without heads keeps one number per token, to count them
        for one in (layer.keys, layer.values)
    )
    assert held == found.cache_bytes_per_token * inputs["input_ids"].numel()


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_a_cut_does_not_shrink_a_latent_cache(name: str) -> None:
    model, inputs = tiny_of(ALL[name])
    before = sizes_of(model, head_counts(model), positions=POSITIONS)
    cut(model, [f"{layer}H{head}" for layer in head_counts(model) for head in range(2)])
    after = sizes_of(model, head_counts(model), positions=POSITIONS)
    cache = model(**inputs, use_cache=True).past_key_values
    held = sum(
        one.numel() * one.element_size()
        for layer in cache.layers
        for one in (layer.keys, layer.values)
    )
    assert held == after.cache_bytes_per_token * inputs["input_ids"].numel()
    assert after.cache_bytes_per_token == before.cache_bytes_per_token
    module = model.model.layers[0].self_attn
    matrices = sum(one.numel() for layer in model.model.layers for one in matrices_of(layer))
    width = module.qk_head_dim + module.v_head_dim
    products = after.heads * width * POSITIONS**2
    assert module.qk_head_dim != module.v_head_dim
    assert after.attention_multiply_adds == matrices * POSITIONS + products


def matrices_of(layer: nn.Module) -> list[torch.Tensor]:
    """The matrices of a layer's attention."""
    return [one for one in layer.self_attn.parameters() if one.dim() > 1]


def test_an_output_projection_outside_attention_is_counted() -> None:
    model = model_of("bert")
    found = sizes_of(model, head_counts(model))
    assert found.attention_parameters == 3 * 4 * (35 * 35 + 35)
    assert found.parameters == sum(one.numel() for one in model.parameters())
    assert found.cache_bytes_per_token == 0


def test_weights_that_layers_share_are_counted_once() -> None:
    model = model_of("albert")
    found = sizes_of(model, head_counts(model))
    assert found.heads == 15
    assert found.attention_parameters == 4 * (35 * 35 + 35) + 2 * 35  # and a norm inside


@pytest.mark.parametrize(("name", "keeps"), [("gpt2", True), ("bart", True), ("bert", False)])
def test_models_that_generate_keep_a_cache(name: str, keeps: bool) -> None:
    model = model_of(name)
    assert (sizes_of(model, head_counts(model)).cache_bytes_per_token > 0) == keeps


class Slow(nn.Module):
    """Adds to a number one by one."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        for _ in range(self.steps):
            input_ids = input_ids + 1
        return input_ids


def test_the_faster_model_has_a_ratio_above_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "_seconds", lambda model, _: float(model.steps))
    inputs = {"input_ids": torch.zeros(3, 5)}
    found = time_both(Slow(2000), Slow(200), inputs, turns=5)
    assert (found.batch, found.positions) == (3, 5)
    assert (found.before, found.after, found.ratio, found.spread) == (2000, 200, 10, 0)
    once = time_both(Slow(20), Slow(200), inputs, turns=1)
    assert (once.ratio, once.spread) == (0.1, 0)


@pytest.mark.parametrize("name", ["gpt2", "bart", "t5"])
def test_models_accept_a_full_batch(name: str) -> None:
    some: Inputs = {key: value[:, :5] for key, value in plain(name).items()}
    found = full_batch(some, 3, 17)
    assert all(value.shape == (3, 17) for value in found.values())
    assert found["attention_mask"].all()
    ids = found["input_ids"].flatten()
    assert torch.equal(ids[:20], some["input_ids"].flatten())
    assert torch.equal(ids[20:40], ids[:20])
    with torch.no_grad():
        assert forward(model_of(name), found).logits.shape == (3, 17, WORDS)
