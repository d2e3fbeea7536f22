"""The lesson shows real numbers, its questions have one right answer, and any text works."""

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
import torch
import transformers

import headwise
from headwise.errors import OptionError
from headwise.explorer.lesson.choice import Choice
from headwise.explorer.lesson.facts import MAX_TOKENS, lesson_facts
from headwise.explorer.lesson.lesson import NAMES, TITLES, Lesson
from headwise.explorer.lesson.prose import plain, prose
from headwise.explorer.lesson.quiz import LessonStep, QuizQuestion
from headwise.explorer.lesson.silencing import DRAWS
from headwise.explorer.lesson.swaps import align
from headwise.explorer.lesson.token_text import shown, visible
from headwise.explorer.model_facts import LESSON_PAIR
from headwise.explorer.shipped_scans import shipped_scan
from headwise.head_table import HeadTable
from headwise.objectives.losses import CustomLoss, Embedding
from headwise.objectives.scored_model import ScoredModel

from ..pruning.tiny_models import words_tokenizer
from .lesson_cases import (
    ANIMAL,
    CAT,
    HOSTILE,
    SEVERAL,
    SHOWN,
    STEPS,
    TAUGHT,
    WIDE,
    WORDS,
    assert_close,
    assert_is_a_lesson,
    assert_is_answered,
    browsers_weights,
    figures_of,
    lesson_at,
    minilm,
    silent_outputs,
    taught,
    text_of,
    tiny_scored_model,
    words_of,
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
def test_each_step_has_a_text_and_a_question_with_one_answer(name: str) -> None:
    assert_is_a_lesson(taught(name))


def test_the_check_of_lessons_finds_a_wrong_lesson() -> None:
    step = taught("minilm").step("scores")
    text, why = prose("What?"), prose("Because.")
    for broken in (
        QuizQuestion(text, "choice", ["same", "same"], 0, 0.0, why, why),
        QuizQuestion(text, "number", ["an option"], 1.0, 0.0, why, why),
        QuizQuestion(text, "number", [], 1.0, 0.0, why, prose()),
        QuizQuestion(text, "number", [], 1.0, 0.0, prose(), why),
    ):
        with pytest.raises(AssertionError):
            assert_is_answered(replace(step, question=broken))


def test_the_lesson_takes_ten_to_twelve_minutes() -> None:
    assert 10 <= sum(title.minutes for title in TITLES[: len(STEPS)]) <= 12


def test_steps_are_titled_as_in_the_list() -> None:
    for title in TITLES:
        step = taught("minilm").step(title.name)
        assert (step.name, step.title, step.minutes) == (title.name, title.title, title.minutes)


def test_the_check_of_lessons_finds_a_wrong_tolerance() -> None:
    with pytest.raises(AssertionError, match="largest difference"):
        assert_close([0.25, 0.5], [0.25, 0.51], "planted")


def by_word(weights: torch.Tensor, groups: list[list[int]]) -> torch.Tensor:
    """Weights by word, one loop at a time."""
    rows = [weights[:, group].mean(1) for group in groups]
    return torch.stack(
        [torch.stack([row[:, group].sum(-1) for group in groups], -1) for row in rows], 1
    )


def groups_of(place: dict[str, Any]) -> list[list[int]]:
    pieces = range(len(place["pieces"]))
    return [
        [at for at in pieces if place["word_of"][at] == word] for word in range(len(place["words"]))
    ]


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_the_figures_are_those_of_a_fresh_trace(name: str) -> None:
    lesson = taught(name)
    place = figures_of(lesson, "why-many")["place"]
    scored, text = (minilm(), ANIMAL) if name == "minilm" else (tiny_scored_model(name), WORDS)
    fresh = headwise.trace(scored.model, text, layer=place["layer"], tokenizer=scored.tokenizer)
    head, here, word = place["head"], place["position"], place["word"]
    kv_head = fresh.kv_head_of[head]
    at = {name: step.values[0] for name, step in fresh.steps.items() if name != "Wo"}
    groups = groups_of(place)
    words = by_word(at["weights"].double(), groups)
    assert_close(figures_of(lesson, "why-many")["weights"], words[head], "weights by word")
    vectors = figures_of(lesson, "vectors")
    assert_close(vectors["queries"], at["queries"][head], "queries")
    assert_close(vectors["keys"], at["keys"][kv_head], "keys")
    assert_close(vectors["values"], at["values"][kv_head], "values")
    scores = figures_of(lesson, "scores")
    assert_close(scores["scores"], at["scores"][head, here], "scores")
    assert_close(scores["weights"], at["weights"][head, here], "weights")
    slices = figures_of(lesson, "heads")
    assert_close(slices["query"], at["queries"][:, here].flatten(), "long query")
    assert_close([each["weights"] for each in slices["heads"]], words[:, word], "rows by head")
    output = figures_of(lesson, "output")
    assert_close(output["output"], at["output"][here], "output")
    lengths = at["contributions"][:, here].norm(dim=-1)
    for number, owner in enumerate(output["heads"]):
        added = at["contributions"][number, here]
        assert_close(owner["contribution"], added, "contribution")
        assert_close(owner["concat"], at["mixed"][number, here], "concat")
        assert_close(owner["length"], added.norm(), "length")
        assert_close(owner["share"], lengths[number] / lengths.sum(), "share")
        assert owner["touched"] == int((added != 0).sum())
    segregation = fresh.to_json([])["segregation_output"]
    assert_close(output["segregation_output"], segregation, "after")


def test_words_and_pieces_are_those_of_the_stage() -> None:
    place = figures_of(taught("minilm"), "why-many")["place"]
    words = [word["text"] for word in place["words"]]
    assert words == ["[CLS]", *ANIMAL.removesuffix(".").split(), ".", "[SEP]"]
    assert [piece["text"] for piece in place["pieces"]][3:6] == ["didn", "'", "t"]
    assert place["word_of"][3:6] == [3, 3, 3]
    assert place["pieces"][place["position"]]["text"] == words[place["word"]] == "it"


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_products_add_up_to_the_dot_product(name: str) -> None:
    figure = figures_of(taught(name), "vectors")
    query = torch.tensor(figure["queries"][figure["place"]["position"]]).double()
    for key, match in zip(figure["keys"], figure["matches"], strict=True):
        products = query * torch.tensor(key).double()
        assert_close(match["products"], products, "products")
        assert_close(match["score"], products.sum(), "dot product")
        sizes = [abs(each["product"]) for each in match["largest"]]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] == pytest.approx(float(products.abs().max()))
        total = math.fsum(each["product"] for each in match["largest"]) + match["rest"]
        assert total == pytest.approx(match["score"], abs=1e-9)
        for each in match["largest"]:
            assert each["query"] * each["key"] == pytest.approx(each["product"])


