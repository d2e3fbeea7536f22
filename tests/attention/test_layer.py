"""The layer as a PyTorch module: sizes, padding, dropout, and all that torch does to modules."""

import copy
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call, grad, jvp, stack_module_state, vjp, vmap

from headwise import Alibi, MultiHeadAttention, RelativeBias, Rotary
from headwise.attention.core import attend_in_steps
from headwise.attention.layer import split_heads
from headwise.errors import OptionError, ShapeError

from .tolerance import assert_same

BATCH, POSITIONS, D_MODEL, NUM_HEADS = 2, 7, 20, 5
KEYS, D_CONTEXT = 11, 13
CXX = os.environ.get("CXX", "g++")

LAYERS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"is_causal": True},
    "grouped": {"num_kv_heads": 1, "d_value": 3, "bias": False},
    "cross": {"d_context": D_CONTEXT},
    "rotary": {"is_causal": True, "position": Rotary()},
    "alibi and sinks": {"position": Alibi(), "sinks": True},
    "relative bias": {"position": RelativeBias(num_buckets=4, max_distance=5)},
    "window and softcap": {"window": 3, "softcap": 2.0},
    "norms": {"qk_norm": True, "bias": ("Wq", "Wo")},
}


def make_layer(name: str = "full", *, seed: int = 0, **options: Any) -> MultiHeadAttention:
    """A layer with every parameter random, scores near 1."""
    generator = torch.Generator().manual_seed(seed)
    layer = MultiHeadAttention(D_MODEL, NUM_HEADS, **LAYERS[name] | options)
    with torch.no_grad():
        for parameter in layer.parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * D_MODEL**-0.5
            parameter.copy_(drawn)
    return layer


