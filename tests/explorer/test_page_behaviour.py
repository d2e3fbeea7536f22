"""Every action of the stage, map and grid, and its effect: the table of the specification."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from .browser import hash_has, headline, page_at, until, word

OUT = (700, 12)
"""A place in the header, where the pointer is on nothing."""


@pytest.fixture(scope="module")
def shared(chrome: Browser, site: str) -> Iterator[Page]:
    with page_at(chrome, site) as page:
        yield page


@pytest.fixture
def page(shared: Page) -> Iterator[Page]:
    """The opening view, with the pointer on nothing."""
    shared.mouse.move(*OUT)
    shared.evaluate("location.hash = '#head=L3H1&word=8'")
    headline(shared, "it looks at animal")
    expect(shared.locator(".hv-name")).to_have_text("L3H1")
    yield shared


def cell(page: Page, row: int, column: int) -> tuple[float, float]:
    """Middle of a cell of the map, by the words of its row and column."""
    box = page.locator(".hv-map").bounding_box()
    assert box is not None
    left, top, size = page.evaluate(
        """async () => { const { layOut } = await import('/static/stage/map_layout.js');
        const axis = [...document.querySelectorAll('[data-side="0"]')].map((word) =>
            ({ text: word.textContent, space: true, kind: word.dataset.kind }));
        const shape = layOut({ rows: axis, columns: axis, hidesSpecial: false, overview: null },
            document.querySelector('.hv-map-box').clientWidth, { scale: 1, x: 0, y: 0 });
        return [shape.left, shape.top, shape.cell]; }"""
    )
    x = box["x"] + left + (column + 0.5) * size + (4 if column else 0)
    return x, box["y"] + top + (row - 0.5) * size  # [CLS] has no row


def test_hovering_a_word_chooses_it_everywhere_and_keeps_the_locked_one(page: Page) -> None:
    before = page.url
    word(page, 4).hover()
    headline(page, "cross looks at street")
    expect(page.locator(".hv-sub")).to_have_text(
        "60% of its attention. Looked at most by didn't, 10%."
    )
    expect(page.locator(".hv-grid-panel h2")).to_have_text("Where cross looks")
    pressed = page.locator(".hv-segments [aria-pressed=true]")
    expect(pressed).to_have_text("cross")
    assert page.locator(".hv-bars").count() == 72
    expect(word(page, 8)).to_have_attribute("aria-pressed", "true")
    expect(word(page, 8).locator(".hw-locked")).to_have_count(1)
    assert page.url == before, "a hover never changes the address"
    page.mouse.move(*OUT)
    headline(page, "it looks at animal")


def test_hovering_moves_no_word_and_no_panel(page: Page) -> None:
    places = """[...document.querySelectorAll('[data-word], .hv-below > *, .hv-head')].map(
        (element) => { const { x, y, width } = element.getBoundingClientRect();
            return [x, y, width].map(Math.round); })"""
    before = page.evaluate(places)
    for at in (1, 7, 13):
        word(page, at).hover()
        page.wait_for_timeout(200)
        assert page.evaluate(places) == before
    page.hover(".hv-head[data-head=L1H11]")
    expect(page.locator(".hv-name")).to_have_text("L1H11")
    assert page.evaluate(places) == before


def test_the_view_menu_covers_no_word_and_no_share(page: Page) -> None:
    page.get_by_role("button", name="View").click()
    menu, row = page.locator(".hv-switches").bounding_box(), word(page, 8).bounding_box()
    assert menu is not None and row is not None
    assert menu["y"] + menu["height"] < row["y"]
    page.keyboard.press("Escape")


def test_a_click_locks_a_word_and_a_second_click_or_escape_unlocks_it(page: Page) -> None:
    word(page, 4).click()
    hash_has(page, word="4")
    word(page, 4).click()
    hash_has(page, word="-")
    page.mouse.move(*OUT)
    headline(
        page, "Each word\N{RIGHT SINGLE QUOTATION MARK}s strongest link to another word in L3H1"
    )
    expect(page.locator(".hv-sub")).to_have_text(
        "In other texts this head tends to look back to a mention of the same thing: 63% found, "
        "50% by chance. "
        "Links to another word are drawn from 15% up. Choose a word to see all of its links."
    )
    word(page, 6).click()
    hash_has(page, word="6")
    headline(page, "street rests on [CLS]")
    expect(page.locator(".hv-sub")).not_to_contain_text("In other texts")
    page.keyboard.press("Escape")
    hash_has(page, word="-")


def test_a_hovered_cell_of_the_map_shows_its_row_and_one_arc(page: Page) -> None:
    page.mouse.move(*cell(page, 4, 6))
    headline(page, "cross looks at street, 60%")
    expect(page.locator(".hv-bars")).to_have_count(0)
    until(page, "document.querySelectorAll('.hw-arc:not(.hw-arc-faint)').length === 1")
    page.mouse.click(*cell(page, 4, 6))
    hash_has(page, word="4")
    page.mouse.move(*OUT)
    headline(page, "cross looks at street")


def test_the_maps_wheel_leaves_scrolling_to_the_page_while_cells_are_large(page: Page) -> None:
    page.mouse.move(*cell(page, 4, 6))
    page.mouse.wheel(0, 120)
    until(page, "scrollY > 0")
    page.evaluate("scrollTo(0, 0)")


def test_a_small_map_lends_its_arcs_and_a_click_chooses_it(page: Page) -> None:
    before = page.url
    page.hover(".hv-head[data-head=L2H1]")
    headline(page, "it looks at tired")
    expect(page.locator(".hv-lent")).to_have_attribute("data-head", "L2H1")
    expect(page.locator(".hv-head.hv-chosen")).to_have_attribute("data-head", "L3H1")
    assert page.url == before
    page.mouse.move(*OUT)
    headline(page, "it looks at animal")
    expect(page.locator(".hv-lent")).to_have_count(0)
    page.click(".hv-head[data-head=L2H1]")
    hash_has(page, head="L2H1")
    expect(page.locator(".hv-head[data-head=L2H1]")).to_have_attribute("aria-selected", "true")
    page.click(".hv-head[data-head=L3H1]", modifiers=["Shift"])
    hash_has(page, head="L2H1,L3H1")
    page.click(".hv-head[data-head=L2H1]", modifiers=["Shift"])
    hash_has(page, head="L3H1")


def test_arrow_keys_home_and_end_walk_over_the_words(page: Page) -> None:
    word(page, 8).focus()
    for key, at in (("ArrowLeft", 7), ("ArrowRight", 8), ("Home", 0), ("End", 13)):
        page.keyboard.press(key)
        expect(word(page, at)).to_be_focused()
        hash_has(page, word=str(at))


def test_arrow_keys_walk_over_the_grid_and_enter_chooses_or_adds(page: Page) -> None:
    page.focus(".hv-head[data-head=L3H1]")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".hv-head[data-head=L2H1]")).to_be_focused()
    page.keyboard.press("Enter")
    hash_has(page, head="L2H1")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Enter")
    hash_has(page, head="L2H1,L3H1")
    assert page.locator("[data-head][tabindex='0']").count() == 1, "the grid is one tab stop"


def test_brackets_go_to_heads_of_the_same_lead_role(page: Page) -> None:
    page.evaluate("location.hash = '#head=L0H2&word=8'")
    expect(page.locator(".hv-name")).to_have_text("L0H2")
    page.keyboard.press("]")
    expect(page.locator(".hv-name")).not_to_have_text("L0H2")
    expect(page.locator(".hv-pill").first).to_have_text("Ppositional")
    page.keyboard.press("[")
    hash_has(page, head="L0H2")


def test_letters_change_the_sentence_swap_a_word_and_open_the_view(page: Page) -> None:
    page.keyboard.press("e")
    expect(page.get_by_role("textbox", name="Sentence")).to_be_focused()
    page.keyboard.press("Escape")
    expect(word(page, 8)).to_be_visible()
    page.keyboard.press("s")
    expect(page.get_by_role("textbox", name="Replace it with")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("v")
    expect(page.get_by_role("switch")).to_have_count(5)
    page.keyboard.press("Escape")
    expect(page.get_by_role("switch").first).to_be_hidden()


def test_every_switch_changes_the_picture_and_the_address(page: Page) -> None:
    words = page.locator('[data-side="0"]').count()
    page.keyboard.press("v")
    switches = page.get_by_role("switch")
    switches.nth(0).uncheck()
    hash_has(page, words="0")
    expect(page.locator('[data-side="0"]')).to_have_count(words + 2)  # didn, ' and t
    headline(page, "it looks at animal")  # the same word, now another piece
    switches.nth(0).check()
    hash_has(page, words="")
    switches.nth(1).uncheck()
    expect(page.locator('[data-side="0"][data-kind="special"]')).to_have_count(0)
    switches.nth(1).check()
    switches.nth(2).uncheck()
    hash_has(page, first="0")
    expect(page.locator(".hv-sub")).to_contain_text("75% of its attention")  # 68% of 90%
    switches.nth(2).check()
    switches.nth(4).check()
    hash_has(page, values="1")
    expect(page.locator(".hv-notes p").first).to_contain_text("weighed by values")
    expect(page.locator(".hv-differs")).to_have_count(1)
    switches.nth(4).uncheck()
    expect(page.locator(".hv-differs")).to_have_count(0)
    page.keyboard.press("Escape")


def test_a_screen_reader_hears_locks_but_not_hovers(page: Page) -> None:
    live = page.locator(".hv-heading [aria-live]")
    word(page, 4).hover()
    headline(page, "cross looks at street")
    page.wait_for_timeout(500)
    expect(live).not_to_contain_text("cross")
    word(page, 1).click()
    page.mouse.move(*OUT)
    expect(live).to_contain_text("The looks at animal")


def test_a_small_map_that_slides_under_a_pointer_at_rest_lends_nothing(page: Page) -> None:
    box = page.locator(".hv-head[data-head=L4H4]").bounding_box()
    assert box is not None
    x, y = OUT[0] - box["x"] - box["width"] / 2, OUT[1] - box["y"] - box["height"] / 2
    move = """(style) => { document.querySelector('.hv-grid-panel').style.cssText = style;
        return document.elementFromPoint(700, 12)?.closest('.hv-head')?.dataset.head; }"""
    style = f"position: relative; z-index: 99; translate: {x}px {y}px"
    assert page.evaluate(move, style) == "L4H4"
    page.wait_for_timeout(500)
    expect(page.locator(".hv-name")).to_have_text("L3H1")
    page.mouse.move(OUT[0] + 2, OUT[1] + 2)
    expect(page.locator(".hv-name")).to_have_text("L4H4")
    page.evaluate(move, "")


def test_several_heads_show_bars_until_maps_are_asked_for(page: Page) -> None:
    page.locator(".hv-head[data-head=L2H1]").click(modifiers=["Shift"])
    page.mouse.move(*OUT)
    expect(page.locator(".hv-bars")).to_have_count(72)
    page.get_by_role("button", name="Maps").click()
    page.mouse.move(*OUT)
    expect(page.locator(".hv-bars")).to_have_count(0)
    hash_has(page, grid="maps")


def test_the_words_of_a_text_that_is_read_after_back_are_set_at_once(page: Page) -> None:
    page.keyboard.press("e")
    page.get_by_role("textbox", name="Sentence").fill("A small boat came home late.")
    page.keyboard.press("Enter")
    expect(word(page, 2)).to_have_text("small")
    page.route("**/api/readings", lambda route: None)
    page.go_back()
    expect(page.locator('.hw-stage [data-side="0"]', has_text="animal")).to_be_visible()
    expect(page.locator(".hw-stage .hw-arc-ribbon")).to_have_count(0)
    page.unroute("**/api/readings")
    page.reload()
    headline(page, "it looks at animal")
