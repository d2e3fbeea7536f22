"""The stage in a real browser: pointer, keys, motion, and what screen readers are told."""

import contextlib
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from .browser import faults
from .stage_modules import HELPERS, STAGE

PAGE = """<!doctype html><html lang="en" data-theme="light"><title>Stage</title>
<link rel="stylesheet" href="/stage.css"><main><h1 id="headline">it looks at animal</h1>
<div id="stage" role="group" aria-labelledby="headline"></div></main></html>"""

TEXT = "[CLS] The animal did cross the street because it was too tired . [SEP]"
IT = [0.10, 0.05, 0.66, 0.01, 0.01, 0, 0.05, 0, 0.06, 0.01, 0, 0.03, 0, 0.02]
CROSS = [0.3, 0.02, 0.02, 0.01, 0.05, 0.1, 0.5, 0, 0, 0, 0, 0, 0, 0]

START = """
const { Stage } = await import("/stage.js");
%s
const shares = Array.from({ length: 400 }, () => ROW);
Object.assign(shares, { 4: CROSS, 8: IT });
const heads = [{ shares }];
window.events = [];
window.state = { locked: 8, hovered: null };
window.shown = picture(TEXT, heads, { locked: 8, word: 8 });
const draw = () => {
    const { locked, hovered } = window.state;
    window.stage.show({ ...window.shown, locked, word: hovered ?? locked });
};
const take = (kind, change) => (word) => {
    window.events.push([kind, word]);
    change(word);
    draw();
};
window.stage = new Stage(document.getElementById("stage"), {
    hover: take("hover", (word) => { window.state.hovered = word; }),
    lock: take("lock", (word) => { Object.assign(window.state, { locked: word, hovered: null }); }),
    go: take("go", (word) => { Object.assign(window.state, { locked: word, hovered: null }); }),
});
window.draw = draw;
draw();
"""


