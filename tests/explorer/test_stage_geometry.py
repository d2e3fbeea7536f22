"""Where the stage puts words, cells, arcs and shares, against the specification's formulas."""

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from .stage_modules import run

TEXT = "[CLS] The animal did cross the street because it was too tired . [SEP]"
MINUS = "\N{MINUS SIGN}"
LONG = " ".join(f"word{at}" for at in range(97)) + " ."
SCENE = {
    "layout": "layOut",
    "scene": "makeScene",
    "arcs": "deckArcs",
    "draw": "arcShape, cellShape",
    "geometry": "pointAt, sides",
    "picture": "sidesOf",
}


def scene(
    text: str, heads: list[Any], width: float = 1344, view: Any = None, **more: object
) -> Any:
    """Layout and scene of heads with random or given shares."""
    body = """
        const shown = picture(data.text, data.heads, data.more);
        const layout = { ...layOut(request(shown), measure, data.width), view: data.view };
        return { layout, scene: makeScene(shown, layout, measure) };
    """
    data = {"text": text, "heads": heads, "width": width, "view": view, "more": more}
    return run(SCENE, body, data)


def random_head(size: int, seed: int = 0, **more: object) -> dict[str, Any]:
    shares = np.random.default_rng(seed).dirichlet(np.full(size, 0.15), size)
    return {"shares": shares.tolist(), **more}


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    return (
        one["x"] < other["x"] + other["w"] - 1e-6
        and other["x"] < one["x"] + one["w"] - 1e-6
        and one["y"] < other["y"] + other["h"] - 1e-6
        and other["y"] < one["y"] + one["h"] - 1e-6
    )


def test_an_arc_is_higher_the_further_it_reaches() -> None:
    cases = [(dx, most) for dx in (0, 31, 211, 700, 1290, 1700) for most in (196, 160, 128, 64)]
    body = "return data.map(([dx, most]) => arcHeight(dx, 1290, most))"
    heights = run({"geometry": "arcHeight"}, body, cases)
    expected = [34 + (most - 34) * min(1, dx / 1290) ** 0.72 for dx, most in cases]
    assert heights == pytest.approx(expected)


def test_an_arc_leaves_and_lands_vertically_and_its_tip_is_on_the_edge() -> None:
    body = "return [arch(957, 300, 364, 150, 11), arch(100, 400, 50, 90, 7, true)]"
    above, below = run({"geometry": "arch"}, body)
    assert above["start"] == {"x": 957, "y": 364}
    assert above["one"] == {"x": 957, "y": pytest.approx(364 - 1.34 * 150)}
    assert above["two"] == {"x": 300, "y": pytest.approx(364 - 1.34 * 150)}
    assert above["tip"] == {"x": 300, "y": 364}
    assert above["end"]["x"] == 300
    assert below["one"]["y"] == pytest.approx(50 + 1.34 * 90)


@pytest.mark.parametrize("share", [0.003, 0.05, 0.09, 0.2, 0.684, 1.0])
def test_a_ribbon_is_as_wide_as_its_share(share: float) -> None:
    body = """
        const widths = ribbonWidths(data);
        const curve = arch(900, 300, 360, 150, 9);
        const { left, right } = sides(curve, widths, 1);
        const gap = (point, other) => Math.hypot(point.x - other.x, point.y - other.y);
        const across = left.map((point, at) => gap(point, right[at]));
        return { across, arrow: arrowSize(widths.landing) };
    """
    answer = run({"geometry": "arch, arrowSize, ribbonWidths, sides"}, body, share)
    landing = max(1.6, 18 * share)
    start = max(1.1, 0.38 * landing)
    assert answer["across"] == pytest.approx(np.linspace(start, landing, 57).tolist())
    assert answer["arrow"] == {
        "length": pytest.approx(max(7, 0.95 * landing)),
        "width": pytest.approx(max(8, 1.75 * landing)),
    }


