"""Steps and questions of the lesson, and how an answer is checked.

In: an answer from the browser. Out: an AnswerVerdict. Knows no model.
"""

import contextlib
import math
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import AnswerVerdict, QuestionAnswer, StepAnswer
from headwise.explorer.lesson.token_text import number

LONGEST_ANSWER = 60
"""Largest number of characters in an answer."""


@dataclass(frozen=True)
class QuizQuestion(QuestionAnswer):
    """A question with one right answer, which is computed."""

    answer: int | float
    """Index of the right option, or the number."""
    tolerance: float
    """Largest error of a number that is still right."""
    why: str
    """Shown after an answer, right or wrong."""


@dataclass(frozen=True)
class LessonStep(StepAnswer):
    """One step, with the right answer to its question."""

    question: QuizQuestion


def number_question(
    text: str, answer: int | float, why: str, tolerance: float = 0.0
) -> QuizQuestion:
    """A question whose answer is a number."""
    return QuizQuestion(text, "number", [], answer, tolerance, why)


def choice_question(text: str, right: str, wrong: Iterable[str], why: str) -> QuizQuestion:
    """A question whose answer is one of some options, listed in alphabetical order."""
    options = sorted({right, *wrong}, key=_natural_order)
    assert len(options) > 1, "a choice needs something to choose from"
    return QuizQuestion(text, "choice", options, options.index(right), 0.0, why)


def _natural_order(text: str) -> list[tuple[int, str]]:
    """Sort key that puts L0H10 after L0H9."""
    parts = re.split(r"([0-9]+)", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def step_answer(step: LessonStep) -> StepAnswer:
    """The step without the right answer and its reason."""
    values = {field.name: getattr(step, field.name) for field in fields(StepAnswer)}
    quiz = step.question
    return StepAnswer(**values | {"question": QuestionAnswer(quiz.text, quiz.kind, quiz.options)})


def check_answer(step: LessonStep, answer: Any) -> AnswerVerdict:
    """Whether an answer, a text or a number, is right."""
    if not isinstance(answer, str | int | float):
        raise OptionError(f"answer is {reprlib.repr(answer)}: give a text or a number")
    question = step.question
    if question.kind == "choice":
        chosen = _option_index(question.options, answer)
        is_right, right = chosen == question.answer, question.options[int(question.answer)]
        chosen_text = question.options[chosen]
    else:
        # the answer itself is rounded: allow for its last bits
        room = question.tolerance + 4 * math.ulp(max(1.0, abs(question.answer)))
        is_right = any(abs(value - question.answer) <= room for value in _possible_numbers(answer))
        chosen_text, right = str(answer).strip()[:LONGEST_ANSWER], number(question.answer)
    wrong = f"Not quite: you said {chosen_text}, and it is {right}."
    return AnswerVerdict(is_right, f"Right: {right}." if is_right else wrong, question.why)


def _option_index(options: list[str], answer: str | int | float) -> int:
    """Index of the option that an answer gives, as a number or as its text."""
    if answer in options:
        return options.index(str(answer))
    digits = re.fullmatch(r"\s*([0-9]{1,3})(?:\.0)?\s*", str(answer))
    if digits is None or int(digits[1]) >= len(options):
        last = len(options) - 1
        raise OptionError(f"answer is {reprlib.repr(answer)}: choose one of 0..{last}")
    return int(digits[1])


def _possible_numbers(answer: str | int | float) -> list[float]:
    """Numbers that an answer can mean: a comma is a decimal point or separates thousands."""
    text = str(answer).strip().replace("\N{MINUS SIGN}", "-")
    match = re.fullmatch(r"([-+]?[0-9.,]+(?:[eE][-+]?[0-9]{1,3})?)\s*(%?)", text)
    numbers = []
    if match and len(text) <= LONGEST_ANSWER:
        for digits in dict.fromkeys([match[1].replace(",", ""), match[1].replace(",", ".")]):
            with contextlib.suppress(ValueError):
                numbers.append(float(digits) * (0.01 if match[2] else 1.0))
    numbers = [value for value in numbers if math.isfinite(value)]
    if not numbers:
        raise OptionError(f"answer is {reprlib.repr(answer)}: write a number such as 0.25")
    return numbers
