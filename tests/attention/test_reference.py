"""The layer against its definition, head by head, and the definition against printed numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from headwise import Alibi, MultiHeadAttention, RelativeBias, Rotary, RotaryScaling
from headwise.attention.layer import PROJECTIONS
from headwise.attention.reference import LayerSteps, layer_by_definition

from .tolerance import assert_same


@dataclass(frozen=True, kw_only=True)
class Call:
    """A layer with random parameters, and everything it is called with."""

    layer: MultiHeadAttention
    x: Tensor
    context: Tensor | None
    mask: Tensor | None
    lengths: Tensor | None
    gates: Tensor | None

    @property
    def num_keys(self) -> int:
        """Positions that may be attended to."""
        return (self.x if self.context is None else self.context).shape[1]

    @property
    def leaves(self) -> dict[str, Tensor]:
        """Tensors that require a gradient, by name."""
        given = {"x": self.x, "context": self.context, "mask": self.mask, "gates": self.gates}
        learned = {name: tensor for name, tensor in given.items() if is_floating(tensor)}
        return learned | dict(self.layer.named_parameters())

    @property
    def roundings(self) -> int:
        """Length of the longest chain of sums, forward and back.

        A gradient passes every projection twice and adds up over sequences, heads and queries.
        """
        layer, (batch, num_queries, _) = self.layer, self.x.shape
        sizes = layer.d_model, layer.d_context, layer.d_key, layer.num_heads * layer.d_value
        chain = 2 * (sum(sizes) + self.num_keys) + batch * layer.num_heads * num_queries
        return math.ceil(chain * self.enlargement)

    @property
    def enlargement(self) -> float:
        """How much the norms enlarge errors: they divide by the root mean square, however small."""
        if self.layer.q_norm is None:
            return 1.0
        source = self.x if self.context is None else self.context
        queries, keys = (
            projected.unflatten(-1, (-1, self.layer.d_key))
            for projected in (self.layer.Wq(self.x), self.layer.Wk(source))
        )
        sizes = [tensor.square().mean(-1).sqrt().min().item() for tensor in (queries, keys)]
        return max(1.0, 1 / min(sizes))

    @property
    def exactness(self) -> torch.dtype:
        """The coarsest numbers in the computation: rotary angles are float32 in every layer."""
        return torch.float32 if isinstance(self.layer.position, Rotary) else torch.float64


class Answer(NamedTuple):
    """Output and weights of a layer."""

    output: Tensor
    weights: Tensor


def is_floating(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.is_floating_point()


def rotary_positions() -> st.SearchStrategy[Rotary]:
    """Every scaling kind and layout, all channels or the first ones, of heads at least 2 wide."""
    scalings = st.sampled_from(["linear", "ntk", "llama3", "yarn"]).map(
        lambda kind: RotaryScaling(kind=kind, factor=3.0, original_length=64)
    )
    return st.builds(
        Rotary,
        base=st.sampled_from([50.0, 10_000.0]),
        d_rotary=st.sampled_from([None, 4]),
        layout=st.sampled_from(["half", "interleaved"]),
        scaling=st.none() | scalings,
    )


POSITIONS: dict[str, st.SearchStrategy[Any]] = {
    "no positions": st.none(),
    "rotary": rotary_positions(),
    "alibi": st.just(Alibi()),
    "relative bias": st.builds(
        RelativeBias, num_buckets=st.sampled_from([4, 6]), max_distance=st.sampled_from([4, 9])
    ),
}


@st.composite
def layers(draw: st.DrawFn, position: Any, d_context: int | None) -> MultiHeadAttention:
    """A float64 layer with any options and random parameters."""
    num_kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    num_heads = num_kv_heads * group
    d_key = (
        draw(st.sampled_from([4, 6])) if isinstance(position, Rotary) else draw(st.integers(2, 5))
    )
    has_own_size = draw(st.booleans())
    side = st.none() | st.integers(0, 3)
    layer = MultiHeadAttention(
        11 if has_own_size else num_heads * d_key,
        num_heads,
        num_kv_heads=num_kv_heads,
        d_key=d_key if has_own_size else None,
        d_value=draw(st.sampled_from([None, 1, 7])),
        d_context=d_context,
        bias=draw(st.booleans() | st.sets(st.sampled_from(PROJECTIONS))),
        is_causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 4) | st.tuples(side, side)),
        position=position,
        softcap=draw(st.sampled_from([None, None, 1.5])),
        qk_norm=draw(st.booleans()),
        sinks=draw(st.booleans()),
        dtype=torch.float64,
    )
    randomise(layer, draw(st.integers(0, 2**32 - 1)))
    return layer


def randomise(layer: MultiHeadAttention, seed: int) -> None:
    """Draw every parameter, also those that start at 0 or 1; scores stay near 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            is_matrix = name.startswith("W") and name.endswith("weight")
            scale = parameter.shape[-1] ** -0.5 if is_matrix else 1.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def draw_mask(draw: st.DrawFn, sizes: Sequence[int], generator: torch.Generator) -> Tensor | None:
    """Bool, integer or floating, two to four axes, any of them 1; some rows see nothing."""
    kind = draw(st.sampled_from(["none", "bool", "integer", "floating"]))
    if kind == "none":
        return None
    axes = draw(st.sampled_from([(2, 3), (0, 2, 3), (0, 1, 2, 3)]))
    shape = [draw(st.sampled_from([sizes[axis], sizes[axis], 1])) for axis in axes]
    allowed = torch.rand(shape, generator=generator) < 0.7
    allowed &= torch.rand([*shape[:-1], 1], generator=generator) < 0.8
    if kind == "bool":
        return allowed
    if kind == "integer":
        return allowed.long()
    added = torch.randn(shape, generator=generator, dtype=torch.float64)
    return added.masked_fill(~allowed, -math.inf).requires_grad_()


