"""The page in a real browser: every panel, every action, no error and no request elsewhere."""

import json
import re
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from headwise.pruning.selection.cut_plan import CutPlan
from headwise.scans.scan import ScanJob
from headwise.scans.settings import ScanSettings

from .browser import DESKTOP, PHONE, faults, page_at, served, settle, until
from .sessions import CAT, WORDS, tiny_session

ROOM = {"width": 1920, "height": 1080}
STILL = "Below is still the text read before."
PANELS = ("heads", "whatif", "lesson", "plan")
MARKUP = "<img src=x onerror=alert(1)> <b>bold</b> \u202eturned 🙂 words"


def saved(page: Page, press: str, folder: Path) -> Path:
    with page.expect_download() as waiting:
        page.click(press)
    place = folder / waiting.value.suggested_filename
    waiting.value.save_as(place)
    return place


CHIPS = """Object.fromEntries([...document.querySelectorAll('#legend .chip')].map((box) =>
    [box.textContent.replace(/^[A-Z] | [0-9]+$/g, ''), getComputedStyle(box).borderLeftColor]))"""


def hidden(page: Page) -> list[str]:
    """Boxes of an outcome whose content overflows."""
    scrolled: list[str] = page.evaluate(
        """[...document.querySelectorAll('#whatif .beside, #outcome, #outcome *')].filter((box) =>
        (box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1)
        && getComputedStyle(box).overflow !== 'visible' && box.clientHeight)
        .map((box) => box.outerHTML.slice(0, 80))"""
    )
    return scrolled


