"""Positions against the implementations that published models run on, and as laws."""

import copy
import math
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from hypothesis import assume, given, strategies as st
from torch import Tensor
from torch._subclasses import FakeTensorMode
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.t5.modeling_t5 import T5Attention

from headwise import Alibi, MultiHeadAttention, RelativeBias, Rotary, RotaryScaling
from headwise.attention import layer as layers, positions as module
from headwise.attention.positions import (
    RotaryLayout,
    alibi_slopes,
    angles_between,
    relative_buckets,
    rotary_angles,
    rotary_frequencies,
    rotate,
    widest_dtype,
)
from headwise.errors import OptionError, ShapeError

from .tolerance import assert_same

LAYOUTS = get_args(RotaryLayout)
FREQUENCY_ROUNDINGS = 16
"""Powers, divisions and a blend of two numbers, each off by a few units in float32."""


def their_frequencies(
    kind: str, scaling: dict[str, Any], *, base: float, d_key: int, part: float
) -> tuple[Tensor, float]:
    """Frequencies and factor that transformers computes for these settings."""
    config = LlamaConfig(
        hidden_size=2 * d_key,
        num_attention_heads=2,
        rope_parameters={
            "rope_type": kind,
            "rope_theta": base,
            "partial_rotary_factor": part,
            **scaling,
        },
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config)
    return frequencies, factor


def assert_same_ratio(got: Tensor, want: Tensor, *, amplified: float = 1.0) -> None:
    """Frequencies agree, each relative to its own size: they span many orders of magnitude."""
    ratio = got / want
    roundings = math.ceil(FREQUENCY_ROUNDINGS * amplified)
    assert_same(ratio, torch.ones_like(ratio), roundings=roundings, dtype=torch.float32)


def test_comparison_notices_a_wrong_slow_frequency() -> None:
    right = torch.tensor([1.0, 1e-6])
    assert_same_ratio(right, right)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_same_ratio(right * torch.tensor([1.0, 1.01]), right)


@given(
    base=st.sampled_from([1e2, 1e4, 5e5]),
    pairs=st.integers(1, 37),
    rotated_quarters=st.integers(1, 4),
    factor=st.floats(1.0, 40.0),
)
def test_linear_scaling_equals_transformers(
    base: float, pairs: int, rotated_quarters: int, factor: float
) -> None:
    d_key, d_rotary = 8 * pairs, 2 * pairs * rotated_quarters
    rotary = Rotary(base=base, scaling=RotaryScaling(kind="linear", factor=factor))
    theirs, their_factor = their_frequencies(
        "linear", {"factor": factor}, base=base, d_key=d_key, part=rotated_quarters / 4
    )
    ours, our_factor = rotary_frequencies(rotary, d_rotary)
    assert_same_ratio(ours, theirs)
    assert our_factor == their_factor == 1.0


@given(
    base=st.sampled_from([1e2, 1e4, 5e5]),
    pairs=st.integers(1, 37),
    factor=st.floats(1.0, 40.0),
    original_length=st.integers(16, 20_000),
    low=st.floats(0.5, 2.0),
    width=st.floats(0.5, 6.0),
)
def test_llama3_scaling_equals_transformers(
    base: float, pairs: int, factor: float, original_length: int, low: float, width: float
) -> None:
    theirs, their_factor = their_frequencies(
        "llama3",
        {
            "factor": factor,
            "original_max_position_embeddings": original_length,
            "low_freq_factor": low,
            "high_freq_factor": low + width,
        },
        base=base,
        d_key=2 * pairs,
        part=1.0,
    )
    scaling = RotaryScaling(
        kind="llama3",
        factor=factor,
        original_length=original_length,
        low_frequency=low,
        high_frequency=low + width,
    )
    ours, our_factor = rotary_frequencies(Rotary(base=base, scaling=scaling), 2 * pairs)
    # The share that is kept is a difference of turns over the width; the factor enlarges its error.
    assert_same_ratio(ours, theirs, amplified=factor * (low + width) / width)
    assert our_factor == their_factor == 1.0