@st.composite
def calls(draw: st.DrawFn, position_kind: str) -> Call:
    """A layer and its arguments; no two sizes are equal."""
    position = draw(POSITIONS[position_kind])
    has_context = draw(st.booleans())
    layer = draw(layers(position, 13 if has_context and draw(st.booleans()) else None))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    batch, num_queries = draw(st.integers(1, 3)), draw(st.sampled_from([1, 5]))
    longer = [7] if isinstance(position, Rotary) else [3, 7]
    num_keys = draw(st.sampled_from(longer)) if has_context else num_queries
    heads = layer.num_heads
    lengths = st.lists(st.integers(0, num_keys), min_size=batch, max_size=batch)
    has_places = layer.is_causal or layer.window is not None or position is not None
    can_be_padded = not (has_context and has_places)
    gate_shape = draw(st.sampled_from([None, (heads,), (1, heads), (batch, heads)]))
    return Call(
        layer=layer,
        x=normal(batch, num_queries, layer.d_model),
        context=normal(batch, num_keys, layer.d_context) if has_context else None,
        mask=draw_mask(draw, (batch, heads, num_queries, num_keys), generator),
        lengths=draw(st.none() | lengths.map(torch.tensor)) if can_be_padded else None,
        gates=None if gate_shape is None else normal(*gate_shape),
    )


def by_layer(call: Call, *, need_weights: bool) -> Answer | tuple[Tensor]:
    """The layer's output, and its weights if `need_weights`."""
    options = {"mask": call.mask, "lengths": call.lengths, "gates": call.gates}
    result = call.layer(call.x, call.context, **options, need_weights=need_weights)
    return Answer(*result) if need_weights else (result,)


def by_definition(call: Call) -> Answer:
    """The definition's answer, each sequence at its own length, with padding put back."""
    outputs, weights = [], []
    batch, num_queries = call.x.shape[:2]
    bias = call.layer.Wo.bias
    for index in range(batch):
        output = call.x[index] * 0  # padding has a gradient too: zeros
        output = output if bias is None else output + bias
        shares = call.x.new_zeros(call.layer.num_heads, num_queries, call.num_keys)
        rows = num_queries
        if call.lengths is not None and call.context is None:
            rows = int(call.lengths[index])
        if rows:
            steps = one_sequence(call, index, rows)
            output = torch.cat([steps.output, output[rows:]])
            columns = steps.heads[0].weights.shape[1]
            shares = shares.clone()
            shares[:, :rows, :columns] = torch.stack([head.weights for head in steps.heads])
        outputs.append(output)
        weights.append(shares)
    return Answer(torch.stack(outputs), torch.stack(weights))


def one_sequence(call: Call, index: int, rows: int) -> LayerSteps:
    """The definition on the first `rows` positions of one sequence, and on its whole context."""
    columns = rows if call.context is None else call.num_keys
    gates = call.gates
    if gates is not None and gates.dim() == 2:
        gates = gates[index % len(gates)]
    return layer_by_definition(
        call.layer,
        call.x[index, :rows],
        None if call.context is None else call.context[index],
        mask=own_mask(call, index, rows, columns),
        gates=gates,
    )


