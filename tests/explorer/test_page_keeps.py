"""The page keeps answers, focus, address and labelled maps while other things change."""

import re
import threading
from types import SimpleNamespace
from urllib.parse import quote

from playwright.sync_api import Browser, Locator, Page, Route, expect

from headwise.explorer.session import Session

from .browser import PHONE, faults, page_at, served, until
from .sessions import CAT, WORDS, fresh_session, tiny_session

WARM_UP = "#panel=lesson&step=warm-up"
LONG = "a word and another one here " * 80
AREA = "document.querySelector('article.card canvas').getAttribute('aria-label')"
COUNTED = """() => { window.written = 0; const plain = history.replaceState.bind(history);
    history.replaceState = (...all) => { window.written += 1; return plain(...all); }; }"""
REFUSED = """() => { history.replaceState = () => {
    throw new DOMException('too often', 'SecurityError'); }; }"""


def scanned(session: Session) -> None:
    """Pretend that a scan has finished, with the table of the text."""
    session.jobs["scan"].result = SimpleNamespace(table=session.read(WORDS).table)
    session.jobs["scan"].state = "done"


def scan_that_waits(page: Page, session: Session) -> threading.Event:
    """Start a scan on the page that runs until the returned event is set."""
    ended = threading.Event()

    def answer(route: Route) -> None:
        if ended.is_set():
            scanned(session)
            route.continue_()
        else:
            route.fulfill(json={"state": "running", "stage": "", "done": 0, "total": 0})

    page.route("**/api/jobs/scan", answer)
    page.click("nav a[data-panel=heads]")
    page.click("#scan")
    expect(page.locator("#scan")).to_contain_text("Stop")
    return ended


def pressed(page: Page) -> Locator:
    return page.locator("article.card .token[aria-pressed=true]")


def card_of(page: Page) -> Locator:
    card = page.locator("article.card")
    expect(card).to_contain_text("Where it looks, by distance")
    return card


def test_a_finished_scan_keeps_the_learners_input(chrome: Browser) -> None:
    session = fresh_session("bert")
    with served(session) as address, page_at(chrome, f"{address}#text={WORDS}") as page:
        ended = scan_that_waits(page, session)
        page.evaluate("(where) => { location.hash = where; }", f"{WARM_UP}&text={WORDS}")
        page.wait_for_selector("body[data-lesson=warm-up]")
        page.click("#lesson-number")
        page.keyboard.type("0.9")
        page.evaluate("document.querySelector('#lesson-number').mine = true")
        waiting: list[Route] = []
        page.route("**/api/lesson", lambda route: waiting.append(route))
        ended.set()
        while not waiting:
            page.wait_for_timeout(20)
        expect(page.locator("#lesson-number")).to_be_focused()
        page.keyboard.type("7")
        waiting.pop().continue_()
        page.wait_for_selector("body[data-lesson=warm-up]")
        expect(page.locator("#lesson-number")).to_have_value("0.97")
        assert page.evaluate("document.activeElement.mine"), "nothing was redrawn"


def test_a_step_that_a_scan_changes_keeps_answer_focus_and_place(chrome: Browser) -> None:
    session = fresh_session("bert")
    small = {"width": 1280, "height": 500}
    with served(session) as address, page_at(chrome, f"{address}#text={WORDS}", size=small) as page:
        ended = scan_that_waits(page, session)
        page.evaluate("(where) => { location.hash = where; }", f"{WARM_UP}&text={WORDS}")
        page.wait_for_selector("body[data-lesson=warm-up]")
        page.fill("#lesson-number", "0.5")
        page.press("#lesson-number", "Enter")
        expect(page.locator(".lesson-verdict")).to_contain_text("Not quite")
        page.click("[data-step=spare]")
        page.wait_for_selector("body[data-lesson=spare]")
        answer = page.locator(".lesson-question input[name=answer]").first
        is_choice = answer.get_attribute("type") == "radio"
        answer.check() if is_choice else answer.fill("3")
        answer.focus()
        before = page.evaluate("scrollY")
        assert before > 0
        ended.set()
        expect(page.locator(".lesson-roles").first).to_be_visible()
        expect(answer).to_be_focused()
        assert answer.is_checked() if is_choice else answer.input_value() == "3"
        assert page.evaluate("scrollY") == before
        page.click("[data-step=warm-up]")
        expect(page.locator(".lesson-verdict")).to_contain_text("you said 0.5")


