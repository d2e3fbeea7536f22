"""The drop-in against torch's own layer: results, gradients, empty rows and refusals."""

import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise import nn as ours
from headwise.attention.prepare import CALL_PAIRS
from headwise.attention.rules import Rules

from .attention.tolerance import assert_same
from .nn_cases import (
    EMPTYING,
    LAYOUTS,
    LONG,
    MASKS,
    OPTIONS,
    TOKENS,
    WEIGHTS,
    Call,
    Case,
    Inputs,
    Layout,
    Tokens,
    all_of,
    assert_all_same,
    drop_in,
    inputs_of,
    minus_infinity,
    padding,
    results,
    torch_layer,
    with_gradients,
)


def assert_like_torch(case: Case, call: dict[str, Any]) -> None:
    """In training with all gradients, and in eval without, where torch has a fast path."""
    theirs, inputs = torch_layer(case), inputs_of(case)
    mine = drop_in(theirs)
    want = all_of(theirs, inputs, call)
    assert_all_same(all_of(mine, inputs, call), want, case)
    with torch.no_grad():
        want = results(theirs.eval(), inputs, call)
        assert_all_same(results(mine.eval(), inputs, call), want, case)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_and_gradients_are_torchs(
    layout: Layout, tokens: Tokens, mask: str, weights: str
) -> None:
    case = Case(layout, tokens)
    assert_like_torch(case, MASKS[mask](case) | WEIGHTS[weights])


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", MASKS)
def test_results_and_gradients_are_torchs_in_float32(mask: str, weights: str) -> None:
    case = Case(dtype=torch.float32)
    assert_like_torch(case, MASKS[mask](case) | WEIGHTS[weights])


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", OPTIONS)
def test_results_and_gradients_are_torchs_with_every_option(
    options: str, mask: str, weights: str
) -> None:
    case = Case("positions first", "cross", options=OPTIONS[options])
    assert_like_torch(case, MASKS[mask](case) | WEIGHTS[weights])


