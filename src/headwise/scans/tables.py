"""Tables: from a scan's sums to the head table, the pairs of heads and the relations.

In: a tally. Out: data frames. Everything that is divided, compared or named is so here, once.
"""

from typing import Any

import numpy as np
import pandas as pd

from headwise.heads import HeadId, HeadTable
from headwise.measures.offsets import OFFSETS
from headwise.measures.similarity import cka
from headwise.scans.role_decisions import Verdict, relation_roles, with_roles
from headwise.scans.sums import ScanSums, in_order


def head_ids(tally: ScanSums) -> list[HeadId]:
    """Every head that was counted: stacks as they came, layers and heads in order."""
    keys = in_order(tally.num_heads)
    return [
        HeadId(layer, head, stack)
        for stack, layer in keys
        for head in range(tally.num_heads[stack, layer])
    ]


def measured(tally: ScanSums) -> pd.DataFrame:
    """Means of every column for every head, and standard errors where rows were sampled."""
    heads = head_ids(tally)
    place = {head: row for row, head in enumerate(heads)}
    columns: dict[str, Any] = {
        "stack": [head.stack for head in heads],
        "layer": [head.layer for head in heads],
        "head": [head.head for head in heads],
    }
    for name in tally.totals.columns():
        means, errors = np.full(len(heads), np.nan), np.full(len(heads), np.nan)
        for stack, layer in tally.totals.keys():
            found = tally.totals.means((stack, layer), name)
            spread = tally.totals.errors((stack, layer), name)
            if found is None or spread is None:
                continue
            start = place[HeadId(layer, 0, stack)]
            means[start : start + len(found)] = found
            errors[start : start + len(found)] = spread
        columns[name] = means
        if ((errors != 0) & ~np.isnan(means)).any():
            columns[f"{name}_se"] = errors
    return pd.DataFrame(columns)


REQUIRED_COLUMNS = (
    *("entropy", "normalised_entropy", "previous", "next", "self", "first", "first4", "special"),
    *("punctuation", "distance", "signed_distance", "duplicate", "induction", "confidence"),
    "output_share",
)
"""Columns that every table has, if with nothing in them."""


DERIVED_COLUMNS = {
    "induction": "Mean weight on the tokens that followed earlier copies of the query's token, in "
    "repeated random tokens, 0 to 1.",
    "value_induction": "Share of the value-weighted attention on the same, 0 to 1.",
    "uniform_induction": "The induction mass of a head with equal weights, 0 to 1.",
    "best_offset": "The offset from -4 to 4 that gets the most weight.",
    "best_offset_share": "Mean weight at that offset, 0 to 1.",
    "largest_offset": "The offset from -4 to 4 at which the largest weight lies most often.",
    "largest_offset_share": "Share of the rows in which it does, 0 to 1.",
    "nearest": "The head of the stack whose outputs are most like its own.",
    "nearest_cka": "How alike they are: CKA, 1 for outputs that differ by a rotation.",
}
"""What columns mean that are no measure's own."""


def with_promised(df: pd.DataFrame) -> pd.DataFrame:
    """The table with every promised column; NaN where the model or the text has no such thing."""
    whole = df.copy()
    for name in REQUIRED_COLUMNS:
        if name not in whole:
            whole[name] = np.nan
    return whole


def with_best_offset(df: pd.DataFrame) -> pd.DataFrame:
    """The offset that gets most of each head's attention, and where the largest weights lie."""
    result = df
    for prefix, name in (("", "best_offset"), ("largest_", "largest_offset")):
        known = [one for one in OFFSETS if f"{prefix}{one}" in df]
        if not known:
            continue
        shares = df[[f"{prefix}{one}" for one in known]].fillna(-1).to_numpy()
        best = shares.argmax(1)
        offsets = np.array([OFFSETS[one] for one in known])
        has_any = shares.max(1) >= 0
        result = result.assign(
            **{
                name: np.where(has_any, offsets[best], np.nan).astype(float),
                f"{name}_share": np.where(has_any, shares.max(1), np.nan),
            }
        )
    return result


def pairs(tally: ScanSums) -> pd.DataFrame:
    """Every pair of heads of a stack: CKA of their outputs, and in a layer their divergence."""
    heads, frames = head_ids(tally), []
    for stack, hsic in tally.hsic.items():
        own = [str(head) for head in heads if head.stack == stack]
        layers = np.array([head.layer for head in heads if head.stack == stack])
        alike = cka(hsic).numpy()
        apart = np.full_like(alike, np.nan)
        for (its_stack, layer), found in tally.divergence.items():
            if its_stack == stack:
                rows = np.flatnonzero(layers == layer)
                apart[np.ix_(rows, rows)] = (found[:-1] / found[-1]).numpy()
        first, second = np.triu_indices(len(own), 1)
        names = np.array(own)
        frames.append(
            pd.DataFrame(
                {
                    "a": names[first],
                    "b": names[second],
                    "cka": alike[first, second],
                    "divergence": apart[first, second],
                }
            )
        )
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def with_nearest(df: pd.DataFrame, tally: ScanSums) -> pd.DataFrame:
    """The head whose outputs are most like each head's own, and how alike they are."""
    heads = head_ids(tally)
    nearest, alike = [""] * len(heads), np.full(len(heads), np.nan)
    for stack, hsic in tally.hsic.items():
        rows = [row for row, head in enumerate(heads) if head.stack == stack]
        found = cka(hsic).numpy().copy()
        np.fill_diagonal(found, -np.inf)
        found = np.where(np.isnan(found), -np.inf, found)
        for row, alikes in zip(rows, found, strict=True):
            other = alikes.argmax()
            best = alikes[other]
            if np.isfinite(best):
                nearest[row], alike[row] = str(heads[rows[other]]), best
    return df.assign(nearest=nearest, nearest_cka=alike) if tally.hsic else df


def relations(tally: ScanSums) -> pd.DataFrame:
    """Every relation, reading and head of every source of sentences, heads by name."""
    heads, frames = head_ids(tally), []
    for source, scores in tally.relations.items():
        origin, stack = source.split("|")
        own = [row for row, head in enumerate(heads) if head.stack == stack]
        frame = scores.table()
        frame.insert(0, "source", origin)
        frame.insert(3, "name", [str(heads[own[number]]) for number in frame["head"]])
        frame["head"] = [own[number] for number in frame["head"]]
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def head_table(tally: ScanSums, found: pd.DataFrame, about: dict[str, Any]) -> HeadTable:
    """The table that a scan gives; `found` are its relations."""
    df = with_nearest(with_best_offset(with_promised(measured(tally))), tally)
    decided: dict[str, Verdict] = {}
    if len(found) > 0:
        decided = relation_roles(found, len(df))
    return HeadTable(with_roles(df, decided), about)
