"""Padded batches: every sequence is computed as if it were alone."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

from headwise import MultiHeadAttention
from headwise.attention import attend as attend_module, prepare
from headwise.attention.attend import attend, attend_in_steps, attend_with_lse, explain_path
from headwise.attention.prepare import Computation
from headwise.attention.rules import Rules
from headwise.errors import MaskError, ShapeError

from .problems import Answer, Problem, assert_answers, problems
from .tolerance import assert_same

RAGGED = ("lengths", "query_lengths")
SHARED = ("is_causal", "window", "slopes", "distance_bias", "softcap", "sinks", "scale", "mask")
ONE_CALL, ONE_BY_ONE = 10**9, 0
"""Values of `CALL_PAIRS` with which a padded batch is never, or always, split into sequences."""


def tensors_of(batch: int, num_queries: int, num_keys: int) -> list[Tensor]:
    sizes = (num_queries, num_keys, num_keys)
    return [torch.randn(batch, 3, size, 5, dtype=torch.float64) for size in sizes]


def alone(problem: Problem, index: int, rows: int, columns: int) -> Problem:
    """One sequence of the batch, cut to its own lengths."""
    mask = problem.rules.mask
    if mask is not None:
        mask = mask if mask.shape[-2] == 1 else mask[..., :rows, :]
        mask = mask if mask.shape[-1] == 1 else mask[..., :columns]
        if mask.dim() > 2 and mask.shape[0] > 1:
            mask = mask[index : index + 1]
    offset = problem.rules.offset
    offset = int(offset[index]) if isinstance(offset, Tensor) else offset
    rules = replace(problem.rules, lengths=None, query_lengths=None, offset=offset, mask=mask)
    queries, keys, values = (tensor[index : index + 1] for tensor in problem.tensors)
    return Problem(queries[:, :, :rows], keys[:, :, :columns], values[:, :, :columns], rules)


@pytest.mark.parametrize("call_pairs", [ONE_CALL, ONE_BY_ONE])
@given(problem=problems(twists=SHARED, always=["offset", *RAGGED]))
def test_a_sequence_is_the_same_alone_in_a_batch_and_padded(
    call_pairs: int, problem: Problem
) -> None:
    rules = problem.rules
    assert rules.lengths is not None and rules.query_lengths is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "CALL_PAIRS", call_pairs)
        output, lse = attend_with_lse(*problem.tensors, rules=rules)
    for index in range(len(output)):
        rows, columns = int(rules.query_lengths[index]), int(rules.lengths[index])
        own = alone(problem, index, rows, columns)
        own_output, own_lse = attend_with_lse(*own.tensors, rules=own.rules)
        assert_same(output[index, :, :rows], own_output[0], roundings=problem.roundings)
        assert_same(lse[index, :, :rows], own_lse[0], roundings=problem.roundings)
        assert not output[index, :, rows:].any()


@pytest.mark.parametrize("call_pairs", [ONE_CALL, ONE_BY_ONE])
@given(problem=problems(twists=SHARED, always=RAGGED))
def test_padding_changes_no_result_and_gets_no_gradient(call_pairs: int, problem: Problem) -> None:
    rules = problem.rules
    assert rules.lengths is not None and rules.query_lengths is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "CALL_PAIRS", call_pairs)
        output = attend(*problem.tensors, rules=rules)
        grads = torch.autograd.grad(output.sum(), problem.tensors, materialize_grads=True)
        counts = (rules.query_lengths, rules.lengths, rules.lengths)
        others = []
        for tensor, gradient, count in zip(problem.tensors, grads, counts, strict=True):
            is_padding = torch.arange(tensor.shape[2]) >= count[:, None]
            assert not gradient.transpose(1, 2)[is_padding].any()
            others.append(torch.where(is_padding[:, None, :, None], 100.0, tensor))
        assert_same(attend(*others, rules=rules), output, roundings=0)


@given(problem=problems(always=["offset"]), data=st.data())
def test_offsets_per_sequence_equal_a_shared_offset(problem: Problem, data: st.DataObject) -> None:
    rules = problem.rules
    low, high = -problem.queries.shape[2] - 1, problem.keys.shape[2] + 2
    offset = data.draw(st.integers(low, high))
    same = torch.full((len(problem.queries),), offset)
    each = attend_with_lse(*problem.tensors, rules=replace(rules, offset=same))
    one = attend_with_lse(*problem.tensors, rules=replace(rules, offset=offset))
    for got, want in zip(each, one, strict=True):
        assert_same(got, want, roundings=problem.roundings)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 1)])
@pytest.mark.parametrize(
    "rules", [Rules(lengths=torch.tensor([7, 11])), Rules(offset=torch.tensor([2, 6]))]
)
def test_features_may_be_shared_by_sequences_and_heads(
    rules: Rules, shape: tuple[int, int]
) -> None:
    queries, keys, _ = tensors_of(2, 5, 11)
    values = torch.randn(*shape, 11, 13, dtype=torch.float64)
    spread = values.expand(2, 3, -1, -1)
    want = attend(queries, keys, spread, rules=rules, path="steps")
    for path in (None, "ragged", "steps"):
        assert_same(attend(queries, keys, values, rules=rules, path=path), want, roundings=50)


def test_padding_that_costs_more_than_a_call_is_left_out() -> None:
    """Three heads of 40 x 60 pairs; 10 x 30 of the second sequence are real."""
    queries, keys, values = tensors_of(2, 40, 60)
    lengths, query_lengths = torch.tensor([60, 30]), torch.tensor([40, 10])
    rules = Rules(lengths=lengths, query_lengths=query_lengths)
    saved = 3 * (40 * 60 - 10 * 30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "CALL_PAIRS", saved // 2)
        assert explain_path(queries, keys, values, rules=rules).path == "masked"
        patch.setattr(prepare, "CALL_PAIRS", saved // 2 - 1)
        choice = explain_path(queries, keys, values, rules=rules)
        assert choice == ("ragged", "44% of the padded work is padding")
        meta = [tensor.to("meta") for tensor in (queries, keys, values)]
        assert explain_path(*meta, rules=rules).path == "masked"
        with_offsets = replace(rules, offset=torch.tensor([0, 1]))
        choice = explain_path(queries, keys, values, rules=with_offsets)
        assert choice == ("ragged", "each sequence has its own offset")


def test_lengths_work_inside_a_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lengths become a mask: numbers cannot be read inside a transform."""
    monkeypatch.setattr(prepare, "CALL_PAIRS", ONE_BY_ONE)
    queries, keys, values = tensors_of(2, 5, 11)
    rules = Rules(lengths=torch.tensor([7, 11]), is_causal=True)

    def total(queries: Tensor) -> Tensor:
        return attend(queries, keys, values, rules=rules).square().sum()

    queries.requires_grad_()
    (want,) = torch.autograd.grad(total(queries), queries)
    assert_same(torch.func.grad(total)(queries), want, roundings=50)


