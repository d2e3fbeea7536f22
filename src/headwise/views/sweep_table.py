"""Sweep table: a row a variant, for the terminal."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from headwise.sweeps.results import Sweep


def summary_table(found: "Sweep") -> Table:
    """What each variant can do: mean, lowest and highest over the seeds."""
    settings = found.settings
    table = Table(
        title=f"{settings.task.name}, d_model {settings.recipe.d_model}, seeds {settings.seeds}",
        title_justify="left",
        caption="largest: mean of the largest weights; entropy: 0 one place, 1 all alike",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("group", no_wrap=True)
    for name in ("heads", "d_key", "accuracy", "lowest..highest", "steps"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("entropy", "largest", "rate"):
        table.add_column(name, justify="right", no_wrap=True)
    last = None
    for _, row in found.summary.iterrows():
        if last not in (None, row["group"]):
            table.add_section()
        last = row["group"]
        table.add_row(
            *(row["group"], f"{row['num_heads']}", f"{row['d_key']}", f"{row['accuracy']:.3f}"),
            *(f"{row['lowest']:.3f}..{row['highest']:.3f}", f"{row['steps']:,.0f}"),
            *(f"{row['entropy']:.2f}", f"{row['largest']:.2f}", f"{row['rate']:g}"),
        )
    return table
