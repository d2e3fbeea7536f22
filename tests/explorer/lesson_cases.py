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

from headwise.explorer.lesson.lesson import lesson
from headwise.explorer.lesson.quiz import LessonStep, check_answer, step_answer
from headwise.objectives.objective import Objective
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.watching.gates import silence

from ..attention.tolerance import assert_same
from ..pruning.tiny_models import model_of, objective_of, words_tokenizer
from ..watching.tiny_configs import FAMILIES

STEPS = ("warm-up", "why-many", "projections", "heads", "scores", "mixing", "output", "spare")
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
def taught(name: str) -> tuple[LessonStep, ...]:
    if name == "minilm":
        return lesson(minilm(), CAT)
    return lesson(tiny_scored_model(name), WORDS)


def figures_of(steps: tuple[LessonStep, ...], name: str) -> dict[str, Any]:
    return asdict(steps[STEPS.index(name)].figures)


def num_words(step: LessonStep) -> int:
    return sum(len(paragraph.split()) for paragraph in step.paragraphs)


def assert_is_a_lesson(steps: tuple[LessonStep, ...]) -> None:
    assert tuple(step.name for step in steps) == STEPS
    for step in steps:
        assert 60 <= num_words(step) <= 140, (step.name, num_words(step))
        assert step.title and step.exercise.endswith(".") and step.minutes > 0
        assert all(paragraph.endswith(".") for paragraph in step.paragraphs), step.name
        assert "  " not in " ".join(step.paragraphs)
        assert_is_answered(step)
    text = json.dumps([asdict(step_answer(step)) for step in steps], allow_nan=False)
    assert "nan" not in " ".join(" ".join(step.paragraphs) for step in steps)
    assert len(text) < 500_000


def assert_is_answered(step: LessonStep) -> None:
    question = step.question
    assert check_answer(step, question.answer).is_right
    assert question.text.endswith(("?", "?)")) and question.why.endswith(".")
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
        verdict = check_answer(step, answer)
        assert not verdict.is_right and verdict.why == question.why, (step.name, answer)


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
