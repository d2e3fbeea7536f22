"""Arguments of a wrong type raise one clear sentence, not an error from deep inside torch."""

from typing import Any

import numpy as np
import pytest
import torch

from headwise import Alibi, MultiHeadAttention, RelativeBias, Rotary, RotaryScaling, Rules, attend
from headwise.attention.cache import FixedCache, GrowingCache, RollingCache
from headwise.errors import CacheError, HeadwiseError, MaskError, OptionError, ShapeError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 16 / 4}, r"num_heads.*4\.0"),
        ({"d_key": "64"}, "d_key.*'64'"),
        ({"bias": None}, "bias.*None"),
        ({"bias": 0}, "bias.* 0"),
        ({"dropout": "0.1"}, r"dropout.*'0\.1'"),
        ({"softcap": "50"}, "softcap.*'50'"),
        (
            {"num_heads": 8, "position": Rotary(scaling=RotaryScaling(kind="ntk", factor=2.0))},
            "ntk.* 2 ",
        ),
    ],
)
def test_layer_rejects_options_of_the_wrong_type(options: dict[str, Any], message: str) -> None:
    sizes = {"d_model": 16, "num_heads": 4}
    with pytest.raises(OptionError, match=message):
        MultiHeadAttention(**sizes | options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotary(scaling={"rope_type": "yarn"}), "yarn.*RotaryScaling"),
        (
            lambda: RotaryScaling(kind="yarn", factor=2.0, beta_slow=0.0),
            r"beta_slow.*0\.0.*beta_fast.*32\.0",
        ),
        (
            lambda: RotaryScaling(kind="llama3", factor=2.0, low_frequency=5.0),
            r"low_frequency.*5\.0.*high_frequency.*4\.0",
        ),
        (lambda: Rules(sinks=[0.0, 1.0]), r"sinks.*list.*\[heads\]"),
        (lambda: FixedCache(16.0), r"capacity.*16\.0"),
        (lambda: RollingCache("8"), "window.*'8'"),
        (lambda: GrowingCache().crop(1.5), r"length.*1\.5"),
    ],
)
def test_rules_positions_and_caches_of_the_wrong_type_raise(make: Any, message: str) -> None:
    with pytest.raises(HeadwiseError, match=message):
        make()


@pytest.mark.parametrize("cache", [True, GrowingCache, []])
def test_layer_rejects_caches_of_other_types(cache: Any) -> None:
    with pytest.raises(CacheError, match=r"cache.*GrowingCache.*FixedCache.*RollingCache"):
        MultiHeadAttention(8, 2)(torch.zeros(1, 3, 8), cache=cache)


def test_masks_must_be_tensors() -> None:
    with pytest.raises(MaskError, match=r"mask.*list.*tensor"):
        MultiHeadAttention(8, 2)(torch.zeros(1, 2, 8), mask=[[1, 0], [1, 1]])
    with pytest.raises(MaskError, match=r"mask.*list.*tensor"):
        attend(*torch.zeros(3, 1, 2, 3, 4), mask=[[1]])


def test_rejected_mask_or_gates_leave_the_cache_unchanged() -> None:
    layer, x, cache = MultiHeadAttention(8, 2), torch.zeros(1, 2, 8), GrowingCache()
    with pytest.raises(MaskError, match=r"mask.*list.*tensor"):
        layer(x, mask=[[1, 0], [1, 1]], cache=cache)
    words = r"gates.*list.*\[heads\].*\[batch, heads\]"
    for options in ({}, {"cache": cache}):
        with pytest.raises(OptionError, match=words):
            layer(x, gates=[1, 0], **options)
    assert cache.seen == 0


def test_an_offset_may_be_one_of_numpys_integers() -> None:
    tensors = torch.randn(3, 1, 2, 3, 4)
    offsets = (np.int64(0), 0)
    outputs = [attend(*tensors, rules=Rules(is_causal=True, offset=offset)) for offset in offsets]
    assert torch.equal(*outputs)


def test_cache_on_another_device_raises() -> None:
    cache = GrowingCache()
    cache.append(*torch.zeros(2, 3, 1, 5, 7))
    words = r"keys \[3, 1, 5, 7\] torch.float32 on cpu.* torch.float32 on meta"
    with pytest.raises(CacheError, match=words):
        cache.append(*torch.zeros(2, 3, 1, 5, 7, device="meta"))
    cache.reset()
    keys, _ = cache.append(*torch.zeros(2, 3, 1, 5, 7, device="meta"))
    assert keys.device.type == "meta"


def test_reorder_rejects_sequences_outside_the_cache() -> None:
    cache = GrowingCache()
    cache.append(*torch.zeros(2, 3, 1, 5, 7))
    with pytest.raises(CacheError, match=r"0 to 5.*0\.\.2"):
        cache.reorder(torch.tensor([0, 5, 1]))


def test_cropping_keeps_tensors_that_a_backward_pass_needs() -> None:
    layer, x, cache = MultiHeadAttention(8, 2, is_causal=True), torch.randn(2, 6, 8), GrowingCache()
    total = layer(x, cache=cache).square().sum()
    expected = torch.autograd.grad(total, layer.Wk.weight, retain_graph=True)[0]
    cache.crop(3)
    with torch.no_grad():
        again = layer(x[:, 3:4], cache=cache)
    assert torch.equal(torch.autograd.grad(total, layer.Wk.weight)[0], expected)
    assert torch.allclose(again, layer(x)[:, 3:4])


@pytest.mark.parametrize("position", [Alibi(), RelativeBias(num_buckets=4, max_distance=5)])
def test_biases_by_distance_are_made_where_the_input_is(position: Any) -> None:
    from accelerate import cpu_offload

    layer, x = MultiHeadAttention(12, 3, position=position), torch.randn(2, 5, 12)
    expected = layer(x)
    assert torch.equal(cpu_offload(layer, torch.device("cpu"))(x), expected)


@pytest.mark.parametrize(
    "arguments", [(1, 2, 3), np.zeros((3, 1, 2, 3, 4)), torch.zeros(3, 1, 2).numpy()]
)
@pytest.mark.parametrize("is_causal", [False, True])
def test_attend_rejects_arguments_that_are_not_tensors(arguments: Any, is_causal: bool) -> None:
    kind = type(arguments[0]).__name__
    with pytest.raises(ShapeError, match=f"{kind}, {kind}, {kind}"):
        attend(*arguments, is_causal=is_causal)