def inputs(layer: MultiHeadAttention, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """What the layer is called with: x, and a context if it looks at one."""
    x = torch.randn(BATCH, POSITIONS, D_MODEL, dtype=dtype)
    if layer.d_context == D_MODEL:
        return (x,)
    return x, torch.randn(BATCH, KEYS, D_CONTEXT, dtype=dtype)


def roundings(layer: MultiHeadAttention) -> int:
    """Length of the longest chain of sums, forward and back."""
    sizes = D_MODEL, layer.d_context, layer.d_key, NUM_HEADS * layer.d_value, KEYS
    return 2 * sum(sizes) + BATCH * NUM_HEADS * POSITIONS


def gradients(layer: MultiHeadAttention, output: Tensor) -> dict[str, Tensor]:
    """Gradients of every parameter, of a fixed random mixture of the output."""
    generator = torch.Generator().manual_seed(1)
    seen_from = torch.randn(output.shape, generator=generator).to(output.dtype)
    found = torch.autograd.grad((output * seen_from).sum(), list(layer.parameters()))
    return dict(zip(dict(layer.named_parameters()), found, strict=True))


# Sizes


def test_the_dimension_table_of_four_heads() -> None:
    layer, x = MultiHeadAttention(512, 4), torch.randn(4, 16, 512)
    assert (layer.d_key, layer.d_value) == (128, 128)
    projections = {"Wq": layer.d_key, "Wk": layer.d_key, "Wv": layer.d_value}
    heads = []
    for name, width in projections.items():
        projected = layer.get_submodule(name)(x)
        assert projected.shape == (4, 16, 512)
        assert projected.view(4, 16, 4, 128).shape == (4, 16, 4, 128)
        heads.append(split_heads(projected, width))
        assert heads[-1].shape == (4, 4, 16, 128)
        assert torch.equal(heads[-1], projected.view(4, 16, 4, 128).transpose(1, 2))
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
    projected = torch.randn(2, 3, 20)
    assert split_heads(projected, 4).data_ptr() == projected.data_ptr()


@pytest.mark.parametrize("name", LAYERS)
def test_weights_come_per_head_and_only_when_asked_for(name: str) -> None:
    layer = make_layer(name)
    given = inputs(layer)
    alone, (output, weights) = layer(*given), layer(*given, need_weights=True)
    assert alone.shape == output.shape == (BATCH, POSITIONS, D_MODEL)
    assert weights.shape == (BATCH, NUM_HEADS, POSITIONS, given[-1].shape[1])
    assert_same(alone, output, roundings=roundings(layer))
    total = weights.sum(-1)
    expected = torch.ones_like(total)
    if layer.sinks is not None:
        assert (total < 1).all() and (total > 0).all()
    else:
        assert_same(total, expected, roundings=KEYS)


@pytest.mark.parametrize(("batch", "positions"), [(0, 3), (2, 0), (0, 0)])
def test_nothing_in_gives_nothing_out(batch: int, positions: int) -> None:
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


def test_the_repr_names_what_is_not_usual() -> None:
    plain = repr(MultiHeadAttention(8, 2)).splitlines()[1].strip()
    assert plain == "d_model=8, num_heads=2"
    layer = MultiHeadAttention(8, 4, num_kv_heads=2, d_key=6, window=(3, None), dropout=0.5)
    assert layer.extra_repr() == (
        "d_model=8, num_heads=4, num_kv_heads=2, d_key=6, dropout=0.5, window=(3, None)"
    )


# Padding


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "cross"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_sequence_gives_the_same_alone_and_padded(name: str, need_weights: bool) -> None:
    layer = make_layer(name).double()
    (x,) = inputs(layer, torch.float64)
    lengths = torch.tensor([4, POSITIONS])
    found = layer(x, lengths=lengths, need_weights=need_weights)
    output = found[0] if need_weights else found
    alone = layer(x[:1, :4])
    assert_same(output[:1, :4], alone, roundings=roundings(layer))
    padding = torch.zeros(3, D_MODEL) if layer.Wo.bias is None else layer.Wo.bias.expand(3, -1)
    assert torch.equal(output[0, 4:], padding.double())
    assert_same(output[1:], layer(x[1:]), roundings=roundings(layer))


def test_long_padded_batches_give_the_same_as_short_ones() -> None:
    layer = make_layer("rotary").double()
    x = torch.randn(3, 200, D_MODEL, dtype=torch.float64)
    lengths = torch.tensor([150, 1, 60])  # so much padding that each is computed by itself
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
def test_lengths_outside_the_batch_are_refused(need_weights: bool, lengths: list[int]) -> None:
    layer = make_layer()
    message = rf"lengths run from {min(lengths)} to {max(lengths)}; they must lie in 0\.\.7"
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
    given = [tensor.requires_grad_() for tensor in inputs(layer)]
    mask = torch.ones(BATCH, 1, POSITIONS, given[-1].shape[1], dtype=torch.bool)
    mask[0, :, 2] = False
    mask[1] = False
    found = layer(*given, mask=mask, need_weights=need_weights)
    output = found[0] if need_weights else found
    bias = torch.zeros(D_MODEL) if layer.Wo.bias is None else layer.Wo.bias
    assert torch.equal(output[0, 2], bias)
    assert torch.equal(output[1], bias.expand(POSITIONS, -1))
    assert not torch.equal(output[0, 3], bias)
    if need_weights:
        assert (found[1][1] == 0).all() and (found[1][0, :, 2] == 0).all()
    output.square().sum().backward()
    for key, leaf in (*layer.named_parameters(), *zip(("x", "context"), given, strict=False)):
        assert leaf.grad is not None and leaf.grad.isfinite().all(), key
    assert (given[-1].grad[1] == 0).all()  # nobody saw the second sequence


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
    kept = output * 8 * 0.75  # of eight weights
    assert_same(kept, kept.round(), roundings=8)
    share = kept.mean().item() / 8
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


# What torch does to modules


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_dict_round_trips(name: str) -> None:
    layer, other = make_layer(name, seed=0), make_layer(name, seed=1)
    given = inputs(layer)
    assert not torch.equal(other(*given), layer(*given))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(*given), layer(*given))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_copies_compute_the_same_and_live_apart(name: str, way: str) -> None:
    layer = make_layer(name)
    given = inputs(layer)
    expected = layer(*given)  # a layer that has run before is copied, too
    copied = copied_by(way, layer)
    assert torch.equal(copied(*given), expected)
    with torch.no_grad():
        copied.Wo.weight.zero_()
    assert torch.equal(layer(*given), expected)


def copied_by(way: str, layer: MultiHeadAttention) -> MultiHeadAttention:
    if way == "deepcopy":
        return copy.deepcopy(layer)
    if way == "pickle":
        unpickled: MultiHeadAttention = pickle.loads(pickle.dumps(layer))
        return unpickled
    file = BytesIO()
    torch.save(layer, file)
    file.seek(0)
    loaded: MultiHeadAttention = torch.load(file, weights_only=False)
    return loaded


