"""Importance: how much a model needs each head on some text, by several measures.

In: a model and text. Out: `Importance`, with exact ablation (zero and mean), Michel's score, Fisher
information and the loss expected from the heads' interaction, each with a standard error; the
interaction itself; groups of heads that can replace each other; and the cost of leaving only one
head in each layer. `Importance` writes and reads its own folder.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from headwise.errors import OptionError, OutputError
from headwise.files import lock_folder, make_folder, write_aside
from headwise.formats import format_count, replace_nonfinite
from headwise.head_table import HeadTable
from headwise.heads import parse_heads
from headwise.models.loaded import LoadedModel, Source
from headwise.objectives.evaluation import Estimate, Evaluation, choose_batches, choose_texts
from headwise.objectives.objective import Objective
from headwise.objectives.scored_model import open_scored_model
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.ablation import ablate
from headwise.pruning.importance.gradients import gradients
from headwise.pruning.importance.redundancy import (
    RedundantHeads,
    output_similarity,
    redundant_groups,
)
from headwise.pruning.stages import PruneStage
from headwise.reading.batch import Inputs
from headwise.watching.gates import mean_outputs
from headwise.watching.running import in_evaluation

FILES = ("importance.parquet", "importance.csv", "interaction.csv", "layers.csv", "stand_ins.json")
LAYER_COLUMNS = ("layer", "heads", "best", "added", "added_se", "shown")


@dataclass(frozen=True, eq=False)
class Importance:
    """How much a model needs each head, by several measures."""

    table: HeadTable
    interaction: pd.DataFrame
    """G, indexed by head name. The loss expected from cutting some heads is half the sum of G over
    their rows and columns, minus the slopes of the loss in their gates."""
    groups: tuple[RedundantHeads, ...]
    layers: pd.DataFrame
    """For each layer, the head that does best alone and the loss that silencing the rest adds."""

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def to_json(self) -> str:
        """The tables and groups in one JSON document; numbers that are not finite become null."""
        return json.dumps(
            {
                "about": self.table.about,
                "heads": replace_nonfinite(self.table.df.drop(columns="roles").to_dict("records")),
                "layers": replace_nonfinite(self.layers.to_dict("records")),
                "stand_ins": _group_rows(self.groups),
            }
        )

    def write(self, folder: Path, *, force: bool = False) -> None:
        """Write each of `FILES` under a temporary name, then move it into place."""
        check_importance_folder(folder, force=force)
        make_folder(folder)
        for name in FILES[:2]:
            self.table.write(folder / name, force=True)
        write_aside(folder / "interaction.csv", self.interaction.to_csv())
        write_aside(folder / "layers.csv", self.layers.to_csv(index=False))
        write_aside(folder / "stand_ins.json", json.dumps(_group_rows(self.groups), indent=1))

    @classmethod
    def read(cls, folder: Path) -> "Importance":
        """The importance that `write` wrote to `folder`."""
        absent = [name for name in FILES[2:] if not (folder / name).is_file()]
        tables = [folder / name for name in FILES[:2] if (folder / name).is_file()]
        if absent or not tables:
            name = absent[0] if tables else FILES[0]
            raise OptionError(
                f"{folder} has no {name}: give a folder that headwise importance --out wrote"
            )
        table = HeadTable.read(tables[0])
        if "zero" not in table.df:
            raise OptionError(f"{tables[0]} is not an importance table: it has no column zero")
        file = folder / "interaction.csv"
        try:
            interaction = pd.read_csv(file, index_col=0)
            if not set(map(str, table.heads)) <= {*interaction.index} & {*interaction.columns}:
                raise ValueError("it lacks some of the heads in the table")
            file = folder / "layers.csv"
            layers = pd.read_csv(file, dtype={"shown": str})
            if not set(LAYER_COLUMNS) <= set(layers):
                raise ValueError(f"its columns are {', '.join(map(str, layers))}")
            file = folder / "stand_ins.json"
            groups = [
                RedundantHeads(**{**group, "heads": parse_heads(" ".join(group["heads"]))})
                for group in json.loads(file.read_text("utf-8"))
            ]
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise OptionError(f"{file} cannot be read: {error}") from error
        return cls(table, interaction, tuple(groups), layers)


def _group_rows(groups: Sequence[RedundantHeads]) -> list[dict[str, Any]]:
    return [asdict(group) | {"heads": [str(head) for head in group.heads]} for group in groups]


def check_importance_folder(folder: Path, *, force: bool) -> None:
    """Raise if `folder` is a file, or if it has one of `FILES` and `force` is False."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file: give the name of a folder")
    existing = [name for name in FILES if (folder / name).exists()]
    if existing and not force:
        raise OutputError(
            f"{folder} already has {existing[0]}: choose another folder, or replace the tables "
            "with --force (force=True in Python)"
        )


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
    progress: Progress = no_progress,
) -> Importance:
    """Measure how much the model needs each head on `texts`, or on `batches` of model inputs.

    `objective` is an objective or a function that maps model and inputs to one loss per example; by
    default, the model's class decides it. Without texts and batches, the built-in texts are used.
    With `keeps_texts_whole`, each text is an example of its own, as in `PruneSettings`.
    If `out` is set, the tables are also written to that folder; `force` replaces existing ones.
    """
    folder = None if out is None else Path(out).expanduser()
    with ExitStack() as stack:
        if folder is not None:
            check_importance_folder(folder, force=force)
            make_folder(folder)
            stack.enter_context(lock_folder(folder))
        scored = open_scored_model(source, tokenizer, objective)
        stack.enter_context(in_evaluation(scored.model))
        if batches is not None:
            inputs = choose_batches(scored.model, batches, texts)
            evaluation = Evaluation.of_batches(scored.model, scored.objective, inputs)
        else:
            documents = choose_texts(texts, keeps_whole=keeps_texts_whole)
            evaluation = Evaluation.of_texts(
                scored, documents, max_tokens=max_tokens, keeps_whole=keeps_texts_whole
            )
        measured = measure_importance(scored, evaluation, progress=progress)
        if folder is not None:
            measured.write(folder, force=force)
        return measured