def test_a_ribbon_becomes_opaque_over_the_first_seventy_percent() -> None:
    body = """
        const curve = arch(900, 300, 360, 150, 9);
        return { stops: opacityStops(curve), xs: [0, 0.35, 0.7].map((t) => pointAt(curve, t).x) };
    """
    answer = run({"geometry": "arch, opacityStops, pointAt"}, body)
    by_offset = {stop["offset"]: stop["opacity"] for stop in answer["stops"]}
    for t, x in zip((0, 0.35, 0.7), answer["xs"], strict=True):
        assert by_offset[round((900 - x) / 600, 2)] == pytest.approx(
            0.45 + 0.55 * t / 0.7, abs=0.01
        )


def test_near_targets_start_outside_and_far_ones_in_the_middle() -> None:
    body = """
        const port = (toward) => ({ toward, isStraight: false });
        return [starts(data.map(port), 50), starts([port(5)], 50), landings(data.map(port), 60)];
    """
    toward = [-700, -40, 30, 210, 600]
    offsets, single, landings = run({"ports": "starts, landings"}, body, toward)
    assert single == [0]
    for found in (offsets, landings):
        assert found[1] < found[0] < 0 < found[4] < found[3] < found[2]
    assert max(map(abs, offsets)) <= 0.42 * 50
    assert max(map(abs, landings)) <= 30


JOINED = 25
"""Arcs to the same side run together over this distance from their word."""


def crossings(arcs: list[dict[str, Any]]) -> int:
    """Number of pairs of a word's arcs that cross, except close to the word, where they join."""

    def points(curve: dict[str, Any]) -> Any:
        t = np.linspace(0, 1, 400)[:, None]
        four = [
            np.array([curve[end]["x"], curve[end]["y"]]) for end in ("start", "one", "two", "end")
        ]
        a, b, c, d = four
        u = 1 - t
        return u**3 * a + 3 * u * u * t * b + 3 * u * t * t * c + t**3 * d

    count = 0
    for one, other in combinations(arcs, 2):
        p, q = points(one["curve"]), points(other["curve"])
        low = max(p[:, 0].min(), q[:, 0].min()) + 2
        high = min(p[:, 0].max(), q[:, 0].max()) - 2
        if high <= low:
            continue
        xs = np.linspace(low, high, 200)
        ys = [np.interp(xs, *sorted_by_x(curve)) for curve in (p, q)]
        signs = np.sign(np.round(ys[0] - ys[1], 1))
        signs = signs[(signs != 0) & (np.abs(xs - one["curve"]["start"]["x"]) > JOINED)]
        count += int((np.diff(signs) != 0).sum() > 0)
    return count


def sorted_by_x(points: Any) -> tuple[Any, Any]:
    ordered = points[np.argsort(points[:, 0])]
    return ordered[:, 0], ordered[:, 1]


def test_arcs_of_one_word_rarely_cross() -> None:
    heads = [random_head(14, seed) for seed in range(12)]
    body = """
        return data.heads.flatMap((head) => Array.from({ length: 14 }, (_, word) => {
            const shown = picture(data.text, [head], { word });
            const layout = layOut(request(shown), measure, 1344);
            const { arcs } = makeScene(shown, layout, measure);
            return arcs.filter(({ kind }) => kind === "ribbon").map(({ curve }) => ({ curve }));
        }));
    """
    pictures = run(SCENE, body, {"text": TEXT, "heads": heads})
    assert len(pictures) == 12 * 14
    assert sum(crossings(arcs) > 0 for arcs in pictures) <= 0.06 * len(pictures)


@pytest.mark.parametrize("width", [1344, 960, 700])
def test_words_and_cells_do_not_overlap(width: float) -> None:
    layout = scene(TEXT, [random_head(14)], width)["layout"]
    (deck,) = layout["decks"]
    for boxes in (deck["rows"], deck["cells"][0]):
        assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
        assert min(box["x"] for box in boxes) >= -1
        assert max(box["x"] + box["w"] for box in boxes) <= width + 1


def test_every_cell_has_room_for_a_share() -> None:
    (deck,) = scene(TEXT, [random_head(14)])["layout"]["decks"]
    assert min(cell["w"] for cell in deck["cells"][0]) >= 36 - 1e-6


