"""Several heads on one stage: arcs between the same words, names of rows, and small type."""

import numpy as np
import pytest

from .stage_modules import run
from .test_stage_geometry import MINUS, SCENE, TEXT, scene

TWINS = [0.0] * 11 + [1.0] + [0.0] * 2
"""All of a word's attention on "tired"."""


@pytest.mark.parametrize("width", [1344, 350])
@pytest.mark.parametrize("share", [0.7, 0.3])
def test_arcs_of_two_heads_between_the_same_words_stay_apart(width: int, share: float) -> None:
    rows = [[each * value for value in TWINS] for each in (share, 0.6)]
    found = scene(TEXT, [{"shares": {8: row}} for row in rows], width, word=8)["scene"]
    one, other = sorted(found["arcs"], key=lambda arc: arc["slot"])
    body = """
        return data.map(({ curve, widths }) => [0, 0.2, 0.5, 0.8, 1].map((t) => ({
            ...pointAt(curve, t), half: (widths.start + (widths.landing - widths.start) * t) / 2,
        })));
    """
    pair = run({"geometry": "pointAt"}, body, [one, other])
    for (at, outer), inner in zip(enumerate(pair[0]), pair[1], strict=True):
        away = np.hypot(outer["x"] - inner["x"], outer["y"] - inner["y"])
        least = outer["half"] + inner["half"] if at != 1 and at != 3 else 2
        assert away > least
    tips = [arc["curve"]["tip"]["x" if width > 560 else "y"] for arc in (one, other)]
    assert abs(tips[0] - tips[1]) >= (one["arrow"]["width"] + other["arrow"]["width"]) / 2 - 3
    assert one["twins"] == other["twins"] == 1 and one["isOuter"] and not other["isOuter"]


@pytest.mark.parametrize("weak", [0.0, 0.2])
def test_arcs_between_the_same_words_are_labelled_together_or_not_at_all(weak: float) -> None:
    first = [0.0, 0.7, *[0.0] * 12]
    second = [0.0, 0.15, 0.0, weak, *[0.0] * 10]
    found = scene(TEXT, [{"shares": {8: row}} for row in (first, second)], word=8)["scene"]
    texts = [label["text"] for label in found["labels"] if label["key"].endswith(" 1")]
    assert sorted(texts) == ([] if weak else ["15%", "70%"])


def test_a_small_cell_has_its_share_in_smaller_type() -> None:
    row = [1.0] + [0.0] * 13
    cells = scene(TEXT, [{"shares": {8: row}}] * 2, 320, word=8)["scene"]["cells"]
    assert cells[0]["text"] == "100%" and cells[0]["w"] == 42
    body = """
        const broad = { ...measure, label: (text, size) => 0.87 * size * text.length };
        const shown = picture(data.text, data.heads, { word: 8 });
        const layout = layOut(request(shown), broad, 320);
        return makeScene(shown, layout, broad).cells[0];
    """
    (cell,) = [run(SCENE, body, {"text": TEXT, "heads": [{"shares": {8: row}}] * 2})]
    assert cell["text"] == "100%" and 10 <= cell["size"] < 13


def test_small_text_about_a_head_without_a_role_has_the_soft_ink() -> None:
    grey = {"role": None, "colour": "#8b95a3", "letter": "H7"}
    before, after = [0.1, 0.6, *[0.0] * 6, 0.3, *[0.0] * 5], [0.1, 0.2, *[0.0] * 6, 0.7] + [0.0] * 5
    body = """
        const shown = picture(data.text, [data.one, data.one], { word: 8 });
        const second = picture(data.text, [data.other]);
        const aligned = second.words.map((_, at) => [at, at]);
        const pair = { ...second, word: 8, aligned };
        const paired = picture(data.text, [data.one], { word: 8, pair });
        return [shown, paired].map((each) =>
            makeScene(each, layOut(request(each), measure, 1344), measure).notes);
    """
    data = {"one": {"shares": {8: before}, **grey}, "other": {"shares": {8: after}, **grey}}
    rows, changes = run(SCENE, body, {"text": TEXT, **data})
    assert [(note["text"], note["colour"]) for note in rows] == [("H7", "#5a6472")] * 2
    said = {note["text"]: note["colour"] for note in changes}
    assert said == {f"{MINUS}40": "#5a6472", "+40": "#161a21"}


def test_a_head_without_a_role_is_named_beside_its_row() -> None:
    body = "return data.map((heads) => heads.map((_, at) => shortName(heads, at)))"
    stages = [["L3H7", "L3H2"], ["L3H7", "L2H7", "L0H11"], ["encoder.L1H2", "encoder.L0H2"]]
    named = run({"view_pictures": "shortName"}, body, stages)
    assert named == [["H7", "H2"], ["L3H7", "L2H7", "H11"], ["L1H2", "L0H2"]]