@pytest.mark.parametrize("weights", ["no weights", "mean weights"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("tokens", ["self", "cross"])
def test_long_results_and_gradients_are_torchs(tokens: Tokens, mask: str, weights: str) -> None:
    case = Case("batch first", tokens, **LONG)
    assert case.heads * case.num_queries * case.num_keys > CALL_PAIRS
    assert_like_torch(case, MASKS[mask](case) | WEIGHTS[weights])


def test_the_comparison_with_torch_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    case, call = Case(), {"need_weights": False}
    assert_like_torch(case, call)
    join_heads = ours._join_heads
    monkeypatch.setattr(ours, "_join_heads", lambda *args: join_heads(*args) * (1 + 1e-9))
    with pytest.raises(AssertionError, match="output: largest difference"):
        assert_like_torch(case, call)


@pytest.mark.parametrize("size", [{}, LONG], ids=["short", "long"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_a_learned_mask_gets_torchs_gradient(name: str, weights: str, size: dict[str, int]) -> None:
    case = Case(**size)
    theirs, inputs = torch_layer(case), inputs_of(case)
    rows = case.num_queries if name == "attn_mask" else case.batch
    mask = torch.zeros(rows, case.num_keys, dtype=case.dtype, requires_grad=True)
    call = {name: mask} | WEIGHTS[weights]
    want, got = (
        with_gradients(layer, {name: mask}, inputs, call) for layer in (theirs, drop_in(theirs))
    )
    assert_all_same(got, want, case)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    "mask", ["no mask", "bool padding", "causal hint", "causal hint and padding"]
)
@pytest.mark.parametrize("size", [{}, LONG], ids=["short", "long"])
def test_dropout_draws_torchs_random_numbers(size: dict[str, int], mask: str, weights: str) -> None:
    case = Case(**size)
    theirs, inputs = torch_layer(case, dropout=0.3), inputs_of(case)
    call = MASKS[mask](case) | WEIGHTS[weights]
    answers = []
    for layer in (theirs, drop_in(theirs)):
        torch.manual_seed(5)
        answers.append(all_of(layer, inputs, call))
    assert_all_same(answers[1], answers[0], case)
    torch.manual_seed(6)
    assert not torch.equal(results(theirs, inputs, call)["output"], answers[0]["output"])


def test_nested_tensors_give_torchs_result() -> None:
    case = Case()
    theirs = torch_layer(case).eval().requires_grad_(False)
    mine = drop_in(theirs)
    d_model = case.widths[0]
    nested = torch.nested.nested_tensor(
        [torch.randn(length, d_model, dtype=case.dtype) for length in (5, 2, 7)]
    )
    call = {"need_weights": False}
    want, got = (results(layer, (nested,) * 3, call)["output"] for layer in (theirs, mine))
    assert_same(got.to_padded_tensor(0.0), want.to_padded_tensor(0.0), roundings=case.roundings)


def by_definition(
    layer: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, **call: Any
) -> tuple[Tensor, Tensor | None]:
    """Torch's layer head by head, for batch-first input; an empty row has weights of zero."""
    hidden = torch.zeros(len(query), layer.num_heads, query.shape[1], key.shape[1]).bool()
    for mask in four_axes(layer, call):
        hidden |= mask if mask.dtype == torch.bool else mask == -math.inf
    weights, mixed = [], []
    for head in range(layer.num_heads):
        rows = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
        matrices, biases = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
        queries, keys, values = (
            tokens @ matrix[rows].mT + bias[rows]
            for tokens, matrix, bias in zip((query, key, value), matrices, biases, strict=True)
        )
        powers = (queries @ keys.mT / math.sqrt(layer.head_dim)).exp() * ~hidden[:, head]
        total = powers.sum(-1, keepdim=True)
        weights.append(powers / torch.where(total == 0, 1, total))
        mixed.append(weights[-1] @ values)
    output = torch.cat(mixed, -1) @ layer.out_proj.weight.mT + layer.out_proj.bias
    if call.get("need_weights") is False:
        return output, None
    every = torch.stack(weights, 1)
    return output, every if call.get("average_attn_weights") is False else every.mean(1)


def four_axes(layer: nn.MultiheadAttention, call: Call) -> Iterator[Tensor]:
    """The masks of the call, each with axes for batch, heads, queries and keys."""
    if "key_padding_mask" in call:
        yield call["key_padding_mask"][:, None, None]
    mask = call.get("attn_mask")
    if mask is not None:
        yield mask if mask.dim() == 2 else mask.unflatten(0, (-1, layer.num_heads))


@pytest.mark.parametrize("mask", EMPTYING)
def test_the_definition_is_torchs_where_torch_gives_numbers(mask: str) -> None:
    case = Case()
    layer, inputs = torch_layer(case), inputs_of(case)
    call = EMPTYING[mask](case) | {"average_attn_weights": False}
    want, got = results(layer, inputs, call), results(partial(by_definition, layer), inputs, call)
    for name in want:
        is_number = ~want[name].isnan()
        assert is_number.any() and not is_number.all()
        assert_same(got[name][is_number], want[name][is_number], roundings=case.roundings)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [({}, torch.float64), ({}, torch.float32), (LONG, torch.float64)],
    ids=["short", "short float32", "long"],
)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", EMPTYING)
def test_a_query_that_sees_no_key_gets_zeros_and_finite_gradients(
    mask: str, weights: str, dtype: torch.dtype, size: dict[str, int]
) -> None:
    case = Case(dtype=dtype, **size)
    layer, inputs, call = (
        drop_in(torch_layer(case)),
        inputs_of(case),
        EMPTYING[mask](case) | WEIGHTS[weights],
    )
    parameters = dict(layer.named_parameters())
    want = with_gradients(partial(by_definition, layer), parameters, inputs, call)
    assert all(part.isfinite().all() for part in want.values())
    for is_training in (True, False):
        assert_all_same(all_of(layer.train(is_training), inputs, call), want, case)
    with torch.no_grad():
        got = results(layer, inputs, call)
    assert_all_same(got, {name: want[name] for name in got}, case)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_empty_rows_are_zeros_in_every_layout(layout: Layout, weights: str) -> None:
    case = Case(layout)
    theirs, inputs = torch_layer(case), inputs_of(case)
    call = EMPTYING["blocked query"](case)
    want = results(theirs, inputs, call | WEIGHTS["weights per head"])
    is_empty = want["output"].isnan()
    assert is_empty.any() and not is_empty.all()
    want["output"] = torch.where(is_empty, theirs.out_proj.bias, want["output"])
    want["weights"] = want["weights"].nan_to_num(0.0)
    if weights == "mean weights":
        want["weights"] = want["weights"].mean(-3)
    got = results(drop_in(theirs), inputs, call | WEIGHTS[weights])
    assert_all_same(got, {name: want[name] for name in got}, case)


def test_dropout_leaves_empty_rows_empty_and_draws_torchs_numbers_for_the_others() -> None:
    case = Case()
    theirs, inputs = torch_layer(case, dropout=0.3), inputs_of(case)
    call = EMPTYING["blocked query"](case) | {"average_attn_weights": False}
    weights = []
    for layer in (theirs, drop_in(theirs)):
        torch.manual_seed(5)
        weights.append(results(layer, inputs, call)["weights"])
    want, got = weights
    assert want[:, :, 3].isnan().all() and (want[:, :, :3] == 0).any()
    assert_same(got, want.nan_to_num(0.0), roundings=case.roundings)


# Errors of torch: keywords for the layer, and a call that spoils the inputs of a good one.
Spoiler = Callable[[Tensor, Tensor, Tensor], tuple[Inputs, Call]]
BAD: dict[str, Spoiler] = {
    "query with four axes": lambda q, k, v: ((q[None], k, v), {}),
    "query with one axis": lambda q, k, v: ((q[0, 0], k, v), {}),
    "key with two axes": lambda q, k, v: ((q, k[0], v), {}),
    "value with two axes": lambda q, k, v: ((q, k, v[0]), {}),
    "unbatched query, batched key": lambda q, k, v: ((q[0], k, v), {}),
    "narrow query": lambda q, k, v: ((q[..., 1:], k, v), {}),
    "narrow self": lambda q, k, v: ((q[..., 2:],) * 3, {}),
    "narrow key": lambda q, k, v: ((q, k[..., 1:], v), {}),
    "narrow key and value": lambda q, k, v: ((q, k[..., 1:], v[..., 1:]), {}),
    "fewer values than keys": lambda q, k, v: ((q, k, v[:, 1:]), {}),
    "fewer sequences of keys": lambda q, k, v: ((q, k[1:], v[1:]), {}),
    "query of another dtype": lambda q, k, v: ((q.float(), k, v), {}),
    "self of another dtype": lambda q, k, v: ((q.float(),) * 3, {}),
    "integer attn_mask": lambda q, k, v: ((q, k, v), {"attn_mask": pairs_of(q, k).int()}),
    "integer padding": lambda q, k, v: ((q, k, v), {"key_padding_mask": padding_of(k).int()}),
    "small attn_mask": lambda q, k, v: ((q, k, v), {"attn_mask": pairs_of(q, k)[1:]}),
    "attn_mask per sequence": lambda q, k, v: (
        (q, k, v),
        {"attn_mask": pairs_of(q, k).expand(len(q), -1, -1)},
    ),
    "attn_mask with four axes": lambda q, k, v: (
        (q, k, v),
        {"attn_mask": pairs_of(q, k).expand(3, 2, -1, -1)},
    ),
    "attn_mask of another dtype": lambda q, k, v: (
        (q, k, v),
        {"attn_mask": pairs_of(q, k).half()},
    ),
    "padding of one sequence": lambda q, k, v: ((q, k, v), {"key_padding_mask": padding_of(k)[:1]}),
    "padding of fewer keys": lambda q, k, v: (
        (q, k, v),
        {"key_padding_mask": padding_of(k)[:, 1:]},
    ),
    "padding with one axis": lambda q, k, v: ((q, k, v), {"key_padding_mask": padding_of(k)[0]}),
    "padding of another dtype": lambda q, k, v: (
        (q, k, v),
        {"key_padding_mask": padding_of(k).half()},
    ),
    "unbatched, padding with two axes": lambda q, k, v: (
        (q[0], k[0], v[0]),
        {"key_padding_mask": padding_of(k)[:1]},
    ),
    "unbatched, attn_mask of one head": lambda q, k, v: (
        (q[0], k[0], v[0]),
        {"attn_mask": pairs_of(q, k)[None]},
    ),
    "unbatched query, four-axis key": lambda q, k, v: ((q[0], k[None], v), {}),
}


def pairs_of(query: Tensor, key: Tensor) -> Tensor:
    return torch.zeros(query.shape[1], key.shape[1], dtype=torch.bool)


def padding_of(key: Tensor) -> Tensor:
    return torch.zeros(key.shape[:2], dtype=torch.bool)


def raised_error(layer: nn.MultiheadAttention, inputs: Inputs, call: Call) -> tuple[type, str]:
    """Class and message of the error that the layer raises."""
    with pytest.raises(Exception) as caught:
        layer(*inputs, **call)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("weights", ["no weights", "mean weights"])
@pytest.mark.parametrize("tokens", ["self", "cross", "own widths"])
@pytest.mark.parametrize("bad", BAD)
def test_bad_input_raises_torchs_own_error(bad: str, tokens: Tokens, weights: str) -> None:
    case = Case("batch first", tokens)
    theirs = torch_layer(case)
    inputs, call = BAD[bad](*inputs_of(case))
    call = call | WEIGHTS[weights]
    assert raised_error(drop_in(theirs), inputs, call) == raised_error(theirs, inputs, call)
    with torch.no_grad():
        theirs = theirs.eval()
        assert raised_error(drop_in(theirs), inputs, call) == raised_error(theirs, inputs, call)


@pytest.mark.parametrize("args", [(0, 2), (22, 0), (22, 3), (-2, 2)])
def test_bad_settings_raise_torchs_own_error(args: tuple[int, int]) -> None:
    with pytest.raises((ValueError, AssertionError)) as theirs:
        nn.MultiheadAttention(*args)
    with pytest.raises(theirs.type) as mine:
        ours.MultiheadAttention(*args)
    assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize("weights", ["no weights", "mean weights"])
def test_causal_hint_without_a_mask_raises_in_eval_too(weights: str) -> None:
    case = Case()
    theirs, inputs, call = (
        torch_layer(case),
        inputs_of(case),
        {"is_causal": True} | WEIGHTS[weights],
    )
    mine = drop_in(theirs)
    want = raised_error(theirs, inputs, call)
    assert want[0] is RuntimeError
    assert raised_error(mine, inputs, call) == want
    with torch.no_grad():
        theirs.eval()(*inputs, **call)  # every query sees every key
        assert raised_error(mine.eval(), inputs, call) == want


@pytest.mark.parametrize("weights", ["no weights", "mean weights"])
def test_masks_of_two_kinds_get_torchs_warning(weights: str) -> None:
    case = Case()
    theirs, inputs = torch_layer(case), inputs_of(case)
    call = EMPTYING["blocked sequence"](case) | MASKS["float pairs"](case) | WEIGHTS[weights]
    for layer in (theirs, drop_in(theirs)):
        with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
            layer(*inputs, **call)


def test_nested_tensors_raise_as_in_torch() -> None:
    case = Case()
    theirs = torch_layer(case)
    nested = torch.nested.nested_tensor([torch.randn(5, case.widths[0], dtype=case.dtype)])
    assert raised_error(drop_in(theirs), (nested,) * 3, {}) == raised_error(
        theirs, (nested,) * 3, {}
    )


def test_signatures_are_torchs() -> None:
    for name in ("__init__", "forward"):
        mine, theirs = (
            [
                (each.name, each.default, each.kind)
                for each in inspect.signature(getattr(layer, name)).parameters.values()
            ]
            for layer in (ours.MultiheadAttention, nn.MultiheadAttention)
        )
        assert mine == theirs


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("options", OPTIONS)
def test_state_dicts_load_both_ways(options: str, tokens: Tokens) -> None:
    case = Case(tokens=tokens, options=OPTIONS[options])
    theirs = torch_layer(case)
    mine = ours.MultiheadAttention(
        case.widths[0],
        case.heads,
        kdim=case.widths[1],
        vdim=case.widths[2],
        batch_first=True,
        dtype=case.dtype,
        **case.options,
    )
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict(), strict=True)
    back = torch_layer(case)
    back.load_state_dict(mine.state_dict(), strict=True)
    inputs = inputs_of(case)
    want = results(theirs, inputs, {})
    assert_all_same(results(mine, inputs, {}), want, case)
    assert_all_same(results(back, inputs, {}), want, case)


def test_parameters_start_from_torchs_random_numbers() -> None:
    starts = []
    for kind in (nn.MultiheadAttention, ours.MultiheadAttention):
        torch.manual_seed(3)
        layer = kind(22, 2, add_bias_kv=True, dtype=torch.float64, device="cpu")
        starts.append(dict(layer.named_parameters()))
    assert starts[0].keys() == starts[1].keys()
    for name in starts[0]:
        assert_same(starts[1][name], starts[0][name], roundings=0, name=name)


def test_the_meta_device_gives_shapes() -> None:
    layer = ours.MultiheadAttention(22, 2, device="meta")
    tokens = torch.empty(5, 3, 22, device="meta")
    mask = torch.empty(3, 5, dtype=torch.bool, device="meta")
    output, weights = layer(tokens, tokens, tokens, key_padding_mask=mask)
    assert output.device.type == "meta" and output.shape == tokens.shape
    assert weights.shape == (3, 5, 5)


def test_right_padding_is_read_as_lengths() -> None:
    case = Case(**LONG)
    for mask in (padding(case), minus_infinity(padding(case), case.dtype)):
        rules = ours._masks_as_rules(mask[:, None, None], None, False, case.dtype)
        assert rules.mask is None and rules.lengths is not None
        assert rules.lengths.tolist() == [76, 79, 1]


def test_a_mask_that_hides_nothing_is_dropped() -> None:
    nothing = torch.zeros(3, 1, 1, 79, dtype=torch.bool)
    rules = ours._masks_as_rules(nothing, None, False, torch.float64)
    assert rules.mask is None and rules.lengths is None


@pytest.mark.parametrize("kind", ["scattered padding", "float padding"])
def test_other_padding_stays_a_mask(kind: str) -> None:
    case = Case(**LONG)
    mask = MASKS[kind](case)["key_padding_mask"]
    rules = ours._masks_as_rules(mask[:, None, None], None, False, case.dtype)
    assert rules.lengths is None and rules.mask is not None
    blocked = mask if kind == "scattered padding" else mask == -math.inf
    assert torch.equal(rules.mask[:, 0, 0] == -math.inf, blocked)


@pytest.mark.parametrize("size", [{}, LONG], ids=["short", "long"])
@pytest.mark.parametrize("kind", ["another pattern", "a triangle with a bias", "one head's own"])
def test_with_padding_the_mask_overrides_the_causal_hint(kind: str, size: dict[str, int]) -> None:
    case = Case(**size)
    theirs, inputs = torch_layer(case), inputs_of(case)
    call = MASKS["causal hint and padding"](case) | {"need_weights": False}
    mask = call["attn_mask"]
    if kind == "another pattern":
        mask[-1, 1], mask[0, -1] = -math.inf, 0
    elif kind == "a triangle with a bias":
        mask[-1, 0] = 1.5
    else:
        mask = mask.repeat(case.batch * theirs.num_heads, 1, 1)
        mask[1, -1, 1] = -math.inf
    call["attn_mask"] = mask
    want, got = (all_of(layer, inputs, call) for layer in (theirs, drop_in(theirs)))
    assert_all_same(got, want, case)


def test_a_causal_hint_makes_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(**LONG)
    seen = []
    attend = ours.attend

    def watch(*heads: Tensor, rules: Rules) -> Tensor:
        seen.append(rules)
        return attend(*heads, rules=rules)

    monkeypatch.setattr(ours, "attend", watch)
    call = MASKS["causal hint and padding"](case) | {"need_weights": False}
    drop_in(torch_layer(case))(*inputs_of(case), **call)
    (rules,) = seen
    assert rules.is_causal and rules.offset == 0
    assert rules.mask is None and rules.lengths is not None
