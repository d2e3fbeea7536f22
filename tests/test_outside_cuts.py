"""benchmarks/outside_cuts.py: files become measures that suit a model, cuts become tables."""

import importlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import OptionError
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.pruning.settings import PruneSettings
from headwise.reading.batch import Inputs

from .pruning.tiny_models import WORDS, model_of, words_tokenizer

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SMALL = PruneSettings(choose_tokens=64, fit_tokens=64, held_tokens=64, samples_text=False)
LIMIT = 61
"""Number of positions of the tiny models."""


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("outside_cuts")


@pytest.fixture
def measures(cuts: Any) -> Any:
    return importlib.import_module("outside_measures")


@pytest.fixture
def data(cuts: Any) -> Any:
    return importlib.import_module("outside_data")


@pytest.fixture
def figures(cuts: Any) -> Any:
    return importlib.import_module("transfer").CutFigures


def scored_model(name: str) -> ScoredModel:
    return open_scored_model(model_of(name), words_tokenizer())


def words(start: int, count: int) -> str:
    """Consecutive words that the tiny models know."""
    return " ".join(WORDS[(start + number) % len(WORDS)] for number in range(count))


@torch.no_grad()
def cosine_by_hand(model: Any, first: str, second: str) -> float:
    """Cosine of the mean states, one sentence at a time."""

    def embed(text: str) -> torch.Tensor:
        inputs = words_tokenizer()(text, return_tensors="pt")
        states: torch.Tensor = model(**inputs).last_hidden_state[0]
        return states.mean(0)

    return float(torch.nn.functional.cosine_similarity(embed(first), embed(second), dim=0))


def test_spearman_compares_ranks_of_cosines_and_scores(measures: Any, data: Any) -> None:
    scored = scored_model("embedding")
    sentences = [(words(start, 3 + start % 5), words(7 * start, 9)) for start in range(70)]
    cosines = [cosine_by_hand(scored.model, *pair) for pair in sentences]
    for sign in (1, -1):
        pairs = [
            data.ScoredPair(*pair, sign * math.exp(9 * cosine))
            for pair, cosine in zip(sentences, cosines, strict=True)
        ]
        assert measures.spearman(scored, pairs) == pytest.approx(sign)
    pairs = [data.ScoredPair("w7 w8", "w9", 1), data.ScoredPair("w7", "w7", 0)]
    assert measures.spearman(scored, pairs) == pytest.approx(-1), "equal sentences have cosine 1"


def test_spearman_measures_the_model_that_it_is_given(cuts: Any, data: Any) -> None:
    scored = scored_model("embedding")
    pairs = [
        data.ScoredPair(words(start, 5), words(3 * start, 6), start % 7) for start in range(40)
    ]
    other: Any = model_of("embedding")
    for layer in other.encoder.layer:
        layer.attention.output.dense.weight.data.zero_()
    uncut = cuts.similarity(scored, pairs, scored.model)[cuts.ALL]
    assert -100 < uncut < 100
    assert cuts.similarity(scored, pairs, other)[cuts.ALL] != pytest.approx(uncut)


def rows(evaluation: Any) -> list[list[int]]:
    """The tokens of every window, without padding."""

    def of_batch(inputs: Inputs) -> list[list[int]]:
        pairs = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        return [ids[mask.bool()].tolist() for ids, mask in pairs]

    return [row for sample in evaluation.samples for row in of_batch(sample.inputs)]


