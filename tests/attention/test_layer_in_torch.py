"""The layer among torch's own tools: copies, dtypes, autocast, torch.func."""

import copy
import os
import pickle
from collections.abc import Iterator
from io import BytesIO

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, stack_module_state, vjp, vmap

from headwise import MultiHeadAttention, RelativeBias

from .layers import (
    BATCH,
    D_MODEL,
    LAYERS,
    NUM_HEADS,
    POSITIONS,
    gradients,
    inputs,
    make_layer,
    roundings,
)
from .tolerance import assert_same

CXX = os.environ.get("CXX", "g++")


# Modules under torch's own tools


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_dict_round_trips(name: str) -> None:
    layer, other = make_layer(name, seed=0), make_layer(name, seed=1)
    arguments = inputs(layer)
    assert not torch.equal(other(*arguments), layer(*arguments))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(*arguments), layer(*arguments))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save"])
def test_copies_compute_the_same_and_share_no_parameters(name: str, way: str) -> None:
    layer = make_layer(name)
    arguments = inputs(layer)
    expected = layer(*arguments)  # a layer that has run before is copied as well
    copied = copied_by(way, layer)
    assert torch.equal(copied(*arguments), expected)
    with torch.no_grad():
        copied.Wo.weight.zero_()
    assert torch.equal(layer(*arguments), expected)


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
    torch.use_deterministic_algorithms(True)  # which also fills `torch.empty` with NaN
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_unset_memory_is_nan")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_on_the_meta_device_has_shapes_and_can_be_filled(name: str) -> None:
    real, hollow = (
        make_layer(name),
        MultiHeadAttention(D_MODEL, NUM_HEADS, **LAYERS[name], device="meta"),
    )
    arguments = inputs(real)
    nothing = [tensor.to("meta") for tensor in arguments]
    output, weights = hollow(*nothing, need_weights=True)
    assert output.device.type == weights.device.type == "meta"
    assert hollow(*nothing).shape == output.shape == (BATCH, POSITIONS, D_MODEL)
    assert weights.shape == (BATCH, NUM_HEADS, POSITIONS, arguments[-1].shape[1])
    hollow.to_empty(device="cpu")
    assert hollow.Wq.weight.isnan().all()
    hollow.load_state_dict(real.state_dict())
    assert torch.equal(hollow(*arguments), real(*arguments))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LAYERS)
def test_every_dtype_is_near_float64_forward_and_back(name: str, dtype: torch.dtype) -> None:
    layer = make_layer(name).to(dtype)
    exact = copy.deepcopy(layer).double()
    arguments = inputs(layer, dtype)
    output, truth = layer(*arguments), exact(*(tensor.double() for tensor in arguments))
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
    arguments = inputs(layer)
    truth = layer(*arguments)
    expected = gradients(layer, truth)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(*arguments)
        with_weights, weights = layer(*arguments, need_weights=True)
    assert output.dtype == with_weights.dtype == torch.bfloat16
    tolerance = {"roundings": roundings(layer), "dtype": torch.bfloat16}
    assert_same(output, truth, **tolerance)
    assert_same(with_weights, truth, **tolerance)
    assert_same(weights, layer(*arguments, need_weights=True)[1], **tolerance)
    for key, gradient in gradients(layer, output).items():
        assert gradient.dtype == torch.float32
        assert_same(gradient, expected[key], **tolerance, name=key)


@pytest.mark.parametrize("name", LAYERS)
def test_functional_gradients_equal_autograds(name: str) -> None:
    layer = make_layer(name).double()
    arguments = inputs(layer, torch.float64)
    parameters = dict(layer.named_parameters())
    called = functional_call(layer, parameters, arguments)
    assert torch.equal(called, layer(*arguments))
    generator = torch.Generator().manual_seed(1)
    seen_from = torch.randn(called.shape, generator=generator).double()

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return (functional_call(layer, parameters, arguments) * seen_from).sum()

    functional, expected = grad(loss)(parameters), gradients(layer, layer(*arguments))
    assert functional.keys() == expected.keys()
    for key, gradient in functional.items():
        assert_same(gradient, expected[key], roundings=roundings(layer), name=key)


@pytest.mark.parametrize("name", LAYERS)
def test_vmap_over_layers_equals_a_loop(name: str) -> None:
    layers = [make_layer(name, seed=seed).double() for seed in range(3)]
    arguments = inputs(layers[0], torch.float64)
    skeleton = copy.deepcopy(layers[0]).to("meta")

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        output: Tensor = functional_call(skeleton, (parameters, buffers), arguments)
        return output

    together = vmap(one)(*stack_module_state(layers))
    apart = torch.stack([layer(*arguments) for layer in layers])
    assert_same(together, apart, roundings=roundings(layers[0]))


@pytest.mark.parametrize("name", LAYERS)
def test_forward_and_backward_derivatives_agree(name: str) -> None:
    layer = make_layer(name).double()
    arguments = inputs(layer, torch.float64)
    directions = inputs(layer, torch.float64)
    output, change = jvp(layer, arguments, directions)
    assert_same(output, layer(*arguments), roundings=roundings(layer))
    seen_from = torch.randn_like(output)
    _, back = vjp(layer, *arguments)
    forward = (change * seen_from).sum()
    backward = sum(
        (gradient * direction).sum()
        for gradient, direction in zip(back(seen_from), directions, strict=True)
    )
    # Both sides add up all numbers of the output or of the input.
    total = sum(tensor.numel() for tensor in arguments)
    assert_same(forward, backward, roundings=roundings(layer) + total)


@pytest.mark.parametrize("name", LAYERS)
def test_a_transform_leaves_nothing_behind(name: str) -> None:
    layer, untouched = make_layer(name), make_layer(name)
    arguments = inputs(layer)
    jvp(vmap(layer), tuple(tensor[None] for tensor in arguments), tuple(t[None] for t in arguments))
    expected = gradients(untouched, untouched(*arguments))
    for key, gradient in gradients(layer, layer(*arguments)).items():
        assert torch.equal(gradient, expected[key]), key
