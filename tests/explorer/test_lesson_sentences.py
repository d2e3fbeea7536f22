"""The lesson's sentences are true of every model: with a cap, a sink, or one visible token."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headwise.explorer.lesson.choice import Choice
from headwise.explorer.lesson.facts import lesson_facts
from headwise.explorer.lesson.lesson import NAMES
from headwise.explorer.lesson.prose import plain
from headwise.explorer.lesson.scores import round_power, scores
from headwise.explorer.what_if import token_name

from .lesson_cases import (
    TAUGHT,
    WORDS,
    assert_is_a_lesson,
    browsers_weights,
    figures_of,
    lesson_at,
    taught,
    text_of,
    tiny_scored_model,
    words_of,
)
from .stage_modules import run

SHIFTED = "raise all scores by 1, and no share moves"
UNSCALED = "This model takes the dot products as they are"
ALARMS = {
    '"a" for "per"': r"\ba (?:token|head|layer)\b(?= (?:has|have) a)",
    "is no": r"\b(?:is|are|was|were) no (?!longer|more|less)[a-z]",
    "archaic": r"\b(?:anew|borne|shall|too,)\b",
    "where for if": r"\bNone where\b",
    "long dash": "\N{EM DASH}",
}
"""Habits of english.md that a sentence can be searched for."""


@pytest.mark.parametrize("name", ["minilm", "llama", "gpt_oss", "roberta"])
def test_sentences_avoid_known_bad_habits(name: str) -> None:
    for step in NAMES:
        text = words_of(taught(name), step)
        assert [alarm for alarm, pattern in ALARMS.items() if re.search(pattern, text)] == []


@pytest.mark.parametrize("name", TAUGHT)
def test_sentences_state_how_scores_are_scaled_and_capped(name: str) -> None:
    lesson, figure = taught(name), figures_of(taught(name), "scores")
    text = words_of(lesson, "scores")
    leader = figure["leader"]
    scaled, cap = figure["scores"][leader] * figure["scale"], figure["softcap"]
    if cap is not None:
        scaled = cap * math.tanh(scaled / cap)
        assert f"A cap bends large scores: none passes {cap:g}." in text
    logit = f"{scaled + figure['added'][leader]:z.1f}".replace("-", "\N{MINUS SIGN}")
    assert f" {logit}" in text
    assert (UNSCALED in text) == (figure["scale"] == 1)
    root = f"\N{SQUARE ROOT}{figure['d_key']}"
    assert (root in text) == figure["is_root"] or figure["scale"] == 1
    moved = browsers_weights(figure, [score + 3 for score in figure["scores"]])
    is_still = moved == pytest.approx(figure["weights"], abs=1e-4)
    assert (SHIFTED in text) == is_still == (cap is None and figure["sink"] is None)
    assert ("a sink that takes a share, too" in text) == (figure["sink"] is not None)


def opening_with(**rules: Any) -> str:
    """The first paragraph on scores, for a model with other rules."""
    facts = lesson_facts(tiny_scored_model("bert"), WORDS, Choice(1, 2, 3))
    other = replace(facts.call, rules=replace(facts.call.rules, **rules))
    return plain(scores(replace(facts, call=other)).paragraphs[0])


def test_sentences_state_that_a_model_scales_otherwise_or_not_at_all() -> None:
    assert UNSCALED in opening_with(scale=1.0)
    assert "Multiplied by 0.500, each dot product becomes a score" in opening_with(scale=0.5)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "gpt_oss"])
def test_sentences_state_that_a_token_sees_only_itself(name: str) -> None:
    lesson = lesson_at(name, WORDS, position=0)
    assert_is_a_lesson(lesson)
    why = text_of(lesson.step("why-many").after)
    assert "only one word can be seen" in why and "blur" not in why
    text = words_of(lesson, "scores")
    has_sink = figures_of(lesson, "scores")["sink"] is not None
    assert ("Its share is 100% whatever the score is" in text) == (not has_sink)
    assert ("alone in its row" in text) == (not has_sink)
    assert "matches itself, multiply its query by its key" in words_of(lesson, "vectors")
    mixing = words_of(lesson, "mixing")
    assert "of its own value." in mixing and "and so on" not in mixing


@pytest.mark.parametrize("position", [1, 2, 3])
def test_the_row_goes_on_only_beyond_three_tokens(position: int) -> None:
    mixing = words_of(lesson_at("llama", WORDS, position=position), "mixing")
    assert ("and so on along the row" in mixing) == (position == 3)


def test_a_next_token_unknown_to_the_tokenizer_is_shown_by_its_number() -> None:
    tokenizer = SimpleNamespace(convert_ids_to_tokens=lambda _: None, decode=lambda _: "")
    scored = replace(tiny_scored_model("llama"), tokenizer=tokenizer)
    assert token_name(scored, 7) == "7"


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_the_first_step_explains_words_that_the_model_adds(name: str) -> None:
    lesson = taught(name)
    text, (first, last) = text_of(lesson.step("why-many").paragraphs), lesson.facts.added
    words = lesson.facts.words
    assert ("the model adds" in text) == bool(first or last)
    assert (f"{words[0].text} and {words[-1].text} are not words" in text) == bool(first and last)
    assert ("(dashed)" in text) == (bool(first) or lesson.facts.is_causal)


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_the_named_heads_of_a_layer_are_the_drawn_ones(name: str) -> None:
    lesson, figure = taught(name), figures_of(taught(name), "heads")
    text = text_of(lesson.step("heads").after)
    names = {head["head"]["name"] for head in figure["heads"] if f"{head['head']['name']} " in text}
    drawn = {figure["heads"][at]["head"]["name"] for at in figure["shown"]}
    assert names | {lesson.facts.name} == drawn and len(drawn) <= 4
    here = lesson.facts.here
    for name_of_head in names:
        row = next(each for each in figure["heads"] if each["head"]["name"] == name_of_head)
        words = [at for at, word in enumerate(lesson.facts.words) if word.kind == "word"]
        best = max(row["weights"][at] for at in words if at != here)
        assert best >= 0.15
    is_cut_alike = "Keys and values are cut the same way." in words_of(lesson, "heads")
    assert is_cut_alike == (figure["num_kv_heads"] == len(figure["heads"]))


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_the_fifth_step_says_that_the_second_showed_one_slice(name: str) -> None:
    lesson = taught(name)
    said = f"Step 2 showed only the slice of {lesson.facts.name}." in words_of(lesson, "heads")
    assert said == (lesson.facts.num_heads > 1)


def test_a_power_of_e_is_never_printed_as_zero() -> None:
    powers = [0.04, 1e-30, 0.05, 0.0501, 0.3, 6.94, 46.2]
    printed = run({"../lesson/parts": "power"}, "return data.map(power)", powers)
    assert printed == ["<0.1", "<0.1", "0.1", "0.1", "0.3", "6.9", "46"]
    assert [round_power(power) for power in powers] == printed


@pytest.mark.parametrize("name", ["gemma2", "granite", "gpt2", "minilm"])
def test_the_sixth_step_adds_the_output_to_its_input(name: str) -> None:
    text = words_of(taught(name), "output")
    assert "added to the" in text and "passes them on" not in text
    assert ("rescaled and added" in text) == (name in ("gemma2", "granite"))


@pytest.mark.parametrize("name", ["minilm", "embedding", "bert", "llama"])
def test_the_last_step_states_its_scale(name: str) -> None:
    lesson, figure = taught(name), figures_of(taught(name), "spare")
    text = text_of(lesson.step("spare").paragraphs)
    assert ("that is our choice" in text) == (figure["line"] is not None) == (not figure["next"])
    if figure["unit"] == "cosine" and (last := figure["together"][-1]["value"]) < figure["line"]:
        assert f"silent it is {last:.2f}" in text
        assert ("still say something" in text) == (last >= 0.2)