def test_cells_meet_halfway_between_words() -> None:
    layout = scene("the keeper found every lamp", [random_head(5)])["layout"]
    (deck,) = layout["decks"]
    for (box, cell), (after, next_cell) in pairwise(
        zip(deck["rows"], deck["cells"][0], strict=True)
    ):
        middle = (box["x"] + box["w"] + after["x"]) / 2
        assert cell["x"] + cell["w"] == pytest.approx(middle - 1)
        assert next_cell["x"] == pytest.approx(middle + 1)


def test_nothing_moves_when_another_word_is_chosen() -> None:
    head = random_head(14)
    layouts = [scene(TEXT, [head], word=word, locked=8)["layout"] for word in (None, 0, 8)]
    assert layouts[0] == layouts[1] == layouts[2]


def test_words_shrink_to_one_line_and_then_wrap() -> None:
    sizes = [scene(TEXT, [random_head(14)], width)["layout"] for width in (1800, 1100, 700)]
    assert [layout["shape"] for layout in sizes] == ["line", "line", "wrapped"]
    assert sizes[0]["size"] == 38
    assert 24 <= sizes[1]["size"] < 38
    assert sizes[2]["size"] == 31


def test_a_phone_has_one_word_per_line() -> None:
    answer = scene(TEXT, [random_head(14)], 350, word=8)
    (deck,) = answer["layout"]["decks"]
    assert answer["layout"]["shape"] == "vertical"
    assert [b["y"] - a["y"] for a, b in pairwise(deck["rows"])] == pytest.approx([44] * 13)
    for arc in answer["scene"]["arcs"]:
        middle = 0.125 * (arc["curve"]["start"]["x"] + arc["curve"]["end"]["x"])
        assert middle + 0.75 * arc["curve"]["one"]["x"] <= 336 + 1e-6


def test_right_to_left_text_is_mirrored() -> None:
    plain = scene("a bb ccc dddd", [random_head(4)])["layout"]["decks"][0]["rows"]
    turned = scene("א בב גגג דדדד", [random_head(4)])["layout"]
    assert turned["isMirrored"]
    rights = [1344 - box["x"] - box["w"] for box in turned["decks"][0]["rows"]]
    assert rights == pytest.approx([box["x"] for box in plain])


def test_a_pair_shares_the_wider_width_and_mirrors_its_arcs() -> None:
    first, second = "The dog was tired .", "The dog was overwhelmed ."
    head, other = random_head(5, 1), random_head(5, 2)
    body = """
        const shown = picture(data.first, [data.head], { word: 1 });
        const { words: others, heads } = picture(data.second, [data.other]);
        const aligned = [0, 1, 2, 3, 4].map((at) => [at, at]);
        shown.pair = { words: others, heads, aligned, word: 1 };
        const layout = layOut(request(shown), measure, 1344);
        return { layout, scene: makeScene(shown, layout, measure) };
    """
    data = {"first": first, "second": second, "head": head, "other": other}
    answer = run(SCENE, body, data)
    above, below = answer["layout"]["decks"]
    for one, two in zip(above["rows"], below["rows"], strict=True):
        assert (one["x"], one["w"]) == (two["x"], two["w"])
    tops = {arc["deck"]: arc["curve"]["one"]["y"] for arc in answer["scene"]["arcs"]}
    assert tops[0] < above["rows"][0]["y"]
    assert tops[1] > below["rows"][0]["y"] + below["rows"][0]["h"]
    changes = [b - a for a, b in zip(head["shares"][1], other["shares"][1], strict=True)]
    expected = [f"{'+' if c > 0 else MINUS}{round(abs(100 * c))}" for c in changes]
    printed = [note["text"] for note in answer["scene"]["notes"]]
    assert printed == [text for text in expected if int(text[1:]) >= 3]
    dashed = [[word["isDashed"] for word in words] for words in answer["scene"]["words"]]
    assert dashed == [[False, False, False, True, False]] * 2


def label_boxes(labels: list[dict[str, Any]]) -> list[dict[str, float]]:
    boxes = []
    for label in labels:
        spot = label["spot"]
        boxes.append(
            {"x": spot["x"] - spot["w"] / 2, "y": spot["y"] - 9.5, "w": spot["w"], "h": 19}
        )
    return boxes


