"""The lesson follows a word, a head and a layer, in any text and any model."""

import json
import math
import re
from itertools import pairwise

import pytest
import torch
import transformers

from headwise.errors import OptionError
from headwise.explorer.lesson.facts import MAX_TOKENS
from headwise.explorer.lesson.lesson import NAMES, Lesson
from headwise.explorer.lesson.prose import plain
from headwise.explorer.lesson.quiz import LessonStep
from headwise.explorer.lesson.token_text import shown, visible
from headwise.explorer.shipped_scans import shipped_scan
from headwise.objectives.losses import Embedding
from headwise.objectives.scored_model import ScoredModel

from ..pruning.tiny_models import words_tokenizer
from .lesson_cases import (
    ANIMAL,
    CAT,
    HOSTILE,
    SEVERAL,
    SHOWN,
    STEPS,
    WORDS,
    assert_close,
    assert_is_a_lesson,
    figures_of,
    lesson_at,
    minilm,
    taught,
    tiny_scored_model,
    words_of,
)

pytestmark = pytest.mark.usefixtures("quiet_transformers")


def test_a_pronoun_is_followed_in_a_head_that_links_it() -> None:
    lesson = Lesson(minilm(), ANIMAL, table=shipped_scan(minilm(), is_fresh=True))
    assert (lesson.facts.name, plain(lesson.heading)) == ("L3H1", "What does it mean?")
    assert lesson.facts.lesson_head(lesson.facts.head).roles == ["coreference", "syntactic"]
    lesson = Lesson(minilm(), CAT, table=shipped_scan(minilm(), is_fresh=True))
    row = lesson.facts.here_row
    assert float(row[: lesson.facts.here - 1].max()) >= 0.3


def test_without_a_pronoun_the_last_word_is_followed_and_named() -> None:
    lesson = Lesson(minilm(), "The agent merged the pull request after review.")
    place = figures_of(lesson, "why-many")["place"]
    assert place["words"][place["word"]]["text"] == "review"
    assert plain(lesson.heading) == "Where does review look?"
    row = figures_of(lesson, "scores")["weights"]
    top = row.index(max(row))
    assert top not in (0, place["position"], len(row) - 1)
    assert row[0] + row[-1] <= 0.5 and max(row) <= 0.95


def test_a_pronoun_that_begins_the_text_is_not_followed() -> None:
    lesson = Lesson(minilm(), "It rained on the old house")
    assert plain(lesson.heading) == "Where does house look?"


