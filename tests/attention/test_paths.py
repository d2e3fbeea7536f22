"""Every path against the definition, what each rejects, and which one is taken."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from torch import Tensor

from headwise.attention import paths, prepare
from headwise.attention.attend import attend, attend_with_lse, explain_path
from headwise.attention.paths import PATHS, RUNNERS, PathChoice
from headwise.attention.prepare import Computation
from headwise.attention.rules import Rules
from headwise.errors import PathError

from .problems import (
    Answer,
    Problem,
    assert_gradients,
    assert_parts,
    by_definition,
    gradients,
    problems,
)
from .tolerance import assert_same

BATCH, HEADS, KV_HEADS, QUERY, KEY, D_KEY, D_VALUE = 2, 6, 3, 29, 37, 5, 7
BLOCK = 8
"""Queries per block in these tests: four blocks, the last one shorter."""

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

NO_BIAS = "mask or bias"
PLAIN = "causal triangle without lse"
OTHER = "every key.*causal triangle"
ALL_KEYS = "every key"
CACHED = "causal.*cached keys.*CPU"
LENGTHS = "lengths"
LEARNED = "learned.*gradient"
SOFTCAP = "softcap"
DROPOUT = "dropout"

FUSED_PATHS = ("fused", "folded", "past", "masked", "blocks")
UNMASKED = {"fused": NO_BIAS, "folded": NO_BIAS, "past": NO_BIAS}
WINDOWED = {"fused": OTHER, "folded": ALL_KEYS, "past": CACHED, "masked": PLAIN}


def numbers(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def some_allowed(*shape: int) -> Tensor:
    """Three keys in four allowed, and every seventh row of them blocked."""
    allowed = numbers(*shape) > -0.67
    allowed[..., ::7, :] = False
    return allowed


CASES: dict[str, tuple[Callable[[], Rules], dict[str, str]]] = {
    "full": (Rules, {"past": CACHED}),
    "causal": (
        lambda: Rules(is_causal=True, offset=0),
        {"folded": ALL_KEYS, "past": CACHED},
    ),
    "past": (
        lambda: Rules(is_causal=True),
        {"fused": OTHER, "folded": ALL_KEYS, "masked": PLAIN},
    ),
    "past, with sinks": (
        lambda: Rules(is_causal=True, sinks=numbers(HEADS).requires_grad_()),
        {"fused": OTHER, "folded": ALL_KEYS, "masked": PLAIN},
    ),
    "causal window": (lambda: Rules(is_causal=True, window=10), WINDOWED),
    "window": (lambda: Rules(window=(13, 3), scale=0.3), WINDOWED),
    "window past the last key": (lambda: Rules(window=(3, 2), offset=20), WINDOWED),
    "causal before the first key": (lambda: Rules(is_causal=True, offset=-17), WINDOWED),
    "mask": (lambda: Rules(mask=some_allowed(BATCH, HEADS, QUERY, KEY)), UNMASKED),
    "mask of keys": (lambda: Rules(mask=some_allowed(BATCH, 7, KEY)[:, 1:2]), UNMASKED),
    "causal mask": (
        lambda: Rules(is_causal=True, offset=0, mask=numbers(BATCH, QUERY, KEY)),
        UNMASKED,
    ),
    "window and mask": (
        lambda: Rules(window=4, mask=some_allowed(QUERY, KEY)),
        UNMASKED | {"masked": PLAIN},
    ),
    "distances": (
        lambda: Rules(slopes=numbers(HEADS).abs(), distance_bias=numbers(HEADS, 9)),
        UNMASKED,
    ),
    "learned distances": (
        lambda: Rules(
            slopes=numbers(HEADS).abs().requires_grad_(),
            distance_bias=numbers(HEADS, 9).requires_grad_(),
            window=(None, 5),
        ),
        dict.fromkeys(FUSED_PATHS, LEARNED),
    ),
    "learned mask": (
        lambda: Rules(mask=numbers(QUERY, KEY).requires_grad_()),
        dict.fromkeys(FUSED_PATHS, LEARNED),
    ),
    "softcap": (
        lambda: Rules(softcap=2.0, is_causal=True),
        dict.fromkeys(FUSED_PATHS, SOFTCAP),
    ),
    "lengths": (
        lambda: Rules(lengths=torch.tensor([KEY, 20]), query_lengths=torch.tensor([17, 0])),
        UNMASKED,
    ),
    "causal lengths": (
        lambda: Rules(lengths=torch.tensor([20, KEY]), offset=0, is_causal=True),
        UNMASKED,
    ),
    "offsets": (
        lambda: Rules(is_causal=True, window=9, offset=torch.tensor([3, 17])),
        WINDOWED,
    ),
}
"""Rules, and the paths that reject them with the reason; all others must serve them."""

RAGGED = ("lengths", "causal lengths", "offsets")


def refusals(case: str) -> dict[str, str]:
    return CASES[case][1] | ({} if case in RAGGED else {"ragged": LENGTHS})


SERVED = [(case, path) for case in CASES for path in PATHS if path not in refusals(case)]
REFUSED = [(case, path) for case in CASES for path in refusals(case)]
NO_LSE = [("causal", "masked"), ("causal mask", "masked"), ("causal lengths", "masked")]
"""A dense mask with the kernel's own triangle: the row's log-sum-exp would not be known."""


class Solved(NamedTuple):
    """A case and the reference's answer to it."""

    problem: Problem
    answer: Answer
    grads: dict[str, Tensor]
    """Gradients from the output alone."""
    grads_with_lse: dict[str, Tensor]


