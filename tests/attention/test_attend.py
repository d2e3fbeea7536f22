"""Attention against its definition and its laws, and what it says when it cannot be computed."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings, strategies as st
from torch import Tensor

from headwise.attention import attend as attend_module
from headwise.attention.attend import attend, attend_in_steps, attend_with_lse, explain_path
from headwise.attention.rules import Rules
from headwise.errors import OptionError, PathError

from .problems import (
    STRUCTURE,
    TWISTS,
    Answer,
    Problem,
    assert_answers,
    by_definition,
    dense_bias,
    gradients,
    problems,
    upstream,
)
from .tolerance import assert_same, differences, rounding

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
SQUARE = {"queries": [2, 3, 5, 7], "keys": [2, 3, 5, 7], "values": [2, 3, 5, 7]}


@given(problem=problems())
def test_attend_equals_the_definition(problem: Problem) -> None:
    output = attend(*problem.tensors, rules=problem.rules)
    assert_answers(problem, Answer(output))


@given(problem=problems())
def test_attend_with_lse_equals_the_definition(problem: Problem) -> None:
    output, lse = attend_with_lse(*problem.tensors, rules=problem.rules)
    assert_answers(problem, Answer(output, lse))


@given(problem=problems())
def test_attend_in_steps_equals_the_definition(problem: Problem) -> None:
    steps = attend_in_steps(*problem.tensors, rules=problem.rules)
    assert_answers(problem, Answer(steps.mixed, steps.lse, steps.weights))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attend_without_rules_equals_the_definition(is_causal: bool) -> None:
    tensors = [torch.randn(2, 3, 11, 7, dtype=torch.float64).requires_grad_() for _ in range(3)]
    problem = Problem(*tensors, Rules(is_causal=is_causal))
    assert_answers(problem, Answer(attend(*tensors, is_causal=is_causal)))


@pytest.mark.parametrize("apart", [["mask"], ["is_causal"], ["mask", "is_causal"]], ids=str)
@settings(max_examples=25)
@given(problem=problems(always=["mask", "is_causal"]))
def test_mask_and_is_causal_are_shorthands_for_rules(apart: list[str], problem: Problem) -> None:
    shorthands = {name: getattr(problem.rules, name) for name in apart}
    cleared = {"mask": None, "is_causal": False}
    rest = replace(problem.rules, **{name: cleared[name] for name in apart})
    for function in (attend, attend_with_lse, explain_path):
        whole = function(*problem.tensors, rules=problem.rules)
        parts = function(*problem.tensors, rules=rest, **shorthands)
        for whole_part, part in zip(as_parts(whole), as_parts(parts), strict=True):
            if isinstance(whole_part, Tensor):
                assert_same(whole_part, part, roundings=0)
            else:
                assert whole_part == part


def as_parts(result: object) -> tuple[object, ...]:
    return result if isinstance(result, tuple) else (result,)


def magnitudes(problem: Problem, weights: Tensor) -> dict[str, Tensor]:
    """The output and its gradients with every term of every sum made positive, in float64."""
    groups = problem.queries.shape[1] // problem.keys.shape[1]
    queries, keys, values = (tensor.detach().double().abs() for tensor in problem.tensors)
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    weights = weights.detach()
    output = weights @ values
    grad_output = upstream(output).abs()
    scale = problem.rules.scale or 1 / math.sqrt(queries.shape[-1])
    grad_weights = grad_output @ values.mT
    grad_scores = weights * (grad_weights + (weights * grad_weights).sum(-1, keepdim=True))
    grad_scores = abs(scale) * grad_scores

    def over_groups(gradient: Tensor) -> Tensor:
        return gradient.unflatten(1, (-1, groups)).sum(2)

    return {
        "output": output,
        "queries": grad_scores @ keys,
        "keys": over_groups(grad_scores.mT @ queries),
        "values": over_groups(weights.mT @ grad_output),
    }


def torch_attention(problem: Problem) -> Tensor:
    """torch's own attention: repeated heads and a dense mask."""
    groups = problem.queries.shape[1] // problem.keys.shape[1]
    keys, values = (tensor.repeat_interleave(groups, 1) for tensor in problem.tensors[1:])
    mask = dense_bias(problem).to(keys.dtype)
    scale = problem.rules.scale
    return F.scaled_dot_product_attention(
        problem.queries, keys, values, attn_mask=mask, scale=scale
    )


