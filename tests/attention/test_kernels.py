"""The fused kernel and the plain steps: derivatives of every order, dtypes, layouts, devices."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel

from headwise.attention import kernels, paths
from headwise.attention.attend import attend, attend_in_steps, attend_with_lse, explain_path
from headwise.attention.kernels import (
    attend_fused,
    available_kernels,
    fold_groups,
    plain_steps,
    unfold_groups,
)
from headwise.attention.prepare import Computation, is_transformed
from headwise.attention.rules import Rules
from headwise.errors import PathError

from .problems import (
    Answer,
    Problem,
    assert_answers,
    by_definition,
    problems,
    steps_by_definition,
)
from .tolerance import assert_same

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
HALVES = DTYPES[2:]

RULES = {
    "full": Rules(),
    "causal": Rules(is_causal=True, offset=0),
    "past": Rules(is_causal=True),
    "window": Rules(window=(2, 1)),
    "mask": Rules(mask=torch.arange(35).reshape(5, 7) % 3 > 0),
    "empty row": Rules(mask=torch.arange(5)[:, None] > 0),
    "softcap": Rules(softcap=0.5, sinks=torch.tensor([0.1, -0.2, 0.3, 0.4]).double()),
    "distances": Rules(slopes=torch.rand(4).double(), distance_bias=torch.rand(4, 5).double()),
}


def tensors_of(*, groups: int = 2, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = ((3, 4, 5, 6), (3, 4 // groups, 7, 6), (3, 4 // groups, 7, 2))
    drawn = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]
    return [tensor.requires_grad_() for tensor in drawn]


def answers(rules: Rules, path: str | None = None) -> Callable[..., tuple[Tensor, Tensor]]:
    """Output and log-sum-exp as a function of queries, keys and values; -inf as 0."""

    def function(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        output, lse = attend_with_lse(*tensors, rules=rules, path=path)
        return output, lse.masked_fill(lse == -math.inf, 0.0)

    return function


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("full", "fused"),
        ("full", "folded"),
        ("causal", "fused"),
        ("past", "past"),
        ("mask", "masked"),
        ("window", "blocks"),
        ("empty row", "blocks"),
        ("empty row", "masked"),
        ("softcap", "steps"),
        ("distances", "step_blocks"),
    ],
)
def test_derivatives_are_finite_differences(
    kind: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derivatives of output and log-sum-exp; blocks have two queries."""
    monkeypatch.setattr(paths, "tile_rows", lambda computation, **_: 2)
    assert gradcheck(answers(RULES[kind], path), tensors_of(), fast_mode=True)


@pytest.mark.parametrize("kind", RULES)
def test_forward_derivatives_are_finite_differences(kind: str) -> None:
    forward = partial(gradcheck, check_forward_ad=True, check_backward_ad=False, fast_mode=True)
    assert forward(answers(RULES[kind]), tensors_of())


@pytest.mark.parametrize("kind", RULES)
def test_steps_can_be_differentiated_twice(kind: str) -> None:
    assert gradgradcheck(answers(RULES[kind], "steps"), tensors_of(), fast_mode=True)


@pytest.mark.parametrize("kind", ["full", "causal", "past", "mask", "window"])
@pytest.mark.parametrize("function", [attend, attend_with_lse])
def test_second_derivative_of_a_fused_path_raises(function: object, kind: str) -> None:
    """The derivative is never silently left out of a sum."""
    tensors = tensors_of()
    result = function(*tensors, rules=RULES[kind])  # type: ignore[operator]
    output = result if isinstance(result, Tensor) else result[0]
    (first,) = torch.autograd.grad(output.sum(), tensors[:1], create_graph=True)
    message = r"second derivative: .*path='steps'|is not implemented"  # torch's
    with pytest.raises(PathError if function is attend_with_lse else Exception, match=message):
        torch.autograd.grad(output.sum() + first.sum(), tensors[:1])


