"""What cuts cost on kinds of text that had no part in them.

Divides the built-in registers in four ways, so that each reports once, and prints the quality of
every cut on the registers that report: of the uncut model, of random cuts, of the cut alone, with
the cut heads' mean outputs in the biases, and of the model that `headwise prune` returns.

    python benchmarks/transfer.py minilm --cut 25% 50% 75%
    python benchmarks/transfer.py smollm2 --cut 20% 33% --folds 1 --tokens 2048
    python benchmarks/transfer.py smollm2 --cut 20% --kinds
"""

import argparse
import copy
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from torch import nn

from headwise.drawing.table import Table
from headwise.heads import HeadId
from headwise.objectives.own_text import why_not_sampled
from headwise.objectives.registers import RegisterEvaluation
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.pruning.prune import cut_and_refit
from headwise.pruning.refit.mean_correction import add_mean_outputs
from headwise.pruning.selection.curve import RANDOM_ORDERS
from headwise.pruning.selection.methods import BEST, order_units, random_cut
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import (
    PruneSetup,
    cut_search,
    evaluate_texts,
    prepare_setup,
    with_own_text,
)
from headwise.pruning.surgery.cut import cut as cut_heads
from headwise.pruning.text_sets import FOLDS
from headwise.reading.corpus import MANUAL, ROUGH, calibration_texts
from headwise.watching.gates import silence
from headwise.watching.running import in_evaluation

Measure = Callable[[nn.Module], float]


@dataclass(frozen=True)
class CutFigures:
    """One figure for each way to cut the same number of heads."""

    uncut: float
    random: list[float]
    cut: float
    mean: float
    result: float

    def cells(self, digits: int) -> list[str]:
        """The figures as text, random cuts as median and range."""
        middle, low, high = statistics.median(self.random), min(self.random), max(self.random)
        random = f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
        cut, mean, result = (f"{each:.{digits}f}" for each in (self.cut, self.mean, self.result))
        return [f"{self.uncut:.{digits}f}", random, cut, mean, result]


KINDS = ("news", "fiction", "science", "dialogue", ROUGH, MANUAL)
"""Registers to choose heads on, one at a time."""
COLUMNS = ("uncut", "random, median and range", "cut", "cut + mean", "result")


@dataclass(frozen=True, eq=False)
class CutModels:
    """The models to compare for one choice of heads."""

    setup: PruneSetup
    heads: tuple[HeadId, ...]
    mean: nn.Module
    result: nn.Module
    correction: str

    @classmethod
    def of(cls, setup: PruneSetup, heads: tuple[HeadId, ...]) -> "CutModels":
        """Cut the heads and correct what is left."""
        result = cut_and_refit(setup, heads)
        mean = copy.deepcopy(setup.scored.model)
        cut_heads(mean, heads, inputs=setup.inputs)
        add_mean_outputs(mean, setup.scored.model, heads, setup.fit.whole.samples)
        return cls(setup, heads, mean, result.model, result.correction)

    def figures(self, measure: Measure) -> CutFigures:
        """A measure of all models."""
        uncut = self.setup.scored.model

        def silenced(heads: Sequence[HeadId]) -> float:
            with silence(uncut, heads):
                return measure(uncut)

        seeds = range(1, RANDOM_ORDERS + 1)
        random = [silenced(random_cut(self.setup.search, self.heads, seed)) for seed in seeds]
        return CutFigures(
            measure(uncut), random, silenced(self.heads), measure(self.mean), measure(self.result)
        )


def cut_models(setup: PruneSetup, shares: Sequence[float]) -> Iterator[tuple[float, CutModels]]:
    """The models for each share of heads to cut, from one search."""
    total, size = len(setup.search.heads), len(setup.search.units[0])
    counts = {share: round(share * total) // size for share in shares}
    order = order_units(BEST, setup.search, count=max(counts.values()))
    for share, count in counts.items():
        yield share, CutModels.of(setup, order.first(count))


def fold_tables(
    scored: ScoredModel, settings: PruneSettings, shares: Sequence[float], folds: Sequence[int]
) -> Iterator[Table]:
    """For each fold, the quality on its reporting registers and on the manual."""
    for fold in folds:
        setup = prepare_setup(scored, replace(settings, fold=fold))
        manual = {MANUAL: calibration_texts()[MANUAL]}
        extra = evaluate_texts(scored, manual, settings.held_tokens // 3, settings.seed)
        text = RegisterEvaluation({**setup.report.parts, **extra.parts})
        quality, digits = setup.objective.quality, 2 if setup.objective.unit == "perplexity" else 4
        for share, models in cut_models(setup, shares):
            rows = []
            for name, part in text.parts.items():

                def measure(model: nn.Module, part=part) -> float:  # noqa: ANN001 - Evaluation
                    return quality(part.with_model(model).loss().value)

                rows.append((name, *models.figures(measure).cells(digits)))
            title = f"{setup.objective.unit}, {share:.0%} of heads cut, fold {fold}: "
            title += f"correction kept: {models.correction}"
            yield Table(title, ("register", *COLUMNS), rows, COLUMNS)


def kinds_table(scored: ScoredModel, settings: PruneSettings, share: float) -> Table:
    """The loss that a cut adds on each kind of text, if heads are chosen on each kind alone.

    Heads are chosen on some documents of a kind and measured on others; cut heads output their
    means. Text that the model writes itself is one kind of its own.
    """
    texts = calibration_texts()
    halves = []
    for half in (0, 1):
        part = {name: texts[name][half::2] for name in KINDS}
        text = evaluate_texts(scored, part, settings.choose_tokens, half)
        if not why_not_sampled(scored):
            text = with_own_text(scored, text, replace(settings, seed=half))
        halves.append(text)
    chosen, tested = halves
    base, rows = tested.losses(), []
    for name in (*chosen.parts, "all together"):
        parts = chosen.parts if name == "all together" else {name: chosen.parts[name]}
        search = cut_search(RegisterEvaluation(parts), settings)
        count = round(share * len(search.heads)) // len(search.units[0])
        heads = order_units(BEST, search, count=count).first(count)
        losses = tested.losses(heads, means=search.means)
        rows.append((name, *(f"{value:.3f}" for value in losses.increases(base).values())))
    columns = ("chosen on", *tested.parts)
    return Table(f"nats added by cutting {share:.0%}", columns, rows, columns[1:])


def parse_share(text: str) -> float:
    """A share such as 25% or 0.25."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="minilm")
    parser.add_argument("--cut", nargs="+", type=parse_share, default=[0.25, 0.5, 0.75])
    parser.add_argument("--folds", nargs="+", type=int, default=range(FOLDS))
    parser.add_argument("--tokens", type=int, default=4096, help="held-out tokens")
    parser.add_argument("--kinds", action="store_true", help="choose on each kind alone instead")
    given = parser.parse_args()
    console, settings = Console(highlight=False, width=120), PruneSettings(held_tokens=given.tokens)
    scored = open_scored_model(given.model)
    with in_evaluation(scored.model):
        if given.kinds:
            console.print(kinds_table(scored, settings, given.cut[0]).to_rich())
            return
        for table in fold_tables(scored, settings, given.cut, given.folds):
            console.print(table.to_rich())


if __name__ == "__main__":
    main()
