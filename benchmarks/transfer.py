"""What cuts cost on kinds of text that had no part in them.

Divides the built-in registers in four ways, so that each reports once, and prints the quality of
every cut on the registers that report: of the uncut model, of random cuts, of the cut alone, and of
the models that `headwise prune` returns with the mean correction (its default) and with a refit.

    python benchmarks/transfer.py minilm --cut 25% 50% 75%
    python benchmarks/transfer.py smollm2 --cut 20% 33% --folds 1 --tokens 2048
    python benchmarks/transfer.py smollm2 --cut 20% --kinds
"""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console
from torch import nn

from headwise.drawing.table import Table
from headwise.errors import HeadwiseError, OptionError
from headwise.heads import HeadId
from headwise.objectives.own_text import why_not_sampled
from headwise.objectives.registers import RegisterEvaluation
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.pruning.prune import RefittedCut, cut_and_refit
from headwise.pruning.selection.curve import RANDOM_ORDERS
from headwise.pruning.selection.methods import BEST, CutSearch, order_units, random_cut
from headwise.pruning.settings import Amount, PruneSettings
from headwise.pruning.setup import (
    PruneSetup,
    cut_search,
    evaluate_texts,
    prepare_setup,
    with_own_text,
)
from headwise.pruning.text_sets import FOLDS, SAMPLES
from headwise.reading.corpus import (
    MANUAL,
    ROUGH_KINDS,
    calibration_texts,
    corpus,
    rough_texts,
)
from headwise.watching.gates import silence
from headwise.watching.running import in_evaluation

Measure = Callable[[nn.Module], float]
Measures = Callable[[nn.Module], Mapping[str, float]]
"""Several figures of a model by name, from one pass over the text."""


@dataclass(frozen=True)
class CutFigures:
    """One figure for each way to cut the same number of heads."""

    uncut: float
    random: list[float]
    cut: float
    mean: float
    """With the mean correction, if it was kept."""
    refit: float
    """With the refit, if it was kept; otherwise as `mean`."""

    def cells(self, digits: int) -> list[str]:
        """The figures as text, random cuts as median and range."""
        middle, low, high = statistics.median(self.random), min(self.random), max(self.random)
        random = f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
        cut, mean, refit = (f"{each:.{digits}f}" for each in (self.cut, self.mean, self.refit))
        return [f"{self.uncut:.{digits}f}", random, cut, mean, refit]

    def relative(self) -> "CutFigures":
        """The figures as multiples of the uncut model's."""
        random = [each / self.uncut for each in self.random]
        rest = (each / self.uncut for each in (self.cut, self.mean, self.refit))
        return CutFigures(1.0, random, *rest)


KINDS = ("news", "fiction", "science", "dialogue", *ROUGH_KINDS, MANUAL)
"""Registers to choose heads on, one at a time."""
ALONE = 3
"""How much more text of a kind is read if heads are chosen on it alone."""
TOGETHER = "all together"
ALL = "all text"
COLUMNS = ("uncut", "random, median and range", "cut", "cut + mean", "cut + refit")


@dataclass(frozen=True, eq=False)
class CutModels:
    """The models to compare for one choice of heads."""

    setup: PruneSetup
    heads: tuple[HeadId, ...]
    mean: RefittedCut
    refit: RefittedCut

    @classmethod
    def of(cls, setup: PruneSetup, heads: tuple[HeadId, ...]) -> "CutModels":
        """Cut the heads and correct what is left."""
        mean, refit = (
            cut_and_refit(replace(setup, settings=replace(setup.settings, refit=variant)), heads)
            for variant in ("bias", "full")
        )
        return cls(setup, heads, mean, refit)

    @property
    def corrections(self) -> str:
        """The corrections that were kept, with the share of the mean outputs."""
        mean = f"{self.mean.share:.0%} of the mean" if self.mean.share else "none"
        if self.refit.correction in ("bias", "none"):
            return mean
        return f"{mean}; {self.refit.share:.0%} of the refit"

    def figures(self, measure: Measure) -> CutFigures:
        """One figure of all models."""
        return self.figures_by_name(lambda model: {"": measure(model)})[""]

    def figures_by_name(self, measures: Measures) -> dict[str, CutFigures]:
        """Several figures of all models; each model is measured once."""
        uncut = self.setup.scored.model

        def silenced(heads: Sequence[HeadId]) -> Mapping[str, float]:
            with silence(uncut, heads):
                return measures(uncut)

        seeds = range(1, RANDOM_ORDERS + 1)
        random = [silenced(random_cut(self.setup.search, self.heads, seed)) for seed in seeds]
        whole, cut = measures(uncut), silenced(self.heads)
        mean, refit = measures(self.mean.model), measures(self.refit.model)
        return {
            name: CutFigures(
                whole[name], [each[name] for each in random], cut[name], mean[name], refit[name]
            )
            for name in whole
        }


def count_units(search: CutSearch, share: float) -> int:
    """Number of units in a share of all heads; raises OptionError if it cannot be cut."""
    total, size = len(search.heads), len(search.units[0])
    cuttable = sum(len(unit) for unit in search.cuttable)
    count = Amount(cut=round(share * total)).head_count(total, cuttable) or 0
    if count < size:
        raise OptionError(f"{share:.0%} of {total} heads is less than the smallest cut, {size}")
    return count // size