@cache
def solved(case: str) -> Solved:
    problem = Problem(
        numbers(BATCH, HEADS, QUERY, D_KEY).requires_grad_(),
        numbers(BATCH, KV_HEADS, KEY, D_KEY).requires_grad_(),
        numbers(BATCH, KV_HEADS, KEY, D_VALUE).requires_grad_(),
        CASES[case][0](),
    )
    answer = by_definition(problem)
    grads = gradients(problem, Answer(answer.output))
    with_lse = gradients(problem, Answer(answer.output, answer.lse))
    return Solved(problem, answer, grads, with_lse)


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "tile_rows", lambda computation, **_: BLOCK)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(("case", "path"), SERVED)
def test_every_path_equals_the_definition(case: str, path: str) -> None:
    problem, want, grads, _ = solved(case)
    got = Answer(attend(*problem.tensors, rules=problem.rules, path=path))
    assert_parts(problem, got, want)
    assert_gradients(problem, got, grads)
    with torch.no_grad():
        got = Answer(attend(*problem.tensors, rules=problem.rules, path=path))
    assert_parts(problem, got, want)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(("case", "path"), [pair for pair in SERVED if pair not in NO_LSE])
def test_every_path_has_the_lse_of_the_definition(case: str, path: str) -> None:
    problem, want, _, grads = solved(case)
    got = Answer(*attend_with_lse(*problem.tensors, rules=problem.rules, path=path))
    assert_parts(problem, got, want)
    assert_gradients(problem, got, grads)
    with torch.no_grad():
        got = Answer(*attend_with_lse(*problem.tensors, rules=problem.rules, path=path))
    assert_parts(problem, got, want)


@pytest.mark.parametrize(("case", "path"), REFUSED)
def test_a_path_that_cannot_compute_a_call_raises_the_reason(case: str, path: str) -> None:
    problem = solved(case).problem
    message = f"'{path}'.*{refusals(case)[path]}"
    for function in (attend, attend_with_lse):
        with pytest.raises(PathError, match=message):
            function(*problem.tensors, rules=problem.rules, path=path)


@pytest.mark.parametrize(("case", "path"), NO_LSE)
def test_a_path_without_lse_raises_the_reason(case: str, path: str) -> None:
    problem = solved(case).problem
    with pytest.raises(PathError, match=f"'{path}'.*{PLAIN}"):
        attend_with_lse(*problem.tensors, rules=problem.rules, path=path)


