"""The page for everyone: phones, keyboards, themes, forced colours, large text, no motion."""

import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect

from .browser import PHONE, faults, hash_has, headline, page_at, settle, until, word
from .stage_modules import run

MIDDLE = {"width": 1024, "height": 900}
ROOM = {"width": 1920, "height": 1080}
ORDER = """[...document.querySelectorAll('.hv-view > *, .hv-below > *')]
    .filter((part) => part.offsetParent && !part.classList.contains('hv-below'))
    .map((part) => part.className.split(' ').pop())"""
SCROLLS = "document.documentElement.scrollWidth"
FOCUSED = "document.activeElement.closest('[class]').className"


def tops(page: Page) -> list[float]:
    """Tops of the view's parts in the order of the document."""
    script = """[...document.querySelectorAll('.hv-view > *, .hv-below > *')]
        .filter((part) => part.offsetParent && !part.classList.contains('hv-below'))
        .map((part) => part.getBoundingClientRect().top)"""
    places: list[float] = page.evaluate(script)
    return places


def test_the_phone_turns_the_stage_and_stacks_the_rest(chrome: Browser, site: str) -> None:
    with page_at(chrome, site, size=PHONE, has_touch=True) as page:
        headline(page, "it looks at animal")
        expect(page.locator(".hv-sub")).to_have_text("68% of its attention, in layer 3, head 1.")
        first, last = word(page, 0).bounding_box(), word(page, 13).bounding_box()
        assert first is not None and last is not None
        assert last["y"] - first["y"] > 500, "one word per line"
        assert page.evaluate(SCROLLS) <= PHONE["width"]
        order = page.evaluate(ORDER)
        assert [name for name in order if name in ("hv-findings", "hv-grid-panel")] == [
            "hv-findings",
            "hv-grid-panel",
        ]
        assert order.index("hv-map-panel") > order.index("hv-grid-panel")
        places = tops(page)
        assert places == sorted(places), "the order on the screen is the order in the document"
        expect(page.locator("nav")).to_be_hidden()
        page.get_by_role("button", name="Menu").click()
        page.locator("nav a", has_text="Plan").click()
        expect(page.locator("#plan")).to_be_visible()


def test_fingers_step_through_layers_and_heads(chrome: Browser, site: str) -> None:
    phone = {"has_touch": True, "is_mobile": True}
    with page_at(chrome, site, size=PHONE, **phone) as page:
        page.get_by_role("button", name="Next head").tap()
        hash_has(page, head="L3H2")
        page.get_by_role("button", name="Previous layer").tap()
        hash_has(page, head="L2H2")
        page.locator(".hv-head[data-head=L2H1]").tap()
        hash_has(page, head="L2H1")
        word(page, 4).tap()
        hash_has(page, word="4")
        small = """[...document.querySelectorAll('.hv-tools button, .hv-stepper button')]
            .filter((button) => button.offsetParent && button.offsetHeight < 44).length"""
        assert page.evaluate(small) == 0, "targets for fingers are 44 px at least"


SIZES = """return data.map(([layers, heads, room, isLarge]) => {
    const all = Array.from({ length: layers }, (_, at) => ({ name: `L${at}`, heads }));
    const { across } = gridShape(all, room);
    const { size, kind, isScrolling } = cellSizes(all, room, isLarge);
    return [across, size, kind, isScrolling];
});"""


def test_a_phone_gets_small_maps_of_a_usable_size() -> None:
    grids = [[6, 12, 350, False], [30, 9, 350, False], [32, 32, 350, False]]
    shapes = run({"grid_shape": "gridShape, cellSizes"}, SIZES, grids)
    assert shapes == [
        [12, 23, "maps", False],
        [9, 31, "letters", False],
        [32, 21, "maps", True],
    ]


def test_a_broad_grid_has_letters_beside_the_map() -> None:
    grids = [[30, 9, 936, True], [6, 12, 548, False]]
    shapes = run({"grid_shape": "gridShape, cellSizes"}, SIZES, grids)
    assert shapes == [[30, 26, "letters", False], [12, 39, "letters", False]]


def test_a_narrower_window_shows_findings_first(chrome: Browser, site: str) -> None:
    with page_at(chrome, site, size=MIDDLE) as page:
        page.wait_for_selector("body[data-head]")
        order = page.evaluate(ORDER)
        assert order.index("hv-findings") < order.index("hv-map-panel")
        places = tops(page)[:-4]
        assert places == sorted(places)
        expect(page.locator("#model .middle")).to_have_text(re.compile("^minilm"))
        assert page.evaluate(SCROLLS) <= MIDDLE["width"]