def test_the_product_to_work_out_is_that_of_the_printed_numbers() -> None:
    step = taught("minilm").step("vectors")
    text = plain(step.question.text).replace("\N{MINUS SIGN}", "-")
    figure = asdict(step.figures)
    top = figure["matches"][figure["chosen"]]["largest"][0]
    assert f"query is {top['query']:.2f}" in text and f"key is {top['key']:.2f}" in text
    shown_product = round(top["query"], 2) * round(top["key"], 2)
    assert step.question.answer == pytest.approx(shown_product, abs=0.006)


@pytest.mark.parametrize("name", ["minilm", "embedding", *TAUGHT])
def test_the_browser_can_compute_the_weights_from_the_scores(name: str) -> None:
    figure = figures_of(taught(name), "scores")
    assert_close(browsers_weights(figure), figure["weights"], "softmax")
    assert figure["weights"][figure["leader"]] == max(figure["weights"])
    if figure["total"] is not None:
        powers = [0.0 if power is None else power for power in figure["powers"]]
        assert_close([power / figure["total"] for power in powers], figure["weights"], "powers")


def test_a_model_without_a_scale_divides_by_the_root_of_the_head_size() -> None:
    facts = lesson_facts(tiny_scored_model("bert"), WORDS, Choice(1, 2, 3))
    unnamed = replace(facts.call, rules=replace(facts.call.rules, scale=None))
    scoring = replace(facts, call=unnamed).scoring
    assert scoring.scale == pytest.approx(facts.call.queries.shape[-1] ** -0.5)
    assert_close(scoring.weights(scoring.scores).tolist(), facts.row, "weights")


@pytest.mark.parametrize("name", ["minilm", "mistral", "gpt2", "gemma2", "gpt_oss", "bert"])
def test_the_question_about_a_score_states_its_real_effect(name: str) -> None:
    step = taught(name).step("scores")
    question, figure = step.question, asdict(step.figures)
    change = -1 if "falls by 1" in plain(question.text) else 1
    moved = list(figure["scores"])
    moved[figure["dragged"]] += change / figure["scale"]
    after = browsers_weights(figure, moved)[figure["dragged"]]
    right = question.options[int(question.answer)]
    assert right == f"{after:.0%}"
    others = [float(option.strip("<%")) / 100 for option in question.options if option != right]
    assert all(abs(other - after) > 0.03 for other in others)


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_parts_add_up_to_the_whole(name: str) -> None:
    mixing, output = (figures_of(taught(name), step) for step in ("mixing", "output"))
    values = torch.tensor(figures_of(taught(name), "vectors")["values"]).double()
    for part in mixing["parts"]:
        value = values[part["piece"]]
        assert_close(part["value_length"], value.norm(), "value")
        assert_close(part["length"], part["weight"] * value.norm(), "part")
        flat = [part["weight"] * number for number in part["value"]]
        assert_close(part["part"], flat, "part in the plane")
    flat_sum = torch.tensor([part["part"] for part in mixing["parts"]]).double().sum(0)
    assert_close(mixing["sum"], flat_sum, "sum in the plane")
    assert mixing["difference"] < 1e-5 and 0 <= mixing["kept"] <= 1 + 1e-9
    added = torch.tensor([head["contribution"] for head in output["heads"]]).double().sum(0)
    if not output["has_bias"]:
        assert_close(output["output"], added, "output")
    assert output["adds_up"] and output["difference"] < 1e-5
    assert math.fsum(head["share"] for head in output["heads"]) == pytest.approx(1)
    assert output["segregation_concat"] == pytest.approx(1)
    assert output["segregation_output"] < 0.9


