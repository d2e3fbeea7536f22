"""Importance: how much a model needs each head on some text, by several measures.

In: a model and text. Out: `Importance`, with exact ablation (zero and mean), Michel's score, Fisher
information and the loss expected from the heads' interaction, each with a standard error; the
interaction itself; groups of heads that can replace each other; and the cost of leaving only one
head in each layer. workload.py chooses which of these to measure.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from headwise.errors import OptionError, warn_user
from headwise.files import lock_folder, make_folder
from headwise.formats import format_count, format_duration
from headwise.head_table import HeadTable
from headwise.heads import abbreviate
from headwise.models.loaded import LoadedModel, Source
from headwise.objectives.evaluation import Estimate, Evaluation, choose_batches, choose_texts
from headwise.objectives.objective import Objective
from headwise.objectives.scored_model import open_scored_model
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.ablation import AddedLosses, ablate, added_losses
from headwise.pruning.importance.gradients import Gradients, gradients
from headwise.pruning.importance.importance_tables import (
    LAYER_COLUMNS,
    Importance,
    check_importance_folder,
)
from headwise.pruning.importance.redundancy import Redundancy, find_redundancy
from headwise.pruning.importance.workload import (
    ABLATIONS,
    WITHOUT_GRADIENTS,
    ImportanceWork,
    check_measures,
    choose_work,
    estimate_seconds,
)
from headwise.pruning.stages import PruneStage
from headwise.reading.batch import Inputs
from headwise.watching.gates import MeanOutputs, mean_outputs
from headwise.watching.running import in_evaluation


def importance(  # noqa: PLR0913 - all but the first two are keyword-only
    source: Source,
    texts: str | Sequence[str] | None = None,
    *,
    out: str | Path | None = None,
    force: bool = False,
    tokenizer: Any = None,
    batches: Iterable[Mapping[str, Tensor]] | None = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
    max_tokens: int = 4096,
    keeps_texts_whole: bool = False,
    measures: str | Iterable[str] | None = None,
    exact_tokens: int | None = None,
    progress: Progress = no_progress,
) -> Importance:
    """Measure how much the model needs each head on `texts`, or on `batches` of model inputs.

    `objective` is an objective or a function that maps model and inputs to one loss per example; by
    default, the model's class decides it. Without texts and batches, the built-in texts are used.
    With `keeps_texts_whole`, each text is an example of its own, as in `PruneSettings`.
    If `out` is set, the tables are also written to that folder; `force` replaces existing ones.

    `measures` are some of zero, mean, michel, fisher, expected, stand_ins and best_alone, or all;
    large models leave out mean and best_alone by default. Exact ablation (zero, mean, best_alone)
    reads `exact_tokens` tokens, by default fewer than `max_tokens` in a large model.
    """
    measures = check_measures(measures)
    folder = None if out is None else Path(out).expanduser()
    with ExitStack() as stack:
        if folder is not None:
            check_importance_folder(folder, force=force)
            make_folder(folder)
            stack.enter_context(lock_folder(folder))
        scored = open_scored_model(source, tokenizer, objective, needs_tokenizer=batches is None)
        stack.enter_context(in_evaluation(scored.model))
        if batches is not None:
            inputs = choose_batches(scored.model, batches, texts)
            evaluation = Evaluation.of_batches(scored.model, scored.objective, inputs)
        else:
            documents = choose_texts(texts, keeps_whole=keeps_texts_whole)
            evaluation = Evaluation.of_texts(
                scored, documents, max_tokens=max_tokens, keeps_whole=keeps_texts_whole
            )
        measured = measure_importance(
            scored, evaluation, measures=measures, exact_tokens=exact_tokens, progress=progress
        )
        if folder is not None:
            measured.write(folder, force=force)
        return measured


def measure_importance(
    loaded: LoadedModel,
    evaluation: Evaluation,
    *,
    measures: Iterable[str] | None = None,
    exact_tokens: int | None = None,
    progress: Progress = no_progress,
) -> Importance:
    """Measure how much an evaluation's loss depends on each head; see `importance`."""
    heads = evaluation.heads
    if not heads:
        raise OptionError(f"{loaded.name} has no heads left: there is nothing to measure")
    base = evaluation.finite_loss(loaded.name)
    work = choose_work(evaluation, measures, exact_tokens)
    exact = work.exact
    if left_out := evaluation.left_out:
        reason = next(iter(left_out.values()))
        warn_user(f"heads of {abbreviate(list(left_out))} are left out: {reason}")
    progress(_describe_work(evaluation, work), 0, 0)
    scores, redundancy = None, Redundancy()
    if work.draws:
        scores = gradients(
            evaluation, draws=work.draws, advice=WITHOUT_GRADIENTS, progress=progress
        )
    ablations = _measure_ablations(evaluation, work, progress)
    if scores is not None and work.has("stand_ins"):
        redundancy = find_redundancy(
            evaluation, scores, exact, alone=ablations.get("zero"), progress=progress
        )
    layers = _best_alone(exact, progress) if work.has("best_alone") else None
    about = {
        "model": loaded.name,
        **loaded.about,
        "objective": evaluation.objective.description,
        "unit": evaluation.objective.unit,
        "loss": base.value,
        "loss_se": base.error if math.isfinite(base.error) else None,
        "examples": evaluation.num_examples,
        "measures": list(work.measures),
        "left_out": list(work.left_out),
        "tokens": evaluation.num_tokens,
        "exact_examples": exact.num_examples,
        "exact_tokens": exact.num_tokens,
        "stand_ins_untested": redundancy.untested,
    }
    columns = _head_columns(evaluation, work, ablations, scores, redundancy)
    interaction = None
    if scores is not None and work.has("expected", "stand_ins"):
        names = list(map(str, heads))
        interaction = pd.DataFrame(scores.interaction.numpy(), index=names, columns=names)
    return Importance(HeadTable(columns, about), interaction, redundancy.groups, layers)


