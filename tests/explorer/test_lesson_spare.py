"""The lesson's last step: effects of silent heads are measured, and roles are counted."""

from dataclasses import asdict
from typing import Any

import pandas as pd
import pytest
import torch

import headwise
from headwise.explorer.lesson import silencing
from headwise.explorer.lesson.lesson import Lesson
from headwise.explorer.lesson.silencing import DRAWS
from headwise.head_table import HeadTable
from headwise.objectives.losses import CustomLoss

from .lesson_cases import (
    ANIMAL,
    CAT,
    TAUGHT,
    WORDS,
    assert_is_a_lesson,
    figures_of,
    minilm,
    silent_outputs,
    taught,
    tiny_scored_model,
    words_of,
)

pytestmark = pytest.mark.usefixtures("quiet_transformers")


def effects_of(lesson: Lesson) -> dict[str, dict[str, Any]]:
    return {each["head"]["name"]: each for each in figures_of(lesson, "spare")["heads"]}


def test_effects_on_an_embedding_are_those_of_silencing() -> None:
    effects, layer = effects_of(taught("minilm")), 2
    means = [output.mean(0) for output in silent_outputs(minilm(), ANIMAL, layer, 12)]
    for head in range(12):
        cosine = float(torch.cosine_similarity(means[0], means[head + 1], dim=0))
        assert effects[f"L{layer}H{head}"]["value"] == pytest.approx(cosine, abs=1e-5)
        assert effects[f"L{layer}H{head}"]["effect"] == pytest.approx(1 - cosine, abs=1e-5)
    figure = figures_of(taught("minilm"), "spare")
    assert (figure["unit"], figure["unchanged"], figure["next"]) == ("cosine", 1.0, [])
    assert len(effects) == 72


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_effects_on_a_prediction_are_those_of_silencing(name: str) -> None:
    figure, effects = figures_of(taught(name), "spare"), effects_of(taught(name))
    scored, layer = tiny_scored_model(name), 1
    num_heads = sum(each.startswith(f"L{layer}H") for each in effects)
    outputs = silent_outputs(scored, WORDS, layer, num_heads)
    logs = [output[-1].log_softmax(-1) for output in outputs]
    top = int(logs[0].argmax())
    assert figure["unit"] == "nats"
    assert figure["next"][0]["token"] == scored.tokenizer.convert_ids_to_tokens(top)
    assert figure["next"][0]["probability"] == pytest.approx(float(logs[0][top].exp()), abs=1e-6)
    for head, after in enumerate(logs[1:]):
        measured = effects[f"L{layer}H{head}"]
        divergence = float((logs[0].exp() * (logs[0] - after)).sum())
        assert measured["effect"] == pytest.approx(divergence, abs=1e-6)
        assert measured["next"][0] == pytest.approx(float(after[top].exp()), abs=1e-6)
        likeliest = scored.tokenizer.convert_ids_to_tokens(int(after.argmax()))
        assert measured["likeliest"]["token"] == likeliest


def test_effects_on_a_custom_loss_are_those_of_silencing() -> None:
    square_loss = CustomLoss(lambda model, inputs: model(**inputs).logits.square().mean((1, 2)))
    scored = tiny_scored_model("bert", square_loss)
    lesson = Lesson(scored, WORDS)
    figure, effects = figures_of(lesson, "spare"), effects_of(lesson)
    outputs = silent_outputs(scored, WORDS, 1, 5)
    losses = [float(output.square().mean()) for output in outputs]
    assert figure["unit"] == "loss" and figure["unchanged"] == pytest.approx(losses[0])
    for head, loss in enumerate(losses[1:]):
        assert effects[f"L1H{head}"]["value"] == pytest.approx(loss)
        assert effects[f"L1H{head}"]["effect"] == pytest.approx(abs(loss - losses[0]))


@pytest.mark.parametrize("name", ["minilm", "embedding", "llama", "bert"])
def test_heads_are_silenced_together_in_the_order_of_their_effects(name: str) -> None:
    figure = figures_of(taught(name), "spare")
    heads, order = figure["heads"], figure["order"]
    assert sorted(order) == list(range(len(heads)))
    effects = [heads[at]["effect"] for at in order]
    assert effects == sorted(effects)
    assert [heads[at]["rank"] for at in order] == list(range(len(heads), 0, -1))
    counts = [step["count"] for step in figure["together"]]
    assert counts == sorted(set(counts)) and counts[-1] == len(heads)
    for step in figure["together"][:-1]:
        assert len(step["random"]) == DRAWS == figure["draws"]
    assert figure["together"][-1]["random"] == []