ENTRIES = (attend, attend_with_lse, attend_in_steps, explain_path)


@pytest.mark.parametrize("function", ENTRIES)
@pytest.mark.parametrize("name", RAGGED)
def test_lengths_of_another_batch_raise(name: str, function: object) -> None:
    rules = Rules(**{name: torch.tensor([3, 3, 3])})
    with pytest.raises(ShapeError, match=rf"{name}.*\[3\].*\[batch 2\]"):
        function(*tensors_of(2, 5, 7), rules=rules)  # type: ignore[operator]


@pytest.mark.parametrize("function", ENTRIES)
@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(lengths=torch.tensor([2, 8])), r"lengths.*2 to 8.*0\.\.7"),
        (Rules(lengths=torch.tensor([-1, 3])), r"lengths.*-1 to 3.*0\.\.7"),
        (Rules(query_lengths=torch.tensor([6, 9])), r"query_lengths.*6 to 9.*0\.\.5"),
    ],
)
def test_lengths_beyond_the_padding_raise(rules: Rules, message: str, function: object) -> None:
    with pytest.raises(ShapeError, match=message):
        function(*tensors_of(2, 5, 7), rules=rules)  # type: ignore[operator]


@pytest.mark.parametrize("function", ENTRIES[:3])
@pytest.mark.parametrize("count", [1, 3])
def test_offsets_of_another_batch_raise(count: int, function: object) -> None:
    rules = Rules(is_causal=True, offset=torch.zeros(count, dtype=torch.long))
    with pytest.raises(ShapeError, match=rf"offset.*\[{count}\].*\[batch 2\]"):
        function(*tensors_of(2, 5, 7), rules=rules)  # type: ignore[operator]


@pytest.mark.parametrize("function", ENTRIES[:3])
@pytest.mark.parametrize(
    ("rules", "path"),
    [
        (Rules(lengths=torch.tensor([3, 7])), None),
        (Rules(lengths=torch.tensor([3, 7])), "ragged"),
        (Rules(offset=torch.tensor([3, 7])), None),
    ],
)
@pytest.mark.parametrize("shape", [(5, 8), (6, 7), (3, 5, 7), (2, 2, 5, 7)])
def test_mask_that_does_not_fit_a_padded_batch_raises(
    shape: tuple[int, ...], rules: Rules, path: str | None, function: object
) -> None:
    options = {} if function is attend_in_steps else {"path": path}
    rules = replace(rules, mask=torch.ones(shape, dtype=torch.bool))
    sizes = r"\[batch 2, heads 3, query 5, key 7\]"
    with pytest.raises(MaskError, match=rf"mask.*{sizes}"):
        function(*tensors_of(2, 5, 7), rules=rules, **options)  # type: ignore[operator]


