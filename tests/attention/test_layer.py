"""The layer as a PyTorch module: sizes, padding, dropout, and how torch treats modules."""

import copy
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from headwise import MultiHeadAttention, RelativeBias
from headwise.attention.attend import attend_in_steps
from headwise.errors import OptionError, ShapeError

from .layers import (
    BATCH,
    D_CONTEXT,
    D_MODEL,
    KEYS,
    LAYERS,
    NUM_HEADS,
    POSITIONS,
    inputs,
    make_layer,
    roundings,
)
from .tolerance import assert_same

# Sizes


def test_the_dimension_table_of_four_heads() -> None:
    layer, x = MultiHeadAttention(512, 4), torch.randn(4, 16, 512)
    assert (layer.d_key, layer.d_value) == (128, 128)
    heads = layer.project(x, x)
    for name, split in zip(("Wq", "Wk", "Wv"), heads, strict=True):
        projected = layer.get_submodule(name)(x)
        assert projected.shape == (4, 16, 512)
        assert split.shape == (4, 4, 16, 128)
        for head in range(4):
            own_columns = projected[:, :, 128 * head : 128 * (head + 1)]
            assert torch.equal(split[:, head], own_columns)
    steps = attend_in_steps(*heads)
    assert steps.scores.shape == steps.weights.shape == (4, 4, 16, 16)
    assert steps.mixed.shape == (4, 4, 16, 128)
    together = steps.mixed.transpose(1, 2)
    assert together.shape == (4, 16, 4, 128)
    concat = together.flatten(2)
    assert concat.shape == (4, 16, 512)
    output = layer.Wo(concat)
    assert output.shape == (4, 16, 512)
    assert_same(layer(x), output, roundings=4 * 512)


def test_the_dimensions_of_eight_heads() -> None:
    layer = MultiHeadAttention(512, 8)
    assert (layer.d_key, layer.d_value) == (64, 64)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (512**2 + 512)


def test_heads_are_split_without_copying() -> None:
    layer, outputs = MultiHeadAttention(20, 5), []
    layer.Wq.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    queries, _, _ = layer.project(*[torch.randn(2, 3, 20)] * 2)
    assert queries.data_ptr() == outputs[0].data_ptr()


@pytest.mark.parametrize("name", LAYERS)
def test_weights_come_per_head_and_only_with_need_weights(name: str) -> None:
    layer = make_layer(name)
    arguments = inputs(layer)
    alone, (output, weights) = layer(*arguments), layer(*arguments, need_weights=True)
    assert alone.shape == output.shape == (BATCH, POSITIONS, D_MODEL)
    assert weights.shape == (BATCH, NUM_HEADS, POSITIONS, arguments[-1].shape[1])
    assert_same(alone, output, roundings=roundings(layer))
    total = weights.sum(-1)
    expected = torch.ones_like(total)
    if layer.sinks is not None:
        assert (total < 1).all() and (total > 0).all()
    else:
        assert_same(total, expected, roundings=KEYS)


@pytest.mark.parametrize(("batch", "positions"), [(0, 3), (2, 0), (0, 0)])
def test_empty_input_gives_empty_output(batch: int, positions: int) -> None:
    layer, x = make_layer(), torch.randn(batch, positions, D_MODEL)
    output, weights = layer(x, need_weights=True)
    assert layer(x).shape == output.shape == x.shape
    assert weights.shape == (batch, NUM_HEADS, positions, positions)


def test_a_context_without_positions_leaves_the_bias() -> None:
    layer, x = make_layer("cross"), torch.randn(2, 3, D_MODEL)
    output, weights = layer(x, torch.randn(2, 0, D_CONTEXT), need_weights=True)
    assert weights.shape == (2, NUM_HEADS, 3, 0)
    assert torch.equal(output, layer.Wo.bias.expand_as(output))
    assert torch.equal(layer(x, torch.randn(2, 0, D_CONTEXT)), output)


def test_fresh_layers_start_as_promised() -> None:
    options = {"position": RelativeBias(), "sinks": True, "qk_norm": True, "d_value": 3}
    layer = MultiHeadAttention(D_MODEL, NUM_HEADS, **options)
    for name, parameter in layer.named_parameters():
        if name.startswith("W") and name.endswith("weight"):
            bound = math.sqrt(6 / sum(parameter.shape))  # Xavier, Glorot and Bengio 2010, eq. 16
            assert 0.9 * bound < parameter.abs().max() <= bound, name
        else:
            expected = 1.0 if "norm" in name else 0.0
            assert (parameter == expected).all(), name


def test_reset_parameters_brings_back_a_fresh_start() -> None:
    options = LAYERS["relative bias"] | {"sinks": True, "qk_norm": True}
    layer, fresh = (MultiHeadAttention(D_MODEL, NUM_HEADS, **options) for _ in range(2))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(math.nan)
    layer.reset_parameters()
    for name, parameter in layer.named_parameters():
        if name.startswith("W") and name.endswith("weight"):
            assert parameter.abs().max() <= math.sqrt(6 / sum(parameter.shape)), name
        else:
            assert torch.equal(parameter, fresh.get_parameter(name)), name


