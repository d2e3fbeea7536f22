"""Decide which heads have which roles: a score must reach a threshold and exceed a baseline.

In: the measures of all heads, and their hits on sentences with gold relations. Out: a score, a
threshold and a baseline for each role and head, and the roles whose score passes both.

Syntactic, semantic and coreference roles rest on natural sentences: the head must count there (see
probes/accuracy.py) and, if the controlled sentences have the same relation, lead its baseline there
as well, so that a habit of looking at a likely distance is not enough.

A role says what a head's attention looks like on the text and probes that were read. It does not
explain the model's behaviour, and it is not a reason to keep or cut a head.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise.heads import HeadId
from headwise.measures.offsets import OFFSETS
from headwise.probes.accuracy import MARGIN
from headwise.probes.relation_names import CONTROLLED, describe_relation, role_of_relation
from headwise.roles import ROLES

Numbers = NDArray[np.float64]

POSITIONAL, DELIMITER, SINK, REPEAT, BROAD = 0.5, 0.6, 0.5, 0.4, 0.78
"""Thresholds. Half of the attention at one offset, 0.6 on separators, and an entropy of 3.8 out of
a possible ln 128 = 4.85 nats come from https://arxiv.org/abs/1906.04341. A sink gets at least half
of the attention; 0.4 on repeats is far above chance (each head's baseline is in the table)."""
MASSES = {
    "positional": (POSITIONAL, {name: f"{offset:+}" for name, offset in OFFSETS.items() if offset}),
    "delimiter": (DELIMITER, {"special": "special", "punctuation": "punctuation"}),
    "sink": (SINK, {"first": "first", "first4": "first four"}),
    "induction": (REPEAT, {"induction": ""}),
    "duplicate": (REPEAT, {"duplicate": ""}),
}
"""Roles decided by a share of the attention, with their threshold, columns and column labels."""
APART = 0.01
"""Minimum lead of a broad head over the median head: if all heads are similar, none is broad."""
FLOORS = {"syntactic": 0.5, "semantic": 0.75, "coreference": 0.6}
"""Minimum accuracy for a role. For related words it is half-way between guessing among two and
certainty, because similar embeddings alone find many of them."""
SIGNIFICANT = 0.05
"""Largest p-value of a lead in the controlled sentences, which only confirm a finding."""
MIN_ARCS_ALONE = 100
"""Minimum number of natural arcs for a relation that the controlled sentences lack: with 30, a head
of an untrained model now and then passes all other tests."""


class Verdict(NamedTuple):
    """One role's score, threshold and baseline for every head."""

    score: Numbers
    threshold: Numbers | float
    baseline: Numbers
    detail: list[str]
    counts: NDArray[np.bool_] | None = None
    """Whether the lead is significant or, for broad, large enough; None if not tested."""
    evidence: Mapping[str, list[Any]] = MappingProxyType({})
    """For roles decided by sentences: the relation, the number of arcs, the 95% interval ..."""


def decide_roles(df: pd.DataFrame, relations: pd.DataFrame | None = None) -> pd.DataFrame:
    """`df` with every role's score, threshold, baseline and detail, and the roles of each head.

    `relations` is a scan's relation table. Roles are in the order of `ROLES`; a role without a
    score or a baseline has no columns. For roles decided by sentences, `*_counts` says whether the
    lead is more than luck; for broad, whether the head stands out.
    """
    verdicts = {role: _mass_verdict(df, role) for role in MASSES} | {"broad": _broad_verdict(df)}
    if relations is not None and len(relations) > 0:
        places = zip(df["layer"], df["head"], df["stack"], strict=True)
        heads = [str(HeadId(*place)) for place in places]
        evidence = _confirmed(relations)
        for role in evidence["role"].unique():
            rows = evidence[evidence["role"] == role]
            verdicts[role] = _relation_verdict(rows, heads, FLOORS[role])
    columns: dict[str, Any] = {}
    has_role: dict[str, NDArray[np.bool_]] = {}
    for role in ROLES:
        verdict = verdicts.get(role)
        if verdict is not None and np.isfinite(verdict.score - verdict.baseline).any():
            for name in ("score", "threshold", "baseline", "detail"):
                columns[f"{role}_{name}"] = getattr(verdict, name)
            has_role[role] = (verdict.score >= verdict.threshold) & (
                verdict.score > verdict.baseline
            )
            if verdict.counts is not None:
                columns[f"{role}_counts"] = verdict.counts
                has_role[role] &= verdict.counts
            for name, values in verdict.evidence.items():
                columns[f"{role}_{name}"] = values
    roles = [tuple(role for role in has_role if has_role[role][row]) for row in range(len(df))]
    result = df.assign(**columns)
    result.insert(3, "roles", pd.Series(roles, index=df.index, dtype=object))
    return result


def _column(df: pd.DataFrame, name: str) -> Numbers:
    """A column of numbers; all NaN if the table has no such column."""
    return df[name].to_numpy(float) if name in df else np.full(len(df), np.nan)


def _mass_verdict(df: pd.DataFrame, role: str) -> Verdict:
    """Each head's largest share of attention; its baseline is that share under equal weights."""
    threshold, labels = MASSES[role]
    masses = np.stack([_column(df, name) for name in labels])
    uniform = np.stack([_column(df, f"uniform_{name}") for name in labels])
    best = np.where(np.isnan(masses), -np.inf, masses).argmax(0)
    if role == "sink":
        best[masses[0] >= threshold] = 0  # the first token, if it is enough on its own
    heads = np.arange(len(df))
    score = masses[best, heads]
    baseline = np.where(np.isnan(score), np.nan, uniform[best, heads])
    detail = np.where(np.isnan(score), "", np.array(list(labels.values()))[best])
    return Verdict(score, threshold, baseline, detail.tolist())


def _broad_verdict(df: pd.DataFrame) -> Verdict:
    """How evenly each head attends to everything, compared with the model's median head."""
    score = _column(df, "normalised_entropy")
    median = np.nanmedian(score) if np.isfinite(score).any() else np.nan
    baseline = np.full(len(df), median)
    return Verdict(score, BROAD, baseline, [""] * len(df), score - baseline >= APART)


def _confirmed(relations: pd.DataFrame) -> pd.DataFrame:
    """Rows on natural sentences that are evidence for a role, with that `role`.

    `counts` is False in rows whose head is at its baseline in the controlled sentences, or whose
    relation is missing there and has few arcs.
    """
    is_controlled = relations["source"] == "controlled"
    controlled = relations[is_controlled & (relations["p_value"] < SIGNIFICANT)]
    confirmed = set(
        zip(controlled["relation"], controlled["reading"], controlled["name"], strict=True)
    )
    tested = set(relations["relation"][is_controlled])
    natural = relations[~is_controlled]
    pairs = zip(natural["relation"], natural["reading"], strict=True)
    roles = pd.Series([role_of_relation(*pair) for pair in pairs], natural.index, dtype=object)
    natural = natural.assign(role=roles).dropna(subset="role")
    twins = natural["relation"].map(CONTROLLED)
    keys = zip(twins, natural["reading"], natural["name"], strict=True)
    is_confirmed = np.array([key in confirmed for key in keys], dtype=bool)
    has_enough = (natural["arcs"] >= MIN_ARCS_ALONE).to_numpy() | (not tested)
    passes = np.where(twins.isin(tested), is_confirmed, has_enough)
    return natural.assign(counts=natural["counts"] & passes)


def _relation_verdict(relations: pd.DataFrame, heads: list[str], floor: float) -> Verdict:
    """For each head, the relation in which its lead over the baseline is largest.

    Relations that count take precedence over those that do not.
    """
    accuracy, baseline = relations["accuracy"], relations["baseline_accuracy"]
    known = relations.assign(
        threshold=np.maximum(floor, baseline + MARGIN),
        passes=relations["counts"] & (accuracy >= floor),
        lead=accuracy - baseline,
    )
    known = known.sort_values(["passes", "lead"], kind="stable")
    best = known.groupby("name").tail(1).set_index("name").reindex(heads)
    details = [
        describe_relation(relation, reading) if isinstance(relation, str) else ""
        for relation, reading in zip(best["relation"], best["reading"], strict=True)
    ]
    return Verdict(
        best["accuracy"].to_numpy(float),
        best["threshold"].to_numpy(float),
        best["baseline_accuracy"].to_numpy(float),
        details,
        best["counts"].eq(True).to_numpy(bool),
        {name: best[name].tolist() for name in ("arcs", "low", "high")}
        | {name: best[name].fillna("").tolist() for name in ("relation", "reading", "source")},
    )
