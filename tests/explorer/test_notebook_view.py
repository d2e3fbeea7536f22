"""The head view in notebooks: it draws there, and the chosen head comes back to Python."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from playwright.sync_api import expect

import headwise
from headwise.errors import HeadwiseError, MissingPackage, OptionError
from headwise.explorer import notebook_view
from headwise.explorer.anywidget_view import widget_script, widget_style
from headwise.explorer.maps import OVERVIEW, STEPS, MapOptions, stack_weights
from headwise.explorer.serve import open_socket
from headwise.heads import HeadId

from .browser import browser
from .sessions import ANIMAL, CAT, animal, cat, minilm

EXAMPLES = Path(__file__).parents[2] / "examples"
APP = Path(__file__).with_name("notebook_app.py")


@functools.cache
def shown(head: str | None = None) -> Any:
    scored = minilm().scored
    return headwise.view(scored, ANIMAL, head=head)


def ask(view: Any, kind: str, **facts: object) -> dict[str, Any]:
    """The answer that a browser gets to a question."""
    number = view.question.get("number", 0) + 1
    whole = {"text": view.text["name"], "stack": "", "sender": "test", "number": number}
    view.question = {**whole, "kind": kind, **facts}
    assert (view.answer["sender"], view.answer["number"]) == ("test", number)
    return view.answer


def shares(answer: dict[str, Any], kind: str = "<u2", most: int = STEPS) -> np.ndarray:
    assert answer["error"] == ""
    return np.frombuffer(answer["bytes"], kind).reshape(answer["shape"]) / most


def test_a_view_opens_on_the_first_finding_with_all_weights() -> None:
    view = shown()
    assert (view.head, view.word, len(view.names)) == ("L3H1", 8, 72)
    words = view.text["stacks"][""]["words"]["rows"]
    assert [words[place]["text"] for place in (2, 8)] == ["animal", "it"]
    stored = view.weights[""]
    got = np.frombuffer(stored["bytes"], "<u2").reshape(stored["shape"]) / STEPS
    want = stack_weights(animal(), "", MapOptions(is_by_word=True)).numpy()
    assert np.abs(got - want).max() <= 0.51 / STEPS and round(100 * got[37, 8, 2]) == 68
    assert view.about["name"] == "minilm" and view.about["scan"]
    assert repr(view) == "StageView(L3H1, 72 heads)"


def test_the_head_and_the_word_can_be_set_and_are_checked() -> None:
    view = headwise.view(minilm().scored, ANIMAL, head="L0H2")
    assert (view.head, view.word) == ("L0H2", None)
    view.head, view.word = "L0H2, L2H1,L3H1", 3
    assert (view.head, view.word) == ("L0H2,L2H1,L3H1", 3)
    for wrong, message in (
        ("L99H0", r"L99H0.*L0, L1"),
        ("L0H1,L0H2,L0H3,L0H4,L0H5", "at most 4"),
        ("", "L"),
    ):
        with pytest.raises(HeadwiseError, match=message):
            view.head = wrong
    assert view.head == "L0H2,L2H1,L3H1"


def test_questions_are_answered_with_the_numbers_of_the_server() -> None:
    view, head = shown(), HeadId(3, 1)
    by_word = MapOptions(is_by_word=True, is_valued=True)
    flags = {"is_by_word": True, "drops_sink": False, "is_valued": True}
    want = stack_weights(animal(), "", by_word).numpy()
    for kind, facts, part in (
        ("weights", {}, want),
        ("row", {"head": str(head), "at": 8, "by": False}, want[37, 8]),
        ("row", {"head": str(head), "at": 2, "by": True}, want[37, :, 2]),
        ("cells", {"head": str(head), "part": None}, want[37]),
        ("cells", {"head": str(head), "part": {"rows": [2, 6], "keys": [0, 3]}}, want[37, 2:6, :3]),
    ):
        got = shares(ask(view, kind, **flags, **facts))
        assert got.shape == part.shape and np.abs(got - part).max() <= 0.51 / STEPS
    bars = shares(ask(view, "bars", **flags, at=8, by=False, size=64), "u1", 255)
    assert np.abs(bars - want[:, 8]).max() <= 0.51 / 255
    thumbs = shares(ask(view, "thumbs", **flags, layer="L3", size=64), "u1", 255)
    assert np.abs(thumbs - np.sqrt(want[36:48])).max() <= 0.51 / 255
    assert ask(view, "facts", head="L3H1")["value"]["head"] == "L3H1"
    other = ANIMAL.replace("tired", "wide")
    pair = ask(view, "pair", other=other)["value"]
    assert pair["second"]["text"] == other
    second = ask(view, "weights", text=pair["second"]["name"], is_by_word=True)
    assert round(100 * shares(second)[37, 8, 2]) == 28
    page = ask(view, "page", swap=None)["value"]
    assert page["name"].endswith(".html") and page["page"].startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("kind", "facts", "message"),
    [
        ("other", {}, "kind is 'other'.*weights"),
        ("row", {"head": "L9H9", "at": 0, "by": False}, "L9H9"),
        ("row", {"head": "L0H0", "at": 99, "by": False}, "at is 99"),
        ("row", {"head": "L0H0", "at": "x", "by": False}, "cannot be answered"),
        ("row", {}, "cannot be answered.*head"),
        ("pair", {"other": " "}, "text is empty"),
        ("weights", {"text": "0123"}, "no longer in memory"),
    ],
)
def test_wrong_questions_get_one_sentence(kind: str, facts: dict[str, Any], message: str) -> None:
    answer = ask(shown(), kind, **facts)
    assert re.search(message, answer["error"]) and "bytes" not in answer


def test_a_long_texts_weights_are_sent_when_asked_for() -> None:
    view = headwise.view(minilm().scored, "a word here " * 120)
    assert view.weights == {} and not view.text["is_small"]
    cells = ask(view, "cells", head="L0H2", part=None, is_by_word=True)
    assert max(cells["shape"]) <= OVERVIEW
    assert "request at most" in ask(view, "weights", is_by_word=True)["error"]


def test_a_table_is_viewed_without_a_model() -> None:
    view = minilm().scan_table.view("L3H1")
    assert view.head == "L3H1" and view.facts[0].startswith("coreference: an earlier mention; syn")
    view.head = "L0H2"
    assert view.facts[0] == "positional: one word back"
    with pytest.raises(OptionError, match=r"L0H12.*0\.\.11"):
        view.head = "L0H12"
    assert view.head == "L0H2" and repr(view) == "TableView(L0H2, 72 heads)"
    bare = headwise.HeadTable(cat().table.df[["stack", "layer", "head"]], {}).view()
    assert bare.facts == ["no clear role", ""]


def test_scripts_and_styles_of_the_widgets_stay_in_their_element() -> None:
    for script in (widget_script("stage/notebook_host.js"), widget_script("stage/table_view.js")):
        assert script.rstrip().splitlines()[-1].startswith("export default { render:")
        assert script.count("export ") == 1 and "import {" not in script
    selectors = re.findall(r"^([^\s@}][^{}]*)\{", widget_style(), re.MULTILINE)
    assert len(selectors) > 50
    alien = [name for name in selectors if not re.search(r"\.h[vw]-|data-theme|^from |^to ", name)]
    assert alien == []


def test_a_view_needs_a_known_head_a_tokenizer_and_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(OptionError, match=r"L0H12.*0\.\.11"):
        headwise.view(minilm().scored, ANIMAL, head="L0H12")
    with pytest.raises(OptionError, match="tokenizer"):
        headwise.view(minilm().scored.model, CAT)
    monkeypatch.setattr(notebook_view.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'headwise\[notebook\]'"):
        headwise.view(minilm().scored, ANIMAL)


LESS = {"scan(MODEL)": "scan(MODEL, TEXTS)", "fit_tokens=1024": "fit_tokens=256"}
"""Replacements that make the notebooks read less text."""


@pytest.mark.slow
def test_the_example_notebooks_run(tmp_path: Path) -> None:
    """Run the notebooks in one kernel, and clear its names in between."""
    paths = sorted(EXAMPLES.glob("*.ipynb"))
    books = [nbformat.read(path, as_version=4) for path in paths]
    forget = nbformat.v4.new_code_cell
    for shown, less in LESS.items():
        (cell,) = [cell for book in books for cell in book.cells if shown in cell.source]
        cell.source = cell.source.replace(shown, less)
    cells = [cell for book in books for cell in (*book.cells, forget("%reset -f"))]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    together = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(together, timeout=300, kernel_name="python3", resources=where).execute()
    for path, book in zip(paths, books, strict=True):
        outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
        kinds = {kind for output in outputs for kind in output.get("data", {})}
        assert outputs and not any(output["output_type"] == "error" for output in outputs)
        is_viewed = "application/vnd.jupyter.widget-view+json" in kinds
        assert is_viewed == (path.name != "prune_and_ship.ipynb")


@pytest.mark.slow
def test_a_click_in_a_notebook_sets_the_head_in_python() -> None:
    free = open_socket(0)
    port = str(free.getsockname()[1])
    free.close()
    command = [sys.executable, "-m", "marimo", "run", str(APP), "--headless", "--no-token"]
    mine = os.environ | {"MARIMO_SKIP_UPDATE_CHECK": "1"}
    server = subprocess.Popen(
        [*command, "--port", port], env=mine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    elsewhere: list[str] = []
    try:
        assert server.stdout is not None
        while b"URL" not in (line := server.stdout.readline()):
            assert line or server.poll() is None, "marimo did not start"
        with browser() as chrome:
            page = chrome.new_page()
            page.on(
                "request",
                lambda request: (
                    None
                    if request.url.startswith((f"http://127.0.0.1:{port}", "blob:", "data:"))
                    or request.url.startswith(f"ws://127.0.0.1:{port}")
                    else elsewhere.append(request.url)
                ),
            )
            page.goto(f"http://127.0.0.1:{port}/")
            expect(page.get_by_text("chosen: L3H1")).to_be_visible(timeout=180_000)
            box = page.locator(".hw-notebook").first
            expect(box).to_have_attribute("data-head", "L3H1", timeout=60_000)
            expect(box.get_by_role("button", name=re.compile("^it, looks at"))).to_be_visible()
            markup = box.locator("b", has_text=re.compile("^mat$"))
            assert markup.count() == 0, "markup in the text is text"
            box.get_by_role("gridcell", name=re.compile("^L0H2")).click()
            expect(page.get_by_text("chosen: L0H2")).to_be_visible(timeout=60_000)
            expect(box).to_have_attribute("data-head", "L0H2")
            words = box.locator("[data-word]").count()
            box.get_by_role("button", name="View").click()
            box.get_by_role("switch", name="Whole words").click()  # Python computes the pieces
            expect(box.locator("[data-word]")).to_have_count(words + 7, timeout=60_000)
            grid = page.locator(".hw-table")
            grid.get_by_role("button", name="L1H0, sink and broad").click()
            expect(page.get_by_text("row: L1H0")).to_be_visible(timeout=60_000)
            assert box.get_attribute("data-theme") == "light"
            page.evaluate("document.body.style.backgroundColor = '#111'")
            page.evaluate("document.documentElement.classList.add('dark')")
            expect(box).to_have_attribute("data-theme", "dark")
            ground = "element => getComputedStyle(element).backgroundColor"
            assert box.evaluate(ground) == "rgb(18, 21, 27)"
        assert elsewhere == []
    finally:
        server.terminate()
        server.wait(20)
