"""Steps and questions of the lesson, and how an answer is checked.

In: an answer from the browser. Out: an AnswerVerdict. Knows no model.
"""

import contextlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import AnswerVerdict, Figure, QuestionAnswer, StepAnswer
from headwise.explorer.lesson.token_text import number

MINUTES = {
    "warm-up": 1.0,
    "why-many": 1.5,
    "projections": 1.5,
    "heads": 1.5,
    "scores": 1.5,
    "mixing": 1.0,
    "output": 1.5,
    "spare": 1.5,
}
"""Steps in order, and the minutes that each takes."""
STEPS = tuple(MINUTES)


@dataclass(frozen=True)
class QuizQuestion:
    """A question with one right answer, which is computed."""

    text: str
    kind: Literal["choice", "number"]
    options: tuple[str, ...]
    """Options of a choice; empty for a number."""
    answer: int | float
    """Index of the right option, or the number."""
    tolerance: float
    """Largest error of a number that is still right."""
    why: str
    """Shown after an answer, right or wrong."""


@dataclass(frozen=True)
class LessonStep:
    """One step: a text, an exercise, a question, and numbers to draw."""

    name: str
    title: str
    minutes: float
    paragraphs: tuple[str, ...]
    exercise: str
    question: QuizQuestion
    figures: Figure


def number_question(
    text: str, answer: int | float, why: str, tolerance: float = 0.0
) -> QuizQuestion:
    """A question whose answer is a number."""
    return QuizQuestion(text, "number", (), answer, tolerance, why)


def choice_question(text: str, right: str, wrong: Iterable[str], why: str) -> QuizQuestion:
    """A question whose answer is one of some options, listed in alphabetical order."""
    options = sorted({right, *wrong}, key=_natural_order)
    assert len(options) > 1, "a choice needs something to choose from"
    return QuizQuestion(text, "choice", tuple(options), options.index(right), 0.0, why)


def _natural_order(text: str) -> list[tuple[int, str]]:
    """Sort key that puts L0H10 after L0H9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", text)
    ]


def step_answer(step: LessonStep) -> StepAnswer:
    """The step without the right answer and its reason."""
    quiz = step.question
    question = QuestionAnswer(quiz.text, quiz.kind, list(quiz.options), quiz.tolerance)
    values = {field.name: getattr(step, field.name) for field in fields(step)}
    return StepAnswer(**{**values, "paragraphs": list(step.paragraphs), "question": question})


def check_answer(step: LessonStep, answer: Any) -> AnswerVerdict:
    """Whether an answer, a text or a number, is right."""
    if not isinstance(answer, str | int | float):
        raise OptionError(f"answer is {_shorten(answer)}: give a text or a number")
    question = step.question
    if question.kind == "choice":
        chosen = _option_index(question, answer)
        is_right, right = chosen == question.answer, question.options[int(question.answer)]
        chosen_text = question.options[chosen]
    else:
        # the answer itself is rounded: allow for its last bits
        room = question.tolerance + 4 * math.ulp(max(1.0, abs(question.answer)))
        is_right = any(abs(value - question.answer) <= room for value in _possible_numbers(answer))
        chosen_text, right = str(answer).strip()[:LONGEST_ANSWER], number(question.answer)
    sentence = (
        f"Right: {right}." if is_right else f"Not quite: you said {chosen_text}, and it is {right}."
    )
    return AnswerVerdict(is_right, sentence, question.why)


LONGEST_ANSWER = 60
"""Largest number of characters in an answer."""


def _option_index(question: QuizQuestion, answer: str | int | float) -> int:
    """Index of the option that an answer gives, as a number or as its text."""
    last = len(question.options) - 1
    if isinstance(answer, str):
        if answer in question.options:
            return question.options.index(answer)
        digits = re.fullmatch(r"\s*([0-9]{1,3})\s*", answer)
        chosen = -1 if digits is None else int(digits[1])
    else:
        is_whole = not isinstance(answer, bool) and (isinstance(answer, int) or answer.is_integer())
        chosen = int(answer) if is_whole else -1
    if not 0 <= chosen <= last:
        raise OptionError(f"answer is {_shorten(answer)}: choose one of 0..{last}")
    return chosen


def _possible_numbers(answer: str | int | float) -> tuple[float, ...]:
    """Numbers that an answer can mean: a comma is a decimal point or separates thousands."""
    if not isinstance(answer, str):
        readings = [] if isinstance(answer, bool) else [answer]
    else:
        text = answer.strip().replace("\N{MINUS SIGN}", "-")
        match = re.fullmatch(r"([-+]?[0-9.,]+(?:[eE][-+]?[0-9]{1,3})?)\s*(%?)", text)
        is_short = len(answer) <= LONGEST_ANSWER
        readings = _read_digits(match[1], 0.01 if match[2] else 1.0) if match and is_short else []
    try:
        numbers = tuple(float(value) for value in readings if math.isfinite(value))
    except OverflowError:  # a whole number that no float can hold
        numbers = ()
    if not numbers:
        raise OptionError(f"answer is {_shorten(answer)}: write a number such as 0.25")
    return numbers


def _read_digits(text: str, unit: float) -> list[float]:
    numbers = []
    for digits in dict.fromkeys([text.replace(",", ""), text.replace(",", ".")]):
        with contextlib.suppress(ValueError):
            numbers.append(float(digits) * unit)
    return numbers


def _shorten(answer: object) -> str:
    text = repr(answer) if not isinstance(answer, int) or abs(answer) < 10**9 else "that"
    return text if len(text) <= LONGEST_ANSWER else f"{text[:LONGEST_ANSWER]}..."
