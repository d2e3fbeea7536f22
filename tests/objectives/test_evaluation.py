"""Evaluations read texts and batches, and reject what a model cannot be measured on."""

from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import OptionError
from headwise.objectives import evaluation as evaluating
from headwise.objectives.evaluation import LENGTH, Evaluation, max_batch_tokens
from headwise.objectives.losses import Divergence, Embedding, LabelLoss, NextToken
from headwise.objectives.scored_model import open_scored_model
from headwise.pruning.importance.importance import importance
from headwise.pruning.prune import prune
from headwise.pruning.settings import PruneSettings

from ..pruning.tiny_models import model_of, objective_of, plain, texts, words_tokenizer


def evaluate(name: str, documents: list[str], **options: Any) -> Evaluation:
    scored = open_scored_model(model_of(name), words_tokenizer(), objective_of(name))
    return Evaluation.of_texts(scored, documents, **{"max_tokens": None} | options)


def test_texts_stop_at_max_tokens_in_an_order_set_by_the_seed() -> None:
    evaluations = [evaluate("gpt2", texts(), max_tokens=90, seed=seed) for seed in (1, 1, 2)]
    assert all(80 < evaluation.num_tokens <= 90 for evaluation in evaluations)
    ids = [[batch.inputs["input_ids"].tolist() for batch in one.samples] for one in evaluations]
    assert ids[0] == ids[1] != ids[2]


def test_embedding_models_read_sentences_and_others_windows() -> None:
    document = "\n\n".join(texts(5))
    assert evaluate("embedding", [document]).num_examples == 5
    assert evaluate("gpt2", [document]).num_examples < 5
    assert evaluate("gpt2", [document]).num_tokens == len(document.split())


def test_model_without_a_tokenizer_needs_batches() -> None:
    scored = open_scored_model(model_of("gpt2"), objective=NextToken())
    with pytest.raises(OptionError, match=r"GPT2LMHeadModel.* tokenizer.* batches"):
        Evaluation.of_texts(scored, texts(2), max_tokens=None)
    evaluation = Evaluation.of_batches(scored.model, scored.objective, [plain("gpt2")])
    assert evaluation.num_examples == 4


def test_evaluation_lists_every_head() -> None:
    evaluation = Evaluation.of_batches(model_of("llama"), NextToken(), [plain("llama")])
    assert evaluation.counts == {"L0": (6, 2), "L1": (6, 2), "L2": (6, 2)}
    assert [str(head) for head in evaluation.heads[5:7]] == ["L0H5", "L1H0"]


def test_batch_leaves_room_for_the_logits_of_its_tokens() -> None:
    words = max_batch_tokens(model_of("gpt2"), NextToken())
    states = max_batch_tokens(model_of("embedding"), Embedding())
    assert LENGTH < words < states and words == states // 101


def test_labels_change_a_divergence_into_a_loss_on_labels() -> None:
    model, labels = model_of("vit"), torch.tensor([0, 1, 1, 0])
    unlabelled = Evaluation.of_batches(model, Divergence(), [plain("vit")])
    labelled = Evaluation.of_batches(model, Divergence(), [{**plain("vit"), "labels": labels}])
    assert isinstance(unlabelled.objective, Divergence)
    assert isinstance(labelled.objective, LabelLoss)


def test_labels_of_an_encoder_decoder_need_decoder_inputs() -> None:
    batch = {name: plain("bart")[name] for name in ("input_ids", "attention_mask")}
    with pytest.raises(OptionError, match=r"BartForCond.* decoder_input_ids"):
        Evaluation.of_batches(
            model_of("bart"), Divergence(), [{**batch, "labels": batch["input_ids"]}]
        )


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"texts": Path("a.txt")}, "texts"),
        ({"texts": [Path("a.txt")]}, "PosixPath"),
        ({"batches": {"input_ids": torch.ones(2, 3)}}, "dict"),
        ({"batches": [torch.ones(2, 3)]}, "Tensor"),
        ({"batches": [{"input_ids": [[1, 2]]}]}, "input_ids.*list"),
        ({"batches": [{"input_id": torch.ones(2, 3)}]}, "input_id"),
        ({"texts": texts(3), "batches": [plain("gpt2")]}, "texts and batches"),
    ],
)
def test_prune_and_importance_reject_unreadable_examples(
    options: dict[str, Any], facts: str
) -> None:
    model, tokenizer = model_of("gpt2"), words_tokenizer()
    with pytest.raises(OptionError, match=facts):
        importance(model, tokenizer=tokenizer, **options)
    with pytest.raises(OptionError, match=facts):
        prune(model, cut=1, tokenizer=tokenizer, **options)


def rows_of(evaluation: Evaluation) -> list[tuple[int, ...]]:
    """The tokens of every example without padding, sorted."""
    return sorted(
        tuple(ids[mask.bool()].tolist())
        for sample in evaluation.samples
        for ids, mask in zip(
            sample.inputs["input_ids"], sample.inputs["attention_mask"], strict=True
        )
    )


@pytest.mark.parametrize("name", ["gpt2", "embedding"])
def test_whole_texts_are_examples_however_short_and_whatever_they_contain(name: str) -> None:
    """As documents, an embedding model would read their sentences, and none of three words."""
    lines = ["w9 w10. W11 w12 w13 w14 w15. W16 w17 w18 w19 w20.", "w21 w22 w23", "w24\n\nw25"]
    evaluation = evaluate(name, lines, keeps_whole=True)
    tokenizer = words_tokenizer()
    assert rows_of(evaluation) == sorted(tuple(tokenizer(line)["input_ids"]) for line in lines)
    if name == "embedding":
        assert rows_of(evaluate(name, lines)) != rows_of(evaluation)


def test_whole_texts_may_be_longer_than_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "LENGTH", 11)
    monkeypatch.setattr(evaluating, "WHOLE_LENGTH", 31)
    lines = [" ".join(["w9"] * size) for size in (29, 7, 40)]
    assert sorted(map(len, rows_of(evaluate("gpt2", lines)))) == [7, 7, 7, 11, 11, 11, 11, 11]
    whole = evaluate("gpt2", lines, keeps_whole=True)
    assert sorted(map(len, rows_of(whole))) == [7, 9, 29, 31]


def test_loss_of_whole_texts_is_that_of_each_alone() -> None:
    lines = texts(7)
    together = evaluate("gpt2", lines, keeps_whole=True).loss().value
    alone = [evaluate("gpt2", [line], keeps_whole=True) for line in lines]
    counts = [one.num_tokens - 1 for one in alone]
    sums = [count * one.loss().value for count, one in zip(counts, alone, strict=True)]
    assert together == pytest.approx(sum(sums) / sum(counts))
    assert together != pytest.approx(evaluate("gpt2", [" ".join(lines)]).loss().value, abs=1e-3)


def test_whole_texts_need_texts() -> None:
    with pytest.raises(OptionError, match=r"keeps_texts_whole .*texts"):
        importance(model_of("gpt2"), tokenizer=words_tokenizer(), keeps_texts_whole=True)
    settings = PruneSettings(keeps_texts_whole=True)
    with pytest.raises(OptionError, match=r"keeps_texts_whole .*texts"):
        prune(model_of("gpt2"), cut=1, tokenizer=words_tokenizer(), settings=settings)


def test_importance_counts_whole_texts_as_examples() -> None:
    lines = texts(5)
    options = {"tokenizer": words_tokenizer(), "keeps_texts_whole": True}
    measured = importance(model_of("embedding"), lines, objective=Embedding("cls"), **options)
    assert measured.table.about["examples"] == 5
    assert measured.table.about["objective"].endswith("cls pooling")
