"""Relations between words and heads that are alike, as sections of the report.

In: `Findings`. Out: HTML. A head stands beside what places alone achieve, and being alike is not
being needless.
"""

import math

import pandas as pd

from headwise.drawing.html import Html, bar, section, tag
from headwise.drawing.table import Table
from headwise.formats import format_number, format_share
from headwise.report.data import ReportData, number
from headwise.report.roles_section import READINGS
from headwise.views.heads import OF_TWO, UNSTABLE, best_of_each, left_out

PAIRS = 10


def relations(found: ReportData) -> Html:
    """The strongest head of each gold relation beside its baseline."""
    frame = found.relations
    missing = [tag("p", line, class_="limit") for line in left_out(found.table.about)]
    if frame is None or frame.empty:
        return section(
            "relations",
            "Relations between words",
            tag("p", "This scan read no sentences with known relations, so none are shown."),
            *missing,
        )
    rows = []
    best = best_of_each(frame)
    for _, row in best.iterrows():
        right, guess = float(row["held_out_accuracy"]), float(row["held_out_baseline"])
        said = f"{format_share(right)} found, {format_share(guess)} by the best of simple guesses"
        interval = f"{format_share(float(row['low']))} to {format_share(float(row['high']))}"
        means = READINGS.get(row["reading"], row["reading"])
        figures_ = (format_share(right), format_share(guess), bar(right, guess, said))
        verdict = "yes" if row["counts"] else "no"
        arcs = f"{int(row['arcs']):,}"
        rows.append((row["label"], row["marked"], *figures_, verdict, interval, arcs, means))
    mark = "" if best["is_stable"].all() else tag("p", f"{UNSTABLE} Here {OF_TWO}.")
    return section(
        "relations",
        "Relations between words",
        tag(
            "p",
            "In sentences whose grammar is known, a head finds a relation when its largest weight "
            "goes to the right partner. The mark on a bar is the baseline, what the best of simple "
            "guesses finds, such as the next word: only what lies beyond it is the head's own.",
        ),
        Table(
            "Strongest head of each relation; found and baseline are of what leads in one half of "
            "the sentences, judged in the other, and the interval is of this head in all",
            ("relation", "head", "found", "baseline", "drawn", "beats it", "95% interval", "arcs",
             "how it is read"),
            tuple(rows),
            frozenset({"found", "baseline", "95% interval", "arcs"}),
        ).to_html(),
        mark,
        *missing,
    )  # fmt: skip


def alike(pairs: pd.DataFrame | None) -> pd.DataFrame:
    """Pairs of heads, the most alike first."""
    if pairs is None:
        return pd.DataFrame(columns=["a", "b", "cka", "divergence"])
    return pairs.dropna(subset=["cka"]).sort_values("cka", ascending=False, kind="stable")


def redundancy(found: ReportData, stand_ins: object) -> Html:
    """Heads that are alike, and those that stand in for each other."""
    best = alike(found.pairs).head(PAIRS)
    roles_by = dict(zip(map(str, found.table.heads), found.table.df["roles"], strict=True))

    def named(head: str) -> str:
        return f"{head} ({', '.join(roles_by[head])})" if roles_by.get(head) else head

    rows = [
        (
            named(str(row["a"])),
            named(str(row["b"])),
            format_number(float(row["cka"])),
            format_number(number(row, "divergence")),
            bar(float(row["cka"]), math.nan, f"CKA {row['cka']:.2f}"),
        )
        for _, row in best.iterrows()
    ]
    none = "" if rows else tag("p", "This scan compared no heads with each other.")
    return section(
        "alike",
        "Heads that are alike",
        tag(
            "p",
            "CKA compares what two heads give on the same tokens: 0 is nothing in common, 1 is the "
            "same but for rotation and scaling. Divergence compares where two heads of a layer "
            "look: 0 is the same places, 0.69 no place in common. Being alike does not show that "
            "one of the two can go.",
        ),
        none,
        Table(
            "The most alike pairs",
            ("one", "other", "CKA", "divergence", "CKA of 1"),
            tuple(rows),
            frozenset({"CKA", "divergence"}),
        ).to_html(),
        stand_ins,
    )