def test_documents_take_turns_until_the_tokens_are_used_up(measures: Any, data: Any) -> None:
    scored = scored_model("gpt2")
    long, short = words(0, 5 * LIMIT), words(40, 20)
    documents = [data.OutsideDocument(*pair) for pair in (("law", long), ("news", short))]
    documents.append(data.OutsideDocument("law", words(70, 2 * LIMIT)))
    tokens = 20 + 4 * LIMIT
    text = measures.evaluate_documents(scored, documents, tokens + 1)
    assert list(text.parts) == ["law", "news"]
    assert text.whole.num_tokens == tokens
    (news,) = rows(text.parts["news"])
    assert words_tokenizer().decode(news) == short
    starts = {row[0] for row in rows(text.parts["law"])}
    ids = words_tokenizer()(long)["input_ids"]
    second = words_tokenizer()(words(70, 2 * LIMIT))["input_ids"]
    assert starts == {ids[0], ids[LIMIT], second[0], second[LIMIT]}, "two windows of each"
    two = measures.evaluate_documents(scored, [documents[0], documents[2]], 2 * LIMIT)
    assert {row[0] for row in rows(two.whole)} == {ids[0], second[0]}, "one window of each"
    whole = measures.evaluate_documents(scored, documents, 10**6)
    assert whole.whole.num_tokens == 7 * LIMIT + 20


@torch.no_grad()
def perplexity_by_hand(model: Any, texts: list[str]) -> float:
    losses = []
    for text in texts:
        ids = words_tokenizer()(text, return_tensors="pt")["input_ids"]
        logs = model(ids).logits[0, :-1].log_softmax(-1)
        losses += (-logs.gather(-1, ids[0, 1:, None])[:, 0]).tolist()
    return math.exp(sum(losses) / len(losses))