JOINED = ("past", "ragged", "folded", "blocks")
"""Paths that call the fused kernel in another way than torch does."""
EXP_UNITS = 20
"""Accuracy of the fused kernel's exponential in units of rounding, says its source (exp_u20)."""


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("always", [(), ("is_causal",)], ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_rounding_is_at_most_twice_that_of_torch(
    always: tuple[str, ...], dtype: torch.dtype, data: st.DataObject
) -> None:
    """Output and gradients against the float64 reference on the same rounded input.

    Allowed is twice the largest error of `scaled_dot_product_attention`, and a few units of
    rounding, since torch's error may happen to be nil. A unit is eps times the largest sum of
    magnitudes: what one rounding of each term amounts to when the sum itself cancels. One unit is
    enough in half precision, and where torch runs the same kernel on the same keys. In float32 it
    is not if d_value != d_key, or if we fold or join several calls: two chains of n independent
    roundings then part by up to sqrt(n) units (https://doi.org/10.1137/18M1226312), and two runs of
    the kernel's fast exponential by EXP_UNITS, either one being the better by chance. That ours is
    not the worse on the whole is the next test's claim.
    """
    twists = ("scale", "window") if always else STRUCTURE
    problem = data.draw(
        problems(twists=twists, always=always, longest=23, dtype=dtype, is_learned=False)
    )
    exact = problem.to(torch.float64)
    truth = by_definition(exact)
    assert truth.weights is not None
    ours, theirs = attend(*problem.tensors, rules=problem.rules), torch_attention(problem)
    both = [{"output": answer} | gradients(problem, Answer(answer)) for answer in (ours, theirs)]
    expected = {"output": truth.output} | gradients(exact, Answer(truth.output))
    has_one_width = problem.keys.shape[3] == problem.values.shape[3]
    path = explain_path(*problem.tensors, rules=problem.rules).path
    is_alike = dtype != torch.float32 or (has_one_width and path not in JOINED)
    units = 1.0 if is_alike else math.sqrt(chain(problem)) + EXP_UNITS
    sizes = magnitudes(problem, truth.weights)
    assert ours.dtype == dtype
    for name, want in expected.items():
        if want.numel() == 0:
            continue
        our_error, their_error = (differences(parts[name], want).max().item() for parts in both)
        allowed = 2 * their_error + units * torch.finfo(dtype).eps * sizes[name].max().item()
        assert our_error <= allowed, f"{name}: error {our_error:.3g}, torch's {their_error:.3g}"


def chain(problem: Problem) -> int:
    """Roundings on the way to one number: score, softmax and mixing, a gradient over queries."""
    (_, heads, num_queries, d_key), (_, kv_heads, num_keys, d_value) = (
        tensor.shape for tensor in (problem.queries, problem.values)
    )
    return d_key + d_value + num_keys + heads // kv_heads * num_queries


POOLED = {
    "full": Rules(),
    "causal": Rules(is_causal=True, offset=0),
    "past": Rules(is_causal=True),
    "window": Rules(window=(5, 2)),
    "mask": Rules(mask=torch.arange(17 * 23).reshape(17, 23) % 5 > 0),
    "lengths": Rules(lengths=torch.tensor([23, 11]), is_causal=True),
    "offsets": Rules(offset=torch.tensor([3, 6]), is_causal=True),
}


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("d_value", [7, 13])
@pytest.mark.parametrize("kind", POOLED)
def test_rounding_of_many_problems_is_at_most_twice_that_of_torch(
    kind: str, d_value: int, dtype: torch.dtype
) -> None:
    """Root mean square over every entry of four problems, where chance averages out: no slack."""
    squares: dict[str, list[Tensor]] = {}
    for _ in range(4):
        shapes = ((2, 6, 17, 7), (2, 3, 23, 7), (2, 3, 23, d_value))
        tensors = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
        problem = Problem(*(tensor.requires_grad_() for tensor in tensors), POOLED[kind])
        exact = problem.to(torch.float64)
        truth = by_definition(exact).output
        expected = {"output": truth} | gradients(exact, Answer(truth))
        ours, theirs = attend(*problem.tensors, rules=problem.rules), torch_attention(problem)
        for answer in (ours, theirs):
            got = {"output": answer} | gradients(problem, Answer(answer))
            for name, want in expected.items():
                squares.setdefault(name, []).append(differences(got[name], want).square().mean())
    for name, errors in squares.items():
        our_error, their_error = (torch.stack(errors[side::2]).mean().sqrt() for side in (0, 1))
        ratio = (our_error / their_error).item()
        assert ratio <= 2, f"{name}: {ratio:.2f} times the error of torch, {their_error:.3g}"


@given(problem=problems(twists=[*STRUCTURE, "slopes", "distance_bias", "softcap"]))
def test_weights_of_a_row_sum_to_one_or_zero(problem: Problem) -> None:
    steps = attend_in_steps(*problem.tensors, rules=problem.rules)
    sees_a_key = (steps.lse > -math.inf).double()
    assert_same(steps.weights.sum(-1), sees_a_key, roundings=problem.roundings)


@given(problem=problems(always=["sinks"]))
def test_the_sink_takes_what_the_weights_leave(problem: Problem) -> None:
    steps = attend_in_steps(*problem.tensors, rules=problem.rules)
    sinks = problem.rules.sinks
    assert sinks is not None
    left = 1 - torch.exp(sinks[:, None] - steps.lse)
    assert_same(steps.weights.sum(-1), left, roundings=problem.roundings)


@given(problem=problems(always=["sinks"]))
def test_a_sink_of_minus_infinity_changes_nothing(problem: Problem) -> None:
    heads = problem.queries.shape[1]
    closed = replace(problem.rules, sinks=torch.full((heads,), -math.inf, dtype=torch.float64))
    closed_problem = replace(problem, rules=closed)
    without = replace(problem, rules=replace(problem.rules, sinks=None))
    got = attend_with_lse(*problem.tensors, rules=closed)
    want = attend_with_lse(*problem.tensors, rules=without.rules)
    for mine, theirs in zip(got, want, strict=True):
        assert_same(mine, theirs, roundings=problem.roundings)
    grads = gradients(closed_problem, Answer(*got))
    for name, gradient in gradients(without, Answer(*want)).items():
        assert_same(grads[name], gradient, roundings=problem.roundings, name=name)


@given(problem=problems(twists=["scale"]))
def test_a_single_weight_comes_from_its_score_and_the_lse(problem: Problem) -> None:
    groups = problem.queries.shape[1] // problem.keys.shape[1]
    scale = problem.rules.scale or 1 / math.sqrt(problem.queries.shape[-1])
    scores = scale * problem.queries @ problem.keys.repeat_interleave(groups, 1).mT
    _, lse = attend_with_lse(*problem.tensors, rules=problem.rules)
    steps = attend_in_steps(*problem.tensors, rules=problem.rules)
    assert_same(torch.exp(scores - lse[..., None]), steps.weights, roundings=problem.roundings)


@given(problem=problems(), kinds=st.integers(1, 5))
def test_attending_to_indicators_sums_weights(problem: Problem, kinds: int) -> None:
    """One set of features for all sequences and heads, as measures of token classes use it."""
    num_keys = problem.keys.shape[2]
    indicators = F.one_hot(torch.arange(num_keys) % kinds, kinds).double()
    masses = attend(problem.queries, problem.keys, indicators[None, None], rules=problem.rules)
    weights = attend_in_steps(*problem.tensors, rules=problem.rules).weights
    assert_same(masses, weights @ indicators, roundings=problem.roundings)


@given(problem=problems(), data=st.data())
def test_permuting_heads_permutes_outputs(problem: Problem, data: st.DataObject) -> None:
    kv_heads = problem.keys.shape[1]
    groups = problem.queries.shape[1] // kv_heads
    order = torch.tensor(data.draw(st.permutations(range(kv_heads))))
    members = (order[:, None] * groups + torch.arange(groups)).flatten()
    changed: dict[str, Tensor] = {
        name: tensor[members]
        for name in ("slopes", "distance_bias", "sinks")
        if (tensor := getattr(problem.rules, name)) is not None
    }
    mask = problem.rules.mask
    if mask is not None and mask.dim() == 4 and mask.shape[1] > 1:
        changed["mask"] = mask[:, members]
    output, lse = attend_with_lse(*problem.tensors, rules=problem.rules)
    permuted = attend_with_lse(
        problem.queries[:, members],
        problem.keys[:, order],
        problem.values[:, order],
        rules=replace(problem.rules, **changed),
    )
    assert_same(permuted[0], output[:, members], roundings=problem.roundings)
    assert_same(permuted[1], lse[:, members], roundings=problem.roundings)


CHUNKED = ("window", "slopes", "distance_bias", "softcap", "sinks", "scale", "mask")


@given(problem=problems(twists=CHUNKED, always=["is_causal"]), data=st.data())
def test_chunks_equal_the_whole(problem: Problem, data: st.DataObject) -> None:
    """Prefill in pieces: each sees the keys up to its own end, its last query at the last key."""
    num_queries, num_keys = problem.queries.shape[2], problem.keys.shape[2]
    past = num_keys - num_queries
    assume(past >= 0)
    cuts = data.draw(st.sets(st.integers(1, num_queries)))
    whole, lse = attend_with_lse(*problem.tensors, rules=problem.rules)
    mask = problem.rules.mask
    for first, last in pairwise(sorted({0, num_queries, *cuts})):
        own_mask = mask
        if mask is not None:
            own_mask = own_mask if mask.shape[-2] == 1 else own_mask[..., first:last, :]
            own_mask = own_mask if mask.shape[-1] == 1 else own_mask[..., : past + last]
        for offset in (None, past + first):
            got = attend_with_lse(
                problem.queries[:, :, first:last],
                problem.keys[:, :, : past + last],
                problem.values[:, :, : past + last],
                rules=replace(problem.rules, offset=offset, mask=own_mask),
            )
            assert_same(got[0], whole[:, :, first:last], roundings=problem.roundings)
            assert_same(got[1], lse[:, :, first:last], roundings=problem.roundings)


NO_TENSORS: dict[str, dict[str, list[int]]] = {
    "no queries": SQUARE | {"queries": [2, 3, 0, 7]},
    "no keys": SQUARE | {"keys": [2, 3, 0, 7], "values": [2, 3, 0, 7]},
    "no positions": {name: [2, 3, 0, 7] for name in SQUARE},
    "empty batch": {name: [0, 3, 5, 7] for name in SQUARE},
}

EMPTY_RULES = {
    "plain": Rules(),
    "causal": Rules(is_causal=True),
    "window": Rules(window=(1, 2)),
    "mask": Rules(mask=torch.ones(1, 1, dtype=torch.bool)),
    "lengths": Rules(lengths=torch.tensor([0, 0])),
    "offset": Rules(is_causal=True, offset=torch.tensor([1, 3])),
    "softcap": Rules(softcap=2.0),
    "slopes": Rules(slopes=torch.ones(3), distance_bias=torch.ones(3, 5)),
    "sinks": Rules(sinks=torch.ones(3)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", EMPTY_RULES)
@pytest.mark.parametrize("empty", NO_TENSORS)
def test_empty_tensors_give_zeros(empty: str, kind: str, dtype: torch.dtype) -> None:
    """The contents do not matter: the sum of these numbers overflows float16."""
    shapes, rules = NO_TENSORS[empty], EMPTY_RULES[kind]
    batch = shapes["queries"][0]
    for name in ("lengths", "offset"):
        if getattr(rules, name) is not None:
            rules = replace(rules, **{name: getattr(rules, name)[:batch]})
    tensors = [torch.full(shape, 500.0, dtype=dtype) for shape in shapes.values()]
    for tensor in tensors:
        tensor.requires_grad_()
    output, lse = attend_with_lse(*tensors, rules=rules)
    steps = attend_in_steps(*tensors, rules=rules)
    zeros = torch.zeros(*shapes["queries"][:3], shapes["values"][3])
    alone = -torch.inf if rules.sinks is None else rules.sinks[0].item()
    for mixed in (attend(*tensors, rules=rules), output, steps.mixed):
        assert mixed.dtype == dtype
        assert_same(mixed, zeros, roundings=0)
    for lses in (lse, steps.lse):
        assert lses.dtype == torch.promote_types(dtype, torch.float32)
        assert_same(lses, torch.full_like(zeros[..., 0], alone), roundings=0)
    for gradient, tensor in zip(torch.autograd.grad(output.sum(), tensors), tensors, strict=True):
        assert_same(gradient, torch.zeros_like(tensor), roundings=0)
    assert explain_path(*tensors, rules=rules).reason


def test_values_without_width_still_give_the_lse() -> None:
    queries, keys = torch.randn(2, 3, 5, 7).double(), torch.randn(2, 3, 11, 7).double()
    output, lse = attend_with_lse(queries, keys, keys[..., :0])
    assert output.shape == (2, 3, 5, 0)
    problem = Problem(queries, keys, keys, Rules())
    want = by_definition(problem).lse
    assert want is not None
    assert_same(lse, want, roundings=problem.roundings)


@pytest.mark.parametrize("path", ["flash", "", "Fused"])
def test_unknown_path_raises_with_the_list_of_paths(path: str) -> None:
    tensors = torch.zeros(3, 1, 1, 2, 3)
    with pytest.raises(PathError, match=f"path.*'{path}'.*fused, .*, ragged"):
        attend(*tensors, path=path)


@pytest.mark.parametrize("function", [attend, attend_with_lse, attend_in_steps])
def test_sinks_for_another_number_of_heads_raise(function: object) -> None:
    tensors = torch.zeros(3, 1, 5, 2, 3)
    with pytest.raises(OptionError, match=r"sinks.* 3 heads.* 5"):
        function(*tensors, rules=Rules(sinks=torch.zeros(3)))  # type: ignore[operator]


def test_every_rule_is_drawn() -> None:
    rules = {name for name in Rules.__dataclass_fields__ if name != "dropout"}
    assert rules == set(TWISTS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.tensor([1.0, -math.inf, 3.5]), r"difference 0.5 at \[2\], got 3.5, want 3"),
        (torch.tensor([1.0, -math.inf, math.nan]), r"difference inf at \[2\], got nan"),
        (torch.tensor([1.0, 2.0, 3.0]), r"difference inf at \[1\], got 2, want -inf"),
        (torch.tensor([1.0, math.inf, 3.0]), r"difference inf at \[1\], got inf"),
        (torch.tensor([[1.0, -math.inf, 3.0]]), r"got \[1, 3\], want \[3\]"),
    ],
)
def test_a_wrong_number_is_never_the_same(wrong: Tensor, message: str) -> None:
    right = torch.tensor([1.0, -math.inf, 3.0])
    assert_same(right, right.clone(), roundings=0)
    with pytest.raises(AssertionError, match=message):
        assert_same(wrong, right, roundings=100)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_tolerance_is_that_of_the_dtype(dtype: torch.dtype) -> None:
    want = torch.tensor([0.5, 3.0], dtype=torch.float64)
    eps = torch.finfo(dtype).eps
    assert rounding(want, dtype=dtype, roundings=7) == 21 * eps
    near, far = want + torch.tensor([0, 20 * eps]), want + torch.tensor([0, 22 * eps])
    assert_same(near, want, roundings=7, dtype=dtype)
    with pytest.raises(AssertionError, match=f"7 roundings explain {21 * eps:.3g}"):
        assert_same(far, want, roundings=7, dtype=dtype)


def test_a_wrong_answer_or_gradient_is_found() -> None:
    tensors = [torch.randn(2, 3, 5, 7, dtype=torch.float64).requires_grad_() for _ in range(3)]
    problem = Problem(*tensors, Rules(mask=torch.randn(5, 5).requires_grad_()))
    assert_answers(problem, by_definition(problem))
    wrong = by_definition(problem).output.clone()
    wrong[1, 2, 3, 4] += 1e-6
    with pytest.raises(AssertionError, match=r"output: largest difference 1e-06 at \[1, 2, 3, 4\]"):
        assert_answers(problem, Answer(wrong))
    for name in problem.leaves:
        answer = by_definition(problem)
        forgetful = torch.autograd.grad(
            answer.output.sum(), problem.leaves[name], retain_graph=True
        )
        assert forgetful[0].any()
        leaves = dict(problem.leaves) | {name: problem.leaves[name].detach()}
        with pytest.raises(AssertionError, match=f"grad of {name}: largest difference"):
            mask = leaves.pop("mask")
            partly = by_definition(Problem(*leaves.values(), Rules(mask=mask)))
            assert_answers(problem, Answer(partly.output))


def test_two_masks_raise() -> None:
    tensors, mask = torch.zeros(3, 1, 2, 5, 4), torch.ones(5, 5, dtype=torch.bool)
    message = r"mask \[5, 5\].*rules\.mask \[1, 5, 5\]"
    for function in (attend, attend_with_lse, explain_path):
        with pytest.raises(OptionError, match=message):
            function(*tensors, mask=mask, rules=Rules(mask=mask[None]))


def test_the_memory_layout_of_a_kernels_output_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA's memory-efficient kernel writes its output position by position."""
    queries, keys, values = (
        torch.randn(2, heads, size, 5) for heads, size in ((6, 1), (3, 7), (3, 7))
    )
    expected, kernel = attend(queries, keys, values), F.scaled_dot_product_attention

    def position_major(*tensors: Tensor, **options: bool) -> Tensor:
        return kernel(*tensors, **options).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(attend_module.F, "scaled_dot_product_attention", position_major)
    assert torch.equal(attend(queries, keys, values), expected)
