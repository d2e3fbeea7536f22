"""The page while it reads, with unreadable texts, without roles, and when the server forgets."""

import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from headwise.explorer.session import Session

from .browser import hash_has, headline, page_at, served, until, word
from .sessions import WORDS, fresh_session

MARKUP = "<img src=x onerror=alert(1)> <b>bold</b> \u202eturned 🙂 words"


def read(page: Page, text: str) -> None:
    """Change the sentence."""
    page.keyboard.press("e")
    field = page.get_by_role("textbox", name="Sentence")
    field.fill(text)
    field.press("Enter")


@pytest.fixture(scope="module")
def session() -> Session:
    return fresh_session("bert")


@pytest.fixture(scope="module")
def tiny(session: Session) -> Iterator[str]:
    with served(session) as address:
        yield address


@pytest.fixture
def quiet(chrome: Browser, tiny: str) -> Iterator[Page]:
    """A page whose rejected requests are expected; each is an error in the console."""
    page = chrome.new_page()
    page.goto(f"{tiny}#head=L1H2&text={WORDS}")
    page.wait_for_selector("body[data-head=L1H2]")
    yield page
    page.close()


def test_the_sentence_is_changed_in_place(chrome: Browser, site: str) -> None:
    text = "The cat sat on the mat because it was warm."
    with page_at(chrome, site) as page:
        page.click("[data-tool=edit]")
        field = page.get_by_role("textbox", name="Sentence")
        expect(field).to_be_focused()
        size = "getComputedStyle(document.querySelector('.hv-area')).fontSize"
        assert page.evaluate(size) == "38px", "the words keep their size"
        field.fill(text)
        page.get_by_role("button", name="Read").click()
        expect(word(page, 2)).to_have_text("cat")
        hash_has(page, text=text)
        page.go_back()
        headline(page, "it looks at animal")
        hash_has(page, text="")


def test_reading_fades_the_old_maps_and_says_how_far_it_is(chrome: Browser, site: str) -> None:
    waiting: list[Route] = []
    with page_at(chrome, site) as page:
        page.route("**/api/readings", lambda route: waiting.append(route))
        stage = {"stage": "Reading layer 4 of 6", "done": 4, "total": 6, "waiting": 0}
        page.route("**/api/progress", lambda route: route.fulfill(json=stage))
        read(page, "Another sentence is read.")
        expect(page.locator("#status")).to_have_text("Reading layer 4 of 6")
        expect(page.locator("#progress")).to_be_visible()
        expect(page.locator(".hv-waiting .hv-map")).to_have_css("opacity", "0.25")
        waiting.pop().continue_()
        expect(word(page, 1)).to_have_text("Another")
        expect(page.locator("#progress")).to_be_hidden()


