"""A real browser on the explorer's page, and errors that must never happen there.

In: a session. Out: the address of a server for it in this process, and pages of the system's
Chromium that fail a test on any console error and on any request to elsewhere.
"""

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from headwise.explorer.routes import Explorer
from headwise.explorer.serve import open_socket
from headwise.explorer.session import Session

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Tried in this order; the first takes three quarters of the others' time."""
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
WAIT = int(os.environ.get("HEADWISE_WAIT", "60000"))
"""Milliseconds to wait for the page: tests must pass on a busy machine."""
expect.set_options(timeout=WAIT)
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@contextlib.contextmanager
def served(session: Session) -> Iterator[str]:
    """Serve the session's page on a free port inside the block."""
    here = open_socket(0)
    config = uvicorn.Config(Explorer(session).app(), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [here]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{here.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(10)


def chromium() -> str:
    """The system's Chromium, which `make test` installs."""
    named = os.environ.get("HEADWISE_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, NAMES)), None)
    assert path, "Chromium is missing: make test installs it, or set HEADWISE_CHROMIUM"
    return path


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium inside the block."""
    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=chromium(), args=list(QUIET))
        try:
            yield chrome
        finally:
            chrome.close()


@contextlib.contextmanager
def page_at(
    browser: Browser,
    address: str,
    *,
    size: dict[str, int] = DESKTOP,
    scheme: str = "light",
    **options: Any,
) -> Iterator[Page]:
    """A fresh page, which must cause no error and no request to another server."""
    wrong: list[str] = []
    base = address.split("#")[0]
    context = browser.new_context(viewport=size, color_scheme=scheme, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(WAIT)
    page.on(
        "console", lambda message: wrong.append(message.text) if message.type == "error" else None
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith((base, "blob:", "data:")) else wrong.append(request.url)
        ),
    )
    try:
        page.goto(address)
        page.wait_for_selector("#status:has-text('tokens read')", state="attached")
        yield page
        assert wrong == []
    finally:
        context.close()


def until(page: Page, expression: str, seconds: float = 60.0) -> None:
    """Wait until the expression is true; the page's policy forbids `wait_for_function`."""
    for _ in range(int(seconds / 0.05)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def settle(page: Page) -> None:
    """Wait until nothing on the page has changed for a quarter of a second."""
    before, since = "", 0
    while since < 5:
        now = page.evaluate("document.body.innerHTML")
        since = since + 1 if now == before else 0
        before = now
        page.wait_for_timeout(50)


def word(page: Page, at: int) -> Locator:
    """A word's button on the stage, in the first sentence."""
    return page.locator(f'.hw-stage [data-side="0"][data-word="{at}"]')


def headline(page: Page, text: str) -> None:
    """Wait for a headline."""
    expect(page.locator(".hv-headline")).to_have_text(text)


def hash_has(page: Page, **values: str) -> None:
    """Wait until the address has these values; "" means that it has none."""
    for key, value in values.items():
        script = f"new URLSearchParams(location.hash.slice(1)).get({key!r}) ?? ''"
        until(page, f"({script}) === {json.dumps(value)}")


def faults(page: Page) -> list[str]:
    """Serious accessibility violations that axe finds on the current page."""
    violations = Axe().run(page).response["violations"]
    serious = [each for each in violations if each["impact"] in ("serious", "critical")]
    nodes = [(violation["id"], violation["nodes"][0]) for violation in serious]
    return [f"{rule}: {node['html'][:150]} {node['failureSummary'][:300]}" for rule, node in nodes]
