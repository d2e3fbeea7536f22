"""The exercise by hand in a browser: the learner works out each table before it is shown."""

from playwright.sync_api import Browser, expect

from .browser import page_at
from .test_lesson_page import at, drawn


def test_the_tables_by_hand_are_covered_until_they_are_clicked(chrome: Browser, site: str) -> None:
    with page_at(chrome, at(site, "by-hand")) as page:
        figure = drawn(page, "by-hand")
        expect(figure.locator("table")).to_have_count(3)
        for count in range(4, 10):
            figure.get_by_role("button", name="Show the numbers").first.click()
            expect(figure.locator("table")).to_have_count(count)
        expect(figure).to_contain_text("In head 0, Cat has the sharp row")
        figure.get_by_role("button", name="Head 1").click()
        expect(figure.locator("table")).to_have_count(2)
        expect(figure).not_to_contain_text("sharp row")
