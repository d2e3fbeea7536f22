"""The head view in notebooks: it draws there, and the chosen head comes back to Python."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from playwright.sync_api import expect

import headwise
from headwise.errors import MissingPackage, OptionError
from headwise.explorer import notebook_view
from headwise.explorer.maps import STEPS, TILE, MapOptions, map_weights
from headwise.explorer.serve import open_socket

from .browser import browser
from .sessions import CAT, cat, minilm

EXAMPLES = Path(__file__).parents[2] / "examples"
APP = Path(__file__).with_name("notebook_app.py")


def shown(**options: object) -> object:
    scored = minilm().scored
    return headwise.view(scored.model, CAT, tokenizer=scored.tokenizer, **options)


def numbers(view: object) -> np.ndarray:
    cells = view.cells
    return np.frombuffer(cells["values"], "<u2").reshape(cells["shape"]) / STEPS * cells["largest"]


def test_a_view_has_the_map_of_its_head_and_follows_a_new_choice() -> None:
    view = shown(head="L3H1")
    assert (view.head, len(view.names)) == ("L3H1", 72) and view.row_labels[2] == "cat"
    for head, layer, number in (("L3H1", "L3", 1), ("L0H2", "L0", 2)):
        view.head = head
        want = map_weights(cat(), layer, MapOptions(), slice(0, 99), slice(0, 99))[number]
        assert np.abs(numbers(view) - want.numpy()).max() < 1e-4
        assert view.links and view.facts[1].startswith("normalised entropy")
    view.window = {"rows": [2, 6], "keys": [0, 3]}
    assert numbers(view).shape == (4, 3) and view.cells["rows"] == [2, 6]
    assert repr(view) == "HeadView(L0H2, 72 heads)"


def test_choosing_a_head_resets_the_window_and_rejects_unknown_heads() -> None:
    view = shown(head="L3H1")
    part = {"rows": [2, 6], "keys": [0, 3]}
    view.window = part
    view.head = "L0H2"
    assert view.window is None and numbers(view).shape == (len(view.row_labels),) * 2
    view.window = dict(part)
    assert numbers(view).shape == (4, 3), "the same part of another head"
    with pytest.raises(OptionError, match=r"L99H0.*L0, L1"):
        view.head = "L99H0"
    assert view.head == "L0H2" and view.facts[1].startswith("normalised entropy")
    with pytest.raises(OptionError, match=r"L0H12.*0\.\.11"):
        cat().table.view("L0H12")


def test_heads_that_were_not_measured_are_faint() -> None:
    table = headwise.HeadTable(cat().table.df.drop(columns="normalised_entropy"), {})
    view = table.view()
    assert set(view.shades) == {0.0} and not any("entropy" in words for words in view.words)
    assert "no role" in view.words


def test_a_view_can_show_words_and_values() -> None:
    view = shown(look=MapOptions(is_by_word=True, is_valued=True))
    look = MapOptions(is_by_word=True, is_valued=True)
    want = map_weights(cat(), "L0", look, slice(0, 99), slice(0, 99))[0].numpy()
    assert "unbelievably" in view.key_labels
    assert np.abs(numbers(view) - want).max() < 1e-4 * want.max() + 1e-4


def test_a_long_texts_map_is_reduced_and_its_late_tokens_are_followed() -> None:
    scored = minilm().scored
    options = {"tokenizer": scored.tokenizer, "head": "L0H2"}
    view = headwise.view(scored.model, "a word here " * 120, **options)
    size = len(view.row_labels)
    assert size > TILE and view.cells["rows"] == view.cells["keys"] == [0, size]
    first = list(view.links)
    view.token = TILE + 9
    assert view.links != first and min(row for row, *_ in view.links) == TILE
    view.token = 9
    assert view.links == first, "those of early tokens are there again"
    view.token = TILE + 9
    view.head = "L0H3"
    view.head = "L0H2"
    assert view.links == first
    view.token = TILE + 9
    assert min(row for row, *_ in view.links) == TILE, "another choice starts over"
    view.window = {"rows": [3, 9], "keys": [0, 5]}
    assert numbers(view).shape == (6, 5)


def test_a_table_is_viewed_without_a_model() -> None:
    view = cat().table.view("L2H2")
    assert view.head == "L2H2" and view.cells == {} and view.facts
    view.head = "L0H2"
    assert "positional" in view.facts[0]


def test_a_view_needs_a_known_head_a_tokenizer_and_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(OptionError, match=r"L0H12.*0\.\.11"):
        shown(head="L0H12")
    with pytest.raises(OptionError, match="tokenizer"):
        headwise.view(minilm().scored.model, CAT)
    monkeypatch.setattr(notebook_view.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'headwise\[notebook\]'"):
        shown()


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
            page.locator("[data-head=L0H2]").click()
            expect(page.get_by_text("chosen: L0H2")).to_be_visible(timeout=60_000)
            expect(page.locator(".headwise h3")).to_have_text("L0H2")
            page.locator(".headwise canvas").hover(position={"x": 200, "y": 200})
            expect(page.locator(".headwise .readout")).not_to_be_empty()
            assert page.locator(".headwise b").count() == 0
            page.evaluate("document.documentElement.classList.add('dark')")
            cold = "element => getComputedStyle(element).getPropertyValue('--cold').trim()"
            assert page.locator(".headwise").evaluate(cold) == "#17202b"
        assert elsewhere == []
    finally:
        server.terminate()
        server.wait(20)
