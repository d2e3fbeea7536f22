"""Findings are the strongest links of a text, and what a scan found in other text."""

import math
import re
from dataclasses import replace

import pytest
import torch

from headwise.explorer import shipped_scans
from headwise.explorer.api_types import Finding, TextAnswer
from headwise.explorer.findings import TextLinks, scan_findings
from headwise.explorer.maps import MapOptions, map_weights
from headwise.explorer.model_facts import BUILTIN_TEXT, OTHER_BUILTIN_TEXT, role_figure
from headwise.explorer.role_details import role_detail
from headwise.explorer.shipped_scans import COLUMNS, FOLDER, scan_model, shipped_scan
from headwise.heads import HeadId
from headwise.objectives.scored_model import open_scored_model
from headwise.roles import ROLES

from .sessions import ANIMAL, WORDS, animal, fresh_session, minilm, smollm2

EVERY = slice(0, 999)


def told(answer: TextAnswer) -> list[tuple[str | None, str | None, str, str, int]]:
    """Head, role, words and percent of each link."""
    words = [word.text for word in answer.stacks[""].words.rows]
    return [
        (one.head, one.role, words[one.source], words[one.target], round(100 * one.share))
        for one in answer.findings
        if one.kind == "link"
    ]


def test_minilm_opens_on_the_head_that_links_it_to_animal() -> None:
    answer = minilm().text_answer(ANIMAL)
    assert told(answer) == [
        ("L3H1", "coreference", "it", "animal", 68),
        ("L2H1", "syntactic", "it", "tired", 71),
    ]
    assert answer.start == answer.findings[0]
    swap = Finding("swap", word="wide", text=OTHER_BUILTIN_TEXT)
    assert answer.findings[2:] == [swap]
    assert minilm().text_answer(ANIMAL + " ").findings[2:] == []


def test_the_pair_moves_the_attention_that_it_is_about() -> None:
    pair = minilm().builtin_pair
    assert (pair.text, pair.head, pair.source) == (BUILTIN_TEXT, "L3H1", 8)
    rows = [
        map_weights(minilm().read(text), "L3", MapOptions(is_by_word=True), EVERY, EVERY)[1, 8]
        for text in (pair.text, pair.other)
    ]
    assert [round(100 * float(row[2])) for row in rows] == [68, 28]


def test_the_lessons_pair_moves_the_link_from_one_candidate_to_the_other() -> None:
    pair = minilm().about().lesson_pair
    head, options = HeadId.parse(pair.head), MapOptions(is_by_word=True)
    readings = [minilm().read(text) for text in (pair.text, pair.other)]
    words = [word.text for word in readings[0].stage.words]
    assert [words[place] for place in (pair.source, *pair.candidates)] == ["he", "Simon", "girl"]
    maps = [map_weights(each, head.layer_name, options, EVERY, EVERY) for each in readings]
    shares = [each[head.head, pair.source, pair.candidates].tolist() for each in maps]
    assert [[round(100 * share) for share in row] for row in shares] == [[54, 4], [11, 45]]
    assert smollm2().about().lesson_pair is None


@pytest.mark.slow
def test_smollm2_opens_on_a_head_that_links_it_to_animal() -> None:
    session = smollm2()
    answer = session.text_answer(ANIMAL)
    assert told(answer)[0] == ("L13H8", "coreference", "it", "animal", 75)
    pair = session.builtin_pair
    assert (pair.head, pair.source) == ("L4H2", 10), "only the swapped word can change"
    assert all(one.kind != "swap" for one in answer.findings), "it cannot see the swapped word"
    street = [
        map_weights(session.read(text), "L4", MapOptions(is_by_word=True), EVERY, EVERY)[2, 10, 5]
        for text in (pair.text, pair.other)
    ]
    assert [round(100 * float(share)) for share in street] == [6, 46]