def test_silencing_together_is_that_of_silencing_these_heads() -> None:
    figure = figures_of(taught("minilm"), "spare")
    step = figure["together"][4]
    names = [figure["heads"][at]["head"]["name"] for at in figure["order"][: step["count"]]]
    inputs = minilm().tokenizer(ANIMAL, return_tensors="pt")
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        before = minilm().model(**inputs)["last_hidden_state"][0].double().mean(0)
        with headwise.silence(minilm().model, names):
            after = minilm().model(**inputs)["last_hidden_state"][0].double().mean(0)
    cosine = float(torch.cosine_similarity(before, after, dim=0))
    assert step["value"] == pytest.approx(cosine, abs=1e-5)
    assert sum(step["random"]) / DRAWS < step["value"]


@pytest.mark.parametrize("name", ["minilm", "embedding", *TAUGHT])
def test_the_question_about_silent_heads_has_the_measured_answer(name: str) -> None:
    step = taught(name).step("spare")
    figure, question = asdict(step.figures), step.question
    limit, steps = figure["limit"], figure["together"]
    count = 0 if limit < 0 else steps[limit]["count"]
    right = question.options[int(question.answer)]
    if count == 0:
        assert right == "None of them"
    else:
        first, _, last = right.replace(",", "").partition(" to ")
        assert int(first) <= count <= int(last or first)
    outline = taught(name).answer("spare").step
    assert outline.question.options == question.options and outline.paragraphs == step.paragraphs
    if figure["unit"] == "cosine":
        assert all(each["value"] >= 0.9 for each in steps[: limit + 1])
        assert limit == len(steps) - 1 or steps[limit + 1]["value"] < 0.9


@pytest.mark.parametrize("name", ["minilm", "llama", "bert"])
def test_the_outline_of_the_last_step_runs_the_model_twice_only(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = taught(name)
    lesson = Lesson(measured.facts.scored, ANIMAL if name == "minilm" else WORDS)
    runs: list[int] = []
    before = silencing._output_to_compare
    monkeypatch.setattr(
        silencing,
        "_output_to_compare",
        lambda scored, inputs: (runs.append(len(inputs["input_ids"])), before(scored, inputs))[1],
    )
    outline = lesson.answer("spare", is_outline=True).step
    assert sum(runs) == 2
    full = lesson.answer("spare").step
    assert (outline.paragraphs, outline.question, outline.exercise) == (
        *(full.paragraphs, full.question, full.exercise),
    )
    mine = full.figures.heads.index(
        next(each for each in full.figures.heads if each.head == outline.figures.head)
    )
    assert outline.figures.row == full.figures.weights[mine]
    assert lesson.answer("spare", is_outline=True).step == full


def test_a_model_that_predicts_reads_up_to_the_last_word() -> None:
    figure = figures_of(taught("llama"), "spare")
    assert figure["last"] == len(figure["place"]["words"]) - 1
    assert "the next word" in words_of(taught("llama"), "spare")


def test_the_last_step_names_the_roles_of_a_scan() -> None:
    layers = [layer for layer in range(6) for _ in range(12)]
    heads = list(range(12)) * 6
    roles: list[list[str]] = [[] for _ in heads]
    roles[3], roles[4] = ["positional", "broad"], ["sink"]
    frame = pd.DataFrame({"stack": "", "layer": layers, "head": heads, "roles": roles})
    lesson = Lesson(minilm(), CAT, table=HeadTable(frame, {}))
    held = [each["head"]["roles"] for each in figures_of(lesson, "spare")["heads"]]
    assert held == roles
    text = words_of(lesson, "spare")
    assert (
        "The commonest are: positional (1 head), which looks a fixed number of words away;" in text
    )
    assert "70 of the 72 heads" in text
    assert "A head with several roles counts in each." in text
    assert_is_a_lesson(lesson)
    without = figures_of(taught("minilm"), "spare")["heads"]
    assert {each["head"]["roles"] for each in without} == {None}
