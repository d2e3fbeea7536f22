"""Answers are read as a learner means them; anything else raises an OptionError."""

import json
import math
from dataclasses import asdict
from typing import Any

import pytest

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import AnswerVerdict
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, check_answer, step_answer

from .lesson_cases import taught


def test_right_answers_are_not_sent() -> None:
    for step in taught("minilm"):
        sent = asdict(step_answer(step))
        assert set(sent["question"]) == {"text", "kind", "options"}
        assert step.question.why not in json.dumps(sent)


def number_step(answer: float, tolerance: float = 0.0) -> LessonStep:
    return LessonStep(
        "a", "b", 1.0, (), "", QuizQuestion("?", "number", [], answer, tolerance, "w"), {}
    )


@pytest.mark.parametrize(
    ("right", "answers"),
    [
        (0.25, [0.25, "0.25", " 0,25 ", "25%", "25 %", "+.25", "2.5e-1"]),
        (1536, [1536, 1536.0, "1536", "1,536", "1536.0"]),
        (-0.5, [-0.5, "-0.5", "\N{MINUS SIGN}0.5", "-0,5"]),
    ],
)
def test_a_number_may_be_written_in_several_ways(right: float, answers: list[Any]) -> None:
    step = number_step(right)
    assert [check_answer(step, answer).is_right for answer in answers] == [True] * len(answers)
    assert not check_answer(step, right + 1).is_right


def test_a_tolerance_is_kept() -> None:
    step = number_step(0.5, 0.02)
    assert [check_answer(step, answer).is_right for answer in (0.48, 0.52, 0.479, 0.521)] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    ["", "a", "0.2.5", "1 2", "nan", "inf", math.nan, math.inf, True, "9" * 500, 10**400, "0x1"],
)
def test_an_answer_that_is_not_a_number_raises(answer: Any) -> None:
    with pytest.raises(OptionError, match=r"answer.* 0\.25"):
        check_answer(number_step(1), answer)


@pytest.mark.parametrize(
    "answer", ["", "x", "3", 3, -1, 0.5, math.nan, math.inf, True, "-1", "9" * 500, 10**400]
)
def test_an_answer_that_is_not_an_option_raises(answer: Any) -> None:
    question = QuizQuestion("?", "choice", ["red", "green", "blue"], 1, 0.0, "w")
    step = LessonStep("a", "b", 1.0, (), "", question, {})
    with pytest.raises(OptionError, match=r"answer.* 0\.\.2"):
        check_answer(step, answer)


@pytest.mark.parametrize("answer", [None, [1], {"a": 1}])
def test_an_answer_of_another_type_raises(answer: Any) -> None:
    with pytest.raises(OptionError, match=r"answer.*text.*number"):
        check_answer(number_step(1), answer)


def test_an_option_may_be_named_or_numbered() -> None:
    question = QuizQuestion("?", "choice", ["red", "green", "blue"], 1, 0.0, "w")
    step = LessonStep("a", "b", 1.0, (), "", question, {})
    assert [check_answer(step, answer).is_right for answer in (1, 1.0, "1", "green")] == [True] * 4
    assert check_answer(step, "green") == AnswerVerdict(True, "Right: green.", "w")
    assert check_answer(step, 2).sentence == "Not quite: you said blue, and it is green."