def test_perplexity_is_that_of_every_predicted_token(cuts: Any, measures: Any, data: Any) -> None:
    scored = scored_model("gpt2")
    texts = {"law": [words(0, 9), words(50, 31)], "news": [words(20, 14)]}
    documents = [data.OutsideDocument(name, text) for name in texts for text in texts[name]]
    text = measures.evaluate_documents(scored, documents, 500)
    assert cuts.register_quality(text, scored.model) == {
        cuts.ALL: pytest.approx(perplexity_by_hand(scored.model, texts["law"] + texts["news"])),
        "law": pytest.approx(perplexity_by_hand(scored.model, texts["law"])),
        "news": pytest.approx(perplexity_by_hand(scored.model, texts["news"])),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Public data of every kind, in words that the tiny models know."""
    pairs = [f"{start % 5}\t{words(start, 4)}\t{words(2 * start, 6)}" for start in range(9)]
    gap = "ID Text Pronoun Pronoun-offset A A-offset A-coref B B-offset B-coref URL".split()
    passage = ["1", "Eva met Ann; she left.", "she", "13", "Eva", "0", "TRUE", "Ann", "8", "FALSE"]
    treebank = [
        line
        for number, register in enumerate(("law", "news", "essay"))
        for line in (
            f"# newdoc id = GUM_{register}_{number}",
            f"# text = {words(7 * number, 30 + number)}",
        )
    ]
    brackets = ["[The cook] called the pilot because [he] was late."]
    brackets += ["The cook called [the pilot] because [he] was late."]
    files = {
        "gap.tsv": ["\t".join(gap), "\t".join([*passage, "url"])],
        "gum.conllu": treebank,
        "single.conllu": [f"# text = {words(0, 20)}"],
        "notes.md": [words(0, 20)],
        "story.txt": [words(40, 80)],
        "sts.txt": pairs,
        "wino.txt": brackets,
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "more.txt").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("embedding", [("sts.txt", "9 pairs", "Spearman x 100")]),
        (
            "gpt2",
            [
                ("gum.conllu", "93 tokens of 3 documents", "perplexity"),
                ("story.txt", "80 tokens of 1 document", "perplexity"),
            ],
        ),
    ],
)
def test_a_model_is_measured_on_the_files_that_suit_it(
    cuts: Any, folder: Path, name: str, files: list[tuple[str, str, str]]
) -> None:
    found = cuts.cut_measures(scored_model(name), folder, 1000)
    assert [(file.data, file.size, file.unit) for file in found] == files


@pytest.mark.parametrize("name", ["embedding", "gpt2", "bert"])
def test_a_folder_without_data_for_the_model_raises(cuts: Any, folder: Path, name: str) -> None:
    for file in ("sts.txt", "gum.conllu", "story.txt"):
        if name != "bert":  # a masked model has no measure
            (folder / file).unlink()
    with pytest.raises(OptionError, match=r"sentence pairs .* documents"):
        cuts.cut_measures(scored_model(name), folder, 1000)


def test_cuts_of_a_causal_model_become_tables(cuts: Any, folder: Path) -> None:
    scored = scored_model("gpt2")
    files = cuts.cut_measures(scored, folder, 1000)
    checks = list(cuts.check_cuts(scored, files, [0.25, 0.5], settings=SMALL))
    names = [("gum.conllu", name) for name in (cuts.ALL, "essay", "law", "news")]
    names += [("story.txt", name) for name in (cuts.ALL, "")]
    assert [(check.data, check.register) for check in checks] == 2 * names
    assert [check.share for check in checks] == [0.25] * 6 + [0.5] * 6
    story = (folder / "story.txt").read_text("utf-8")
    whole = checks[4]
    windows = [" ".join(story.split()[:LIMIT]), " ".join(story.split()[LIMIT:])]
    assert whole.figures.uncut == pytest.approx(perplexity_by_hand(scored.model, windows))
    assert len(whole.figures.random) == 5 and whole.figures.cut != whole.figures.uncut
    gum, plain = cuts.cut_tables(checks)
    assert gum.title == "gum.conllu: 93 tokens of 3 documents"
    assert plain.title == "story.txt: 80 tokens of 1 document"
    blank = ("", "", "")
    quarter, half = (f"{check.share:.0%} ({check.heads})" for check in checks[::6])
    assert [row[0] for row in gum.rows] == [quarter, *blank, half, *blank]
    assert [row[1] for row in plain.rows] == ["perplexity", "times uncut"] * 2
    assert plain.rows[0][2:] == (*whole.figures.cells(2), whole.corrections)
    assert json.dumps([vars(check.figures) for check in checks])


def test_cuts_of_an_embedding_model_become_one_row_per_share(cuts: Any, folder: Path) -> None:
    scored = scored_model("embedding")
    files = cuts.cut_measures(scored, folder, 1000)
    checks = list(cuts.check_cuts(scored, files, [0.5], settings=SMALL))
    (table,) = cuts.cut_tables(checks)
    (row,) = table.rows
    assert (table.title, row[:2]) == ("sts.txt: 9 pairs", ("50% (8)", "Spearman x 100"))
    pairs = [
        cuts.outside_data.ScoredPair(words(start, 4), words(2 * start, 6), start % 5)
        for start in range(9)
    ]
    assert row[2] == f"{100 * cuts.spearman(scored, pairs):.2f}"
    assert re.fullmatch(r"(none|\d+% of the mean)(; \d+% of the refit)?", row[-1])


def test_the_mean_correction_decides_which_registers_are_shown(cuts: Any, figures: Any) -> None:
    results = {"law": 1.5, "news": 1.25, "essay": 3.0, "": 9.0, cuts.ALL: 2.0}
    checks = [
        cuts.CutCheck(
            *("gum.conllu", "93 tokens", "perplexity", register, 1 / 3, 5, "bias"),
            figures(10.0, [50.0, 20.0, 30.0, 90.0, 10.0], 40.0, 10 * result, 30.0),
        )
        for register, result in results.items()
    ]
    whole, ratio, median, worst = cuts.cut_rows(checks)
    perplexities = ("10.00", "30.00 (10.00 to 90.00)", "40.00", "20.00", "30.00")
    assert whole == ("33% (5)", "perplexity", *perplexities, "bias")
    ratios = ("1.000", "3.000 (1.000 to 9.000)", "4.000")
    assert ratio == ("", "times uncut", *ratios, "2.000", "3.000", "")
    assert median == ("", "in law (median)", *ratios, "1.500", "3.000", "")
    assert worst == ("", "in essay (worst)", *ratios, "3.000", "3.000", "")
    assert len(list(cuts.cut_rows([checks[0], checks[-1]]))) == 2, "one register is no comparison"
