"""Caches as laws: a sequence in pieces is the sequence at once, whatever the pieces."""

import math
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from headwise import (
    Alibi,
    FixedCache,
    GrowingCache,
    MultiHeadAttention,
    RelativeBias,
    RollingCache,
    Rotary,
)
from headwise.attention.cache import KeyValueCache
from headwise.errors import CacheError, OptionError

from .tolerance import assert_same

BATCH, POSITIONS, D_MODEL = 2, 13, 12
WINDOW = 3

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"position": Rotary()},
    "alibi": {"position": Alibi()},
    "relative bias": {"position": RelativeBias(num_buckets=4, max_distance=5)},
    "grouped": {"num_kv_heads": 1, "d_value": 5},
    "sinks": {"sinks": True},
    "softcap": {"softcap": 1.5},
    "norms": {"qk_norm": True},
}

CACHES: dict[str, Callable[[], KeyValueCache]] = {
    "growing": GrowingCache,
    "fixed": lambda: FixedCache(POSITIONS),
    "rolling": lambda: RollingCache(WINDOW),
}
"""A rolling cache serves layers with a window, the others serve every layer."""


def make_layer(name: str, *, window: int | None = None) -> MultiHeadAttention:
    """A causal layer in float64, every parameter random."""
    layer = MultiHeadAttention(
        D_MODEL, 3, is_causal=True, window=window, **LAYERS[name], dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=D_MODEL**-0.5)
    return layer


def some_x(positions: int = POSITIONS) -> Tensor:
    return torch.randn(BATCH, positions, D_MODEL, dtype=torch.float64)


def in_pieces(
    layer: MultiHeadAttention, x: Tensor, sizes: Sequence[int], cache: KeyValueCache
) -> Tensor:
    """The layer's outputs on consecutive pieces of `x`, joined."""
    assert sum(sizes) == x.shape[1]
    return torch.cat([layer(piece, cache=cache) for piece in x.split(list(sizes), 1)], 1)


def assert_same_rows(got: Tensor, want: Tensor, *, dtype: torch.dtype = torch.float64) -> None:
    """Equal except for the order in which the keys were added up."""
    assert_same(got, want, roundings=4 * D_MODEL + POSITIONS, dtype=dtype)


@st.composite
def splits(draw: st.DrawFn, total: int = POSITIONS) -> list[int]:
    """Sizes of consecutive pieces, 1 to all of `total`."""
    cuts = sorted(draw(st.sets(st.integers(1, total - 1))))
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]


@pytest.mark.parametrize("cache_name", CACHES)
@pytest.mark.parametrize("layer_name", LAYERS)
@settings(max_examples=10)
@given(
    sizes=splits(),
    window=st.sampled_from([WINDOW, WINDOW - 1, None]),
    has_gradients=st.booleans(),
)
def test_pieces_in_any_split_equal_the_whole(
    cache_name: str, layer_name: str, sizes: list[int], window: int | None, has_gradients: bool
) -> None:
    if cache_name == "rolling":
        window = window or WINDOW
    layer, x = make_layer(layer_name, window=window), some_x()
    cache = CACHES[cache_name]()
    with torch.set_grad_enabled(has_gradients):
        pieces = in_pieces(layer, x, sizes, cache)
    assert cache.seen == POSITIONS
    assert_same_rows(pieces, layer(x))


@pytest.mark.parametrize("cache_name", CACHES)
@settings(max_examples=30)
@given(sizes=splits(), layer_name=st.sampled_from(sorted(LAYERS)))
def test_gradients_through_pieces_equal_those_of_the_whole(
    cache_name: str, layer_name: str, sizes: list[int]
) -> None:
    layer = make_layer(layer_name, window=WINDOW if cache_name == "rolling" else None)
    assert_same_gradients(layer, sizes, CACHES[cache_name]())