@pytest.mark.parametrize(
    "text",
    [
        "Anna lost her keys, so Tom gave her his.",
        "The keeper met the fishermen before he saw them and they saw him.",
    ],
)
def test_pronoun_links_are_the_strongest_to_earlier_words(text: str) -> None:
    answer, analysis = minilm().text_answer(text), minilm().read(text)
    words = analysis.stage.words
    links = [one for one in answer.findings if one.role == "coreference"]
    heads = [head for head, role in minilm().lead_roles.items() if role == "coreference"]
    assert heads == [HeadId(3, 1)] and len(links) <= 2
    weights = map_weights(analysis, "L3", MapOptions(is_by_word=True), EVERY, EVERY)[1]
    want = []
    for source, word in enumerate(words):
        if word.text.lower() in ("her", "his", "he", "them", "they", "him"):
            row = [
                float(share) if target < source and words[target].kind == "word" else 0
                for target, share in enumerate(weights[source])
            ]
            if round(max(row), 2) >= 0.3:
                want.append((max(row), source, row.index(max(row))))
    places = [(source, target) for _, source, target in sorted(want, reverse=True)[:2]]
    assert [(one.source, one.target) for one in links] == places


def test_without_a_pronoun_the_commonest_roles_have_a_link_each() -> None:
    answer = minilm().text_answer("Three red kites rose slowly over the old harbour.")
    roles = [one.role for one in answer.findings]
    assert roles[:2] == ["semantic", "syntactic"] and len(roles) == len(set(roles)) == 3
    leads = minilm().lead_roles
    analysis = minilm().read(answer.text)
    links = TextLinks(analysis)
    for one in answer.findings:
        assert leads[HeadId.parse(one.head)] == one.role
        best = max(links.weights(head).max() for head, role in leads.items() if role == one.role)
        assert one.share == pytest.approx(float(best), abs=1e-5)
        words = analysis.stage.words
        assert {words[one.source].kind, words[one.target].kind} == {"word"}
        assert one.source != one.target


def test_links_of_marks_special_tokens_and_resting_places_do_not_count() -> None:
    links = TextLinks(animal())
    weights = links.weights(HeadId(1, 11))
    for place in (0, 12, 13):
        assert not weights[place].any() and not weights[:, place].any()
    assert not weights.diagonal().any() and weights[8, 7] > 0.05
    causal = fresh_session("llama").read(WORDS)
    assert not TextLinks(causal).weights(HeadId(0, 0))[:, 0].any()


def test_an_unscanned_model_opens_on_the_strongest_link_of_its_sharpest_head() -> None:
    session = fresh_session("bert")
    answer = session.text_answer(WORDS)
    assert answer.findings == [] and session.about().scan is None
    assert answer.start.kind == "link" and answer.start.role is None
    weights = TextLinks(session.read(WORDS)).weights(HeadId.parse(answer.start.head))
    assert answer.start.share == pytest.approx(float(weights.max()), abs=1e-5)
    assert answer.heads.roles == [[]] * len(answer.heads.names)


def test_a_text_without_links_opens_on_a_head() -> None:
    session = fresh_session("bert")
    answer = session.text_answer("[CLS] [SEP]")
    assert answer.start == Finding("link", head=answer.start.head) and answer.start.head


def test_pieces_stand_for_words_in_a_text_without_spaces() -> None:
    answer = minilm().text_answer("東京は日本の首都です。")
    assert answer.stacks[""].words is None and answer.why_no_words
    pieces = answer.stacks[""].pieces.rows
    for one in answer.findings:
        assert {pieces[one.source].kind, pieces[one.target].kind} == {"word"}


def test_findings_of_a_scan_are_its_best_heads() -> None:
    table, about = minilm().scan_table, minilm().about()
    assert about.scan.findings == scan_findings(table, "[CLS]")
    offset, sink, unclear = about.scan.findings
    assert (offset.head, offset.count, round(offset.share, 2)) == ("L0H2", -1, 0.96)
    assert (sink.kind, sink.word) == ("sink", "[CLS]")
    assert unclear.count == len(table.without_role)
    place = about.scan.names.index("L3H1")
    assert about.scan.roles[place] == ["coreference", "syntactic"], "the lead role comes first"
    assert about.scan.details[place]["coreference"] == "an earlier mention"
    assert about.scan.details[about.scan.names.index("L0H2")] == {"positional": "one word back"}