@pytest.mark.parametrize("seed", range(8))
def test_shares_on_arcs_touch_no_other_share_and_no_other_arc(seed: int) -> None:
    heads = [random_head(14, 3 * seed + at) for at in range(1 + seed % 3)]
    for word in (2, 8):
        found = scene(TEXT, heads, word=word)["scene"]
        boxes = label_boxes(found["labels"])
        assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
        for label, box in zip(found["labels"], boxes, strict=True):
            for arc in found["arcs"]:
                is_first = label is found["labels"][0]  # the headline's is always written
                if arc["key"] != label["key"] and not is_first and arc["kind"] != "faint":
                    assert not passes(arc["curve"], box), (label["text"], arc["key"])


def passes(curve: dict[str, Any], box: dict[str, float]) -> bool:
    a, b, c, d = (
        np.array([curve[end]["x"], curve[end]["y"]]) for end in ("start", "one", "two", "end")
    )
    t = np.linspace(0, 1, 200)[:, None]
    u = 1 - t
    points = u**3 * a + 3 * u * u * t * b + 3 * u * t * t * c + t**3 * d
    is_inside = (points[:, 0] > box["x"]) & (points[:, 0] < box["x"] + box["w"])
    return bool(
        (is_inside & (points[:, 1] > box["y"]) & (points[:, 1] < box["y"] + box["h"])).any()
    )


@pytest.mark.parametrize("width", [390, 1024, 1344])
def test_the_strongest_link_to_a_word_is_labelled_before_all_others(width: float) -> None:
    for seed in range(12):
        head = random_head(14, seed)
        for word in (1, 4, 8, 12):
            found = scene(TEXT, [head], width, word=word)["scene"]
            own = [arc for arc in found["arcs"] if arc["kind"] == "ribbon"]
            best = max(own, key=lambda arc: arc["share"], default=None)
            keys = [label["key"] for label in found["labels"]]
            if best and best["share"] >= 0.2:
                assert keys[0] == best["key"]


def test_of_two_labels_that_cannot_both_be_written_the_larger_share_is() -> None:
    body = """
        const lane = (x, text, isResting) => ({ thickness: null, arrowWidth: 8, text, width: 40,
          isResting, curve: { axis: "y", start: { x, y: 0 }, one: { x, y: 0 }, two: { x, y: 0 },
          end: { x, y: 0 }, tip: { x, y: 0 }, landing: { x: 0, y: -1 } } });
        const lanes = [lane(500, "40%", false), lane(100, "21%", false), lane(100, "33%", true)];
        return placeLabels(lanes, [], 1000).map(Boolean);
    """
    assert run({"labels": "placeLabels"}, body) == [True, False, True]


def test_the_share_of_a_narrow_arc_stands_above_it_without_a_plate() -> None:
    row = [0.1] + [0.0] * 8 + [0.9] + [0.0] * 4
    (label,) = scene(TEXT, [{"shares": {8: row}}], word=8)["scene"]["labels"]
    (arc,) = (a for a in scene(TEXT, [{"shares": {8: row}}], word=8)["scene"]["arcs"] if a["to"])
    assert not label["spot"]["onArc"]
    assert label["spot"]["y"] + 9.5 < arc["curve"]["start"]["y"] - 34


def test_a_head_without_a_role_writes_words_and_shares_in_ink() -> None:
    row = [0.2, 0.5, 0.0, 0.3] + [0.0] * 10
    grey = {"role": None, "colour": "#8b95a3"}
    found = scene(TEXT, [{"shares": {8: row}, **grey}], word=8)["scene"]
    words = found["words"][0]
    assert words[1]["colour"] == words[3]["colour"] == "#161a21" and words[1]["state"] == "target"
    assert [label["colour"] for label in found["labels"]][:2] == ["#161a21"] * 2
    one = scene(TEXT, [{"shares": {8: row}, **grey}], word=8, target=3)["scene"]
    assert one["words"][0][3]["colour"] == "#161a21"


def test_the_pill_of_a_mark_covers_no_letter_of_the_word_before() -> None:
    body = """
        const shown = picture(data, [{ shares: {} }]);
        return layOut(request(shown), measure, 1344).decks[0].rows.map((box) => pillOf(box, false));
    """
    for text in (TEXT, LONG):
        pills = run({"layout": "layOut", "draw": "pillOf"}, body, text)
        for one, two in pairwise(pills):
            assert one["y"] != two["y"] or one["x"] + one["w"] <= two["x"] + 1e-6


