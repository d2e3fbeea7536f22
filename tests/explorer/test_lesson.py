"""The lesson shows real numbers, its questions have one right answer, and any text works."""

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

import headwise
from headwise.explorer.lesson.choice import Choice
from headwise.explorer.lesson.facts import lesson_facts
from headwise.explorer.lesson.lesson import TITLES, Lesson
from headwise.explorer.lesson.prose import plain, prose
from headwise.explorer.lesson.quiz import QuizQuestion
from headwise.explorer.lesson.swaps import align
from headwise.explorer.model_facts import LESSON_PAIR
from headwise.explorer.shipped_scans import shipped_scan

from .lesson_cases import (
    ANIMAL,
    STEPS,
    TAUGHT,
    WIDE,
    WORDS,
    assert_close,
    assert_is_a_lesson,
    assert_is_answered,
    browsers_weights,
    figures_of,
    minilm,
    taught,
    text_of,
    tiny_scored_model,
    words_of,
)

pytestmark = pytest.mark.usefixtures("quiet_transformers")


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
        assert sizes == pytest.approx(sorted(sizes, reverse=True), abs=0.1)
        assert sizes[0] == pytest.approx(float(products.abs().max()), abs=0.1)
        total = math.fsum(each["product"] for each in match["largest"]) + match["rest"]
        assert total == pytest.approx(round(match["score"], 2), abs=1e-9)
        for each in match["largest"]:  # as printed: a learner can check every row of the table
            assert each["query"] == round(each["query"], 2) and each["key"] == round(each["key"], 2)
            assert each["product"] == round(each["query"] * each["key"], 2)


def test_the_product_to_work_out_is_that_of_the_printed_numbers() -> None:
    step = taught("minilm").step("vectors")
    text = plain(step.question.text).replace("\N{MINUS SIGN}", "-")
    figure = asdict(step.figures)
    top = figure["matches"][figure["chosen"]]["largest"][0]
    assert f"query is {top['query']:.2f}" in text and f"key is {top['key']:.2f}" in text
    shown_product = round(top["query"], 2) * round(top["key"], 2)
    assert step.question.answer == pytest.approx(shown_product, abs=0.006)
    assert step.question.answer == top["product"]
    assert step.question.written == f"{top['product']:.2f}"
    assert plain(step.question.why).startswith(f"{top['query']:.2f} ")
    assert f"= {step.question.written}. All" in plain(step.question.why)


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
    assert f"no word gets more than {figure['average']['largest']:.0%}" in text
    assert "They are in layers" in text or "in the same layer" in text


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
    best = [each["largest_word"] for each in figure["heads"]]
    mine = next(at for at, each in enumerate(figure["heads"])
                if each["head"]["name"] == figure["place"]["name"])  # fmt: skip
    assert question.options[int(question.answer)] == f"{best.count(best[mine]) - 1:,}"
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
