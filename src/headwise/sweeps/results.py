"""Results: what a sweep has found, as tables, and the one line that its figures come down to.

In: records of runs. Out: data frames and files. No figure is computed anywhere else.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.files import write_aside
from headwise.formats import format_count, replace_nonfinite
from headwise.sweeps.plot import sweep_svg
from headwise.sweeps.runs import RunRecord
from headwise.sweeps.settings import SweepSettings

KEYS = ["group", "num_heads", "d_key", "d_value"]
FILES = ("runs.csv", "heads.csv", "summary.csv", "sweep.json", "sweep.svg")
CLOSE = 0.01
"""Accuracies no further apart than this are called the same."""
LEARNED = 0.1
"""Part of the way from a guess to 1 that the best model has to have come to be called one that has
learned; differences below it are of seeds as often as of heads."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """Every run of a sweep."""

    settings: SweepSettings
    records: tuple[RunRecord, ...] = field(repr=False)
    pilots: tuple[RunRecord, ...] = field(repr=False, default=())
    """The runs that chose learning rates: not among the results."""

    @property
    def runs(self) -> pd.DataFrame:
        """A row a run: what was trained and what it could do."""
        rows = []
        for record in self.records:
            row = {key: record[key] for key in [*KEYS, "rate", "seed", "steps", "is_solved"]}
            row |= {"accuracy": record["accuracy"], "loss": record["loss"]}
            row |= {f"accuracy_{name}": one for name, one in record["by_question"].items()}
            row |= {name: mean_of_heads(record, name) for name in ("entropy", "largest")}
            roles = {role for one in record["heads"] for role in one["roles"]}
            row["roles"] = " ".join(sorted(roles))
            row["parameters"] = record["parameters"]
            rows.append(row)
        return pd.DataFrame(rows)

    @property
    def heads(self) -> pd.DataFrame:
        """A row a head of every run: how sharp it is, its roles, and where it looks."""
        rows = []
        for record in self.records:
            for head in record["heads"]:
                row = {key: record[key] for key in [*KEYS, "seed"]} | {"head": head["head"]}
                row |= {"entropy": head["entropy"], "largest": head["largest"]}
                row |= {"roles": " ".join(head["roles"])}
                rows.append(row | {f"on_{name}": one for name, one in head["looks"].items()})
        return pd.DataFrame(rows)

    @property
    def summary(self) -> pd.DataFrame:
        """A row a variant: mean, lowest and highest over the seeds."""
        grouped = self.runs.groupby(KEYS, sort=False)
        columns = {
            "seeds": grouped["seed"].count(),
            "accuracy": grouped["accuracy"].mean(),
            "lowest": grouped["accuracy"].min(),
            "highest": grouped["accuracy"].max(),
            "loss": grouped["loss"].mean(),
            "loss_lowest": grouped["loss"].min(),
            "loss_highest": grouped["loss"].max(),
            "steps": grouped["steps"].mean(),
            "entropy": grouped["entropy"].mean(),
            "largest": grouped["largest"].mean(),
            "rate": grouped["rate"].first(),
            "parameters": grouped["parameters"].first(),
        }
        return pd.DataFrame(columns).reset_index()

    def in_words(self) -> list[str]:
        """What the figures come down to, a sentence a group."""
        table, guess = self.summary, self.settings.task.best_guess
        return [
            sentence(group, table[table["group"] == group], guess)
            for group in self.settings.groups
            if (table["group"] == group).any()
        ]

    def as_json(self) -> dict[str, Any]:
        """Settings and summary, as JSON can hold them."""
        summary = replace_nonfinite(self.summary.to_dict("records"))
        steps = sum(one["steps"] for one in self.records)
        seconds = sum(one["seconds"] for one in self.records)
        return {
            "settings": self.settings.as_json(),
            "summary": summary,
            "in_words": self.in_words(),
            "steps_per_second": round(steps / seconds, 1) if seconds else None,
        }

    def svg(self) -> str:
        """Accuracy against heads as an image, with bars from the lowest to the highest seed."""
        return sweep_svg(self)

    _repr_svg_ = svg

    def write(self, folder: Path) -> None:
        """Every file of the sweep, beside the records."""
        for name, frame in (("runs", self.runs), ("heads", self.heads), ("summary", self.summary)):
            write_aside(folder / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g"))
        write_aside(folder / "sweep.json", json.dumps(self.as_json(), indent=1))
        write_aside(folder / "sweep.svg", self.svg())


def mean_of_heads(record: RunRecord, name: str) -> float:
    """The mean of one figure over all heads of a model."""
    found = [one[name] for one in record["heads"]]
    return float(sum(found) / len(found))


def sentence(group: str, rows: pd.DataFrame, guess: float) -> str:
    """What one group's figures say; which heads are enough only where some model has learned."""
    best = float(rows["accuracy"].max())
    enough = rows[rows["accuracy"] >= best - CLOSE]
    first, last = rows.iloc[0], rows.iloc[-1]
    fewest = enough.sort_values("parameters", kind="stable").iloc[0]
    if group in ("split", "free"):
        fewest = enough.sort_values("num_heads").iloc[0]
    shown = [first] if fewest.equals(first) else [first, fewest]
    shown += [] if last.equals(shown[-1]) else [last]
    parts = [f"{said(row)} {row['accuracy']:.3f}" for row in shown]
    close = f"fewest within {CLOSE} of the best, {best:.3f}: {said(fewest)}"
    if best < guess + LEARNED * (1 - guess):
        close = f"none has learned the task, for a guess gives {guess:.3f}: more steps may help"
    return f"{group}: {', '.join(parts)}; {close}"


def said(row: Any) -> str:
    """A variant in words."""
    return f"{format_count(int(row['num_heads']), 'head')} of {int(row['d_key'])}"


def best_rate(pilots: Sequence[RunRecord]) -> float:
    """The learning rate of the run with the lowest held-out loss; of equals the smallest."""

    def rank(one: RunRecord) -> tuple[float, float]:
        return (one["loss"] if math.isfinite(one["loss"]) else math.inf, one["rate"])

    return float(min(pilots, key=rank)["rate"])
