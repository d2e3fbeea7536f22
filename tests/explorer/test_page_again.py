"""The page's address, its history, numbers as text, and texts that the server has dropped."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from headwise.explorer.session import Session

from .browser import page_at, served, until
from .sessions import WORDS, fresh_session

NUMBERS = {
    0: "0.000",
    0.0123: "0.012",
    0.9996: "1.000",
    1: "1.000",
    5.7: "5.70",
    -0.0131: "-0.013",
    -2.5: "-2.50",
    0.00012: "1.2e-4",
    -0.00012: "-1.2e-4",
    4321.4: "4321",
}
TOKENS = "[...document.querySelectorAll('article.card .token')].map((token) => token.textContent)"
REACHED = "[...document.querySelectorAll('#grid .head[tabindex=\"0\"]')].length"


@pytest.fixture(scope="module")
def session() -> Session:
    return fresh_session("bert")


@pytest.fixture(scope="module")
def tiny(session: Session) -> Iterator[str]:
    with served(session) as address:
        yield address


@pytest.fixture
def page(chrome: Browser, tiny: str) -> Iterator[Page]:
    """A page whose rejected requests are expected; each is an error in the console."""
    page = chrome.new_page()
    page.goto(f"{tiny}#head=L1H2&text={WORDS}")
    page.wait_for_selector("body[data-head=L1H2]")
    expect(page.locator("article.card")).to_contain_text("Where it looks, by distance")
    yield page
    page.close()


def test_numbers_are_formatted_by_size(chrome: Browser, tiny: str) -> None:
    with page_at(chrome, tiny) as page:
        script = "async (all) => all.map((await import('/static/head_view.js')).format)"
        assert page.evaluate(script, list(NUMBERS)) == list(NUMBERS.values())
        page.select_option("#colour", "distance")
        expect(page.locator("#legend")).to_contain_text("Mean distance in tokens: from ")
        largest = page.inner_text("#legend").split(" to ")[1].split()[0]
        assert float(largest) > 1.1


def test_the_grid_is_reached_by_keyboard_in_every_order(chrome: Browser, tiny: str) -> None:
    with page_at(chrome, tiny) as page:
        assert page.evaluate(REACHED) == 1
        page.select_option("#order", "previous")
        assert page.evaluate(REACHED) == 1
        page.focus("#grid .head[tabindex='0']")
        page.keyboard.press("Enter")
        page.wait_for_selector("article.card")


def test_back_goes_back(chrome: Browser, tiny: str) -> None:
    long = "w7 w31 " * 500
    with page_at(chrome, f"{tiny}#colour=previous&text={WORDS}") as page:
        page.fill("#text", long)
        page.press("#text", "Enter")
        until(page, "location.hash === '#colour=previous'")  # it is read, and then the page's text
        page.click("nav a[data-panel=whatif]")
        expect(page.locator("#whatif")).to_be_visible()
        page.click("#switches [data-head=L1H2]")
        until(page, "location.hash.includes('off=L1H2')")
        page.go_back()
        expect(page.locator("#heads")).to_be_visible()
        expect(page.locator("#whatif")).to_be_hidden()
        until(page, "location.hash === '#colour=previous'")
        assert page.input_value("#text") == long, "too long for the address, and still there"
        page.go_forward()
        expect(page.locator("#switches [data-head=L1H2].off")).to_be_visible()
        page.evaluate("location.hash = '#head=L0H1&text=w7+w8'")
        until(page, "document.getElementById('colour').value === 'maps'")
        page.wait_for_selector("body[data-head=L0H1]")
        assert page.input_value("#text") == "w7 w8"
        page.evaluate("location.hash = '#main'")
        until(page, "location.hash === '#head=L0H1&text=w7+w8'")
        page.evaluate("location.hash = '#head=L9H99&text=w7+w8'")
        expect(page.locator("#one")).to_contain_text("There is no head L9H99 in this model. Choose")


def test_a_typed_address_is_not_overwritten(chrome: Browser, tiny: str) -> None:
    with page_at(chrome, f"{tiny}#text={WORDS}") as page:
        page.evaluate(
            """() => {
                const colour = document.getElementById("colour");
                colour.value = "previous";
                colour.dispatchEvent(new Event("change")); // the address waits to be written
                location.hash = "#head=L0H2";
                dispatchEvent(new Event("pagehide")); // and would be written now
            }"""
        )
        page.wait_for_selector("body[data-head=L0H2]")


def test_a_dropped_text_is_read_again_and_drawn(
    page: Page, session: Session, tmp_path: Path
) -> None:
    assert page.evaluate(TOKENS) == WORDS.split()
    session.analyses._analyses.clear()
    waiting: list[Route] = []
    page.route("**/api/readings", lambda route: waiting.append(route))
    page.click("article.card [data-look=values]")
    status = "This text is no longer in memory and is being read again."
    expect(page.locator("#status")).to_have_text(status)
    waiting.pop().continue_()
    expect(page.locator("#status")).to_contain_text("tokens read")
    page.unroute("**/api/readings")
    until(
        page,
        "performance.getEntriesByType('resource').some((entry) => entry.responseStatus === 200"
        " && entry.name.includes('/heads/') && entry.name.includes('is_valued=1'))",
    )
    session.analyses._analyses.clear()
    with page.expect_download() as waiting:
        page.click("article.card button:has-text('SVG')")
    waiting.value.save_as(tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text("utf-8").startswith("<svg")


def test_a_text_that_is_never_cached_is_read_again_only_once(page: Page) -> None:
    reads: list[str] = []
    page.on(
        "request", lambda request: reads.append(request.url) if request.method == "POST" else None
    )

    def lost(route: Route) -> None:
        route.fulfill(status=410, json={"error": "this text is no longer kept: send it again"})

    page.route("**/thumbs?*", lost)
    page.route("**/heads/*?*", lost)
    page.click("article.card [data-look=values]")
    expect(page.locator("#status")).to_have_text("This text is no longer kept: send it again")
    page.wait_for_timeout(300)
    assert len(reads) == 1


def test_error_messages_on_the_page_begin_with_a_capital_letter(page: Page) -> None:
    wrong = {"status": 422, "json": {"error": "a sentence of the server"}}
    page.route("**/api/plan?*", lambda route: route.fulfill(**wrong))
    page.click("nav a[data-panel=plan]")
    expect(page.locator("#plan .bad")).to_have_text("A sentence of the server")
    page.route("**/api/lesson/check", lambda route: route.fulfill(**wrong))
    page.click("nav a[data-panel=lesson]")
    page.fill("#lesson-number", "7")
    page.press("#lesson-number", "Enter")
    expect(page.locator(".lesson-verdict .bad")).to_have_text("A sentence of the server")


def test_error_messages_keep_the_case_of_names(page: Page) -> None:
    script = "async (message) => (await import('/static/api.js')).sentence({ message })"
    for name in ("d_model must be a number", "L9H0 is not in it", "smollm2 reads no text", ""):
        assert page.evaluate(script, name) == name


def test_the_page_works_in_a_browser_without_storage(chrome: Browser, tiny: str) -> None:
    page = chrome.new_page()
    denied = "{get() { throw new DOMException('denied', 'SecurityError'); }}"
    page.add_init_script(f"Object.defineProperty(window, 'localStorage', {denied})")
    page.goto(tiny)
    expect(page.locator("#status")).to_contain_text("tokens read")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.close()
