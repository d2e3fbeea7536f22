"""Two sentences that differ in a word: what the swap moves, in words and numbers."""

import math
import re
from collections.abc import Iterator
from urllib.parse import quote

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from headwise.explorer.maps import MapOptions, map_weights

from .browser import PHONE, faults, hash_has, headline, page_at, until, word
from .sessions import ANIMAL, minilm

WIDE = ANIMAL.replace("tired", "wide")
IT = 8


def row(text: str, layer: int, head: int) -> np.ndarray:
    """Shares of the pronoun's attention by word, from Python."""
    analysis, options = minilm().read(text), MapOptions(is_by_word=True)
    at = slice(IT, IT + 1)
    weights = map_weights(analysis, f"L{layer}", options, at, slice(None), head=head)
    return weights[0, 0].double().numpy()


@pytest.fixture(scope="module")
def shared(chrome: Browser, site: str) -> Iterator[Page]:
    with page_at(chrome, f"{site}#swap={quote(WIDE)}") as page:
        yield page


@pytest.fixture
def page(shared: Page) -> Iterator[Page]:
    shared.mouse.move(700, 12)
    shared.evaluate(
        "(text) => { location.hash = `#word=8&swap=${encodeURIComponent(text)}`; }", WIDE
    )
    headline(shared, "With wide, it looks less at animal")
    yield shared


def test_the_headline_says_what_moved_and_no_more(page: Page) -> None:
    sub = (
        "68% falls to 28%. Most of that goes to [CLS]: 22 points. "
        "cross gains 8, to 9%; street 7, to 12%."
    )
    expect(page.locator(".hv-sub")).to_have_text(sub)
    before, after = row(ANIMAL, 3, 1), row(WIDE, 3, 1)
    assert [math.floor(100 * share[2] + 0.5) for share in (before, after)] == [68, 28]
    assert math.floor(100 * (after - before)[0] + 0.5) == 22
    assert [math.floor(100 * after[at] + 0.5) for at in (4, 6)] == [9, 12]
    expect(page.locator(".hv-remark")).to_have_text("one word swapped")


def test_heads_are_ranked_by_the_attention_that_goes_elsewhere(page: Page) -> None:
    ranked = page.locator(".hv-ranking button")
    expect(ranked).to_have_count(12)
    distance = {
        f"L{layer}H{head}": np.abs(row(ANIMAL, layer, head) - row(WIDE, layer, head)).sum() / 2
        for layer in range(6)
        for head in range(12)
    }
    names = sorted(distance, key=lambda name: -distance[name])[:12]
    assert [button.get_attribute("data-head") for button in ranked.all()] == names
    printed = [f"{math.floor(100 * distance[name] + 0.5)}%" for name in names]
    assert page.locator(".hv-ranking .hv-number").all_inner_texts() == printed
    expect(page.locator(".hv-rank h2")).to_have_text(
        f"Where the swap moves it most the 12 of 72 heads that change most: "
        f"in {names[0]}, {printed[0]} of its attention goes elsewhere than before"
    )
    expect(ranked.first).to_contain_text("animal \N{MINUS SIGN}40, [CLS] +22")
    ranked.nth(1).click()
    hash_has(page, head=names[1])
    expect(page.locator(".hv-name")).to_have_text(names[1])


def test_hovering_either_sentence_shows_the_word_in_both(page: Page) -> None:
    page.locator('.hw-stage [data-side="1"][data-word="4"]').hover()
    expect(page.locator(".hv-headline")).to_contain_text("cross")
    expect(page.locator(".hv-rank h2")).to_contain_text("moves cross most")


def test_one_text_of_the_pair_is_shown_alone(page: Page) -> None:
    tools = page.get_by_role("group", name="Sentence and view")
    tools.get_by_role("button", name="wide").click()
    hash_has(page, side="second")
    expect(word(page, 11)).to_have_text("wide")
    expect(page.locator('[data-side="1"]')).to_have_count(0)
    expect(page.locator(".hv-sub")).to_contain_text("of its attention")
    tools.get_by_role("button", name="tired").click()
    headline(page, "it looks at animal")
    tools.get_by_role("button", name="Both").click()
    headline(page, "With wide, it looks less at animal")
    page.get_by_role("button", name="With wide").click()
    hash_has(page, of="second")
    page.get_by_role("button", name="Close").click()
    hash_has(page, swap="")
    headline(page, "it looks at animal")
    page.go_back()
    headline(page, "With wide, it looks less at animal")