@pytest.mark.parametrize("cache_name", CACHES)
@pytest.mark.parametrize("frozen", [("Wk", "Wv"), ("Wq", "Wo")])
def test_a_partly_frozen_layer_trains_through_pieces(
    cache_name: str, frozen: tuple[str, ...]
) -> None:
    layer = make_layer("plain", window=WINDOW if cache_name == "rolling" else None)
    for name in frozen:
        layer.get_submodule(name).requires_grad_(False)
    assert_same_gradients(layer, [2, 1, 1, 9], CACHES[cache_name]())


def assert_same_gradients(
    layer: MultiHeadAttention, sizes: list[int], cache: KeyValueCache
) -> None:
    """Every parameter has the gradient that one call on the whole sequence gives it."""
    learned = {name: leaf for name, leaf in layer.named_parameters() if leaf.requires_grad}
    x, seen_from = some_x(), some_x()

    def gradients(output: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((output * seen_from).sum(), list(learned.values()))

    whole = gradients(layer(x))
    pieces = gradients(in_pieces(layer, x, sizes, cache))
    for name, got, want in zip(learned, pieces, whole, strict=True):
        roundings = 8 * D_MODEL + BATCH * POSITIONS * layer.num_heads
        assert_same(got, want, roundings=roundings, name=name)


def test_gradients_that_miss_a_piece_are_noticed() -> None:
    class Detached(GrowingCache):
        def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            self.keys = None if self.keys is None else self.keys.detach()
            return super().append(keys, values)

    with pytest.raises(AssertionError, match=r"Wk\.weight: largest difference"):
        assert_same_gradients(make_layer("plain"), [5, 8], Detached())


@settings(max_examples=20)
@given(sizes=splits(), is_grown=st.booleans())
def test_a_mask_over_all_keys_applies_to_pieces_too(sizes: list[int], is_grown: bool) -> None:
    layer, x = make_layer("grouped"), some_x()
    mask = torch.rand(BATCH, 1, POSITIONS, POSITIONS) < 0.7
    cache = CACHES["growing" if is_grown else "fixed"]()
    outputs, seen = [], 0
    for piece in x.split(sizes, 1):
        end = seen + piece.shape[1]
        outputs.append(layer(piece, cache=cache, mask=mask[:, :, seen:end, :end]))
        seen = end
    assert_same_rows(torch.cat(outputs, 1), layer(x, mask=mask))


def test_weights_of_a_new_token_are_the_last_row_of_all() -> None:
    layer, x, cache = make_layer("rotary"), some_x(), GrowingCache()
    layer(x[:, :-1], cache=cache)
    _, step = layer(x[:, -1:], cache=cache, need_weights=True)
    _, whole = layer(x, need_weights=True)
    assert_same_rows(step, whole[:, :, -1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pieces_equal_the_whole_in_lower_precision(dtype: torch.dtype) -> None:
    layer, x = make_layer("rotary").to(dtype), some_x().to(dtype)
    with torch.no_grad():
        pieces = in_pieces(layer, x, [5, 1, 1, 6], GrowingCache())
        assert_same_rows(pieces, layer(x), dtype=dtype)


@pytest.mark.parametrize("cache_name", CACHES)
@settings(max_examples=15)
@given(data=st.data())
def test_cropping_then_appending_again_equals_never_having_appended(
    cache_name: str, data: st.DataObject
) -> None:
    window = WINDOW if cache_name == "rolling" else None
    layer, x, cache = make_layer("rotary", window=window), some_x(), CACHES[cache_name]()
    accepted = data.draw(st.integers(WINDOW, POSITIONS - 1))
    guessed = data.draw(st.integers(1, POSITIONS - accepted))
    with torch.set_grad_enabled(data.draw(st.booleans())):
        layer(x[:, :accepted], cache=cache)
        layer(some_x(guessed), cache=cache)  # a guess that is rejected
        cache.crop(accepted)
        assert cache.seen == accepted
        rest = layer(x[:, accepted:], cache=cache)
    assert_same_rows(rest, layer(x)[:, accepted:])


def test_cropping_to_the_current_length_changes_nothing() -> None:
    cache = filled(GrowingCache(), 5)
    before = cache.keys[:, :, :5].clone()
    cache.crop(5)
    assert (cache.seen, len(cache)) == (5, 5)
    assert torch.equal(cache.keys[:, :, :5], before)


@pytest.mark.parametrize("cache_name", CACHES)
def test_reordering_takes_each_sequence_with_its_past(cache_name: str) -> None:
    layer = make_layer("plain", window=WINDOW if cache_name == "rolling" else None)
    x, cache = some_x(), CACHES[cache_name]()
    rows = torch.tensor([1, 1])
    with torch.no_grad():
        layer(x[:, :7], cache=cache)
        cache.reorder(rows)
        rest = layer(x[:, 7:], cache=cache)
        expected = layer(torch.cat([x[rows, :7], x[:, 7:]], 1))[:, 7:]
    assert_same_rows(rest, expected)


def test_reordering_an_empty_cache_changes_nothing() -> None:
    cache = GrowingCache()
    cache.reorder(torch.tensor([1, 0]))
    assert (cache.seen, cache.keys) == (0, None)


@pytest.mark.parametrize("cache_name", CACHES)
@pytest.mark.parametrize("has_gradients", [True, False])
def test_reset_cache_equals_a_new_one(cache_name: str, has_gradients: bool) -> None:
    layer = make_layer("rotary", window=WINDOW if cache_name == "rolling" else None)
    x, cache = some_x(), CACHES[cache_name]()
    with torch.set_grad_enabled(has_gradients):
        layer(some_x(), cache=cache).sum()
        cache.reset()
        assert (cache.seen, len(cache)) == (0, 0)
        again = in_pieces(layer, x, [9, 4], cache)
    assert_same_rows(again, layer(x))


@pytest.mark.parametrize("cache_name", CACHES)
def test_a_reset_cache_frees_its_graph(cache_name: str) -> None:
    layer = make_layer("plain", window=WINDOW if cache_name == "rolling" else None)
    x, cache = some_x(), CACHES[cache_name]()
    for _ in range(2):  # two training steps, one cache
        cache.reset()
        layer.zero_grad()
        layer(x, cache=cache).sum().backward()
    trained = layer.Wk.weight.grad.clone()
    layer.zero_grad()
    layer(x).sum().backward()
    assert_same_rows(trained, layer.Wk.weight.grad)


def test_a_reset_keeps_the_memory() -> None:
    cache = filled(FixedCache(7), 5)
    place = cache.keys.data_ptr()
    cache.reset()
    append(cache, 6)
    assert cache.keys.data_ptr() == place


def append(cache: KeyValueCache, positions: int, **options: Any) -> tuple[Tensor, Tensor]:
    """Random keys 5 wide and values 7 wide, two sequences and three KV heads."""
    keys = torch.randn(2, 3, positions, 5, **options)
    values = torch.randn(2, 3, positions, 7, **options)
    with torch.no_grad():
        return cache.append(keys, values)


def filled(cache: KeyValueCache, positions: int) -> KeyValueCache:
    append(cache, positions)
    return cache


@pytest.mark.parametrize("cache_name", CACHES)
@pytest.mark.parametrize("has_gradients", [True, False])
def test_cache_returns_the_appended_keys_and_values(cache_name: str, has_gradients: bool) -> None:
    cache = CACHES[cache_name]()
    keys, values = torch.randn(2, 3, POSITIONS, 5), torch.randn(2, 3, POSITIONS, 7)
    for end in range(1, POSITIONS + 1):
        with torch.set_grad_enabled(has_gradients):
            cached = cache.append(keys[:, :, end - 1 : end], values[:, :, end - 1 : end])
        first = max(0, end - WINDOW) if cache_name == "rolling" else 0
        assert torch.equal(cached[0], keys[:, :, first:end])
        assert torch.equal(cached[1], values[:, :, first:end])


@pytest.mark.parametrize("prefill", [1, 100])
def test_a_growing_cache_moves_a_logarithmic_number_of_times(prefill: int) -> None:
    cache, places, steps = filled(GrowingCache(), prefill), [], 2000
    for _ in range(steps):
        keys, _ = append(cache, 1)
        places.append(keys.data_ptr())
    moves = sum(here != there for here, there in pairwise(places))
    assert 1 <= moves <= math.log2(prefill + steps)
    assert cache.keys.shape[2] <= 2 * (prefill + steps)


def test_fixed_cache_allocates_its_memory_once() -> None:
    cache = FixedCache(101)
    places = {append(cache, 1)[0].data_ptr() for _ in range(101)}
    assert len(places) == 1
    assert cache.keys.shape[2] == 101


def test_a_rolling_caches_memory_does_not_grow_with_the_text() -> None:
    cache, places = RollingCache(11), []
    for _ in range(500):
        append(cache, 1)
        places.append(cache.keys.data_ptr())
        assert cache.keys.shape[2] <= 2 * 11
    moves = sum(here != there for here, there in pairwise(places))
    assert moves <= 500 / 11 + 1  # once per window
    assert cache.seen == 500


def test_rolling_cache_frees_a_long_prefill() -> None:
    cache = filled(RollingCache(3), 100)
    keys, values = append(cache, 2)
    assert keys.shape[2] == values.shape[2] == 2 + 2
    assert cache.keys.shape[2] < 100


def test_a_full_fixed_cache_raises_and_stays_as_it_was() -> None:
    cache = filled(FixedCache(7), 5)
    before = cache.keys.clone()
    with pytest.raises(CacheError, match=r"7 positions.* 5.* 3 more"):
        append(cache, 3)
    assert (cache.seen, len(cache)) == (5, 5)
    assert torch.equal(cache.keys[:, :, :5], before[:, :, :5])
    append(cache, 2)


def test_prefill_larger_than_a_fixed_cache_raises() -> None:
    with pytest.raises(CacheError, match=r"7 positions.* 0.* 8 more"):
        append(FixedCache(7), 8)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4, 3, 1, 5), (4, 3, 1, 7)), r"keys \[2, 3, 6, 5\] .*\[4, 3, 1, 5\]"),
        (((2, 1, 1, 5), (2, 1, 1, 7)), r"keys \[2, 3, 6, 5\] .*\[2, 1, 1, 5\]"),
        (((2, 3, 1, 6), (2, 3, 1, 7)), r"keys \[2, 3, 6, 5\] .*\[2, 3, 1, 6\]"),
        (((2, 3, 1, 5), (2, 3, 1, 8)), r"values \[2, 3, 6, 7\] .*\[2, 3, 1, 8\]"),
    ],
)
@pytest.mark.parametrize("cache_name", CACHES)
def test_keys_of_another_batch_or_layer_raise(
    cache_name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], message: str
) -> None:
    cache = filled(CACHES[cache_name](), 2 * WINDOW)  # a rolling cache has to move at the next step
    keys, values = (torch.zeros(shape) for shape in shapes)
    with torch.no_grad(), pytest.raises(CacheError, match=message):
        cache.append(keys, values)
    assert (cache.seen, len(cache)) == (2 * WINDOW, 2 * WINDOW)