class Files(SimpleHTTPRequestHandler):
    """The stage's modules, and one page."""

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    Files.extensions_map |= {".js": "text/javascript"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(STAGE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def stage(
    chrome: Browser, address: str, *, text: str = TEXT, width: int = 1440, **options: Any
) -> Iterator[Page]:
    """A page with a stage on the text, which must cause no error."""
    size = {"width": width, "height": 900}
    context = chrome.new_context(viewport=size, **options)  # type: ignore[arg-type]
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(address)
    row = [0.0] * len(text.split())
    row[0] = 1.0
    script = START.replace("CROSS", str(CROSS)).replace("IT", str(IT)).replace("ROW", str(row))
    page.evaluate(f"(async () => {{ {script.replace('TEXT', repr(text)) % HELPERS} }})()")
    try:
        yield page
        assert wrong == []
    finally:
        context.close()


def arcs(page: Page) -> list[list[str]]:
    """Ends of the arcs of the chosen word."""
    return page.evaluate(
        "[...document.querySelectorAll('.hw-arc-ribbon, .hw-arc-rest')]"
        ".map((arc) => [arc.dataset.from, arc.dataset.to])"
    )  # type: ignore[no-any-return]


def test_a_word_is_hovered_after_the_pointer_has_rested(chrome: Browser, address: str) -> None:
    with stage(chrome, address, reduced_motion="reduce") as page:
        assert sorted(arcs(page)) == [["8", "0"], ["8", "1"], ["8", "2"], ["8", "6"]]
        page.hover("button[data-word='4']")
        page.wait_for_timeout(300)
        assert page.evaluate("window.events") == [["hover", 4]]
        assert sorted(arcs(page)) == [["4", "0"], ["4", "5"], ["4", "6"]]
        locked = page.locator("button[data-word='8']")
        expect(locked).to_have_attribute("aria-pressed", "true")
        expect(locked.locator(".hw-locked")).to_have_count(1)
        page.mouse.move(5, 800)
        page.wait_for_timeout(300)
        assert page.evaluate("window.events") == [["hover", 4], ["hover", None]]


def test_nothing_moves_when_a_word_is_hovered(chrome: Browser, address: str) -> None:
    where = """JSON.stringify([...document.querySelectorAll('.hw-pill, .hw-cell rect')]
        .map((each) => { const { x, y, width, height } = each.getBoundingClientRect();
            return [x, y, width, height]; }))"""
    with stage(chrome, address, reduced_motion="reduce") as page:
        before = page.evaluate(where)
        page.hover("button[data-word='4']")
        page.wait_for_timeout(300)
        assert page.evaluate(where) == before


def test_the_line_stays_when_the_next_word_changes(chrome: Browser, address: str) -> None:
    show = """(text, before) => {
        window.shown = { ...window.shown, next: { text, before } };
        window.draw();
        return document.querySelector("button[data-word='8']").getBoundingClientRect().x;
    }"""
    with stage(chrome, address, reduced_motion="reduce") as page:
        first = page.evaluate(f"({show})('incredibly', null)")
        for text, before in (("cold", "incredibly"), ("incredibly", None), ("a", "incredibly")):
            place = page.evaluate("([t, b]) => (" + show + ")(t, b)", [text, before])
            assert place == first


def test_a_pointer_at_rest_hovers_nothing(chrome: Browser, address: str) -> None:
    with stage(chrome, address, reduced_motion="reduce") as page:
        page.evaluate("document.querySelector('#stage').style.paddingTop = '400px'")
        place = page.locator("button[data-word='6'] .hw-pill").bounding_box()
        assert place
        page.mouse.move(place["x"] + 20, place["y"] - 380)
        page.evaluate("document.querySelector('#stage').style.paddingTop = '20px'")
        page.wait_for_timeout(400)
        assert page.evaluate("window.events") == []
        page.mouse.move(place["x"] + 22, place["y"] - 380)
        page.wait_for_timeout(300)
        assert page.evaluate("window.events") == [["hover", 6]]


def test_both_sentences_of_a_pair_follow_the_pointer_or_neither(
    chrome: Browser, address: str
) -> None:
    pair = """(() => {
        const { words, heads } = window.shown;
        const aligned = words.flatMap((_, at) => at === 4 ? [[4, null], [null, 4]] : [[at, at]]);
        window.shown = { ...window.shown, pair: { words, heads, aligned, word: 8 } };
        window.draw();
    })()"""
    chosen = "[...document.querySelectorAll('.hw-chosen')].map((e) => e.parentElement.dataset.word)"
    with stage(chrome, address, reduced_motion="reduce") as page:
        page.evaluate(pair)
        for side, word, expected in ((0, 2, "2"), (1, 5, "5"), (0, 4, "8"), (1, 4, "8")):
            page.hover(f"button[data-side='{side}'][data-word='{word}']")
            page.wait_for_timeout(300)
            assert page.evaluate(chosen) == [expected] * 2


def test_a_hover_is_drawn_within_50_ms(chrome: Browser, address: str) -> None:
    times = """Array.from({ length: 24 }, (_, at) => {
        const start = performance.now(); window.state.hovered = at % 13; window.draw();
        return performance.now() - start; }).sort((one, other) => one - other)[12]"""
    with stage(chrome, address) as page:
        assert page.evaluate(times) < 50
    with stage(chrome, address, text=" ".join(["word"] * 400)) as page:
        assert page.evaluate(times) < 50


def test_a_click_locks_and_a_second_click_unlocks(chrome: Browser, address: str) -> None:
    with stage(chrome, address, reduced_motion="reduce") as page:
        for _ in range(2):
            page.click("button[data-word='4']")
        clicks = [event for event in page.evaluate("window.events") if event[0] == "lock"]
        assert clicks == [["lock", 4], ["lock", None]]


def test_the_words_have_one_tab_stop_and_arrow_keys(chrome: Browser, address: str) -> None:
    with stage(chrome, address, reduced_motion="reduce") as page:
        page.keyboard.press("Tab")
        focused = "document.activeElement.dataset.word"
        assert page.evaluate(focused) == "8"
        for key, word in (("ArrowRight", "9"), ("ArrowLeft", "8"), ("Home", "0"), ("End", "13")):
            page.keyboard.press(key)
            assert page.evaluate(focused) == word
        assert page.locator("#stage [tabindex='0']").count() == 1
        page.keyboard.press("Escape")
        assert page.evaluate("window.events").pop() == ["lock", None]


def test_words_are_named_for_screen_readers(chrome: Browser, address: str) -> None:
    with stage(chrome, address, reduced_motion="reduce") as page:
        label = (
            "it, looks at animal 66 percent, [CLS] 10 percent, The 5 percent, street 5 percent, "
        )
        word = page.locator("button[data-word='8']")
        expect(word).to_have_attribute("aria-label", f"{label}and 9 more under 5 percent")
        expect(page.locator("#stage svg")).to_have_attribute("aria-hidden", "true")
        assert faults(page) == []


def test_arcs_grow_unless_motion_is_reduced(chrome: Browser, address: str) -> None:
    grown = """(() => {
        window.state.hovered = 4; window.draw();
        const head = document.querySelector('.hw-arc-ribbon[data-from="4"] .hw-head');
        return head.getAttribute('d');
    })()"""
    with stage(chrome, address) as page:
        assert page.evaluate(grown) == ""
        page.wait_for_timeout(600)
        head = page.locator('.hw-arc-ribbon[data-from="4"] .hw-head').first
        assert head.get_attribute("d")
    with stage(chrome, address, reduced_motion="reduce") as page:
        assert page.evaluate(grown)


def test_changing_the_head_changes_the_widths_of_the_same_arcs(
    chrome: Browser, address: str
) -> None:
    change = """(() => {
        const other = Array.from({ length: 14 }, () => 0);
        Object.assign(other, { 2: 0.3, 6: 0.7 });
        const heads = [{ ...window.shown.heads[0], name: 'L1H0', row: () => other }];
        window.shown = { ...window.shown, heads };
        const body = '[data-from="8"][data-to="2"] .hw-body';
        const path = () => document.querySelector(body).getAttribute('d');
        const before = path();
        window.draw();
        return before === path();
    })()"""
    with stage(chrome, address) as page:
        page.wait_for_timeout(600)
        assert page.evaluate(change)  # it begins as it was
        page.wait_for_timeout(500)
        share = page.locator('.hw-arc[data-from="8"][data-to="2"]')
        expect(share).to_have_attribute("data-share", "0.3000")


def test_a_long_text_is_a_window_with_tabs(chrome: Browser, address: str) -> None:
    text = " ".join(f"word{at}" for at in range(400))
    with stage(chrome, address, text=text, reduced_motion="reduce") as page:
        assert page.evaluate("document.querySelector('.hw-window').clientHeight") <= 360
        page.evaluate("window.state.locked = 300; window.draw()")
        tab = page.locator(".hw-tab")
        expect(tab).to_have_text(re.compile(r"^word0 100%, \d\d lines up$"))
        scrolled = page.evaluate("document.querySelector('.hw-window').scrollTop")
        assert scrolled > 1000 and scrolled % 112 == 0  # whole lines
        expect(page.locator(".hw-more-above")).to_have_text(f"{scrolled // 112} more lines")
        page.evaluate("document.querySelector('.hw-window').scrollTop += 50")
        page.wait_for_timeout(200)
        assert page.evaluate("document.querySelector('.hw-window').scrollTop") % 112 == 0
        tab.click()
        assert page.evaluate("window.events").pop() == ["go", 0]
        assert page.evaluate("document.querySelector('.hw-window').scrollTop") == 0


def test_a_phone_shows_one_word_per_line(chrome: Browser, address: str) -> None:
    with stage(chrome, address, width=390, reduced_motion="reduce") as page:
        expect(page.locator("#stage")).to_have_class("hw-stage hw-is-vertical")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        heights = page.evaluate(
            "[...document.querySelectorAll('.hw-button')].map((each) => each.offsetHeight)"
        )
        assert min(heights) >= 42


def test_forced_colours_keep_arcs_and_the_pill(chrome: Browser, address: str) -> None:
    with stage(chrome, address, forced_colors="active") as page:
        style = "(selector, name) => getComputedStyle(document.querySelector(selector))[name]"
        shaft = page.evaluate(f"({style})('.hw-arc-ribbon .hw-shaft', 'fill')")
        head = page.evaluate(f"({style})('.hw-arc-ribbon .hw-head', 'fill')")
        assert shaft == head == "rgb(0, 0, 0)"
        pill = page.evaluate(f"({style})('.hw-chosen', 'backgroundColor')")
        assert pill != "rgb(168, 15, 104)"


def test_destroying_the_stage_leaves_nothing(chrome: Browser, address: str) -> None:
    with stage(chrome, address) as page:
        page.evaluate("window.stage.destroy()")
        assert page.evaluate("document.getElementById('stage').children.length") == 0