def test_the_lesson_follows_the_chosen_layer_head_and_token() -> None:
    place = figures_of(lesson_at("minilm", CAT, layer=2, head=7, position=3), "output")["place"]
    assert (place["name"], place["pieces"][place["position"]]["text"]) == ("L2H7", "sat")
    assert figures_of(lesson_at("minilm", CAT, layer=4), "output")["place"]["layer"] == 4
    assert figures_of(lesson_at("minilm", CAT, head=7), "output")["place"]["head"] == 7


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"layer": 6}, r"layer.* 6\b.*0\.\.5"),
        ({"layer": -1}, r"layer.* -1\b.*0\.\.5"),
        ({"layer": 2, "head": 12}, r"head.* 12\b.*layer 2.*0\.\.11"),
        ({"head": 40}, r"head.* 40\b.*0\.\.11"),
        ({"position": 12}, r"position.* 12\b.*0\.\.11"),
    ],
)
def test_an_unknown_layer_head_or_position_raises(choice: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        lesson_at("minilm", CAT, **choice)


def test_an_unknown_step_raises_with_the_names() -> None:
    with pytest.raises(OptionError, match=r"step.* 'warm-up'.*why-many.*by-hand"):
        taught("minilm").step("warm-up")


@pytest.mark.parametrize("text", ["", "   \n", "Hi", "\x00"])
def test_fewer_than_two_tokens_raise(text: str) -> None:
    with pytest.raises(OptionError, match=r"\b[01] tokens.* 2\b"):
        Lesson(minilm(), text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_text_makes_a_lesson_or_raises_one_sentence(text: str) -> None:
    for scored in (minilm(), tiny_scored_model("llama")):
        try:
            lesson = Lesson(scored, text)
        except OptionError as error:
            assert "at least 2" in str(error)
            continue
        assert_is_a_lesson(lesson)
        runs = [
            run.text
            for name in NAMES
            for sentence in (*lesson.step(name).paragraphs, *lesson.step(name).after)
            for run in sentence
        ]
        written = json.dumps(runs, ensure_ascii=False)
        assert not any(mark in written for mark in "\u202e\x00\x07\x1b\u2028\u200b\ud800")


@pytest.mark.parametrize("mark", ["\u202e", "\x00", "\x1b", "\u2028", "\u200b", "\u2066", "\n"])
def test_a_token_cannot_change_the_text_around_it(mark: str) -> None:
    assert visible(f"a{mark}b") == shown(f"a{mark}b") == "a\u00b7b"


def test_a_right_to_left_token_is_isolated() -> None:
    assert shown("\u05e9\u05dc") == "\u2068\u05e9\u05dc\u2069"


@pytest.mark.parametrize("position", range(12))
def test_every_token_can_be_followed(position: int) -> None:
    assert_is_a_lesson(lesson_at("minilm", CAT, position=position))


def test_a_lesson_follows_the_first_tokens_of_a_long_text_and_says_so() -> None:
    place = figures_of(Lesson(minilm(), "The cat sat on the mat. " * 200), "why-many")["place"]
    assert len(place["pieces"]) == 21 + 2, "three whole sentences"
    assert "the first 21 tokens of your text, up to the end of a sentence" in place["note"]
    assert "\u201cThe cat sat\u201d on" in place["note"]
    place = figures_of(Lesson(minilm(), "the cat sat on the mat and " * 200), "why-many")["place"]
    assert len(place["pieces"]) == MAX_TOKENS + 2
    assert f"the first {MAX_TOKENS} tokens" in place["note"]
    assert "no sentence ends in reach" in place["note"]
    assert figures_of(taught("minilm"), "why-many")["place"]["note"] == ""


def test_a_repeated_token_is_numbered() -> None:
    lesson = lesson_at("minilm", CAT, position=5)
    assert "the (2nd)" in words_of(lesson, "vectors")
    assert "it (" not in words_of(taught("minilm"), "vectors")


def test_the_first_token_of_a_causal_model_sees_only_itself() -> None:
    lesson = lesson_at("llama", WORDS, position=0)
    assert_is_a_lesson(lesson)
    figure = figures_of(lesson, "scores")
    assert figure["weights"] == [1.0, *[0.0] * 6]
    assert figure["added"] == [0.0, *[None] * 6]
    question = lesson.step("scores").question
    assert question.options[int(question.answer)] == "1"
    assert "6 pieces come later in the text" in words_of(lesson, "scores")


def test_a_row_that_is_all_or_nothing_is_not_dragged() -> None:
    question = lesson_at("minilm", CAT, layer=0, head=2).step("scores").question
    assert "How many pieces" in plain(question.text)
    assert question.options[int(question.answer)] == "12"


def test_a_lesson_works_on_a_layer_with_one_head() -> None:
    config = transformers.BertConfig(
        vocab_size=101, hidden_size=14, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=11, max_position_embeddings=37,
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.BertModel(config).eval()
    lesson = Lesson(ScoredModel("one", model, words_tokenizer(), objective=Embedding()), WORDS)
    assert_is_a_lesson(lesson)
    assert "only one head" in words_of(lesson, "why-many")
    assert "the only head of its layer" in words_of(lesson, "heads")


@pytest.mark.parametrize("name", SHOWN)
def test_a_model_that_returns_only_weights_raises_with_the_reason(name: str) -> None:
    with pytest.raises(OptionError, match=rf"{name} .*weights \(\w+ "):
        Lesson(tiny_scored_model(name), WORDS)


@pytest.mark.parametrize("name", SEVERAL)
def test_a_model_with_several_stacks_raises_with_their_names(name: str) -> None:
    with pytest.raises(OptionError, match=rf"{name} .* stacks .*\(.*, .*\)"):
        Lesson(tiny_scored_model(name), WORDS)


def test_a_model_without_a_tokenizer_raises() -> None:
    scored = tiny_scored_model("llama")
    with pytest.raises(OptionError, match=r"llama.* tokenizer"):
        Lesson(ScoredModel("llama", scored.model, None, objective=scored.objective), WORDS)


def test_a_lesson_takes_two_passes_until_its_last_step_and_leaves_the_model_as_it_was() -> None:
    model = minilm().model
    passes = []
    hook = model.register_forward_hook(lambda *_: passes.append(1))
    model.train()
    try:
        lesson = Lesson(minilm(), ANIMAL)
        for name in STEPS[:-1]:
            lesson.step(name)
        assert model.training and len(passes) == 2
        told: list[tuple[int, int]] = []
        lesson.step("spare", lambda _, done, total: told.append((done, total)))
        assert model.training
    finally:
        model.eval()
        hook.remove()
    done = [each for each, _ in told]
    assert all(one <= other for one, other in pairwise(done)) and told[-1][0] == told[-1][1]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_exercise_is_the_worked_example() -> None:
    lesson = taught("minilm")
    figure = figures_of(lesson, "by-hand")
    assert figure["scores"][0] == [[5, 0], [0, 0]] and figure["scores"][1] == [[0, 0], [0, 5]]
    share = math.exp(5 / math.sqrt(2)) / (math.exp(5 / math.sqrt(2)) + 1)
    assert_close(figure["weights"][0], [[share, 1 - share], [0.5, 0.5]], "head 0")
    assert_close(figure["weights"][1], [[0.5, 0.5], [1 - share, share]], "head 1")
    text = words_of(lesson, "by-hand")
    assert "1 \N{MULTIPLICATION SIGN} 1 + 2 \N{MULTIPLICATION SIGN} 2 = 5" in text
    assert "0.97" in text and "0.03" in text
    question = lesson.step("by-hand").question
    assert question.answer == pytest.approx(share)
    assert f"{figure['scaled'][1][1][1]:.2f}" == "3.54"
    assert "dot product is 5, score 3.54" in plain(question.why)
    printed = {each for each in re.findall(r"0\.97[0-9]*", text + plain(question.why))}
    assert printed | {question.written} == {"0.97"}


def test_a_step_is_made_once() -> None:
    lesson: Lesson = taught("minilm")
    step: LessonStep = lesson.step("scores")
    assert lesson.step("scores") is step
