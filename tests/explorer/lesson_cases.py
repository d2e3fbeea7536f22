"""Lessons of a real model and of tiny ones, and assertions that hold for every lesson.

In: the name of a family. Out: its lesson, made once, and helpers that assert.
"""

import functools
import json
import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from headwise.explorer.lesson.choice import Choice
from headwise.explorer.lesson.figures import Place
from headwise.explorer.lesson.lesson import NAMES, Lesson
from headwise.explorer.lesson.prose import Prose, plain
from headwise.explorer.lesson.quiz import ATTEMPTS, LessonStep, check_answer
from headwise.objectives.objective import Objective
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.watching.gates import silence

from ..attention.tolerance import assert_same
from ..pruning.tiny_models import model_of, objective_of, words_tokenizer
from ..watching.tiny_configs import FAMILIES

STEPS = NAMES[:7]
"""The numbered steps; the exercise by hand comes after them."""
ANIMAL = "The animal didn't cross the street because it was too tired."
WIDE = ANIMAL.replace("tired", "wide")
CAT = "The cat sat on the mat because it was warm"
WORDS = "w7 w31 w12 w31 w90 w55 w18"
SEQUENCES = ("encoder", "decoder")
TAUGHT = [
    family.name for family in FAMILIES.values() if family.kind in SEQUENCES and family.is_routed
]
SHOWN = [
    family.name for family in FAMILIES.values() if family.kind in SEQUENCES and not family.is_routed
]
SEVERAL = ["t5", "whisper", "clip"]
ROUNDINGS = 3 * (48 + 17 + 43)
"""As in a trace: sums over a head's width, the keys and the concat."""
HOSTILE = {
    "emoji": "🙂🙃 👩‍👩‍👧‍👦 is a family 🏳️‍🌈",
    "right to left": "שלום עולם, the rest \u202e is turned around",
    "control characters": "one \x00\x07\x1b[31m two \u2028 three \u200b\ufeff four",
    "markup": "<script>alert('x')</script> <img src=x onerror=y>",
    "half a character": "two \ud800 halves \udfff here",
    "only marks": "!!! ??? ... --- ,,,",
    "one word again and again": "cat cat cat cat cat cat",
    "5,000 characters": "word and another, " * 278,
    "one word of 5,000 letters": "x" * 5000,
    "spaces": "a" + " \t\n" * 40 + "b",
}


@functools.cache
def minilm() -> ScoredModel:
    return open_scored_model("minilm")


@functools.cache
def tiny_scored_model(name: str, objective: Objective | None = None) -> ScoredModel:
    return ScoredModel(
        name, model_of(name), words_tokenizer(), objective=objective or objective_of(name)
    )


@functools.cache
def taught(name: str) -> Lesson:
    if name == "minilm":
        return Lesson(minilm(), ANIMAL, other=WIDE)
    return Lesson(tiny_scored_model(name), WORDS)


def lesson_at(name: str, text: str, **choice: int) -> Lesson:
    scored = minilm() if name == "minilm" else tiny_scored_model(name)
    return Lesson(scored, text, choice=Choice(**choice))


def figures_of(lesson: Lesson, name: str) -> dict[str, Any]:
    return asdict(lesson.step(name).figures)


def text_of(paragraphs: list[Prose]) -> str:
    return " ".join(map(plain, paragraphs))


def words_of(lesson: Lesson, name: str) -> str:
    """All sentences of a step, also those after the answer."""
    step = lesson.step(name)
    question = step.question
    after = [question.text, question.hint, question.why, *step.after, step.exercise]
    return text_of([*step.paragraphs, *after])


def num_words(step: LessonStep) -> int:
    return len(text_of([*step.paragraphs, *step.after]).split())


