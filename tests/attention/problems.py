"""Problems: attention computations of all kinds, made by hypothesis, and their answers.

In: hypothesis's choices. Out: tensors and rules, the reference's answer to them, and gradients of
any answer. It calls only the reference, not the code under test.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from headwise.attention.reference import bias_by_definition, head_steps
from headwise.attention.rules import Rules

from .tolerance import assert_same

LEARNED = ("sinks", "mask", "distance_bias", "slopes")
"""Rules that may carry a gradient."""


class Answer(NamedTuple):
    """Results of attention; None for those that were not computed."""

    output: Tensor
    lse: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True)
class Problem:
    """One attention computation; its learnable tensors are leaves that require a gradient."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    rules: Rules

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        return self.queries, self.keys, self.values

    @property
    def leaves(self) -> dict[str, Tensor]:
        """Tensors that require a gradient, by name."""
        named = {"queries": self.queries, "keys": self.keys, "values": self.values}
        named |= {name: getattr(self.rules, name) for name in LEARNED}
        return {
            name: leaf for name, leaf in named.items() if leaf is not None and leaf.requires_grad
        }

    @property
    def roundings(self) -> int:
        """Length of the longest chain of sums: scores, softmax and mixing, and gradients of all.

        A gradient adds up over the queries of all sequences and heads, and over d_value.
        """
        batch, heads, num_queries, d_key = self.queries.shape
        num_keys, d_value = self.values.shape[2:]
        return 2 * (d_key + d_value + num_keys) + batch * heads * num_queries

    def to(self, dtype: torch.dtype) -> "Problem":
        """The same numbers in another dtype, as new leaves."""
        tensors = [leaf(tensor.to(dtype), tensor) for tensor in self.tensors]
        changed = {
            name: leaf(tensor.to(dtype), tensor)
            for name in LEARNED
            if (tensor := getattr(self.rules, name)) is not None and tensor.is_floating_point()
        }
        return Problem(*tensors, replace(self.rules, **changed))


def leaf(tensor: Tensor, like: Tensor) -> Tensor:
    """The tensor as a new leaf, which requires a gradient if `like` does."""
    return tensor.detach().clone().requires_grad_(like.requires_grad)


def by_definition(problem: Problem) -> Answer:
    """The reference's output, log-sum-exps and weights."""
    return Answer(*steps_by_definition(problem, "mixed", "lse", "weights"))


