"""The lesson on a phone: the page stays where the learner taps."""

from playwright.sync_api import Browser, expect

from .browser import PHONE, page_at
from .test_lesson_page import at, drawn


def test_on_a_phone_the_tapped_button_stays_and_the_verdict_is_in_view(
    chrome: Browser, site: str
) -> None:
    with page_at(chrome, at(site, "why-many"), size=PHONE, reduced_motion="reduce") as page:
        drawn(page, "why-many")
        steps = page.locator(".lesson-steps a:visible")
        expect(steps).to_have_text([*"1234567", "By hand"])
        option = page.locator("[data-option='0']")
        option.scroll_into_view_if_needed()
        before = option.bounding_box()
        option.click()
        page.wait_for_selector("body[data-answered=why-many]")
        page.wait_for_timeout(800)
        after, verdict = option.bounding_box(), page.locator(".lesson-verdict").bounding_box()
        assert before and after and verdict
        assert 0 <= after["y"] <= before["y"] + 2
        assert verdict["y"] + verdict["height"] <= PHONE["height"] + 1


def test_on_a_phone_the_steps_can_be_chosen(chrome: Browser, site: str) -> None:
    with page_at(chrome, at(site, "why-many"), size=PHONE, reduced_motion="reduce") as page:
        step = page.locator(".lesson-steps a").nth(5)
        expect(step).to_be_visible()
        step.click()
        letters = page.locator(".lesson-owner .lesson-chip")
        expect(letters).to_have_count(12)
        expect(letters.nth(1)).to_have_text("C")
        expect(letters.nth(1)).to_have_attribute("title", "coreference")
