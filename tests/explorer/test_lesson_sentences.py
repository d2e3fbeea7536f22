"""The lesson's sentences are true of every model: with a cap, a sink, or one visible token."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headwise.explorer.lesson.facts import Facts, lesson_facts
from headwise.explorer.lesson.lesson import lesson
from headwise.explorer.lesson.quiz import LessonStep
from headwise.explorer.lesson.scores_to_output import scores
from headwise.explorer.what_if import token_name

from .lesson_cases import (
    STEPS,
    TAUGHT,
    WORDS,
    assert_is_a_lesson,
    browsers_weights,
    figures_of,
    taught,
    tiny_scored_model,
)

SHIFTED = "add the same to every score, and no weight moves"
UNSCALED = "Many models now scale such sums down; this one takes them as they are."
NEARER = "Step after step it comes nearer to 1 and never passes it."


def step_of(steps: tuple[LessonStep, ...], name: str) -> LessonStep:
    return steps[STEPS.index(name)]


def words_of(steps: tuple[LessonStep, ...], name: str) -> str:
    return " ".join(step_of(steps, name).paragraphs)


def raised(figure: dict[str, Any], key: int, steps: int) -> float:
    """A token's weight after its scaled score is raised by some steps of 1."""
    row = [
        score + (key == at) * steps * figure["step"] for at, score in enumerate(figure["scores"])
    ]
    return browsers_weights(figure, row)[key]


def dragged(steps: tuple[LessonStep, ...]) -> int:
    """The token whose score the question is about."""
    figure, question = figures_of(steps, "scores"), step_of(steps, "scores").question
    gains = [raised(figure, key, 1) - raised(figure, key, 0) for key in range(len(WORDS.split()))]
    best = max(range(len(gains)), key=gains.__getitem__)
    assert f"from {figure['scores'][best]:.2f} to" in question.text
    return best


@pytest.mark.parametrize("name", ["mistral", "gpt2", "gemma2", "gpt_oss", "bert"])
def test_sentences_about_more_steps_state_their_real_effect(name: str) -> None:
    steps = taught(name)
    figure, key = figures_of(steps, "scores"), dragged(steps)
    weights = [raised(figure, key, number) for number in range(6)]
    assert weights == sorted(weights) and weights[-1] <= 1
    why = step_of(steps, "scores").question.why
    assert why.endswith(NEARER)
    odds = [weight / (1 - weight) for weight in weights[:2]]
    assert f"grows {'' if figure['softcap'] else 'e = '}{odds[1] / odds[0]:.2f} times" in why
    assert ("the cap leaves" in why) == (figure["softcap"] is not None)


@pytest.mark.parametrize("name", TAUGHT)
def test_sentences_state_how_scores_are_scaled_and_capped(name: str) -> None:
    steps, figure = taught(name), figures_of(taught(name), "scores")
    scaled, cap = figure["scores"][figure["dragged"]] * figure["scale"], figure["softcap"]
    text = words_of(steps, "scores")
    if figure["scale"] == 1:
        assert UNSCALED in text
    else:
        assert f"which {'leaves' if 'square root' in text else 'makes'} {scaled:.2f}." in text
    if cap is not None:
        assert f"bends it to {cap * math.tanh(scaled / cap):.2f}: no score passes {cap:g}." in text
    other = browsers_weights(figure, [score + 3 for score in figure["scores"]])
    is_still = other == pytest.approx(figure["weights"], abs=1e-4)
    assert (SHIFTED in text) == is_still == (cap is None and figure["sink"] is None)


def text_with(facts: Facts, **rules: Any) -> str:
    """The first paragraph on scores, for a model with other rules."""
    other = replace(facts.call, rules=replace(facts.call.rules, **rules))
    return scores(replace(facts, call=other)).paragraphs[0]


def test_sentences_state_that_a_model_does_not_scale() -> None:
    facts = lesson_facts(tiny_scored_model("bert"), WORDS, layer=1, head=2, position=3, table=None)
    text = text_with(facts, scale=1.0)
    assert text.endswith(UNSCALED)
    assert "The model multiplies it by 0.500, which makes" in text_with(facts, scale=0.5)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "gpt_oss"])
def test_sentences_state_that_a_token_sees_only_itself(name: str) -> None:
    steps = lesson(tiny_scored_model(name), WORDS, position=0)
    assert_is_a_lesson(steps)
    why, question = words_of(steps, "why-many"), step_of(steps, "why-many").question
    assert "only one token can be seen" in why and "blurred" not in why
    assert question.answer == len(figures_of(steps, "why-many")["heads"])
    text = words_of(steps, "scores")
    assert "matches itself" in text and "its query by its key" in text and SHIFTED not in text
    has_sink = figures_of(steps, "scores")["sink"] is not None
    assert ("the sink loses what it gains" in text) == has_sink
    assert ("Its share is 1 whatever its score is" in text) == (not has_sink)
    assert ("it keeps its weight" in step_of(steps, "scores").exercise) == (not has_sink)
    mixing = words_of(steps, "mixing")
    assert "of its own value." in mixing and "nothing is added to it" in mixing
    assert "together make" not in mixing and "and so on" not in mixing


@pytest.mark.parametrize(
    ("position", "whole"), [(1, "Both tokens"), (2, "All 3 tokens"), (3, "All 4 tokens")]
)
def test_tokens_are_counted_and_there_are_more_only_beyond_three(position: int, whole: str) -> None:
    mixing = words_of(lesson(tiny_scored_model("llama"), WORDS, position=position), "mixing")
    assert f"{whole} together make" in mixing
    assert ("and so on down the row" in mixing) == (position == 3)


def test_sentences_do_not_claim_that_rows_with_a_sink_sum_to_one() -> None:
    for name, total in (("gpt_oss", "less than one"), ("llama", "one")):
        assert f"shares, adding up to {total}, of what it" in words_of(taught(name), "why-many")


def test_a_next_token_unknown_to_the_tokenizer_is_shown_by_its_number() -> None:
    tokenizer = SimpleNamespace(convert_ids_to_tokens=lambda _: None, decode=lambda _: "")
    scored = replace(tiny_scored_model("llama"), tokenizer=tokenizer)
    assert token_name(scored, 7) == "7"
