"""Calls of attention layers with torch's arguments, and comparisons of their results.

In: a `Case`, which is the sizes and the layout of one call, and a kind of mask. Out: torch's layer,
inputs and masks of those sizes; and assertions. What is compared with what is the tests' business.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.nn import MultiheadAttention

from .attention.tolerance import assert_same

Layout = Literal["batch first", "positions first", "unbatched"]
Tokens = Literal["self", "cross", "own widths"]
Inputs = Sequence[Tensor]
Call = dict[str, Any]
Attention = Callable[..., tuple[Tensor, Tensor | None]]

LAYOUTS: tuple[Layout, ...] = ("batch first", "positions first", "unbatched")
TOKENS: tuple[Tokens, ...] = ("self", "cross", "own widths")
OPTIONS: dict[str, Call] = {
    "no bias": {"bias": False},
    "learned key": {"add_bias_kv": True},
    "zero key": {"add_zero_attn": True},
    "both keys": {"add_bias_kv": True, "add_zero_attn": True},
}
WEIGHTS: dict[str, Call] = {
    "no weights": {"need_weights": False},
    "mean weights": {},
    "weights per head": {"average_attn_weights": False},
}
LONG = {"heads": 5, "num_queries": 79, "d_key": 2}
"""Enough pairs for structure to pay."""


@dataclass(frozen=True)
class Case:
    """Sizes and layout of one call; an even number of heads opens torch's fast path."""

    layout: Layout = "batch first"
    tokens: Tokens = "self"
    dtype: torch.dtype = torch.float64
    options: dict[str, Any] = field(default_factory=dict)
    heads: int = 2
    num_queries: int = 5
    d_key: int = 11

    @property
    def batch(self) -> int:
        return 1 if self.layout == "unbatched" else 3

    @property
    def num_keys(self) -> int:
        return self.num_queries if self.tokens == "self" else self.num_queries + 2

    @property
    def widths(self) -> tuple[int, int, int]:
        d_model = self.heads * self.d_key
        return (d_model, 13, 17) if self.tokens == "own widths" else (d_model, d_model, d_model)

    @property
    def roundings(self) -> int:
        """Terms of every sum on the way: projections, scores, softmax, mixture, and gradients."""
        rows = self.batch * (self.num_queries + self.num_keys)
        return 4 * sum(self.widths) + self.d_key + 2 * self.num_keys + rows


def shaped(case: Case, count: int, width: int) -> Tensor:
    """Random tokens in the layout of the case."""
    shape = {
        "batch first": (case.batch, count, width),
        "positions first": (count, case.batch, width),
        "unbatched": (count, width),
    }[case.layout]
    return torch.randn(shape, dtype=case.dtype)


def inputs_of(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    query = shaped(case, case.num_queries, case.widths[0])
    if case.tokens == "self":
        return query, query, query
    key = shaped(case, case.num_keys, case.widths[1])
    same = case.tokens == "cross"
    return query, key, key if same else shaped(case, case.num_keys, case.widths[2])


def torch_layer(case: Case, **more: Any) -> nn.MultiheadAttention:
    """Torch's layer with every parameter random, biases too."""
    d_model, kdim, vdim = case.widths
    settings = {
        "kdim": kdim,
        "vdim": vdim,
        "batch_first": case.layout == "batch first",
        "dtype": case.dtype,
        **case.options,
        **more,
    }
    layer = nn.MultiheadAttention(d_model, case.heads, **settings)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / math.sqrt(parameter.shape[-1]))
    return layer


def drop_in(layer: nn.MultiheadAttention) -> MultiheadAttention:
    """A drop-in with equal, not the same, parameters."""
    return MultiheadAttention.from_torch(copy.deepcopy(layer))


def padding(case: Case) -> Tensor:
    """Right padding of a different length for every sequence; no sequence is all padding."""
    lengths = torch.tensor([case.num_keys - 3, case.num_keys, 1][: case.batch])
    blocked = torch.arange(case.num_keys) >= lengths[:, None]
    return blocked[0] if case.layout == "unbatched" else blocked


def scattered(*shape: int) -> Tensor:
    """A random mask that leaves the first key to every query."""
    blocked = torch.rand(shape) < 0.4
    blocked[..., 0] = False
    return blocked


def causal(case: Case) -> Tensor:
    return torch.ones(case.num_queries, case.num_keys, dtype=torch.bool).triu(1)


