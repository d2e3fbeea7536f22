"""Curve: quality against number of heads cut, for several methods.

In: orders in which to cut heads, and examples that were not used to choose them. Out: a point for
every method and cut. The floor is the score with every head silent, and so without attention: judge
a cut by where it falls between the uncut model and the floor.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from headwise.drawing.plots import Line, curves_svg, elbow
from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.objectives.evaluation import Estimate, Evaluation
from headwise.objectives.objective import loss_in_unit
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.ablation import Unit
from headwise.pruning.importance.gradients import has_gradients
from headwise.pruning.selection.methods import (
    BY_GRADIENTS,
    CutOrder,
    CutSearch,
    order_units,
    with_seed,
)
from headwise.pruning.stages import PruneStage

RANDOM_ORDERS = 5
"""Number of random orders in the baseline."""
POINTS = 8
"""Number of cuts on a curve, excluding the empty and the full cut."""
COLUMNS = ("method", "cut", "share", "loss", "loss_se", "quality", "low", "high")
RIVALS = ("ablation", "michel")
"""Methods to compare with the chosen one."""


@dataclass(frozen=True, eq=False)
class Curve:
    """The loss of every method at every cut, on held-out text."""

    points: pd.DataFrame
    """Has `COLUMNS`. Rows for `random` are means over orders, with a range and a rounded `cut`."""
    uncut: Estimate
    floor: Estimate
    method: str
    unit: str
    total: int
    """Number of heads in the model."""

    @classmethod
    def read(cls, file: Path, method: str, unit: str, total: int) -> "Curve":
        """The curve in a CSV file that `as_csv` produced."""
        try:
            table = pd.read_csv(file)
        except (ValueError, OSError) as error:
            raise OptionError(f"{file} cannot be read: {error}") from error
        missing = [name for name in COLUMNS if name not in table]
        if missing:
            raise OptionError(f"{file} cannot be read: it has no column {missing[0]}")
        is_floor = table["method"] == "floor"
        ends = [table[table["cut"] == 0], table[is_floor]]
        if any(rows.empty for rows in ends):
            raise OptionError(f"{file} is not a full curve: it has no uncut model or no floor")
        uncut, floor = (Estimate(*map(float, rows[["loss", "loss_se"]].iloc[0])) for rows in ends)
        return cls(table[~is_floor], uncut, floor, method, unit, total)

    @property
    def elbow(self) -> int:
        """Number of heads cut at the elbow of the chosen method's curve; 0 if it is straight."""
        rows = self.points[self.points.method == self.method]
        cut = elbow(zip(rows.cut.astype(float), rows.loss, strict=True))
        return 0 if math.isnan(cut) else int(cut)

    def with_point(self, method: str, cut: int, loss: Estimate) -> "Curve":
        """The curve with one more measurement, for instance of a refitted model."""
        row = _row(method, cut, loss, self.total, self.unit)
        return replace(self, points=pd.concat([self.points, pd.DataFrame([row])]))

    def svg(self, title: str) -> str:
        """The curves as an SVG image."""
        lines = []
        for method, rows in self.points.groupby("method", sort=False):
            is_random = method == "random"
            points = tuple(zip(rows.share, rows.quality, strict=True))
            spread = tuple(zip(rows.low, rows.high, strict=True)) if is_random else None
            lines.append(Line(str(method), points, spread, is_dashed=is_random))
        return curves_svg(
            lines,
            title=title,
            x_label="heads cut",
            y_label=self.unit,
            marks=((self.elbow / self.total, "elbow"),) if self.elbow else (),
            levels=(
                (loss_in_unit(self.uncut.value, self.unit), "uncut"),
                (loss_in_unit(self.floor.value, self.unit), "floor: every head silent"),
            ),
            is_percent_x=True,
            log_y=self.unit == "perplexity",
        )


def draw_curve(
    held_out: Evaluation, search: CutSearch, chosen: CutOrder, *, progress: Progress = no_progress
) -> Curve:
    """Measure the chosen order, its rivals, random orders and the floor on held-out text."""
    total, unit = len(search.heads), held_out.objective.unit
    most = len(search.cuttable)
    can_cut_all = most == len(search.units)
    spaced = {round(most * step / (POINTS + 1)) for step in range(1, POINTS + 1)} - {0, most}
    counts = sorted(spaced if can_cut_all else {*spaced, most})
    orders = {} if chosen.method == "random" else {chosen.method: chosen}
    orders |= {name: order_units(name, search) for name in rivals(search) if name not in orders}
    seeds = range(search.seed + 1, search.seed + RANDOM_ORDERS + 1)
    random_orders = [order_units("random", with_seed(search, seed)) for seed in seeds]
    measurements = len(counts) * (len(orders) + len(random_orders)) + 2 + can_cut_all
    done, known = itertools.count(), dict[frozenset[HeadId], Estimate]()

    def loss_without(units: Sequence[Unit]) -> Estimate:
        progress(PruneStage.CURVE, next(done), measurements)
        heads = frozenset(head for unit in units for head in unit)
        if heads not in known:
            known[heads] = held_out.loss(sorted(heads))
        return known[heads]

    uncut, floor = loss_without(()), loss_without([search.heads])
    methods = [*orders, "random"]
    rows = [_row(name, 0, uncut, total, unit) for name in methods]
    for count in counts:
        for name, order in orders.items():
            loss = loss_without(order.units[:count])
            rows.append(_row(name, len(order.first(count)), loss, total, unit))
        losses = [loss_without(order.units[:count]) for order in random_orders]
        cut = statistics.fmean(len(order.first(count)) for order in random_orders)
        values = [loss_in_unit(loss.value, unit) for loss in losses]
        row = _row("random", round(cut), mean_over_orders(losses), total, unit)
        rows.append(row | {"share": cut / total, "low": min(values), "high": max(values)})
    if can_cut_all:
        loss = loss_without(search.units)  # the floor, unless some heads are in no unit
        count = sum(len(unit) for unit in search.units)
        rows += [_row(name, count, loss, total, unit) for name in methods]
    rows.sort(key=lambda row: (methods.index(row["method"]), row["cut"]))
    return Curve(pd.DataFrame(rows), uncut, floor, chosen.method, unit, total)


def rivals(search: CutSearch) -> list[str]:
    """Methods to compare with the chosen one; without gradients, only those that need none."""
    is_smooth = has_gradients(search.evaluation)
    return [name for name in RIVALS if is_smooth or name not in BY_GRADIENTS]


def as_csv(curve: Curve) -> str:
    """CSV of every point and the floor, with a column that marks the elbow."""
    floor = _row("floor", curve.total, curve.floor, curve.total, curve.unit)
    table = pd.concat([curve.points, pd.DataFrame([floor])], ignore_index=True)
    table["is_elbow"] = (
        (table.method == curve.method) & (table.cut == curve.elbow) & (table.cut > 0)
    )
    return str(table.to_csv(index=False))


def _row(method: str, cut: int, loss: Estimate, total: int, unit: str) -> dict[str, Any]:
    quality = low = high = loss_in_unit(loss.value, unit)
    values = (method, cut, cut / total, loss.value, loss.error, quality, low, high)
    return dict(zip(COLUMNS, values, strict=True))


def mean_over_orders(losses: Sequence[Estimate]) -> Estimate:
    """Mean loss over random orders and its standard error; NaN if a loss is not finite."""
    values = [loss.value for loss in losses]
    is_finite = all(map(math.isfinite, values))
    error = statistics.stdev(values) / math.sqrt(len(values)) if is_finite else math.nan
    return Estimate(statistics.fmean(values), error)
