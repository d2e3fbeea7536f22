"""From hits to accuracies: how well each head finds a relation, compared with simple guesses.

In: the hits of heads and baselines in each sentence, by relation and reading, from scoring.py. Out:
accuracies with 95% intervals, p-values, and which heads count.

Sentences are in one of two halves; `split_in_two` keeps sentences of one register together, so the
halves are different kinds of text where registers are known.

- `accuracy` and `baseline_accuracy` are shares of all arcs: the head's, and the best baseline's.
- In each half, heads are compared with the baseline that was best in the *other* half, by a
  one-sided sign test over sentences: does the head find more arcs than the baseline in more
  sentences than the reverse? `p_value` is that of both halves together.
- A head `counts` if it leads the best baseline by at least MARGIN over all arcs, leads
  significantly in each half (SIGNIFICANT), has a p-value that stays significant after correction
  for every head, reading and relation that was tried (Benjamini and Hochberg 1995, false
  discovery rate FALSE_DISCOVERIES), and there are at least MIN_ARCS arcs.
- `best_heads` names one head per relation. For its held-out figures, a head is chosen in each half
  and evaluated in the other: the best of many heads looks better than it is, but only on the
  sentences it was chosen on.
"""

import functools
import itertools
import math
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy
import pandas
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from pandas import DataFrame

OFFSETS = (-3, -2, -1, 1, 2, 3)
REACHES = (-5, -4, -3, -2, 2, 3, 4, 5)
"""Ranges of words, before (negative) or after, in which the longest word is a guess."""
BASELINES = (
    *(f"offset {offset:+d}" for offset in OFFSETS),
    *("first word", "last word", "most pieces, first", "most pieces, last"),
    *(f"most pieces within {reach:+d}" for reach in REACHES),
    *("first candidate", "last candidate", "nearest candidate"),
)
MARGIN = 0.10  # Voita 2019, https://arxiv.org/abs/1905.09418: a syntactic head leads by 10 points
MIN_ARCS = 20  # in all; with fewer, one or two arcs outweigh the margin
SIGNIFICANT, FALSE_DISCOVERIES = 0.05, 0.05
INTERVAL = (0.025, 0.975)
RESAMPLE_BLOCK = 10_000_000  # numbers drawn at once; 40 MB as float32

COLUMNS = (
    *("relation", "reading", "head", "accuracy", "low", "high", "arcs"),
    *("baseline", "baseline_accuracy", "p_value", "counts"),
    *("half0_accuracy", "half0_baseline", "half1_accuracy", "half1_baseline"),
)
BEST_COLUMNS = (*COLUMNS[:11], "held_out_accuracy", "held_out_baseline", "is_stable")


class RelationHits(NamedTuple):
    """Hits per sentence, for one relation and reading."""

    relation: str
    reading: str
    half: Int[ndarray, " sentence"]
    arcs: Int[ndarray, " sentence"]
    hits: Shaped[ndarray, "sentence heads"]
    baselines: Shaped[ndarray, "sentence baseline"]


def make_table(groups: Sequence[RelationHits], *, resamples: int, seed: int) -> DataFrame:
    """One row per relation, reading and head; no rows if `groups` is empty."""
    frames = [_rows(counts, resamples, seed) for counts in groups]
    if not frames:
        return DataFrame(columns=list(COLUMNS))
    table = pandas.concat(frames, ignore_index=True)
    lead = numpy.round(table["accuracy"] - table["baseline_accuracy"], 9)
    is_tried = (table["arcs"] >= MIN_ARCS).to_numpy()
    is_significant = numpy.zeros(len(table), dtype=bool)
    is_significant[is_tried] = _discoveries(table["p_value"].to_numpy()[is_tried])
    table["counts"] &= (lead >= MARGIN) & is_significant  # rounded: 0.6 - 0.5 is below 0.1
    return table[list(COLUMNS)]


def _discoveries(p_values: Float[ndarray, " test"]) -> Bool[ndarray, " test"]:
    """Which tests are significant at the false discovery rate FALSE_DISCOVERIES.

    Benjamini and Hochberg 1995: with the p-values sorted, the largest k with p(k) <= k/m * rate,
    and all smaller ones.
    """
    order = numpy.argsort(p_values, kind="stable")
    limits = FALSE_DISCOVERIES * numpy.arange(1, len(p_values) + 1) / max(len(p_values), 1)
    passed = numpy.flatnonzero(p_values[order] <= limits)
    is_significant = numpy.zeros(len(p_values), dtype=bool)
    is_significant[order[: passed[-1] + 1 if len(passed) else 0]] = True
    return is_significant


