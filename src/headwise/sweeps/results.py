"""RunRecords -> Sweep: tables, sentences, a plot, and files with all of these."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.drawing.plots import Line, curves_svg
from headwise.drawing.table import Table
from headwise.files import write_aside
from headwise.formats import format_count, replace_nonfinite
from headwise.sweeps.runs import RunRecord
from headwise.sweeps.settings import SweepSettings

VARIANT = ["group", "num_heads", "d_key", "d_value"]
"""Columns that identify a variant."""
FILES = ("runs.csv", "heads.csv", "summary.csv", "sweep.json", "sweep.svg")
CLOSE = 0.01
"""Accuracies that differ by no more than this count as the same."""
LEARNED = 0.1
"""Share of the gap between a guess and perfect accuracy that the best model must close to count as
having learned the task; smaller gains are as likely to come from the seed as from the heads."""
LINE_NAMES = {
    "split": "d_key = d_model / heads",
    "free": "d_key {width} for every head",
    "big": "one head, same parameters",
    "narrow": "one head, values of d_model",
}
"""Names of the groups in the plot."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """Results of a sweep."""

    settings: SweepSettings
    records: tuple[RunRecord, ...] = field(repr=False)
    pilots: tuple[RunRecord, ...] = field(repr=False, default=())
    """The runs that the learning rates were chosen by; they are not part of the results."""

    @property
    def runs(self) -> pd.DataFrame:
        """One row per run: what was trained and how well it did."""
        runs_and_outcomes = [(record.run, record.outcome) for record in self.records]
        return pd.DataFrame(
            {
                **run.to_json(),
                "steps": outcome.steps,
                "is_solved": outcome.is_solved,
                "accuracy": outcome.accuracy,
                "loss": outcome.loss,
                **{f"accuracy_{name}": share for name, share in outcome.by_question.items()},
                "entropy": sum(head.entropy for head in outcome.heads) / len(outcome.heads),
                "largest": sum(head.largest for head in outcome.heads) / len(outcome.heads),
                "roles": " ".join(sorted({role for head in outcome.heads for role in head.roles})),
                "parameters": outcome.parameters,
            }
            for run, outcome in runs_and_outcomes
        )

    @property
    def heads(self) -> pd.DataFrame:
        """One row per head of every run: its sharpness, its roles, and where it attends."""
        return pd.DataFrame(
            {
                **asdict(record.run.variant),
                "seed": record.run.seed,
                "head": head.head,
                "entropy": head.entropy,
                "largest": head.largest,
                "roles": " ".join(head.roles),
                **{f"on_{name}": weight for name, weight in head.looks.items()},
            }
            for record in self.records
            for head in record.outcome.heads
        )

    @property
    def summary(self) -> pd.DataFrame:
        """One row per variant: mean, lowest and highest over the seeds."""
        grouped = self.runs.groupby(VARIANT, sort=False, as_index=False)
        return grouped.agg(
            seeds=("seed", "count"),
            accuracy=("accuracy", "mean"),
            lowest=("accuracy", "min"),
            highest=("accuracy", "max"),
            loss=("loss", "mean"),
            loss_lowest=("loss", "min"),
            loss_highest=("loss", "max"),
            steps=("steps", "mean"),
            entropy=("entropy", "mean"),
            largest=("largest", "mean"),
            rate=("rate", "first"),
            parameters=("parameters", "first"),
        )

    def in_words(self) -> list[str]:
        """One sentence per group: the fewest heads that are enough."""
        table, guess = self.summary, self.settings.task.best_guess
        groups = table.groupby("group", sort=False)
        return [_sentence(str(group), rows, guess) for group, rows in groups]

    def table(self) -> Table:
        """The summary for a terminal or a page."""
        settings = self.settings
        results = ("accuracy", "lowest..highest", "steps", "entropy", "largest", "rate")
        numeric = ("heads", "d_key", *results)
        rows = tuple(
            (
                row["group"],
                str(row["num_heads"]),
                str(row["d_key"]),
                f"{row['accuracy']:.3f}",
                f"{row['lowest']:.3f}..{row['highest']:.3f}",
                f"{row['steps']:,.0f}",
                f"{row['entropy']:.2f}",
                f"{row['largest']:.2f}",
                f"{row['rate']:g}",
            )
            for _, row in self.summary.iterrows()
        )
        title = f"{settings.task.name}, d_model {settings.recipe.d_model}, seeds {settings.seeds}"
        return Table(title, ("group", *numeric), rows, frozenset(numeric))

    def as_json(self) -> dict[str, Any]:
        """Settings and summary, as JSON values."""
        steps = sum(record.outcome.steps for record in self.records)
        seconds = sum(record.outcome.seconds for record in self.records)
        return {
            "settings": self.settings.as_json(),
            "summary": replace_nonfinite(self.summary.to_dict("records")),
            "in_words": self.in_words(),
            "steps_per_second": round(steps / seconds, 1) if seconds else None,
        }

    def svg(self) -> str:
        """Plot of accuracy against number of heads, with bars from the lowest to the highest seed.

        The x axis is d_key if the sweep has the group `narrow`, in which only d_key varies.
        """
        table, settings = self.summary, self.settings
        is_by_width = "narrow" in settings.groups
        lines = []
        for group in settings.groups:
            rows = table[table["group"] == group].sort_values(["num_heads", "d_key"])
            heads = rows["d_key"] / settings.width if group == "big" else rows["num_heads"]
            powers = [math.log2(x) for x in (rows["d_key"] if is_by_width else heads)]
            points = tuple(zip(powers, rows["accuracy"].tolist(), strict=True))
            spread = tuple(zip(rows["lowest"].tolist(), rows["highest"].tolist(), strict=True))
            name = LINE_NAMES[group].format(width=settings.width)
            lines.append(Line(name, points, spread, has_bars=True))
        task_settings = [
            f"{name} {value}" for name, value in settings.task.settings().items() if value != ""
        ]
        layers = format_count(settings.recipe.layers, "layer")
        return curves_svg(
            lines,
            title=f"{settings.task.name} ({', '.join(task_settings)}); "
            f"d_model {settings.recipe.d_model}, {layers}; "
            f"mean, lowest and highest of {settings.seeds} seeds",
            x_label="numbers in a head's keys (d_key)" if is_by_width else "heads",
            y_label="held-out accuracy",
            levels=((1 / settings.task.shape.num_answers, "chance"),),
            x_names=tuple(
                (x, f"{2**x:g}") for x in sorted({x for line in lines for x, _ in line.points})
            ),
        )

    _repr_svg_ = svg

    def write(self, folder: Path) -> None:
        """Write the sweep's tables, JSON file and plot to `folder`."""
        for name, frame in (("runs", self.runs), ("heads", self.heads), ("summary", self.summary)):
            write_aside(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g"))
        write_aside(folder / "sweep.json", json.dumps(self.as_json(), indent=1))
        write_aside(folder / "sweep.svg", self.svg())


def _sentence(group: str, rows: pd.DataFrame, guess: float) -> str:
    """Accuracies of one group and, if a model has learned, the fewest heads that are enough."""
    best = float(rows["accuracy"].max())
    by = "num_heads" if group in ("split", "free") else "parameters"
    fewest = rows[rows["accuracy"] >= best - CLOSE].sort_values(by, kind="stable").iloc[0]
    accuracies = {_heads(row): row["accuracy"] for row in (rows.iloc[0], fewest, rows.iloc[-1])}
    figures = ", ".join(f"{heads} {accuracy:.3f}" for heads, accuracy in accuracies.items())
    verdict = f"fewest within {CLOSE} of the best, {best:.3f}: {_heads(fewest)}"
    if best < guess + LEARNED * (1 - guess):
        verdict = f"none learned the task, on which a guess reaches {guess:.3f}: try more steps"
    return f"{group}: {figures}; {verdict}"


def _heads(row: pd.Series) -> str:
    return f"{format_count(int(row['num_heads']), 'head')} of {int(row['d_key'])}"


def best_rate(pilots: Sequence[RunRecord]) -> float:
    """Learning rate of the run with the lowest held-out loss; ties go to the smallest rate."""
    losses = [(pilot.outcome.loss, pilot.run.rate) for pilot in pilots]
    return min((loss if math.isfinite(loss) else math.inf, rate) for loss, rate in losses)[1]