def test_keys_of_another_dtype_raise() -> None:
    cache = filled(GrowingCache(), 3)
    words = r"torch\.float32 on cpu.*\[2, 3, 1, 5\] torch\.float64 on cpu"
    with pytest.raises(CacheError, match=words):
        append(cache, 1, dtype=torch.float64)


@pytest.mark.parametrize("length", [-1, 6])
def test_cropping_beyond_the_cached_positions_raises(length: int) -> None:
    cache = filled(GrowingCache(), 5)
    message = rf"{length}.*5 of 5.*0\.\.5"
    with pytest.raises(CacheError, match=message):
        cache.crop(length)
    assert len(cache) == 5


def test_a_rolling_cache_cannot_crop_into_positions_it_removed() -> None:
    cache = filled(RollingCache(4), 3)
    for _ in range(20):
        append(cache, 1)
    forgotten = cache.seen - len(cache)
    assert forgotten > 0
    length = forgotten + 2  # one less than the three that a window of 4 looks back
    message = f"{length}.*window of 4"
    with pytest.raises(CacheError, match=message):
        cache.crop(length)
    with pytest.raises(CacheError, match=rf"24.*{forgotten}\.\.23"):
        cache.crop(24)
    cache.crop(length + 1)
    assert cache.seen == length + 1


