"""benchmarks/transfer.py: models to compare for a cut, and tables of what cuts cost elsewhere."""

import argparse
import copy
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from headwise.errors import OptionError
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import PruneSetup, prepare_setup
from headwise.pruning.surgery.cut import cut
from headwise.pruning.text_sets import builtin_sets

from .pruning.tiny_models import texts, words_tokenizer
from .watching.tiny import tiny

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SMALL = PruneSettings(choose_tokens=64, fit_tokens=64, held_tokens=64)


@pytest.fixture
def transfer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("transfer")


def scored_model(name: str) -> ScoredModel:
    """A tiny model that can begin a text, and so write its own."""
    tokenizer = words_tokenizer()
    tokenizer.bos_token = "[CLS]"
    return open_scored_model(tiny(name, dtype=torch.float32)[0], tokenizer)


def setup_of(name: str) -> PruneSetup:
    return prepare_setup(scored_model(name), SMALL, texts=texts(48))


def test_every_model_is_measured_once(transfer: Any) -> None:
    setup = setup_of("llama")
    ((_, models),) = transfer.cut_models(setup, [0.5])
    ids = torch.arange(5, 16)[None]
    calls: list[nn.Module] = []

    def measures(model: nn.Module) -> dict[str, float]:
        calls.append(model)
        with torch.no_grad():
            logits = model(ids).logits[0]
        return {"first": float(logits[0, 0]), "sum": float(logits.sum())}

    figures = models.figures_by_name(measures)
    assert len(calls) == 9
    uncut = setup.scored.model
    assert calls.count(models.mean.model) == calls.count(models.refit.model) == 1
    assert calls.count(uncut) == 7
    assert figures["first"] == models.figures(lambda model: measures(model)["first"])
    smaller = copy.deepcopy(uncut)
    cut(smaller, models.heads)
    for name in ("first", "sum"):
        assert figures[name].uncut == measures(uncut)[name]
        assert figures[name].cut == pytest.approx(measures(smaller)[name], rel=1e-4)
        assert figures[name].mean == measures(models.mean.model)[name]
        assert figures[name].refit == measures(models.refit.model)[name]
        assert len({figures[name].cut, *figures[name].random}) > 2, "cuts differ"


@pytest.mark.parametrize(
    ("share", "refit", "text"),
    [
        (0.5, "full", "50% of the mean; 25% of the refit"),
        (0.75, "bias", "75% of the mean"),
        (0.0, "none", "none"),
    ],
)
def test_corrections_are_named(transfer: Any, share: float, refit: str, text: str) -> None:
    setup = setup_of("llama")
    ((_, models),) = transfer.cut_models(setup, [0.5])
    named = replace(
        models,
        mean=replace(models.mean, share=share),
        refit=replace(models.refit, correction=refit, share=0.25),
    )
    assert named.corrections == text


def test_shares_of_heads_are_cut_as_whole_units(transfer: Any) -> None:
    search = setup_of("llama").search
    heads, size = len(search.heads), len(search.units[0])
    assert size > 1
    for share in (0.34, 0.5, 0.9):
        assert transfer.count_units(search, share) == round(share * heads) // size
    with pytest.raises(OptionError, match=f"1% of {heads} heads .* {size}"):
        transfer.count_units(search, 0.01)


def test_figures_are_shown_as_median_and_range_and_as_multiples(transfer: Any) -> None:
    figures = transfer.CutFigures(4.0, [9.0, 5.0, 6.0], 5.0, 4.5, 4.25)
    assert figures.cells(1) == ["4.0", "6.0 (5.0 to 9.0)", "5.0", "4.5", "4.2"]
    assert figures.relative() == transfer.CutFigures(1.0, [2.25, 1.25, 1.5], 1.25, 1.125, 1.0625)


@pytest.mark.parametrize(("text", "share"), [("25%", 0.25), ("0.2", 0.2), ("33.3%", 0.333)])
def test_shares_are_percentages_or_fractions(transfer: Any, text: str, share: float) -> None:
    assert transfer.parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["25", "0", "100%", "-5%", "half", "nan", "%"])
def test_other_shares_are_rejected(transfer: Any, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not a share"):
        transfer.parse_share(text)


def test_a_fold_reports_on_its_registers_and_other_pages_of_the_manual(
    transfer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[dict[str, list[str]]] = []
    evaluate = transfer.evaluate_texts

    def record(scored: ScoredModel, documents: Any, *options: Any) -> Any:
        read.append(documents)
        return evaluate(scored, documents, *options)

    monkeypatch.setattr(transfer, "evaluate_texts", record)
    (table,) = transfer.fold_tables(scored_model("llama"), SMALL, [0.5], [1])
    reported = builtin_sets(1, is_causal=True).report
    assert [row[0] for row in table.rows] == [*reported, "manual"]
    assert table.title.startswith("perplexity, 50% of heads cut, fold 1: corrections kept: ")
    (manual,) = read
    assert not set(manual["manual"]) & set(transfer.calibration_texts()["manual"])
    assert len(manual["manual"]) > 50


def test_the_square_table_has_a_row_and_a_column_per_kind(transfer: Any) -> None:
    table = transfer.kinds_table(scored_model("llama"), SMALL, 0.5)
    kinds = [*transfer.KINDS, "samples"]
    assert list(table.columns) == ["chosen on", *kinds]
    assert [row[0] for row in table.rows] == [*kinds, "all together", "all together / best"]
    *costs, together, ratios = [list(map(float, row[1:])) for row in table.rows]
    best = [min(column) for column in zip(*costs, together, strict=True)]
    for ratio, cost, least in zip(ratios, together, best, strict=True):
        assert ratio == pytest.approx(cost / least, abs=2e-3)
    assert table.title == "exp(next-token loss) with 50% of heads cut, as a multiple of uncut"
