"""Structured masks have the values of transformers' dense masks, and behave like them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import masking_utils
from transformers.masking_utils import sdpa_mask

from headwise.attention.attend import attend_in_steps
from headwise.watching.masks import StructuredMask, band_of, headwise_mask, real_mask

BATCH, QUERIES = 3, 7
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "causal": masking_utils.causal_mask_function,
    "bidirectional": masking_utils.bidirectional_mask_function,
    "sliding": masking_utils.sliding_window_causal_mask_function(3),
    "bidirectional sliding": masking_utils.sliding_window_bidirectional_mask_function(2),
    "sliding of one": masking_utils.sliding_window_causal_mask_function(1),
    "nested": masking_utils.and_masks(
        masking_utils.sliding_window_causal_mask_function(5),
        masking_utils.sliding_window_overlay(4),
    ),
}
UNKNOWN: dict[str, Callable[..., Any]] = {
    "chunked": masking_utils.chunked_causal_mask_function(3, torch.zeros(BATCH, dtype=torch.int64)),
    "packed": masking_utils.and_masks(
        masking_utils.causal_mask_function,
        masking_utils.packed_sequence_mask_function(torch.arange(11).expand(BATCH, 11) // 4),
    ),
    "either": masking_utils.or_masks(
        masking_utils.causal_mask_function, masking_utils.sliding_window_overlay(2)
    ),
    "offset": masking_utils.add_offsets_to_mask_function(masking_utils.causal_mask_function, 1, 0),
}
PADDING = {
    "none": None,
    "all real": torch.ones(BATCH, 11, dtype=torch.int64),
    "right": (torch.arange(11) < torch.tensor([[5], [11], [1]])).long(),
    "left": (torch.arange(11) >= torch.tensor([[5], [0], [10]])).long(),
    "holes": torch.tensor([[1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1]] * BATCH),
    "nothing real": torch.tensor([[0] * 11, [1] * 11, [0] * 11]),
    "too short": torch.ones(BATCH, 5, dtype=torch.int64),  # as with a cache of fixed size
}
PLACES = {  # q_length, kv_length, q_offset, kv_offset
    "square": (11, 11, 0, 0),
    "after a cache": (4, 11, 7, 0),
    "one step": (1, 11, 10, 0),
    "window of a cache": (3, 6, 8, 5),
    "room to come": (5, 11, 0, 0),
}


def dense_mask(function: Callable[..., Any], place: Any, padding: Tensor | None) -> Tensor:
    is_real = None if padding is None else padding.bool()
    mask = sdpa_mask(BATCH, *place, function, is_real, allow_is_causal_skip=False)
    assert mask is not None
    return mask


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_structure_allows_the_same_keys_as_the_dense_mask(
    function: Callable[..., Any], padding: Tensor | None, place: Any
) -> None:
    want = dense_mask(function, place, padding)
    mask = headwise_mask(BATCH, *place, function, padding, allow_is_causal_skip=False)
    assert isinstance(mask, StructuredMask)
    assert mask.shape == want.shape
    queries = torch.randn(BATCH, 2, place[0], 5)
    keys = torch.randn(BATCH, 2, place[1], 5)
    steps = attend_in_steps(queries, keys, keys, rules=mask.make_rules())
    assert torch.equal(steps.weights > 0, want.expand(-1, 2, -1, -1))
    assert torch.equal(mask.make_dense(), want)


@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize(
    "function",
    [
        masking_utils.causal_mask_function,
        masking_utils.bidirectional_mask_function,
        masking_utils.sliding_window_causal_mask_function(4),
        masking_utils.sliding_window_causal_mask_function(12),
    ],
)
def test_a_mask_is_left_out_where_transformers_leaves_it_out(
    function: Callable[..., Any], padding: Tensor | None, is_float: bool
) -> None:
    make = masking_utils.eager_mask if is_float else masking_utils.sdpa_mask
    window, padding = band_of(function), None if padding is None else padding.bool()
    assert window is not None
    for queries in (1, 3, 11):
        for skips in ((True, False), (False, True), (False, False)):
            if skips[0] == (function is masking_utils.bidirectional_mask_function):
                continue  # transformers does not combine these
            options: dict[str, Any] = {
                "local_size": None if window[0] is None else window[0] + 1,
                "allow_is_causal_skip": skips[0],
                "allow_is_bidirectional_skip": skips[1],
            }
            place = (BATCH, queries, 11, 11 - queries, 0, function, padding)
            want, got = make(*place, **options), headwise_mask(*place, **options, is_float=is_float)
            assert (got is None) == (want is None)
            assert want is None or torch.equal(real_mask(got), want)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("function", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_mask_functions_give_dense_masks(function: Callable[..., Any], place: Any) -> None:
    assert band_of(function) is None
    if place == PLACES["window of a cache"] and function is UNKNOWN["packed"]:
        place = (3, 6, 5, 5)
    mask = headwise_mask(BATCH, *place, function, PADDING["left"])
    assert not isinstance(mask, StructuredMask)
    assert torch.equal(mask, dense_mask(function, place, PADDING["left"]))


def test_a_function_of_the_same_name_from_elsewhere_is_unknown() -> None:
    def causal_mask_function(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key >= query

    class Callable_:
        def __call__(self, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return key >= query

    causal_mask_function.__qualname__ = "causal_mask_function"
    assert band_of(causal_mask_function) is None
    assert band_of(Callable_()) is None


def test_right_padding_becomes_lengths_and_other_padding_a_mask_of_keys() -> None:
    def rules(name: str) -> Any:
        padding = PADDING[name]
        mask = headwise_mask(BATCH, 11, 11, attention_mask=padding, allow_is_causal_skip=False)
        assert isinstance(mask, StructuredMask) and mask.make_rules is not None
        return mask.make_rules()

    assert rules("right").lengths.tolist() == [5, 11, 1]
    assert rules("right").mask is None
    assert rules("left").lengths is None
    assert rules("left").mask.shape == (BATCH, 1, 1, 11)
    assert rules("all real").lengths is rules("all real").mask is None
    assert rules("holes").lengths is None


def test_an_unused_window_of_no_keys_does_not_raise() -> None:
    function = masking_utils.sliding_window_causal_mask_function(0)  # Qwen2-MoE makes one
    mask = headwise_mask(BATCH, 11, 11, mask_function=function)
    assert isinstance(mask, StructuredMask)
    assert torch.equal(mask[:], dense_mask(function, (11, 11, 0, 0), None))


def padded_mask() -> tuple[StructuredMask, Tensor]:
    """A structured mask and the equivalent dense mask."""
    mask = headwise_mask(BATCH, 11, 11, attention_mask=PADDING["right"])
    assert isinstance(mask, StructuredMask)
    return mask, mask.make_dense()


FACTS: dict[str, Callable[[Tensor], Any]] = {
    "shape": lambda mask: mask.shape,
    "dtype": lambda mask: mask.dtype,
    "device": lambda mask: mask.device,
    "dim()": lambda mask: mask.dim(),
    "ndim": lambda mask: mask.ndim,
    "size()": lambda mask: mask.size(),
    "size(-1)": lambda mask: mask.size(-1),
    "len": len,
    "is_floating_point": lambda mask: mask.is_floating_point(),
    "requires_grad": lambda mask: mask.requires_grad,
    "is None": lambda mask: mask is None,
    "isinstance": lambda mask: isinstance(mask, Tensor),
}


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_shape_and_dtype_do_not_make_the_mask_dense(fact: Callable[[Tensor], Any]) -> None:
    mask, want = padded_mask()

    def fail() -> Tensor:
        raise AssertionError("the mask was made dense")

    mask.make_dense = fail
    assert fact(mask) == fact(want)


OPERATIONS: dict[str, Callable[[Tensor], Any]] = {
    "slice": lambda mask: mask[:, :, 2:, :7],
    "index": lambda mask: mask[1, 0],
    "ellipsis": lambda mask: mask[..., -3:],
    "add": lambda mask: mask + torch.ones(11),
    "reflected": lambda mask: 1.0 - mask.float(),
    "and": lambda mask: mask & mask.mT,
    "invert": lambda mask: ~mask,
    "to": lambda mask: mask.to(torch.float64),
    "where": lambda mask: torch.where(mask, 0.0, -1.0),
    "fill": lambda mask: torch.zeros(BATCH, 1, 11, 11).masked_fill(mask, 3.0),
    "cat": lambda mask: torch.cat([mask, mask], dim=-1),
    "stack": lambda mask: torch.stack([mask, mask.logical_not()]),
    "T": lambda mask: mask.mT,
    "data": lambda mask: mask.data,
    "clone": lambda mask: mask.clone(),
    "expand": lambda mask: mask.expand(-1, 2, -1, -1),
    "all": lambda mask: mask.all(-1),
    "keyword": lambda mask: torch.sum(input=mask, dim=(0, 3)),
    "einsum": lambda mask: torch.einsum("bhqk,bhqk->bq", mask.float(), mask.float()),
    "unbind": lambda mask: torch.cat(mask.unbind()),
    "numpy": lambda mask: torch.from_numpy(mask.numpy()),
    "list": lambda mask: torch.tensor(mask.tolist()),
    "iterate": lambda mask: torch.cat(list(mask)),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_any_operation_gets_the_dense_mask(operation: Callable[[Tensor], Tensor]) -> None:
    mask, want = padded_mask()
    got = operation(mask)
    assert type(got) is Tensor
    assert torch.equal(got, operation(want.clone()))
    assert mask.make_rules is not None


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "set item": lambda mask: mask.__setitem__((0, 0, 1), True),
    "fill in place": lambda mask: mask.masked_fill_(torch.eye(11, dtype=torch.bool), True),
    "logical in place": lambda mask: mask.logical_not_(),
    "and in place": lambda mask: mask.__iand__(torch.eye(11, dtype=torch.bool)),
    "out": lambda mask: torch.logical_not(
        torch.eye(11, dtype=torch.bool).expand(3, 1, 11, 11), out=mask
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_into_the_mask_stay(write: Callable[[Tensor], Any]) -> None:
    mask, dense = padded_mask()
    want = dense.clone()
    write(want)
    write(mask)
    assert mask.make_rules is None
    assert torch.equal(mask.make_dense(), want)
    assert torch.equal(mask[:], want)
    assert torch.equal(~mask, ~want)


def test_a_structured_mask_takes_no_memory() -> None:
    is_real = torch.ones(1, 1 << 20).index_fill(1, torch.tensor([5]), 0)
    mask = headwise_mask(1, 1 << 20, 1 << 20, attention_mask=is_real)
    assert mask is not None
    assert mask.shape == (1, 1, 1 << 20, 1 << 20)  # a terabyte
