"""Answers are judged as a learner means them, and what is none is refused in a sentence."""

import math
from typing import Any

import pytest

from headwise.errors import OptionError
from headwise.explorer.lesson.lesson import LessonStep, as_json, check
from headwise.explorer.lesson.quiz import QuizQuestion

from .lesson_cases import taught


def test_answers_stay_where_they_are_checked() -> None:
    for step in as_json(taught("minilm")):
        assert set(step) == {
            *("name", "title", "minutes", "paragraphs", "exercise", "question", "figures"),
        }
        assert set(step["question"]) == {"text", "kind", "options", "tolerance"}


def number_step(answer: float, tolerance: float = 0.0) -> LessonStep:
    return LessonStep(
        "a", "b", 1.0, (), "", QuizQuestion("?", "number", (), answer, tolerance, "w"), {}
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
    assert [check(step, answer)["is_right"] for answer in answers] == [True] * len(answers)
    assert not check(step, right + 1)["is_right"]


def test_a_tolerance_is_kept() -> None:
    step = number_step(0.5, 0.02)
    assert [check(step, one)["is_right"] for one in (0.48, 0.52, 0.479, 0.521)] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    ["", "a", "0.2.5", "1 2", "nan", "inf", math.nan, math.inf, True, "9" * 500, 10**400, "0x1"],
)
def test_what_is_no_number_is_refused(answer: Any) -> None:
    with pytest.raises(OptionError, match=r"is not a number: write one such as 0\.25"):
        check(number_step(1), answer)


@pytest.mark.parametrize(
    "answer", ["", "x", "3", 3, -1, 0.5, math.nan, math.inf, True, "-1", "9" * 500, 10**400]
)
def test_what_is_no_option_is_refused(answer: Any) -> None:
    asked = QuizQuestion("?", "choice", ("red", "green", "blue"), 1, 0.0, "w")
    step = LessonStep("a", "b", 1.0, (), "", asked, {})
    with pytest.raises(OptionError, match=r"is no option: choose one of 0\.\.2"):
        check(step, answer)


@pytest.mark.parametrize("answer", [None, [1], {"a": 1}])
def test_what_is_neither_text_nor_number_is_refused(answer: Any) -> None:
    with pytest.raises(OptionError, match="an answer is a text or a number, not"):
        check(number_step(1), answer)


def test_an_option_may_be_named_or_numbered() -> None:
    asked = QuizQuestion("?", "choice", ("red", "green", "blue"), 1, 0.0, "w")
    step = LessonStep("a", "b", 1.0, (), "", asked, {})
    assert [check(step, one)["is_right"] for one in (1, 1.0, "1", "green")] == [True] * 4
    assert check(step, "green") == {"is_right": True, "said": "Right: green.", "why": "w"}
    assert check(step, 2)["said"] == "Not quite: you said blue, and it is green."
