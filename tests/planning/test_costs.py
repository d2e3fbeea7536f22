"""Costs of heads, compared with brute force and with torch's own count of operations."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaModel

from headwise.attention.rules import Band
from headwise.errors import OptionError
from headwise.planning.plans import Workload, plan, visible_pairs
from headwise.planning.shapes import Shape, divisors, make_shape


@given(
    length=st.integers(1, 40),
    window=st.none() | st.integers(1, 50),
    is_causal=st.booleans(),
)
def test_visible_pairs_equal_those_of_the_mask(
    length: int, window: int | None, is_causal: bool
) -> None:
    before = None if window is None else (window - 1 if is_causal else window // 2)
    after = 0 if is_causal else before
    positions = torch.arange(length)
    visible = Band(before, after, 0).sees(positions - positions[:, None])
    assert visible_pairs(length, is_causal=is_causal, window=window) == visible.sum()


def llama(heads: int, kv_heads: int, head_dim: int) -> tuple[LlamaModel, Shape]:
    config = LlamaConfig(
        vocab_size=11,
        hidden_size=60,
        intermediate_size=13,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        attn_implementation="eager",
    )
    shape = Shape(
        d_model=60,
        num_heads=heads,
        num_kv_heads=kv_heads,
        d_key=head_dim,
        d_value=head_dim,
        num_layers=3,
    )
    return LlamaModel(config).eval(), shape


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 4, 14), (6, 2, 10), (5, 1, 6)])
def test_multiply_adds_are_half_the_operations_that_torch_counts(
    heads: int, kv_heads: int, head_dim: int
) -> None:
    model, shape = llama(heads, kv_heads, head_dim)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(torch.zeros(1, 17, dtype=torch.long), use_cache=False)
    counted = sum(
        sum(operations.values())
        for name, operations in counter.get_flop_counts().items()
        if name.endswith("self_attn")
    )
    every_key = replace(shape, is_causal=False)  # eager also computes masked pairs
    assert counted == 2 * sum(plan(shape=every_key, length=17).multiply_adds.values())


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 4, 14), (6, 2, 10), (5, 1, 6)])
def test_decoding_equals_what_torch_counts_for_one_token(
    heads: int, kv_heads: int, head_dim: int
) -> None:
    model, shape = llama(heads, kv_heads, head_dim)
    with torch.no_grad():
        cache = model(torch.zeros(1, 12, dtype=torch.long), use_cache=True).past_key_values
        counter = FlopCounterMode(display=False)
        with counter:
            model(torch.zeros(1, 1, dtype=torch.long), past_key_values=cache)
    counted = sum(
        sum(operations.values())
        for name, operations in counter.get_flop_counts().items()
        if name.endswith("self_attn")
    )
    shape_plan = plan(shape=shape, length=13, dtype="float32")
    assert shape_plan.decoding is not None and counted == 2 * shape_plan.decoding.multiply_adds
    cache_bytes = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert cache_bytes == shape_plan.cache_bytes
    weights = sum(p.numel() * 4 for name, p in model.named_parameters() if "self_attn" in name)
    assert shape_plan.decoding.bytes_read == weights + cache_bytes


def test_textbook_numbers() -> None:
    assert plan("768/12").layer_parameters == 4 * 768**2
    one_head, eight_heads = (
        plan(shape=replace(make_shape(d_model=512, num_heads=heads), is_causal=False), length=100)
        for heads in (1, 8)
    )
    assert eight_heads.shape.d_key == 64
    assert one_head.multiply_adds["scores"] == eight_heads.multiply_adds["scores"] == 100**2 * 512
    assert eight_heads.weight_matrix_bytes == 8 * one_head.weight_matrix_bytes


def test_window_bounds_the_cache() -> None:
    local = make_shape(d_model=64, num_heads=4, num_kv_heads=2, num_layers=3, window=10)
    bytes_per_position = 2 * 2 * 16 * 2  # keys and values, KV heads, d_key, float16
    for shape, length, positions in (
        (local, 7, 3 * 7),
        (local, 1000, 3 * 10),
        (replace(local, num_local=2), 1000, 2 * 10 + 1000),
    ):
        shape_plan = plan(shape=shape, length=length, dtype="float16")
        assert shape_plan.cache_bytes == positions * bytes_per_position


@pytest.mark.parametrize(
    ("sizes", "facts"),
    [
        (
            {"d_model": 10, "num_heads": 3},
            "3 heads .* d_model of 10 .* 1, 2, 5, 10,",
        ),
        ({"d_model": 12, "num_heads": 6, "num_kv_heads": 4}, "6 heads .* 4 KV heads .* 1, 2, 3, 6"),
        ({"d_model": 0, "num_heads": 1}, "d_model is 0"),
        ({"d_model": 8, "num_heads": 2, "window": 0}, "window is 0"),
    ],
)
def test_impossible_sizes_raise(sizes: dict[str, int], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        make_shape(**sizes)


def test_impossible_workloads_and_layer_counts_raise() -> None:
    with pytest.raises(OptionError, match=r"dtype is 'float12': .*float32"):
        Workload(dtype="float12")
    with pytest.raises(OptionError, match="length is 0"):
        Workload(length=0)
    with pytest.raises(OptionError, match=r"num_local is 4: .* 0 to 3"):
        replace(make_shape(d_model=8, num_heads=2, num_layers=3), num_local=4)
    with pytest.raises(OptionError, match=r"num_distinct is 5: .* 1 to 3"):
        replace(make_shape(d_model=8, num_heads=2, num_layers=3), num_distinct=5)


@given(st.integers(1, 5000))
def test_divisors_are_all_divisors_in_order(number: int) -> None:
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


def test_numpy_sizes_do_not_overflow_and_become_json() -> None:
    small = {"d_model": 4096, "num_heads": 32, "num_layers": 32}
    by_ints = plan(shape=make_shape(**small), length=1_000_000)
    by_numpy = plan(
        shape=make_shape(**{name: np.int32(size) for name, size in small.items()}),
        length=np.int32(1_000_000),
    )
    assert json.dumps(by_numpy.to_json()) == json.dumps(by_ints.to_json())
