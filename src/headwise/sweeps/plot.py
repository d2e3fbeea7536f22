"""Plot: what models can do against their heads, with the range over seeds as bars."""

import math
from typing import TYPE_CHECKING

from headwise.drawing.plots import Line, curves_svg
from headwise.formats import format_count

if TYPE_CHECKING:
    import pandas as pd

    from headwise.sweeps.results import Sweep

NAMES = {
    "split": "d_key = d_model / heads",
    "free": "d_key {width} for every head",
    "big": "one head, parameters of so many",
    "narrow": "one head, values of d_model",
}


def sweep_svg(found: "Sweep") -> str:
    """Accuracy against the number of heads; against d_key where that is what differs."""
    table, settings = found.summary, found.settings
    told = {name: one for name, one in settings.task.settings().items() if one != ""}
    about = ", ".join(f"{name} {value}" for name, value in told.items())
    lines = [line_of(group, table[table["group"] == group], found) for group in settings.groups]
    counts = sorted({2**x for line in lines for x, _ in line.points})
    layers = format_count(settings.recipe.layers, "layer")
    return curves_svg(
        lines,
        title=f"{settings.task.name} ({about}); d_model {settings.recipe.d_model}, {layers}; "
        f"mean, lowest and highest of {settings.seeds} seeds",
        x_label="numbers in a head's keys (d_key)" if is_by_width(found) else "heads",
        y_label="held-out accuracy",
        levels=((1 / settings.task.num_answers, "chance"),),
        x_names=tuple((math.log2(one), f"{one:g}") for one in counts),
    )


def is_by_width(found: "Sweep") -> bool:
    """Whether the width of keys is what differs: of narrow heads nothing else does."""
    return "narrow" in found.settings.groups


def line_of(group: str, rows: "pd.DataFrame", found: "Sweep") -> Line:
    """One group's means, and the lowest and highest seed around each, on an axis of powers of 2."""
    points, spread = [], []
    for _, row in rows.sort_values(["num_heads", "d_key"]).iterrows():
        heads = row["d_key"] / found.settings.width if group == "big" else row["num_heads"]
        x = row["d_key"] if is_by_width(found) else heads
        points.append((math.log2(x), float(row["accuracy"])))
        spread.append((float(row["lowest"]), float(row["highest"])))
    name = NAMES[group].format(width=found.settings.width)
    return Line(name, tuple(points), tuple(spread), has_bars=True)