@pytest.mark.parametrize("kind", RULES)
def test_vmap_equals_a_loop(kind: str) -> None:
    stacked = [torch.stack([tensor, 2 * tensor, -tensor]).detach() for tensor in tensors_of()]
    together = torch.func.vmap(answers(RULES[kind]))(*stacked)
    each = [answers(RULES[kind])(*tensors) for tensors in zip(*stacked, strict=True)]
    for got, want in zip(together, zip(*each, strict=True), strict=True):
        assert_same(got, torch.stack(want), roundings=50)


@pytest.mark.parametrize("kind", RULES)
def test_functional_gradients_equal_autograds(kind: str) -> None:
    tensors = tensors_of()

    def total(*tensors: Tensor) -> Tensor:
        output, lse = answers(RULES[kind])(*tensors)
        return (output.square().sum() + lse.sin().sum()).double()

    want = torch.autograd.grad(total(*tensors), tensors)
    got = torch.func.grad(total, argnums=(0, 1, 2))(*tensors)
    directions = [torch.randn_like(tensor) for tensor in tensors]
    _, slope = torch.func.jvp(total, tuple(tensors), tuple(directions))
    along = sum((grad * way).sum() for grad, way in zip(want, directions, strict=True))
    for mine, theirs in zip(got, want, strict=True):
        assert_same(mine, theirs, roundings=100)
    assert_same(slope, along, roundings=100)


@pytest.mark.parametrize("kind", ["causal", "empty row", "softcap"])
def test_jacobian_and_hessian_equal_autograds(kind: str) -> None:
    tensors = [tensor.detach() for tensor in tensors_of()]

    def output(queries: Tensor) -> Tensor:
        return attend(queries, *tensors[1:], rules=RULES[kind])

    def total(queries: Tensor, path: str | None = None) -> Tensor:
        return attend(queries, *tensors[1:], rules=RULES[kind], path=path).square().sum()

    jacobian = torch.autograd.functional.jacobian(output, tensors[0])
    hessian = torch.autograd.functional.hessian(partial(total, path="steps"), tensors[0])
    assert_same(torch.func.jacrev(output)(tensors[0]), jacobian, roundings=100)
    assert_same(torch.func.jacfwd(output)(tensors[0]), jacobian, roundings=100)
    assert_same(torch.func.hessian(total)(tensors[0]), hessian, roundings=100)


@pytest.mark.parametrize("is_causal", [False, True])
def test_transforms_pass_through_calls_without_rules(is_causal: bool) -> None:
    """Without a transform these calls go straight to torch's own fused call."""
    queries, keys, values = torch.randn(3, 2, 3, 5, 7, dtype=torch.float64)
    rules = Rules(is_causal=is_causal)

    def total(queries: Tensor) -> Tensor:
        return attend(queries, keys, values, is_causal=is_causal).square().sum()

    def in_steps(queries: Tensor) -> Tensor:
        return attend(queries, keys, values, rules=rules, path="steps").square().sum()

    hessian = torch.autograd.functional.hessian(in_steps, queries)
    assert_same(torch.func.hessian(total)(queries), hessian, roundings=100)
    each = torch.stack([total(queries), total(2 * queries)])
    stacked = torch.stack([queries, 2 * queries])
    assert_same(torch.func.vmap(total)(stacked), each, roundings=2 * queries.numel())


def test_a_transform_is_noticed() -> None:
    noticed: list[bool] = []

    def look(x: Tensor) -> Tensor:
        noticed.append(is_transformed())
        return x.sum()

    for transform in (torch.func.vmap, torch.func.grad, torch.func.jacrev, torch.func.jacfwd):
        transform(look)(torch.ones(1, 3) if transform is torch.func.vmap else torch.ones(3))
    with forward_ad.dual_level():
        look(torch.ones(3))
    assert noticed == [True] * 5
    assert not is_transformed()


@given(problem=problems())
def test_every_step_equals_the_definition(problem: Problem) -> None:
    steps = attend_in_steps(*problem.tensors, rules=problem.rules)
    capped, biased = steps_by_definition(problem, "scaled", "masked")
    assert_same(steps.capped, capped, roundings=problem.roundings, name="capped")
    assert_same(steps.biased, biased, roundings=problem.roundings, name="biased")
    softcap = problem.rules.softcap
    if softcap is not None:
        assert_same(
            steps.capped, softcap * (steps.scores / softcap).tanh(), roundings=problem.roundings
        )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", RULES)
