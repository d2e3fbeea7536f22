"""A compiled or exported layer gives the eager layer's output, in one graph.

Not among the tests that check shapes at every call: those checks cannot be traced.
"""

import os
import shutil
from typing import Any

import pytest
import torch

from headwise import GrowingCache

from .layers import (
    BATCH,
    D_MODEL,
    NUM_HEADS,
    POSITIONS,
    gradients,
    inputs,
    make_layer,
    roundings,
)
from .tolerance import assert_same

pytestmark = pytest.mark.slow
CXX = os.environ.get("CXX", "g++")
CASES: dict[str, dict[str, Any]] = {
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
    "rotary, cache": {"cache": GrowingCache},
}
"""Names of layers, and the arguments they are called with."""
LENGTHENED = ("full", "rotary", "alibi and sinks")
"""Layers also called with longer input: all that depends on the length is among them."""
DIFFERENTIATED = ("full", "rotary", "rotary, cache", "norms", "full, masked")
"""Cases whose backward pass is traced as well, which takes three times as long."""


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("case", CASES)
def test_a_compiled_layer_equals_the_eager_one_without_a_graph_break(case: str) -> None:
    layer = make_layer(case.partition(",")[0])
    tensors, options = inputs(layer), CASES[case]
    backend = "aot_eager" if case in DIFFERENTIATED else "eager"
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    output = compiled(*tensors, **with_new_cache(options))
    expected = layer(*tensors, **with_new_cache(options))
    tolerance: dict[str, Any] = {"roundings": roundings(layer), "name": case}
    if options.get("need_weights"):
        assert_same(output[1], expected[1], **tolerance)
        output, expected = output[0], expected[0]
    assert_same(output, expected, **tolerance)
    expected_gradients = gradients(layer, expected)
    for key, gradient in gradients(layer, output).items():
        assert_same(gradient, expected_gradients[key], **tolerance | {"name": f"{case}, {key}"})
    if case in LENGTHENED:  # must not break the graph either
        longer = [torch.cat([tensor, tensor], 1) for tensor in tensors]
        assert_same(compiled(*longer), layer(*longer), **tolerance)


def with_new_cache(options: dict[str, Any]) -> dict[str, Any]:
    """The options with a new cache, if they have one, because every call fills its cache."""
    return options | {"cache": options["cache"]()} if "cache" in options else options


def test_layers_compiled_and_exported_take_every_length() -> None:
    """A layer with a window takes any length compiled, one with a bias any length exported."""
    windowed, biased = make_layer("causal", window=3), make_layer("alibi and sinks")
    compiled = torch.compile(windowed, backend="aot_eager", fullgraph=True)
    dynamic = {"x": {1: torch.export.Dim("length", min=2, max=500)}}
    exported = torch.export.export(biased, inputs(biased), dynamic_shapes=dynamic).module()
    for positions in (67, 131):  # the window's are two blocks of queries, and three
        x = torch.randn(BATCH, positions, D_MODEL)
        assert_same(compiled(x), windowed(x), roundings=roundings(windowed))
        assert_same(exported(x), biased(x), roundings=roundings(biased))


@pytest.mark.skipif(shutil.which(CXX) is None, reason=f"inductor needs a C++ compiler, {CXX}")
@torch.no_grad()
def test_a_layer_compiled_to_machine_code_equals_the_eager_one() -> None:
    layer = make_layer("rotary")
    tensors = inputs(layer)
    compiled = torch.compile(layer, backend="inductor", fullgraph=True)
    assert_same(compiled(*tensors), layer(*tensors), roundings=roundings(layer))
