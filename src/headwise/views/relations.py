"""The heads that find gold relations best, as a table for the terminal."""

import pandas as pd
from rich.table import Table

from headwise.probes.tables import best_heads

SHOWN = {
    "relation": "relation",
    "name": "head",
    "reading": "reading",
    "held_out_accuracy": "found",
    "held_out_baseline": "baseline",
    "accuracy": "on all",
    "interval": "95% interval",
    "arcs": "arcs",
}


def leaders(relations: pd.DataFrame) -> Table:
    """For each relation its strongest head: how often it finds the partner, beside the baseline.

    `found` and `baseline` are judged on sentences that did not choose the head or the baseline.
    """
    names = relations.drop_duplicates("head").set_index("head")["name"]
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for title in SHOWN.values():
        is_text = title in ("relation", "head", "reading")
        drawn.add_column(title, justify="left" if is_text else "right")
    for source, rows in relations.groupby("source", sort=False):
        best = best_heads(rows.drop(columns=["source", "name"]))
        for _, row in best.iterrows():
            label = row["relation"] if source == "probe" else f"{row['relation']} ({source})"
            drawn.add_row(
                label,
                names[row["head"]],
                row["reading"],
                f"{row['held_out_accuracy']:.1%}",
                f"{row['held_out_baseline']:.1%}",
                f"{row['accuracy']:.1%}",
                f"{row['low']:.0%} to {row['high']:.0%}",
                f"{row['arcs']:,}",
            )
    return drawn