def cut_models(setup: PruneSetup, shares: Sequence[float]) -> Iterator[tuple[float, CutModels]]:
    """The models for each share of heads to cut, from one search."""
    counts = {share: count_units(setup.search, share) for share in shares}
    order = order_units(BEST, setup.search, count=max(counts.values()))
    for share, count in counts.items():
        yield share, CutModels.of(setup, order.first(count))


def register_quality(text: RegisterEvaluation, model: nn.Module) -> dict[str, float]:
    """A model's quality on all of the text, named `ALL`, and on each register."""
    losses, quality = text.with_model(model).losses(), text.whole.objective.quality
    estimates = {ALL: losses.overall, **losses.by_register}
    return {name: quality(estimate.value) for name, estimate in estimates.items()}


def fold_tables(
    scored: ScoredModel, settings: PruneSettings, shares: Sequence[float], folds: Sequence[int]
) -> Iterator[Table]:
    """For each fold, the quality on its reporting registers and on other pages of the manual."""
    used = set(calibration_texts()[MANUAL])
    manual = {MANUAL: [text for text in corpus(MANUAL)[MANUAL] if text not in used]}
    for fold in folds:
        setup = prepare_setup(scored, replace(settings, fold=fold))
        extra = evaluate_texts(scored, manual, settings.held_tokens // 3, settings.seed)
        text = RegisterEvaluation({**setup.report.parts, **extra.parts})
        digits = 2 if setup.objective.unit == "perplexity" else 4
        for share, models in cut_models(setup, shares):
            figures = models.figures_by_name(partial(register_quality, text))
            rows = [(name, *figures[name].cells(digits)) for name in text.parts]
            title = f"{setup.objective.unit}, {share:.0%} of heads cut, fold {fold}: "
            title += f"corrections kept: {models.corrections}"
            yield Table(title, ("register", *COLUMNS), rows, COLUMNS)


def kinds_table(scored: ScoredModel, settings: PruneSettings, share: float) -> Table:
    """What a cut costs on each kind of text, if heads are chosen on each kind alone and on all.

    Heads are chosen on some documents of a kind and measured on others; cut heads output their
    means. Text that the model writes itself is one kind of its own. A single kind is read as far as
    ALONE times its share of the text for all kinds together. The last row compares the choice on
    all kinds with the best of all rows.
    """
    texts = calibration_texts() | rough_texts()
    kinds = KINDS if why_not_sampled(scored) else (*KINDS, SAMPLES)

    def read(half: int, tokens: int) -> RegisterEvaluation:
        part = {name: texts[name][half::2] for name in KINDS}
        text = evaluate_texts(scored, part, tokens * len(KINDS) // len(kinds), half)
        own = replace(settings, seed=half, choose_tokens=tokens)
        return with_own_text(scored, text, own) if SAMPLES in kinds else text

    together = read(0, settings.choose_tokens)
    alone = read(0, settings.choose_tokens * ALONE)
    tested = read(1, settings.held_tokens * ALONE)
    choices = {name: RegisterEvaluation({name: part}) for name, part in alone.parts.items()}
    base, costs = tested.losses(), dict[str, list[float]]()
    for name, registers in {**choices, TOGETHER: together}.items():
        search = cut_search(registers, settings)
        count = count_units(search, share)
        heads = order_units(BEST, search, count=count).first(count)
        added = tested.losses(heads, means=search.means).increases(base)
        costs[name] = [math.exp(value) for value in added.values()]
    best = [min(column) for column in zip(*costs.values(), strict=True)]
    costs[f"{TOGETHER} / best"] = [
        each / least for each, least in zip(costs[TOGETHER], best, strict=True)
    ]
    rows = [(name, *(f"{cost:.3f}" for cost in row)) for name, row in costs.items()]
    columns = ("chosen on", *tested.parts)
    title = f"exp({scored.objective.name}) with {share:.0%} of heads cut, as a multiple of uncut"
    return Table(title, columns, rows, columns[1:])


def parse_share(text: str) -> float:
    """A share such as 25% or 0.25; raises ArgumentTypeError unless it is between 0 and 1."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share of the heads, such as 25% or 0.25")
    return share


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default="minilm")
    parser.add_argument("--cut", nargs="+", type=parse_share, default=[0.25, 0.5, 0.75])
    parser.add_argument("--folds", nargs="+", type=int, choices=range(FOLDS), default=range(FOLDS))
    parser.add_argument("--tokens", type=int, default=4096, help="held-out tokens")
    parser.add_argument("--kinds", action="store_true", help="choose on each kind alone instead")
    given = parser.parse_args()
    console = Console(highlight=False, width=160 if given.kinds else 120)
    try:
        settings, scored = PruneSettings(held_tokens=given.tokens), open_scored_model(given.model)
        with in_evaluation(scored.model):
            tables = fold_tables(scored, settings, given.cut, given.folds)
            if given.kinds:
                tables = (kinds_table(scored, settings, share) for share in given.cut)
            for table in tables:
                console.print(table.to_rich())
    except HeadwiseError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
