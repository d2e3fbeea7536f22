"""A saved page in a browser without a network: everything works except what needs the model."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from headwise.explorer.api_requests import PageRequest
from headwise.explorer.model_facts import BUILTIN_TEXT
from headwise.explorer.save_page import saved_page

from .browser import DESKTOP, PHONE, faults, page_at, settle, until
from .sessions import minilm

HOSTILE = "</script><img src=x onerror=alert(1)> it's <b>bold</b> & more."
HEADLINE = ".hv-heading h2"
LABELS = "[...document.querySelectorAll('[data-word]')].map(word => word.ariaLabel)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for name, text in (("animal", BUILTIN_TEXT), ("hostile", HOSTILE)):
        page = saved_page(minilm(), PageRequest(text))
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


@contextlib.contextmanager
def opened(
    chrome: Browser, path: Path, *, size: dict[str, int] = DESKTOP, scheme: str = "light"
) -> Iterator[Page]:
    """A saved page, offline, in which errors, other requests and broken rules fail the test."""
    wrong: list[str] = []
    file, _, fragment = str(path).partition("#")
    context = chrome.new_context(viewport=size, color_scheme=scheme, offline=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.partition("#")[0] == Path(file).as_uri()
            or request.url.startswith(("blob:", "data:"))
            else wrong.append(request.url)
        ),
    )
    try:
        page.goto(f"{Path(file).as_uri()}#{fragment}")
        until(page, "Boolean(document.body.dataset.drawn)")
        yield page
        assert wrong == []
    finally:
        context.close()


def shows(page: Page, head: str) -> None:
    until(page, f"document.body.dataset.head === '{head}'")


def test_a_saved_page_prints_the_shares_of_the_live_page(
    chrome: Browser, site: str, folder: Path
) -> None:
    heads = ("L3H1", "L2H1", "L1H11", "L0H2")
    shown = []
    with page_at(chrome, site) as live, opened(chrome, folder / "animal.html") as saved:
        for page in (live, saved):
            labels = {}
            for head in heads:
                page.locator(f".hv-head[data-head={head}]").click()
                shows(page, head)
                settle(page)  # words are named once the picture rests
                labels[head] = page.evaluate(LABELS)
            shown.append((labels, page.locator(".hw-stage svg").first.text_content()))
    assert shown[0] == shown[1]
    assert "it, looks at animal 68 percent" in " ".join(shown[0][0]["L3H1"])


def test_words_maps_grid_and_back_work(chrome: Browser, folder: Path) -> None:
    with opened(chrome, folder / "animal.html") as page:
        heading = page.locator(HEADLINE)
        shows(page, "L3H1")
        expect(heading).to_have_text("it looks at animal")
        page.locator("[data-word='4']").hover()
        expect(heading).to_have_text("cross looks at street")
        page.mouse.move(1, 1)
        expect(heading).to_have_text("it looks at animal")
        page.locator("[data-word='4']").click()
        until(page, "location.hash === '#word=4'")
        page.locator(".hv-head[data-head=L0H2]").click()
        shows(page, "L0H2")
        page.locator(".hv-head[data-head=L3H1]").click(modifiers=["Shift"])
        shows(page, "L0H2,L3H1")
        page.go_back()
        shows(page, "L0H2")
        page.go_back()
        page.go_back()
        shows(page, "L3H1")
        expect(heading).to_have_text("it looks at animal")


def test_a_finding_opens_the_pair(chrome: Browser, folder: Path) -> None:
    with opened(chrome, folder / "animal.html") as page:
        page.get_by_role("button", name="What if it was too wide?").click()
        expect(page.locator(HEADLINE)).to_contain_text("looks less at animal")
        assert page.locator("[data-word='8']").count() == 2
        expect(page.get_by_text("Where the swap moves")).to_be_visible()
        expect(page.locator(".hv-head.hv-carries")).to_have_count(5)
        page.get_by_role("button", name="Close").click()
        expect(page.locator(HEADLINE)).to_have_text("it looks at animal")


def test_tools_that_need_the_model_say_so(chrome: Browser, folder: Path) -> None:
    with opened(chrome, folder / "animal.html#words=0&first=0") as page:
        for name in ("Change sentence", "Swap a word"):
            expect(page.get_by_role("button", name=name)).to_be_disabled()
        for key in ("e", "s"):
            page.keyboard.press(key)
        assert page.locator("textarea, input[type=text]").count() == 0
        page.get_by_role("button", name="View").click()
        switches = page.get_by_role("group", name="View").locator("label")
        expect(switches.filter(has_text="Needs the model")).to_have_count(3)
        expect(switches.filter(has_text="Looked at by").locator("input")).to_be_enabled()
        expect(page.locator(".hv-missing")).to_contain_text("need the model")
        assert len(page.evaluate(LABELS)) == 14, "whole words, whatever the address says"


def test_pictures_can_be_saved(chrome: Browser, folder: Path) -> None:
    with opened(chrome, folder / "animal.html") as page:
        for kind in ("SVG", "PNG"):
            page.get_by_role("button", name="Save").click()
            with page.expect_download() as started:
                page.get_by_role("button", name=f"Picture as {kind}").click()
            assert started.value.path().stat().st_size > 5000
        expect(page.get_by_role("button", name="Page as HTML")).to_have_count(0)


def test_user_text_is_never_markup(chrome: Browser, folder: Path) -> None:
    with opened(chrome, folder / "hostile.html") as page:
        assert page.locator("img").count() == 0
        assert page.title().startswith("</script><img src=x")


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_saved_pages_follow_size_and_theme_without_faults(
    chrome: Browser, folder: Path, size: dict[str, int], scheme: str
) -> None:
    with opened(chrome, folder / "animal.html", size=size, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        other = "Light" if scheme == "dark" else "Dark"
        page.get_by_role("button", name=other, exact=True).click()
        expect(page.locator(f".hv-view[data-theme={other.lower()}]")).to_be_visible()


def test_saved_pages_have_no_serious_faults(chrome: Browser, folder: Path) -> None:
    page = saved_page(minilm(), PageRequest(BUILTIN_TEXT)).replace("script-src", "script-src-x", 1)
    path = folder / "loose.html"  # axe is injected as a script, which the policy forbids
    path.write_text(page.replace("default-src 'none';", ""), encoding="utf-8")
    context = chrome.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
    try:
        tab = context.new_page()
        tab.goto(path.as_uri())
        until(tab, "Boolean(document.body.dataset.drawn)")
        assert faults(tab) == []
    finally:
        context.close()


def test_a_page_inside_another_leaves_its_history_alone(chrome: Browser, folder: Path) -> None:
    outer = folder / "outer.html"
    outer.write_text("<iframe src='animal.html' width=1200 height=900></iframe>", encoding="utf-8")
    context = chrome.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
    try:
        page = context.new_page()
        page.goto(outer.as_uri())
        inner = page.frame_locator("iframe")
        before = page.evaluate("history.length")
        inner.locator(".hv-head[data-head=L0H2]").click()
        expect(inner.locator("body[data-head=L0H2]")).to_be_visible()
        assert page.evaluate("history.length") == before
    finally:
        context.close()