def test_roles_are_shown_with_their_origin(chrome: Browser) -> None:
    session = fresh_session("bert")
    with served(session) as address, page_at(chrome, f"{address}#text={WORDS}") as page:
        page.click("#grid [data-head=L1H2]")
        expect(card_of(page)).to_contain_text("(From this text alone.)")
        scanned(session)
        page.click("#grid [data-head=L0H1]")
        card = page.locator("article.card[aria-label='Head L0H1']")
        expect(card).to_contain_text("Where it looks, by distance")
        expect(card).not_to_contain_text("From this text alone")
        expect(card.locator("caption").first).to_have_text("From built-in text and sentences")
        session.jobs["scan"].state = "stopped"
        page.reload()
        expect(page.locator("#scan")).to_have_text("Find roles ✓")


def test_a_plan_with_heads_that_cannot_be_cut_is_not_saved(chrome: Browser) -> None:
    page = chrome.new_page()  # a rejected request is also an error in the console
    try:
        with served(tiny_session("llama")) as address:
            page.goto(f"{address}#panel=whatif&off=L0H1&text={WORDS}")
            expect(page.locator("#saved")).to_contain_text("It cannot be cut as it is")
            page.click("#keep")
            expect(page.locator("#status.bad")).to_contain_text("share keys and values")
            expect(page.locator("#saved")).not_to_contain_text("plan.json")
            page.click("#switches [data-head=L0H0]")
            page.click("#switches [data-head=L0H2]")
            expect(page.locator("#saved")).to_contain_text("3 heads off. Cutting them would save")
            with page.expect_download():
                page.click("#keep")
            expect(page.locator("#saved")).to_contain_text("Cut them with: headwise.cut(model, ")
            expect(page.locator("#saved")).not_to_contain_text("headwise prune")
    finally:
        page.close()


