"""Weights in from the textbook's class and torch's own, and back: the output stays the same."""

from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from headwise import Alibi, MultiHeadAttention, Rotary
from headwise.attention.convert import from_textbook, from_torch, to_torch
from headwise.errors import OptionError

from . import textbook
from .tolerance import assert_same

Module = TypeVar("Module", bound=nn.Module)

BATCH, POSITIONS, KEYS = 2, 5, 7
D_MODEL, NUM_HEADS, D_CONTEXT = 33, 3, 13
ROUNDINGS = 4 * D_MODEL
"""Sums over at most `D_MODEL` numbers: to project, to score, to mix, to project again."""


def randomised(module: Module) -> Module:
    """The module in float64 with every parameter random, biases too."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=D_MODEL**-0.5)
    return module.double()


def some_x() -> Tensor:
    return torch.randn(BATCH, POSITIONS, D_MODEL, dtype=torch.float64)


def zeros_and_ones(*shape: int) -> Tensor:
    """A textbook mask, 0 blocks; every position sees itself."""
    mask = torch.randint(2, (*shape, POSITIONS, POSITIONS))
    return mask.masked_fill(torch.eye(POSITIONS, dtype=torch.bool), 1)


class Underscored(nn.Module):
    """A textbook class with other spellings and free sizes, without `num_heads`."""

    def __init__(self) -> None:
        super().__init__()
        self.W_q = nn.Linear(D_MODEL, NUM_HEADS * 5, bias=False)
        self.w_k = nn.Linear(D_MODEL, NUM_HEADS * 5)
        self.wv = nn.Linear(D_MODEL, NUM_HEADS * 7, bias=False)
        self.W_O = nn.Linear(NUM_HEADS * 7, D_MODEL)
        self.dropout = nn.Dropout(0.5)


@pytest.mark.parametrize("mask_axes", [None, (), (BATCH, 1), (BATCH, NUM_HEADS)])
def test_a_textbook_state_dict_loads_and_gives_its_output(mask_axes: tuple[int, ...]) -> None:
    theirs = randomised(textbook.MultiHeadAttention(D_MODEL, NUM_HEADS))
    ours = MultiHeadAttention(D_MODEL, NUM_HEADS).double()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x, mask = some_x(), None if mask_axes is None else zeros_and_ones(*mask_axes)
    assert_same(ours(x, mask=mask), theirs(x, mask), roundings=ROUNDINGS)


@pytest.mark.parametrize("mask_axes", [None, (), (BATCH, 1), (BATCH, NUM_HEADS)])
def test_a_layers_state_dict_loads_into_the_textbook(mask_axes: tuple[int, ...]) -> None:
    ours = randomised(MultiHeadAttention(D_MODEL, NUM_HEADS))
    theirs = textbook.MultiHeadAttention(D_MODEL, NUM_HEADS).double()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x, mask = some_x(), None if mask_axes is None else zeros_and_ones(*mask_axes)
    assert_same(theirs(x, mask), ours(x, mask=mask), roundings=ROUNDINGS)


def test_the_textbook_trains_as_the_layer_does() -> None:
    theirs = randomised(textbook.MultiHeadAttention(D_MODEL, NUM_HEADS))
    ours = from_textbook(theirs)
    x, mask, seen_from = some_x(), zeros_and_ones(), some_x()
    (theirs(x, mask) * seen_from).sum().backward()
    (ours(x, mask=mask) * seen_from).sum().backward()
    expected = dict(theirs.named_parameters())
    assert len(expected) == 8
    for name, parameter in ours.named_parameters():
        assert_same(
            parameter.grad,
            expected[name].grad,
            roundings=ROUNDINGS + BATCH * POSITIONS * NUM_HEADS,
            name=name,
        )


@pytest.mark.parametrize("is_training", [True, False])
def test_a_textbook_class_becomes_a_layer(is_training: bool) -> None:
    theirs = randomised(textbook.MultiHeadAttention(D_MODEL, NUM_HEADS)).train(is_training)
    ours = from_textbook(theirs)
    assert (ours.d_model, ours.num_heads, ours.d_key) == (D_MODEL, NUM_HEADS, 11)
    assert ours.training is is_training
    x = some_x()
    assert_same(ours(x), theirs(x), roundings=ROUNDINGS)


def test_converted_layer_has_its_own_weights() -> None:
    theirs = randomised(textbook.MultiHeadAttention(D_MODEL, NUM_HEADS))
    ours, weight = from_textbook(theirs), theirs.Wq.weight.clone()
    with torch.no_grad():
        ours.Wq.weight.zero_()
    assert torch.equal(theirs.Wq.weight, weight)


def test_from_textbook_accepts_other_spellings_biases_and_sizes() -> None:
    theirs = randomised(Underscored())
    ours = from_textbook(theirs, num_heads=NUM_HEADS)
    assert (ours.d_key, ours.d_value) == (5, 7)
    names = {name for name, _ in ours.named_parameters()}
    assert names == {"Wq.weight", "Wk.weight", "Wk.bias", "Wv.weight", "Wo.weight", "Wo.bias"}
    for mine, other in (("Wq", "W_q"), ("Wk", "w_k"), ("Wv", "wv"), ("Wo", "W_O")):
        assert torch.equal(getattr(ours, mine).weight, getattr(theirs, other).weight), mine
    assert torch.equal(ours.Wk.bias, theirs.w_k.bias)


def test_a_given_number_of_heads_wins() -> None:
    theirs = randomised(textbook.MultiHeadAttention(D_MODEL, NUM_HEADS))
    assert from_textbook(theirs, num_heads=11).d_key == 3


def test_from_textbook_copies_dropout_and_frozen_parameters() -> None:
    theirs = randomised(Underscored())
    theirs.W_q.requires_grad_(False)
    theirs.w_k.bias.requires_grad_(False)
    theirs.idle = nn.Dropout(0.0)
    ours = from_textbook(theirs, num_heads=NUM_HEADS)
    assert ours.dropout == 0.5
    frozen = {name for name, tensor in ours.named_parameters() if not tensor.requires_grad}
    assert frozen == {"Wq.weight", "Wk.bias"}
    assert from_textbook(textbook.MultiHeadAttention(D_MODEL, NUM_HEADS)).dropout == 0


def test_from_textbook_names_parts_it_cannot_convert() -> None:
    theirs = Underscored()
    theirs.norm = nn.LayerNorm(D_MODEL)
    message = r"Underscored.*norm\.weight, norm\.bias"
    with pytest.raises(OptionError, match=message):
        from_textbook(theirs, num_heads=NUM_HEADS)
    theirs = Underscored()
    theirs.temperature = nn.Parameter(torch.ones(()))
    with pytest.raises(OptionError, match="temperature"):
        from_textbook(theirs, num_heads=NUM_HEADS)
    theirs = Underscored()
    theirs.after = nn.Dropout(0.25)
    message = "dropouts dropout, after"
    with pytest.raises(OptionError, match=message):
        from_textbook(theirs, num_heads=NUM_HEADS)


def test_class_without_the_four_projections_raises() -> None:
    theirs = Underscored()
    del theirs.wv, theirs.W_O
    message = "Underscored.*Wv, Wo.*W_q, w_k, dropout"
    with pytest.raises(OptionError, match=message):
        from_textbook(theirs, num_heads=NUM_HEADS)
    with pytest.raises(OptionError, match=r"ReLU.*Wq, Wk, Wv, Wo.*none"):
        from_textbook(nn.ReLU())


def test_class_without_num_heads_raises() -> None:
    with pytest.raises(OptionError, match=r"Underscored.*num_heads"):
        from_textbook(Underscored())


@pytest.mark.parametrize("num_heads", [0, 7])
def test_heads_that_do_not_divide_the_textbooks_width_raise(num_heads: int) -> None:
    with pytest.raises(OptionError, match=f"{num_heads} heads.* 33 .*Wq"):
        from_textbook(textbook.MultiHeadAttention(D_MODEL, NUM_HEADS), num_heads=num_heads)


def test_keys_that_are_not_a_whole_number_of_heads_raise() -> None:
    theirs = textbook.MultiHeadAttention(D_MODEL, NUM_HEADS)
    theirs.Wk = nn.Linear(D_MODEL, 7)
    with pytest.raises(OptionError, match=r"Wk.* 7 .*Wv 33"):
        from_textbook(theirs, num_heads=NUM_HEADS)


TORCH_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"bias": False},
    "another context": {"kdim": D_CONTEXT, "vdim": D_CONTEXT},
    "another context without biases": {"kdim": D_CONTEXT, "vdim": D_CONTEXT, "bias": False},
}


@pytest.mark.parametrize("options", TORCH_OPTIONS.values(), ids=TORCH_OPTIONS.keys())
@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_attention_becomes_a_layer(options: dict[str, Any], batch_first: bool) -> None:
    theirs = nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=batch_first, **options)
    theirs = randomised(theirs).eval()
    ours = from_torch(theirs)
    assert not ours.training
    x = some_x()
    context = torch.randn(BATCH, KEYS, ours.d_context, dtype=torch.float64)
    assert_gives_torchs_output(ours, theirs, x, context)


@pytest.mark.parametrize("options", TORCH_OPTIONS.values(), ids=TORCH_OPTIONS.keys())
def test_a_layer_becomes_torchs_attention_and_comes_back(options: dict[str, Any]) -> None:
    context_width = {"d_context": D_CONTEXT} if "kdim" in options else {}
    ours = MultiHeadAttention(
        D_MODEL, NUM_HEADS, bias=options.get("bias", True), dropout=0.25, **context_width
    )
    ours = randomised(ours).eval()
    theirs = to_torch(ours)
    assert (theirs.batch_first, theirs.dropout, theirs.training) == (True, 0.25, False)
    context = torch.randn(BATCH, KEYS, ours.d_context, dtype=torch.float64)
    assert_gives_torchs_output(ours, theirs, some_x(), context)
    back = from_torch(theirs)
    assert back.dropout == 0.25
    assert back.state_dict().keys() == ours.state_dict().keys()
    for name, tensor in back.state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name]), name


def assert_gives_torchs_output(
    ours: MultiHeadAttention, theirs: nn.MultiheadAttention, x: Tensor, context: Tensor
) -> None:
    """Output and weights of every head agree."""
    tensors = [x, context, context]
    if not theirs.batch_first:
        tensors = [tensor.transpose(0, 1) for tensor in tensors]
    output, weights = theirs(*tensors, average_attn_weights=False)
    output = output if theirs.batch_first else output.transpose(0, 1)
    my_output, my_weights = ours(x, context, need_weights=True)
    assert_same(my_output, output, roundings=ROUNDINGS)
    assert_same(my_weights, weights, roundings=ROUNDINGS)


def test_comparison_with_torch_notices_another_output() -> None:
    theirs = randomised(nn.MultiheadAttention(D_MODEL, NUM_HEADS, batch_first=True))
    ours = from_torch(theirs)
    with torch.no_grad():
        ours.Wk.weight[0, 0] += 0.1
    context = torch.randn(BATCH, KEYS, D_MODEL, dtype=torch.float64)
    with pytest.raises(AssertionError, match="largest difference"):
        assert_gives_torchs_output(ours, theirs, some_x(), context)


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_from_torch_rejects_extra_keys(option: str) -> None:
    theirs = nn.MultiheadAttention(D_MODEL, NUM_HEADS, **{option: True})
    with pytest.raises(OptionError, match=r"add_bias_kv.*add_zero_attn"):
        from_torch(theirs)


def test_from_torch_rejects_two_contexts() -> None:
    theirs = nn.MultiheadAttention(D_MODEL, NUM_HEADS, kdim=5, vdim=7)
    with pytest.raises(OptionError, match=r"kdim 5.*vdim 7"):
        from_torch(theirs)


UNLIKE_TORCH: dict[str, dict[str, Any]] = {
    "grouped KV heads": {"num_kv_heads": 1},
    "free head sizes": {"d_key": 4},
    "biases per projection": {"bias": ("Wq", "Wo")},
    "window": {"window": 3},
    "positions": {"position": Alibi()},
    "softcap": {"softcap": 2.0},
    "query and key norms": {"qk_norm": True},
    "sinks": {"sinks": True},
}


@pytest.mark.parametrize("obstacle", UNLIKE_TORCH)
def test_to_torch_names_options_that_torch_lacks(obstacle: str) -> None:
    layer = MultiHeadAttention(D_MODEL, NUM_HEADS, **UNLIKE_TORCH[obstacle])
    with pytest.raises(OptionError, match=f" {obstacle}$"):
        to_torch(layer)


def test_to_torch_lists_every_obstacle() -> None:
    layer = MultiHeadAttention(
        D_MODEL, NUM_HEADS, d_value=5, d_key=6, position=Rotary(), sinks=True, softcap=1.0
    )
    message = "free head sizes, positions, softcap, sinks$"
    with pytest.raises(OptionError, match=message):
        to_torch(layer)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("Wo", (D_MODEL, 5), f"Wo.*{D_MODEL}.* 5.* {D_MODEL} to {D_MODEL}"),
        ("Wo", (7, D_MODEL), f"Wo.* 7 .*{D_MODEL}.* {D_MODEL} to {D_MODEL}"),
        ("Wv", (7, D_MODEL), f"Wv.* 7 .*{D_MODEL}.* {D_MODEL} to {D_MODEL}"),
    ],
)
def test_textbook_with_projections_that_do_not_fit_raises(
    name: str, sizes: tuple[int, int], message: str
) -> None:
    theirs = textbook.MultiHeadAttention(D_MODEL, NUM_HEADS)
    setattr(theirs, name, nn.Linear(*sizes))
    with pytest.raises(OptionError, match=message):
        from_textbook(theirs)
