"""Build the head table, the table of head pairs and the relation table from a scan's sums.

In: sums. Out: data frames. role_decisions.py decides which head has which role.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.measures.counter import MEASURES
from headwise.measures.head_sums import HeadSums, mean_and_error
from headwise.measures.measure import Measure
from headwise.measures.offsets import OFFSETS
from headwise.measures.similarity import cka
from headwise.scans.role_decisions import decide_roles
from headwise.scans.sums import ScanSums

REQUIRED_COLUMNS = (
    *("entropy", "normalised_entropy", "previous", "next", "self", "first", "first4", "special"),
    *("punctuation", "distance", "signed_distance", "duplicate", "induction", "confidence"),
    "output_share",
)
"""Columns in every table; NaN if a column does not apply to the model or the text."""

DERIVED_COLUMNS = {
    "induction": "Mean weight on the tokens that followed earlier copies of the query's token, in "
    "repeated random tokens, 0 to 1.",
    "value_induction": "Share of the value-weighted attention on the tokens that induction counts, "
    "0 to 1.",
    "uniform_induction": "The induction mass of a head with equal weights, 0 to 1.",
    "best_offset": "The offset from -4 to 4 that gets the most weight.",
    "best_offset_share": "Mean weight at best_offset, 0 to 1.",
    "largest_offset": "The offset from -4 to 4 that most often has the row's largest weight.",
    "largest_offset_share": "Share of the rows whose largest weight is at largest_offset, 0 to 1.",
    "nearest": "The head in the same stack whose outputs are most like this head's.",
    "nearest_cka": "CKA of this head's and the nearest head's outputs: 1 if equal up to rotation.",
}
"""Meaning of the columns that no measure describes."""


def column_meanings(measures: Iterable[str | type[Measure]] = ()) -> dict[str, str]:
    """Meaning of every column except roles and standard errors; `measures` adds your own."""
    kinds = (*MEASURES.values(), *(kind for kind in measures if not isinstance(kind, str)))
    return {name: words for kind in kinds for name, words in kind.columns.items()} | DERIVED_COLUMNS


def head_table(
    sums: HeadSums, about: Mapping[str, Any], relations: pd.DataFrame | None = None
) -> HeadTable:
    """A table of all measured heads, with roles decided by their measures and by `relations`."""
    df = _add_nearest(_add_best_offset(_mean_columns(sums)), sums)
    return HeadTable(decide_roles(df, relations), dict(about))


def _heads(sums: HeadSums) -> list[HeadId]:
    """Every head, ordered by stack (in order of first appearance), layer and head."""
    stacks = list(dict.fromkeys(stack for stack, _ in sums.num_heads))
    layers = sorted(sums.num_heads, key=lambda key: (stacks.index(key[0]), key[1]))
    return [
        HeadId(layer, head, stack)
        for stack, layer in layers
        for head in range(sums.num_heads[stack, layer])
    ]


def _mean_columns(sums: HeadSums) -> pd.DataFrame:
    """Mean of every column for every head, and standard errors if rows were sampled."""
    heads = _heads(sums)
    row_of = {head: row for row, head in enumerate(heads)}
    columns: dict[str, Any] = {
        name: [getattr(head, name) for head in heads] for name in ("stack", "layer", "head")
    }
    by_column: dict[str, NDArray[np.float64]] = {}
    for ((stack, layer), name), parts in sums.columns.items():
        means_and_errors = by_column.setdefault(name, np.full((2, len(heads)), np.nan))
        first = row_of[HeadId(layer, 0, stack)]
        means_and_errors[:, first : first + parts.shape[1]] = mean_and_error(parts)
    for name, (means, errors) in by_column.items():
        columns[name] = means
        if ((errors != 0) & ~np.isnan(means)).any():
            columns[f"{name}_se"] = errors
    required = {name: np.nan for name in REQUIRED_COLUMNS if name not in columns}
    return pd.DataFrame(columns | required)


def _add_best_offset(df: pd.DataFrame) -> pd.DataFrame:
    """For each head, add the offset with the most weight and the one with the most row maxima."""
    for prefix, name in (("", "best_offset"), ("largest_", "largest_offset")):
        offsets = {prefix + key: place for key, place in OFFSETS.items() if prefix + key in df}
        if offsets:
            shares = df[list(offsets)].fillna(-1).to_numpy()
            best = np.array(list(offsets.values()))[shares.argmax(1)]
            is_known = shares.max(1) >= 0
            df[name] = np.where(is_known, best, np.nan).astype(float)
            df[f"{name}_share"] = np.where(is_known, shares.max(1), np.nan)
    return df


def _add_nearest(df: pd.DataFrame, sums: HeadSums) -> pd.DataFrame:
    """For each head, add the other head with the most similar outputs and the CKA of the two."""
    heads = _heads(sums)
    nearest, nearest_cka = [""] * len(heads), np.full(len(heads), np.nan)
    for stack, hsic in sums.hsic.items():
        rows = [row for row, head in enumerate(heads) if head.stack == stack]
        similarity = cka(hsic).numpy()
        similarity = np.where(np.isnan(similarity), -np.inf, similarity)
        np.fill_diagonal(similarity, -np.inf)
        for row, values in zip(rows, similarity, strict=True):
            other = values.argmax()
            if np.isfinite(values[other]):
                nearest[row], nearest_cka[row] = str(heads[rows[other]]), values[other]
    return df.assign(nearest=nearest, nearest_cka=nearest_cka) if sums.hsic else df


def head_pairs(sums: HeadSums) -> pd.DataFrame:
    """Every pair of heads in a stack: CKA of their outputs, and divergence within a layer."""
    heads, frames = _heads(sums), []
    for stack, hsic in sums.hsic.items():
        names = np.array([str(head) for head in heads if head.stack == stack])
        layers = np.array([head.layer for head in heads if head.stack == stack])
        similarity = cka(hsic).numpy()
        divergence = np.full_like(similarity, np.nan)
        for (its_stack, layer), summed in sums.divergence.items():
            if its_stack == stack:
                rows = np.flatnonzero(layers == layer)
                divergence[np.ix_(rows, rows)] = (summed[:-1] / summed[-1]).numpy()
        first, second = np.triu_indices(len(names), 1)
        columns = {"a": names[first], "b": names[second], "cka": similarity[first, second]}
        frames.append(pd.DataFrame({**columns, "divergence": divergence[first, second]}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def relation_table(sums: ScanSums, halves: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """One row per source, relation, reading and head: how often the head finds the gold word.

    `halves` has the half that each sentence of a source belongs to.
    """
    heads, frames = _heads(sums.heads), []
    for key, scores in sums.relations.items():
        source, stack = key.split("|")
        stack_heads = [head for head in heads if head.stack == stack]
        frame = scores.table(halves[source])
        head_of_row = [stack_heads[number] for number in frame["head"]]
        frame["head"] = [head.head for head in head_of_row]
        frame.insert(0, "source", source)
        frame.insert(3, "name", [str(head) for head in head_of_row])
        frame.insert(4, "stack", stack)
        frame.insert(5, "layer", [head.layer for head in head_of_row])
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
