"""Answers are read as a learner means them; a wrong one gets a hint, then the solution."""

import json
import math
from dataclasses import asdict
from typing import Any

import pytest

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import AnswerVerdict
from headwise.explorer.lesson.lesson import NAMES
from headwise.explorer.lesson.prose import plain, prose
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, check_answer, step_answer

from .lesson_cases import taught

HINT, WHY, AFTER = prose("h"), prose("w"), [prose("a")]


def step_with(question: QuizQuestion) -> LessonStep:
    return LessonStep(
        name="a",
        title="b",
        minutes=1.0,
        paragraphs=[],
        exercise=prose(),
        question=question,
        figures=taught("minilm").step("by-hand").figures,
        after=AFTER,
    )


def number_step(answer: float, tolerance: float = 0.0) -> LessonStep:
    return step_with(QuizQuestion(prose("?"), "number", [], answer, tolerance, HINT, WHY))


def colour_step() -> LessonStep:
    options = ["red", "green", "blue"]
    return step_with(QuizQuestion(prose("?"), "choice", options, 1, 0.0, HINT, WHY))


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_are_not_sent(name: str) -> None:
    step = taught("minilm").step(name)
    sent = asdict(step_answer(step))
    assert set(sent["question"]) == {"text", "kind", "options"} and "after" not in sent
    written = json.dumps(sent)
    for hidden in (step.question.why, step.question.hint, *step.after):
        assert json.dumps([asdict(run) for run in hidden]) not in written


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
    with pytest.raises(OptionError, match=r"answer.* 0\.\.2"):
        check_answer(colour_step(), answer)


@pytest.mark.parametrize("answer", [[1], {"a": 1}])
def test_an_answer_of_another_type_raises(answer: Any) -> None:
    with pytest.raises(OptionError, match=r"answer.*text.*number"):
        check_answer(number_step(1), answer)


def test_an_option_may_be_named_or_numbered() -> None:
    step = colour_step()
    assert [check_answer(step, answer).is_right for answer in (1, 1.0, "1", "green")] == [True] * 4
    right = prose("Right: green.")
    assert check_answer(step, "green") == AnswerVerdict(True, True, right, WHY, 1, AFTER)


def test_a_wrong_answer_gets_a_hint_then_a_second_try_then_the_solution() -> None:
    first = check_answer(colour_step(), 2, attempt=1)
    assert (first.is_right, first.is_over, first.why) == (False, False, HINT)
    assert first.right is None and first.after == []
    sentence = plain(first.sentence)
    assert "Not quite: not \N{LEFT DOUBLE QUOTATION MARK}blue" in sentence
    assert "green" not in sentence
    assert check_answer(colour_step(), 1, attempt=2).is_right
    last = check_answer(colour_step(), 0, attempt=2)
    assert (last.is_right, last.is_over, last.why) == (False, True, WHY)
    assert last.right == 1 and last.after == AFTER
    assert plain(last.sentence) == "No. The right answer is: green."


def test_the_solution_can_be_asked_for() -> None:
    for step, right in ((colour_step(), "green"), (number_step(0.25), "0.250")):
        verdict = check_answer(step, None)
        assert verdict.is_over and not verdict.is_right and verdict.why == WHY
        assert right in plain(verdict.sentence)
