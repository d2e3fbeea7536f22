"""Parts of maps, merged, weighted or reduced, equal those of the whole weight matrix."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from headwise.attention.attend import attend_in_steps
from headwise.errors import OptionError
from headwise.explorer import maps
from headwise.explorer.api_requests import BarsQuery
from headwise.explorer.maps import (
    STEPS,
    MapOptions,
    as_steps,
    fits_at_once,
    map_axes,
    map_bars,
    map_cells,
    map_row,
    map_weights,
    reduce_maps,
    stack_axes,
    stack_layers,
    stack_weights,
    thumbnails,
)
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId
from headwise.watching.calls import AttentionCall

from ..watching.helpers import allow_weights
from .sessions import WORDS, animal, cat, tiny_session

pytestmark = allow_weights
FAMILIES = ("bert", "llama", "gpt2", "gpt_oss", "gemma2", "bloom")
ALL = slice(0, 1000)


def whole(reading: TextAnalysis, layer: str) -> torch.Tensor:
    return reading.call(layer).weights()[0].float()


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.shape == want.shape
    torch.testing.assert_close(got.float(), want.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_any_part_of_a_map_equals_that_part_of_the_weights(name: str) -> None:
    reading = tiny_session(name).read(WORDS)
    for layer in reading.calls:
        want = whole(reading, layer)
        close(map_weights(reading, layer, MapOptions(), ALL, ALL), want)
        part = map_weights(reading, layer, MapOptions(), slice(2, 7), slice(1, 4))
        close(part, want[:, 2:7, 1:4])
        for head in range(len(want)):
            alone = map_weights(reading, layer, MapOptions(), slice(2, 7), ALL, head=head)
            close(alone, want[head : head + 1, 2:7])


def precise(reading: TextAnalysis, layer: str) -> torch.Tensor:
    """All weights of a layer in float64, from its queries, keys and rules."""
    call = reading.call(layer)
    assert isinstance(call, AttentionCall)
    tensors = (call.queries, call.keys, call.values)
    return attend_in_steps(*(tensor.double() for tensor in tensors), rules=call.rules).weights[0]


def by_word(weights: torch.Tensor, groups: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    """Rows of each word's pieces averaged, and their keys added, one word after the other."""
    rows = torch.stack([weights[:, list(group)].mean(1) for group in groups], 1)
    return torch.stack([rows[:, :, list(group)].sum(2) for group in groups], 2)


def without_first(weights: torch.Tensor) -> torch.Tensor:
    rest = weights.clone()
    rest[:, :, 0] = 0
    sums = rest.sum(-1, keepdim=True)
    return rest / sums.where(sums > 1e-6, 1)


def valued(weights: torch.Tensor, reading: TextAnalysis, layer: str) -> torch.Tensor:
    call = reading.call(layer)
    parts = call.output_weight.double().unflatten(0, (call.num_heads, -1))
    added = (call.values[0].double() @ parts).norm(dim=-1)
    weighed = weights * added[:, None]
    return weighed / weighed.sum(-1, keepdim=True)


@pytest.mark.parametrize("make", [cat, animal])
@pytest.mark.parametrize("is_by_word", [False, True])
@pytest.mark.parametrize("drops_sink", [False, True])
@pytest.mark.parametrize("is_valued", [False, True])
def test_maps_equal_a_reference_in_float64(
    make: Callable[[], TextAnalysis], is_by_word: bool, drops_sink: bool, is_valued: bool
) -> None:
    reading, options = make(), MapOptions(is_by_word, drops_sink, is_valued)
    for layer in ("L0", "L3"):
        want = precise(reading, layer)
        if drops_sink:
            want = without_first(want)
        if is_valued:
            want = valued(want, reading, layer)
        if is_by_word:
            want = by_word(want, reading.stage.groups)
        got = map_weights(reading, layer, options, ALL, ALL)
        close(got, want)
        close(map_weights(reading, layer, options, slice(3, 9), slice(5, 8)), want[:, 3:9, 5:8])
        if not drops_sink:  # a row may have nothing but its first key
            torch.testing.assert_close(got.sum(-1), torch.ones_like(got[..., 0]))


def test_rows_and_columns_are_words_with_special_tokens() -> None:
    axes = map_axes(cat(), "L2", MapOptions(is_by_word=True))
    assert axes[0] == axes[1] and len(axes[0]) < len(cat().stage.pieces)
    texts = [word.text for word in axes[0].words]
    assert "unbelievably" in texts and texts[0] == "[CLS]" and texts[-1] == "[SEP]"
    assert stack_axes(cat(), "L2").words.columns is None


def test_a_text_of_only_special_tokens_has_special_words() -> None:
    axes = stack_axes(tiny_session("bert").read("[CLS] [SEP] [CLS]"), "L0")
    for axis in (axes.words, axes.pieces):
        assert [word.kind for word in axis.rows] == ["special"] * 3


