"""Long texts: a window on the words, the map as an overview, and few requests."""

import re
from collections.abc import Iterator
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from headwise.explorer.maps import MapOptions, map_weights

from .browser import PHONE, faults, hash_has, page_at, settle, until, word
from .sessions import minilm
from .stage_modules import run

SENTENCE = "The keeper of the old lighthouse had a lamp and he loved it more than the sea. "
TEXT = (SENTENCE * 16).strip()
IT = 13
"""A word of the first sentence."""


@pytest.fixture(scope="module")
def shared(chrome: Browser, site: str) -> Iterator[Page]:
    with page_at(chrome, f"{site}#head=L3H1&word={IT}&text={quote(TEXT)}") as page:
        settle(page)
        yield page


@pytest.fixture
def page(shared: Page) -> Iterator[Page]:
    shared.mouse.move(700, 12)
    shared.evaluate(
        "(text) => { location.hash = `#head=L3H1&word=13&text=${encodeURIComponent(text)}`; }", TEXT
    )
    shared.wait_for_selector("body[data-head=L3H1]")
    settle(shared)
    yield shared


def test_the_stage_is_a_window_of_three_lines(page: Page) -> None:
    expect(page.locator("#status")).to_contain_text("tokens read")
    stage = page.locator(".hw-stage").bounding_box()
    assert stage is not None and stage["height"] < 420
    expect(word(page, IT)).to_have_text("it")
    expect(page.locator(".hv-sub")).to_contain_text(re.compile("positions? (back|ahead)"))
    analysis, options = minilm().read(TEXT), MapOptions(is_by_word=True)
    weights = map_weights(analysis, "L3", options, slice(IT, IT + 1), slice(None), head=1)[0, 0]
    share = int(np.floor(100 * float(weights.max()) + 0.5))
    expect(page.locator(".hv-sub")).to_contain_text(f"{share}% of its attention")


def test_the_map_is_an_overview_that_zooms(page: Page) -> None:
    box = page.locator(".hv-map").bounding_box()
    assert box is not None
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    for _ in range(6):
        page.mouse.wheel(0, -200)
    settle(page)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 150, steps=4)
    page.mouse.up()
    page.mouse.dblclick(box["x"] + 200, box["y"] + 200)
    page.mouse.click(box["x"] + 200, box["y"] + 150)
    until(page, "!location.hash.includes('word=13&')")
    assert len(requests) < 8


STRIP = """() => {
    const map = document.querySelector('.hv-map');
    const x = Math.round(map.width / 2), ink = [22, 26, 33];
    const { data } = map.getContext('2d').getImageData(x, 0, 1, map.height);
    const rows = [...Array(map.height).keys()]
        .filter((y) => ink.every((value, at) => data[4 * y + at] === value));
    return (rows.at(-1) - rows[0]) / devicePixelRatio;
}"""
"""Distance of the ink lines above and below the chosen row, in px, in the middle of the map."""


def test_the_chosen_row_of_a_long_text_is_tall_enough_to_read(page: Page) -> None:
    assert 12 <= page.evaluate(STRIP) <= 18


def test_a_button_zooms_to_the_chosen_row_and_back(page: Page) -> None:
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Whole map").click()
    expect(page.get_by_role("button", name="Zoom in")).to_be_visible()


def test_each_cell_of_a_strip_is_the_largest_of_its_block() -> None:
    shares = [0.1, 0.5, 0.2, 0.0, 0.0, 0.3, 0.4]
    body = "return [1, 2.5, 7, 9].map((size) => largest(7, size, (at) => data[at]));"
    blocks = run({"map_strip": "largest"}, body, shares)
    assert blocks == [[0, 1, 2, 3, 4, 5, 6], [1, 2, 6], [1], [1]]


def test_a_click_fetches_only_the_chosen_head_and_row(page: Page) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.click(".hv-head[data-head=L2H1]")
    hash_has(page, head="L2H1")
    page.wait_for_selector("body[data-head=L2H1]")
    settle(page)
    kinds = [re.sub(r".*/readings/\w+/|\?.*", "", url) for url in requests]
    assert set(kinds) <= {"heads/L2H1/map", "heads/L2H1/row"} and 1 <= len(kinds) <= 4


def test_one_words_bars_are_fetched_when_they_are_shown(page: Page) -> None:
    with page.expect_response(re.compile("/bars")):
        page.locator(".hv-segments").get_by_role("button", name="it").click()
    expect(page.locator(".hv-bars")).to_have_count(72)


def test_a_long_text_fits_the_phone(chrome: Browser, site: str) -> None:
    address = f"{site}#head=L3H1&word=150&text={quote(TEXT)}"
    with page_at(chrome, address, size=PHONE) as page:
        settle(page)
        expect(page.locator(".hw-stage .hw-chosen")).to_be_in_viewport()
        assert page.evaluate("document.querySelector('.hw-window').scrollTop") > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert faults(page) == []


ON_TABS = """() => {
    const boxes = (selector) => [...document.querySelectorAll(selector)]
        .map((element) => element.getBoundingClientRect());
    const place = document.querySelector('.hw-window').getBoundingClientRect();
    const tabs = boxes('.hw-tab, .hw-more:not([hidden])');
    const shown = boxes('.hw-stage [data-side="0"]:not(.hw-under) .hw-pill, .hw-drawing .hw-cell')
        .filter(({ top, bottom }) => bottom > place.top && top < place.bottom);
    const covered = shown.filter((box) => tabs.some((tab) => box.top < tab.bottom - 1
        && box.bottom > tab.top + 1 && box.left < tab.right && box.right > tab.left));
    const apart = tabs.every((one) => tabs.every((other) => one === other
        || one.bottom <= other.top + 2 || other.bottom <= one.top + 2
        || one.right <= other.left || other.right <= one.left));
    return [boxes('.hw-tab').length > 0, apart, shown.length > 12, covered.length];
}"""
"""Whether there are tabs, none over another, and words, and how many are under a tab."""


@pytest.mark.parametrize("head", ["L1H11", "L3H1", "L2H8"])
def test_a_tab_on_a_phone_covers_no_word_and_no_cell(chrome: Browser, site: str, head: str) -> None:
    address = f"{site}#head={head}&word={IT + 8 * 18}&text={quote(TEXT)}"
    with page_at(chrome, address, size=PHONE) as page:
        settle(page)
        expect(page.locator(".hw-stage .hw-chosen")).to_have_text("it")
        assert page.evaluate(ON_TABS) == [True, True, True, 0]


def test_the_page_says_what_was_left_out_of_a_long_text(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#text={quote(SENTENCE * 40)}") as page:
        expect(page.locator("#status")).to_contain_text(
            re.compile("The model takes at most 512 tokens: the last [0-9]+ tokens were left out")
        )


@pytest.mark.slow
def test_two_thousand_tokens_are_shown(chrome: Browser) -> None:
    from .browser import served
    from .sessions import smollm2

    text = SENTENCE * 115
    with served(smollm2()) as address, page_at(chrome, address) as page:
        page.keyboard.press("e")
        page.get_by_role("textbox", name="Sentence").fill(text)
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_contain_text("too long for the link", timeout=120_000)
        until(page, "document.body.dataset.drawn !== undefined")
        settle(page)
        words = page.locator('[data-side="0"]').count()
        assert words > 0
        assert faults(page) == []