@settings(max_examples=20)
@given(order=st.permutations(range(NUM_HEADS)))
def test_permuting_heads_permutes_their_weights_and_nothing_else(order: list[int]) -> None:
    layer = make_layer(sinks=True).double()
    permuted = copy.deepcopy(layer)
    with torch.no_grad():
        permuted.sinks.values.copy_(layer.sinks.values[order])
        for here, there in enumerate(order):
            for mine, other in zip(permuted.heads[here][1:], layer.heads[there][1:], strict=True):
                mine.copy_(other)
    (x,) = inputs(layer, torch.float64)
    output, weights = layer(x, need_weights=True)
    permuted_output, permuted_weights = permuted(x, need_weights=True)
    assert_same(permuted_weights, weights[:, order], roundings=roundings(layer))
    assert_same(permuted_output, output, roundings=roundings(layer))


def test_repr_lists_options_that_are_not_the_default() -> None:
    plain = repr(MultiHeadAttention(8, 2)).splitlines()[1].strip()
    assert plain == "d_model=8, num_heads=2"
    layer = MultiHeadAttention(8, 4, num_kv_heads=2, d_key=6, window=(3, None), dropout=0.5)
    assert layer.extra_repr() == (
        "d_model=8, num_heads=4, num_kv_heads=2, d_key=6, dropout=0.5, window=(3, None)"
    )


# Padding


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "cross"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_sequence_gives_the_same_output_alone_and_padded(name: str, need_weights: bool) -> None:
    layer = make_layer(name).double()
    (x,) = inputs(layer, torch.float64)
    lengths = torch.tensor([4, POSITIONS])
    result = layer(x, lengths=lengths, need_weights=need_weights)
    output = result[0] if need_weights else result
    alone = layer(x[:1, :4])
    assert_same(output[:1, :4], alone, roundings=roundings(layer))
    padding = torch.zeros(3, D_MODEL) if layer.Wo.bias is None else layer.Wo.bias.expand(3, -1)
    assert torch.equal(output[0, 4:], padding.double())
    assert_same(output[1:], layer(x[1:]), roundings=roundings(layer))


def test_long_padded_batches_give_the_same_as_short_ones() -> None:
    layer = make_layer("rotary").double()
    x = torch.randn(3, 200, D_MODEL, dtype=torch.float64)
    lengths = torch.tensor([150, 1, 60])  # enough padding to compute each sequence by itself
    output = layer(x, lengths=lengths)
    for index, length in enumerate(lengths.tolist()):
        alone = layer(x[index : index + 1, :length])
        assert_same(output[index : index + 1, :length], alone, roundings=1000)
        assert torch.equal(output[index, length:], layer.Wo.bias.expand(200 - length, -1))


def test_a_contexts_padding_leaves_no_trace() -> None:
    layer = make_layer("cross").double()
    x, context = inputs(layer, torch.float64)
    output = layer(x, context, lengths=torch.tensor([3, KEYS]))
    assert_same(output[:1], layer(x[:1], context[:1, :3]), roundings=roundings(layer))
    assert_same(output[1:], layer(x[1:], context[1:]), roundings=roundings(layer))


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("lengths", [[3, 8], [-1, 7]])
def test_lengths_beyond_the_padded_length_raise(need_weights: bool, lengths: list[int]) -> None:
    layer = make_layer()
    message = rf"lengths.*{min(lengths)} to {max(lengths)}.*0\.\.7"
    with pytest.raises(ShapeError, match=message):
        layer(*inputs(layer), lengths=torch.tensor(lengths), need_weights=need_weights)


# Rows that see nothing, and dropout


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mode", ["eval", "training", "training with dropout"])
def test_a_row_that_sees_nothing_gives_the_bias_and_finite_gradients(
    name: str, need_weights: bool, mode: str
) -> None:
    layer = make_layer(name, dropout=0.5 if mode.endswith("dropout") else 0.0)
    layer.train(mode != "eval")
    arguments = [tensor.requires_grad_() for tensor in inputs(layer)]
    mask = torch.ones(BATCH, 1, POSITIONS, arguments[-1].shape[1], dtype=torch.bool)
    mask[0, :, 2] = False
    mask[1] = False
    result = layer(*arguments, mask=mask, need_weights=need_weights)
    output = result[0] if need_weights else result
    bias = torch.zeros(D_MODEL) if layer.Wo.bias is None else layer.Wo.bias
    assert torch.equal(output[0, 2], bias)
    assert torch.equal(output[1], bias.expand(POSITIONS, -1))
    assert not torch.equal(output[0, 3], bias)
    if need_weights:
        assert (result[1][1] == 0).all() and (result[1][0, :, 2] == 0).all()
    output.square().sum().backward()
    for key, leaf in (*layer.named_parameters(), *zip(("x", "context"), arguments, strict=False)):
        assert leaf.grad is not None and leaf.grad.isfinite().all(), key
    assert (arguments[-1].grad[1] == 0).all()  # no query saw the second sequence