@given(
    base=st.sampled_from([10.0, 1e4, 5e5]),
    pairs=st.integers(1, 37),
    factor=st.floats(0.5, 40.0),
    original_length=st.integers(256, 20_000),
    betas=st.sampled_from([(32.0, 1.0), (16.0, 2.0), (4.0, 4.0)]),
    attention_factor=st.none() | st.floats(0.5, 2.0),
)
def test_yarn_scaling_equals_transformers(
    base: float,
    pairs: int,
    factor: float,
    original_length: int,
    betas: tuple[float, float],
    attention_factor: float | None,
) -> None:
    # With so small a base transformers turns the ramp around where no pair is slow.
    assume(base > 10 or original_length <= 2000)
    theirs, their_factor = their_frequencies(
        "yarn",
        {
            "factor": factor,
            "original_max_position_embeddings": original_length,
            "beta_fast": betas[0],
            "beta_slow": betas[1],
            "attention_factor": attention_factor,
        },
        base=base,
        d_key=2 * pairs,
        part=1.0,
    )
    scaling = RotaryScaling(
        kind="yarn",
        factor=factor,
        original_length=original_length,
        beta_fast=betas[0],
        beta_slow=betas[1],
        attention_factor=attention_factor,
    )
    ours, our_factor = rotary_frequencies(Rotary(base=base, scaling=scaling), 2 * pairs)
    assert_same_ratio(ours, theirs)
    assert math.isclose(our_factor, their_factor)


@given(base=st.sampled_from([1e2, 1e4, 5e5]), pairs=st.integers(2, 37), factor=st.floats(1.0, 40.0))
def test_ntk_scaling_keeps_the_fastest_pair_and_stretches_the_slowest_by_the_factor(
    base: float, pairs: int, factor: float
) -> None:
    scaling = RotaryScaling(kind="ntk", factor=factor)
    plain, _ = rotary_frequencies(Rotary(base=base), 2 * pairs)
    stretched, our_factor = rotary_frequencies(Rotary(base=base, scaling=scaling), 2 * pairs)
    stretch = plain / stretched
    expected = factor ** (torch.arange(pairs, dtype=torch.float64) / (pairs - 1))
    assert_same(stretch, expected, roundings=FREQUENCY_ROUNDINGS * pairs)
    assert our_factor == 1.0


def test_ntk_scaling_needs_more_than_one_pair() -> None:
    rotary = Rotary(scaling=RotaryScaling(kind="ntk", factor=2.0))
    with pytest.raises(OptionError, match=r"ntk.* 2 "):
        rotary_frequencies(rotary, 2)


def test_half_layout_rotates_as_llama_does() -> None:
    x, positions = torch.randn(2, 3, 7, 10), torch.arange(5, 12)
    config = LlamaConfig(
        hidden_size=20,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(x, positions[None])
    theirs, _ = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)
    ours = rotate(x, *rotary_angles(Rotary(base=500.0), 10, positions), layout="half")
    assert_same(ours, theirs, roundings=FREQUENCY_ROUNDINGS * int(positions.max()))


def test_yarn_enlarges_what_it_rotates_as_llama_does() -> None:
    x, positions = torch.randn(2, 3, 7, 10), torch.arange(5, 12)
    yarn = {"factor": 8.0, "original_max_position_embeddings": 512}
    config = LlamaConfig(
        hidden_size=20,
        num_attention_heads=2,
        rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, **yarn},
    )
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(x, positions[None])
    theirs, _ = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)
    scaling = RotaryScaling(kind="yarn", factor=8.0, original_length=512)
    ours = rotate(x, *rotary_angles(Rotary(base=500.0, scaling=scaling), 10, positions))
    assert_same(ours, theirs, roundings=FREQUENCY_ROUNDINGS * int(positions.max()))
    assert_same(
        ours.norm(dim=-1),
        x.norm(dim=-1) * (0.1 * math.log(8) + 1),
        roundings=FREQUENCY_ROUNDINGS,
    )