@pytest.mark.parametrize("size", [0, -3])
def test_caches_without_room_raise(size: int) -> None:
    with pytest.raises(OptionError, match=f"capacity.*{size}.* 1"):
        FixedCache(size)
    with pytest.raises(OptionError, match=f"window.*{size}.* 1"):
        RollingCache(size)


@pytest.mark.parametrize(("window", "reach"), [(None, "all"), (4, "4")])
def test_rolling_cache_too_small_for_the_layer_raises(window: int | None, reach: str) -> None:
    layer = make_layer("plain", window=window)
    message = f"window of {WINDOW}.* {reach} positions"
    with pytest.raises(CacheError, match=message):
        layer(some_x(), cache=RollingCache(WINDOW))


def test_a_cache_takes_no_context_and_no_lengths() -> None:
    layer, x = make_layer("plain"), some_x()
    with pytest.raises(OptionError, match=r"lengths.*is_causal.*window.*position"):
        layer(x, x, lengths=torch.tensor([3, 13]))
    with pytest.raises(OptionError, match=r"cache.*context"):
        layer(x, x, cache=GrowingCache())
    with pytest.raises(OptionError, match=r"lengths.*cache.*mask"):
        layer(x, lengths=torch.tensor([3, 13]), cache=GrowingCache())


def test_left_padding_with_a_mask_leaves_no_trace() -> None:
    layer, x, cache = make_layer("plain"), some_x(), GrowingCache()
    padding = torch.tensor([4, 0])
    real = torch.arange(POSITIONS) >= padding[:, None]
    outputs = []
    for end in range(1, POSITIONS + 1):
        outputs.append(layer(x[:, end - 1 : end], cache=cache, mask=real[:, None, :end]))
    assert_same_rows(torch.cat(outputs, 1)[:1, 4:], layer(x[:1, 4:]))