@pytest.mark.parametrize("path", FUSED_PATHS)
def test_fused_paths_reject_dropout_and_transforms(path: str) -> None:
    queries, keys, values = numbers(3, 2, 3, 5, 7)
    with pytest.raises(PathError, match=f"'{path}'.*{DROPOUT}"):
        attend(queries, keys, values, rules=Rules(dropout=0.25), path=path)
    with pytest.raises(PathError, match=r"torch\.func"):
        torch.func.vmap(lambda rows: attend(rows, keys, values, path=path))(queries[None])
    with pytest.raises(PathError, match=r"meta.*log-sum-exp"):
        attend_with_lse(*numbers(3, 2, 3, 5, 7).to("meta"), path=path)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    ("path", "kernel"), [("blocks", "attend_fused"), ("step_blocks", "plain_mixed")]
)
@pytest.mark.parametrize("has_grad", [False, True])
def test_blocks_read_only_the_keys_that_they_see(
    path: str, kernel: str, has_grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = solved("causal window").problem
    pieces: list[tuple[int, int]] = []
    original = getattr(paths, kernel)

    def spy(tile: Computation, *bias: Tensor, **options: Any) -> object:
        pieces.append((tile.num_queries, tile.num_keys))
        return original(tile, *bias, **options)

    monkeypatch.setattr(paths, kernel, spy)
    with torch.set_grad_enabled(has_grad):
        attend(*problem.tensors, rules=problem.rules, path=path)
    # Query i sees the keys i - 1 to i + 8. Pieces with a gradient are cut at whole blocks; the
    # largest come first.
    exact, whole = [(8, 17), (8, 17), (8, 16), (5, 14)], [(8, 24), (8, 24), (5, 21), (8, 16)]
    assert pieces == (whole if has_grad else exact)


@contextmanager
def watched_paths() -> Iterator[list[str]]:
    """Names of the paths that run inside the block."""
    taken: list[str] = []

    def watch(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            taken.append(name)
            return original(*arguments)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name, runner in RUNNERS.items():
            patch.setitem(RUNNERS, name, watch(name, runner))
        patch.setattr(prepare, "_separate", watch("ragged", prepare._separate))
        yield taken


@given(problem=problems())
def test_explain_path_returns_the_path_that_attend_takes(problem: Problem) -> None:
    choice = explain_path(*problem.tensors, rules=problem.rules)
    with watched_paths() as taken:
        attend(*problem.tensors, rules=problem.rules)
    assert taken[0] == choice.path


@pytest.mark.parametrize("case", CASES)
def test_explain_path_names_a_path_that_serves(case: str) -> None:
    problem = solved(case).problem
    choice = explain_path(*problem.tensors, rules=problem.rules)
    assert (case, choice.path) in SERVED
    with watched_paths() as taken:
        attend(*problem.tensors, rules=problem.rules)
    assert taken[0] == choice.path


@pytest.mark.parametrize("path", RUNNERS)
def test_attend_takes_the_requested_path(path: str) -> None:
    for case, served_by in SERVED:
        if served_by == path and case not in RAGGED:
            problem = solved(case).problem
            with watched_paths() as taken, torch.no_grad():
                attend(*problem.tensors, rules=problem.rules, path=path)
            assert taken == ([path] if path != "past" else taken[:1])
            assert taken[0] == path


CHOICES = {
    "full": ("folded", "2 heads.*every key"),
    "causal": ("fused", "causal.*first key"),
    "past": ("past", "causal.*8 cached keys"),
    "window": ("blocks", "part of the keys"),
    "mask": ("masked", "mask or bias"),
    "causal mask": ("masked", "mask or bias"),
    "window and mask": ("blocks", "mask.*causal or window"),
    "distances": ("masked", "mask or bias"),
    "learned mask": ("steps", LEARNED),
    "softcap": ("steps", SOFTCAP),
    "causal lengths": ("masked", "mask or bias"),
    "offsets": ("ragged", "own offset"),
}

CHOICES_IN_TILES = {
    "distances": ("blocks", "too large"),
    "learned mask": ("step_blocks", LEARNED),
    "softcap": ("step_blocks", SOFTCAP),
}


def assert_choice(choice: PathChoice, path: str, reason: str) -> None:
    assert choice.path == path and re.search(reason, choice.reason), choice


@pytest.mark.parametrize("case", CHOICES)
def test_structure_chooses_the_path(case: str) -> None:
    problem = solved(case).problem
    assert_choice(explain_path(*problem.tensors, rules=problem.rules), *CHOICES[case])


@pytest.mark.parametrize("case", CHOICES_IN_TILES)
def test_size_chooses_blocks(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "TILE_BYTES", 1)
    problem = solved(case).problem
    assert_choice(explain_path(*problem.tensors, rules=problem.rules), *CHOICES_IN_TILES[case])


def test_heads_that_share_no_keys_are_not_folded() -> None:
    assert_choice(explain_path(*numbers(3, 2, 3, 5, 7)), "fused", "every key")


@pytest.mark.parametrize(
    ("rules", "num_queries", "path"),
    [
        (Rules(is_causal=True, offset=0), KEY, "fused"),
        (Rules(is_causal=True), QUERY, "past"),
        (Rules(is_causal=True), 1, "folded"),
        (Rules(is_causal=True, window=KEY), 1, "folded"),
        (Rules(is_causal=True, window=20), 1, "folded"),
        (Rules(window=(None, None)), QUERY, "folded"),
        (Rules(is_causal=True, lengths=torch.tensor([KEY, 11])), KEY, "ragged"),
        (Rules(is_causal=True, offset=torch.tensor([3, 17])), QUERY, "ragged"),
        (Rules(is_causal=True, offset=torch.tensor([3, 17])), 1, "ragged"),
    ],
)
def test_structure_makes_no_mask(
    rules: Rules, num_queries: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a mask was made")

    monkeypatch.setattr(paths, "bias_tile", refuse)
    if path == "ragged":
        monkeypatch.setattr(prepare, "restrict_mask", refuse)
        monkeypatch.setattr(prepare, "CALL_PAIRS", 0)
    problem = solved("full").problem
    queries = numbers(BATCH, HEADS, num_queries, D_KEY)
    with watched_paths() as taken:
        attend(queries, problem.keys, problem.values, rules=rules)
    assert taken[0] == path


@pytest.mark.usefixtures("_small_blocks")
def test_a_needless_mask_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a mask was made")

    monkeypatch.setattr(paths, "bias_tile", refuse)
    problem = solved("full").problem
    for path in ("masked", "blocks", "steps", "step_blocks"):
        with pytest.raises(AssertionError, match="a mask was made"):
            attend(*problem.tensors, rules=Rules(window=3), path=None if path == "masked" else path)


EMPTY_ROWS: dict[str, tuple[Rules, list[int], tuple[str, ...]]] = {
    "bool mask": (
        Rules(mask=some_allowed(2, 3, 11, 13)),
        [0, 7],
        ("masked", "blocks", "steps", "step_blocks"),
    ),
    "float mask": (
        Rules(mask=numbers(11, 13).masked_fill(~some_allowed(11, 13), -torch.inf)),
        [0, 7],
        ("masked", "blocks", "steps", "step_blocks"),
    ),
    "causal mask": (
        Rules(mask=torch.ones(11, 13).triu(5).bool(), is_causal=True, offset=0),
        [*range(11)],
        ("masked", "blocks", "steps", "step_blocks"),
    ),
    "window": (
        Rules(window=(1, 2), offset=8),
        [6, 7, 8, 9, 10],
        ("blocks", "steps", "step_blocks"),
    ),
    "causal": (
        Rules(is_causal=True, offset=-4),
        [0, 1, 2, 3],
        ("blocks", "steps", "step_blocks"),
    ),
    "no key at all": (
        Rules(is_causal=True, offset=-11),
        [*range(11)],
        ("blocks", "steps", "step_blocks"),
    ),
    "empty sequence": (
        Rules(lengths=torch.tensor([0, 0])),
        [*range(11)],
        ("ragged", "masked", "blocks", "steps", "step_blocks"),
    ),
    "padding queries": (
        Rules(query_lengths=torch.tensor([5, 5]), lengths=torch.tensor([13, 11])),
        [5, 6, 7, 8, 9, 10],
        ("ragged", "masked", "blocks", "steps", "step_blocks"),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, case in EMPTY_ROWS.items() for path in case[2]]
)
def test_rows_that_see_nothing_give_zeros(kind: str, path: str, dtype: torch.dtype) -> None:
    rules, rows, _ = EMPTY_ROWS[kind]
    tensors = (numbers(2, 3, size, width) for size, width in ((11, 5), (13, 5), (13, 7)))
    problem = Problem(*(tensor.requires_grad_() for tensor in tensors), rules).to(dtype)
    want = by_definition(problem.to(torch.float64))
    output = attend(*problem.tensors, rules=problem.rules, path=path)
    assert_same(output[:, :, rows], torch.zeros(2, 3, len(rows), 7), roundings=0)
    assert_same(output, want.output, roundings=problem.roundings)
    grads = gradients(problem, Answer(output))
    assert all(gradient.isfinite().all() for gradient in grads.values())
    assert_same(grads["queries"][:, :, rows], torch.zeros(2, 3, len(rows), 5), roundings=0)
    # One path cannot compute the log-sum-exp of such rows; the one chosen in its place can.
    able = None if (kind, path) == ("causal mask", "masked") else path
    both = attend_with_lse(*problem.tensors, rules=problem.rules, path=able)
    assert (both[1][:, :, rows] == -torch.inf).all()
    grads = gradients(problem, Answer(*both))
    assert all(gradient.isfinite().all() for gradient in grads.values())


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("path", ["steps", "step_blocks"])
def test_dropout_drops_weights_and_scales_up_the_rest(path: str) -> None:
    """The values are one-hot, so the output is the kept weights and the gradient sums them."""
    queries, keys = numbers(2, 3, QUERY, D_KEY), numbers(2, 3, KEY, D_KEY)
    values = torch.eye(KEY, dtype=torch.float64).repeat(2, 3, 1, 1).requires_grad_()
    problem = Problem(queries, keys, values, Rules())
    weights = by_definition(problem).weights
    assert weights is not None
    output = attend(*problem.tensors, rules=Rules(dropout=0.25), path=path)
    scaled = (weights / 0.75).where(output != 0, 0.0)
    assert_same(output, scaled, roundings=problem.roundings)
    dropped = (output == 0).double()
    deviation = (0.25 * 0.75 / dropped.numel()) ** 0.5
    assert abs(dropped.mean().item() - 0.25) < 5 * deviation
    (gradient,) = torch.autograd.grad(output.sum(), values)
    assert_same(gradient[..., 0], output.sum(2), roundings=problem.roundings)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_short_half_precision_trains_in_plain_steps(dtype: torch.dtype) -> None:
    """Longer input, and input without a gradient, stays on the fused path."""
    is_half = dtype in (torch.bfloat16, torch.float16)
    short, long = (torch.zeros(1, 1, length, 4, dtype=dtype) for length in (128, 129))
    assert explain_path(short, short, short).path == "fused"
    assert explain_path(*3 * [long.clone().requires_grad_()]).path == "fused"
    learned = short.clone().requires_grad_()
    for tensors in ((learned, short, short), (short, learned, short), (short, short, learned)):
        assert explain_path(*tensors).path == ("steps" if is_half else "fused")
        with torch.no_grad():
            assert explain_path(*tensors).path == "fused"


def test_half_precision_with_large_scores_trains_in_the_fused_kernel() -> None:
    """However few the keys are, plain steps would compute all scores at once."""
    few, many = (
        torch.zeros((), dtype=torch.bfloat16).expand(1, 2, rows, 4).requires_grad_()
        for rows in (32768, 32769)  # times 128 keys, 2 heads and 4 bytes: 32 MiB, and more
    )
    keys = torch.zeros(1, 2, 128, 4, dtype=torch.bfloat16)
    assert explain_path(few, keys, keys).path == "steps"
    assert explain_path(many, keys, keys).path == "fused"


@pytest.mark.parametrize("num_queries", [1, 7])
def test_explain_path_is_true_under_autocast(num_queries: int) -> None:
    queries, keys = (torch.randn(1, 2, rows, 4, requires_grad=True) for rows in (num_queries, 7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        choice = explain_path(queries, keys, keys, is_causal=True)
        with watched_paths() as taken:
            output = attend(queries, keys, keys, is_causal=True)
    assert output.dtype == torch.bfloat16
    assert taken == [choice.path] == ["steps"]