def test_interleaved_layout_rotates_as_gptj_does() -> None:
    x, d_rotary = torch.randn(2, 3, 7, 14), 10
    table = modeling_gptj.create_sinusoidal_positions(7, d_rotary)[None]
    sin, cos = table.chunk(2, -1)
    position_first = x[..., :d_rotary].transpose(1, 2)
    turned = modeling_gptj.apply_rotary_pos_emb(position_first, sin, cos).transpose(1, 2)
    theirs = torch.cat([turned, x[..., d_rotary:]], -1)
    angles = rotary_angles(Rotary(d_rotary=d_rotary), 14, torch.arange(7))
    ours = rotate(x, *angles, layout="interleaved")
    assert_same(ours, theirs, roundings=FREQUENCY_ROUNDINGS * 7)
    assert torch.equal(ours[..., d_rotary:], x[..., d_rotary:])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sequences_may_have_their_own_positions(layout: RotaryLayout) -> None:
    x, positions = torch.randn(2, 3, 5, 6), torch.tensor([[0, 1, 2, 3, 4], [9, 11, 13, 2, 0]])
    together = rotate(x, *rotary_angles(Rotary(), 6, positions), layout=layout)
    for index in range(2):
        angles = rotary_angles(Rotary(), 6, positions[index])
        alone = rotate(x[index : index + 1], *angles, layout=layout)
        assert torch.equal(together[index : index + 1], alone)


@given(
    layout=st.sampled_from(LAYOUTS),
    query=st.integers(0, 500),
    key=st.integers(0, 500),
    shift=st.integers(0, 500),
    kind=st.sampled_from([None, "linear", "ntk", "llama3", "yarn"]),
)
def test_a_rotated_score_depends_on_the_distance_alone(
    layout: RotaryLayout, query: int, key: int, shift: int, kind: Any
) -> None:
    scaling = None if kind is None else RotaryScaling(kind=kind, factor=3.0, original_length=64)
    rotary = Rotary(base=50.0, d_rotary=6, layout=layout, scaling=scaling)
    queries, keys = torch.randn(2, 1, 1, 1, 7, dtype=torch.float64)

    def score(at_query: int, at_key: int) -> Tensor:
        turned = [
            rotate(x, *rotary_angles(rotary, 7, torch.tensor([at])), layout=layout)
            for x, at in ((queries, at_query), (keys, at_key))
        ]
        return (turned[0] * turned[1]).sum(-1)

    here, there = score(query, key), score(query + shift, key + shift)
    assert_same(here, there, roundings=7 * 8, dtype=torch.float32)  # angles are float32 numbers


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rotated_score_changes_with_the_distance(layout: RotaryLayout) -> None:
    x = torch.ones(1, 1, 4, 6)
    turned = rotate(x, *rotary_angles(Rotary(), 6, torch.arange(4)), layout=layout)
    scores = (turned[0, 0, :1] * turned[0, 0]).sum(-1)
    assert (scores.diff() < 0).all()  # these angles stay below pi: further is less alike


def test_a_rotary_layer_that_first_ran_in_inference_mode_still_trains() -> None:
    layer, x = MultiHeadAttention(6, 1, position=Rotary()), torch.randn(1, 5, 6)
    with torch.inference_mode():
        layer(x)
    layer(x).sum().backward()
    assert layer.Wq.weight.grad.isfinite().all()


def test_a_rotary_layer_that_first_ran_on_fake_tensors_still_computes() -> None:
    layer, x = MultiHeadAttention(6, 1, position=Rotary()), torch.randn(1, 5, 6)
    expected = copy.deepcopy(layer)(x)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        layer(fake.from_tensor(x))
    assert torch.equal(layer(x), expected)


def test_running_a_rotary_layer_does_not_enlarge_its_file() -> None:
    layer = MultiHeadAttention(6, 1, position=Rotary())
    size = len(pickle.dumps(layer))
    layer(torch.randn(1, 300, 6))
    assert len(pickle.dumps(layer)) == size