def _describe_work(evaluation: Evaluation, work: ImportanceWork) -> str:
    """The number of heads, tokens and batches, and about how long the measures take."""
    size = f"{format_count(len(evaluation.heads), 'head')} on {evaluation.describe_size()}"
    batches, exact = len(evaluation.samples), work.exact
    size += f" in {batches:,} batch{'' if batches == 1 else 'es'}"
    ablations = [name for name in ABLATIONS if work.has(name)]
    if ablations and exact is not evaluation:
        size += f" ({', '.join(ablations)} on {exact.describe_size()})"
    return f"measuring {size}: {format_duration(estimate_seconds(evaluation, work))}"


def _measure_ablations(
    evaluation: Evaluation, work: ImportanceWork, progress: Progress
) -> dict[str, AddedLosses]:
    """Loss added by silencing each head, for zero and mean if they are to be measured."""
    replacements: dict[str, MeanOutputs | None] = {}
    if work.has("zero"):
        replacements["zero"] = None
    if work.has("mean"):
        batches = [sample.inputs for sample in evaluation.samples]
        replacements["mean"] = mean_outputs(evaluation.model, batches)
    if not replacements:
        return {}
    units = [(head,) for head in evaluation.heads]
    added = added_losses(work.exact, units, [*replacements.values()], progress=progress)
    return dict(zip(replacements, added, strict=True))


def _head_columns(
    evaluation: Evaluation,
    work: ImportanceWork,
    ablations: Mapping[str, AddedLosses],
    scores: Gradients | None,
    redundancy: Redundancy,
) -> pd.DataFrame:
    """The table's columns: each measure with its standard error, and each head's stand-ins."""
    heads = evaluation.heads
    columns = pd.DataFrame(
        {name: [getattr(head, name) for head in heads] for name in ("stack", "layer", "head")}
    )
    for name, added in ablations.items():
        columns[[name, f"{name}_se"]] = added.estimates()
    for name in ("michel", "fisher", "expected"):
        if scores is not None and work.has(name):
            columns[name] = getattr(scores, name).tolist()
            columns[f"{name}_se"] = getattr(scores, f"{name}_error").tolist()
    if work.has("stand_ins"):
        stand_ins = {
            head: " ".join(str(other) for other in group.heads if other != head)
            for group in redundancy.groups
            for head in group.heads
        }
        columns["stand_ins"] = [stand_ins.get(head, "") for head in heads]
    return columns


def _best_alone(evaluation: Evaluation, progress: Progress) -> pd.DataFrame:
    """The head of each layer that does best while the layer's other heads are silent."""
    objective, rows = evaluation.objective, []
    base = evaluation.loss()
    layers = [list(heads) for _, heads in groupby(evaluation.heads, attrgetter("layer_name"))]
    others = {
        head: tuple(other for other in heads if other != head)
        for heads in layers
        for head in heads
        if len(heads) > 1
    }
    estimates = ablate(
        evaluation,
        [*others.values()],
        progress=lambda _, done, total: progress(PruneStage.BEST_ALONE, done, total),
    )
    costs = dict(zip(others, estimates, strict=True))
    for heads in layers:
        best = min(heads, key=lambda head: costs[head].value) if len(heads) > 1 else heads[0]
        added = costs.get(best, Estimate(0.0, 0.0))
        quality = objective.quality(base.value + added.value)
        shown = f"{quality:.{2 if objective.unit == 'perplexity' else 4}f}"
        rows.append((best.layer_name, len(heads), str(best), added.value, added.error, shown))
    return pd.DataFrame(rows, columns=LAYER_COLUMNS)
