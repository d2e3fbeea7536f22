"""The heads that find gold relations best, as a table for the terminal, and what is said of it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from headwise.probes.tables import best_heads
from headwise.wording import counted

SHOWN = {
    "relation": "relation",
    "name": "head",
    "reading": "reading",
    "held_out_accuracy": "found",
    "held_out_baseline": "baseline",
    "accuracy": "on all",
    "interval": "95% range",
    "arcs": "arcs",
}
SOURCES = ("probe", "treebank")
"""Where sentences with gold relations come from."""
UNSTABLE = "*"
"""Behind a head that one half of the sentences would not have chosen."""
OF_TWO = (
    "the two halves of the sentences choose different heads or readings, and found and baseline "
    "are the means of both"
)


def leaders(relations: pd.DataFrame) -> Table:
    """For each relation its strongest head: how often it finds the partner, beside the baseline.

    `found` and `baseline` are of the head chosen in one half of the sentences, judged in the other.
    """
    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for title in SHOWN.values():
        is_text = title in ("relation", "head", "reading")
        drawn.add_column(title, justify="left" if is_text else "right")
    for _, row in best_of_each(relations).iterrows():
        drawn.add_row(
            Text(row["label"]),
            Text(row["marked"]),
            row["reading"],
            f"{row['held_out_accuracy']:.1%}",
            f"{row['held_out_baseline']:.1%}",
            f"{row['accuracy']:.1%}",
            f"{row['low']:.0%} to {row['high']:.0%}",
            f"{row['arcs']:,}",
        )
    return drawn


def notes(relations: pd.DataFrame) -> list[str]:
    """What the figures of `leaders` are."""
    said = [
        "found, baseline: of the head and the baseline that lead in one half of the sentences, "
        "judged in the other; on all: the head named, on every sentence, flattered by the choice."
    ]
    if not best_of_each(relations)["is_stable"].all():
        said.append(f"{UNSTABLE} {OF_TWO}.")
    return said


def best_of_each(relations: pd.DataFrame) -> pd.DataFrame:
    """`best_heads` of every source; `label` names the relation, `marked` the head with its mark."""
    names = relations.drop_duplicates("head").set_index("head")["name"]
    frames = []
    for source, rows in relations.groupby("source", sort=False):
        best = best_heads(rows.drop(columns=["source", "name"]))
        behind = "" if source == "probe" else f" ({source})"
        marks = [("" if is_stable else UNSTABLE) for is_stable in best["is_stable"]]
        best["label"] = [f"{relation}{behind}" for relation in best["relation"]]
        best["marked"] = [f"{names[h]}{mark}" for h, mark in zip(best["head"], marks, strict=True)]
        frames.append(best)
    return pd.concat(frames, ignore_index=True)


def left_out(about: Mapping[str, Any]) -> list[str]:
    """How many sentences with gold relations could not be read, and why; nothing if all could."""
    counts, settings = (
        part if isinstance(part, Mapping) else {}
        for part in (about.get("counts"), about.get("settings"))
    )
    out, read = (
        sum(counts.get(f"{source}_{kind}", 0) for source in SOURCES)
        for kind in ("unusable", "sentences")
    )
    if not out:
        return []
    length = settings.get("length")
    room = "the model" if length is None else f"a length of {counted(length, 'token')}"
    return [
        f"{out:,} of {counted(out + read, 'sentence')} with known relations "
        f"{'was' if out == 1 else 'were'} left out: too long for {room}, or with a word without "
        "a token."
    ]