def own_mask(call: Call, index: int, rows: int, columns: int) -> Tensor | None:
    """One sequence's part of the mask, `[1 #heads query key]`, its context's padding blocked."""
    sizes = (1, call.layer.num_heads, call.x.shape[1], call.num_keys)
    mask = torch.ones(sizes, dtype=torch.bool) if call.mask is None else call.mask
    if mask.dim() == 4:
        mask = mask[index % len(mask)][None]
    elif mask.dim() == 3:
        mask = mask[index % len(mask)][None, None]
    mask = mask.expand(sizes)[:, :, :rows, :columns]
    if call.lengths is None:
        return mask
    padding = torch.arange(columns) >= call.lengths[index]
    return mask.masked_fill(padding, -math.inf if is_floating(mask) else 0)


def gradients(call: Call, answer: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Gradients of a fixed random mixture of everything in the answer."""
    generator = torch.Generator().manual_seed(1)
    total = torch.stack(
        [
            (part * torch.randn(part.shape, generator=generator, dtype=torch.float64)).sum()
            for part in answer
        ]
    ).sum()
    grads = torch.autograd.grad(
        total, list(call.leaves.values()), retain_graph=True, materialize_grads=True
    )
    return dict(zip(call.leaves, grads, strict=True))


def assert_answers(call: Call, got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
    """Output, weights and every gradient agree."""
    tolerance = {"roundings": call.roundings, "dtype": call.exactness}
    for name, mine, defined in zip(Answer._fields, got, want, strict=False):
        assert_same(mine, defined, **tolerance, name=name)
    expected = gradients(call, want)
    for name, gradient in gradients(call, got).items():
        assert_same(gradient, expected[name], **tolerance, name=f"gradient of {name}")


@pytest.mark.parametrize("position_kind", POSITIONS)
@settings(max_examples=60)
@given(data=st.data())
def test_the_layer_is_its_definition(position_kind: str, data: st.DataObject) -> None:
    call = data.draw(calls(position_kind))
    definition = by_definition(call)
    assert_answers(call, by_layer(call, need_weights=True), definition)
    assert_answers(call, by_layer(call, need_weights=False), definition[:1])


def test_a_wrong_number_anywhere_is_noticed() -> None:
    call = small_call()
    right = by_definition(call)
    for index, name in enumerate(Answer._fields):
        wrong = list(right)
        wrong[index] = right[index] + 1e-9
        with pytest.raises(AssertionError, match=f"^{name}: largest difference 1e-09"):
            assert_answers(call, tuple(wrong), right)


@pytest.mark.parametrize("name", ["x", "context", "mask", "gates", "Wk.weight", "sinks.values"])
def test_a_wrong_gradient_of_anything_is_noticed(name: str) -> None:
    call = small_call()
    right = by_definition(call)
    leaf = call.leaves[name]
    shifted = right.output + (leaf - leaf.detach()).sum()  # the same numbers, another gradient
    with pytest.raises(AssertionError, match=f"^gradient of {name}: largest difference"):
        assert_answers(call, (shifted,), right[:1])


def small_call() -> Call:
    """A call with everything in it that carries a gradient."""
    layer = MultiHeadAttention(6, 2, d_context=5, sinks=True, dtype=torch.float64)
    randomise(layer, 0)
    shapes = {"x": (1, 3, 6), "context": (1, 4, 5), "mask": (3, 4), "gates": (2,)}
    tensors = {
        name: torch.randn(shape, dtype=torch.float64).requires_grad_()
        for name, shape in shapes.items()
    }
    return Call(layer=layer, lengths=None, **tensors)


@settings(max_examples=20)
@given(data=st.data())
def test_the_heads_contributions_add_up_to_the_output_without_its_bias(data: st.DataObject) -> None:
    call = data.draw(calls("no positions"))
    bias = call.layer.Wo.bias
    steps = one_sequence(call, 0, call.x.shape[1])
    total = torch.stack(steps.contributions).sum(0)
    output = steps.output if bias is None else steps.output - bias
    assert_same(total, output, roundings=call.roundings)
    tokens = steps.concat @ call.layer.Wo.weight.T
    assert_same(tokens, output, roundings=call.roundings)


@settings(max_examples=20)
@given(data=st.data())
def test_a_gate_of_zero_removes_the_heads_contribution(data: st.DataObject) -> None:
    call = data.draw(calls("no positions"))
    layer, x, context = call.layer, call.x[:1], None if call.context is None else call.context[:1]
    head = data.draw(st.integers(0, layer.num_heads - 1))
    gates = torch.ones(layer.num_heads, dtype=torch.float64)
    gates[head] = 0
    steps = layer_by_definition(layer, x[0], None if context is None else context[0])
    silenced = layer(x, context, gates=gates)[0]
    expected = steps.output - steps.contributions[head]
    assert_same(silenced, expected, roundings=call.roundings)


def test_before_wo_each_head_owns_a_slice_and_after_it_none_does() -> None:
    layer = MultiHeadAttention(6, 2, d_value=5, dtype=torch.float64)
    randomise(layer, 0)
    x = torch.randn(3, 6, dtype=torch.float64)
    before = layer_by_definition(layer, x)
    with torch.no_grad():
        layer.heads[1].Wv.mul_(2)
        layer.heads[1].bv.mul_(2)
    after = layer_by_definition(layer, x)
    assert torch.equal(after.concat[:, :5], before.concat[:, :5])
    assert_same(after.concat[:, 5:], 2 * before.concat[:, 5:], roundings=6)
    assert (after.output != before.output).all()


CAT_SLEEPS = torch.tensor([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 1.0]], dtype=torch.float64)
"""Two tokens: "Cat" uses columns 1-2, "sleeps" columns 3-4."""


def cat_sleeps_layer() -> MultiHeadAttention:
    """Head 1 picks columns 1-2, head 2 columns 3-4; Wo leaves the concat as it is."""
    layer = MultiHeadAttention(4, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        for projection in (layer.Wq, layer.Wk, layer.Wv, layer.Wo):
            projection.weight.copy_(torch.eye(4))
    return layer


def printed(tensor: Tensor) -> list[Any]:
    """The numbers to the two digits that are printed."""
    rounded: list[Any] = tensor.detach().round(decimals=2).tolist()
    return rounded


def test_cat_sleeps_step_by_step_from_the_definition() -> None:
    layer = cat_sleeps_layer()
    assert layer.d_key == 2
    for head, columns in zip(layer.heads, (slice(0, 2), slice(2, 4)), strict=True):
        assert torch.equal(CAT_SLEEPS @ head.Wq, CAT_SLEEPS[:, columns])
    steps = layer_by_definition(layer, CAT_SLEEPS)
    first, second = steps.heads
    assert first.scores.tolist() == [[5, 0], [0, 0]]
    assert torch.equal(first.scaled, first.scores * (1 / math.sqrt(2)))
    assert printed(first.weights) == [[0.97, 0.03], [0.5, 0.5]]
    assert printed(first.mixed) == [[0.97, 1.94], [0.5, 1.0]]
    assert torch.equal(second.weights, first.weights.flip(0, 1))  # the mirror image
    assert printed(second.mixed) == [[1.0, 0.5], [1.94, 0.97]]
    assert printed(steps.concat) == [[0.97, 1.94, 1.0, 0.5], [0.5, 1.0, 1.94, 0.97]]
    assert torch.equal(steps.output, steps.concat)


def test_cat_sleeps_through_the_layer() -> None:
    layer = cat_sleeps_layer()
    output, weights = layer(CAT_SLEEPS[None], need_weights=True)
    assert printed(weights[0]) == [[[0.97, 0.03], [0.5, 0.5]], [[0.5, 0.5], [0.03, 0.97]]]
    assert printed(output[0]) == [[0.97, 1.94, 1.0, 0.5], [0.5, 1.0, 1.94, 0.97]]
    assert printed(layer(CAT_SLEEPS[None])[0]) == printed(output[0])


def test_cat_sleeps_is_mixed_by_wo() -> None:
    layer, mixing = cat_sleeps_layer(), torch.randn(4, 4, dtype=torch.float64)
    concat = layer(CAT_SLEEPS[None])
    with torch.no_grad():
        layer.Wo.weight.copy_(mixing.T)
    assert_same(layer(CAT_SLEEPS[None]), concat @ mixing, roundings=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_definition_computes_in_the_dtype_it_is_given(dtype: torch.dtype) -> None:
    layer = MultiHeadAttention(6, 2, is_causal=True, position=Alibi(), sinks=True, dtype=dtype)
    steps = layer_by_definition(layer, torch.randn(3, 6, dtype=dtype))
    assert steps.output.dtype == dtype
    assert {tensor.dtype for tensor in steps.heads[1]} == {dtype}