@pytest.fixture
def _unset_memory_is_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)  # which also makes `torch.empty` give NaN
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_unset_memory_is_nan")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_on_the_meta_device_has_shapes_and_can_be_filled(name: str) -> None:
    real, hollow = (
        make_layer(name),
        MultiHeadAttention(D_MODEL, NUM_HEADS, **LAYERS[name], device="meta"),
    )
    given = inputs(real)
    nothing = [tensor.to("meta") for tensor in given]
    output, weights = hollow(*nothing, need_weights=True)
    assert output.device.type == weights.device.type == "meta"
    assert hollow(*nothing).shape == output.shape == (BATCH, POSITIONS, D_MODEL)
    assert weights.shape == (BATCH, NUM_HEADS, POSITIONS, given[-1].shape[1])
    hollow.to_empty(device="cpu")
    assert hollow.Wq.weight.isnan().all()
    hollow.load_state_dict(real.state_dict())
    assert torch.equal(hollow(*given), real(*given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LAYERS)
def test_every_dtype_is_near_float64_forward_and_back(name: str, dtype: torch.dtype) -> None:
    layer = make_layer(name).to(dtype)
    exact = copy.deepcopy(layer).double()
    given = inputs(layer, dtype)
    output, truth = layer(*given), exact(*(tensor.double() for tensor in given))
    assert output.dtype == dtype
    assert_same(output, truth, roundings=roundings(layer))
    expected = gradients(exact, truth)
    for key, gradient in gradients(layer, output).items():
        assert gradient.dtype == dtype
        assert_same(gradient, expected[key], roundings=roundings(layer), name=key)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_constructors_dtype_reaches_every_parameter(dtype: torch.dtype) -> None:
    options = {"position": RelativeBias(), "sinks": True, "qk_norm": True}
    layer = MultiHeadAttention(D_MODEL, NUM_HEADS, **options, dtype=dtype)
    assert {parameter.dtype for parameter in layer.parameters()} == {dtype}


@pytest.mark.parametrize("name", LAYERS)
def test_autocast_computes_in_bfloat16_and_learns_in_float32(name: str) -> None:
    layer = make_layer(name)
    given = inputs(layer)
    truth = layer(*given)
    expected = gradients(layer, truth)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(*given)
        with_weights, weights = layer(*given, need_weights=True)
    assert output.dtype == with_weights.dtype == torch.bfloat16
    tolerance = {"roundings": roundings(layer), "dtype": torch.bfloat16}
    assert_same(output, truth, **tolerance)
    assert_same(with_weights, truth, **tolerance)
    assert_same(weights, layer(*given, need_weights=True)[1], **tolerance)
    for key, gradient in gradients(layer, output).items():
        assert gradient.dtype == torch.float32
        assert_same(gradient, expected[key], **tolerance, name=key)


@pytest.mark.parametrize("name", LAYERS)
def test_functional_gradients_equal_autograds(name: str) -> None:
    layer = make_layer(name).double()
    given = inputs(layer, torch.float64)
    parameters = dict(layer.named_parameters())
    called = functional_call(layer, parameters, given)
    assert torch.equal(called, layer(*given))
    generator = torch.Generator().manual_seed(1)
    seen_from = torch.randn(called.shape, generator=generator).double()

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return (functional_call(layer, parameters, given) * seen_from).sum()

    found, expected = grad(loss)(parameters), gradients(layer, layer(*given))
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        assert_same(gradient, expected[key], roundings=roundings(layer), name=key)


@pytest.mark.parametrize("name", LAYERS)
def test_vmap_over_layers_equals_a_loop(name: str) -> None:
    layers = [make_layer(name, seed=seed).double() for seed in range(3)]
    given = inputs(layers[0], torch.float64)
    skeleton = copy.deepcopy(layers[0]).to("meta")

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        output: Tensor = functional_call(skeleton, (parameters, buffers), given)
        return output

    together = vmap(one)(*stack_module_state(layers))
    apart = torch.stack([layer(*given) for layer in layers])
    assert_same(together, apart, roundings=roundings(layers[0]))


@pytest.mark.parametrize("name", LAYERS)
def test_forward_and_backward_derivatives_agree(name: str) -> None:
    layer = make_layer(name).double()
    given = inputs(layer, torch.float64)
    directions = inputs(layer, torch.float64)
    output, change = jvp(layer, given, directions)
    assert_same(output, layer(*given), roundings=roundings(layer))
    seen_from = torch.randn_like(output)
    _, back = vjp(layer, *given)
    forward = (change * seen_from).sum()
    backward = sum(
        (gradient * direction).sum()
        for gradient, direction in zip(back(seen_from), directions, strict=True)
    )
    # Both sides add up all numbers of the output or of the input.
    total = sum(tensor.numel() for tensor in given)
    assert_same(forward, backward, roundings=roundings(layer) + total)


@pytest.mark.parametrize("name", LAYERS)
def test_a_transform_leaves_nothing_behind(name: str) -> None:
    layer, untouched = make_layer(name), make_layer(name)
    given = inputs(layer)
    jvp(vmap(layer), tuple(tensor[None] for tensor in given), tuple(t[None] for t in given))
    expected = gradients(untouched, untouched(*given))
    for key, gradient in gradients(layer, layer(*given)).items():
        assert torch.equal(gradient, expected[key]), key


# torch.compile, in a process of its own: the shape checks of the test run cannot be traced


COMPILED: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {},
    "grouped": {},
    "cross": {},
    "rotary": {},
    "alibi and sinks": {},
    "norms": {},
    "full, masked": {"mask": torch.ones(POSITIONS, POSITIONS).tril(-1).bool()},  # an empty row
    "full, weights": {"need_weights": True},
    "full, gates": {"gates": torch.linspace(0, 1, NUM_HEADS)},
    "full, lengths": {"lengths": torch.tensor([3, POSITIONS])},
}
"""Names of layers, and what they are called with."""


