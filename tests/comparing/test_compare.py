"""Comparing two models: every figure against a direct computation, and every refusal."""

import copy
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.comparing.compare import (
    PASSAGE_WORDS,
    compare,
    evaluate_both,
    open_both,
    split_passages,
)
from headwise.comparing.comparison import Comparison, TextComparison
from headwise.comparing.paired import neighbours_kept
from headwise.errors import OptionError, OutputError
from headwise.files import lock_folder
from headwise.models.loaded import LoadedModel
from headwise.objectives.evaluation import Estimate, count_heads
from headwise.progress import StopWork
from headwise.pruning.export.sizes import sizes_of
from headwise.pruning.surgery.cut import cut
from headwise.reading.batch import Inputs
from headwise.reading.corpus import corpus

from ..pruning.tiny_models import model_of, texts, words_tokenizer

CUT = "L0H1 L0H3 L2H0"
TEXTS = texts(14)


@pytest.fixture(autouse=True)
def _registers_of_known_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of words that the tiny models know, instead of those of each register."""

    def tiny_corpus(registers: str | Sequence[str]) -> dict[str, list[str]]:
        return {name: texts(20, seed=len(name)) for name in corpus(registers)}

    monkeypatch.setattr("headwise.comparing.compare.corpus", tiny_corpus)


def compared(
    before: nn.Module | LoadedModel, after: nn.Module | LoadedModel, **options: Any
) -> Comparison:
    """Two models on tiny texts, without registers and speed unless asked for."""
    given = {"texts": TEXTS, "registers": (), "times_speed": False, "tokenizer": words_tokenizer()}
    return compare(before, after, **(given | options))


def cut_copy(model: nn.Module) -> nn.Module:
    """A copy of the model without three heads; whole KV groups of a grouped model."""
    smaller = copy.deepcopy(model)
    cut(smaller, "L0H0 L0H1 L0H2 L2H0 L2H1 L2H2" if "Llama" in type(model).__name__ else CUT)
    return smaller


def own_text(comparison: Comparison) -> TextComparison:
    assert comparison.own_text is not None
    return comparison.own_text


def ratio_by_hand(sums: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Mean of sums over weights, and its standard error over examples."""
    mean, count = sum(sums) / sum(weights), len(sums)
    squares = sum((one - mean * weight) ** 2 for one, weight in zip(sums, weights, strict=True))
    return mean, math.sqrt(squares * count / (count - 1)) / sum(weights)


def close(estimate: Estimate | None, by_hand: tuple[float, float]) -> bool:
    assert estimate is not None
    return tuple(estimate) == pytest.approx(by_hand, rel=1e-9, abs=1e-12)


def assert_figures(found: TextComparison, rows: Sequence[tuple[Tensor, Tensor, Tensor]]) -> None:
    """Assert every figure from the logits of both models and the targets, example by example."""
    losses: list[list[float]] = [[], []]
    agreeing, divergence, weights = [], [], []
    for before, after, targets in rows:
        logs = [logits - logits.logsumexp(-1, keepdim=True) for logits in (before, after)]
        for sums, log in zip(losses, logs, strict=True):
            sums.append(-sum(float(log[at, target]) for at, target in enumerate(targets)))
        same = [int(a.argmax()) == int(b.argmax()) for a, b in zip(before, after, strict=True)]
        agreeing.append(float(sum(same)))
        divergence.append(float((logs[0].exp() * (logs[0] - logs[1])).sum()))
        weights.append(float(len(targets)))
    added = [after - before for before, after in zip(*losses, strict=True)]
    assert close(found.loss_before, ratio_by_hand(losses[0], weights))
    assert close(found.loss_after, ratio_by_hand(losses[1], weights))
    assert close(found.loss_added, ratio_by_hand(added, weights))
    assert close(found.agreement, ratio_by_hand(agreeing, weights))
    assert close(found.divergence, ratio_by_hand(divergence, weights))
    assert found.loss_before is not None and found.quality_before is not None
    for loss, quality in (
        (found.loss_before, found.quality_before),
        (found.loss_after, found.quality_after),
    ):
        value = math.exp(loss.value)
        assert close(quality, (value, value * loss.error))
    ratio = found.quality_after.value / found.quality_before.value
    assert close(found.ratio, (ratio, ratio * found.loss_added.error))
    assert 0 < sum(agreeing) < sum(weights) and sum(divergence) > 0, "the models must differ"


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_causal_models_match_a_computation_text_by_text(name: str) -> None:
    model = model_of(name)
    smaller = cut_copy(model)
    found = own_text(compared(model, smaller))
    rows = []
    for text in TEXTS:
        ids = torch.tensor([words_tokenizer()(text)["input_ids"]])
        before, after = (one(input_ids=ids).logits[0, :-1] for one in (model, smaller))
        rows.append((before, after, ids[0, 1:]))
    assert_figures(found, rows)
    assert found.examples == len(TEXTS)
    assert found.tokens == sum(len(text.split()) for text in TEXTS)
    assert found.neighbours_kept is None