def test_steps_round_half_precision_only_at_the_end(kind: str, dtype: torch.dtype) -> None:
    problem = Problem(*tensors_of(), RULES[kind]).to(dtype)
    want = by_definition(problem.to(torch.float64))
    steps = attend_in_steps(*problem.tensors, rules=problem.rules)
    for step in (steps.scores, steps.capped, steps.biased, steps.weights, steps.lse):
        assert step.dtype == torch.float32
    assert steps.mixed.dtype == dtype
    assert want.lse is not None and want.weights is not None
    roundings = 1 if RULES[kind].sinks is None else 3  # output, share, and their product
    assert_same(steps.mixed, want.output, roundings=roundings)
    assert_same(steps.weights, want.weights, roundings=problem.roundings)
    assert_same(steps.lse, want.lse, roundings=problem.roundings)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("path", [None, "steps", "ragged"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_autocast_computes_in_its_own_dtype(
    is_causal: bool, path: str | None, dtype: torch.dtype
) -> None:
    """As if the tensors had that dtype; float64 is left alone, as torch's own attention does."""
    lengths = torch.tensor([5, 7, 2]) if path == "ragged" else None
    rules = Rules(lengths=lengths, is_causal=is_causal)
    tensors = tensors_of(dtype=torch.float32)
    low = [tensor.to(dtype) for tensor in tensors]
    want = attend_with_lse(*low, rules=rules, path=path)
    with torch.autocast("cpu", dtype):
        output, lse = attend_with_lse(*tensors, rules=rules, path=path)
        plain = attend(*tensors, rules=rules, path=path)
        double = attend(*(tensor.double() for tensor in tensors), rules=rules, path=path)
    assert output.dtype == plain.dtype == dtype
    assert double.dtype == torch.float64
    assert_same(output, want[0], roundings=0)
    assert_same(plain, want[0], roundings=1)
    assert_same(lse, want[1], roundings=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_keep_the_dtype_and_lse_is_wide(dtype: torch.dtype) -> None:
    tensors = tensors_of(dtype=dtype)
    for path in ("fused", "folded", "steps", "blocks", "masked", "step_blocks"):
        output, lse = attend_with_lse(*tensors, path=path)
        assert output.dtype == dtype
        assert lse.dtype == torch.promote_types(dtype, torch.float32)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "token-major": lambda tensor: tensor.transpose(1, 2).contiguous().transpose(1, 2),
    "size before position": lambda tensor: tensor.mT.contiguous().mT,
    "batch last": lambda tensor: tensor.movedim(0, 3).contiguous().movedim(3, 0),
    "every second": lambda tensor: tensor.repeat_interleave(2, -1)[..., ::2],
    "reversed heads": lambda tensor: tensor.flip(1).contiguous().flip(1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["full", "causal", "past", "window", "mask"])
def test_the_layout_in_memory_does_not_matter(kind: str, layout: str) -> None:
    problem = Problem(*tensors_of(), RULES[kind])
    moved = [LAYOUTS[layout](tensor) for tensor in problem.tensors]
    assert_answers(problem, Answer(*attend_with_lse(*moved, rules=problem.rules)))
    assert_answers(problem, Answer(attend(*moved, rules=problem.rules)))


@pytest.mark.parametrize("shape", [(1, 1, 1, 7), (1, 4, 5, 1), (3, 1, 5, 7), (1, 1, 5, 1)])
@pytest.mark.parametrize("path", ["masked", "blocks", "steps", "step_blocks"])
def test_a_mask_serves_every_axis_where_it_has_size_one(shape: tuple[int, ...], path: str) -> None:
    mask = torch.randn(shape, dtype=torch.float64)
    problem = Problem(*tensors_of(), Rules(mask=mask))
    output = attend(*problem.tensors, rules=problem.rules, path=path)
    assert_answers(problem, Answer(output))


@pytest.mark.parametrize("scale", [-0.5, 0.0, 3.0])
@pytest.mark.parametrize("kind", ["full", "causal", "past", "window", "mask"])
def test_every_scale_equals_the_definition(kind: str, scale: float) -> None:
    problem = Problem(*tensors_of(), replace(RULES[kind], scale=scale))
    output, lse = attend_with_lse(*problem.tensors, rules=problem.rules)
    assert_answers(problem, Answer(output, lse))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["full", "causal", "past", "window", "mask", "empty row"])
def test_other_devices_get_the_same_from_torch_itself(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code and other devices call torch's public function, which has no log-sum-exp."""
    problem = Problem(*tensors_of(dtype=dtype), RULES[kind])
    want = by_definition(problem.to(torch.float64)).output
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    output = attend(*problem.tensors, rules=problem.rules)
    assert output.dtype == dtype
    assert_same(output, want, roundings=problem.roundings)


@pytest.mark.parametrize("mask_axes", [(5, 7), (3, 1, 7), (3, 4, 5, 7)])
def test_other_devices_get_a_mask_or_the_causal_flag_and_never_both(
    mask_axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's function takes only one of the two; its plain kernel raises."""
    mask = torch.randn(mask_axes, dtype=torch.float64)
    problem = Problem(*tensors_of(), Rules(is_causal=True, offset=0, mask=mask))
    assert explain_path(*problem.tensors, rules=problem.rules).path == "masked"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with sdpa_kernel(SDPBackend.MATH):
        output = attend(*problem.tensors, rules=problem.rules)
    assert_answers(problem, Answer(output))


@pytest.mark.parametrize("kind", RULES)
def test_the_meta_device_gives_shapes(kind: str) -> None:
    rules = RULES[kind]
    names = ("mask", "sinks", "slopes", "distance_bias")
    given_tensors = {name: getattr(rules, name) for name in names}
    moved = {
        name: tensor.to("meta") for name, tensor in given_tensors.items() if tensor is not None
    }
    output, lse = attend_with_lse(
        *(tensor.to("meta") for tensor in tensors_of()), rules=replace(rules, **moved)
    )
    assert output.device.type == lse.device.type == "meta"
    assert (output.shape, lse.shape) == ((3, 4, 5, 2), (3, 4, 5))


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_folding_groups_keeps_heads_with_their_kv_head(kv_heads: int) -> None:
    queries = torch.randn(2, 6, 5, 7)
    folded = fold_groups(queries, kv_heads)
    groups = 6 // kv_heads
    assert folded.shape == (2, kv_heads, groups * 5, 7)
    for head in range(6):
        rows = slice(head % groups * 5, (head % groups + 1) * 5)
        assert torch.equal(folded[:, head // groups, rows], queries[:, head])
    assert torch.equal(unfold_groups(folded, 6), queries)


@pytest.mark.parametrize("d_value", [0, 2, 3, 7])
def test_fused_kernel_equals_the_plain_steps(d_value: int) -> None:
    queries, keys, _ = tensors_of()
    values = torch.randn(*keys.shape[:3], d_value, dtype=torch.float64)
    bias = torch.randn(3, 4, 5, 7, dtype=torch.float64)
    bias[:, :, 2] = -math.inf
    computation = Computation.of(queries, keys, values, Rules(scale=0.7))
    got = attend_fused(computation, bias=bias, with_lse=True)
    want = plain_steps(computation, bias)
    assert got.lse is not None
    assert_same(got.output, want.mixed, roundings=50)
    assert_same(got.lse, want.lse, roundings=50)
    assert attend_fused(computation).lse is None


def test_available_kernels_say_how_exact_they_are() -> None:
    report = available_kernels()
    assert list(report) == ["float64", "float32", "bfloat16", "float16"]
    for line in report.values():
        assert line.startswith("yes, error ") and line.endswith(" eps")
        assert float(line.split()[2]) <= 8 + 5  # the chains: d_key 8, keys 5


def test_missing_kernels_are_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise RuntimeError("not implemented for 'Half'\nsecond line")

    monkeypatch.setattr(kernels, "flash_forward", missing)
    assert set(available_kernels().values()) == {"no: not implemented for 'Half'"}