def test_a_first_key_that_is_left_out_has_no_number() -> None:
    body = """
        const row = [0, 0.7, 0.3, 0];
        const shown = picture("a b c d", [{ shares: [data, row, row, row] }], { word: 2 });
        const layout = layOut(request(shown), measure, 1344);
        return makeScene(shown, layout, measure).cells.map(({ text }) => text);
    """
    assert run(SCENE, body, [0, 0, 0, 0]) == ["", "70%", "30%", "<1"]
    assert run(SCENE, body, [1, 0, 0, 0]) == ["<1", "70%", "30%", "<1"]


def test_words_out_of_a_causal_models_sight_have_a_dash() -> None:
    body = """
        const row = [0, 0.2, 0.8, 0];
        const head = { shares: [[0.1, 0, 0, 0], row, row, row] };
        const shown = picture("a b c d", [head], { word: data.at, ...data });
        const layout = layOut(request(shown), measure, 1344);
        return makeScene(shown, layout, measure).cells.map(({ text }) => text);
    """
    dash = "\N{EN DASH}"
    assert run(SCENE, body, {"at": 2, "restsOnFirst": True}) == ["<1", "20%", "80%", dash]
    assert run(SCENE, body, {"at": 2}) == ["<1", "20%", "80%", "<1"]
    seen = {"at": 2, "restsOnFirst": True, "isLookedAt": True}
    assert run(SCENE, body, seen) == [dash, "20%", "80%", "<1"]


def test_rows_of_heads_that_are_not_shown_keep_their_room() -> None:
    body = """
        const shown = picture(data, [{ shares: { 8: Array(14).fill(1 / 14) } }], { word: 8 });
        const wide = layOut({ ...request(shown), heads: 3 }, measure, 1344);
        return [makeScene(shown, wide, measure).cells.length, wide.height];
    """
    count, height = run(SCENE, body, TEXT)
    assert count == 14
    three = scene(TEXT, [random_head(14, seed) for seed in range(3)], word=8)["layout"]["height"]
    assert height == three


def test_shares_of_twenty_percent_or_more_are_written_on_arcs() -> None:
    row = [0.3, 0.1, 0.0, 0.0, 0.195, 0.0, 0.05, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, 0.055]
    found = scene(TEXT, [{"shares": {8: row}}], word=8)["scene"]
    assert sorted(label["text"] for label in found["labels"]) == ["20%", "30%", "30%"]


def test_a_head_that_is_off_has_hollow_arcs_and_a_sink_has_solid_ones() -> None:
    row = [0.6, 0.1, 0.3] + [0.0] * 11
    kinds = {}
    variants: dict[str, dict[str, Any]] = {
        "off": {"isOff": True},
        "sink": {"role": "sink"},
        "plain": {},
    }
    for name, more in variants.items():
        found = scene(TEXT, [{"shares": {8: row}, **more}], word=8)["scene"]
        kinds[name] = sorted(arc["kind"] for arc in found["arcs"])
    assert kinds["off"] == ["off"] * 3
    assert kinds["sink"] == ["ribbon"] * 3
    assert kinds["plain"] == ["rest", "ribbon", "ribbon"]


def test_an_overlay_draws_no_resting_links_and_marks_the_second_head_of_a_role() -> None:
    row = [0.5, 0.3, 0.2] + [0.0] * 11
    heads = [{"shares": {8: row}}, {"shares": {8: row}, "mark": "2"}]
    found = scene(TEXT, heads, word=8)["scene"]
    assert [arc["kind"] for arc in found["arcs"]] == ["ribbon"] * 4
    assert {arc["isHatched"] for arc in found["arcs"] if arc["slot"] == 1} == {True}
    assert [(note["text"], note["mark"]) for note in found["notes"]] == [("C", ""), ("C", "2")]


def test_words_are_ink_only_if_an_arc_lands_on_them() -> None:
    row = [0.0, 0.3, 0.06, 0.12, 0.0, 0.52] + [0.0] * 8
    states = [
        [word["state"] for word in scene(TEXT, heads, word=8)["scene"]["words"][0]]
        for heads in ([{"shares": {8: row}}], [{"shares": {8: row}}] * 2)
    ]
    linked = [{at for at in range(14) if each[at] in ("seen", "target")} for each in states]
    assert linked == [{1, 2, 3, 5}, {1, 3, 5}]


