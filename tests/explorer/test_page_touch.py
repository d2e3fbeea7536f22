"""Fingers on the page: a long press adds a head, two fingers zoom the map."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page

from .browser import PHONE, hash_has, page_at, settle, until

HELD = 700
"""Milliseconds of a long press."""


@pytest.fixture
def page(chrome: Browser, site: str) -> Iterator[Page]:
    phone: dict[str, Any] = {"has_touch": True, "is_mobile": True}
    with page_at(chrome, site, size=PHONE, **phone) as page:
        settle(page)
        yield page


@pytest.fixture
def fingers(page: Page) -> CDPSession:
    return page.context.new_cdp_session(page)


def touch(fingers: CDPSession, kind: str, *places: tuple[float, float]) -> None:
    """Send a touch event with a finger at each place."""
    points = [{"x": x, "y": y, "id": at} for at, (x, y) in enumerate(places)]
    fingers.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})


def middle(page: Page, selector: str) -> tuple[float, float]:
    """The middle of an element, which is scrolled into view."""
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_long_press_adds_a_head_and_another_removes_it(page: Page, fingers: CDPSession) -> None:
    for heads in ("L3H1,L2H4", "L3H1"):
        touch(fingers, "Start", middle(page, ".hv-head[data-head=L2H4]"))
        page.wait_for_timeout(HELD)
        touch(fingers, "End")
        hash_has(page, head=heads)
        until(page, f"document.body.dataset.head === {heads!r}")


def test_a_short_touch_chooses_a_head_alone(page: Page, fingers: CDPSession) -> None:
    page.touchscreen.tap(*middle(page, ".hv-head[data-head=L2H4]"))
    hash_has(page, head="L2H4")


def test_two_fingers_zoom_the_map_and_a_double_tap_resets_it(
    page: Page, fingers: CDPSession
) -> None:
    x, y = middle(page, ".hv-map")
    action = "document.querySelector('.hv-map').style.touchAction"
    assert page.evaluate(action) == "pan-y"
    before = page.evaluate("document.querySelector('.hv-map').toDataURL()")
    touch(fingers, "Start", (x - 20, y), (x + 20, y))
    for apart in (30, 45, 60, 80):
        touch(fingers, "Move", (x - apart, y), (x + apart, y))
    touch(fingers, "End")
    until(page, f"{action} === 'none'")
    assert page.evaluate("document.querySelector('.hv-map').toDataURL()") != before
    assert page.evaluate("visualViewport.scale") == 1
    page.locator(".hv-map").dblclick(position={"x": 60, "y": 60})
    until(page, f"{action} === 'pan-y'")
