"""Roles: names for what a head does, each a measure over a threshold and over its baseline.

In: the measures of all heads, and their hits on sentences with gold relations. Out: for each role
and head a score, the threshold and the baseline it is held against, and whether both are passed.

A role says what a head's attention looks like on the text and probes that were read. It does not
explain the model's behaviour, and it is no reason to keep a head or to cut it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headwise.measures.offsets import OFFSETS
from headwise.probes.accuracy import MARGIN
from headwise.probes.builtin import CONCEPT, PRONOUN
from headwise.roles import ROLES

Numbers = NDArray[np.float64]

POSITIONAL, DELIMITER, SINK, REPEAT, BROAD = 0.5, 0.6, 0.5, 0.4, 0.78
"""Thresholds. Half of the attention at one offset, 0.6 on separators, and an entropy of 3.8 nats of
the ln 128 = 4.85 that is possible are those of https://arxiv.org/abs/1906.04341; a sink takes at
least half, and 0.4 on repeats is far from what chance gives (their baselines stand beside them)."""
APART = 0.01
"""How far a broad head is over the middle one: where all look alike, none stands out."""
FLOORS = {"syntactic": 0.5, "semantic": 0.6, "coreference": 0.6}
"""And it is found more often than not; with the few candidates of the last two, clearly so."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """One role of every head."""

    score: Numbers
    threshold: Numbers
    baseline: Numbers
    detail: list[str]
    counts: NDArray[np.bool_] | None = None
    """Whether the lead is more than luck, or enough to stand out; None = neither was asked."""

    @property
    def is_tested(self) -> bool:
        """Whether any head has a score and a baseline: without both, nothing was looked for."""
        return bool(np.isfinite(self.score - self.baseline).any())

    @property
    def is_held(self) -> NDArray[np.bool_]:
        """Which heads have the role: over the threshold, over the baseline, and not by luck.

        What is not known holds nothing: a score or baseline of NaN is over nothing.
        """
        found: NDArray[np.bool_] = (self.score >= self.threshold) & (self.score > self.baseline)
        return found if self.counts is None else found & self.counts


def column(df: pd.DataFrame, name: str) -> Numbers:
    """A column of numbers; NaN throughout where there is none."""
    if name not in df:
        return np.full(len(df), np.nan)
    return df[name].to_numpy(float)


def best_of(df: pd.DataFrame, names: dict[str, str]) -> tuple[Numbers, list[str]]:
    """The largest of some columns for each head, and what it is called; NaN counts as nothing."""
    stacked = np.stack([column(df, name) for name in names])
    filled = np.where(np.isnan(stacked), -np.inf, stacked)
    best, which = filled.max(0), filled.argmax(0)
    labels = list(names.values())
    score = np.where(np.isinf(best), np.nan, best)
    return score, [
        labels[one] if known else "" for one, known in zip(which, ~np.isnan(score), strict=True)
    ]


def fixed(df: pd.DataFrame, threshold: float) -> Numbers:
    """The same threshold for every head."""
    return np.full(len(df), threshold)


def equal_weights(df: pd.DataFrame, names: dict[str, str], detail: list[str]) -> Numbers:
    """What equal weights give where each head gives most; `detail` is what that is called."""
    nothing = np.full(len(df), np.nan)
    by_label = {label: column(df, f"uniform_{name}") for name, label in names.items()}
    return np.array([by_label.get(label, nothing)[row] for row, label in enumerate(detail)])


def positional(df: pd.DataFrame) -> Verdict:
    """Attention a fixed distance away, the token itself left out."""
    names = {name: f"{offset:+}" for name, offset in OFFSETS.items() if offset}
    score, detail = best_of(df, names)
    return Verdict(score, fixed(df, POSITIONAL), equal_weights(df, names, detail), detail)


def delimiter(df: pd.DataFrame) -> Verdict:
    """Attention on special tokens or on punctuation, whichever is more."""
    names = {"special": "special", "punctuation": "punctuation"}
    score, detail = best_of(df, names)
    return Verdict(score, fixed(df, DELIMITER), equal_weights(df, names, detail), detail)


def sink(df: pd.DataFrame) -> Verdict:
    """Attention on the first token, or on the first four together."""
    names = {"first": "first", "first4": "first four"}
    score, detail = best_of(df, names)
    is_first = column(df, "first") >= SINK
    score = np.where(is_first, column(df, "first"), score)
    detail = ["first" if first else other for first, other in zip(is_first, detail, strict=True)]
    return Verdict(score, fixed(df, SINK), equal_weights(df, names, detail), detail)


def repeat(name: str) -> Callable[[pd.DataFrame], Verdict]:
    """Attention on earlier copies of a token, or on what followed them."""

    def verdict(df: pd.DataFrame) -> Verdict:
        score, baseline = column(df, name), column(df, f"uniform_{name}")
        return Verdict(score, fixed(df, REPEAT), baseline, [""] * len(df))

    return verdict


def broad(df: pd.DataFrame) -> Verdict:
    """Attention on nearly everything alike, beside the middle head of the model."""
    score = column(df, "normalised_entropy")
    middle = np.nanmedian(score) if np.isfinite(score).any() else np.nan
    baseline = np.full(len(df), middle)
    is_apart = score - baseline >= APART
    return Verdict(score, fixed(df, BROAD), baseline, [""] * len(df), is_apart)


MEASURED: dict[str, Callable[[pd.DataFrame], Verdict]] = {
    "positional": positional,
    "delimiter": delimiter,
    "sink": sink,
    "induction": repeat("induction"),
    "duplicate": repeat("duplicate"),
    "broad": broad,
}


def relation_verdict(frame: pd.DataFrame, num_heads: int, floor: float) -> Verdict:
    """For each head the relation that it is furthest over the threshold in.

    Relations that count go before those that do not, however far those are.
    """
    baseline = frame["held_out_baseline"].to_numpy(float)
    threshold = np.maximum(floor, baseline + MARGIN)
    known = frame.assign(threshold=threshold, lead=frame["held_out_accuracy"] - threshold)
    known = known[known["lead"].notna()].sort_values(["counts", "lead"], kind="stable")
    best = known.groupby("head").tail(1)
    places = best["head"].to_numpy(int)

    def spread(values: pd.Series, empty: object) -> NDArray[Any]:
        every = np.full(num_heads, empty)
        every[places] = values
        return every

    detail: list[str] = [""] * num_heads
    for place, relation, reading in zip(places, best["relation"], best["reading"], strict=True):
        detail[place] = f"{relation}, {reading}"
    return Verdict(
        spread(best["held_out_accuracy"], np.nan),
        spread(best["threshold"], np.nan),
        spread(best["held_out_baseline"], np.nan),
        detail,
        spread(best["counts"], False),
    )


def relation_roles(relations: pd.DataFrame, num_heads: int) -> dict[str, Verdict]:
    """The three roles that sentences with gold relations decide."""
    is_semantic = relations["relation"] == CONCEPT
    is_reference = relations["relation"] == PRONOUN
    parts = {
        "syntactic": relations[~is_semantic & ~is_reference],
        "semantic": relations[is_semantic],
        "coreference": relations[is_reference],
    }
    return {
        role: relation_verdict(part, num_heads, FLOORS[role])
        for role, part in parts.items()
        if len(part) > 0
    }


def with_roles(df: pd.DataFrame, decided: dict[str, Verdict]) -> pd.DataFrame:
    """The table with every role's score, threshold, baseline and detail, and who has it.

    Roles come in the order of `ROLES`; one without a score or a baseline has no columns. `*_counts`
    says of the roles that sentences decide whether the lead is more than luck, and of broad whether
    the head stands out.
    """
    verdicts = {role: judge(df) for role, judge in MEASURED.items()} | decided
    tested = [role for role, verdict in verdicts.items() if verdict.is_tested]
    verdicts = {role: verdicts[role] for role in ROLES if role in tested}
    held = {role: verdict.is_held for role, verdict in verdicts.items()}
    new: dict[str, Any] = {}
    for role, verdict in verdicts.items():
        new[f"{role}_score"] = verdict.score
        new[f"{role}_threshold"] = verdict.threshold
        new[f"{role}_baseline"] = verdict.baseline
        new[f"{role}_detail"] = verdict.detail
        if verdict.counts is not None:
            new[f"{role}_counts"] = verdict.counts
    roles = [tuple(role for role in verdicts if held[role][row]) for row in range(len(df))]
    result = df.assign(**new)
    result.insert(3, "roles", pd.Series(roles, index=df.index, dtype=object))
    return result
