"""Lesson records: what a step holds, what is asked in it, and how an answer is judged.

In: an answer as a browser sends it. Out: whether it is right, in a sentence. It knows no model.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from headwise.errors import OptionError
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
"""Every step in order, and how long it takes to read, try and answer."""
STEPS = tuple(MINUTES)


@dataclass(frozen=True)
class QuizQuestion:
    """One question with one right answer, which was computed."""

    text: str
    kind: Literal["choice", "number"]
    options: tuple[str, ...]
    """Of a choice; empty for a number."""
    answer: int | float
    """Index of the right option, or the number."""
    tolerance: float
    """How far off a number may be and still be right."""
    why: str
    """Shown after an answer, right or wrong."""


@dataclass(frozen=True)
class LessonStep:
    """One step: a text, one thing to do, one question, and numbers to draw."""

    name: str
    title: str
    minutes: float
    paragraphs: tuple[str, ...]
    exercise: str
    question: QuizQuestion
    figures: dict[str, Any]


def asks_number(text: str, answer: int | float, why: str, tolerance: float = 0.0) -> QuizQuestion:
    """A question whose answer is a number."""
    return QuizQuestion(text, "number", (), answer, tolerance, why)


def asks_choice(text: str, right: str, wrong: Iterable[str], why: str) -> QuizQuestion:
    """A question whose answer is one of some options, which stand in the order of the alphabet."""
    options = sorted({right, *wrong}, key=natural)
    assert len(options) > 1, "a choice needs something to choose from"
    return QuizQuestion(text, "choice", tuple(options), options.index(right), 0.0, why)


def natural(text: str) -> list[tuple[int, str]]:
    """A key to sort by in which L0H10 comes after L0H9."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", text)
    ]


def as_json(steps: Iterable[LessonStep]) -> list[dict[str, Any]]:
    """The steps as plain dicts; answers and their reasons are left out."""
    return [
        {
            "name": step.name,
            "title": step.title,
            "minutes": step.minutes,
            "paragraphs": list(step.paragraphs),
            "exercise": step.exercise,
            "question": {
                "text": step.question.text,
                "kind": step.question.kind,
                "options": list(step.question.options),
                "tolerance": step.question.tolerance,
            },
            "figures": step.figures,
        }
        for step in steps
    ]


def check(step: LessonStep, answer: Any) -> dict[str, Any]:
    """Whether an answer is right: `is_right`, a sentence that says so, and why it is.

    An answer is a text or a number; what else JSON can hold is refused.
    """
    if not isinstance(answer, str | int | float):
        raise OptionError(f"an answer is a text or a number, not {shortened(answer)}")
    asked = step.question
    if asked.kind == "choice":
        chosen = option_of(asked, answer)
        is_right, right = chosen == asked.answer, asked.options[int(asked.answer)]
        given = asked.options[chosen]
    else:
        # a tolerance is a bound on arithmetic of our own, too: allow for its last bit
        room = asked.tolerance + 4 * math.ulp(max(1.0, abs(asked.answer)))
        readings = numbers_of(answer)
        is_right = any(abs(one - asked.answer) <= room for one in readings)
        given, right = str(answer).strip()[:LONGEST_ANSWER], number(asked.answer)
    said = f"Right: {right}." if is_right else f"Not quite: you said {given}, and it is {right}."
    return {"is_right": is_right, "said": said, "why": asked.why}


LONGEST_ANSWER = 60
"""Characters of an answer that are read."""


def option_of(asked: QuizQuestion, answer: str | int | float) -> int:
    """The index that an answer names: itself, or the text of the option."""
    last = len(asked.options) - 1
    if isinstance(answer, str):
        if answer in asked.options:
            return asked.options.index(answer)
        found = re.fullmatch(r"\s*([0-9]{1,3})\s*", answer)
        chosen = -1 if found is None else int(found[1])
    else:
        is_whole = not isinstance(answer, bool) and (isinstance(answer, int) or answer.is_integer())
        chosen = int(answer) if is_whole else -1
    if not 0 <= chosen <= last:
        raise OptionError(f"{shortened(answer)} is no option: choose one of 0..{last}")
    return chosen


def numbers_of(answer: str | int | float) -> tuple[float, ...]:
    """What a number may mean: a comma may stand for the point, or between thousands."""
    if not isinstance(answer, str):
        readings = [] if isinstance(answer, bool) else [answer]
    else:
        text = answer.strip().replace("\N{MINUS SIGN}", "-")
        found = re.fullmatch(r"([-+]?[0-9.,]+(?:[eE][-+]?[0-9]{1,3})?)\s*(%?)", text)
        is_short = len(answer) <= LONGEST_ANSWER
        readings = read(found[1], 0.01 if found[2] else 1.0) if found and is_short else []
    try:
        finite = tuple(float(one) for one in readings if math.isfinite(one))
    except OverflowError:  # a whole number that no float can hold
        finite = ()
    if not finite:
        raise OptionError(f"{shortened(answer)} is not a number: write one such as 0.25")
    return finite


def read(text: str, unit: float) -> list[float]:
    """A text of digits read both ways, where they make a number."""
    found = []
    for one in dict.fromkeys([text.replace(",", ""), text.replace(",", ".")]):
        try:
            found.append(float(one) * unit)
        except ValueError:
            continue
    return found


def shortened(answer: object) -> str:
    """An answer as a message quotes it."""
    text = repr(answer) if not isinstance(answer, int) or abs(answer) < 10**9 else "that"
    return text if len(text) <= LONGEST_ANSWER else f"{text[:LONGEST_ANSWER]}..."
