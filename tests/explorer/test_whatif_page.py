"""What if in a browser: every control, and sentences and bars that equal Python's answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from headwise.explorer.find_heads import find_heads
from headwise.explorer.generate import generate
from headwise.explorer.random_heads import compare_random
from headwise.explorer.what_if import compare_gated
from headwise.heads import HeadId, parse_heads
from headwise.pruning.selection.cut_plan import CutPlan

from .browser import DESKTOP, PHONE, faults, page_at, served, settle, until
from .sessions import WORDS, minilm, tiny_session

TABLET = {"width": 1024, "height": 900}
INVITATION = "Switch heads off, and see what changes"
OTHERS = ["A kitten lay on a rug.", "Stocks fell."]


def silenced(heads: str) -> dict[HeadId, float]:
    return dict.fromkeys(parse_heads(heads), 0.0)


def percent(share: float) -> str:
    return f"{round(100 * share)}%" if round(100 * share) else "<1"


@pytest.fixture(scope="module")
def causal() -> Iterator[str]:
    """The page of a tiny causal model whose heads share keys and values."""
    with served(tiny_session("llama")) as address:
        yield f"{address}#panel=whatif&text={WORDS}"


def outcome(page: Page, off: int) -> None:
    """Wait until the answer for `off` heads is shown, with its random control."""
    page.wait_for_selector(f"body[data-outcome='{off}']")
    if off:
        until(page, "document.body.dataset.random > 0")


def head(page: Page, name: str) -> None:
    page.click(f".wi-grid [data-head={name}]")


def address(page: Page) -> str:
    page.wait_for_timeout(350)
    return str(page.evaluate("decodeURIComponent(location.hash)"))


def test_the_next_word_and_its_bars_equal_pythons(chrome: Browser, causal: str) -> None:
    session = tiny_session("llama")
    answer = compare_gated(session.scored, [WORDS], {}, session.num_heads).prediction
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        expect(page.locator("#whatif .panel-kicker")).to_have_text("All 18 heads on ")
        expect(page.locator("#whatif .panel-headline")).to_have_text(INVITATION)
        expect(page.locator("#whatif .panel-sub")).to_have_text(
            f"With all 18 heads on, the next word is most likely {answer.names[0]} "
            f"({percent(answer.before[0])}), then {answer.names[1]} ({percent(answer.before[1])})."
        )
        drawn = page.locator(".wi-drawn")
        expect(drawn).to_contain_text(re.compile(r"L\d+H\d+where w31 looks"))
        bars = page.locator(".wi-bars li")
        expect(bars).to_have_count(6)
        for place in range(6):
            expect(bars.nth(place).locator(".wi-name")).to_have_text(answer.names[place])
            expect(bars.nth(place).locator(".wi-number")).to_have_text(
                percent(answer.before[place])
            )
        expect(page.locator(".wi-stage")).to_contain_text(answer.names[0])
        assert page.locator("#whatif button:text-is('Switch all on')").is_disabled()
        assert page.locator("#whatif button:text-is('Keep these cuts')").is_disabled()


def test_a_click_switches_a_head_off_beside_random_heads(chrome: Browser, causal: str) -> None:
    session, chosen = tiny_session("llama"), silenced("L1H2")
    answer = compare_gated(session.scored, [WORDS], chosen, session.num_heads).prediction
    random = compare_random(session.scored, [WORDS], chosen, session.num_heads)
    first, now = (
        max(range(len(side)), key=side.__getitem__) for side in (answer.before, answer.after)
    )
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        head(page, "L1H2")
        outcome(page, 1)
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("1 of 18 heads off")
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("L1H2 · chosen by hand")
        turned = sum(name != random.names[0] for name in random.likeliest)
        shares = [round(100 * share) for share in (answer.before[first], *random.values[0])]
        share = round(100 * answer.after[first])
        is_random = min(shares) <= share <= max(shares) and (first == now or turned > 0)
        if first != now and not is_random:
            turn = f"The next word turns from {answer.names[first]} to {answer.names[now]}"
        elif is_random or share == shares[0]:
            turn = "Hardly any change"
        else:
            way = "less" if share < shares[0] else "more"
            turn = f"{answer.names[first]} becomes {way} likely"
        expect(page.locator("#whatif .panel-headline")).to_have_text(turn)
        low, high = (percent(pick(random.values[0])) for pick in (min, max))
        spread = f"at {low}" if low == high else f"between {low} and {high}"
        sub = page.locator("#whatif .panel-sub")
        expect(sub).to_contain_text("With one head picked at random, ten times, it ")
        expect(sub).to_contain_text(spread)
        assert ("another is likeliest" in sub.inner_text()) == bool(turned)
        for row in page.locator(".wi-bars li").all():
            values = random.values[random.names.index(row.locator(".wi-name").inner_text())]
            ends = f"random heads: {percent(min(values))} to {percent(max(values))}"
            expect(row.locator(".wi-range")).to_have_attribute("title", ends)
        expect(page.locator(".wi-drawn")).to_contain_text("L1H2where w31 looked")
        cell = page.locator(".wi-grid [data-head=L1H2]")
        expect(cell).to_have_attribute("aria-label", re.compile("L1H2.*off"))
        expect(page.locator(".wi-notes")).to_contain_text("Hollow: where L1H2 looked")
        assert "off=L1H2" in address(page)
        page.reload()
        outcome(page, 1)
        expect(page.locator("#whatif .panel-headline")).to_have_text(turn)
        head(page, "L1H2")
        outcome(page, 0)
        page.go_back()
        outcome(page, 1)


def test_layers_drags_and_keys_switch_heads(chrome: Browser, causal: str) -> None:
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        page.click("#whatif button[aria-label='Switch layer L1']")
        outcome(page, 6)
        page.click("#whatif button[aria-label='Switch layer L1']")
        outcome(page, 0)
        cells = [page.locator(f".wi-grid [data-head=L{layer}H3]") for layer in range(3)]
        boxes = [cell.bounding_box() for cell in cells]
        for place, box in enumerate(boxes):
            assert box is not None
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
            if place == 0:
                page.mouse.down()
        page.mouse.up()
        outcome(page, 3)
        page.focus(".wi-grid [data-head=L2H3]")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        until(page, "document.activeElement.dataset.head !== 'L2H3'")
        outcome(page, 4)
        page.keyboard.press("Space")
        outcome(page, 3)
        page.click("#whatif button:text-is('Switch all on')")
        outcome(page, 0)
        page.keyboard.press("Tab")
        expect(page.locator("#whatif button:text-is('Generate')")).to_be_focused()


def test_a_head_is_scaled_with_the_slider(chrome: Browser, causal: str) -> None:
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        head(page, "L0H4")
        outcome(page, 1)
        slider = page.locator("#wi-factor")
        slider.fill("0.5")
        page.wait_for_selector("body[data-outcome='0']")
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("1 of 18 heads scaled")
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("L0H4 \u00d7 0.50")
        assert "off=L0H4*0.5" in address(page)
        page.reload()
        page.wait_for_selector("body[data-outcome='0']")
        expect(slider).to_have_value("0.5")
        expect(page.locator(".wi-saved")).to_contain_text("Heads that are only scaled")
        page.click(".wi-factor button")
        outcome(page, 1)
        page.click(".wi-factor button:text-is('Switch on')")
        page.wait_for_selector("body[data-outcome='0']")
        assert "off=" not in address(page)


def test_cuts_that_are_impossible_say_why(chrome: Browser, causal: str) -> None:
    with page_at(chrome, f"{causal}&off=L0H1") as page:
        outcome(page, 1)
        assert page.locator("#whatif button:text-is('Keep these cuts')").is_disabled()
        saved = page.locator(".wi-saved")
        expect(saved).to_contain_text("Keep these cuts: not possible. ")
        expect(saved).to_contain_text("share keys and values")
        page.goto(f"{causal}&off=L0H0,L0H1,L0H2")
        outcome(page, 3)
        expect(page.locator("#whatif button:text-is('Keep these cuts')")).to_be_enabled()
        expect(saved).to_contain_text("would save")


def test_generated_words_are_compared_and_looked_at(chrome: Browser, causal: str) -> None:
    session, chosen = tiny_session("llama"), silenced("L1H2 L2H0")
    answer = generate(session.scored, WORDS, chosen, session.num_heads)
    with page_at(chrome, f"{causal}&off=L1H2,L2H0") as page:
        outcome(page, 2)
        page.click("#whatif button:text-is('Generate')")
        lines = page.locator(".wi-generated")
        expect(lines).to_have_count(2)
        for place, line in enumerate((answer.before, answer.after)):
            expect(lines.nth(place).locator("b")).to_have_text(line.added.strip())
        lines.nth(1).click()
        count = len(answer.after.added.split())
        expect(page.locator(".wi-stage .wi-new")).to_have_count(count)
        expect(page.locator(".wi-notes")).to_contain_text("Underlined: generated words")
        first = page.locator(".wi-stage .wi-new").first
        expect(first).to_have_text(answer.after.added.split()[0])
        expect(page.locator(".wi-notes")).to_contain_text("looked, from")
        page.locator(".wi-stage .wi-new").nth(1).click()
        assert "line=after" in address(page) and f"word={len(WORDS.split()) + 1}" in address(page)
        page.reload()
        expect(page.locator(".wi-stage .wi-new")).to_have_count(count)
        page.click(".wi-generated[aria-pressed=true]")
        expect(page.locator(".wi-stage .wi-new")).to_have_count(0)
        head(page, "L0H0")
        outcome(page, 3)
        expect(page.locator(".wi-generated")).to_have_count(0)


def test_a_search_finds_heads_and_says_so(chrome: Browser, causal: str) -> None:
    session = tiny_session("llama")
    found = find_heads(session.scored, WORDS, session.num_heads).heads
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        page.click("#whatif button:text-is('Find heads')")
        outcome(page, len(found))
        expect(page.locator("#whatif .panel-kicker")).to_contain_text(
            f"{', '.join(found)} · found by a search on this sentence"
        )
        expect(page.locator("#whatif .panel-sub")).to_contain_text("picked at random, ten times")
        expect(page.locator("#whatif .panel-sub")).to_contain_text(
            "A search chose these heads on this sentence"
        )
        page.reload()
        outcome(page, len(found))
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("found by a search")
        head(page, next(name for name in session_heads() if name not in found))
        outcome(page, len(found) + 1)
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("chosen by hand")


def session_heads() -> list[str]:
    return [
        f"{layer}H{at}"
        for layer, count in tiny_session("llama").num_heads.items()
        for at in range(count)
    ]


def test_a_search_can_be_stopped(chrome: Browser, causal: str) -> None:
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        page.route("**/api/whatif/search", lambda route: None)  # never answers
        page.click("#whatif button:text-is('Find heads')")
        page.click("#whatif button:has-text('Stop')")
        expect(page.locator("#whatif button:text-is('Find heads')")).to_be_visible()
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("All 18 heads on")


def test_words_and_heads_on_the_stage_follow_the_pointer(chrome: Browser, causal: str) -> None:
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        notes = page.locator(".wi-notes")
        expect(notes).to_contain_text(WORDS.split()[-1])
        word = page.locator(".wi-stage [data-word='2']").first
        word.hover()
        expect(notes).to_contain_text(WORDS.split()[2])
        assert "word=" not in address(page)
        word.click()
        assert "word=2" in address(page)
        page.mouse.move(5, 5)
        expect(notes).to_contain_text(WORDS.split()[2])
        page.locator(".wi-stage [data-word='2']").first.focus()
        page.keyboard.press("ArrowRight")
        expect(notes).to_contain_text(WORDS.split()[3])
        page.keyboard.press("Escape")
        expect(notes).to_contain_text(WORDS.split()[-1])


def test_another_sentence_is_read_in_place(chrome: Browser, causal: str) -> None:
    with page_at(chrome, f"{causal}&off=L0H1&found=1") as page:
        outcome(page, 1)
        page.click("#whatif button:text-is('Change sentence')")
        field = page.get_by_label("Sentence", exact=True)
        expect(field).to_have_value(WORDS)
        field.fill("   ")
        field.press("Enter")
        expect(page.locator("#status")).to_contain_text("Write a few words")
        field.fill("w9 w8 w7 w12")
        field.press("Enter")
        until(page, "document.querySelectorAll('.wi-stage [data-word]').length === 4")
        outcome(page, 1)
        expect(page.locator("#whatif .panel-kicker")).to_contain_text("chosen by hand")
        assert "found" not in address(page) and "off=L0H1" in address(page)
        page.locator("#whatif button:text-is('Change sentence')").focus()
        page.keyboard.press("e")
        expect(field).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator(".wi-editor")).to_be_hidden()
        expect(page.locator("#whatif button:text-is('Change sentence')")).to_be_focused()


def test_cosines_of_sentence_pairs_equal_pythons(
    chrome: Browser, site: str, tmp_path: Path
) -> None:
    session, chosen = minilm(), silenced("L0H0 L3H1")
    text = "The cat sat on the mat."
    sentences = [text, *OTHERS]
    similarity = compare_gated(session.scored, sentences, chosen, session.num_heads).similarity
    others = "%0A".join(OTHERS)
    with page_at(chrome, f"{site}#panel=whatif&text={text}&others={others}&off=L0H0,L3H1") as page:
        outcome(page, 2)
        pairs = [(0, 1), (0, 2), (1, 2)]
        order = sorted(
            pairs,
            key=lambda at: -max(similarity.before[at[0]][at[1]], similarity.after[at[0]][at[1]]),
        )
        bars = page.locator(".wi-bars li")
        for place, (one, other) in enumerate(order):
            expect(bars.nth(place).locator(".wi-name")).to_have_text(f"{one + 1} and {other + 1}")
            numbers = [side[one][other] for side in (similarity.before, similarity.after)]
            shown = [f"{number:.3f}".replace("-", "\u2212") for number in numbers]
            expect(bars.nth(place).locator(".wi-number")).to_have_text(shown)
        expect(page.locator("#whatif .panel-sub")).to_contain_text(
            "With two heads picked at random"
        )
        expect(page.locator("#whatif button:text-is('Generate')")).to_be_hidden()
        expect(page.locator(".wi-saved")).to_contain_text("98,496 parameters")
        with page.expect_download() as download:
            page.click("#whatif button:text-is('Keep these cuts')")
        download.value.save_as(tmp_path / "plan.json")
        assert str(CutPlan.read(tmp_path / "plan.json")) == "L0H0 L3H1"
        assert json.loads((tmp_path / "plan.json").read_text("utf-8"))["model"] == "minilm"
        command = "Cut them with: headwise prune minilm --plan plan.json --out smaller"
        expect(page.locator(".wi-saved")).to_contain_text(command)


def test_sentences_to_compare_are_edited_added_and_removed(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#panel=whatif") as page:
        outcome(page, 0)
        fields = page.locator(".wi-sentences textarea")
        expect(fields).to_have_count(3)
        fields.nth(1).fill("The animal was too tired to cross the street.")
        fields.nth(1).press("Enter")
        expect(page.locator("#whatif .panel-sub")).to_contain_text(
            "sentences 1 and 2 are most alike"
        )
        until(page, "document.querySelector('.wi-number').textContent > '0.7'")
        page.get_by_label("Remove sentence 3").click()
        expect(page.locator(".wi-bars li")).to_have_count(1)
        page.click("#whatif button:text-is('Add a sentence')")
        fields.nth(2).fill("A dog barked.")
        fields.nth(2).blur()
        expect(page.locator(".wi-bars li")).to_have_count(3)
        assert "A+dog+barked" in address(page)
        page.reload()
        expect(page.locator(".wi-bars li")).to_have_count(3)
        fields.nth(0).fill("It rained all day.")
        fields.nth(0).press("Enter")
        expect(page.locator(".wi-stage")).to_contain_text("rained")
        for left in (2, 1):
            page.get_by_label(f"Remove sentence {left + 1}").click()
        expect(page.locator("#whatif .panel-headline")).to_have_text("One sentence alone")


def test_masked_and_other_models_predict_without_a_box(chrome: Browser) -> None:
    with (
        served(tiny_session("bert")) as base,
        page_at(chrome, f"{base}#panel=whatif&text={WORDS}&off=L0H1") as page,
    ):
        outcome(page, 1)
        expect(page.locator(".wi-bars").locator("xpath=..")).to_contain_text("Masked word")
        expect(page.locator("#whatif")).to_contain_text("at the last word, 'w31', masked")
        expect(page.locator("#whatif button:text-is('Generate')")).to_be_hidden()


def test_long_texts_show_the_links_of_their_last_word(chrome: Browser) -> None:
    words = " ".join(f"w{7 + place % 90}" for place in range(130))
    with (
        served(tiny_session("gpt2")) as base,
        page_at(chrome, f"{base}#panel=whatif&text={words}&off=L0H1") as page,
    ):
        outcome(page, 1)
        expect(page.locator(".wi-notes")).to_contain_text("Hollow: where L0H1 looked")
        expect(page.locator(".wi-stage .hw-window")).to_be_visible()
        assert page.locator(".wi-stage [data-word]").last.bounding_box() is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "scheme"), [(DESKTOP, "light"), (TABLET, "dark"), (PHONE, "light"), (PHONE, "dark")]
)
def test_the_panel_is_accessible_and_fits(
    chrome: Browser, causal: str, site: str, size: dict[str, int], scheme: str
) -> None:
    views = (f"{causal}&off=L1H2&line=after", f"{site}#panel=whatif&off=L3H1,L1H0*0.5")
    for view in views:
        with page_at(chrome, view, size=size, scheme=scheme) as page:
            outcome(page, 1)
            settle(page)
            assert faults(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_the_headline_stays_in_sight_and_the_grid_in_place(chrome: Browser, causal: str) -> None:
    with page_at(chrome, causal, size=PHONE) as page:
        outcome(page, 0)
        cell = page.locator(".wi-grid [data-head=L1H2]")
        page.locator(".wi-saved").scroll_into_view_if_needed()
        again = page.locator(".wi-again")
        expect(again).to_have_text(INVITATION)
        at = page.evaluate("scrollY")
        cell.click()
        outcome(page, 1)
        settle(page)
        assert abs(page.evaluate("scrollY") - at) < 60
        expect(again).to_be_in_viewport()
        expect(again).to_have_text(page.locator("#whatif .panel-headline").inner_text())
        page.evaluate("scrollTo(0, 0)")
        expect(again).to_be_hidden()
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        cell = page.locator(".wi-grid [data-head=L1H2]")
        before = cell.bounding_box()
        cell.click()
        outcome(page, 1)
        settle(page)
        assert cell.bounding_box() == before


def test_random_draws_end_with_the_next_action_and_begin_again(
    chrome: Browser, causal: str
) -> None:
    with page_at(chrome, causal) as page:
        outcome(page, 0)
        ended: list[str] = []
        page.on("requestfailed", lambda request: ended.append(request.url))
        page.route("**/api/whatif/random", lambda route: None)  # never answers
        with page.expect_request("**/api/whatif/random"):
            head(page, "L1H2")
        with page.expect_request("**/api/whatif/random"):
            page.locator(".wi-stage [data-word='2']").first.click()
        assert len(ended) == 1
        page.click("nav [data-panel=heads]")
        page.wait_for_selector("#heads:not([hidden])")
        until(page, "document.querySelector('#whatif').hidden")
        page.wait_for_timeout(500)
        assert len(ended) == 2
        page.unroute("**/api/whatif/random")
        page.click("nav [data-panel=whatif]")
        outcome(page, 1)
        expect(page.locator("#whatif .panel-sub")).to_contain_text("picked at random")