@pytest.mark.parametrize("is_compiling", [False, True])
def test_one_new_token_has_the_angles_of_its_own_position(
    is_compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code computes the angles of no other position."""
    rotary, like = Rotary(), torch.zeros(1, 1, 1, 6)
    cos, sin = rotary_angles(rotary, 6, torch.arange(92))
    computed: list[Tensor] = []

    def spy(*args: Any) -> tuple[Tensor, Tensor]:
        computed.append(args[2])
        return rotary_angles(*args)

    monkeypatch.setattr(module, "rotary_angles", spy)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: is_compiling)
    module.angle_table.cache_clear()
    for _ in range(2):
        angles = angles_between(rotary, 6, 90, 92, like)
        assert torch.equal(angles[0], cos[90:]) and torch.equal(angles[1], sin[90:])
    lengths = [len(positions) for positions in computed]
    assert lengths == ([2, 2] if is_compiling else [128])


def test_device_without_float64_gets_the_angles_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    assert widest_dtype(torch.device("mps")) == torch.float32
    assert widest_dtype(torch.device("cpu")) == torch.float64
    places, cpu = torch.arange(9), torch.device("cpu")
    exact = rotary_angles(Rotary(), 6, places)
    for user in (module, layers):
        monkeypatch.setattr(user, "widest_dtype", lambda _: torch.float32)
    assert all(map(torch.equal, rotary_angles(Rotary(), 6, places), exact))
    assert layers.Slopes(3)(cpu).dtype == torch.float32
    assert torch.equal(layers.Slopes(3)(cpu), alibi_slopes(3).float())


def test_a_rotary_layer_grows_its_table_of_angles() -> None:
    layer, fresh = (MultiHeadAttention(6, 1, position=Rotary()) for _ in range(2))
    fresh.load_state_dict(layer.state_dict())
    layer(torch.randn(1, 5, 6))
    x = torch.randn(1, 300, 6)
    assert torch.equal(layer(x), fresh(x))


def test_eight_heads_have_the_papers_slopes() -> None:
    published = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(8).tolist() == published


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 8, 12, 16, 40, 71])
def test_slopes_equal_blooms(num_heads: int) -> None:
    theirs = build_alibi_tensor(torch.ones(1, 2), num_heads, torch.float32)[:, 0, 1]
    assert_same(alibi_slopes(num_heads).float(), theirs, roundings=num_heads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_slopes_and_distances_apart(dtype: torch.dtype) -> None:
    layer = MultiHeadAttention(12, 12, position=Alibi(), is_causal=True)
    with torch.no_grad():
        layer.Wq.weight.zero_()  # every score is its distance's penalty
    x = torch.zeros(1, 600, 12)
    _, weights = layer.to(dtype)(x.to(dtype), need_weights=True)
    distances = torch.arange(599, -1, -1, dtype=torch.float64)
    expected = (-alibi_slopes(12).double()[:, None] * distances).log_softmax(-1)
    is_normal = expected > math.log(torch.finfo(torch.float32).tiny)
    got = weights[0, :, -1].log().where(is_normal, 0)
    assert_same(got, expected.where(is_normal, 0), roundings=20, dtype=torch.float32)


@given(
    half_buckets=st.integers(2, 40),
    beyond=st.integers(1, 300),
    is_causal=st.booleans(),
)
def test_buckets_equal_t5s(half_buckets: int, beyond: int, is_causal: bool) -> None:
    bias = RelativeBias(num_buckets=2 * half_buckets, max_distance=half_buckets + beyond)
    ahead = torch.arange(-2 * bias.max_distance, 2 * bias.max_distance + 1)
    theirs = T5Attention._relative_position_bucket(
        ahead,
        bidirectional=not is_causal,
        num_buckets=bias.num_buckets,
        max_distance=bias.max_distance,
    )
    assert torch.equal(relative_buckets(ahead, bias, is_causal=is_causal), theirs)


@pytest.mark.parametrize("is_causal", [True, False])
def test_relative_bias_of_a_layer_equals_t5s(is_causal: bool) -> None:
    bias = RelativeBias(num_buckets=6, max_distance=11)
    layer = MultiHeadAttention(6, 3, position=bias, is_causal=is_causal)
    table = torch.randn(6, 3)
    with torch.no_grad():
        layer.Wq.weight.zero_()  # every score is its distance's bias
        layer.relative_bias.weight.copy_(table)
    _, weights = layer(torch.zeros(1, 17, 6), need_weights=True)
    theirs = their_relative_bias(table, bias, is_causal=is_causal, positions=17)
    if is_causal:
        theirs = theirs.masked_fill(torch.ones(17, 17).triu(1).bool(), -math.inf)
    assert_same(weights[0], theirs.softmax(-1), roundings=17)


def their_relative_bias(
    table: Tensor, bias: RelativeBias, *, is_causal: bool, positions: int
) -> Tensor:
    """Bias on the scores by T5's own module, `[heads query key]`."""
    module = SimpleNamespace(
        relative_attention_bias=torch.nn.Embedding.from_pretrained(table),
        is_decoder=is_causal,
        relative_attention_num_buckets=bias.num_buckets,
        relative_attention_max_distance=bias.max_distance,
        _relative_position_bucket=T5Attention._relative_position_bucket,
    )
    added: Tensor = T5Attention.compute_bias(module, positions, positions)[0]
    return added


@pytest.mark.parametrize("factor", [0.0, -2.0])
def test_scaling_factor_must_be_positive(factor: float) -> None:
    with pytest.raises(OptionError, match=f"factor.*{factor}"):
        RotaryScaling(kind="linear", factor=factor)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(2, 128), (7, 128), (32, 16)])