@torch.no_grad()
def test_masked_models_are_compared_on_masked_tokens_only() -> None:
    model = model_of("bert")
    smaller = cut_copy(model)
    pair = open_both(model, smaller, words_tokenizer())
    before, _ = evaluate_both(pair, "text", TEXTS, max_tokens=2048, seed=0)
    rows = []
    for sample in before.samples:
        assert sample.targets is not None
        both = [one(**sample.inputs).logits for one in (model, smaller)]
        for row, targets in enumerate(sample.targets):
            is_masked = targets >= 0
            rows.append((both[0][row][is_masked], both[1][row][is_masked], targets[is_masked]))
    assert_figures(own_text(compared(model, smaller)), rows)


@torch.no_grad()
def test_embeddings_match_a_computation_sentence_by_sentence() -> None:
    model = model_of("embedding")
    smaller = cut_copy(model)
    comparison = compared(model, smaller)
    found, both = own_text(comparison), []
    for one in (model, smaller):
        vectors = []
        for text in TEXTS:
            ids = torch.tensor([words_tokenizer()(text)["input_ids"]])
            mean = one(input_ids=ids).last_hidden_state[0].mean(0)
            vectors.append(mean / mean.norm())
        both.append(torch.stack(vectors))
    distances = (1 - (both[0] * both[1]).sum(1)).tolist()
    ones = [1.0] * len(TEXTS)
    assert close(found.loss_added, ratio_by_hand(distances, ones))
    assert found.loss_after == found.loss_added and found.loss_before is None
    mean, error = ratio_by_hand(distances, ones)
    assert close(found.quality_after, (1 - mean, error)) and found.quality_before is None
    count = comparison.num_neighbours
    assert count == (len(TEXTS) - 1) // 2 == 6
    kept = []
    for row in range(len(TEXTS)):
        others = [at for at in range(len(TEXTS)) if at != row]
        near = [
            set(sorted(others, key=lambda at, one=one: -float(one[row] @ one[at]))[:count])  # type: ignore[misc]
            for one in both
        ]
        kept.append(len(near[0] & near[1]) / count)
    assert close(found.neighbours_kept, ratio_by_hand(kept, ones))
    assert 0 < sum(kept) < len(TEXTS)
    assert found.agreement is None and found.divergence is None


@torch.no_grad()
def test_other_models_are_compared_by_the_divergence_of_their_logits() -> None:
    model = model_of("t5")
    smaller = copy.deepcopy(model)
    cut(smaller, "decoder.L0H1 encoder.L1H2")
    found, sums, weights = own_text(compared(model, smaller)), [], []
    for text in TEXTS:
        ids = torch.tensor([words_tokenizer()(text)["input_ids"]])
        logs = [
            one(input_ids=ids, decoder_input_ids=ids).logits[0].log_softmax(-1)
            for one in (model, smaller)
        ]
        sums.append(float((logs[0].exp() * (logs[0] - logs[1])).sum()))
        weights.append(float(ids.shape[1]))
    assert close(found.loss_added, ratio_by_hand(sums, weights))
    assert found.divergence is not None and found.divergence == pytest.approx(found.loss_added)
    assert found.agreement is not None and found.agreement.value < 1


