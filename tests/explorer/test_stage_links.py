"""Which links the stage draws, and what its notes say about the others."""

from typing import Any

import numpy as np
import pytest

from .stage_modules import run

TEXT = "[CLS] The animal did cross the street because it was too tired . [SEP]"
IT = 8
ROW = [
    0.102,
    0.044,
    0.677,
    0.008,
    0.013,
    0.002,
    0.05,
    0.003,
    0.064,
    0.005,
    0.001,
    0.017,
    0.004,
    0.01,
]
"""Shares of "it" in L3H1 of minilm on the built-in sentence, in whole words."""

NOTES = {
    "picture_notes": "leftNote, restNote, rightNote, wordLabel",
    "links": "chooseLinks, strongestLinks",
    "sentences": "plain",
    "picture": "sidesOf",
}


def links(row: list[float], options: dict[str, Any] | None = None, at: int | None = 0) -> Any:
    text = " ".join(["x"] * len(row))
    body = "return chooseLinks(data.row, words(data.text), data.at, data.options)"
    data = {"row": row, "text": text, "at": at, "options": options or {}}
    return run({"links": "chooseLinks"}, body, data)


def random_row(seed: int, size: int = 29) -> list[float]:
    steps = np.random.default_rng(seed).dirichlet(np.full(size, 0.25)) * 65535
    return [float(step) for step in steps.round() / 65535]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threshold", [5, 10])
def test_links_of_the_threshold_or_more_are_drawn(seed: int, threshold: int) -> None:
    row = random_row(seed)
    rests = [at in (0, 28) for at in range(29)]
    answer = links(row, {"threshold": threshold, "rests": rests}, at=3)
    whole = [int(100 * share + 0.5) for share in row]
    strong = sorted(
        (at for at in range(29) if at != 3 and whole[at] >= threshold), key=lambda at: -row[at]
    )
    kept = strong[:8]
    assert [each["to"] for each in answer["drawn"]] == [at for at in kept if not rests[at]]
    assert [each["to"] for each in answer["resting"]] == [at for at in kept if rests[at]]
    has_ring = whole[3] >= threshold
    left = [at for at in range(29) if at not in kept and not (has_ring and at == 3)]
    assert answer["restCount"] == len(left)
    assert answer["restShare"] == pytest.approx(sum(row[at] for at in left))
    assert answer["isLimit"] == (len(strong) > 8)
    assert (answer["self"] is not None) == has_ring


def test_the_threshold_applies_to_the_rounded_share() -> None:
    answer = links([0.9, 0.0451, 0.0449, 0.0051])
    assert [each["to"] for each in answer["drawn"]] == [1]
    assert links([0.85, 0.0549, 0.0951], {"threshold": 10})["restCount"] == 1


def test_at_most_eight_links_are_drawn() -> None:
    answer = links([0.1] * 10, at=0)
    assert len(answer["drawn"]) == 8
    assert (answer["restCount"], answer["isLimit"]) == (1, True)


def test_words_out_of_a_causal_models_sight_are_not_links() -> None:
    row = [0.6, 0.4, 0, 0, 0]
    assert links(row, {"isCausal": True}, at=1)["restCount"] == 0
    assert links(row, at=1)["restCount"] == 3


def test_words_that_are_not_shown_are_not_counted() -> None:
    answer = links([0.6, 0.3, 0.05, 0.05], {"hidden": [True, False, False, False]}, at=1)
    assert [each["to"] for each in answer["drawn"]] == [2, 3]


def test_every_words_strongest_link_leads_to_a_word() -> None:
    size = 13
    shares = np.random.default_rng(5).dirichlet(np.full(size, 0.2), size)
    text = "[CLS] a b c d e f g h i j . [SEP]"
    rests = [at in (0, 12) for at in range(size)]
    body = """
        const row = (at) => data.shares[at];
        const options = { threshold: 30, rests: data.rests, except: 4 };
        return strongestLinks(row, words(data.text), options);
    """
    data = {"shares": shares.tolist(), "text": text, "rests": rests}
    found = {each["at"]: each["to"] for each in run({"links": "strongestLinks"}, body, data)}
    expected = {}
    for at in range(1, 11):
        others = [to for to in range(1, 12) if to != at]
        best = max(others, key=lambda to, at=at: shares[at, to])  # type: ignore[misc]
        if at != 4 and int(100 * shares[at, best] + 0.5) >= 30:
            expected[at] = best
    assert found == expected
    assert found


def notes(body: str, rows: list[list[float]], **more: object) -> Any:
    heads = [{"shares": {IT: row}} for row in rows]
    prepared = f"const shown = picture(data.text, data.heads, data.more); {body}"
    data = {"text": TEXT, "heads": heads, "more": {"word": IT, **more}}
    return run(NOTES, prepared, data)


RIGHT = 'return rightNote(shown, data.more.shape ?? "line")'
LEFT = 'return plain(leftNote(shown, data.more.shape ?? "line"))'


def test_the_note_says_what_is_not_drawn() -> None:
    assert notes(RIGHT, [ROW]) == "+ 10 links under 5%, 11% together"


