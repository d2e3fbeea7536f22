"""Which head has which role: its measure must exceed a threshold and a baseline.

In: the measures of all heads, and their hits on sentences with gold relations. Out: for each role
and head a score, a threshold, a baseline, and whether the score exceeds both.

A role says what a head's attention looks like on the text and probes that were read. It does not
explain the model's behaviour, and it is not a reason to keep a head or to cut it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise.heads import HeadId
from headwise.measures.offsets import OFFSETS
from headwise.probes.accuracy import MARGIN
from headwise.probes.builtin import CONCEPT, PRONOUN
from headwise.roles import ROLES

Numbers = NDArray[np.float64]

POSITIONAL, DELIMITER, SINK, REPEAT, BROAD = 0.5, 0.6, 0.5, 0.4, 0.78
"""Thresholds. Half of the attention at one offset, 0.6 on separators, and an entropy of 3.8 of the
possible ln 128 = 4.85 nats are those of https://arxiv.org/abs/1906.04341. A sink gets at least
half, and 0.4 on repeats is far above chance (each head's baseline is in the table)."""
APART = 0.01
"""How far a broad head is above the median head: if all look alike, none stands out."""
FLOORS = {"syntactic": 0.5, "semantic": 0.6, "coreference": 0.6}
"""A head also finds the partner more often than not; among few candidates, clearly more often."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """One role's score, threshold and baseline for every head."""

    score: Numbers
    threshold: Numbers
    baseline: Numbers
    detail: list[str]
    counts: NDArray[np.bool_] | None = None
    """Whether the lead is more than luck, or enough to stand out; None = neither was tested."""

    @property
    def is_tested(self) -> bool:
        """Whether any head has a score and a baseline: without both, the role was not tested."""
        return bool(np.isfinite(self.score - self.baseline).any())

    @property
    def has_role(self) -> NDArray[np.bool_]:
        """Which heads reach the threshold, exceed the baseline, and do not do so by luck.

        A head whose score or baseline is NaN does not have the role.
        """
        exceeds: NDArray[np.bool_] = (self.score >= self.threshold) & (self.score > self.baseline)
        return exceeds if self.counts is None else exceeds & self.counts


def _column(df: pd.DataFrame, name: str) -> Numbers:
    """A column of numbers; all NaN if the table has no such column."""
    if name not in df:
        return np.full(len(df), np.nan)
    return df[name].to_numpy(float)


def _largest(df: pd.DataFrame, names: dict[str, str]) -> tuple[Numbers, list[str]]:
    """The largest of some columns for each head, and its label; NaN if all are NaN."""
    stacked = np.stack([_column(df, name) for name in names])
    filled = np.where(np.isnan(stacked), -np.inf, stacked)
    best, which = filled.max(0), filled.argmax(0)
    labels = list(names.values())
    score = np.where(np.isinf(best), np.nan, best)
    return score, [
        labels[number] if is_known else ""
        for number, is_known in zip(which, ~np.isnan(score), strict=True)
    ]


def _uniform(df: pd.DataFrame, names: dict[str, str], detail: list[str]) -> Numbers:
    """Value under equal weights, in the column that `detail` labels for each head."""
    unknown = np.full(len(df), np.nan)
    by_label = {label: _column(df, f"uniform_{name}") for name, label in names.items()}
    return np.array([by_label.get(label, unknown)[row] for row, label in enumerate(detail)])


def _positional(df: pd.DataFrame) -> Verdict:
    """Attention to a fixed distance, other than to the token itself."""
    names = {name: f"{offset:+}" for name, offset in OFFSETS.items() if offset}
    score, detail = _largest(df, names)
    return Verdict(score, np.full(len(df), POSITIONAL), _uniform(df, names, detail), detail)


def _delimiter(df: pd.DataFrame) -> Verdict:
    """Attention to special tokens or to punctuation, whichever is more."""
    names = {"special": "special", "punctuation": "punctuation"}
    score, detail = _largest(df, names)
    return Verdict(score, np.full(len(df), DELIMITER), _uniform(df, names, detail), detail)


def _sink(df: pd.DataFrame) -> Verdict:
    """Attention to the first token, or to the first four together."""
    names = {"first": "first", "first4": "first four"}
    score, detail = _largest(df, names)
    is_first = _column(df, "first") >= SINK
    score = np.where(is_first, _column(df, "first"), score)
    detail = ["first" if first else other for first, other in zip(is_first, detail, strict=True)]
    return Verdict(score, np.full(len(df), SINK), _uniform(df, names, detail), detail)


def _repeat(name: str) -> Callable[[pd.DataFrame], Verdict]:
    """Attention to earlier copies of a token, or to what followed them."""

    def verdict(df: pd.DataFrame) -> Verdict:
        score, baseline = _column(df, name), _column(df, f"uniform_{name}")
        return Verdict(score, np.full(len(df), REPEAT), baseline, [""] * len(df))

    return verdict


def _broad(df: pd.DataFrame) -> Verdict:
    """Nearly equal attention to everything, compared with the median head of the model."""
    score = _column(df, "normalised_entropy")
    median = np.nanmedian(score) if np.isfinite(score).any() else np.nan
    baseline = np.full(len(df), median)
    is_apart = score - baseline >= APART
    return Verdict(score, np.full(len(df), BROAD), baseline, [""] * len(df), is_apart)


MEASURED_ROLES: dict[str, Callable[[pd.DataFrame], Verdict]] = {
    "positional": _positional,
    "delimiter": _delimiter,
    "sink": _sink,
    "induction": _repeat("induction"),
    "duplicate": _repeat("duplicate"),
    "broad": _broad,
}


def decide_roles(df: pd.DataFrame, relations: pd.DataFrame | None = None) -> pd.DataFrame:
    """`df` with every role's score, threshold, baseline and detail, and the roles of each head.

    `relations` is the relation table of a scan. Roles come in the order of `ROLES`; a role without
    a score or a baseline has no columns. `*_counts` says whether the lead is more than luck, for
    the roles that sentences decide, and whether the head stands out, for broad.
    """
    verdicts = {role: decide(df) for role, decide in MEASURED_ROLES.items()}
    if relations is not None and len(relations) > 0:
        verdicts |= _relation_roles(df, relations)
    verdicts = {
        role: verdicts[role] for role in ROLES if role in verdicts and verdicts[role].is_tested
    }
    new: dict[str, Any] = {}
    for role, verdict in verdicts.items():
        new[f"{role}_score"] = verdict.score
        new[f"{role}_threshold"] = verdict.threshold
        new[f"{role}_baseline"] = verdict.baseline
        new[f"{role}_detail"] = verdict.detail
        if verdict.counts is not None:
            new[f"{role}_counts"] = verdict.counts
    has_role = {role: verdict.has_role for role, verdict in verdicts.items()}
    roles = [tuple(role for role in has_role if has_role[role][row]) for row in range(len(df))]
    result = df.assign(**new)
    result.insert(3, "roles", pd.Series(roles, index=df.index, dtype=object))
    return result


def _relation_roles(df: pd.DataFrame, relations: pd.DataFrame) -> dict[str, Verdict]:
    """The three roles that sentences with gold relations decide."""
    is_semantic = relations["relation"] == CONCEPT
    is_reference = relations["relation"] == PRONOUN
    parts = {
        "syntactic": relations[~is_semantic & ~is_reference],
        "semantic": relations[is_semantic],
        "coreference": relations[is_reference],
    }
    places = zip(df["layer"], df["head"], df["stack"], strict=True)
    row_of = {str(HeadId(*place)): row for row, place in enumerate(places)}
    return {
        role: _relation_verdict(part, row_of, FLOORS[role])
        for role, part in parts.items()
        if len(part) > 0
    }


def _relation_verdict(frame: pd.DataFrame, row_of: dict[str, int], floor: float) -> Verdict:
    """For each head, the relation in which it is furthest above the threshold.

    Relations that count come before all that do not.
    """
    baseline = frame["held_out_baseline"].to_numpy(float)
    threshold = np.maximum(floor, baseline + MARGIN)
    known = frame.assign(threshold=threshold, lead=frame["held_out_accuracy"] - threshold)
    known = known[known["lead"].notna()].sort_values(["counts", "lead"], kind="stable")
    best = known.groupby("name").tail(1)
    rows = [row_of[name] for name in best["name"]]

    def of_all_heads(values: pd.Series, missing: object) -> NDArray[Any]:
        column = np.full(len(row_of), missing)
        column[rows] = values
        return column

    detail = [""] * len(row_of)
    for row, relation, reading in zip(rows, best["relation"], best["reading"], strict=True):
        detail[row] = f"{relation}, {reading}"
    return Verdict(
        of_all_heads(best["held_out_accuracy"], np.nan),
        of_all_heads(best["threshold"], np.nan),
        of_all_heads(best["held_out_baseline"], np.nan),
        detail,
        of_all_heads(best["counts"], False),
    )