def test_scores_of_roles_stand_beside_chance() -> None:
    scan = minilm().about().scan
    figures = dict(zip(scan.names, scan.figures, strict=True))
    assert figures["L3H1"]["coreference"] == "63% found, 50% by chance"
    assert figures["L0H2"] == {"positional": "96% of its attention, 1% by chance"}
    assert [set(one) for one in scan.figures] == [set(roles) for roles in scan.roles]
    broad = next(one["broad"] for one in scan.figures if "broad" in one)
    assert re.fullmatch("[0-9]+% of the largest entropy, 65% by chance", broad)
    assert role_figure("sink", {"sink_score": math.nan}) == ""
    assert role_figure("sink", {"sink_score": 0.5}) == "50% of its attention"


def test_sinks_rest_on_the_first_word_if_no_special_token_begins_the_text() -> None:
    (sink,) = [one for one in scan_findings(minilm().scan_table, None) if one.kind == "sink"]
    assert sink.word == "the first word"


@pytest.mark.parametrize(
    ("role", "detail", "words"),
    [
        ("positional", "-1", "one word back"),
        ("positional", "+3", "three words ahead"),
        ("syntactic", "advmod (adverb -> modified word)", "adverb and modified word"),
        ("syntactic", "case (noun -> preposition, by column)", "noun and preposition"),
        ("semantic", "related-concepts, by column", "related words"),
        ("coreference", "coreference (pronoun -> noun)", "an earlier mention"),
        ("coreference", "coreference (noun -> pronoun, by column)", "a mention of the same thing"),
        ("sink", "first four", "the first four tokens"),
        ("delimiter", "punctuation", "punctuation"),
        ("mine", "my own", "my own"),
    ],
)
def test_details_are_in_words(role: str, detail: str, words: str) -> None:
    assert role_detail(role, detail) == words


def test_every_detail_of_the_shipped_scans_is_in_words() -> None:
    for session in (minilm(), smollm2()):
        details = [text for one in session.about().scan.details for text in one.values()]
        assert details and not any(mark in text for text in details for mark in "()>+-:")


def assert_shipped_equals_scan(name: str) -> None:
    shipped, fresh = shipped_scan(open_scored_model(name)), scan_model(name)
    assert shipped is not None and shipped.heads == fresh.heads
    assert shipped.df["roles"].tolist() == fresh.df["roles"].tolist()
    for role in ROLES:
        for column in COLUMNS:
            if (key := f"{role}_{column}") in fresh.df:
                one, other = shipped.df[key].tolist(), fresh.df[key].tolist()
                same = (
                    one == other
                    if column == "detail"
                    else one == pytest.approx(other, abs=1e-3, nan_ok=True)
                )
                assert same, key
    assert {**shipped.about, "headwise": ""} == {**fresh.about, "headwise": ""}


def test_minilms_shipped_scan_equals_a_fresh_one() -> None:
    assert_shipped_equals_scan("minilm")


@pytest.mark.slow
@pytest.mark.timeout(1200)  # 80 s on an idle machine
def test_smollm2s_shipped_scan_equals_a_fresh_one() -> None:
    assert_shipped_equals_scan("smollm2")


def test_another_or_a_changed_model_has_no_shipped_scan() -> None:
    scored = open_scored_model("minilm")
    assert shipped_scan(scored) is not None
    about = [
        {},
        scored.about | {"sha256": "0"},
        scored.about | {"dtype": "bfloat16"},
        scored.about | {"kept": {"L0": [1]}},
    ]
    assert [shipped_scan(replace(scored, about=each)) for each in about] == [None] * 4
    with torch.no_grad():
        next(scored.model.parameters()).flatten()[0].add_(1)
    assert shipped_scan(scored) is None


def test_another_version_has_no_shipped_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_scans, "version", lambda _: "9.9.9")
    assert shipped_scan(minilm().scored, is_fresh=True) is None


def test_the_shipped_scans_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert set(sizes) == {"minilm.parquet", "smollm2.parquet"} and max(sizes.values()) < 100_000
