"""The lesson's questions, and how answers are checked: a hint, a second try, then the solution.

In: an answer from the browser, and which attempt it is. Out: an AnswerVerdict. Needs no model.
"""

import contextlib
import math
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headwise.errors import OptionError
from headwise.explorer.lesson.figures import AnswerVerdict, QuestionAnswer, StepAnswer
from headwise.explorer.lesson.prose import Prose, prose
from headwise.explorer.lesson.token_text import number

LONGEST_ANSWER = 60
ATTEMPTS = 2
"""A wrong answer before the last attempt gets a hint; after it, the solution is shown."""


@dataclass(frozen=True)
class QuizQuestion(QuestionAnswer):
    """A question with its right answer, a hint and an explanation."""

    answer: int | float
    """Index of the right option, or the right number."""
    tolerance: float
    """Largest error at which a number still counts as right."""
    hint: Prose
    why: Prose
    """Explanation shown with the solution."""
    written: str = ""
    """The right number as the sentences write it; "": with three significant digits."""


@dataclass(frozen=True, kw_only=True)
class LessonStep(StepAnswer):
    """One step, with the right answer to its question and the text that follows it."""

    question: QuizQuestion
    after: list[Prose] = field(default_factory=list)
    """Paragraphs shown once the question is answered or the solution is shown."""


def number_question(
    text: Prose,
    answer: float,
    *,
    hint: Prose,
    why: Prose,
    tolerance: float = 0.0,
    written: str = "",
) -> QuizQuestion:
    """A question whose answer is a number."""
    return QuizQuestion(text, "number", [], answer, tolerance, hint, why, written)


def choice_question(
    text: Prose, right: str, wrong: Iterable[str], *, hint: Prose, why: Prose
) -> QuizQuestion:
    """A multiple-choice question, with its options in natural sort order."""
    options = sorted({right, *wrong}, key=_natural_order)
    assert len(options) > 1, "a choice needs at least two options"
    return QuizQuestion(text, "choice", options, options.index(right), 0.0, hint, why)


def _natural_order(text: str) -> list[tuple[int, str]]:
    """Sort key that puts L0H10 after L0H9, and 7% before 44%."""
    parts = re.split(r"([0-9]+)", text.replace(",", ""))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def step_answer(step: LessonStep) -> StepAnswer:
    """The step without the right answer and what is shown with it."""
    quiz = step.question
    question = QuestionAnswer(quiz.text, quiz.kind, quiz.options)
    values = {name: value for name, value in vars(step).items() if name != "after"}
    return StepAnswer(**{**values, "question": question})


def check_answer(step: LessonStep, answer: Any, attempt: int = 1) -> AnswerVerdict:
    """The verdict on an answer, which may be text or a number; None asks for the solution."""
    question = step.question
    if answer is None:
        return _solution(step, False, prose("The answer: ", _right_text(question), "."))
    if not isinstance(answer, str | int | float):
        raise OptionError(f"answer is {reprlib.repr(answer)}: give text or a number")
    if question.kind == "choice":
        chosen = _option_index(question.options, answer)
        is_right, chosen_text = chosen == question.answer, question.options[chosen]
    else:
        # the answer itself is rounded: allow for its last bits
        room = question.tolerance + 4 * math.ulp(max(1.0, abs(question.answer)))
        is_right = any(abs(value - question.answer) <= room for value in _possible_numbers(answer))
        chosen_text = str(answer).strip()[:LONGEST_ANSWER]
    if is_right:
        return _solution(step, True, prose("Right: ", _right_text(question), "."))
    if attempt < ATTEMPTS:
        sentence = prose(f"Not quite: not \N{LEFT DOUBLE QUOTATION MARK}{_inside(chosen_text)}"
                         "\N{RIGHT DOUBLE QUOTATION MARK}. A hint:")  # fmt: skip
        return AnswerVerdict(False, False, sentence, question.hint, None, [])
    sentence = prose("No. The right answer is: ", _right_text(question), ".")
    return _solution(step, False, sentence)


def _right_text(question: QuizQuestion) -> str:
    if question.kind == "choice":
        return _inside(question.options[int(question.answer)])
    return question.written or number(question.answer)


def _inside(text: str) -> str:
    """An option inside a sentence; options of several words begin with a capital letter."""
    return text[0].lower() + text[1:] if " " in text else text


def _solution(step: LessonStep, is_right: bool, sentence: Prose) -> AnswerVerdict:
    question = step.question
    right = int(question.answer) if question.kind == "choice" else question.answer
    return AnswerVerdict(is_right, True, sentence, question.why, right, step.after)


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