@pytest.mark.parametrize("name", ["llama", "bert", "embedding", "t5"])
def test_a_model_does_not_differ_from_itself(name: str) -> None:
    model = model_of(name)
    comparison = compared(model, copy.deepcopy(model), registers=["captions"], max_tokens=300)
    assert len(comparison.texts) == 3
    for found in comparison.texts:
        assert found.loss_added == (0, 0)
        for figure, same in (
            (found.agreement, 1),
            (found.divergence, 0),
            (found.neighbours_kept, 1),
        ):
            assert figure is None or figure == (same, 0)
        assert name == "embedding" or found.agreement == (1, 0)
        assert name != "embedding" or found.quality_after == (1, 0)
    assert comparison.before == comparison.after
    assert "no difference" in comparison.conclusions()[-1]


def test_all_registers_together_are_their_examples() -> None:
    model = model_of("llama")
    options = {"registers": ["news", "captions"], "max_tokens": 200}
    comparison = compared(model, cut_copy(model), **options)
    assert [text.name for text in comparison.texts] == [
        *("your text", "news", "captions", "all registers"),
    ]
    whole, parts = comparison.all_registers, comparison.registers
    assert whole is not None
    assert whole.tokens == sum(text.tokens for text in parts) <= 400
    assert whole.examples == sum(text.examples for text in parts)
    low, high = sorted(text.loss_after.value for text in parts)
    assert low < whole.loss_after.value < high
    assert comparison.worst == max(parts, key=lambda text: text.loss_added.value)
    alone = compared(model, cut_copy(model), texts=None, **options)
    assert alone.own_text is None and alone.registers == parts


def test_neighbours_are_sought_among_all_texts() -> None:
    model = model_of("embedding")
    alone = compared(model, cut_copy(model))
    more = compared(model, cut_copy(model), registers="captions", max_tokens=300)
    assert (alone.num_neighbours, more.num_neighbours) == (6, 10)
    assert own_text(alone).loss_added == own_text(more).loss_added
    assert own_text(alone).neighbours_kept != own_text(more).neighbours_kept


def unit(*angles: float) -> Tensor:
    """Unit vectors in the plane, by their angles in degrees."""
    return torch.stack(
        [torch.tensor(angles).deg2rad().cos(), torch.tensor(angles).deg2rad().sin()], 1
    )


def test_neighbours_of_each_example_are_counted_without_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, after = unit(0, 10, 25, 90, 120), unit(0, 10, 80, 90, 120)
    # Nearest two before: 12, 02, 10, 42, 32; after: 12, 02, 34, 24, 32.
    expected = [1, 1, 0, 1, 1]
    assert neighbours_kept(before, after, 2).tolist() == expected
    monkeypatch.setattr("headwise.comparing.paired.ROWS", 2)
    assert neighbours_kept(before, after, 2).tolist() == expected


def test_neighbours_that_tie_for_the_last_place_are_kept() -> None:
    before, after = unit(0, 10, 11, 90), unit(0, 11, 11, 90)
    assert neighbours_kept(before, after, 1)[0] == 1
    assert neighbours_kept(before, unit(0, 12, 11, 90), 1)[0] == 0


def test_sizes_and_speed_are_those_of_both_models() -> None:
    model = model_of("llama")
    smaller = cut_copy(model)
    comparison = compared(model, smaller, times_speed=True)
    inputs = {"input_ids": torch.arange(5)[None]}
    for sizes, one in ((comparison.before, model), (comparison.after, smaller)):
        assert sizes == sizes_of(one, count_heads(one, inputs), positions=61)
    assert (comparison.before.heads, comparison.after.heads) == (18, 12)
    assert [speed.batch for speed in comparison.speed] == [1, 4]
    assert [speed.positions for speed in comparison.speed] == [61, 61]
    assert compared(model, smaller).speed == ()


