"""The page during errors and long work, and with choices that show nothing."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from .browser import PHONE, page_at, served, settle, until
from .sessions import CAT, WORDS, fresh_session, tiny_session

STILL = "Below is still the text read before."
FEW = "One word is too little: write at least two."
TOKENS = "[...document.querySelectorAll('article.card .token')].map((token) => token.textContent)"
ARCS = "[...document.querySelectorAll('path.arc')].map((arc) => arc.getAttribute('d'))"
NAMES = """[...document.querySelectorAll('#grid .head')].map((head) =>
    [head.dataset.head, getComputedStyle(head, '::after').content])"""


@pytest.fixture(scope="module")
def tiny() -> Iterator[str]:
    with served(fresh_session("bert")) as address:
        yield address


@pytest.fixture
def page(chrome: Browser, tiny: str) -> Iterator[Page]:
    """A page whose rejected requests are expected; each is an error in the console."""
    page = chrome.new_page()
    page.goto(f"{tiny}#head=L1H2&text={WORDS}")
    expect(page.locator("article.card")).to_contain_text("Where it looks, by distance")
    yield page
    page.close()


def test_a_rejected_text_keeps_the_previous_reading(page: Page) -> None:
    address, status = page.url, page.locator("#status")
    for text, why in (("w7", FEW), (" \n ", "The text is empty: write a few words.")):
        page.fill("#text", text)
        page.click("#reader button")
        expect(status).to_have_text(f"{why} {STILL}")
        assert page.input_value("#text") == text, "the text stays, to be corrected"
    page.evaluate("location.hash = '#head=L1H2&text=w8'")
    expect(status).to_have_text(f"{FEW} {STILL}")
    target = address.replace(" ", "+").replace("%20", "+")
    until(page, f"location.href.replaceAll('%20', '+') === '{target}'")
    assert page.evaluate(TOKENS) == WORDS.split()


@pytest.mark.parametrize(("text", "why"), [("w7", FEW), ("%20", "The text is empty")])
def test_an_address_with_a_text_that_cannot_be_read_shows_the_sample(
    chrome: Browser, tiny: str, text: str, why: str
) -> None:
    page = chrome.new_page()
    page.goto(f"{tiny}#head=L1H2&text={text}")
    expect(page.locator("#status.bad")).to_contain_text(why)
    expect(page.locator("#status")).to_contain_text("Below is a sample: ")
    expect(page.locator("article.card")).to_contain_text("Where it looks, by distance")
    until(page, "location.hash === '#head=L1H2'")
    page.close()


def test_the_focus_stays_where_a_button_was_pressed(page: Page) -> None:
    for button in ("[data-look=sink]", "[data-look=values]", "[data-beside]"):
        page.focus(f"article.card {button}")
        page.keyboard.press("Enter")
        expect(page.locator(":focus")).to_have_count(1)
        assert page.evaluate("(selector) => document.activeElement.matches(selector)", button)


def test_scrolling_passes_a_map_unless_it_is_zoomed(chrome: Browser, tiny: str) -> None:
    touch = "getComputedStyle(document.querySelector('.map')).touchAction"
    with page_at(chrome, f"{tiny}#head=L1H2&text={'w7 w31 ' * 20}", size=PHONE) as page:
        page.wait_for_selector("body[data-head=L1H2]")
        assert page.evaluate(touch) == "pan-y"
        page.click("button[aria-label='Zoom in']")
        until(page, f"{touch} === 'none'")
        box = page.locator("article.card canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
        page.mouse.move(box["x"] + 150, box["y"] + 150, steps=3)
        page.mouse.up()
        expect(page.locator(".token[aria-pressed=true]")).to_have_count(0)
        page.mouse.click(box["x"] + 200, box["y"] + 200)
        expect(page.locator(".token[aria-pressed=true]")).to_have_count(1)


def test_a_role_without_heads_fades_nothing(chrome: Browser, tiny: str) -> None:
    with page_at(chrome, f"{tiny}#role=coreference") as page:
        sentence = "No head has the role coreference on this text alone. Press Find roles to look"
        for colour in ("maps", "role", "previous"):
            page.select_option("#colour", colour)
            expect(page.locator("#legend")).to_contain_text(sentence)
            assert page.locator("#grid .head.dim").count() == 0


def test_the_button_for_special_tokens_is_enabled_only_if_there_are_some(
    chrome: Browser, tiny: str, site: str
) -> None:
    button = "article.card [data-look=special]"
    with page_at(chrome, f"{tiny}#head=L1H2&text={WORDS}") as page:
        expect(page.locator(button)).to_be_disabled()
    with page_at(chrome, f"{site}#head=L1H2") as page:
        expect(page.locator(button)).to_be_enabled()
        page.click("article.card [data-look=words]")
        expect(page.locator(button)).to_be_disabled()
        expect(page.locator(button)).to_have_attribute("aria-pressed", "false")


def go_on(page: Page, waiting: list[Route]) -> None:
    """Wait for a held-back request, and let it continue."""
    while not waiting:
        page.wait_for_timeout(20)
    waiting.pop().continue_()


def test_silencing_in_progress_is_shown(chrome: Browser, tiny: str) -> None:
    waiting: list[Route] = []
    outcome = "#outcome[aria-busy=true]"
    with page_at(chrome, f"{tiny}#text={WORDS}") as page:
        page.route("**/api/whatif", lambda route: waiting.append(route))
        page.click("nav a[data-panel=whatif]")
        expect(page.locator(outcome)).to_have_text("Working …")
        go_on(page, waiting)
        expect(page.locator(outcome)).to_have_count(0)
        expect(page.locator("#saved")).to_have_text("Press a head to begin.")
        page.click("#switches [data-head=L1H2]")
        expect(page.locator(f"{outcome} table").first).to_be_visible()
        go_on(page, waiting)
        expect(page.locator(outcome)).to_have_count(0)
        expect(page.locator("#saved")).to_contain_text("1 head off. ")


def test_scaled_heads_survive_a_reload_and_are_left_out_of_a_plan(
    chrome: Browser, site: str, tmp_path: Path
) -> None:
    with page_at(chrome, f"{site}#panel=whatif&off=L1H0*0.5") as page:
        expect(page.locator("#scaled")).to_have_text("L1H0")
        expect(page.locator("#factor-said")).to_have_text("0.50")
        expect(page.locator("#saved")).to_contain_text("1 head scaled, none off")
        page.click("#switches [data-head=L0H0]")
        expect(page.locator("#saved")).to_contain_text("Cutting it would save 49,248 parameters")
        changes = page.locator("#outcome table").nth(1).locator("small").all_inner_texts()
        assert any(change[0] in "+\N{MINUS SIGN}" for change in changes)
        with page.expect_download() as download:
            page.click("#keep")
        download.value.save_as(tmp_path / "plan.json")
        sentence = "Saved plan.json with 1 head. 1 head scaled, not off, and left out"
        expect(page.locator("#saved")).to_contain_text(sentence)
        assert "L1H0" not in json.dumps(json.loads((tmp_path / "plan.json").read_text("utf-8")))


def test_kv_heads_follow_the_heads_of_a_plan(chrome: Browser, tiny: str) -> None:
    with page_at(chrome, f"{tiny}#panel=plan") as page:
        page.wait_for_selector("body[data-planned]")
        kv_output = page.locator("#plan-kv_heads + output")
        page.focus("#plan-heads")
        for key, heads in (("Right", 16), ("Left", 12), ("Left", 9), ("Right", 12)):
            page.keyboard.press(f"Arrow{key}")
            expect(kv_output).to_have_text(str(heads))  # each head has a KV head of its own
            expect(page.locator("#planner caption").first).to_contain_text(f"{heads} heads of")
            assert page.locator("#plan .bad").count() == 0
        page.focus("#plan-kv_heads")
        for kv_heads in (9, 8, 6):
            page.keyboard.press("ArrowLeft")
            expect(kv_output).to_have_text(str(kv_heads))
        page.focus("#plan-heads")
        for key, heads, kv_heads in (("Right", 16, 4), ("Left", 12, 6)):
            page.keyboard.press(f"Arrow{key}")
            expect(kv_output).to_have_text(str(kv_heads))  # fewer, and they divide the heads
            expect(page.locator("#planner caption").first).to_contain_text(f"{heads} heads of")
            assert page.locator("#plan .bad").count() == 0
        page.set_viewport_size(PHONE)
        expect(page.locator("#planner svg.large")).to_be_visible()


def test_a_measure_without_values_is_named_above_the_maps(chrome: Browser, tiny: str) -> None:
    with page_at(chrome, f"{tiny}#colour=zero&order=zero") as page:
        page.wait_for_selector("body[data-drawn]")
        expect(page.locator("#legend")).to_contain_text("Press Measure importance to see it.")
        expect(page.locator("#grid .layer").nth(1)).to_have_text("L0")


def test_arcs_stay_within_a_line_until_a_token_is_chosen(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L2H4&text={CAT * 3}", size=PHONE) as page:
        expect(page.locator("article.card")).to_contain_text("Where it looks, by distance")
        settle(page)
        arcs = [arc.replace("M", "").split(" ") for arc in page.evaluate(ARCS)]
        assert arcs
        for arc in arcs:
            assert abs(float(arc[0].split(",")[1]) - float(arc[-1].split(",")[1])) <= 4
        expect(page.locator("article.card .legend").first).to_have_text(
            "Rows look at columns: faint is 0, strong 1."
        )


def test_text_is_readable_on_every_shade(chrome: Browser, tiny: str) -> None:
    script = """async (shade) => (await import('/static/head_view.js')).ink(shade)"""
    with page_at(chrome, tiny) as page:
        for share in range(11):
            for cold, hot in (((245, 248, 252), (8, 48, 107)), ((23, 32, 43), (185, 220, 255))):
                shade = [a + (b - a) * share / 10 for a, b in zip(cold, hot, strict=True)]
                ink = 1.0 if page.evaluate(script, shade) == "#fff" else 0.0
                light, dark = sorted((luminance(shade), ink), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5


def luminance(shade: list[float]) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [part / 255 for part in shade]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_sorted_squares_show_their_names_and_roles_have_letters(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#colour=role") as page:
        letters = page.locator("#grid .head .letter")
        expect(letters.first).to_be_visible()
        assert {letter[0] for letter in letters.all_inner_texts()} <= set("PDSYMCIUB")
        assert {content for _, content in page.evaluate(NAMES)} == {"none"}
        for colour in ("role", "previous", "maps"):
            page.select_option("#colour", colour)
            page.select_option("#order", "previous")
            assert all(content == f'"{name}"' for name, content in page.evaluate(NAMES))


def test_the_end_of_long_work_keeps_a_colour_chosen_meanwhile(chrome: Browser) -> None:
    session = tiny_session("bert")
    grid = asdict(session.text_answer(WORDS).heads)
    states = iter([{"state": "running", "stage": "", "done": 0, "total": 0}] * 3)
    done = {"state": "done", "found": grid}

    def answer(route: Route) -> None:
        is_asked = route.request.method == "POST"
        route.fulfill(json={"state": "running"} if is_asked else next(states, done))

    with served(session) as address, page_at(chrome, f"{address}#text={WORDS}") as page:
        page.route("**/api/jobs/scan", answer)
        page.click("#scan")
        expect(page.locator("#scan")).to_contain_text("Stop")
        page.select_option("#colour", "self")
        expect(page.locator("#scan")).to_have_text("Find roles ✓")
        assert page.input_value("#colour") == "self"