def assert_is_a_lesson(lesson: Lesson) -> None:
    for name in NAMES:
        step = lesson.step(name)
        assert 45 <= num_words(step) <= 305, (name, num_words(step))
        assert plain(step.exercise).endswith((".", "?")) and step.minutes > 0
        sentences = [plain(each) for each in (*step.paragraphs, *step.after)]
        assert all(sentence.endswith((".", ".)")) for sentence in sentences), name
        assert "  " not in (text := words_of(lesson, name)), name
        assert " nan" not in text
        assert_is_answered(step)
        assert_targets_exist(step)
        written = json.dumps(asdict(lesson.answer(name)), allow_nan=False)
        assert len(written) < 1_000_000, (name, len(written))


def assert_targets_exist(step: LessonStep) -> None:
    """Names in the text light up words and pieces that the figure has."""
    place = getattr(step.figures, "place", None)
    runs = [run for each in (*step.paragraphs, *step.after, step.question.text) for run in each]
    for kind, number in (run.target.split(" ", 1) for run in runs if " " in run.target):
        if kind in ("word", "piece"):
            assert isinstance(place, Place)
            many = place.words if kind == "word" else place.pieces
            assert 0 <= int(number) < len(many)


def assert_is_answered(step: LessonStep) -> None:
    question = step.question
    verdict = check_answer(step, question.answer)
    assert verdict.is_right and verdict.is_over and verdict.after == step.after
    assert plain(question.text).endswith(("?", "enough.")), plain(question.text)
    assert plain(question.why).endswith(".") and plain(question.hint).endswith((".", "?"))
    if question.kind == "choice":
        assert len(set(question.options)) == len(question.options) >= 2
        assert check_answer(step, question.options[int(question.answer)]).is_right
        wrong: list[float] = [
            index for index in range(len(question.options)) if index != question.answer
        ]
    else:
        assert question.options == []
        room = 1.01 * question.tolerance + 1e-6
        wrong = [question.answer - room, question.answer + room, 2 * question.answer + 1]
        assert check_answer(step, str(question.answer)).is_right
    for answer in wrong:
        assert_is_hinted(step, answer)


def assert_is_hinted(step: LessonStep, answer: float) -> None:
    """A wrong answer gets a hint, then the solution."""
    first = check_answer(step, answer, 1)
    assert not first.is_right and not first.is_over, (step.name, answer)
    assert first.why == step.question.hint and first.right is None and first.after == []
    last = check_answer(step, answer, ATTEMPTS)
    assert not last.is_right and last.is_over and last.why == step.question.why
    assert last.right == step.question.answer and last.after == step.after


def browsers_weights(figure: dict[str, Any], scores: list[float] | None = None) -> list[float]:
    """The row of weights in plain Python, as the browser computes it."""
    logits = [score * figure["scale"] for score in scores or figure["scores"]]
    cap = figure["softcap"]
    if cap is not None:
        logits = [cap * math.tanh(logit / cap) for logit in logits]
    pairs = zip(logits, figure["added"], strict=True)
    logits = [-math.inf if added is None else logit + added for logit, added in pairs]
    top = max(logits)
    sink = 0.0 if figure["sink"] is None else math.exp(figure["sink"] - top)
    whole = math.fsum(math.exp(logit - top) for logit in logits) + sink
    return [math.exp(logit - top) / whole for logit in logits]


def assert_close(got: object, want: Tensor | list[float], name: str) -> None:
    want = torch.as_tensor(want).double().cpu()
    values = torch.tensor(got, dtype=torch.float64)
    assert_same(values, want, roundings=ROUNDINGS, dtype=torch.float32, name=name)


def silent_outputs(scored: ScoredModel, text: str, layer: int, num_heads: int) -> list[Tensor]:
    """The model's usual output, and its output without each head, one run at a time."""
    inputs = scored.tokenizer(text, return_tensors="pt")
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    runs: list[list[str]] = [[], *([f"L{layer}H{head}"] for head in range(num_heads))]
    outputs = []
    for heads in runs:
        with torch.no_grad(), silence(scored.model, heads):
            answer = scored.model(**inputs)
        outputs.append(answer["logits" if "logits" in answer else "last_hidden_state"][0].double())
    return outputs