def test_the_note_says_that_the_limit_cut_links() -> None:
    assert notes(RIGHT, [[0.09] * 5 + [0.06] * 8 + [0.07]]).endswith("+ 5 links, 30% together")


def test_the_note_of_one_link_has_no_sum() -> None:
    body = """return [restNote({ restCount: 1, restShare: 0.03, isLimit: false }, 5),
        restNote({ restCount: 9, restShare: 0.001, isLimit: false }, 5),
        restNote({ restCount: 0, restShare: 0, isLimit: false }, 5)];"""
    assert run(NOTES, body) == [
        "+ 1 link under 5%, 3%",
        "+ 9 links under 5%, less than 1% together",
        "",
    ]


def test_the_note_of_several_heads_names_resting_links() -> None:
    other = [0.13, *[0.0025] * 10, 0.71, 0.0725, 0.065]
    first = [0.001] * 7 + [0.99] + [0.0005] * 6
    note = notes(RIGHT, [first, other, ROW])
    assert note == "+ 37 links under 10%\u2002·\u2002On [CLS], not drawn: L0H1 13%, L0H2 10%"


SAY = "return plain(overlayHeadline({ word: 'it' }, data.targets, data.isLookedAt ?? false))"


def test_the_headline_of_several_heads_says_which_of_them_rest() -> None:
    to = [
        {"name": f"L1H{at}", "word": {"word": word}, "isResting": word == "[CLS]"}
        for at, word in enumerate(("animal", "tired", "[CLS]", "animal", "[CLS]"))
    ]
    for targets, expected in (
        (to[:4], "it looks at animal and tired; L1H2 rests on [CLS]"),
        (to, "it looks at animal and tired; L1H2 and L1H4 rest on [CLS]"),
        (to[:2], "it looks at animal and tired"),
        ([to[2], None], "it rests on [CLS]"),
        ([None, None], "it looks at no word with 10% or more"),
    ):
        said = run({"sentences": "overlayHeadline, plain"}, SAY, {"targets": targets})
        assert said == expected
    seen = {"targets": to[:2], "isLookedAt": True}
    said = run({"sentences": "overlayHeadline, plain"}, SAY, seen)
    assert said == "it is looked at by animal and tired"


@pytest.mark.parametrize(
    ("moved", "share", "expected"),
    [
        (22, 0.33, "Most of that goes to [CLS]: 22 points. street gains 7, to 12%."),
        (15, 0.33, "The largest part of that goes to [CLS]: 15 points. street gains 7, to 12%."),
        (45, 0.5, "[CLS] gains 45 points, to 50%; street 7, to 12%."),
        (0, 0.1, "street gains 7 points, to 12%."),
    ],
)
def test_the_line_of_a_pair_says_where_attention_goes(
    moved: int, share: float, expected: str
) -> None:
    first = {"word": {"word": "[CLS]"}, "points": moved, "after": share, "isResting": True}
    street = {"word": {"word": "street"}, "points": 7, "after": 0.12, "isResting": False}
    moves = {
        "source": {"word": "it"},
        "swapped": {"word": "wide"},
        "most": {"word": {"word": "animal"}, "before": 0.68, "after": 0.28},
        "others": [first, street] if moved else [street],
    }
    body = "const { headline, sub } = pairHead(data); return [plain(headline), plain(sub)];"
    said = run({"sentences": "pairHead, plain"}, body, moves)
    assert said == ["With wide, it looks less at animal", f"68% falls to 28%. {expected}"]


def unchosen_note(rows: list[list[float]], role: str = "coreference") -> Any:
    data = {"text": "[CLS] a b c d e . [SEP]", "heads": [{"shares": rows, "role": role}]}
    body = """
        const shown = picture(data.text, data.heads, { word: null });
        return rightNote(shown, "line");
    """
    return run(NOTES, body, data)


def test_every_word_is_in_one_count_of_the_note_without_a_word() -> None:
    to_first, to_itself = [0.7, 0.3, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0.9, 0.1, 0, 0]
    to_word, to_last = [0.1, 0.1, 0.6, 0, 0, 0, 0.2, 0], [0.02] * 7 + [0.86]
    mark = [1.0] + [0.0] * 7
    rows = [mark, to_first, to_first, to_word, to_itself, to_last, mark, mark]
    dot = "\u2002·\u2002"
    parts = (
        "2 of 5 words have an arc",
        "1 looks most at [CLS]",
        "1 looks most at itself",
        "1 looks most at [SEP]",
    )
    assert unchosen_note(rows) == dot.join(parts)
    assert unchosen_note(rows, "sink") == dot.join(["4 of 5 words have an arc", parts[2]])
    spread = [[0.125] * 8] * 8
    assert unchosen_note(spread) == "0 of 5 words have an arc\u2002·\u20025 without a link of 15%"


def test_the_note_without_a_word_counts_arcs_that_are_cut() -> None:
    size = 17
    rows = np.eye(size)[[1, *range(size - 1)]] * 0.5
    body = 'return rightNote(picture(data.text, [{ shares: data.rows }], { word: null }), "line")'
    data = {"text": " ".join("abcdefghijklmnopq"), "rows": rows.tolist()}
    assert run(NOTES, body, data) == "12 of 17 words have an arc\u2002·\u20025 weaker, not drawn"