def check_compiled(backend: str, *cases: str) -> None:
    """Each case, compiled without a break, gives the output and gradients of the layer itself."""
    for case in cases:
        torch._dynamo.reset()
        layer = make_layer(case.partition(",")[0])
        given, options = inputs(layer), COMPILED[case]
        compiled = torch.compile(layer, backend=backend, fullgraph=True)
        output, expected = compiled(*given, **options), layer(*given, **options)
        tolerance = {"roundings": roundings(layer), "name": case}
        if options.get("need_weights"):
            assert_same(output[1], expected[1], **tolerance)
            output, expected = output[0], expected[0]
        assert_same(output, expected, **tolerance)
        wanted = gradients(layer, expected)
        for key, gradient in gradients(layer, output).items():
            assert_same(gradient, wanted[key], **tolerance | {"name": f"{case}, {key}"})
        if not options:  # another length must not break the graph either
            longer = [torch.cat([tensor, tensor], 1) for tensor in given]
            assert_same(compiled(*longer), layer(*longer), **tolerance)
        sys.stdout.write(f"{case} agrees\n")


def assert_compiled(backend: str, *cases: str) -> None:
    """Run `check_compiled` in a fresh process."""
    tests = str(Path(__file__).parents[1])
    code = f"from attention.test_layer import check_compiled; check_compiled{(backend, *cases)}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([tests, *sys.path])},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [f"{case} agrees" for case in cases]


@pytest.mark.slow
def test_compiled_layers_equal_eager_ones_without_a_graph_break() -> None:
    assert_compiled("aot_eager", *COMPILED)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(CXX) is None, reason=f"inductor needs a C++ compiler, {CXX}")
def test_a_layer_compiled_to_machine_code_equals_the_eager_one() -> None:
    assert_compiled("inductor", "rotary")


def test_a_compiled_layer_that_fails_is_noticed() -> None:
    with pytest.raises(AssertionError, match="KeyError: 'no such layer'"):
        assert_compiled("aot_eager", "no such layer")


# Messages


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((0, 2), {}, "d_model 0, num_heads 2, num_kv_heads 2: all must be at least 1"),
        ((8, 0), {}, "d_model 8, num_heads 0, num_kv_heads 0: all must be at least 1"),
        ((8, 2), {"num_kv_heads": 0}, "num_heads 2, num_kv_heads 0: all must be at least 1"),
        ((8, 6), {"num_kv_heads": 4}, "num_heads 6 is not a multiple of num_kv_heads 4: each KV"),
        ((8, 3), {}, r"d_model 8 is not a multiple of num_heads 3: .*d_key \(for instance 2\)"),
        ((8, 2), {"bias": ("Wq", "Wx", "wo")}, "bias names Wx, wo: the projections are Wq, Wk, W"),
        ((8, 2), {"bias": "Wx"}, "bias names Wx: the projections are Wq, Wk, Wv, Wo"),
        ((8, 2), {"window": 0}, "window is 0: it must be a positive number of keys"),
        ((8, 2), {"window": (-1, 2)}, r"window is \(-1, 2\): it must be a positive"),
        ((8, 2), {"softcap": 0.0}, "softcap is 0.0: it must be positive"),
        ((8, 2), {"dropout": 1.0}, r"dropout is 1.0: it must lie in \[0, 1\)"),
        ((8, 2), {"dropout": -0.1}, "dropout is -0.1: it must lie in"),
        ((8, 2), {"d_key": 0}, "d_key 0"),
        ((8, 2), {"d_value": -1}, "d_value -1"),
        ((8, 2), {"d_context": 0}, "d_context 0"),
    ],
)
def test_sizes_and_options_that_cannot_be_are_refused(
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
        ("full", [(2, 7, 19)], "x is [2, 7, 19]; this layer takes [batch, position, d_model 20]"),
        ("cross", [(2, 7, 20)], "this layer attends to a context 13 wide; call it with x and cont"),
        (
            "cross",
            [(2, 7, 20), (2, 11, 20)],
            "context is [2, 11, 20]; this layer takes [batch, position, d_context 13] (a mask is",
        ),
        (
            "rotary",
            [(2, 7, 20), (2, 5, 20)],
            "rotary positions need at least as many keys as queries; got 7 queries and 5 keys",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    name: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        make_layer(name)(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 1)])
def test_gates_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    layer = make_layer()
    message = rf"gates are {re.escape(str(list(shape)))}; give \[heads 5\] or \[batch 2, heads 5\]"
    with pytest.raises(ShapeError, match=message):
        layer(*inputs(layer), gates=torch.ones(shape))