@pytest.mark.parametrize("cache_name", CACHES)
def test_a_reset_cache_takes_another_batch_and_another_layer(cache_name: str) -> None:
    cache, x = CACHES[cache_name](), some_x()
    for width, batch in ((3, 2), (4, 1)):
        layer = MultiHeadAttention(D_MODEL, 3, d_key=width, is_causal=True, window=WINDOW).double()
        with torch.no_grad():
            assert_same_rows(in_pieces(layer, x[:batch], [6, 7], cache), layer(x[:batch]))
        cache.reset()


@pytest.mark.parametrize("cache_name", CACHES)
def test_a_cache_that_was_reordered_in_inference_can_be_written_to_afterwards(
    cache_name: str,
) -> None:
    layer, x, cache = make_layer("plain", window=WINDOW), some_x(), CACHES[cache_name]()
    with torch.inference_mode():
        layer(x[:, :4], cache=cache)
        cache.reorder(torch.tensor([1, 0]))
    with torch.no_grad():
        got = layer(x.flip(0)[:, 4:], cache=cache)
        assert_same_rows(got, layer(x.flip(0))[:, 4:])


def test_reordering_without_gradients_records_none() -> None:
    cache = filled(GrowingCache(), 3)
    assert cache.keys is not None
    cache.keys.requires_grad_()
    with torch.no_grad():
        cache.reorder(torch.tensor([1, 0]))
    assert not cache.keys.requires_grad


def test_a_cache_serves_one_layer() -> None:
    first, second, x, cache = make_layer("plain"), make_layer("plain"), some_x(), GrowingCache()
    first(x, cache=cache)
    message = "13 positions.*layer"
    with pytest.raises(CacheError, match=message):
        second(x, cache=cache)
    assert len(cache) == POSITIONS
    twin = pickle.loads(pickle.dumps(cache))
    second(x, cache=twin)
    cache.reset()
    second(x, cache=cache)
