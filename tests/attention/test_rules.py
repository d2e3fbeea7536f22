"""Rules and the computation they become: error messages, and which keys a query may see."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, strategies as st
from torch import Tensor, nn

from headwise.attention.attend import attend, attend_in_steps, attend_with_lse, explain_path
from headwise.attention.bias import bias_tile
from headwise.attention.prepare import Computation, check_qkv
from headwise.attention.reference import bias_by_definition
from headwise.attention.rules import Band, Rules, as_4d_mask
from headwise.errors import MaskError, OptionError, ShapeError

from .problems import Problem, dense_bias, problems
from .tolerance import assert_same

BIASED = ("is_causal", "window", "offset", "mask", "slopes", "distance_bias")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"softcap": 0.0}, r"softcap.* 0\.0"),
        ({"softcap": -2.5}, r"softcap.*-2\.5"),
        ({"softcap": math.nan}, "softcap.*nan"),
        ({"softcap": math.inf}, "softcap.*inf.*None"),
        ({"window": [3, 1]}, r"window.*\[3, 1\]"),
        ({"window": 2.5}, r"window.*2\.5"),
        ({"window": (1, 2, 3)}, r"window.*\(1, 2, 3\)"),
        ({"slopes": torch.ones(1, 6)}, r"slopes.*\[1, 6\].*\[heads\]"),
        ({"sinks": torch.ones(6, 1)}, r"sinks.*\[6, 1\].*\[heads\]"),
        ({"distance_bias": torch.ones(5)}, r"distance_bias.*\[5\].*\[heads, distances\]"),
        ({"lengths": [3, 5]}, r"lengths.*\[3, 5\].*integer"),
        ({"lengths": torch.ones(2)}, r"lengths.*torch\.float32.*integer"),
        ({"query_lengths": torch.ones(2) > 0}, r"query_lengths.*torch\.bool.*integer"),
        ({"offset": 1.5}, r"offset.*1\.5.*integer"),
        ({"scale": torch.tensor(0.5)}, "scale.*Tensor"),
        ({"scale": nn.Parameter(torch.tensor(0.5))}, "scale.*Parameter"),
        ({"dropout": 1.0}, r"dropout.*1\.0.*\[0, 1\)"),
        ({"dropout": -0.1}, r"dropout.*-0\.1.*\[0, 1\)"),
        ({"distance_bias": torch.zeros(3, 4)}, "distance_bias.* 4 .*odd"),
        ({"window": 0}, "window.* 0"),
        ({"window": -3}, "window.*-3"),
        ({"window": (2, -1)}, r"window.*\(2, -1\).*\(before, after\)"),
        ({"window": (-4, None)}, r"window.*\(-4, None\).*\(before, after\)"),
    ],
)
def test_impossible_rules_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Rules(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "bounds", "causal_bounds"),
    [
        (None, (None, None), (None, 0)),
        (1, (0, 0), (0, 0)),
        (256, (255, 255), (255, 0)),
        ((4, 2), (4, 2), (4, 0)),
        ((None, 2), (None, 2), (None, 0)),
        ((0, None), (0, None), (0, 0)),
    ],
)
def test_a_window_bounds_both_sides(
    window: int | tuple[int | None, int | None] | None,
    bounds: tuple[int | None, int | None],
    causal_bounds: tuple[int | None, int | None],
) -> None:
    assert Rules(window=window).bounds == bounds
    assert Rules(window=window, is_causal=True).bounds == causal_bounds


def test_rules_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="is_causal"):
        Rules().is_causal = True  # type: ignore[misc]


@pytest.mark.parametrize("axes", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
def test_masks_get_four_axes_and_keep_their_meaning(axes: int, dtype: torch.dtype) -> None:
    mask = (torch.arange(24).reshape(2, 3, 4) % 3)[None] != 0
    mask = mask[(0,) * (4 - axes)] if axes < 4 else mask
    result = as_4d_mask(mask.to(dtype))
    shape = {2: (1, 1, 3, 4), 3: (2, 1, 3, 4), 4: (1, 2, 3, 4)}[axes]
    assert result.dtype == (dtype if dtype.is_floating_point else torch.bool)
    assert torch.equal(result, mask.reshape(shape).to(result.dtype))


@pytest.mark.parametrize("shape", [[], [7], [1, 1, 1, 5, 7]])
def test_masks_with_too_few_or_many_axes_raise(shape: list[int]) -> None:
    message = rf"mask.* {len(shape)} .*\[{', '.join(map(str, shape))}\].*\[query, key\]"
    with pytest.raises(MaskError, match=message):
        as_4d_mask(torch.ones(shape))


def tensors_of(
    queries: tuple[int, ...] = (2, 6, 5, 3),
    keys: tuple[int, ...] = (2, 3, 7, 3),
    values: tuple[int, ...] = (2, 3, 7, 4),
) -> list[Tensor]:
    return [torch.zeros(shape) for shape in (queries, keys, values)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"queries": (6, 5, 3)}, r"queries \[6, 5, 3\].*\[batch, heads, position, size\]"),
        ({"keys": (2, 3, 7, 3, 1)}, r"keys \[2, 3, 7, 3, 1\].*\[batch, heads"),
        ({"values": (7, 4)}, r"queries \[2, 6, 5, 3\], keys \[2, 3, 7, 3\], values \[7, 4\]"),
        ({"queries": (1, 6, 5, 3)}, r"queries \[1, 6, 5, 3\].* batch and d_key"),
        ({"queries": (2, 6, 5, 8)}, r"queries \[2, 6, 5, 8\].* batch and d_key"),
        ({"values": (2, 3, 9, 4)}, r"values \[2, 3, 9, 4\].* positions"),
        ({"queries": (2, 5, 5, 3)}, r"queries \[2, 5, .*5 heads .* 3 KV heads"),
        ({"keys": (2, 0, 7, 3)}, r"keys \[2, 0, 7, 3\].* 6 heads .* 0 KV heads"),
        ({"values": (2, 2, 7, 4)}, r"values \[2, 2, 7, 4\].* batch.*KV heads.* 1"),
        ({"values": (3, 3, 7, 4)}, r"values \[3, 3, 7, 4\].* batch.*KV heads.* 1"),
        ({"queries": (2, 6, 5, 0), "keys": (2, 3, 7, 0)}, r"keys \[2, 3, 7, 0\].* size 0"),
    ],
)
def test_tensors_of_shapes_that_do_not_fit_raise(
    shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        check_qkv(*tensors_of(**shapes))


def test_tensors_of_several_dtypes_raise() -> None:
    queries, keys, values = tensors_of()
    with pytest.raises(ShapeError, match=r"torch\.float32, torch\.float16, torch\.float32"):
        check_qkv(queries, keys.half(), values)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([5, 8], r"mask.*\[5, 8\].*\[batch 2, heads 6, query 5, key 7\]$"),
        ([4, 7], r"mask.*\[4, 7\].*\[batch 2, heads 6, query 5, key 7\]$"),
        ([6, 5, 7], r"mask.*\[6, 5, 7\].*\[batch 2, heads 6,"),
        ([2, 3, 5, 7], r"mask.*\[2, 3, 5, 7\].*\[batch 2, heads 6,"),
        ([2, 7], r"mask.*\[2, 7\].*mask\[:, None, :\]"),
    ],
)
def test_mask_that_does_not_fit_raises(shape: list[int], message: str) -> None:
    with pytest.raises(MaskError, match=message):
        Computation.of(*tensors_of(), Rules(mask=torch.ones(shape, dtype=torch.bool)))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(slopes=torch.ones(3)), "slopes.* 3 heads.* 6"),
        (Rules(distance_bias=torch.ones(5, 9)), "distance_bias.* 5 heads.* 6"),
    ],
)
def test_biases_for_another_number_of_heads_raise(rules: Rules, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Computation.of(*tensors_of(), rules)


@st.composite
def bands(draw: st.DrawFn) -> tuple[Band, int, int]:
    """A band, and numbers of queries and keys."""
    side = st.none() | st.integers(0, 12)
    band = Band(draw(side), draw(side), draw(st.integers(-12, 12)))
    return band, draw(st.integers(1, 9)), draw(st.integers(1, 9))


def seen(band: Band, num_queries: int, num_keys: int) -> list[list[bool]]:
    """Which keys each query sees, by the definition of a band."""
    before = math.inf if band.before is None else band.before
    after = math.inf if band.after is None else band.after
    return [
        [
            query + band.offset - before <= key <= query + band.offset + after
            for key in range(num_keys)
        ]
        for query in range(num_queries)
    ]


@given(laid=bands())
def test_a_band_shows_the_keys_from_before_to_after(laid: tuple[Band, int, int]) -> None:
    band, num_queries, num_keys = laid
    ahead = torch.arange(num_keys) - (torch.arange(num_queries) + band.offset)[:, None]
    visible = band.sees(ahead)
    assert visible.tolist() == seen(band, num_queries, num_keys)


@given(laid=bands())
def test_a_simplified_band_shows_the_same_keys_with_fewer_bounds(
    laid: tuple[Band, int, int],
) -> None:
    band, num_queries, num_keys = laid
    simple = band.simplify(num_queries, num_keys)
    shown = seen(simple, num_queries, num_keys)
    assert shown == seen(band, num_queries, num_keys)
    assert simple.is_full == all(all(row) for row in shown)
    if simple.is_causal and not simple.is_full:
        causal = [
            [key <= query + band.offset for key in range(num_keys)] for query in range(num_queries)
        ]
        assert shown == causal and band.offset >= 0


@given(laid=bands(), data=st.data())
def test_the_keys_of_some_queries_are_exactly_those_they_see(
    laid: tuple[Band, int, int], data: st.DataObject
) -> None:
    band, num_queries, num_keys = laid
    first = data.draw(st.integers(0, num_queries - 1))
    last = data.draw(st.integers(first, num_queries - 1))
    rows = seen(band, num_queries, num_keys)[first : last + 1]
    keys = [key for key in range(num_keys) if any(row[key] for row in rows)]
    low, high = band.keys_of(first, last, num_keys)
    assert 0 <= low <= high <= num_keys
    if keys or band.before is None or band.after is None:
        assert [*range(low, high)] == keys
    else:
        assert low == high


def is_shared(problem: Problem) -> bool:
    """Whether all sequences share one offset, as a computation needs."""
    return not isinstance(problem.rules.offset, Tensor)


@given(problem=problems(twists=BIASED), data=st.data())
def test_a_tile_holds_what_the_definition_adds(problem: Problem, data: st.DataObject) -> None:
    assume(is_shared(problem))
    computation = Computation.of(*problem.tensors, problem.rules)
    first = data.draw(st.integers(0, computation.num_queries))
    last = data.draw(st.integers(first, computation.num_queries))
    low = data.draw(st.integers(0, computation.num_keys))
    high = data.draw(st.integers(low, computation.num_keys))
    tile = bias_tile(computation, torch.arange(first, last), low, high)
    want = dense_bias(problem)[:, :, first:last, low:high]
    tile = torch.zeros_like(want) if tile is None else tile.expand_as(want)
    assert_same(tile, want, roundings=problem.roundings)


@given(problem=problems(twists=BIASED))
def test_only_keys_that_no_query_sees_are_dropped(problem: Problem) -> None:
    assume(is_shared(problem))
    computation = Computation.of(*problem.tensors, problem.rules)
    small = Computation.of(*problem.tensors, problem.rules, drops_hidden_keys=True)
    assume(small.num_queries > 0)
    low, high = computation.band.keys_of(0, computation.num_queries - 1, computation.num_keys)
    if computation.band.is_full:
        low, high = 0, computation.num_keys
    assert torch.equal(small.keys, computation.keys[:, :, low:high])
    assert torch.equal(small.values, computation.values[:, :, low:high])
    whole = dense_bias(problem)
    tile = bias_tile(small)
    want = whole[..., low:high]
    tile = torch.zeros_like(want) if tile is None else tile.expand_as(want)
    assert_same(tile, want, roundings=problem.roundings)
    structure = replace(problem.rules, mask=None, slopes=None, distance_bias=None)
    sizes = (computation.num_queries, computation.num_keys)
    is_seen = (bias_by_definition(structure, 0, 0, *sizes) == 0).any(0)
    assert not is_seen[:low].any() and not is_seen[high:].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_biases_by_distance_are_not_rounded_to_half_precision(dtype: torch.dtype) -> None:
    """At 3,000 positions a slope of 1/4 adds -750: half a unit, or two, if it were rounded."""
    keys = torch.zeros(1, 1, 3001, 1, dtype=dtype)
    rules = Rules(slopes=torch.tensor([0.25], dtype=dtype), offset=3000)
    tile = bias_tile(Computation.of(keys[:, :, :1], keys, keys, rules))
    assert tile is not None and tile.dtype == torch.float32
    assert_same(tile[0, 0, 0], -torch.arange(3000, -1, -1) / 4, roundings=0)


@pytest.mark.parametrize("low", [-10_000, 2])
@pytest.mark.parametrize("rules", [Rules(), Rules(lengths=torch.tensor([3, 7]))])
def test_integer_mask_with_numbers_besides_0_and_1_raises(low: int, rules: Rules) -> None:
    mask = torch.zeros(5, 7, dtype=torch.int64)
    mask[2, 3] = low
    numbers = rf"{min(low, 0)} to {max(low, 0)}"
    for function in (attend, attend_with_lse, attend_in_steps):
        with pytest.raises(MaskError, match=numbers):
            function(*tensors_of(), rules=replace(rules, mask=mask))


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 3, 1, 7)])
def test_integer_queries_raise(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"torch\.int64.* floating"):
        attend(*torch.ones(3, *shape, dtype=torch.int64))


@pytest.mark.parametrize("rules", [Rules(), Rules(lengths=torch.tensor([3, 7]))])
@pytest.mark.parametrize("axes", [0, 1, 2, 3])
def test_axes_are_checked_before_sizes_are_read(axes: int, rules: Rules) -> None:
    tensors = torch.ones(3, *(2, 3, 5)[:axes])
    for function in (attend, attend_with_lse, attend_in_steps, explain_path):
        with pytest.raises(ShapeError, match=r"\[batch, heads, position, size\]"):
            function(*tensors, rules=rules)