def test_a_model_loaded_by_name_is_cut_by_a_command(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#panel=whatif&off=L0H1") as page:
        page.wait_for_selector("body[data-outcome='1']")
        with page.expect_download():
            page.click("#keep")
        command = "Cut it with: headwise prune minilm --plan plan.json --out smaller"
        expect(page.locator("#saved")).to_contain_text(command)


def test_a_moving_slider_changes_the_address_once_it_stops(chrome: Browser) -> None:
    with (
        served(tiny_session("bert")) as address,
        page_at(chrome, f"{address}#panel=whatif&off=L1H2&text={WORDS}") as page,
    ):
        page.wait_for_selector("body[data-outcome='1']")
        page.evaluate(COUNTED)
        page.focus("#factor")
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        expect(page.locator("#factor-said")).to_have_text("1.00")
        page.keyboard.press("ArrowRight")
        until(page, "decodeURIComponent(location.hash).includes('off=L1H2*1.05')")
        assert page.evaluate("window.written") <= 4
        page.keyboard.press("ArrowRight")
        page.click("nav a[data-panel=heads]")
        page.go_back()
        until(page, "decodeURIComponent(location.hash).includes('off=L1H2*1.1')")


def test_the_page_works_if_the_browser_rejects_a_new_address(chrome: Browser) -> None:
    with (
        served(tiny_session("bert")) as address,
        page_at(chrome, f"{address}#panel=whatif&text={WORDS}") as page,
    ):
        page.wait_for_selector("body[data-outcome='0']")
        page.evaluate(REFUSED)
        page.click("#switches [data-head=L1H2]")
        page.wait_for_selector("body[data-outcome='1']")
        page.wait_for_timeout(400)


def test_labels_appear_with_their_map_and_the_readout_disappears_with_it(
    chrome: Browser, site: str
) -> None:
    with page_at(chrome, f"{site}#head=L3H1&text={quote(CAT)}") as page:
        card, readout = card_of(page), page.locator("article.card .readout")
        card.locator("canvas").focus()
        for key in ("ArrowDown", "ArrowRight"):
            for _ in range(12):
                page.keyboard.press(key)
        last = readout.inner_text()
        waiting: list[Route] = []
        page.route("**/heads/*?*", lambda route: waiting.append(route))
        page.evaluate("document.querySelector('[data-look=words]').click()")
        while not waiting:
            page.wait_for_timeout(20)
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowDown")
        assert readout.inner_text() == last, "the old map is read with its own labels"
        waiting.pop().continue_()
        expect(card.locator(".token", has_text="unbelievably")).to_have_count(1)
        expect(readout).to_have_text("")


def test_heads_can_be_pressed_below_many_sentences_on_a_phone(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#panel=whatif", size=PHONE) as page:
        page.wait_for_selector("body[data-outcome='0']")
        page.fill("#sentences", "\n".join(f"This is sentence number {n}." for n in range(8)))
        page.locator("#sentences").blur()
        expect(page.locator("#outcome table.matrix").first.locator("tr")).to_have_count(9)
        box = page.locator("#outcome").bounding_box()
        assert box is not None and box["height"] <= 0.45 * PHONE["height"] + 1
        page.locator("#switches [data-head=L5H11]").click(timeout=5000)
        page.wait_for_selector("body[data-outcome='1']")
        assert faults(page) == []


def test_a_row_far_into_a_text_is_shown_in_the_sentence(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L0H0&text={quote(LONG)}") as page:
        card = card_of(page)
        expect(card).to_contain_text(
            "A bar is a token's share, of the first 256 of 482; the line is an equal one."
        )
        box = card.locator("canvas").bounding_box()
        assert box is not None
        card.locator("canvas").click(position={"x": 30, "y": box["height"] - 8})
        expect(pressed(page)).to_have_count(1)
        expect(pressed(page)).to_be_in_viewport()
        expect(card.locator("path.arc")).not_to_have_count(0)
        inside = """(element) => { const token = element.getBoundingClientRect(),
            box = element.closest('.sentence').getBoundingClientRect();
            return token.top >= box.top - 1 && token.bottom <= box.bottom + 1; }"""
        assert pressed(page).evaluate(inside)


def test_arrow_keys_move_past_the_edge_of_a_zoomed_map(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L0H0&text={quote(LONG)}") as page:
        card, readout = card_of(page), page.locator("article.card .readout")
        for size in (241, 121, 61, 31, 16, 8):
            page.click("button[aria-label='Zoom in']")
            until(page, f"{AREA}.includes('{size} by {size}')")
        card.locator("canvas").focus()
        places = []
        for _ in range(12):
            page.keyboard.press("ArrowDown")
            expect(readout).not_to_have_text(places[-1] if places else "")
            until(page, "document.querySelector('article.card .readout').textContent !== ''")
            places.append(readout.inner_text())
        rows = [int(re.findall(r"\((\d+)\)", place)[0]) for place in places]
        assert rows == list(range(rows[0], rows[0] + 12))


def test_a_letter_being_composed_is_not_sent(chrome: Browser) -> None:
    reads: list[str] = []
    send = """(isComposing) => document.getElementById('text').dispatchEvent(new KeyboardEvent(
        'keydown', { key: 'Enter', isComposing, bubbles: true, cancelable: true }))"""
    with (
        served(tiny_session("bert")) as address,
        page_at(chrome, f"{address}#text={WORDS}") as page,
    ):
        page.on(
            "request",
            lambda request: reads.append(request.url) if request.method == "POST" else None,
        )
        page.evaluate(send, True)
        page.wait_for_timeout(200)
        assert reads == []
        page.evaluate(send, False)
        page.wait_for_timeout(200)
        assert len(reads) == 1


def test_the_grid_keeps_the_focus_when_long_work_ends(chrome: Browser) -> None:
    session = fresh_session("bert")
    with served(session) as address, page_at(chrome, f"{address}#text={WORDS}") as page:
        ended = scan_that_waits(page, session)
        page.focus("#grid [data-head=L0H0]")
        page.keyboard.press("ArrowDown")
        ended.set()
        expect(page.locator("#scan")).to_have_text("Find roles ✓")
        expect(page.locator("#grid [data-head=L1H0]")).to_be_focused()


def test_silenced_heads_show_how_much_they_are_missed(chrome: Browser) -> None:
    with (
        served(tiny_session("bert")) as address,
        page_at(chrome, f"{address}#panel=lesson&step=spare&text={WORDS}") as page,
    ):
        page.wait_for_selector("body[data-lesson=spare]")
        heads = page.locator("button.lesson-owner.spare")
        expect(heads.locator(".number")).to_have_text(["?"] * 5)  # the question asks for it
        heads.nth(3).click()
        expect(heads.nth(3)).to_be_focused()
        expect(heads.locator(".number").nth(3)).not_to_have_text("?")
        expect(heads.locator(".number").nth(2)).to_have_text("?")
        page.get_by_role("button", name="Show and rank all").click()
        labels = [head.get_attribute("aria-label") or "" for head in heads.all()]
        ranks = ["most", "2nd most", "3rd most", "4th most", "5th most"]
        assert [label.split(", ")[1].split(":")[0] for label in labels] == [
            f"{rank} missed of 5" for rank in ranks
        ]