def show(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")
    until(page, "!document.getElementById('status').textContent.includes('Reading')")


def test_heads_are_drawn_chosen_reached_by_keys_and_shared(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.wait_for_selector("body[data-drawn]")
        assert page.locator("#grid .head canvas").count() == 72
        page.wait_for_selector("body[data-head=L0H2]")  # a sharp head, until one is chosen
        assert page.evaluate("location.hash") == ""
        numbers = page.locator("#grid [role=columnheader]").all_inner_texts()
        assert numbers == ["head", *map(str, range(12))]
        expect(page.locator("#legend")).to_contain_text("stronger colour is more")
        page.click("#grid [data-head=L3H1]")
        page.wait_for_selector("body[data-head=L3H1]")
        expect(page.locator("article.card h3").first).to_have_text("L3H1")
        page.hover("#grid [data-head=L0H2]")
        expect(page.locator("#figures")).to_contain_text("L0H2")
        page.focus("#grid [data-head=L3H1]")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-head=L2H2]")
        until(page, "location.hash.includes('head=L2H2')")
        with page_at(chrome, page.url) as other:
            other.wait_for_selector("body[data-head=L2H2]")


def test_a_click_on_a_head_is_one_request(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        settle(page)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.click("#grid [data-head=L3H1]")
        expect(page.locator("article.card")).to_contain_text("Where it looks, by distance")
        page.wait_for_selector("body[data-head=L3H1]")
        settle(page)
        assert [re.sub(r".*/readings/\w+/|\?.*", "", url) for url in requests] == ["heads/L3H1"]


def test_one_head_is_shown_in_every_view(chrome: Browser, site: str, tmp_path: Path) -> None:
    with page_at(chrome, f"{site}#head=L3H1") as page:
        show(page, CAT)
        card = page.locator("article.card")
        expect(card).to_contain_text("Where it looks, by distance")
        expect(card).to_contain_text("(From this text alone.)")
        expect(card.locator(":is([data-look], [data-beside])[title^='Pressed: ']")).to_have_count(5)
        for look, key in (("Special tokens", "special=0"), ("Whole words", "words=1")):
            card.get_by_role("button", name=look).click()
            until(page, f"location.hash.includes('{key}')")
        expect(card.locator(".token", has_text="unbelievably")).to_have_count(1)
        card.get_by_role("button", name="First token").click()
        card.get_by_role("button", name="Weigh by values").click()
        until(page, "location.hash.includes('values=1')")
        canvas = card.locator("canvas").first
        canvas.hover(position={"x": 150, "y": 150})
        expect(card.locator(".readout")).to_have_text(re.compile(r".+ → .+: \d"))
        canvas.focus()
        page.keyboard.press("ArrowDown")
        expect(card.locator(".readout")).to_have_text(re.compile(r".+ → .+: \d"))
        card.locator(".token", has_text="cat").click()
        expect(card.locator(".token", has_text="cat")).to_have_attribute("aria-pressed", "true")
        expect(card.locator("path.arc")).not_to_have_count(0)
        for title, words in (("Evidence for roles", "baseline"), ("Every measure", "entropy")):
            card.locator("summary", has_text=title).click()
            expect(card.locator("details", has_text=title).locator("table")).to_contain_text(words)
        svg = saved(page, "article.card button:has-text('SVG')", tmp_path)
        assert svg.read_text("utf-8").startswith("<svg") and "unbelievably" in svg.read_text(
            "utf-8"
        )
        png = saved(page, "article.card button:has-text('PNG')", tmp_path)
        assert png.read_bytes().startswith(b"\x89PNG") and png.name == "L3H1.png"
        card.get_by_role("button", name="Beside").click()
        page.click("#grid [data-head=L0H2]")
        expect(page.locator("article.card")).to_have_count(2)


def test_the_grid_is_coloured_sorted_filtered_and_scanned(
    chrome: Browser, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = partial(ScanJob.of, settings=ScanSettings(per_relation=25, max_sentences=300, probe=True))
    monkeypatch.setattr(ScanJob, "of", few)
    with page_at(chrome, site) as page:
        page.select_option("#colour", "normalised_entropy")
        expect(page.locator("#legend")).to_contain_text("(faint) to 0.9")
        page.select_option("#colour", "role")
        expect(page.locator("#legend")).to_contain_text("From this text alone")
        colours = page.evaluate(CHIPS)
        assert len(set(colours.values())) == len(colours) and "no role" in colours
        page.select_option("#colour", "normalised_entropy")
        page.select_option("#colour", "previous")
        legend = page.inner_text("#legend")
        page.select_option("#order", "previous")
        first = page.locator("#grid .head").first
        assert first.get_attribute("data-head") == "L0H2"
        page.click("#scan")
        expect(page.locator("#scan")).to_contain_text("Stop")
        page.click("#scan")
        expect(page.locator("#scan")).to_have_text(re.compile("Find roles"), timeout=60_000)
        if "✓" not in page.inner_text("#scan"):
            page.click("#scan")
        expect(page.locator("#scan")).to_have_text("Find roles ✓", timeout=120_000)
        expect(page.locator("#legend")).to_contain_text("syntactic")
        expect(page.locator("#legend")).to_contain_text("From built-in text and sentences")
        page.select_option("#colour", "previous")
        assert page.inner_text("#legend") == legend, "figures stay those of the text that was read"
        page.select_option("#colour", "role")
        page.select_option("#role", "positional")
        dim = page.locator("#grid .head.dim").count()
        assert 0 < dim < 72
        assert "dim" not in (page.get_attribute("#grid [data-head=L0H2]", "class") or "")


def test_long_texts_are_seen_whole_and_in_part(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L1H9") as page:
        show(page, "a word and another one here " * 150)
        expect(page.locator("#status")).to_contain_text(
            re.compile("The model takes at most 512 tokens: the last [0-9]+ tokens were left out")
        )
        cells = "document.querySelector('article.card canvas').getAttribute('aria-label')"
        until(page, f"{cells}.includes('512 by 512')")
        page.click("button[aria-label='Zoom in']")
        until(page, f"{cells}.includes('256 by 256')")
        page.click("button[aria-label='Zoom in']")
        until(page, f"{cells}.includes('128 by 128')")
        box = page.locator("article.card canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 300, box["y"] + 300)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 200, steps=4)
        page.mouse.up()
        with page.expect_response(re.compile("/map")):
            page.click("button[aria-label='Zoom out']")
        page.get_by_role("button", name="Whole map").click()
        until(page, f"{cells}.includes('512 by 512')")


def test_a_late_progress_report_is_not_shown(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        progress: list[Route] = []
        readings: list[Route] = []
        page.route("**/api/progress", lambda route: progress.append(route))
        page.route("**/api/readings", lambda route: readings.append(route))
        page.fill("#text", "another sentence")
        page.press("#text", "Enter")
        while not progress:
            page.wait_for_timeout(50)
        readings.pop().continue_()
        expect(page.locator("#status")).to_contain_text("tokens read")
        for late in progress:
            with page.expect_response("**/api/progress"):
                late.continue_()
        page.wait_for_timeout(200)
        expect(page.locator("#progress")).to_be_hidden()


def test_long_work_is_followed_again_after_a_lost_answer(chrome: Browser, site: str) -> None:
    page = chrome.new_page()  # a rejected request is also an error in the console
    try:
        page.goto(site)
        page.wait_for_selector("#status:has-text('tokens read')")
        page.route(
            "**/api/jobs/scan",
            lambda route: route.abort() if route.request.method == "GET" else route.continue_(),
        )
        page.click("#scan")
        expect(page.locator("#status")).to_contain_text("does not answer")
        page.unroute("**/api/jobs/scan")
        page.click("#scan")
        expect(page.locator("#scan")).to_have_text(re.compile("Stop|✓"), timeout=60_000)
    finally:
        page.close()


def test_heads_are_switched_off_scaled_and_kept(chrome: Browser, site: str, tmp_path: Path) -> None:
    with page_at(chrome, f"{site}#panel=whatif") as page:
        page.wait_for_selector("body[data-outcome='0']")
        expect(page.locator("#scaled")).to_contain_text("press a head first")
        for head in ("L3H1", "L0H0"):
            page.click(f"#switches [data-head={head}]")
        page.wait_for_selector("body[data-outcome='2']")
        expect(page.locator("#scaled")).to_have_text("L0H0")
        expect(page.locator("#saved")).to_contain_text("98,496 parameters")
        expect(page.locator("#outcome")).to_contain_text("Untouched")
        before, after = (
            page.locator("#outcome table.matrix").nth(at).inner_text() for at in (0, 1)
        )
        assert before.split("\n")[1:] != after.split("\n")[1:]
        plan = saved(page, "#keep", tmp_path)
        assert str(CutPlan.read(plan)) == "L0H0 L3H1"
        assert json.loads(plan.read_text("utf-8"))["model"] == "minilm"
        page.locator("#factor").fill("0.5")
        page.wait_for_selector("body[data-outcome='1']")
        until(page, "decodeURIComponent(location.hash).includes('L0H0*0.5')")
        page.fill("#sentences", "One sentence.\nAnother one.")
        page.locator("#sentences").blur()
        expect(page.locator("#outcome table.matrix").first.locator("tr")).to_have_count(3)
        page.click("#reset")
        page.wait_for_selector("body[data-outcome='0']")


def test_a_causal_models_predictions_are_shown_beside_the_unchanged_ones(chrome: Browser) -> None:
    with (
        served(tiny_session("llama")) as address,
        page_at(chrome, f"{address}#panel=whatif&text={WORDS}") as page,
    ):
        page.wait_for_selector("body[data-outcome='0']")
        expect(page.locator("#outcome")).to_contain_text("Likeliest next tokens")
        page.click("#switches [data-head=L0H1]")
        expect(page.locator("#saved")).to_contain_text("1 head off. It cannot be cut as it is: ")
        page.set_viewport_size(PHONE)
        assert hidden(page) == []
        page.set_viewport_size(DESKTOP)
        page.click("nav a[data-panel=heads]")
        page.click("#grid [data-head=L1H4]")
        expect(page.locator("article.card")).to_contain_text("KV head 1 of 2")


def test_the_planner_moves_with_its_sliders(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#panel=plan") as page:
        page.wait_for_selector("body[data-planned='28311552']")
        table = page.locator("#planner table").first
        for row in (
            "KV cache 36 MiB",
            "materialised 24 MiB",
            "Operations a byte read in decoding 1.00",
        ):
            expect(table).to_contain_text(re.compile(row.replace(" ", r"\s*")))
        page.focus("#plan-layers")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("body[data-planned='37748736']")
        expect(page.locator("#planner svg").first).to_contain_text("gpt2")
        page.focus("#plan-heads")
        page.keyboard.press("ArrowRight")
        expect(table.locator("caption")).to_contain_text("16 heads of 48, 16 KV heads")
        assert page.get_attribute("body", "data-planned") == "37748736", "the same parameters"
        page.keyboard.press("ArrowRight")
        uneven = "20 heads do not share a width of 768 evenly: each is taken as 38 wide."
        expect(page.locator("#planner")).to_contain_text(uneven)
        page.locator("#planner").get_by_label("Up").select_option("num_heads")
        expect(page.locator("#planner svg").first).to_contain_text("Heads")
        expect(page.locator("#planner")).to_contain_text("rank 64 of 1,024")
        expect(page.locator("#planner caption").last).to_contain_text(
            "takes the same parameters and multiply-adds. What differs is the size of each head"
        )


def test_user_text_is_never_markup(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L0H0") as page:
        page.on("dialog", lambda dialog: pytest.fail(f"ran: {dialog.message}"))
        show(page, MARKUP)
        expect(page.locator(".token", has_text="<").first).to_be_visible()
        assert page.locator("main img, main b").count() == 0
        for panel in PANELS:
            page.click(f"nav a[data-panel={panel}]")
        page.wait_for_timeout(300)
        show(page, "   ")
        expect(page.locator("#status")).to_have_text(
            f"The text is empty: write a few words. {STILL}"
        )


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_every_panel_is_accessible_and_fits(
    chrome: Browser, site: str, scheme: str, size: dict[str, int]
) -> None:
    with page_at(chrome, f"{site}#head=L3H1&beside=L0H2", size=size, scheme=scheme) as page:
        page.wait_for_selector("body[data-drawn]")
        for panel in PANELS:
            page.click(f"nav a[data-panel={panel}]")
            settle(page)
            assert faults(page) == [], panel
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= size["width"], (panel, wide)
            if panel == "whatif":
                assert hidden(page) == []
        page.click("#theme")
        other = "light" if scheme == "dark" else "dark"
        assert page.evaluate("document.documentElement.dataset.theme") == other


def test_the_page_is_readable_across_a_room_and_its_header_is_small_on_small_screens(
    chrome: Browser, site: str
) -> None:
    size = "parseFloat(getComputedStyle(document.querySelector({!r})).fontSize)"
    small = {"width": 1280, "height": 720}
    with page_at(chrome, f"{site}#head=L3H1", size=small) as page:
        expect(page.locator("article.card")).to_contain_text("Where it looks, by distance")
        assert page.evaluate("document.querySelector('header').offsetHeight") < 0.2 * 720
        assert page.evaluate(size.format("body")) == 15
        beside = "document.querySelector('#one')"
        assert page.evaluate(f"{beside}.scrollHeight <= {beside}.clientHeight")
        page.evaluate("scrollTo(0, 400)")
        assert page.evaluate("document.querySelector('#grid').getBoundingClientRect().top") >= 0
        page.set_viewport_size(ROOM)
        assert 20 <= page.evaluate(size.format("body")) <= 22
        assert page.evaluate("document.querySelector('main').offsetWidth") > 1800
        assert page.evaluate(size.format(".hint")) >= 20
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= ROOM["width"]
