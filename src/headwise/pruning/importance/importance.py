"""Importance: what every head is worth, on text, by several measures side by side.

In: a model and text. Out: a `HeadTable` with exact ablation (zero and mean), Michel's score, Fisher
information and what the interaction of heads expects, each with a standard error; the interaction
itself; groups of heads that stand in for each other; and what it costs to leave one head a layer.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.formats import format_count
from headwise.heads import HeadCounts, HeadId, HeadTable
from headwise.models.loaded import Source
from headwise.objectives.evaluation import (
    Estimate,
    Evaluation,
    count_heads,
    counted_batches,
    head_ids,
)
from headwise.objectives.objective import Objective
from headwise.pruning.importance.ablation import Progress, ablate, untold
from headwise.pruning.importance.gradients import DRAWS, Gradients, gradients
from headwise.pruning.importance.redundancy import Redundant, alikeness, redundant_groups
from headwise.pruning.setting import Subject, calibration, make_subject
from headwise.pruning.units import Unit, single_heads
from headwise.watching.gates import mean_outputs
from headwise.watching.running import Inputs, in_evaluation


@dataclass(frozen=True, eq=False)
class Importance:
    """What every head of a model is worth."""

    table: HeadTable
    interaction: pd.DataFrame
    """G: half of its sum over some heads, less the loss's slope by their gates, is the loss that is
    expected from cutting them; heads by name."""
    groups: tuple[Redundant, ...]
    layers: pd.DataFrame
    """Of each layer the head that does best alone, and the loss when all others are silent."""

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        return self.table._repr_html_()


def importance(
    source: Source,
    texts: str | Sequence[str] | None = None,
    *,
    tokenizer: Any = None,
    batches: Iterable[Mapping[str, Tensor]] | None = None,
    objective: Objective | Callable[[nn.Module, Inputs], Tensor] | None = None,
    max_tokens: int = 4096,
    progress: Progress = untold,
) -> Importance:
    """What every head is worth on some text, or on batches of what the model takes.

    What is measured is told by the model's class, unless `objective` says otherwise: one of ours,
    or a function from model and inputs to one loss an example. Without text, Python's own manual
    is read.
    """
    subject = make_subject(source, tokenizer, objective)
    with in_evaluation(subject.model):
        task = calibration(subject, texts, batches, max_tokens=max_tokens)
        return measure(subject, task, progress=progress)


def measure(subject: Subject, task: Evaluation, *, progress: Progress = untold) -> Importance:
    """The same on a task that is there already."""
    counts = count_heads(task.model, task.samples[0].inputs)
    heads = head_ids(task.places, counts)
    if not heads:
        raise OptionError(f"{subject.name} has no head left to measure")
    base = task.checked_loss(subject.name)
    progress(amount_of_work(task, len(heads)), 0, 0)
    units = single_heads(heads)
    means = mean_outputs(task.model, [sample.inputs for sample in task.samples])
    found = gradients(task, counts, draws=DRAWS, progress=progress)
    alike = alikeness(task, counts)
    groups = redundant_groups(found, alike)
    columns = place_columns(heads)
    columns |= pair_of("zero", ablate(task, units, counts, progress=progress))
    columns |= pair_of("mean", ablate(task, units, counts, means=means, progress=progress))
    columns |= score_columns(found)
    columns["stand_ins"] = [stand_ins(head, groups) for head in heads]
    layers = best_alone(task, heads, counts, base, progress=progress)
    about = subject.about | {
        "objective": task.objective.name,
        "unit": task.objective.unit,
        "loss": base.value,
        "loss_se": base.error if math.isfinite(base.error) else None,
        "examples": task.num_examples,
    }
    names = list(map(str, heads))
    matrix = pd.DataFrame(found.interaction.numpy(), index=names, columns=names)
    return Importance(HeadTable(pd.DataFrame(columns), about), matrix, groups, layers)


def amount_of_work(task: Evaluation, heads: int) -> str:
    """How much there is to measure, in words."""
    batches = counted_batches(len(task.samples))
    return f"measuring {format_count(heads, 'head')} on {task.amount} in {batches}"


def place_columns(heads: Sequence[HeadId]) -> dict[str, list[Any]]:
    """The columns that say which head a row is of."""
    return {
        "stack": [head.stack for head in heads],
        "layer": [head.layer for head in heads],
        "head": [head.head for head in heads],
    }


def pair_of(name: str, found: Sequence[Estimate]) -> dict[str, list[float]]:
    """A column of values and one of standard errors."""
    return {name: [one.value for one in found], f"{name}_se": [one.error for one in found]}


def score_columns(found: Gradients) -> dict[str, list[float]]:
    """Columns of what backward passes say."""
    return {
        "michel": found.michel.tolist(),
        "michel_se": found.michel_error.tolist(),
        "fisher": found.fisher.tolist(),
        "fisher_se": found.fisher_error.tolist(),
        "expected": found.expected.tolist(),
        "expected_se": found.expected_error.tolist(),
    }


def stand_ins(head: HeadId, groups: Sequence[Redundant]) -> str:
    """Names of the heads that stand in for one."""
    mine = [group.heads for group in groups if head in group.heads]
    return " ".join(str(other) for other in (mine[0] if mine else ()) if other != head)


def best_alone(
    task: Evaluation,
    heads: Sequence[HeadId],
    counts: HeadCounts,
    base: Estimate,
    *,
    progress: Progress = untold,
) -> pd.DataFrame:
    """For every layer the head that does best when it is the only one left there."""
    layers: dict[str, list[HeadId]] = {}
    for head in heads:
        layers.setdefault(head.layer_name, []).append(head)
    rows = []
    for number, (layer, own) in enumerate(layers.items()):
        progress("leaving one head a layer", number, len(layers))
        others = [Unit(tuple(one for one in own if one != head)) for head in own]
        costs = ablate(task, others, counts) if len(own) > 1 else [Estimate(0.0, 0.0)]
        best = min(range(len(own)), key=lambda one: costs[one].value)
        rows.append(
            {
                "layer": layer,
                "heads": len(own),
                "best": str(own[best]),
                "added": costs[best].value,
                "added_se": costs[best].error,
                "shown": task.objective.shown(base.value + costs[best].value),
            }
        )
    return pd.DataFrame(rows)