def test_padding_is_made_where_the_tensors_are() -> None:
    tensors = [tensor.to("meta") for tensor in tensors_of(2, 5, 7)]
    rules = Rules(lengths=torch.tensor([3, 7]), query_lengths=torch.tensor([2, 5]))
    output, lse = attend_with_lse(*tensors, rules=rules, path="ragged")
    assert output.is_meta and lse.is_meta
    assert lse.shape == output.shape[:3] == (2, 3, 5)


@pytest.mark.parametrize("function", ENTRIES[:3])
@pytest.mark.parametrize(
    "rules",
    [Rules(lengths=torch.tensor([100, 200])), Rules(is_causal=True, offset=torch.tensor([0, 1]))],
    ids=["lengths", "offsets"],
)
def test_shapes_are_checked_before_sequences_are_cropped(rules: Rules, function: object) -> None:
    queries, keys, values = tensors_of(2, 211, 307)
    for wrong in ((queries, keys, values[:, :, :-5]), (queries, keys.repeat(2, 1, 1, 1), values)):
        with pytest.raises(ShapeError, match=r"batch.*d_key"):
            function(*wrong, rules=rules)  # type: ignore[operator]


def test_lengths_that_every_sequence_fills_cost_no_mask() -> None:
    queries, keys, values = tensors_of(2, 11, 13)
    full = Rules(lengths=torch.tensor([13, 13]), query_lengths=torch.tensor([11, 11]))
    assert explain_path(queries, keys, values, rules=full) == explain_path(queries, keys, values)
    assert torch.equal(attend(queries, keys, values, rules=full), attend(queries, keys, values))
    nearly = replace(full, lengths=torch.tensor([13, 12]))
    assert explain_path(queries, keys, values, rules=nearly).path == "masked"


class Reads(TorchFunctionMode):
    """Counts how often the numbers of an integer tensor are read."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, function: Any, types: Any, given: Any = (), options: Any = None
    ) -> Any:
        names = ("tolist", "item", "__int__", "__bool__", "__index__")
        if getattr(function, "__name__", "") in names and not given[0].is_floating_point():
            self.count += 1
        return function(*given, **options or {})


@pytest.mark.parametrize("call_pairs", [ONE_CALL, ONE_BY_ONE])
def test_lengths_are_read_once(call_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading waits for the GPU to finish."""
    monkeypatch.setattr(prepare, "CALL_PAIRS", call_pairs)
    layer, x = MultiHeadAttention(6, 2, is_causal=True), torch.randn(3, 7, 6)
    with Reads() as reads:
        layer(x, lengths=torch.tensor([7, 4, 2]))
    assert reads.count == 1
    with Reads() as reads:
        attend(*tensors_of(3, 5, 7), rules=Rules(offset=torch.tensor([2, 0, 1])), path=None)
    assert reads.count == 1


@pytest.mark.parametrize("with_lse", [False, True])
def test_padding_of_queries_makes_no_mask_of_pairs(
    with_lse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if lengths are not read, as in compiled code: every query gets the same mask."""
    monkeypatch.setattr(prepare, "can_be_read", lambda _: False)
    tensors = [tensor.requires_grad_() for tensor in tensors_of(3, 5, 7)]
    rules = Rules(
        lengths=torch.tensor([7, 3, 0]),
        query_lengths=torch.tensor([2, 5, 4]),
        sinks=torch.randn(3, dtype=torch.float64) if with_lse else None,
    )
    problem, seen = Problem(*tensors, rules), []
    original = attend_module.choose_path

    def spy(computation: Computation, **options: Any) -> Any:
        seen.append(computation.mask)
        return original(computation, **options)

    monkeypatch.setattr(attend_module, "choose_path", spy)
    got = attend_with_lse(*tensors, rules=rules) if with_lse else (attend(*tensors, rules=rules),)
    assert_answers(problem, Answer(*got))
    assert [tuple(mask.shape) for mask in seen] == [(3, 1, 1, 7)]
    alone = replace(rules, lengths=None)
    got = attend_with_lse(*tensors, rules=alone) if with_lse else (attend(*tensors, rules=alone),)
    assert_answers(Problem(*tensors, alone), Answer(*got))
    assert seen[1] is None