def test_the_page_grows_with_a_large_window(chrome: Browser, site: str) -> None:
    with page_at(chrome, site, size=ROOM) as page:
        size = "parseFloat(getComputedStyle(document.body).fontSize)"
        assert 19 <= page.evaluate(size) <= 22
        assert page.evaluate("document.querySelector('.hv-view').offsetWidth") > 1700
        assert page.evaluate(SCROLLS) <= ROOM["width"]


def test_at_400_percent_the_phones_layout_appears(chrome: Browser, site: str) -> None:
    zoomed = {"width": 360, "height": 225}  # what a window of 1440 x 900 leaves at 400%
    with page_at(chrome, site, size=zoomed) as page:
        expect(page.locator(".hv-view[data-size=narrow]")).to_be_visible()
        assert page.evaluate(SCROLLS) <= 360


def test_the_theme_follows_the_system_until_it_is_chosen(chrome: Browser, site: str) -> None:
    with page_at(chrome, site, scheme="dark") as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(18, 21, 27)"
        page.click("#theme")
        until(page, f"{ground} === 'rgb(255, 255, 255)'")
        colour = "getComputedStyle(document.querySelector('.hv-headline i')).color"
        until(page, f"{colour} === 'rgb(168, 15, 104)'")
        page.reload()
        page.wait_for_selector("body[data-drawn]", state="attached")
        assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_without_motion_everything_appears_at_once(chrome: Browser, site: str) -> None:
    with page_at(chrome, site, reduced_motion="reduce") as page:
        word(page, 4).hover()
        headline(page, "cross looks at street")
        running = "document.getAnimations().filter((one) => one.playState === 'running').length"
        assert page.evaluate(running) == 0


def test_forced_colours_keep_arcs_and_words(chrome: Browser, site: str) -> None:
    with page_at(chrome, site, forced_colors="active") as page:
        headline(page, "it looks at animal")
        expect(page.locator(".hw-arc").first).to_be_attached()
        assert faults(page) == []


def test_everything_is_reached_by_keyboard_in_order(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        settle(page)
        stops: list[str] = []
        for _ in range(45):
            page.keyboard.press("Tab")
            stop = page.evaluate(
                """(() => { const it = document.activeElement;
                const part = it.closest('header, .hv-tools, .hv-pills, .hw-stage, .hv-map-panel,'
                    + '.hv-segments, .hv-select, .hv-grid, .hv-legend, .hv-findings, .hv-fact-box,'
                    + 'footer');
                return part ? part.className || part.tagName : it.className; })()"""
            )
            if not stops or stops[-1] != stop:
                stops.append(stop)
        order = ["HEADER", "hv-tools", "hv-pills", "hw-stage", "hv-map-panel"]
        order += ["hv-segments", "hv-select", "hv-grid", "hv-legend", "hv-findings", "hv-fact-box"]
        found = [next((name for name in order if name in stop), stop) for stop in stops]
        assert [name for name in found if name in order][: len(order)] == order


def test_a_chosen_word_and_head_are_compared_with_keys_alone(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        word(page, 8).focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        headline(page, "tired rests on [CLS]")
        page.locator(".hv-head[tabindex='0']").focus()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Shift+Enter")
        hash_has(page, head="L3H1,L2H1")
        page.keyboard.press("e")
        page.keyboard.press("Control+A")
        page.keyboard.type("The dog saw the cat because it barked.")
        page.keyboard.press("Enter")
        expect(word(page, 2)).to_have_text("dog")
        expect(page.locator("body")).to_have_attribute("data-head", "L3H1,L2H1")


@pytest.mark.parametrize(("size", "scheme"), [(None, "light"), (None, "dark"), (PHONE, "light")])
def test_no_serious_fault_is_found_by_axe(
    chrome: Browser, site: str, size: dict[str, int] | None, scheme: str
) -> None:
    options = {"size": size} if size else {}
    with page_at(chrome, f"{site}#head=L3H1,L2H1", scheme=scheme, **options) as page:
        settle(page)
        assert faults(page) == []
        page.click("[data-tool=view]")
        page.get_by_role("button", name="Show as table").click()
        assert faults(page) == []
        page.keyboard.press("Escape")
        page.keyboard.press("e")
        assert faults(page) == []


def test_right_to_left_text_and_emoji_are_shown(chrome: Browser, site: str) -> None:
    text = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd 🙂 hello"
    with page_at(chrome, f"{site}#text={json.dumps(text)[1:-1]}") as page:
        assert page.locator('[data-side="0"]').count() > 3
        expect(page.locator(".hv-headline")).not_to_be_empty()