def test_an_empty_text_keeps_the_field_open(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        read(page, "   ")
        expect(page.locator(".hv-hint")).to_have_text("Write a few words.")
        expect(page.get_by_role("textbox", name="Sentence")).to_be_focused()
        page.get_by_role("button", name="Cancel").click()
        page.mouse.move(700, 12)
        headline(page, "it looks at animal")


def test_one_word_can_only_look_at_itself(quiet: Page, chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        read(page, "unbelievably")
        headline(page, "One word can only look at itself.")
    read(quiet, "w1")  # one token is too little for the model, too
    expect(quiet.locator(".hv-hint")).to_have_text("One word can only look at itself.")
    quiet.keyboard.press("Escape")
    expect(quiet.locator(".hv-sub")).not_to_contain_text("One word")


def test_the_page_says_that_a_model_does_not_know_some_characters(
    chrome: Browser, site: str
) -> None:
    with page_at(chrome, f"{site}#text=龘龙鱉 貓睡覺") as page:
        here = page.locator(".hv-list").first
        expect(here).to_contain_text("This model does not know most of these characters")
        expect(here.locator("button")).to_have_count(0)


def test_a_text_that_cannot_be_read_keeps_the_last_picture(quiet: Page) -> None:
    wrong = {"status": 422, "json": {"error": "a sentence of the server"}}
    quiet.route("**/api/readings", lambda route: route.fulfill(**wrong))
    read(quiet, "w1 w2 w3")
    expect(quiet.locator(".hv-hint")).to_have_text("A sentence of the server")
    expect(quiet.get_by_role("textbox", name="Sentence")).to_have_attribute("aria-invalid", "true")
    quiet.keyboard.press("Escape")
    assert quiet.locator('[data-side="0"]').all_inner_texts()[: len(WORDS.split())] == WORDS.split()


def test_the_page_says_beside_the_sample_why_an_address_was_not_read(
    chrome: Browser, tiny: str
) -> None:
    page = chrome.new_page()
    page.goto(f"{tiny}#text=w1")
    expect(page.locator(".hv-sub")).to_have_text("One word can only look at itself.")
    assert page.locator('[data-side="0"]').count() > 2
    page.close()


def test_heads_without_measured_roles_say_so(chrome: Browser, tiny: str) -> None:
    with page_at(chrome, f"{tiny}#text={WORDS}") as page:
        expect(page.locator(".hv-pill-none")).to_have_text(re.compile("role not measured"))
        expect(page.locator(".hv-legend")).to_have_text(re.compile("roles not measured yet"))
        expect(page.get_by_role("button", name="Find roles")).to_be_visible()
        label = page.locator(".hv-head").first.get_attribute("aria-label")
        assert label is not None and "role not measured" in label


def test_roles_come_when_they_are_asked_for(chrome: Browser) -> None:
    session = fresh_session("bert")
    states = iter(["running", "running"])

    def answer(route: Route) -> None:
        state = next(states, "done")
        if state == "done" and route.request.method == "GET":
            session.jobs["scan"].result = SimpleNamespace(table=session.read(WORDS).table)
            session.jobs["scan"].state = "done"
            route.continue_()
        else:
            body = {"state": "running", "stage": "reading", "done": 1, "total": 4, "found": None}
            route.fulfill(json={"name": "scan", "error": "", **body})

    with served(session) as address, page_at(chrome, f"{address}#text={WORDS}") as page:
        page.route("**/api/jobs/scan", answer)
        page.get_by_role("button", name="Find roles").click()
        expect(page.locator(".hv-job")).to_have_text("Stop (reading, 25%)")
        expect(page.locator(".hv-legend")).not_to_contain_text("not measured", timeout=20_000)
        expect(page.locator(".hv-list h2").last).to_have_text("In other text")


def test_importance_is_measured_when_it_is_asked_for(chrome: Browser, tiny: str) -> None:
    names = [f"L{layer}H{head}" for layer in range(3) for head in range(5)]
    grid = {"names": names, "roles": [[]] * 15, "measures": {"zero": [*range(15)]}, "words": {}}
    answer = {"name": "importance", "state": "done", "stage": "", "done": 0, "total": 0}
    with page_at(chrome, f"{tiny}#text={WORDS}&grid=zero") as page:
        page.route(
            "**/api/jobs/importance",
            lambda route: route.fulfill(json={**answer, "error": "", "found": grid}),
        )
        scale = page.locator(".hv-measure")
        scale.get_by_role("button", name="Measure importance").click()
        expect(scale).to_have_text(re.compile(r"Loss added .*: .* \(faint\) to"))


def test_a_dropped_text_is_read_again(quiet: Page, session: Session) -> None:
    session.analyses._analyses.clear()
    quiet.keyboard.press("v")
    quiet.get_by_label("Weigh by values").check()
    expect(quiet.locator(".hv-notes p").first).to_contain_text("weighed by values")
    expect(quiet.locator(".hv-error")).to_have_count(0)


def test_a_silent_server_is_named(quiet: Page) -> None:
    quiet.route("**/weights?*", lambda route: route.abort())
    quiet.keyboard.press("v")
    quiet.get_by_label("First token").uncheck()
    expect(quiet.locator(".hv-error")).to_contain_text("eadwise does not answer: is it still")


def test_user_text_is_never_markup(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"ran: {dialog.message}"))
        read(page, MARKUP)
        expect(page.locator('[data-side="0"]', has_text="bold")).to_be_visible()
        assert page.locator("main img, main b:has-text('bold')").count() == 0
        with page_at(chrome, page.url) as other:
            expect(other.locator('[data-side="0"]', has_text="bold")).to_be_visible()


def test_a_text_too_long_for_the_address_stays_in_the_history(chrome: Browser, tiny: str) -> None:
    long = "w7 w31 " * 500
    with page_at(chrome, f"{tiny}#text={WORDS}") as page:
        read(page, long)
        expect(page.locator("#status")).to_contain_text("too long for the link")
        hash_has(page, text="")
        page.click("nav a[data-panel=plan]")
        page.go_back()
        expect(page.locator("#heads")).to_be_visible()
        page.keyboard.press("e")
        expect(page.get_by_role("textbox", name="Sentence")).to_have_value(long)


def test_the_page_works_in_a_browser_without_storage(chrome: Browser, tiny: str) -> None:
    page = chrome.new_page()
    denied = "{get() { throw new DOMException('denied', 'SecurityError'); }}"
    page.add_init_script(f"Object.defineProperty(window, 'localStorage', {denied})")
    page.goto(tiny)
    page.wait_for_selector("body[data-drawn]", state="attached")
    page.click("#theme")
    until(page, "document.documentElement.dataset.theme === 'dark'")
    page.close()


def test_error_messages_begin_with_a_capital_but_keep_names(quiet: Page) -> None:
    script = "async (message) => (await import('/static/api.js')).sentence({ message })"
    assert quiet.evaluate(script, "a sentence") == "A sentence"
    for name in ("d_model must be a number", "L9H0 is not in it", "smollm2 reads no text", ""):
        assert quiet.evaluate(script, name) == name