def test_cross_attention_has_rows_and_columns_of_its_own() -> None:
    for name in ("bart", "t5"):
        reading = tiny_session(name).read(WORDS)
        stacks = {call.stack: stack_axes(reading, layer) for layer, call in reading.calls.items()}
        assert set(stacks) == {"encoder", "decoder", "cross"}
        assert stacks["cross"].words.columns == stacks["encoder"].words.rows
        assert stacks["encoder"].words.columns is stacks["decoder"].words.columns is None


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_all_weights_of_a_stack_are_its_layers_in_order(name: str) -> None:
    reading = tiny_session(name).read(WORDS)
    for stack in ("encoder", "decoder", "cross"):
        layers = stack_layers(reading, stack)
        want = torch.cat([map_weights(reading, each, MapOptions(), ALL, ALL) for each in layers])
        assert torch.equal(stack_weights(reading, stack, MapOptions()), want)


def test_a_row_and_a_column_are_parts_of_the_map() -> None:
    options, head = MapOptions(is_by_word=True), HeadId(3, 1)
    want = map_weights(animal(), "L3", options, ALL, ALL, head=1)[0]
    close(map_row(animal(), head, options, 8), want[8])
    close(map_row(animal(), head, options, 8, by=True), want[:, 8])
    with pytest.raises(OptionError, match=r"at is 14.* 0\.\.13"):
        map_row(animal(), head, options, 14)


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("size", [8, 64])
def test_bars_have_the_largest_share_of_every_block(by: bool, size: int) -> None:
    options = MapOptions(is_by_word=True)
    bars = map_bars(animal(), options, BarsQuery(at=8, size=size, by=by)) / 255
    whole_maps = stack_weights(animal(), "", options)
    rows = whole_maps[:, :, 8] if by else whole_maps[:, 8]
    width = -(-rows.shape[1] // size)
    want = torch.stack([part.amax(1) for part in rows.split(width, 1)], 1)
    assert bars.shape == want.shape and np.abs(bars - want.numpy()).max() <= 0.51 / 255


def test_weights_of_a_long_text_are_not_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits_at_once(animal())
    monkeypatch.setattr(maps, "MAX_SMALL", 72 * 16 * 16 - 1)
    assert not fits_at_once(animal())
    with pytest.raises(OptionError, match=r"18,432.* 18,431"):
        stack_weights(animal(), "", MapOptions())
    assert stack_weights(animal(), "", MapOptions(is_by_word=True)).shape == (72, 14, 14)
    with pytest.raises(OptionError, match="stack is 'other'"):
        stack_weights(animal(), "other", MapOptions())


@pytest.mark.parametrize("most", [3, 4, 7, 100])
def test_a_reduced_map_has_the_maximum_of_every_block(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "AT_ONCE", 12 * 17 * 2)  # several pieces
    reading = cat()
    want = whole(reading, "L3")
    size = want.shape[1]
    step = -(-size // most)
    got = reduce_maps(reading, "L3", MapOptions(), most)
    count = -(-size // step)
    assert got.shape == (12, count, count) and count <= most
    for row in range(count):
        for column in range(count):
            block = want[:, row * step : (row + 1) * step, column * step : (column + 1) * step]
            close(got[:, row, column], block.amax((1, 2)))


@pytest.mark.parametrize(
    ("most", "looked_at", "step"), [(2, 4, 2), (2, 3, 3), (4, 2, 2), (17, 2, 1)]
)
def test_a_small_map_looks_at_some_rows_of_every_block(
    most: int, looked_at: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "AT_ONCE", 12 * 17 * 2)  # several pieces
    want = whole(cat(), "L3")
    size = -(-want.shape[1] // most)
    tall = -(-size // step) * step
    got = reduce_maps(cat(), "L3", MapOptions(), most, sampled_rows=looked_at)
    assert got.shape == (12, -(-want.shape[1] // tall), -(-want.shape[2] // size))
    for row in range(got.shape[1]):
        for column in range(got.shape[2]):
            rows = slice(row * tall, (row + 1) * tall, step)
            block = want[:, rows, column * size : (column + 1) * size]
            close(got[:, row, column], block.amax((1, 2)))


def test_cells_and_thumbnails_lose_no_more_than_half_a_step() -> None:
    for options in (MapOptions(), MapOptions(is_valued=True)):
        weights = map_weights(cat(), "L3", options, ALL, ALL, head=1)[0].numpy()
        cells = map_cells(cat(), HeadId(3, 1), options)
        steps = np.frombuffer(as_steps(cells), "<u2").reshape(cells.shape)
        assert np.abs(steps / STEPS - weights).max() <= 0.5001 / STEPS
    roots = whole(cat(), "L3").sqrt().numpy()
    small = thumbnails(cat(), "L3", MapOptions(), 100)
    assert np.abs(small / 255 - roots).max() <= 0.5001 / 255


def test_missing_values_layers_and_words_raise_an_error() -> None:
    reading = tiny_session("bloom").read(WORDS)
    with pytest.raises(OptionError, match=r"L0\b.*values"):
        map_weights(reading, "L0", MapOptions(is_valued=True), ALL, ALL)
    with pytest.raises(OptionError, match="L9"):
        map_weights(reading, "L9", MapOptions(), ALL, ALL)
    bare = replace(reading, stage=replace(reading.stage, words=(), groups=()))
    with pytest.raises(OptionError, match="words"):
        map_axes(bare, "L0", MapOptions(is_by_word=True))
    assert stack_axes(bare, "L0").words is None