def measure_importance(
    loaded: LoadedModel, evaluation: Evaluation, *, progress: Progress = no_progress
) -> Importance:
    """Measure how much an evaluation's loss depends on each head."""
    heads = evaluation.heads
    if not heads:
        raise OptionError(f"{loaded.name} has no heads left: there is nothing to measure")
    base = evaluation.finite_loss(loaded.name)
    size = f"{format_count(len(heads), 'head')} on {evaluation.describe_size()}"
    batches = len(evaluation.samples)
    progress(f"measuring {size} in {batches:,} batch{'' if batches == 1 else 'es'}", 0, 0)
    units = [(head,) for head in heads]
    means = mean_outputs(evaluation.model, [sample.inputs for sample in evaluation.samples])
    scores = gradients(evaluation, progress=progress)
    groups = redundant_groups(scores, output_similarity(evaluation))
    zero = ablate(evaluation, units, progress=progress)
    mean = ablate(evaluation, units, means=means, progress=progress)
    columns = pd.DataFrame(
        {name: [getattr(head, name) for head in heads] for name in ("stack", "layer", "head")}
    )
    for name, losses in (("zero", zero), ("mean", mean)):
        columns[[name, f"{name}_se"]] = losses
    for name in ("michel", "fisher", "expected"):
        columns[name] = getattr(scores, name).tolist()
        columns[f"{name}_se"] = getattr(scores, f"{name}_error").tolist()
    stand_ins = {
        head: " ".join(str(other) for other in group.heads if other != head)
        for group in groups
        for head in group.heads
    }
    columns["stand_ins"] = [stand_ins.get(head, "") for head in heads]
    about = {
        "model": loaded.name,
        **loaded.about,
        "objective": evaluation.objective.description,
        "unit": evaluation.objective.unit,
        "loss": base.value,
        "loss_se": base.error if math.isfinite(base.error) else None,
        "examples": evaluation.num_examples,
    }
    names = list(map(str, heads))
    interaction = pd.DataFrame(scores.interaction.numpy(), index=names, columns=names)
    layers = _best_alone(evaluation, base, progress)
    return Importance(HeadTable(columns, about), interaction, groups, layers)


def _best_alone(evaluation: Evaluation, base: Estimate, progress: Progress) -> pd.DataFrame:
    objective, rows = evaluation.objective, []
    layers = [list(heads) for _, heads in groupby(evaluation.heads, attrgetter("layer_name"))]
    for number, heads in enumerate(layers):
        progress(PruneStage.BEST_ALONE, number, len(layers))
        others = [tuple(other for other in heads if other != head) for head in heads]
        costs = ablate(evaluation, others) if len(heads) > 1 else [Estimate(0.0, 0.0)]
        best, added = min(zip(heads, costs, strict=True), key=lambda pair: pair[1].value)
        quality = objective.quality(base.value + added.value)
        shown = f"{quality:.{2 if objective.unit == 'perplexity' else 4}f}"
        rows.append((best.layer_name, len(heads), str(best), added.value, added.error, shown))
    return pd.DataFrame(rows, columns=LAYER_COLUMNS)
