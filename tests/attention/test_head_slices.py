"""A head's own matrices are views on the layer's: the conceptual layer is the practical one."""

import pytest
import torch
from torch import Tensor

from headwise import MultiHeadAttention
from headwise.attention.layer import HeadSlice
from headwise.errors import ShapeError

NUM_HEADS, GROUP = 6, 3
WEIGHTS = ("Wq", "Wk", "Wv", "Wo")
BIASES = ("bq", "bk", "bv")


def grouped_layer() -> MultiHeadAttention:
    """Six heads over two KV heads; every axis has a different size."""
    layer = MultiHeadAttention(
        11, NUM_HEADS, num_kv_heads=2, d_key=5, d_value=7, d_context=13, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def same_memory(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors start in the same storage; their offsets may differ."""
    return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


def test_a_heads_matrices_have_its_own_sizes() -> None:
    head = grouped_layer().heads[4]
    shapes = [tuple(getattr(head, name).shape) for name in (*WEIGHTS, *BIASES)]
    assert shapes == [(11, 5), (13, 5), (13, 7), (7, 11), (5,), (5,), (7,)]


def test_stacking_the_heads_gives_the_large_matrices() -> None:
    layer = grouped_layer()
    heads = list(layer.heads)
    leaders = heads[::GROUP]  # one head of every group: the others share its keys and values
    assert torch.equal(torch.cat([head.Wq for head in heads], 1), layer.Wq.weight.T)
    assert torch.equal(torch.cat([head.Wk for head in leaders], 1), layer.Wk.weight.T)
    assert torch.equal(torch.cat([head.Wv for head in leaders], 1), layer.Wv.weight.T)
    assert torch.equal(torch.cat([head.Wo for head in heads], 0), layer.Wo.weight.T)
    assert torch.equal(torch.cat([head.bq for head in heads]), layer.Wq.bias)
    assert torch.equal(torch.cat([head.bk for head in leaders]), layer.Wk.bias)
    assert torch.equal(torch.cat([head.bv for head in leaders]), layer.Wv.bias)


def test_heads_of_a_group_share_one_kv_head() -> None:
    heads = grouped_layer().heads
    assert [head.kv_head for head in heads] == [0, 0, 0, 1, 1, 1]
    for name in ("Wk", "Wv", "bk", "bv"):
        assert getattr(heads[3], name).data_ptr() == getattr(heads[5], name).data_ptr()
        assert getattr(heads[2], name).data_ptr() != getattr(heads[3], name).data_ptr()


@pytest.mark.parametrize("name", [*WEIGHTS, *BIASES])
def test_a_slice_lives_in_the_layers_memory(name: str) -> None:
    layer = grouped_layer()
    owner = layer.get_submodule(f"W{name[1]}")
    parameter = owner.bias if name in BIASES else owner.weight
    assert same_memory(getattr(layer.heads[4], name), parameter)


def test_same_memory_notices_a_copy() -> None:
    tensor = torch.zeros(3)
    assert same_memory(tensor[:1], tensor[2:])
    assert not same_memory(tensor, tensor.clone())


@pytest.mark.parametrize("name", [*WEIGHTS, *BIASES])
def test_writing_into_a_slice_changes_the_layer_there_and_nowhere_else(name: str) -> None:
    layer = grouped_layer()
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    with torch.no_grad():
        getattr(layer.heads[4], name).fill_(0.5)
    for key, value in layer.state_dict().items():
        changed = value != before[key]
        kind = "bias" if name in BIASES else "weight"
        expected = torch.zeros_like(changed)
        if key == f"W{name[1]}.{kind}":
            expected = expected_rows(name, expected)
        assert torch.equal(changed, expected), key


def expected_rows(name: str, nothing: Tensor) -> Tensor:
    """True at the entries of head 4, or of KV head 1 that serves it."""
    rows = nothing.T if name == "Wo" else nothing
    width = 7 if name in ("Wv", "bv", "Wo") else 5
    index = 4 if name in ("Wq", "bq", "Wo") else 1
    rows[index * width : (index + 1) * width] = True
    return rows.T if name == "Wo" else rows


def test_zeroing_a_heads_wo_silences_it() -> None:
    layer, x, context = grouped_layer(), torch.randn(2, 3, 11), torch.randn(2, 5, 13)
    gates = torch.ones(NUM_HEADS, dtype=torch.float64)
    gates[2] = 0
    silenced = layer(x.double(), context.double(), gates=gates)
    with torch.no_grad():
        layer.heads[2].Wo.zero_()
    assert torch.equal(layer(x.double(), context.double()), silenced)


def test_gradients_flow_through_a_slice_into_the_parameter() -> None:
    layer = grouped_layer()
    layer.heads[4].Wo.sum().backward()
    expected = torch.zeros_like(layer.Wo.weight)
    expected[:, 4 * 7 : 5 * 7] = 1
    assert torch.equal(layer.Wo.weight.grad, expected)


def test_heads_of_a_layer_without_biases_have_none() -> None:
    head = MultiHeadAttention(6, 2, bias=("Wk", "Wo")).heads[1]
    assert head.bq is None and head.bv is None
    assert head.bk is not None


def test_heads_are_a_sequence() -> None:
    heads = grouped_layer().heads
    assert len(heads) == NUM_HEADS
    assert_same_head(heads[-1], heads[5])
    assert_same_head(heads[-6], heads[0])
    for head, number in zip(heads[1:5:2], (1, 3), strict=True):
        assert_same_head(head, heads[number])
    for head, number in zip(reversed(heads), range(5, -1, -1), strict=True):
        assert_same_head(head, heads[number])
    assert heads[6:] == []


def assert_same_head(got: HeadSlice, want: HeadSlice) -> None:
    """Both are views on the same entries."""
    assert got.kv_head == want.kv_head
    for name in (*WEIGHTS, *BIASES):
        assert getattr(got, name).data_ptr() == getattr(want, name).data_ptr(), name


def test_assert_same_head_notices_another_head() -> None:
    heads = grouped_layer().heads
    with pytest.raises(AssertionError, match="Wq"):
        assert_same_head(heads[0], heads[1])


@pytest.mark.parametrize("head", [6, -7])
def test_head_outside_the_layer_raises(head: int) -> None:
    heads = grouped_layer().heads
    message = rf"head {head} is not in this layer: it has heads 0\.\.5"
    with pytest.raises(IndexError, match=message):
        heads[head]
    with pytest.raises(ShapeError, match=message):
        heads[head]
