"""The report's sections on relations between words, and on heads with similar outputs."""

import math

import pandas as pd

from headwise.drawing.html import Html, bar_html, section, tag
from headwise.drawing.table import Table
from headwise.formats import format_number, format_share
from headwise.report.data import ReportData
from headwise.report.roles_section import READINGS
from headwise.views.heads import HALVES_DIFFER, UNSTABLE, best_of_each, skipped_sentences

MOST_PAIRS = 10


def relations_section(data: ReportData) -> Html:
    """The strongest head for each gold relation, and its baseline."""
    name, title = "relations", "Relations between words"
    skipped = [tag("p", line, class_="limit") for line in skipped_sentences(data.table.about)]
    if data.scan.relations.empty:
        none = tag("p", "This scan read no sentences with known relations.")
        return section(name, title, none, *skipped)
    best = best_of_each(data.scan.relations)
    columns = ("relation", "head", "found", "baseline", "bar", "beats baseline", "95% interval")
    table = Table(
        "Strongest head for each relation. Found and baseline: the head and the guess that are "
        "best on one half of the sentences, measured on the other half. Interval: the named head "
        "on all sentences.",
        (*columns, "arcs", "reading"),
        [_relation_row(row) for _, row in best.iterrows()],
        ["found", "baseline", "95% interval", "arcs"],
    )
    return section(
        name,
        title,
        tag(
            "p",
            "In sentences whose grammar is known, a head finds a relation if its largest weight is "
            "on the right partner. The mark on a bar is the baseline: the share found by the "
            "best simple guess, such as the next word. Only the part above it is due to the head.",
        ),
        table.to_html(),
        "" if best["is_stable"].all() else tag("p", f"{UNSTABLE} Here {HALVES_DIFFER}."),
        *skipped,
    )


def _relation_row(row: pd.Series) -> tuple[str, ...]:
    accuracy, guess = row["held_out_accuracy"], row["held_out_baseline"]
    label = f"{format_share(accuracy)} found, {format_share(guess)} by the best simple guess"
    return (
        row["label"],
        row["marked"],
        format_share(accuracy),
        format_share(guess),
        bar_html(accuracy, guess, label),
        "yes" if row["counts"] else "no",
        f"{format_share(row['low'])} to {format_share(row['high'])}",
        f"{row['arcs']:,}",
        READINGS.get(row["reading"], row["reading"]),
    )


def rank_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs of heads whose CKA is known, the largest first."""
    if pairs.empty:
        return pd.DataFrame(columns=["a", "b", "cka", "divergence"])
    return pairs.dropna(subset=["cka"]).sort_values("cka", ascending=False, kind="stable")


def similarity_section(data: ReportData, stand_ins: Html) -> Html:
    """Pairs of heads with similar outputs, then the part on heads that stand in for each other."""
    roles = dict(zip(map(str, data.table.heads), data.table.df["roles"], strict=True))
    rows = []
    for _, pair in rank_pairs(data.scan.pairs).head(MOST_PAIRS).iterrows():
        heads = (
            f"{head} ({', '.join(roles[head])})" if roles.get(head) else head
            for head in (pair["a"], pair["b"])
        )
        numbers = format_number(pair["cka"]), format_number(pair.get("divergence"))
        rows.append((*heads, *numbers, bar_html(pair["cka"], math.nan, f"CKA {pair['cka']:.2f}")))
    columns = ("head", "other head", "CKA", "divergence", "CKA, 0 to 1")
    table = Table("The most similar pairs", columns, rows, columns[2:4])
    return section(
        "alike",
        "Similar heads",
        tag(
            "p",
            "CKA compares the outputs of two heads on the same tokens: 0 means nothing in common, "
            "1 the same up to rotation and scale. Divergence compares where two heads in a layer "
            "look: 0 means the same places, 0.69 no place in common. Similar heads are not "
            "necessarily redundant.",
        ),
        table.to_html() or tag("p", "This scan did not compare heads with each other."),
        stand_ins,
    )
