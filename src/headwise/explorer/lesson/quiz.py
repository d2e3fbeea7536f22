"""The lesson's steps and questions, and how answers are checked.

In: an answer from the browser. Out: an AnswerVerdict. Needs no model.
"""

import contextlib
import math
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import AnswerVerdict, QuestionAnswer, StepAnswer
from headwise.explorer.lesson.token_text import number

LONGEST_ANSWER = 60


@dataclass(frozen=True)
class QuizQuestion(QuestionAnswer):
    """A question with its right answer and an explanation."""

    answer: int | float
    """Index of the right option, or the right number."""
    tolerance: float
    """Largest error at which a number still counts as right."""
    why: str
    """Explanation shown after any answer, right or wrong."""


@dataclass(frozen=True)
class LessonStep(StepAnswer):
    """One step, with the right answer to its question."""

    question: QuizQuestion


def number_question(text: str, answer: float, why: str, tolerance: float = 0.0) -> QuizQuestion:
    """A question whose answer is a number."""
    return QuizQuestion(text, "number", [], answer, tolerance, why)


def choice_question(text: str, right: str, wrong: Iterable[str], why: str) -> QuizQuestion:
    """A multiple-choice question, with its options in natural sort order."""
    options = sorted({right, *wrong}, key=_natural_order)
    assert len(options) > 1, "a choice needs at least two options"
    return QuizQuestion(text, "choice", options, options.index(right), 0.0, why)


def _natural_order(text: str) -> list[tuple[int, str]]:
    """Sort key that puts L0H10 after L0H9."""
    parts = re.split(r"([0-9]+)", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def step_answer(step: LessonStep) -> StepAnswer:
    """The step without the right answer and its explanation."""
    quiz = step.question
    question = QuestionAnswer(quiz.text, quiz.kind, quiz.options)
    return StepAnswer(**{**vars(step), "question": question})


def check_answer(step: LessonStep, answer: Any) -> AnswerVerdict:
    """The verdict on an answer, which may be text or a number."""
    if not isinstance(answer, str | int | float):
        raise OptionError(f"answer is {reprlib.repr(answer)}: give text or a number")
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
    """Index of the option that `answer` names, by its index or by its text."""
    if answer in options:
        return options.index(str(answer))
    digits = re.fullmatch(r"\s*([0-9]{1,3})(?:\.0)?\s*", str(answer))
    if digits is None or int(digits[1]) >= len(options):
        raise OptionError(f"answer is {reprlib.repr(answer)}: choose one of 0..{len(options) - 1}")
    return int(digits[1])


def _possible_numbers(answer: str | int | float) -> list[float]:
    """Numbers that an answer can mean: commas are decimal points or separate thousands."""
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