def test_without_a_word_every_strong_link_is_thin_and_the_row_is_empty() -> None:
    found = scene(TEXT, [random_head(14, 4)], word=None)["scene"]
    assert found["cells"] == []
    assert {arc["kind"] for arc in found["arcs"]} == {"plain"}
    assert len(found["arcs"]) <= 12
    for arc in found["arcs"]:
        assert arc["share"] >= 0.145
        assert arc["widths"]["landing"] == pytest.approx(max(1.6, 9 * arc["share"]))
        assert arc["opacity"] == pytest.approx(0.3 + 0.7 * arc["share"])


def test_links_that_leave_the_window_end_in_tabs() -> None:
    row = [0.0] * 98
    for at, share in ((3, 0.3), (20, 0.06), (48, 0.2), (90, 0.3), (95, 0.14)):
        row[at] = share
    layout = scene(LONG, [{"shares": {49: row}}], 900, word=49)["layout"]
    boxes = layout["decks"][0]["rows"]
    top = boxes[49]["y"] - 112 - 30
    view = {"top": top, "bottom": top + 344}
    answer = scene(LONG, [{"shares": {49: row}}], 900, view, word=49)["scene"]
    inside = {at for at in (3, 20, 48, 90, 95) if top < boxes[at]["y"] < view["bottom"] - 40}
    assert {tab["at"] for tab in answer["tabs"]} == {3, 20, 48, 90, 95} - inside
    rects = [tab["rect"] for tab in answer["tabs"]]
    assert not any(overlap(one, other) for one, other in combinations(rects, 2))
    lines = boxes[49]["line"] - boxes[3]["line"]
    (first,) = [tab for tab in answer["tabs"] if tab["at"] == 3]
    assert (first["word"], first["rest"]) == ("word3", f" 30%, {lines} lines up")
    for arc in answer["arcs"]:
        assert view["top"] - 1 <= arc["curve"]["tip"]["y"] <= view["bottom"] + 1


def test_no_number_is_not_a_number() -> None:
    body = """
        const shown = picture(data.text, data.heads, { word: 8 });
        const layout = layOut(request(shown), measure, data.width);
        const { arcs, cells } = makeScene(shown, layout, measure);
        const lines = arcs.map((arc) => arcShape(arc, shown, "a"));
        return JSON.stringify([...lines, ...cells.map(cellShape)], (_, value) =>
            typeof value === "number" && !Number.isFinite(value) ? "not a number" : value);
    """
    for width in (1344, 700, 350):
        data = {"text": TEXT, "heads": [random_head(14, 7)], "width": width}
        drawn = run(SCENE, body, data)
        assert "not a number" not in drawn
        assert "NaN" not in drawn


def test_on_a_phone_both_shares_of_a_pair_stand_in_one_line() -> None:
    body = """
        const rows = (row) => [row, row, row, row];
        const shown = picture("a b c d", [{ shares: rows([0.1, 0.6, 0.2, 0.1]) }], {
          shape: "vertical", word: 3, pair: {
            words: words("a x c d"), aligned: [[0, 0], [1, 1], [2, 2], [3, 3]], word: 3,
            heads: [{ name: "L0H0", role: "coreference", letter: "C", colour: "#a80f68", mark: "",
              isOff: false, row: () => [0.1, 0.2, 0.6, 0.1] }],
          },
        });
        const scene = makeScene(shown, layOut(request(shown), measure, 350), measure);
        const at = (list, text) => list.filter((each) => each.text === text).map(({ y }) => y);
        const texts = (y) => scene.cells.filter((cell) => cell.y === y).map(({ text }) => text);
        const first = Math.min(...at(scene.cells, "60%"));
        return [texts(first), scene.notes.map(({ text }) => text)];
    """
    line, notes = run({"scene": "makeScene", "layout": "layOut"}, body)
    assert line == ["60%", "20%"]
    assert notes == ["before", "after", "\N{MINUS SIGN}40", "+40"]
