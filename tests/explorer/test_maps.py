"""Parts of maps, merged, weighted or reduced, equal those of the whole weight matrix."""

import numpy as np
import pytest
import torch

from headwise.errors import OptionError
from headwise.explorer import maps
from headwise.explorer.maps import (
    STEPS,
    MapOptions,
    map_axes,
    map_cells,
    map_weights,
    reduce_maps,
    thumbnails,
)
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId
from headwise.tracing.maps import Maps

from ..watching.helpers import allow_weights
from .sessions import WORDS, cat, tiny_session

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


def maps_of(reading: TextAnalysis, layer: str) -> Maps:
    weights = whole(reading, layer)
    return Maps(weights, tuple(map(str, range(len(weights)))), reading.labels(layer))


def test_a_text_of_only_special_tokens_has_no_words_or_ordinary_tokens() -> None:
    reading = tiny_session("bert").read("[CLS] [SEP] [CLS]")
    for look in (MapOptions(hides_special=True), MapOptions(is_by_word=True)):
        with pytest.raises(OptionError, match="special"):
            map_weights(reading, "L0", look, ALL, ALL)


def test_words_special_tokens_and_sink_are_those_of_a_trace() -> None:
    reading = cat()
    maps = maps_of(reading, "L2")
    for look, want in (
        (MapOptions(is_by_word=True), maps.by_word()),
        (MapOptions(hides_special=True), maps.without_special()),
        (MapOptions(drops_sink=True), maps.without_sink()),
        (MapOptions(hides_special=True, drops_sink=True), maps.without_sink().without_special()),
    ):
        rows, keys = map_axes(reading.labels("L2"), look)
        assert (rows.labels, keys.labels) == (want.labels.queries, want.labels.keys)
        close(map_weights(reading, "L2", look, ALL, ALL), want.weights)
    rows, _ = map_axes(reading.labels("L2"), MapOptions(is_by_word=True))
    assert "unbelievably" in rows.labels
    part = map_weights(reading, "L2", MapOptions(is_by_word=True), slice(3, 9), slice(7, 10))
    close(part, maps.by_word().weights[:, 3:9, 7:10])


def test_valued_weights_are_scaled_by_the_lengths_that_values_add() -> None:
    reading = cat()
    call = reading.call("L1")
    got = map_weights(reading, "L1", MapOptions(is_valued=True), ALL, ALL)
    parts = call.output_weight.unflatten(0, (call.num_heads, -1))
    added = (call.values[0] @ parts).norm(dim=-1)
    close(got, whole(reading, "L1") * added[:, None])


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
        steps = np.frombuffer(cells.values, "<u2").reshape(cells.shape)
        assert np.abs(steps / STEPS - weights / cells.largest).max() <= 0.5001 / STEPS
    roots = whole(cat(), "L3").sqrt().numpy()
    small = thumbnails(cat(), "L3", MapOptions(), 100)
    assert np.abs(small / 255 - roots).max() <= 0.5001 / 255


def test_missing_values_layers_and_words_raise_an_error() -> None:
    reading = tiny_session("bloom").read(WORDS)
    with pytest.raises(OptionError, match=r"L0\b.*values"):
        map_weights(reading, "L0", MapOptions(is_valued=True), ALL, ALL)
    with pytest.raises(OptionError, match="L9"):
        map_weights(reading, "L9", MapOptions(), ALL, ALL)
    labels = reading.labels("L0")
    bare = type(labels)(labels.queries, labels.keys)
    with pytest.raises(OptionError, match="words"):
        map_axes(bare, MapOptions(is_by_word=True))
