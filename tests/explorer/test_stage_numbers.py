"""Numbers and colours of the stage, against values computed in Python."""

import re
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from .stage_modules import STAGE, run

THEMES = ("light", "dark")


def test_a_share_under_half_a_percent_is_written_as_less_than_one() -> None:
    shares = [0, 0.0049, 0.0051, 0.05, 0.0449, 0.684, 1]
    assert run({"numbers": "percent"}, "return data.map(percent)", shares) == [
        "<1", "<1", "1%", "5%", "4%", "68%", "100%",
    ]  # fmt: skip


def test_changes_are_signed_points() -> None:
    changes = [0.224, -0.397, 0.004, -0.004]
    printed = run({"numbers": "points"}, "return data.map(points)", changes)
    assert printed == ["+22", "\N{MINUS SIGN}40", "0", "0"]


def test_a_list_has_an_and_before_its_last_item() -> None:
    lists = [["a"], ["a", "b"], ["a", "b", "c"]]
    joined = run({"numbers": "joinAnd"}, "return data.map(joinAnd)", lists)
    assert joined == ["a", "a and b", "a, b and c"]


def linear(hex_colour: str) -> npt.NDArray[np.float64]:
    channels = np.array([int(hex_colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    low, high = channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
    return np.asarray(np.where(channels <= 0.04045, low, high))


TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
"""Matrices of https://bottosson.github.io/posts/oklab/; the inverses are computed, not typed."""


def mixed(cell: str, colour: str, share: float) -> npt.NDArray[np.float64]:
    one, other = (TO_LAB @ np.cbrt(TO_LMS @ linear(each)) for each in (cell, colour))
    lab = one + np.sqrt(share) * (other - one)
    light = np.linalg.inv(TO_LMS) @ (np.linalg.inv(TO_LAB) @ lab) ** 3
    light = np.clip(light, 0, 1)
    share_of = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.round(255 * share_of))


@pytest.mark.parametrize("theme", THEMES)
def test_fills_are_mixed_in_oklab_by_the_square_root_of_the_share(theme: str) -> None:
    shares = [0, 0.003, 0.05, 0.25, 0.684, 1]
    imports = {"colours": "GROUNDS, ROLES, mix"}
    body = """
        const colours = Object.values(ROLES[data.theme]);
        const fills = colours.map((hex) => data.shares.map((s) => mix(data.theme, hex, s)));
        return { cell: GROUNDS[data.theme].cell, colours, fills };
    """
    answer = run(imports, body, {"theme": theme, "shares": shares})
    for colour, fills in zip(answer["colours"], answer["fills"], strict=True):
        for share, fill in zip(shares, fills, strict=True):
            channels = [int(fill[at : at + 2], 16) for at in (1, 3, 5)]
            expected = mixed(answer["cell"], colour, share)
            assert np.abs(expected - channels).max() <= 1, (colour, share, fill)  # rounding
        assert fills[0] == answer["cell"]
        assert fills[-1] == colour


def contrast(one: str, other: str) -> float:
    low, high = sorted(linear(each) @ np.array([0.2126, 0.7152, 0.0722]) for each in (one, other))
    return float((high + 0.05) / (low + 0.05))


@pytest.mark.parametrize("theme", THEMES)
def test_numbers_can_be_read_on_every_fill(theme: str) -> None:
    body = """
        const shares = Array.from({ length: 201 }, (_, at) => at / 200);
        const colours = [...Object.values(ROLES[data]), GROUNDS[data].rest];
        return colours.flatMap((colour) => shares.map((share) => {
            const fill = mix(data, colour, share);
            return [fill, ink(fill, data, share)];
        }));
    """
    pairs = run({"colours": "GROUNDS, ROLES, ink, mix"}, body, theme)
    assert min(contrast(fill, ink) for fill, ink in pairs) >= 4.5


def test_small_shares_are_soft_and_large_ones_are_black_or_white() -> None:
    body = """
        const inkOf = (share) => ink(mix("light", "#a80f68", share), "light", share);
        return [0.001, 0.02, 0.05, 0.68].map(inkOf);
    """
    soft, still_soft, black, white = run({"colours": "ink, mix"}, body)
    assert [soft, black, white] == ["#5a6472", "#000000", "#ffffff"]
    assert still_soft in (soft, black)


@pytest.mark.parametrize("theme", THEMES)
def test_colours_reach_the_contrast_that_the_palette_promises(theme: str) -> None:
    palette = run(
        {"colours": "GROUNDS, ROLES"}, "return { ...GROUNDS[data], ...ROLES[data] }", theme
    )
    ground = palette["ground"]
    least = {"quiet": 4.3, "rest": 3, "none": 3}
    shapes = {"ground", "raised", "cell", "line"}
    for name, colour in palette.items():
        if name not in shapes:
            assert contrast(colour, ground) >= least.get(name, 4.4), (theme, name)


def test_the_style_sheet_has_the_same_colours() -> None:
    answer = run({"colours": "GROUNDS, ROLES"}, "return { GROUNDS, ROLES }")
    sheet = (STAGE / "stage.css").read_text()
    light, dark = sheet.split('[data-theme="dark"]', 1)
    for theme, css in (("light", light), ("dark", dark.split("}", 1)[0])):
        found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", css))
        expected = {f"role-{name}": colour for name, colour in answer["ROLES"][theme].items()}
        assert found == answer["GROUNDS"][theme] | expected


def test_weights_are_read_as_little_endian_steps() -> None:
    steps = np.arange(2 * 3 * 5, dtype="<u2") * 2000
    body = """
        const bytes = Uint8Array.from(data.bytes).buffer;
        const weights = Weights.fromBytes(["L0H0", "L0H1"], 3, 5, bytes);
        return [[...weights.row("L0H1", 2)], [...weights.column("L0H1", 4)],
                weights.share("L0H0", 1, 3), weights.has("L1H0")];
    """
    row, column, share, has = run({"weights": "Weights"}, body, {"bytes": list(steps.tobytes())})
    expected = steps.reshape(2, 3, 5) / 65535
    assert row == pytest.approx(expected[1, 2], abs=1e-7)  # float32
    assert column == pytest.approx(expected[1, :, 4], abs=1e-7)
    assert share == pytest.approx(expected[0, 1, 3])
    assert not has


def test_weights_of_another_shape_are_refused() -> None:
    body = """
        try { new Weights(["L0H0"], 2, 3, new Uint16Array(7)); return ""; }
        catch (error) { return error.message; }
    """
    message = run({"weights": "Weights"}, body)
    assert "7 values" in message
    assert "1,2,3" in message.replace("L0H0", "1")


def test_text_in_a_saved_picture_is_escaped() -> None:
    text = '<a & "b"> \u0007 \N{GRINNING FACE}'
    xml = run(
        {"dom": "shape, toXml"}, 'return toXml(shape("text", { "data-x": data }, data))', text
    )
    safe = "&lt;a &amp; &quot;b&quot;&gt; \N{REPLACEMENT CHARACTER} \N{GRINNING FACE}"
    assert xml == f'<text data-x="{safe}">{safe}</text>'


def test_every_pair_of_theme_and_role_has_a_colour() -> None:
    roles = run({"colours": "ROLES"}, "return ROLES")
    for theme, role in product(THEMES, roles["light"]):
        assert re.fullmatch(r"#[0-9a-f]{6}", roles[theme][role])


def test_words_shrink_before_a_sentence_breaks_if_that_is_asked_for() -> None:
    text = "[CLS] The doctor told the nurse that she had seen the patient earlier today . [SEP]"
    body = """
        return data.leasts.map((least) => {
            const more = least ? { least } : {};
            const shown = picture(data.text, data.heads, more);
            const layout = layOut({ ...request(shown), ...more }, measure, data.width);
            const cells = deckCells(shown, sidesOf(shown)[0], layout.decks[0], layout, measure);
            return [layout.shape, layout.size, cells.map(({ text }) => text)];
        });
    """
    size = len(text.split())
    row = [0.9, *[0.1 - 0.001 * (size - 2)], *[0.001] * (size - 2)]
    heads = [{"shares": [row] * size}]
    modules = {"layout": "layOut", "cells": "deckCells", "picture": "sidesOf"}

    def drawn(width: int) -> Any:
        data = {"text": text, "heads": heads, "width": width, "leasts": [None, 15]}
        return run(modules, body, data)

    usual, small = drawn(850)
    assert usual[0] == "wrapped" and "<1" not in usual[2]
    assert small[0] == "line" and 15 <= small[1] < 24 and small[2].count("<1") == size - 2
    usual, small = drawn(570)
    assert usual[0] == small[0] == "wrapped"
    assert "<1" not in usual[2] and "<1" in small[2]