@pytest.mark.parametrize("name", ["minilm", *TAUGHT])
def test_the_sum_and_the_longest_arrow_keep_their_lengths_in_the_plane(name: str) -> None:
    figure = figures_of(taught(name), "mixing")
    assert math.hypot(*figure["sum"]) == pytest.approx(figure["sum_length"], rel=1e-5)
    longest = max(figure["parts"], key=lambda part: part["length"])
    assert math.hypot(*longest["part"]) == pytest.approx(longest["length"], rel=1e-5)
    for part in figure["parts"]:
        assert math.hypot(*part["part"]) <= part["length"] * (1 + 1e-5) + 1e-9


def test_a_large_share_of_a_short_value_adds_little() -> None:
    lesson = Lesson(minilm(), ANIMAL, table=shipped_scan(minilm(), is_fresh=True))
    step = lesson.step("mixing")
    figure, question = asdict(step.figures), step.question
    lengths = {part["piece"]: part["length"] for part in figure["parts"]}
    texts = [piece["text"] for piece in figure["place"]["pieces"]]
    right, cls = texts.index(question.options[int(question.answer)]), texts.index("[CLS]")
    assert figure["weights"][cls] > 1.5 * figure["weights"][right]
    assert lengths[right] > 1.5 * lengths[cls]
    assert "attention sink" in text_of(step.after)


@pytest.mark.parametrize("name", ["minilm", "llama", "gemma3", "bert"])
def test_the_average_row_is_blurred(name: str) -> None:
    figure = figures_of(taught(name), "why-many")
    rows = [*figure["rows"], figure["average"]]
    for row in rows:
        entropy = -math.fsum(weight * math.log(weight) for weight in row["weights"] if weight > 0)
        assert row["entropy"] == pytest.approx(entropy, abs=1e-5)
        assert row["largest"] == max(row["weights"]) == row["weights"][row["largest_word"]]
    weights = torch.tensor([row["weights"] for row in figure["rows"]]).double()
    assert_close(figure["average"]["weights"], weights.mean(0), "average")
    entropies = [row["entropy"] for row in figure["rows"]]
    assert figure["mean_entropy"] == pytest.approx(sum(entropies) / len(entropies))
    assert len(rows) > 2 and figure["average"]["entropy"] > figure["mean_entropy"]
    assert figure["average"]["largest"] < figure["mean_largest"]


def test_the_three_heads_look_at_different_words() -> None:
    figure = figures_of(taught("minilm"), "why-many")
    place = figure["place"]
    assert figure["rows"][0]["head"]["name"] == place["name"]
    tops = {row["largest_word"] for row in figure["rows"]}
    assert len(tops) == len(figure["rows"]) == 3
    text = words_of(taught("minilm"), "why-many")
    assert f"its largest share is {figure['average']['largest']:.0%}" in text


def test_a_swap_reads_the_other_sentence_in_the_same_head() -> None:
    figure = figures_of(taught("minilm"), "why-many")
    place, swap = figure["place"], figure["swap"]
    fresh = headwise.trace(minilm().model, WIDE, layer=place["layer"], tokenizer=minilm().tokenizer)
    weights = fresh["weights"].values[0].double()
    rows = by_word(weights, groups_of(place))[place["head"]]
    assert_close(swap["weights"], rows, "weights of the other sentence")
    assert swap["words"][swap["word"]]["text"] == "it"
    assert swap["aligned"] == [[at, at] for at in range(len(place["words"]))]


