"""Pages of traces: small matrices in full, large ones as pictures, and the layer to open on."""

import base64
import re
import struct
import zlib
from collections.abc import Iterator

import pytest
import torch
from playwright.sync_api import Browser

from headwise.attention.worked_example import cat_sleeps
from headwise.drawing.pixels import STEPS, matrix_uri
from headwise.formats import format_number
from headwise.models.loaded import LoadedModel
from headwise.reading.labels import Labels
from headwise.tracing.busiest_layer import STRONG, busiest_layer, count_links
from headwise.tracing.layer_trace import trace_layer
from headwise.tracing.record import Trace
from headwise.tracing.trace import trace
from headwise.views.trace_page import MOST_PIXELS, trace_page

from ..explorer.browser import browser, faults
from ..pruning.tiny_models import model_of, words_tokenizer

WORDS = "w7 w31 w12 w31 w90 w55 w18 w7 w31"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as chromium:
        yield chromium


def small() -> Trace:
    worked = cat_sleeps()
    return trace_layer(worked.layer, worked.x, tokens=worked.tokens)


def large(words: str = WORDS) -> Trace:
    return trace(loaded("llama"), words, layer=1)


def loaded(name: str) -> LoadedModel:
    return LoadedModel(name, model_of(name), words_tokenizer())


def pixels(uri: str) -> list[list[int]]:
    """Palette indices of a picture's pixels."""
    png = base64.b64decode(uri.partition(",")[2])
    assert png.startswith(b"\x89PNG")
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", png[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(kind + content)
        chunks[kind], at = content, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = zlib.decompress(chunks[b"IDAT"])
    assert len(lines) == height * (width + 1) and len(chunks[b"PLTE"]) == 3 * (2 * STEPS + 2)
    return [list(lines[row * (width + 1) + 1 : (row + 1) * (width + 1)]) for row in range(height)]


def test_a_pixel_is_the_square_root_of_a_number_with_its_sign() -> None:
    inf, nan = float("inf"), float("nan")
    shades = pixels(matrix_uri([[4.0, -4.0, 0.0], [1.0, -inf, nan]], 4.0))
    half = round(STEPS / 2)
    assert shades == [[2 * STEPS, 0, STEPS], [STEPS + half, 2 * STEPS + 1, 2 * STEPS + 1]]
    assert pixels(matrix_uri([[0.0]], 0.0)) == [[STEPS]]


def test_small_steps_are_printed_in_full_and_open() -> None:
    traced = small()
    page = trace_page(traced, traced.maps())
    assert "<img" not in page and page.count("<details open") == len(traced.steps)
    for step in traced.steps.values():
        for name, values, _, _ in traced.matrices(step):
            assert name in page
            for value in values.flatten().tolist():
                assert format_number(value, 3) in page


def test_large_steps_are_pictures_with_their_size_and_range() -> None:
    traced = large()
    page = trace_page(traced, traced.maps())
    values = traced["Wo"].values
    spread = f"{float(values.min()):.3g} to {float(values.max()):.3g}"
    assert f"Wo, {values.shape[0]} x {values.shape[1]}, {spread}" in page
    picture = re.search(r'src="(data:[^"]*)" alt="Wo,', page)
    assert picture is not None
    shades = pixels(picture[1])
    assert (len(shades), len(shades[0])) == tuple(values.shape)
    expected = (values.abs() / values.abs().max()).sqrt().mul(STEPS).round() * values.sign()
    assert torch.equal(torch.tensor(shades) - STEPS, expected.int())
    assert "<details open" not in page.partition("<b>Wo</b>")[0].rpartition("<details")[1]


def test_a_matrix_larger_than_the_picture_keeps_the_largest_number_of_each_block() -> None:
    from headwise.views.trace_page import _shrink

    values = torch.zeros(2 * MOST_PIXELS, 3)
    values[7, 2], values[10, 0] = -5.0, 2.0
    small_values = _shrink(values)
    assert small_values.shape == (MOST_PIXELS, 3)
    assert small_values[3, 2] == -5 and small_values[5, 0] == 2
    assert int(small_values.ne(0).sum()) == 2


def test_maps_of_long_texts_are_pictures() -> None:
    words = " ".join(f"w{7 + place % 90}" for place in range(60))
    traced = large(words)
    page = trace_page(traced, traced.maps())
    assert page.count('class="map-image"') == traced.num_heads and "<svg" not in page


def test_text_is_never_markup() -> None:
    worked = cat_sleeps()
    page = trace_layer(worked.layer, worked.x, tokens=["<b>", "a&b"])
    text = trace_page(page, page.maps(), note="<i>")
    assert "<b>" not in text.replace("<b>input", "").partition("<details")[0]
    assert "&lt;b&gt;" in text and "&lt;i&gt;" in text


@pytest.mark.parametrize("width", [390, 1024])
def test_the_page_fits_and_is_accessible(chrome: Browser, width: int) -> None:
    for traced in (small(), large()):
        page = chrome.new_page(viewport={"width": width, "height": 844})
        page.set_content(trace_page(traced, traced.maps(), note="A note."))
        page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert faults(page) == []
        page.close()


def test_only_strong_links_between_words_count() -> None:
    words = Labels(("[CLS]", "a", "b"), ("[CLS]", "a", "b"), (True, False, False))
    weights = torch.zeros(2, 3, 3)
    weights[0, 1] = torch.tensor([0.7, 0.0, STRONG])
    weights[0, 2] = torch.tensor([0.1, 0.4, 0.5])
    weights[1, 0] = torch.tensor([0.0, 0.9, 0.1])
    weights[1, 2] = torch.tensor([0.5, 0.29, 0.21])
    assert count_links(weights, words) == 2
    causal = weights.tril()
    plain = Labels(words.queries, words.keys, (False, False, False))
    assert count_links(causal, plain) == 1  # the first token is a resting place


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_the_busiest_layer_is_that_with_most_strong_links(name: str) -> None:
    model = loaded(name)
    busiest = busiest_layer(model, WORDS)
    counts = {}
    tried = [(None, layer) for layer in range(3)] if name != "t5" else []
    for stack, layer in tried:
        traced = trace(model, WORDS, layer=layer, stack=stack)
        counts[layer] = count_links(traced["weights"].values[0], traced.labels)
    if counts:
        assert busiest.links == max(counts.values()) == counts[busiest.layer]
        assert busiest.layers == len(counts) and busiest.stack is None
    assert trace(model, WORDS, layer=busiest.layer, stack=busiest.stack).num_heads
