"""The page in a real browser: first sight, numbers, address, findings, overlays and saving."""

import math
import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from headwise.explorer.maps import MapOptions, map_weights

from .browser import faults, hash_has, headline, page_at, settle, until, word
from .sessions import ANIMAL, animal

EVERY = slice(None)
CELLS = "[...document.querySelectorAll('.hw-cell')].map((cell) => cell.textContent)"
WIDE = ANIMAL.replace("tired", "wide")
LIST = ".hv-list[aria-label='In {} {}']"


def percent(share: float) -> str:
    """A share as the page prints it."""
    whole = math.floor(100 * share + 0.5)
    return "<1" if whole < 1 else f"{whole}%"


def shares(layer: int, head: int, at: int) -> list[float]:
    """Shares of one word's attention by word, from Python."""
    options = MapOptions(is_by_word=True)
    row = slice(at, at + 1)
    weights = map_weights(animal(), f"L{layer}", options, row, EVERY, head=head)
    return [float(share) for share in weights[0, 0]]


def saved(page: Page, name: str, folder: Path) -> Path:
    """Save something with the Save menu."""
    page.click("[data-tool=save]")
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name).click()
    place = folder / waiting.value.suggested_filename
    waiting.value.save_as(place)
    return place


def test_the_page_opens_on_a_head_with_a_story(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        headline(page, "it looks at animal")
        expect(page.locator(".hv-name")).to_have_text("L3H1")
        expect(page.locator(".hv-sub")).to_contain_text(
            "68% of its attention, in layer 3, head 1. In other texts this head tends to look back "
            "to a mention of the same thing: 63% found, 50% by chance."
        )
        expect(page.locator(".hv-pill")).to_have_text(["Ccoreference", "Ysyntactic"])
        expect(page.locator("#model .long")).to_have_text(
            "all-MiniLM-L6-v2 · 6 layers \u00d7 12 heads"
        )
        assert page.evaluate("location.hash") == ""
        here = page.locator(LIST.format("this", "sentence")).locator("li")
        expect(here).to_contain_text(["links it to animal", "links it to tired", "too wide?"])
        anywhere = page.locator(LIST.format("other", "text"))
        expect(anywhere).to_contain_text(re.compile("On [0-9],[0-9]{3} tokens of other text"))
        expect(anywhere.locator("li")).to_contain_text(
            ["L0H2 looks one word back", "rests on [CLS]", "of 72 heads have no clear role"]
        )
        assert page.locator(".hv-head canvas").count() == 72
        for panel in page.locator(".hv-below > *:visible").all():
            box = panel.bounding_box()
            assert box is not None and box["y"] < 900, "all panels begin without scrolling"


def test_printed_shares_are_those_of_the_model(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        settle(page)
        assert page.evaluate(CELLS) == [percent(share) for share in shares(3, 1, 8)]
        label = "it, looks at animal 68 percent, [CLS] 10 percent, street 5 percent, and 10 more"
        expect(word(page, 8)).to_have_attribute("aria-label", re.compile(re.escape(label)))
        page.get_by_role("button", name="Show as table").click()
        row = page.locator(".hv-table tr.hv-chosen td")
        assert row.all_inner_texts() == [percent(share) for share in shares(3, 1, 8)]
        page.click(".hv-head[data-head=L2H1]")
        headline(page, "it looks at tired")
        assert row.all_inner_texts() == [percent(share) for share in shares(2, 1, 8)]


def test_the_words_are_painted_before_the_model_answers(chrome: Browser, site: str) -> None:
    page = chrome.new_page()
    try:
        page.route("**/api/**", lambda route: None)  # never answered
        page.goto(f"{site}#text=Some+other+words", wait_until="commit")
        expect(page.locator("#first-words")).to_have_text("Some other words ")
        expect(page.locator("#status")).to_have_text("Loading the model")
        places = page.locator("#first-words span")
        assert len({box["y"] for each in places.all() if (box := each.bounding_box())}) == 1
        paints = "performance.getEntriesByType('paint').map((entry) => entry.startTime)"
        until(page, f"{paints}.length > 0")
        assert min(page.evaluate(paints)) < 1000
    finally:
        page.close()


def test_a_hover_on_a_short_text_sends_no_request(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        settle(page)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        word(page, 4).hover()
        headline(page, "cross looks at street")
        page.hover(".hv-head[data-head=L2H1]")
        expect(page.locator(".hv-name")).to_have_text("L2H1")
        page.click(".hv-head[data-head=L2H1]")
        page.click(".hv-head[data-head=L3H1]", modifiers=["Shift"])
        expect(page.locator(".hv-name")).to_have_text("2 heads")
        assert requests == []
        page.click("summary:has-text('About')")
        expect(page.locator(".hv-facts")).to_contain_text("How far it looks")
        assert len(requests) == 1, "facts beyond weights come in one request when they are opened"


def test_the_address_keeps_what_is_chosen_and_back_goes_back(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.click(".hv-head[data-head=L2H1]")
        hash_has(page, head="L2H1", word="8")
        word(page, 4).click()
        hash_has(page, word="4")
        page.keyboard.press("v")
        page.get_by_label("Looked at by").check()
        hash_has(page, by="1")
        page.keyboard.press("Escape")
        with page_at(chrome, page.url) as other:
            headline(other, "cross is looked at by the")
            expect(other.locator(".hv-differs")).to_have_text("View")
        page.go_back()
        hash_has(page, by="")
        page.go_back()
        hash_has(page, word="8")
        page.go_back()
        headline(page, "it looks at animal")
        assert page.evaluate("location.hash") == ""
        page.go_forward()
        headline(page, "it looks at tired")
        page.evaluate("location.hash = '#head=L9H99'")
        expect(page.locator(".hv-name")).to_have_text("L3H1")  # an unknown head is left out


def test_a_typed_address_is_not_overwritten(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.focus('[data-side="0"][data-word="8"]')
        page.evaluate(
            """() => {
                document.activeElement.dispatchEvent(
                    new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true}));
                location.hash = "#head=L0H2"; // before the address of the key is written
                dispatchEvent(new Event("pagehide"));
            }"""
        )
        page.wait_for_selector("body[data-head=L0H2]")


def test_findings_choose_head_word_and_role(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L0H0&word=2") as page:
        finding = page.get_by_role("button", name="L2H1 links it to tired, 71%")
        finding.click()
        headline(page, "it looks at tired")
        expect(finding).to_have_attribute("aria-current", "true")
        page.get_by_role("button", name=re.compile("L1H11 rests on")).click()
        headline(page, "it rests on [CLS]")
        expect(page.locator(".hv-pill[aria-pressed=true]")).to_have_text("Ssink")


def test_several_heads_are_laid_over_each_other(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L0H2,L2H1,L3H1") as page:
        headline(page, "it looks at because, tired and animal")
        heads = page.locator(".hv-named")
        expect(heads).to_have_count(3)
        expect(heads.first).to_contain_text("positional, one word back")
        printed = [shares(0, 2, 8), shares(2, 1, 8), shares(3, 1, 8)]
        expected = [percent(share) for row in printed for share in row]
        until(page, f"{CELLS}.length === {len(expected)}")
        assert page.evaluate(CELLS) == expected
        note = page.locator(".hv-notes p").last
        expect(note).to_have_text(
            re.compile(r"\+ [0-9]+ links under 10%.*On \[CLS\], not drawn: L2H1 13%, L3H1 10%")
        )
        page.get_by_role("button", name="L2H1", exact=True).click()
        expect(page.locator(".hv-tabs [aria-pressed=true]")).to_have_text("L2H1")
        for name in ("L1H8", "L4H0"):
            page.click(f".hv-head[data-head={name}]", modifiers=["Shift"])
        expect(page.locator(".hv-remark")).to_have_text("Four heads are the most on one stage.")
        page.click(".hv-head[data-head=L0H2]", modifiers=["Shift"])
        hash_has(page, head="L2H1,L3H1,L1H8")


def test_a_sink_among_several_heads_rests(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#head=L3H1,L2H1,L1H11&word=8") as page:
        headline(page, "it looks at animal and tired; L1H11 rests on [CLS]")
        resting = shares(1, 11, 8)
        assert resting.index(max(resting)) == 0, "its strongest link goes to [CLS]"
        note = page.locator(".hv-notes p").last
        expect(note).to_contain_text("On [CLS], not drawn: L3H1 10%, L2H1 13%")


def test_heads_shows_the_head_that_what_if_has_chosen(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.click("nav a[data-panel=whatif]")
        expect(page.locator("#heads")).to_be_hidden()
        page.evaluate("location.hash = '#panel=whatif&head=L0H2'")
        page.click("nav a[data-panel=heads]")
        headline(page, "it looks at because")
        said = re.match("[0-9]+%", page.locator(".hv-sub").inner_text())
        assert said is not None
        settle(page)
        assert said[0] == "100%"
        here = CELLS.replace("'.hw-cell'", "'#heads .hw-cell'")
        assert page.evaluate(here) == [percent(share) for share in shares(0, 2, 8)]


def test_the_panel_of_heads_says_what_a_head_is(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        panel = page.locator(".hv-grid-panel")
        expect(panel).to_contain_text(
            "Each square is one head: a part of the model that decides where each word looks."
            " Layers and heads count from 0. The outlined one is the large map made small"
        )
        patterns = panel.get_by_role("list", name="How to read a square")
        expect(patterns.get_by_role("listitem")).to_have_count(3)
        expect(panel.get_by_text("A colour and its letter name a role")).to_be_visible()
        expect(panel).to_contain_text("A head with several (+) counts in each.")
        word(page, 5).hover()
        expect(panel).to_contain_text("a bar for every word, in order, tall if the looks there.")
        expect(patterns).to_be_hidden()


def test_a_role_recolours_the_stage_and_the_legend_counts_every_role(
    chrome: Browser, site: str
) -> None:
    with page_at(chrome, site) as page:
        pill = page.locator(".hv-pill[data-role=syntactic]")
        pill.click()
        hash_has(page, role="syntactic")
        colour = page.evaluate("getComputedStyle(document.querySelector('.hv-headline i')).color")
        assert colour == "rgb(14, 90, 44)"
        legend = page.locator(".hv-legend")
        counts = [int(text) for text in legend.locator("b").all_inner_texts()]
        assert sum(counts) > 72, "a head with two roles counts twice"
        legend.get_by_role("button", name="positional").click()
        assert page.locator(".hv-head.hv-dim").count() == 72 - int(
            legend.locator("[data-role=positional] b").inner_text()
        )
        legend.get_by_role("button", name="positional").click()
        expect(page.locator(".hv-dim")).to_have_count(0)


def test_the_grid_shows_maps_a_word_or_a_measure(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.locator(".hv-segments").get_by_role("button", name="it").click()
        hash_has(page, grid="word")
        expect(page.locator(".hv-bars")).to_have_count(72)
        page.get_by_label("Colour heads by a measure").select_option("distance")
        scale = page.locator(".hv-measure")
        expect(scale).to_have_text(re.compile(r"Mean distance in tokens: [0-9.]+ \(faint\) to"))
        label = page.locator(".hv-head[data-head=L0H2]").get_attribute("aria-label") or ""
        assert re.fullmatch(r"L0H2, positional, [0-9.]+", label.replace(", chosen", ""))
        page.get_by_label("Colour heads by a measure").select_option("zero")
        expect(scale).to_contain_text("not measured yet")
        expect(scale.get_by_role("button", name="Measure importance")).to_be_visible()
        page.locator(".hv-segments").get_by_role("button", name="Maps").click()
        expect(page.locator(".hv-legend")).to_be_visible()


def test_facts_about_a_head_have_plain_names(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.click("summary:has-text('About L3H1')")
        facts = page.locator(".hv-facts")
        expect(facts).to_contain_text("Evidence for roles")
        expect(facts).to_contain_text("What it adds to its layer")
        expect(facts.locator("caption", has_text="How it looks")).to_be_visible()
        names = facts.locator("code").first
        expect(names).to_be_hidden()
        facts.locator("summary", has_text="All columns").click()
        expect(names).to_be_visible()
        assert faults(page) == []


def test_pictures_and_the_page_are_saved(chrome: Browser, site: str, tmp_path: Path) -> None:
    with page_at(chrome, site, scheme="dark") as page:
        svg = saved(page, "Picture as SVG", tmp_path).read_text("utf-8")
        assert svg.startswith("<svg") and "animal" in svg and "68%" in svg
        assert "all-MiniLM-L6-v2, layer 3, head 1." in re.sub(r"<[^>]+>", " ", svg).replace(
            "  ", " "
        )
        assert "#12151b" not in svg, "a saved picture is always light"
        png = saved(page, "Picture as PNG", tmp_path)
        assert png.name == "L3H1.png" and png.read_bytes().startswith(b"\x89PNG")
        html = saved(page, "Page as HTML", tmp_path)
        assert html.suffix == ".html" and html.stat().st_size < 400_000
