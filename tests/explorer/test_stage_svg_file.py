"""The saved picture as a file: what it contains, and that other programs can read it."""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np

from .stage_modules import run

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "[CLS] The animal did cross the street because it was too tired . [SEP]"
CAPTION = "all-MiniLM-L6-v2, layer 3, head 1. A row looks at a column. Made with headwise 0.1.0."


def saved(text: str = TEXT, size: int = 14, heads: int = 1, **more: object) -> ElementTree.Element:
    rng = np.random.default_rng(11)
    shares = [rng.dirichlet(np.full(size, 0.2), size).tolist() for _ in range(heads)]
    body = """
        const shown = picture(data.text, data.heads, { word: 8, locked: 8, ...data.more });
        const headline = [{ word: "it" }, " looks at ", { word: "animal" }];
        return stageSvg(shown, { headline, caption: data.caption }, measure);
    """
    data: dict[str, Any] = {"text": text, "heads": [{"shares": each} for each in shares]}
    data |= {"more": more, "caption": CAPTION}
    return ElementTree.fromstring(run({"svg_file": "stageSvg"}, body, data))


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def test_the_file_is_1344_units_wide_and_has_a_title_and_a_caption() -> None:
    root = saved()
    assert root.get("viewBox", "").split()[:3] == ["0", "0", "1344"]
    assert root.findtext(f"{SVG}title") == "it looks at animal"
    assert root.findtext(f"{SVG}desc") == CAPTION
    assert "it looks at animal" in texts(root)


def test_text_stays_text() -> None:
    printed = texts(saved())
    for word in TEXT.split():
        assert word in printed
    joined = " ".join(printed)
    assert all(part in joined for part in CAPTION.split())
    assert "100%" in printed  # the colour bar


def test_fills_are_computed_colours() -> None:
    root = saved()
    written = ElementTree.tostring(root, encoding="unicode")
    assert not re.search(r"var\(|color-mix|currentColor|class=\"[^\"]*\bNaN", written)
    ids = {each.get("id") for each in root.iter() if each.get("id")}
    for each in root.iter():
        fill = each.get("fill")
        if fill is not None:
            is_paint = re.fullmatch(r"#[0-9a-f]{6}|none", fill)
            assert is_paint or fill.removeprefix("url(#").removesuffix(")") in ids, fill


def test_a_picture_in_the_dark_theme_is_saved_light() -> None:
    light, dark = (ElementTree.tostring(saved(theme=theme)) for theme in ("light", "dark"))
    assert light == dark


def test_the_map_has_a_row_per_word_and_a_column_per_token() -> None:
    (drawn,) = [each for each in saved().iter(f"{SVG}g") if each.get("class") == "hw-map"]
    cells = [each for each in drawn.iter(f"{SVG}rect") if each.get("rx") == "2"]
    assert len(cells) == 12 * 14


def test_a_long_text_is_saved_as_the_window_that_the_page_shows() -> None:
    text = " ".join(f"word{at}" for at in range(97))
    root = saved(text, 97)
    words = [each for each in texts(root) if each.startswith("word")]
    assert "word8" in words
    assert "word90" not in words
    assert float(root.get("viewBox", "").split()[3]) < 1500


def test_several_heads_are_named() -> None:
    printed = texts(saved(heads=2))
    assert {"L0H0", "L0H1"} <= set(printed)