def test_dropout_acts_in_training_only() -> None:
    layer = make_layer(dropout=0.5)
    (x,) = inputs(layer)
    plain = make_layer()
    assert not torch.equal(layer(x), layer(x))
    assert_same(layer.eval()(x), plain(x), roundings=roundings(layer))
    assert torch.equal(layer(x), layer(x))


def test_dropout_drops_whole_weights_and_scales_the_others_up() -> None:
    layer = MultiHeadAttention(2, 1, dropout=0.25, bias=False)
    with torch.no_grad():
        layer.Wq.weight.zero_()  # every weight is one in eight
        layer.Wv.weight.copy_(torch.eye(2))
        layer.Wo.weight.copy_(torch.eye(2))
    output = layer(torch.ones(500, 8, 2))[..., 0]
    counts = output * 8 * 0.75  # of eight weights
    assert_same(counts, counts.round(), roundings=8)
    share = counts.mean().item() / 8
    deviation = math.sqrt(0.25 * 0.75 / (500 * 8 * 8))
    assert abs(share - 0.75) < 5 * deviation  # one seed in two million fails


def test_dropout_keeps_the_expected_output() -> None:
    layer, repeats = make_layer("rotary", dropout=0.3), 2000
    x = torch.randn(1, POSITIONS, D_MODEL)
    with torch.no_grad():
        many = layer(x.expand(repeats, -1, -1))
        expected = layer.eval()(x)[0]
    deviation = many.std(0) / math.sqrt(repeats)
    assert (deviation > 0).all()
    assert ((many.mean(0) - expected).abs() < 6 * deviation).all()  # one seed in 3 million fails


def test_weights_in_training_are_those_before_dropout() -> None:
    layer = make_layer(dropout=0.5)
    (x,) = inputs(layer)
    _, weights = layer(x, need_weights=True)
    assert_same(weights.sum(-1), torch.ones(BATCH, NUM_HEADS, POSITIONS), roundings=POSITIONS)


# Messages


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((0, 2), {}, "d_model.* 0"),
        ((8, 0), {}, "num_heads.* 0"),
        ((8, 2), {"num_kv_heads": 0}, "num_kv_heads.* 0"),
        ((12, 6), {"num_kv_heads": 4}, "num_heads 6.*num_kv_heads 4"),
        ((8, 3), {}, "d_model 8.*num_heads 3.*d_key.* 2"),
        ((8, 2), {"bias": ("Wq", "Wx", "wo")}, "bias.*Wx, wo.*Wq, Wk, Wv, Wo"),
        ((8, 2), {"bias": "Wx"}, "bias.*Wx.*Wq, Wk, Wv, Wo"),
        ((8, 2), {"window": 0}, "window.* 0"),
        ((8, 2), {"window": (-1, 2)}, r"window.*\(-1, 2\)"),
        ((8, 2), {"softcap": 0.0}, r"softcap.* 0\.0"),
        ((8, 2), {"dropout": 1.0}, r"dropout.*1\.0.*\[0, 1\)"),
        ((8, 2), {"dropout": -0.1}, r"dropout.*-0\.1"),
        ((8, 2), {"d_key": 0}, "d_key.* 0"),
        ((8, 2), {"d_value": -1}, "d_value.*-1"),
        ((8, 2), {"d_context": 0}, "d_context.* 0"),
    ],
)
def test_layer_rejects_impossible_sizes_and_options(
    sizes: tuple[int, int], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        MultiHeadAttention(*sizes, **options)


def test_a_bias_may_be_given_by_one_name() -> None:
    layer = MultiHeadAttention(8, 2, bias="Wk")
    assert [name for name, _ in layer.named_parameters() if "bias" in name] == ["Wk.bias"]


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("full", [(2, 7, 19)], r"x.*\[2, 7, 19\].*d_model 20"),
        ("cross", [(2, 7, 20)], "context.* 13$"),
        ("cross", [(2, 7, 20), (2, 11, 20)], r"context.*\[2, 11, 20\].*d_context 13"),
        ("rotary", [(2, 7, 20), (2, 5, 20)], "7 queries.*5 keys"),
    ],
)
def test_inputs_of_wrong_shapes_raise(
    name: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        make_layer(name)(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 1)])
def test_gates_of_wrong_shapes_raise(shape: tuple[int, ...]) -> None:
    layer = make_layer()
    message = rf"gates.*{re.escape(str(list(shape)))}.*\[heads 5\].*\[batch 2, heads 5\]"
    with pytest.raises(ShapeError, match=message):
        layer(*inputs(layer), gates=torch.ones(shape))