def steps_by_definition(problem: Problem, *names: str) -> list[Tensor]:
    """Some of the reference's steps, for all sequences and heads."""
    queries, keys, values = problem.tensors
    group = queries.shape[1] // keys.shape[1]
    heads = [
        head_steps(
            queries[batch, head],
            keys[batch, head // group],
            values[batch, head // group],
            rules=problem.rules,
            batch=batch,
            head=head,
        )
        for batch in range(len(queries))
        for head in range(queries.shape[1])
    ]
    shape = queries.shape[:2]
    return [
        torch.stack([getattr(head, name) for head in heads]).unflatten(0, shape) for name in names
    ]


def dense_bias(problem: Problem) -> Tensor:
    """The reference's bias on every score, `[batch heads query key]`."""
    batch, heads, num_queries, _ = problem.queries.shape
    num_keys = problem.keys.shape[2]
    return torch.stack(
        [
            torch.stack(
                [
                    bias_by_definition(problem.rules, b, h, num_queries, num_keys)
                    for h in range(heads)
                ]
            )
            for b in range(batch)
        ]
    )


def upstream(part: Tensor) -> Tensor:
    """The gradient passed to every answer of this shape and dtype: fixed, standard normal."""
    generator = torch.Generator().manual_seed(part.dim())
    return torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part.dtype)


def gradients(problem: Problem, answer: Answer) -> dict[str, Tensor]:
    """Gradients of every leaf from all parts of the answer except -inf."""
    learned = [part for part in answer if part is not None and part.requires_grad]
    parts = [part.masked_fill(part == -torch.inf, 0.0) for part in learned]
    leaves = problem.leaves
    grads = torch.autograd.grad(
        parts,
        list(leaves.values()),
        [upstream(part) for part in parts],
        retain_graph=True,  # the graph is used more than once
        materialize_grads=True,
    )
    return dict(zip(leaves, grads, strict=True))


def assert_parts(problem: Problem, got: Answer, want: Answer) -> None:
    """Every computed part of the answer equals the expected one."""
    for name, mine, theirs in zip(Answer._fields, got, want, strict=True):
        if mine is not None:
            assert_same(mine, theirs, roundings=problem.roundings, name=name)


def assert_gradients(problem: Problem, got: Answer, want: dict[str, Tensor]) -> None:
    """Every gradient equals the expected one."""
    for name, mine in gradients(problem, got).items():
        assert_same(mine, want[name], roundings=problem.roundings, name=f"grad of {name}")


def assert_answers(problem: Problem, got: Answer) -> None:
    """Every part of the answer and every gradient equals the reference's."""
    full = by_definition(problem)
    want = Answer(*(None if mine is None else part for mine, part in zip(got, full, strict=True)))
    assert_parts(problem, got, want)
    assert_gradients(problem, got, gradients(problem, want))


class Sizes(NamedTuple):
    """Sizes of a problem, and where its numbers come from."""

    batch: int
    heads: int
    kv_heads: int
    query: int
    key: int
    d_key: int
    d_value: int
    dtype: torch.dtype
    generator: torch.Generator

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return drawn.to(self.dtype)

    def counts(self, low: int, high: int) -> Tensor:
        """A whole number in `low..high` for every sequence."""
        return torch.randint(low, high + 1, (self.batch,), generator=self.generator)


def draw_window(draw: st.DrawFn, sizes: Sizes) -> Any:
    side = st.none() | st.integers(0, sizes.key + 1)
    return draw(st.integers(1, sizes.key + 1) | st.tuples(side, side))


def draw_offset(draw: st.DrawFn, sizes: Sizes) -> int | Tensor:
    low, high = -sizes.query - 1, sizes.key + 2
    if draw(st.booleans()):
        return sizes.counts(low, high)
    return draw(st.integers(low, high))


def draw_mask(draw: st.DrawFn, sizes: Sizes) -> Tensor:
    """Bool, integer or floating, two to four axes, some of size 1; one row in four is blocked."""
    axes = draw(st.integers(2, 4))
    full = {
        2: (sizes.query, sizes.key),
        3: (sizes.batch, sizes.query, sizes.key),
        4: (sizes.batch, sizes.heads, sizes.query, sizes.key),
    }[axes]
    shape = [draw(st.sampled_from([size, size, 1])) for size in full]
    allowed = torch.rand(shape, generator=sizes.generator) < draw(st.sampled_from([0.3, 0.8]))
    allowed &= torch.rand([*shape[:-1], 1], generator=sizes.generator) < 0.75
    match draw(st.sampled_from(["bool", "int", "float"])):
        case "bool":
            return allowed
        case "int":
            return allowed.long()
    return sizes.normal(*shape).masked_fill(~allowed, -torch.inf)


TWISTS: dict[str, Callable[[st.DrawFn, Sizes], Any]] = {
    "is_causal": lambda draw, sizes: True,
    "window": draw_window,
    "offset": draw_offset,
    "lengths": lambda draw, sizes: sizes.counts(0, sizes.key),
    "query_lengths": lambda draw, sizes: sizes.counts(0, sizes.query),
    "mask": draw_mask,
    "scale": lambda draw, sizes: draw(st.sampled_from([0.25, 1.0, -0.5])),
    "slopes": lambda draw, sizes: sizes.normal(sizes.heads).abs(),
    "distance_bias": lambda draw, sizes: sizes.normal(
        sizes.heads, draw(st.sampled_from([1, 3, 7]))
    ),
    "softcap": lambda draw, sizes: draw(st.sampled_from([0.5, 2.0, 30.0])),
    "sinks": lambda draw, sizes: sizes.normal(sizes.heads),
}
"""How each rule is drawn."""

STRUCTURE = ("is_causal", "window", "offset", "lengths", "query_lengths", "mask", "scale")
"""Rules that `scaled_dot_product_attention` can be given as a mask."""


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    twists: Sequence[str] = tuple(TWISTS),
    always: Sequence[str] = (),
    longest: int = 11,
    dtype: torch.dtype = torch.float64,
    is_learned: bool | None = None,
) -> Problem:
    """A problem with up to five of the `twists`, and all of `always`."""
    kv_heads, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sizes = Sizes(
        batch=draw(st.integers(1, 3)),
        heads=kv_heads * groups,
        kv_heads=kv_heads,
        query=draw(st.integers(1, longest)),
        key=draw(st.integers(0, longest)),
        d_key=draw(st.integers(1, 7)),
        d_value=draw(st.integers(1, 7)),
        dtype=dtype,
        generator=torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1))),
    )
    count = draw(st.integers(0, min(5, len(twists))))
    chosen = draw(st.sets(st.sampled_from(twists), min_size=count, max_size=count)) | set(always)
    rules = {name: TWISTS[name](draw, sizes) for name in TWISTS if name in chosen}
    if draw(st.booleans()) if is_learned is None else is_learned:
        for name in rules.keys() & set(LEARNED):
            if rules[name].is_floating_point():
                rules[name].requires_grad_()
    return Problem(
        sizes.normal(sizes.batch, sizes.heads, sizes.query, sizes.d_key).requires_grad_(),
        sizes.normal(sizes.batch, sizes.kv_heads, sizes.key, sizes.d_key).requires_grad_(),
        sizes.normal(sizes.batch, sizes.kv_heads, sizes.key, sizes.d_value).requires_grad_(),
        Rules(**rules),
    )