def _rows(counts: RelationHits, resamples: int, seed: int) -> DataFrame:
    best = int(counts.baselines.sum(0).argmax())
    halves = (counts.half == 0, counts.half == 1)
    best_in_half = [counts.baselines[half].sum(0).argmax() for half in halves]
    best_elsewhere = numpy.where(halves[0], best_in_half[1], best_in_half[0])
    rival = counts.baselines[range(len(best_elsewhere)), best_elsewhere].astype(numpy.int64)
    lead = counts.hits.astype(numpy.int64) - rival[:, None]
    is_replicated = [_sign_test(lead[half]) <= SIGNIFICANT for half in halves]
    everywhere = numpy.ones_like(halves[0])
    low, high = _intervals(counts, resamples, seed)
    columns: dict[str, Any] = {
        "relation": counts.relation,
        "reading": counts.reading,
        "head": numpy.arange(counts.hits.shape[1]),
        "accuracy": _share(counts.hits, counts.arcs, everywhere),
        "low": low,
        "high": high,
        "arcs": counts.arcs.sum(),
        "baseline": BASELINES[best],
        "baseline_accuracy": _share(counts.baselines, counts.arcs, everywhere)[best],
        "p_value": _sign_test(lead),
        "counts": numpy.logical_and(*is_replicated),
    }
    for number, half in enumerate(halves):
        columns[f"half{number}_accuracy"] = _share(counts.hits, counts.arcs, half)
        columns[f"half{number}_baseline"] = _share(rival, counts.arcs, half)
    return DataFrame(columns)


def _sign_test(lead: Int[ndarray, "sentence heads"]) -> Float[ndarray, " heads"]:
    """Chance of leading in as many sentences as each head does, if leading were a coin toss.

    Sentences without a lead on either side do not count; without any other, the chance is 1.
    """
    wins, losses = (lead > 0).sum(0), (lead < 0).sum(0)
    return numpy.array(
        [_binomial_tail(int(win), int(win + loss)) for win, loss in zip(wins, losses, strict=True)]
    )


def _binomial_tail(successes: int, trials: int) -> float:
    """Chance of at least `successes` successes in `trials` fair coin tosses.

    >>> _binomial_tail(9, 10), _binomial_tail(0, 0)
    (0.0107421875, 1.0)
    """
    return _binomial_tails(trials)[successes]


@functools.cache
def _binomial_tails(trials: int) -> list[float]:
    """`_binomial_tail` for every number of successes."""
    ways = itertools.accumulate(math.comb(trials, number) for number in range(trials, -1, -1))
    return [float(Fraction(count, 2**trials)) for count in ways][::-1]


def _share(hits: ndarray, arcs: ndarray, half: ndarray) -> ndarray:
    """Hits per arc over the sentences in `half`; NaN if there are none."""
    return numpy.asarray(hits[half].sum(0) / (arcs[half].sum() or numpy.nan))


def _intervals(counts: RelationHits, resamples: int, seed: int) -> Float[ndarray, "2 heads"]:
    """Lower and upper 95% bounds of each head's accuracy, from resampled sentences."""
    rng = numpy.random.default_rng(
        [seed, zlib.crc32(f"{counts.relation} {counts.reading}".encode())]
    )
    hits, arcs = counts.hits.astype(numpy.float32), counts.arcs.astype(numpy.float32)
    shares, sentences = [], len(arcs)
    block = max(1, RESAMPLE_BLOCK // sentences)
    for first in range(0, resamples, block):
        number = min(block, resamples - first)
        draws = rng.integers(sentences, size=(number, sentences))
        draws += numpy.arange(number)[:, None] * sentences
        times_drawn = numpy.bincount(draws.ravel(), minlength=number * sentences)
        times = times_drawn.reshape(number, sentences).astype(numpy.float32)
        shares.append(times @ hits / (times @ arcs)[:, None])
    ends = numpy.quantile(numpy.concatenate(shares), INTERVAL, axis=0)
    return numpy.asarray(ends, dtype=numpy.float64)


def best_heads(frame: DataFrame, *, head: str = "head") -> DataFrame:
    """For each relation, the head with the largest lead over its baseline in any reading.

    `accuracy` is the chosen head's, which the choice biases upwards. For the held-out figures, a
    head is chosen in each half and evaluated in the other, and the two results are averaged.
    `is_stable` says whether both halves chose the same head and reading. The head `counts` if it
    counts in `frame` and its held-out lead is at least MARGIN.
    """
    columns = [head if column == "head" else column for column in BEST_COLUMNS]
    best_rows = []
    for _, rows in frame.groupby("relation"):
        first, second = (rows.iloc[_leader(rows, half)] for half in ("half0_", "half1_"))
        accuracy, baseline = (
            float(numpy.mean([second[f"half0_{figure}"], first[f"half1_{figure}"]]))
            for figure in ("accuracy", "baseline")
        )
        best = rows.iloc[_leader(rows, "")].to_dict()
        best["counts"] = bool(best["counts"]) and round(accuracy - baseline, 9) >= MARGIN
        best["held_out_accuracy"], best["held_out_baseline"] = accuracy, baseline
        best["is_stable"] = (first["reading"], first[head]) == (second["reading"], second[head])
        best_rows.append(best)
    return DataFrame(best_rows, columns=columns)


def _leader(rows: DataFrame, half: str) -> int:
    """Index of the row with the largest lead over its baseline."""
    baseline = f"{half}baseline" if half else "baseline_accuracy"
    lead = (rows[f"{half}accuracy"] - rows[baseline]).to_numpy(float)
    return int(numpy.nan_to_num(lead, nan=-numpy.inf).argmax())