def test_too_few_buckets_raise(num_buckets: int, max_distance: int) -> None:
    message = f"num_buckets.*{num_buckets}.*max_distance.*{max_distance}.* 4"
    with pytest.raises(OptionError, match=message):
        RelativeBias(num_buckets=num_buckets, max_distance=max_distance)


@pytest.mark.parametrize(("d_rotary", "d_key"), [(3, 6), (8, 6), (0, 6), (-2, 6), (None, 5)])
def test_channels_that_cannot_be_paired_raise(d_rotary: int | None, d_key: int) -> None:
    channels = d_key if d_rotary is None else d_rotary
    message = f"^{channels} channels.* {d_key}.*d_rotary"
    with pytest.raises(OptionError, match=message):
        MultiHeadAttention(12, 2, d_key=d_key, position=Rotary(d_rotary=d_rotary))


def test_more_pairs_than_channels_raise() -> None:
    angles = torch.zeros(3, 4)
    with pytest.raises(ShapeError, match=r"4 rotary pairs.* 8 channels.* 7"):
        rotate(torch.zeros(1, 2, 3, 7), angles, angles)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda: RotaryScaling(kind="dynamic", factor=2.0),
            "'dynamic'.*linear, ntk, llama3, yarn",
        ),
        (
            lambda: RotaryScaling(kind="yarn", factor=2.0, original_length=0),
            "original_length.* 0",
        ),
        (
            lambda: Rotary(layout="neox"),
            "layout.*'neox'.*half, interleaved",
        ),
        (lambda: Rotary(base=1), "base.* 1"),
        (
            lambda: rotate(torch.ones(1, 1, 1, 2), *torch.ones(2, 1, 1), layout="neox"),
            "layout.*'neox'.*half, interleaved",
        ),
        (
            lambda: MultiHeadAttention(6, 2, position="rotary"),
            "position.*'rotary'.*Rotary.*Alibi.*RelativeBias",
        ),
        (lambda: MultiHeadAttention(6, 2, position=Rotary), "position.*<class '.*Rotary'>"),
    ],
)
def test_unknown_positions_raise(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        wrong()
