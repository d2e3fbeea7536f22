"""The lesson shows real numbers, its questions have one right answer, and any text works."""

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pandas as pd
import pytest
import torch
import transformers

import headwise
from headwise.errors import OptionError
from headwise.explorer.lesson.facts import MAX_TOKENS, lesson_facts
from headwise.explorer.lesson.lesson import lesson
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion, step_answer
from headwise.explorer.lesson.token_text import quote_token, visible
from headwise.explorer.session import OTHER_TEXTS, SAMPLE_TEXTS
from headwise.head_table import HeadTable
from headwise.objectives.losses import CustomLoss, Embedding
from headwise.objectives.scored_model import ScoredModel

from ..pruning.tiny_models import words_tokenizer
from .lesson_cases import (
    CAT,
    HOSTILE,
    SEVERAL,
    SHOWN,
    STEPS,
    TAUGHT,
    WORDS,
    assert_close,
    assert_is_a_lesson,
    assert_is_answered,
    browsers_weights,
    figures_of,
    minilm,
    silent_outputs,
    taught,
    tiny_scored_model,
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*attention interface.*")
        yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("name", ["minilm", "embedding", *TAUGHT])
def test_steps_come_in_order_and_each_has_a_question_with_one_answer(name: str) -> None:
    assert_is_a_lesson(taught(name))


def test_the_check_of_lessons_finds_a_wrong_lesson() -> None:
    steps = taught("minilm")
    with pytest.raises(AssertionError):
        assert_is_a_lesson(steps[::-1])
    step = steps[1]
    for broken in (
        QuizQuestion("What?", "choice", ("same", "same"), 0, 0.0, "Because."),
        QuizQuestion("What?", "number", ("an option",), 1.0, 0.0, "Because."),
        QuizQuestion("What?", "number", (), 1.0, 0.0, ""),
    ):
        with pytest.raises(AssertionError):
            assert_is_answered(LessonStep("a", "b", 1.0, step.paragraphs, "Do.", broken, {}))


def test_the_lesson_takes_ten_to_twelve_minutes() -> None:
    assert 10 <= sum(step.minutes for step in taught("minilm")) <= 12


def test_the_check_of_lessons_finds_a_wrong_tolerance() -> None:
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close([0.25, 0.5], [0.25, 0.51], "planted")


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_the_figures_are_those_of_a_fresh_trace(name: str) -> None:
    steps = taught(name)
    place = figures_of(steps, "why-many")["place"]
    scored, text = (minilm(), CAT) if name == "minilm" else (tiny_scored_model(name), WORDS)
    fresh = headwise.trace(scored.model, text, layer=place["layer"], tokenizer=scored.tokenizer)
    head, here = place["head"], place["position"]
    kv_head = fresh.kv_head_of[head]
    at = {name: step.values[0] for name, step in fresh.steps.items() if name != "Wo"}
    rows = figures_of(steps, "why-many")
    left = at["weights"][:, here, rows["keys"]].double()
    scaled = left / left.sum(-1, keepdim=True) if len(rows["keys"]) < len(place["tokens"]) else left
    assert_close([row["weights"] for row in rows["heads"]], scaled, "rows")
    resting = at["weights"][:, here].double().sum(-1) - left.sum(-1)
    assert_close([row["resting"] for row in rows["heads"]], resting, "left out")
    assert_close(rows["single"]["weights"], scaled.mean(0), "average row")
    vectors = figures_of(steps, "projections")
    assert_close(vectors["input"], at["input"][here], "input")
    assert_close(vectors["query"], at["queries"][head, here], "query")
    assert_close(vectors["key"], at["keys"][kv_head, here], "key")
    assert_close(vectors["value"], at["values"][kv_head, here], "value")
    scores = figures_of(steps, "scores")
    assert_close(scores["scores"], at["scores"][head, here], "scores")
    assert_close(scores["weights"], at["weights"][head, here], "weights")
    mixing = figures_of(steps, "mixing")
    assert_close(mixing["mixed"], at["mixed"][head, here, :8], "mixed")
    assert_close(mixing["values"], at["values"][kv_head, :, :8], "values")
    output = figures_of(steps, "output")
    assert_close(output["output"], at["output"][here, :8], "output")
    for number, head_figure in enumerate(output["heads"]):
        added = at["contributions"][number, here]
        assert_close(head_figure["contribution"], added[:8], "contribution")
        assert_close(head_figure["length"], added.norm(), "length")
        lengths = at["contributions"][:, here].norm(dim=-1)
        assert_close(head_figure["share"], lengths[number] / lengths.sum(), "share")
        assert head_figure["touched"] == int((added != 0).sum())
    assert_close(
        output["segregation_output"], [fresh.to_json([])["segregation_output"]][0], "after"
    )


@pytest.mark.parametrize("name", ["minilm", "embedding", *TAUGHT])
def test_the_browser_can_compute_the_weights_from_the_scores(name: str) -> None:
    figure = figures_of(taught(name), "scores")
    assert_close(browsers_weights(figure), figure["weights"], "softmax")
    assert figure["weights"][figure["dragged"]] == max(figure["weights"])


def test_a_model_without_a_scale_divides_by_the_root_of_the_head_size() -> None:
    facts = lesson_facts(tiny_scored_model("bert"), WORDS, layer=1, head=2, position=3, table=None)
    unnamed = replace(facts.call, rules=replace(facts.call.rules, scale=None))
    scoring = replace(facts, call=unnamed).scoring
    assert scoring.scale == pytest.approx(facts.call.queries.shape[-1] ** -0.5)
    assert_close(scoring.weights(scoring.scores).tolist(), facts.row, "weights")


@pytest.mark.parametrize("name", ["minilm", "mistral", "gpt2", "gemma2", "gpt_oss", "bert"])
def test_the_question_about_a_drag_states_its_real_effect(name: str) -> None:
    step = taught(name)[STEPS.index("scores")]
    asked, figure = step.question, asdict(step.figures)
    assert "Drag" in asked.text
    raised = [
        [
            score + (1 / figure["scale"]) * (key == place)
            for place, score in enumerate(figure["scores"])
        ]
        for key in range(len(figure["scores"]))
    ]
    after = [browsers_weights(figure, row)[key] for key, row in enumerate(raised)]
    gains = [new - old for new, old in zip(after, figure["weights"], strict=True)]
    best = max(range(len(gains)), key=gains.__getitem__)
    assert asked.answer == pytest.approx(after[best], abs=1e-5)
    assert f"from {figure['scores'][best]:.2f} to" in asked.text


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_parts_add_up_to_the_whole(name: str) -> None:
    mixing, output = (figures_of(taught(name), step) for step in ("mixing", "output"))
    parts = torch.tensor(mixing["parts"], dtype=torch.float64)
    assert_close(mixing["mixed"], parts.sum(0), "mixed")
    weighted = torch.tensor(mixing["weights"])[:, None] * torch.tensor(mixing["values"])
    assert_close(mixing["parts"], weighted, "parts")
    added = torch.tensor([head["contribution"] for head in output["heads"]]).sum(0)
    bias = torch.zeros(len(added)) if output["bias"] is None else torch.tensor(output["bias"])
    assert_close(output["output"], added + bias, "output")
    assert output["adds_up"] and output["difference"] < 1e-5 and mixing["difference"] < 1e-5
    assert math.fsum(head["share"] for head in output["heads"]) == pytest.approx(1)
    assert output["segregation_concat"] == pytest.approx(1)
    assert output["segregation_output"] < 0.9


@pytest.mark.parametrize("name", ["minilm", "llama", "gemma3", "bert"])
def test_the_average_row_is_blurred(name: str) -> None:
    figure = figures_of(taught(name), "why-many")

    def entropy(row: dict[str, Any]) -> float:
        return -math.fsum(weight * math.log(weight) for weight in row["weights"] if weight > 0)

    for row in [*figure["heads"], figure["single"]]:
        assert row["entropy"] == pytest.approx(entropy(row), abs=1e-5)
        assert row["largest"] == pytest.approx(max(row["weights"]))
        assert row["weights"][figure["keys"].index(row["largest_key"])] == max(row["weights"])
    entropies = [entropy(row) for row in figure["heads"]]
    assert figure["mean_entropy"] == pytest.approx(sum(entropies) / len(entropies), abs=1e-5)
    assert figure["single"]["entropy"] > figure["mean_entropy"]
    assert figure["single"]["largest"] < figure["mean_largest"]


@pytest.mark.parametrize("text", [CAT, *SAMPLE_TEXTS.values(), *OTHER_TEXTS])
def test_the_average_row_of_a_real_model_is_clearly_blurred(text: str) -> None:
    step = lesson(minilm(), text)[STEPS.index("why-many")]
    figure = asdict(step.figures)
    assert figure["mean_largest"] > 1.3 * figure["single"]["largest"]
    assert figure["keys"] == list(range(1, len(figure["place"]["tokens"]) - 1))
    assert '"[CLS]" and "[SEP]" are left out' in step.paragraphs[1]
    assert f"its largest weight is {figure['single']['largest']:.2f}," in step.paragraphs[2]
    assert f"against a mean of {figure['mean_largest']:.2f} in the heads." in step.paragraphs[2]


def test_no_token_is_left_out_if_too_few_would_remain() -> None:
    steps = lesson(tiny_scored_model("llama"), WORDS, position=1)
    figure = figures_of(steps, "why-many")
    assert figure["keys"] == list(range(7))
    assert "left out" not in " ".join(steps[1].paragraphs)
    assert {row["resting"] for row in figure["heads"]} == {0.0}


@pytest.mark.parametrize("name", ["minilm", "llama", "qwen3", "gemma3", "bert"])
def test_the_table_of_dimensions_marks_the_models_own_row(name: str) -> None:
    figure = figures_of(taught(name), "heads")
    rows, d_key = figure["table"], len(figures_of(taught(name), "projections")["query"])
    own = [(row["num_heads"], row["d_key"]) for row in rows if row["is_own"]]
    assert own == [(figure["num_heads"], d_key)]
    even = [row for row in rows if row["numbers"] == figure["d_model"]]
    wanted = [count for count in range(1, figure["d_model"] + 1) if figure["d_model"] % count == 0]
    assert [row["num_heads"] for row in even] == wanted
    for row in rows:
        assert row["numbers"] == row["num_heads"] * row["d_key"]
        assert row["scores"] == row["num_heads"] * figure["num_tokens"] ** 2
    start, stop = figure["columns"]
    assert (start, stop - start) == (figure["place"]["head"] * d_key, d_key)


def test_grouped_heads_come_with_their_kv_head() -> None:
    steps = taught("llama")
    figure, asked = figures_of(steps, "heads"), steps[STEPS.index("heads")].question
    assert figure["num_heads"] == 6 and figure["groups"] == [[0, 1, 2], [3, 4, 5]]
    head = int(asked.text.rpartition("H")[2].rstrip("?"))
    assert asked.answer == head // 3 != figures_of(steps, "projections")["kv_head"]
    assert figures_of(steps, "projections")["is_grouped"]


def test_effects_on_an_embedding_are_those_of_silencing() -> None:
    figure = figures_of(taught("minilm"), "spare")
    outputs = silent_outputs(minilm(), CAT, figure["place"]["layer"], len(figure["heads"]))
    means = [output.mean(0) for output in outputs]
    for head in figure["heads"]:
        cosine = float(torch.cosine_similarity(means[0], means[head["head"] + 1], dim=0))
        assert head["value"] == pytest.approx(cosine, abs=1e-5)
        assert head["effect"] == pytest.approx(1 - cosine, abs=1e-5)
    assert figure["unit"] == "cosine" and figure["next"] == []


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_effects_on_a_prediction_are_those_of_silencing(name: str) -> None:
    figure = figures_of(taught(name), "spare")
    scored = tiny_scored_model(name)
    outputs = silent_outputs(scored, WORDS, figure["place"]["layer"], len(figure["heads"]))
    logs = [output[-1].log_softmax(-1) for output in outputs]
    top = int(logs[0].argmax())
    assert figure["unit"] == "nats"
    assert figure["next"][0]["token"] == scored.tokenizer.convert_ids_to_tokens(top)
    assert figure["next"][0]["probability"] == pytest.approx(float(logs[0][top].exp()), abs=1e-6)
    for head in figure["heads"]:
        after = logs[head["head"] + 1]
        divergence = float((logs[0].exp() * (logs[0] - after)).sum())
        assert head["effect"] == pytest.approx(divergence, abs=1e-6)
        assert head["next"][0] == pytest.approx(float(after[top].exp()), abs=1e-6)


def test_effects_on_a_custom_loss_are_those_of_silencing() -> None:
    square_loss = CustomLoss(lambda model, inputs: model(**inputs).logits.square().mean((1, 2)))
    scored = tiny_scored_model("bert", square_loss)
    figure = figures_of(lesson(scored, WORDS, layer=1), "spare")
    outputs = silent_outputs(scored, WORDS, 1, len(figure["heads"]))
    losses = [float(output.square().mean()) for output in outputs]
    assert figure["unit"] == "loss"
    for head in figure["heads"]:
        assert head["value"] == pytest.approx(losses[head["head"] + 1])
        assert head["effect"] == pytest.approx(abs(losses[head["head"] + 1] - losses[0]))


@pytest.mark.parametrize("name", ["minilm", "embedding", *TAUGHT])
def test_heads_are_ranked_by_effect_and_no_wrong_option_ties_with_the_right_one(name: str) -> None:
    step = taught(name)[-1]
    ranked = asdict(step.figures)["heads"]
    assert [head["rank"] for head in ranked] == list(range(1, len(ranked) + 1))
    assert sorted(ranked, key=lambda head: -head["effect"]) == ranked
    assert sorted(head["head"] for head in ranked) == list(range(len(ranked)))
    effects = {head["name"]: head["effect"] for head in ranked}
    asked = step.question
    if asked.kind == "number":
        assert max(effects.values()) - min(effects.values()) <= 1e-3
        return
    right = asked.options[int(asked.answer)]
    others = [effects[option] for option in asked.options if option != right]
    assert effects[right] == max(effects.values()) > max(others) + 1e-3


def test_if_all_heads_tie_another_question_is_asked() -> None:
    alike = CustomLoss(lambda model, inputs: model(**inputs).logits.sum((1, 2)) * 0)
    asked = lesson(tiny_scored_model("bert", alike), WORDS)[-1].question
    assert (asked.kind, asked.answer) == ("number", 5)


def test_the_last_step_names_the_roles_of_a_scan() -> None:
    place = figures_of(taught("minilm"), "spare")["place"]
    roles = [["positional", "broad"] if head == place["head"] else [] for head in range(12)]
    frame = pd.DataFrame({"stack": "", "layer": place["layer"], "head": range(12), "roles": roles})
    steps = lesson(minilm(), CAT, table=HeadTable(frame, {}))
    step = steps[-1]
    held = {head["head"]: head["roles"] for head in asdict(step.figures)["heads"]}
    assert held == dict(enumerate(roles))
    assert set(asdict(step.figures)["role_words"]) == {"positional", "broad"}
    assert f"calls {place['name']} positional and broad; 11 of the 12" in step.paragraphs[0]
    assert_is_a_lesson(steps)
    without = asdict(taught("minilm")[-1].figures)
    assert not without["has_roles"] and {head["roles"] for head in without["heads"]} == {None}


def test_the_head_that_is_chosen_looks_at_another_ordinary_word() -> None:
    place, row = (
        figures_of(taught("minilm"), "why-many")["place"],
        figures_of(taught("minilm"), "scores"),
    )
    assert place["tokens"][place["position"]] == "warm"
    top = row["weights"].index(max(row["weights"]))
    assert top not in (0, place["position"], len(place["tokens"]) - 1)
    resting = row["weights"][0] + row["weights"][-1]
    assert resting <= 0.5 and max(row["weights"]) <= 0.95


def test_the_lesson_follows_the_chosen_layer_head_and_token() -> None:
    place = figures_of(lesson(minilm(), CAT, layer=2, head=7, position=3), "output")["place"]
    assert (place["name"], place["tokens"][place["position"]]) == ("L2H7", "sat")
    place = figures_of(lesson(minilm(), CAT, layer=4), "output")["place"]
    assert place["layer"] == 4
    place = figures_of(lesson(minilm(), CAT, head=7), "output")["place"]
    assert place["head"] == 7


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
        lesson(minilm(), CAT, **choice)


@pytest.mark.parametrize("text", ["", "   \n", "Hi", "\x00"])
def test_fewer_than_two_tokens_raise(text: str) -> None:
    with pytest.raises(OptionError, match=r"\b[01] tokens.* 2\b"):
        lesson(minilm(), text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_text_makes_a_lesson_or_raises_one_sentence(text: str) -> None:
    for scored in (minilm(), tiny_scored_model("llama")):
        try:
            steps = lesson(scored, text)
        except OptionError as error:
            assert "at least 2" in str(error)
            continue
        assert_is_a_lesson(steps)
        written = json.dumps([asdict(step_answer(step)) for step in steps], ensure_ascii=False)
        assert not any(mark in written for mark in "\u202e\x00\x07\x1b\u2028\u200b\ud800")


@pytest.mark.parametrize("mark", ["\u202e", "\x00", "\x1b", "\u2028", "\u200b", "\u2066", "\n"])
def test_a_token_cannot_change_the_text_around_it(mark: str) -> None:
    assert visible(f"a{mark}b") == "a\u00b7b"
    assert quote_token(f"a{mark}b") == '"a\u00b7b"'


def test_a_right_to_left_token_is_isolated() -> None:
    assert quote_token("\u05e9\u05dc") == '"\u2068\u05e9\u05dc\u2069"'


@pytest.mark.parametrize("position", range(12))
def test_every_token_can_be_followed(position: int) -> None:
    assert_is_a_lesson(lesson(minilm(), CAT, position=position))


def test_a_lesson_follows_the_first_tokens_of_a_long_text_and_says_so() -> None:
    steps = lesson(minilm(), "The cat sat on the mat. " * 200)
    place = figures_of(steps, "why-many")["place"]
    assert len(place["tokens"]) == MAX_TOKENS + 2
    assert f"Only your first {MAX_TOKENS} tokens" in steps[1].paragraphs[0]
    assert "Only your first" not in taught("minilm")[1].paragraphs[0]


def test_a_repeated_token_is_numbered() -> None:
    steps = lesson(minilm(), CAT, position=5)
    assert '"the" (2nd)' in steps[1].paragraphs[0]
    assert '"warm" (' not in " ".join(taught("minilm")[1].paragraphs)


def test_the_first_token_of_a_causal_model_sees_only_itself() -> None:
    steps = lesson(tiny_scored_model("llama"), WORDS, position=0)
    step = steps[STEPS.index("scores")]
    assert_is_a_lesson(steps)
    assert asdict(step.figures)["weights"] == [1.0, *[0.0] * 6]
    assert asdict(step.figures)["added"] == [0.0, *[None] * 6]
    assert step.question.answer == 1
    assert "6 tokens cannot be seen from here" in step.paragraphs[1]


def test_a_row_that_is_all_or_nothing_is_not_dragged() -> None:
    step = lesson(minilm(), CAT, layer=0, head=2)[STEPS.index("scores")]
    assert max(asdict(step.figures)["weights"]) > 0.99
    assert "How many tokens" in step.question.text and step.question.answer == 12


def test_a_lesson_works_on_a_layer_with_one_head() -> None:
    config = transformers.BertConfig(
        vocab_size=101, hidden_size=14, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=11, max_position_embeddings=37,
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.BertModel(config).eval()
    steps = lesson(ScoredModel("one", model, words_tokenizer(), objective=Embedding()), WORDS)
    assert_is_a_lesson(steps)
    assert "only one head" in " ".join(steps[1].paragraphs)


@pytest.mark.parametrize("name", SHOWN)
def test_a_model_that_returns_only_weights_raises_with_the_reason(name: str) -> None:
    with pytest.raises(OptionError, match=rf"{name} .*weights \(\w+ "):
        lesson(tiny_scored_model(name), WORDS)


@pytest.mark.parametrize("name", SEVERAL)
def test_a_model_with_several_stacks_raises_with_their_names(name: str) -> None:
    with pytest.raises(OptionError, match=rf"{name} .* stacks .*\(.*, .*\)"):
        lesson(tiny_scored_model(name), WORDS)


def test_a_model_without_a_tokenizer_raises() -> None:
    scored = tiny_scored_model("llama")
    with pytest.raises(OptionError, match=r"llama.* tokenizer"):
        lesson(ScoredModel("llama", scored.model, None, objective=scored.objective), WORDS)


def test_a_lesson_takes_three_passes_and_leaves_the_model_as_it_was() -> None:
    model = minilm().model
    passes = []
    hook = model.register_forward_hook(lambda *_: passes.append(1))
    model.train()
    try:
        steps = lesson(minilm(), CAT)
        assert model.training
    finally:
        model.eval()
        hook.remove()
    assert len(passes) == 3
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert list(map(step_answer, steps)) == list(map(step_answer, taught("minilm")))


def test_the_warm_up_is_the_worked_example() -> None:
    figure = asdict(taught("minilm")[0].figures)
    assert figure["scores"][0] == [[5, 0], [0, 0]] and figure["scores"][1] == [[0, 0], [0, 5]]
    share = math.exp(5 / math.sqrt(2)) / (math.exp(5 / math.sqrt(2)) + 1)
    assert_close(figure["weights"][0], [[share, 1 - share], [0.5, 0.5]], "head 0")
    assert_close(figure["weights"][1], [[0.5, 0.5], [1 - share, share]], "head 1")
    text = " ".join(taught("minilm")[0].paragraphs)
    assert "1 x 1 + 2 x 2 = 5" in text and "0.97" in text and "0.03" in text
    assert taught("minilm")[0].question.answer == pytest.approx(share)