def test_a_word_is_swapped_in_place(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.click("[data-tool=swap]")
        expect(page.locator(".hv-remark")).to_have_text("Click the word to swap.")
        word(page, 11).click()
        field = page.get_by_role("textbox", name="Replace tired with")
        expect(field).to_be_focused()
        place, before, after = (
            each.bounding_box() or {"x": math.nan, "width": 0}
            for each in (field, *(word(page, at).locator(".hw-pill") for at in (10, 12)))
        )
        assert before["x"] + before["width"] <= place["x"] + 1, "neighbours stay in sight"
        assert place["x"] + place["width"] <= after["x"] + 1
        page.keyboard.type("wide")
        page.keyboard.press("Enter")
        headline(page, "With wide, it looks less at animal")
        hash_has(page, swap=WIDE)
        page.keyboard.press("Escape")
        expect(page.locator('[data-side="1"]').first).to_be_visible()
        assert faults(page) == []


def test_the_finding_opens_the_pair(chrome: Browser, site: str) -> None:
    with page_at(chrome, site) as page:
        page.get_by_role("button", name="What if it was too wide?").click()
        headline(page, "With wide, it looks less at animal")
        until(page, "document.querySelectorAll('.hw-dashed, [stroke-dasharray]').length > 0")


def test_a_phone_names_only_the_largest_gain(chrome: Browser, site: str) -> None:
    with page_at(chrome, f"{site}#swap={quote(WIDE)}", size=PHONE) as page:
        expect(page.locator(".hv-sub")).to_have_text(
            "68% falls to 28%. Most of that goes to [CLS]: 22 points."
        )


def test_a_word_without_a_partner_leaves_a_gap(chrome: Browser, site: str) -> None:
    longer = ANIMAL.replace("too tired", "tired")
    with page_at(chrome, f"{site}#swap={quote(longer)}") as page:
        expect(page.locator(".hv-headline")).to_have_text(re.compile("it looks"))
        tools = page.get_by_role("group", name="Sentence and view")
        expect(tools.get_by_role("button", name="First")).to_be_visible()
        expect(page.locator('[data-side="1"]')).to_have_count(13)


def test_dots_mark_the_heads_that_carry_the_difference(page: Page) -> None:
    carries = minilm().pair_answer(ANIMAL, WIDE).carries
    assert carries is not None
    names = sorted(carries, key=lambda name: -abs(carries[name]))[:5]
    dots, note = page.locator(".hv-head.hv-carries"), page.locator(".hv-carriers")
    expect(dots).to_have_count(5)
    assert {dot.get_attribute("data-head") for dot in dots.all()} == set(names)
    shares = [f"{math.floor(100 * carries[name] + 0.5)}%" for name in names]
    listed = ", ".join(map(" ".join, zip(names, shares, strict=True)))
    expect(note).to_have_text(
        "Dots mark the heads that carry most of the difference between the two sentences: "
        f"{listed}. Each head was patched alone."
    )
    label = f"{names[0]}, no clear role, carries {shares[0]} of the difference"
    expect(page.get_by_role("gridcell", name=label)).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(dots).to_have_count(0)
    expect(note).to_be_hidden()
    expect(page.get_by_role("gridcell", name="of the difference")).to_have_count(0)


def test_sentences_of_different_lengths_have_no_dots(chrome: Browser, site: str) -> None:
    longer = ANIMAL.replace("too tired", "tired")
    with page_at(chrome, f"{site}#swap={quote(longer)}") as page:
        expect(page.locator(".hv-carriers")).to_have_text(
            "The two sentences have different numbers of tokens, so what each head carries cannot "
            "be compared."
        )
        expect(page.locator(".hv-carries")).to_have_count(0)


def test_shares_keep_their_sign_and_small_ones_are_left_out(page: Page) -> None:
    notes = page.evaluate(
        """async () => {
        const { carriersNote } = await import("/static/stage/carriers.js");
        return [{ L0H0: -0.12, L1H0: 0.2, L1H1: 0.04 }, { L0H0: 0.051 }, { L0H0: 0.02 }]
            .map((carries) => carriersNote(carries, null));
        }"""
    )
    end = "Each head was patched alone."
    difference = "of the difference between the two sentences"
    assert notes == [
        f"Dots mark the heads that carry most {difference}: L1H0 20%, L0H0 \N{MINUS SIGN}12%. "
        f"A minus means that the head works against it. {end}",
        f"The dot marks the head that carries most {difference}: L0H0 5%. {end}",
        f"No head carries 5% or more {difference}. {end}",
    ]