def added(blocked: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as numbers to add, with a preference for some of the keys."""
    return torch.randn(blocked.shape, dtype=dtype).masked_fill(blocked, -math.inf)


def minus_infinity(blocked: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as torch's own layers pass it on."""
    return torch.zeros(blocked.shape, dtype=dtype).masked_fill(blocked, -math.inf)


def pairs_per_head(case: Case) -> Tensor:
    return scattered(case.batch * case.heads, case.num_queries, case.num_keys)


MASKS: dict[str, Callable[[Case], Call]] = {
    "no mask": lambda case: {},
    "bool pairs": lambda case: {"attn_mask": scattered(case.num_queries, case.num_keys)},
    "float pairs": lambda case: {
        "attn_mask": added(scattered(case.num_queries, case.num_keys), case.dtype)
    },
    "bool pairs per head": lambda case: {"attn_mask": pairs_per_head(case)},
    "float pairs per head": lambda case: {"attn_mask": added(pairs_per_head(case), case.dtype)},
    "bool padding": lambda case: {"key_padding_mask": padding(case)},
    "infinite padding": lambda case: {
        "key_padding_mask": minus_infinity(padding(case), case.dtype)
    },
    "float padding": lambda case: {"key_padding_mask": added(padding(case), case.dtype)},
    "scattered padding": lambda case: {"key_padding_mask": scattered(*padding(case).shape)},
    "padding and pairs": lambda case: {
        "key_padding_mask": padding(case),
        "attn_mask": scattered(case.num_queries, case.num_keys),
    },
    "padding and pairs per head": lambda case: {
        "key_padding_mask": added(padding(case), case.dtype),
        "attn_mask": added(pairs_per_head(case), case.dtype),
    },
    "causal hint": lambda case: {"attn_mask": causal(case), "is_causal": True},
    "causal hint and padding": lambda case: {
        "key_padding_mask": minus_infinity(padding(case), case.dtype),
        "attn_mask": minus_infinity(causal(case), case.dtype),
        "is_causal": True,
    },
}


def blocked_sequence(case: Case) -> Tensor:
    """Padding that hides all of the last sequence."""
    blocked = padding(case)
    blocked[-1 if blocked.dim() == 2 else slice(None)] = True
    return blocked


def blocked_row(blocked: Tensor, *place: int) -> Tensor:
    """The mask with one row all blocked."""
    blocked[place] = True
    return blocked


EMPTYING: dict[str, Callable[[Case], Call]] = {
    "blocked sequence": lambda case: {"key_padding_mask": blocked_sequence(case)},
    "blocked sequence as bias": lambda case: {
        "key_padding_mask": minus_infinity(blocked_sequence(case), case.dtype)
    },
    "blocked query": lambda case: {
        "attn_mask": blocked_row(scattered(case.num_queries, case.num_keys), 3)
    },
    "blocked query of one head": lambda case: {
        "attn_mask": blocked_row(pairs_per_head(case), 1, 3)
    },
    "causal with left padding": lambda case: {
        "key_padding_mask": padding(case).flip(-1),
        "attn_mask": causal(case),
    },
    "hinted causal with left padding": lambda case: {
        "key_padding_mask": padding(case).flip(-1),
        "attn_mask": causal(case),
        "is_causal": True,
    },
}
"""Masks that leave some query without a key."""


def noise(like: Tensor) -> Tensor:
    """Fixed weights for a result's entries, so that every gradient differs."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.dtype)


def results(compute: Attention, inputs: Inputs, call: Call) -> dict[str, Tensor]:
    """Results of a layer, or of a function like one, by name."""
    output, weights = compute(*inputs, **call)
    assert (weights is None) == (call.get("need_weights") is False)
    return {"output": output} if weights is None else {"output": output, "weights": weights}


def with_gradients(
    compute: Attention, sources: dict[str, Tensor], inputs: Inputs, call: Call
) -> dict[str, Tensor]:
    """Results, and their gradients for the inputs and for other sources."""
    leaves = {id(tokens): tokens.clone().requires_grad_() for tokens in inputs}
    found = results(compute, [leaves[id(tokens)] for tokens in inputs], call)
    loss = sum(((result * noise(result)).sum() for result in found.values()), torch.zeros(()))
    sources = sources | {f"input {place}": leaf for place, leaf in enumerate(leaves.values())}
    parts = torch.autograd.grad(loss, list(sources.values()))
    return found | {f"gradient of {name}": part for name, part in zip(sources, parts, strict=True)}


def all_of(layer: nn.MultiheadAttention, inputs: Inputs, call: Call) -> dict[str, Tensor]:
    """Results of the layer, and their gradients for every input and parameter."""
    return with_gradients(layer, dict(layer.named_parameters()), inputs, call)


def assert_all_same(got: dict[str, Tensor], want: dict[str, Tensor], case: Case) -> None:
    """Both have the same names, with equal numbers and dtypes."""
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].dtype == want[name].dtype, name
        assert_same(got[name], want[name], roundings=case.roundings, name=name)
