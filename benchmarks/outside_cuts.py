"""What cuts cost on public data: sentence pairs for embedding models, documents for causal ones.

In: a model, a folder of public data sets, and shares of the heads to cut. Out: for each file and
share the figures of the uncut model, of random cuts, of the cut, and of the models that `headwise
prune` returns with the mean correction and with a refit. Heads are chosen and corrections
fitted on headwise's own text, never on the files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import outside_data
from outside_measures import evaluate_documents, spearman
from torch import nn
from transfer import ALL, COLUMNS, CutFigures, Measures, cut_models, register_quality

from headwise.drawing.table import Table
from headwise.errors import OptionError
from headwise.formats import format_count
from headwise.objectives.losses import Embedding, NextToken
from headwise.objectives.scored_model import ScoredModel, open_scored_model
from headwise.progress import Progress, no_progress
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import prepare_setup
from headwise.views.terminal import ProgressDisplay, quiet_console, show_table
from headwise.watching.running import in_evaluation

PERPLEXITY = "perplexity"
WIDTH = 120
"""Width of the tables, in characters."""


@dataclass(frozen=True)
class CutCheck:
    """The figures of one cut on a file, or on one register of it."""

    data: str
    size: str
    """Number of pairs, or of tokens and documents."""
    unit: str
    register: str
    """`ALL` for the whole file."""
    share: float
    heads: int
    """Number of heads cut."""
    corrections: str
    figures: CutFigures


@dataclass(frozen=True)
class CutMeasure:
    """How to measure a model on one file."""

    data: str
    size: str
    unit: str
    measures: Measures


def cut_measures(scored: ScoredModel, folder: Path, max_tokens: int) -> list[CutMeasure]:
    """A measure for every file that suits the model; raises OptionError if none does."""
    measures = []
    for path in sorted(filter(Path.is_file, folder.iterdir())):
        if isinstance(scored.objective, Embedding) and outside_data.TABULAR & set(path.suffixes):
            if pairs := outside_data.read_pairs(path):
                measure = partial(similarity, scored, pairs)
                size = format_count(len(pairs), "pair")
                measures.append(CutMeasure(path.name, size, "Spearman x 100", measure))
        elif isinstance(scored.objective, NextToken) and (documents := documents_in(path)):
            text = evaluate_documents(scored, documents, max_tokens)
            size = f"{text.whole.describe_size()} of {format_count(len(documents), 'document')}"
            measure = partial(register_quality, text)
            measures.append(CutMeasure(path.name, size, PERPLEXITY, measure))
    if not measures:
        raise OptionError(
            f"{folder} has nothing to measure cuts of {scored.name} on: embedding models need "
            "sentence pairs (SICK, STS), causal models need documents (CoNLL-U, .txt)"
        )
    return measures


def documents_in(path: Path) -> list[outside_data.OutsideDocument]:
    """The documents of a treebank or of a plain text; empty for files in other formats."""
    others = (outside_data.read_pairs, outside_data.read_gap, outside_data.read_bracketed)
    is_plain = path.suffix == ".txt" and not any(read(path) for read in others)
    return outside_data.read_documents(path) if is_plain or path.suffix == ".conllu" else []


def similarity(
    scored: ScoredModel, pairs: Sequence[outside_data.ScoredPair], model: nn.Module
) -> dict[str, float]:
    """Spearman correlation x 100 of a model with the tokenizer and pooling of the scored one."""
    return {ALL: 100 * spearman(replace(scored, model=model), pairs)}


def check_cuts(
    scored: ScoredModel,
    measures: Sequence[CutMeasure],
    shares: Sequence[float],
    *,
    settings: PruneSettings | None = None,
    progress: Progress = no_progress,
) -> Iterator[CutCheck]:
    """Cut the shares of the heads as `headwise prune` does, and measure on every file."""
    setup = prepare_setup(scored, settings or PruneSettings(), progress=progress)
    for number, (share, models) in enumerate(cut_models(setup, shares)):
        progress("measuring cuts", number, len(shares))
        for file in measures:
            for register, figures in models.figures_by_name(file.measures).items():
                yield CutCheck(
                    *(file.data, file.size, file.unit, register),
                    *(share, len(models.heads), models.corrections, figures),
                )


def cut_tables(checks: Sequence[CutCheck]) -> Iterator[Table]:
    """One table per file."""
    columns = ("heads cut", "figure", *COLUMNS, "corrections kept")
    for data in dict.fromkeys(check.data for check in checks):
        of_file = [check for check in checks if check.data == data]
        shares = dict.fromkeys(check.share for check in of_file)
        rows = [
            row
            for share in shares
            for row in cut_rows([check for check in of_file if check.share == share])
        ]
        yield Table(f"{data}: {of_file[0].size}", columns, rows, COLUMNS)


def cut_rows(checks: Sequence[CutCheck]) -> Iterator[tuple[str, ...]]:
    """The rows of one share: for perplexity also its ratio, in all registers and in single ones.

    The model with the mean correction decides which register is the median (of two, the better one)
    and which is the worst.
    """
    (whole,) = (check for check in checks if check.register == ALL)
    share = f"{whole.share:.0%} ({whole.heads})"
    yield (share, whole.unit, *whole.figures.cells(2), whole.corrections)
    if whole.unit != PERPLEXITY:
        return
    yield ("", "times uncut", *whole.figures.relative().cells(3), "")
    ratios = {
        check.register: check.figures.relative()
        for check in checks
        if check.register not in (ALL, "")
    }
    if len(ratios) > 1:
        order = sorted(ratios, key=lambda register: ratios[register].mean)
        for kind, register in (("median", order[(len(order) - 1) // 2]), ("worst", order[-1])):
            yield ("", f"in {register} ({kind})", *ratios[register].cells(3), "")


def run_cuts(model: str, folder: Path, shares: Sequence[float], max_tokens: int) -> list[CutCheck]:
    """Cut the model on headwise's own text, check the cuts on a folder, print the tables."""
    scored = open_scored_model(model)
    display = ProgressDisplay(quiet_console(is_stderr=True), prints_lines=True)
    with in_evaluation(scored.model), display as progress:
        measures = cut_measures(scored, folder, max_tokens)
        checks = list(check_cuts(scored, measures, shares, progress=progress))
    for table in cut_tables(checks):
        show_table(quiet_console(width=WIDTH), table)
    return checks