def test_the_headline_without_a_word_says_what_is_drawn() -> None:
    body = """
        return data.map((about) => {
            const { headline, sub } = noWordHead("L3H1", about);
            return [plain(headline), plain(sub)];
        });
    """
    gist = "In other texts this head tends to look at the first tokens."
    heads = [{"gist": gist if at == 1 else "", "isResting": at == 1, "links": links}
             for at, links in enumerate([0, 5, None])]  # fmt: skip
    said = run({"sentences": "noWordHead, plain"}, body, heads)
    all_links = "Choose a word to see all of its links."
    assert said == [
        ["No link to another word reaches 15% in L3H1", all_links],
        [
            "Each word\N{RIGHT SINGLE QUOTATION MARK}s strongest link in L3H1",
            f"{gist} Links are drawn from 15% up. {all_links}",
        ],
        ["No word is chosen in L3H1", "Choose one to see its links."],
    ]


def test_the_note_of_wrapped_text_names_resting_links() -> None:
    note = notes(RIGHT, [ROW], shape="wrapped")
    assert note == "10% on [CLS] is not drawn\u2002·\u2002+ 10 links under 5%, 11% together"


def test_the_note_names_faint_links_only_if_one_is_in_sight() -> None:
    shares = {str(at): [0.02] * 14 for at in range(14)}
    shares["11"] = [0.0, 0.0, 0.9, *[0.01] * 10, 0.0]
    data = {"text": TEXT, "shares": shares}
    body = """
        const shown = picture(data.text, [{ shares: data.shares }], { word: 8 });
        const windows = [null, [0, 13], [2, 11], [3, 13], [0, 10]];
        return windows.map((window) => rightNote(shown, "vertical", window));
    """
    said = [note.startswith("Faint: ") for note in run(NOTES, body, data)]
    assert said == [True, True, True, False, False]


def test_the_note_says_how_much_hidden_special_tokens_get() -> None:
    note = notes(RIGHT, [ROW], hidesSpecial=True)
    assert "11% on special tokens, not shown" in note
    assert note.endswith("+ 9 links under 5%, 10% together")


def test_the_left_note_explains_a_cell() -> None:
    start = "Each cell: the share of attention that it gives to the word above"
    assert notes(LEFT, [ROW]) == f"{start} it. The row sums to 100%."
    assert notes(LEFT, [ROW, ROW]) == f"{start}. One row per head; each sums to 100%."
    assert "beside it" in notes(LEFT, [ROW], shape="vertical")
    assert "gives to it." in notes(LEFT, [ROW], isLookedAt=True)
    assert notes(LEFT, [ROW], word=None) == ""


def causal_note(at: int, **more: object) -> Any:
    shares = np.array([[1, 0, 0, 0], [0.4, 0.6, 0, 0], [0.2, 0.3, 0.5, 0], [0.25] * 4])
    shares = shares.T if more.get("isLookedAt") else shares
    data = {"shares": shares.tolist(), "more": {"word": at, "restsOnFirst": True, **more}}
    body = """
        const shown = picture("a b c d", [{ shares: data.shares }], data.more);
        return plain(leftNote(shown, "line"));
    """
    return run(NOTES, body, data)


def test_the_left_note_says_what_a_dash_is() -> None:
    dash = "\N{EN DASH}"
    assert causal_note(1).endswith(f" above it. {dash}: later words, which b cannot see.")
    assert causal_note(3).endswith(" above it. The row sums to 100%.")
    assert causal_note(1, restsOnFirst=False).endswith(" above it. The row sums to 100%.")
    assert causal_note(0, isLookedAt=True).endswith(" gives to a.")
    looked_at = causal_note(2, isLookedAt=True)
    assert looked_at.endswith(f" gives to c. {dash}: earlier words, which cannot see c.")


def test_the_left_note_says_that_a_head_is_off() -> None:
    body = f"shown.heads[0].isOff = true; shown.heads[0].name = 'L23H3'; {LEFT}"
    expected = "Hollow: where L23H3 looked, from it, before it was switched off."
    assert notes(body, [ROW]) == expected


def test_a_repeated_word_is_counted_in_lists_and_sentences() -> None:
    body = "return data.map((text) => words(text).map((_, at, all) => wordName(all, at)));"
    texts = ["the cat saw the dog", " ".join(["a"] * 4), " ".join(["a"] * 12)]
    named = run({"word_names": "wordName"}, body, texts)
    assert named[0] == ["the (1st)", "cat", "saw", "the (2nd)", "dog"]
    assert named[1] == ["a (1st)", "a (2nd)", "a (3rd)", "a (4th)"]
    assert named[2] == ["a"] * 12


def test_a_word_is_labelled_with_its_links() -> None:
    label = notes("return wordLabel(shown, sidesOf(shown)[0], data.more.word)", [ROW])
    assert label == (
        "it, looks at animal 68 percent, [CLS] 10 percent, street 5 percent, "
        "and 10 more under 5 percent"
    )