def test_the_question_about_a_swap_states_its_real_effect() -> None:
    lesson = Lesson(minilm(), ANIMAL, other=WIDE, table=shipped_scan(minilm(), is_fresh=True))
    step = lesson.step("why-many")
    figure = asdict(step.figures)
    assert figure["place"]["name"] == "L3H1"
    animal, here = 2, figure["place"]["word"]
    before, after = figure["weights"][here][animal], figure["swap"]["weights"][here][animal]
    assert (f"{before:.0%}", f"{after:.0%}") == ("68%", "28%")
    assert "from 68% to 28%" in plain(step.question.why)
    assert "[CLS] gains 22 points" in plain(step.question.why)
    assert "28%" in step.question.options[int(step.question.answer)]


def test_the_lesson_opens_with_the_pair_whose_link_moves_most_clearly() -> None:
    table = shipped_scan(minilm(), is_fresh=True)
    lesson = Lesson(minilm(), ANIMAL, other=WIDE, pair=LESSON_PAIR, table=table)
    assert_is_a_lesson(lesson)
    step = lesson.step("why-many")
    pair = asdict(step.figures)["pair"]
    assert pair["head"]["name"] == LESSON_PAIR.head
    one, other = (each["weights"][each["word"]] for each in (pair, pair["swap"]))
    first, second = LESSON_PAIR.candidates
    assert one[first] > 0.5 > 0.2 > one[second] and other[second] > 0.4 > 0.2 > other[first]
    assert pair["words"][pair["word"]]["text"] == "he"
    assert f"from {one[first]:.0%} to {other[first]:.0%}" in plain(step.question.why)
    assert "the link of L1H3 moves to girl." in text_of(step.after)


def test_a_swap_that_a_causal_model_cannot_see_yet_moves_nothing() -> None:
    scored, later = tiny_scored_model("llama"), WORDS.replace("w18", "w66")
    lesson = Lesson(scored, WORDS, choice=Choice(position=3), other=later)
    assert_is_a_lesson(lesson)
    question = lesson.step("why-many").question
    assert "stays near" in question.options[int(question.answer)]
    assert "cannot see the swapped word" in plain(question.why)


def test_a_swap_without_the_followed_word_is_left_out() -> None:
    lesson = Lesson(minilm(), ANIMAL, other="Too short")
    assert figures_of(lesson, "why-many")["swap"] is None
    assert_is_a_lesson(lesson)


def test_words_are_aligned_around_a_change() -> None:
    assert align(list("abc"), list("axc")) == [(0, 0), (1, 1), (2, 2)]
    assert align(list("abc"), list("ac")) == [(0, 0), (1, None), (2, 1)]
    assert align(list("ac"), list("abc")) == [(0, 0), (None, 1), (1, 2)]


@pytest.mark.parametrize("name", ["minilm", "llama", "qwen3", "gemma3", "bert"])
def test_slices_divide_the_query(name: str) -> None:
    figure = figures_of(taught(name), "heads")
    d_key = figure["d_key"]
    assert [each["columns"] for each in figure["heads"]] == [
        [head * d_key, (head + 1) * d_key] for head in range(len(figure["heads"]))
    ]
    assert len(figure["query"]) == len(figure["heads"]) * d_key
    question = taught(name).step("heads").question
    assert question.options[int(question.answer)] == f"{d_key:,}"
    shapes = {shape["step"]: shape["shape"] for shape in figure["shapes"]}
    pieces = len(figure["place"]["pieces"])
    assert shapes["queries"] == [len(figure["heads"]), pieces, d_key]
    assert shapes["scores"] == [len(figure["heads"]), pieces, pieces]


def test_grouped_heads_come_with_their_kv_head() -> None:
    figure = figures_of(taught("llama"), "heads")
    assert [each["kv_head"] for each in figure["heads"]] == [0, 0, 0, 1, 1, 1]
    assert figure["num_kv_heads"] == 2
    assert "3 heads always share one key" in words_of(taught("llama"), "heads")
    assert figures_of(taught("llama"), "vectors")["is_grouped"]


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
    assert right == {0: "None of them", len(figure["heads"]): f"All {count:,}"}.get(
        count, f"About {count:,}"
    )
    if figure["unit"] == "cosine":
        assert all(each["value"] >= 0.9 for each in steps[: limit + 1])
        assert limit == len(steps) - 1 or steps[limit + 1]["value"] < 0.9


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
    assert "the commonest are positional (1) and sink (1); 70 have no clear role." in text
    assert_is_a_lesson(lesson)
    without = figures_of(taught("minilm"), "spare")["heads"]
    assert {each["head"]["roles"] for each in without} == {None}


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
    assert len(place["pieces"]) == MAX_TOKENS + 2
    assert f"the first {MAX_TOKENS} tokens" in place["note"]
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
    assert lesson.step("by-hand").question.answer == pytest.approx(share)


def test_a_step_is_made_once() -> None:
    lesson: Lesson = taught("minilm")
    step: LessonStep = lesson.step("scores")
    assert lesson.step("scores") is step