def test_a_custom_loss_is_paired_but_has_no_agreement() -> None:
    def lengths(model: nn.Module, inputs: Inputs) -> Tensor:
        return torch.tensor([float(len(row)) for row in inputs["input_ids"]]) * factors[id(model)]

    model, other = model_of("llama"), model_of("llama")
    factors = {id(model): 1.0, id(other): 1.5}
    found = own_text(compared(model, other, objective=lengths))
    assert found.loss_before is not None
    assert found.loss_after.value == pytest.approx(1.5 * found.loss_before.value)
    assert found.loss_added.value == pytest.approx(0.5 * found.loss_before.value)
    assert (found.agreement, found.divergence, found.neighbours_kept) == (None, None, None)


def test_models_keep_their_weights_and_modes() -> None:
    model = model_of("llama").train()
    smaller = cut_copy(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    compared(model, smaller)
    assert model.training and smaller.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_without_tokenizer_uses_the_other_ones() -> None:
    model = model_of("bert")
    loaded = LoadedModel("whole", model, words_tokenizer())
    options = {"texts": TEXTS, "registers": (), "times_speed": False}
    after = compare(loaded, cut_copy(model), **options)
    assert after.model_before.name == "whole" and after.model_after.name == "BertForMaskedLM"
    before = compare(cut_copy(model), loaded, **options)
    assert own_text(before).loss_added.value == pytest.approx(-own_text(after).loss_added.value)


# Passages.


def test_passages_are_whole_paragraphs_of_one_text() -> None:
    half, long = "word " * (PASSAGE_WORDS // 2), "word " * (2 * PASSAGE_WORDS)
    half, long = half.strip(), long.strip()
    first = "\n\n".join([half, half, half, "one more"])
    assert split_passages([first, long, "", "short"]) == [
        f"{half}\n\n{half}",
        f"{half}\n\none more",
        long,
        "short",
    ]


def test_a_long_text_is_sampled_in_all_its_parts() -> None:
    paragraphs = [f"w{number} " * 30 for number in range(10, 90)]
    pair = open_both(model_of("gpt2"), model_of("gpt2"), words_tokenizer())
    before, after = evaluate_both(pair, "text", ["\n\n".join(paragraphs)], max_tokens=400, seed=0)
    ids = torch.cat([sample.inputs["input_ids"].flatten() for sample in before.samples])
    assert int(ids.max()) > 70 and before.num_tokens <= 400
    assert before.num_tokens == after.num_tokens


# Refusals.


class Reversed:
    """A tokenizer whose ids are in the opposite order."""

    def __init__(self) -> None:
        self.inner: Any = words_tokenizer()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        ids = self.inner(text, **options)["input_ids"]
        return {"input_ids": [len(self.inner) - 1 - number for number in ids]}


def loaded(name: str, tokenizer: Any = None, **changes: Any) -> LoadedModel:
    model: Any = model_of(name)
    for key, value in changes.items():
        setattr(model.config, key, value)
    return LoadedModel(f"my {name}", model, tokenizer or words_tokenizer())


def with_nan() -> LoadedModel:
    model = loaded("llama")
    with torch.no_grad():
        next(model.model.parameters()).fill_(math.nan)
    return replace(model, name="broken")


def with_fewer_tokens() -> LoadedModel:
    model: Any = loaded("llama")
    model.model.lm_head = nn.Linear(model.model.config.hidden_size, 89, dtype=torch.float64)
    return replace(model, name="narrow")


REFUSALS: dict[str, tuple[Callable[[], LoadedModel], str]] = {
    "kind": (lambda: loaded("bert"), r"my llama is .*next-token.* my bert by masked-token"),
    "tokens": (lambda: loaded("llama", Reversed()), r"my llama and my llama .*same tokenizer"),
    "limit": (lambda: loaded("llama", max_position_embeddings=23), r"do not read your text .*same"),
    "size": (with_fewer_tokens, r"logits of my llama and narrow .* 101 and 89"),
    "nan": (with_nan, r"the loss of broken on your text is nan"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_models_that_cannot_be_compared_raise(case: str) -> None:
    other, facts = REFUSALS[case]
    with pytest.raises(OptionError, match=facts):
        compared(loaded("llama"), other(), tokenizer=None)


def test_embeddings_of_different_sizes_raise() -> None:
    narrow: Any = loaded("embedding")
    narrow.model.forward = lambda **inputs: type(
        "Output", (), {"last_hidden_state": torch.ones(*inputs["input_ids"].shape, 7)}
    )
    with pytest.raises(OptionError, match=r"embeddings of my embedding and .* and 7"):
        compared(loaded("embedding"), narrow, tokenizer=None)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"texts": None}, r"no text"),
        ({"registers": "novels"}, r"'novels' .*news.*manual"),
        ({"max_tokens": 1}, r"max_tokens is 1"),
        ({"texts": ["w9"]}, r"too little text"),
        ({"texts": Path("text.txt")}, r"texts is .*Path"),
        ({"tokenizer": None}, r"neither LlamaForCausalLM nor .* tokenizer"),
    ],
)
def test_bad_arguments_raise(options: dict[str, Any], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        compared(model_of("llama"), model_of("llama"), **options)


# The folder.


def test_comparison_survives_a_round_trip_through_its_folder(tmp_path: Path) -> None:
    model, out = model_of("llama"), tmp_path / "out"
    options = {"registers": ["news"], "max_tokens": 60, "times_speed": True, "out": out}
    comparison = compared(model, cut_copy(model), **options)
    assert [file.name for file in out.iterdir()] == ["compare.json"]
    assert Comparison.read(out) == comparison
    written = json.loads((out / "compare.json").read_text("utf-8"))
    assert written["registers"][0]["loss_added"]["value"] == (
        comparison.registers[0].loss_added.value
    )
    assert written["own_text"]["neighbours_kept"] is None
    with pytest.raises(OutputError, match=r"compare\.json.*--force"):
        compared(model, model, out=out)
    same = compared(model, model, out=out, force=True)
    assert Comparison.read(out) == same != comparison


def test_infinite_error_of_one_example_survives_json() -> None:
    comparison = compared(model_of("llama"), model_of("llama"), texts=TEXTS[:1])
    assert own_text(comparison).loss_after.error == math.inf
    assert "Infinity" not in comparison.to_json()
    assert Comparison.from_json(comparison.to_json()) == comparison


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"registers": [{"name": 1}]}', '"compare.json"']
)
def test_broken_file_raises_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "compare.json").write_text(content, encoding="utf-8")
    with pytest.raises(OptionError, match=r"compare\.json is not a comparison") as caught:
        Comparison.read(tmp_path)
    assert "\n" not in str(caught.value)


def test_folder_is_checked_and_locked_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(OptionError, match=r"file is a file"):
        compared(model_of("llama"), model_of("llama"), out=tmp_path / "file")
    with lock_folder(tmp_path / "out"), pytest.raises(OutputError, match=r"another process"):
        compared(model_of("llama"), model_of("llama"), out=tmp_path / "out")
    with pytest.raises(OptionError, match=r"has no compare\.json.*headwise compare"):
        Comparison.read(tmp_path)


def test_progress_counts_the_texts_and_can_stop_the_work() -> None:
    stages: list[tuple[str, int, int]] = []

    def report(stage: str, done: int, total: int, /) -> None:
        stages.append((stage, done, total))
        if stage.startswith("timing"):
            raise StopWork

    with pytest.raises(StopWork):
        compared(
            *(model_of("llama"), model_of("llama")),
            registers=["news"],
            max_tokens=60,
            times_speed=True,
            progress=report,
        )
    texts_stage = "running both models on each kind of text"
    assert stages == [(texts_stage, 0, 2), (texts_stage, 1, 2), ("timing both models", 0, 1)]
