"""From hits to accuracies: how well each head finds a relation, compared with simple guesses.

In: the hits of heads and baselines in each sentence, by relation and reading, from scoring.py. Out:
accuracies with 95% intervals, and which heads count.

Sentences with an even index form one half, those with an odd index the other.

- In each half, heads are compared with the baseline that was best in the *other* half.
- `held_out_accuracy` and `held_out_baseline` are those of the half in which the head's lead is
  smaller, as if the head had been chosen in the half where it looked better.
- A head `counts` if its lead in that half, and so in both, is at least MARGIN, the 95% interval of
  its lead over all sentences is above 0, and each half has at least MIN_SENTENCES sentences.
- `best_heads` names one head per relation. For its held-out figures, a head is chosen in each half
  and evaluated in the other: the best of many heads looks better than it is, but only on the
  sentences it was chosen on.
"""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy
import pandas
from jaxtyping import Float, Int, Shaped
from numpy import ndarray
from pandas import DataFrame

OFFSETS = (-3, -2, -1, 1, 2, 3)
BASELINES = (
    *(f"offset {offset:+d}" for offset in OFFSETS),
    *("first word", "last word", "most pieces, first", "most pieces, last"),
    *("first candidate", "last candidate", "nearest candidate"),
)
MARGIN = 0.10  # Voita 2019, https://arxiv.org/abs/1905.09418: a syntactic head leads by 10 points
MIN_SENTENCES = 10  # in each half; with fewer, a single sentence outweighs the margin
INTERVAL = (0.025, 0.975)
RESAMPLE_BLOCK = 10_000_000  # numbers drawn at once; 40 MB as float32

COLUMNS = (
    *("relation", "reading", "head", "accuracy", "low", "high", "arcs"),
    *("baseline", "baseline_accuracy", "held_out_accuracy", "held_out_baseline", "counts"),
    *("even_accuracy", "even_baseline", "odd_accuracy", "odd_baseline"),
)
BEST_COLUMNS = (*COLUMNS[:12], "is_stable")


class RelationHits(NamedTuple):
    """Hits per sentence, for one relation and reading."""

    relation: str
    reading: str
    sentence: Int[ndarray, " sentence"]
    arcs: Int[ndarray, " sentence"]
    hits: Shaped[ndarray, "sentence heads"]
    baselines: Shaped[ndarray, "sentence baseline"]


def make_table(groups: Sequence[RelationHits], *, resamples: int, seed: int) -> DataFrame:
    """One row per relation, reading and head; no rows if `groups` is empty."""
    frames = [_rows(counts, resamples, seed) for counts in groups]
    if not frames:
        return DataFrame(columns=list(COLUMNS))
    return pandas.concat(frames, ignore_index=True)


def _rows(counts: RelationHits, resamples: int, seed: int) -> DataFrame:
    best = int(counts.baselines.sum(0).argmax())
    is_even = counts.sentence % 2 == 0
    halves = (is_even, ~is_even)
    best_even, best_odd = (counts.baselines[half].sum(0).argmax() for half in halves)
    best_elsewhere = numpy.where(is_even, best_odd, best_even)  # the baseline to beat
    rival = counts.baselines[numpy.arange(len(is_even)), best_elsewhere].astype(numpy.int64)
    heads = numpy.stack([_share(counts.hits, counts.arcs, half) for half in halves])
    rivals = numpy.stack([_share(rival, counts.arcs, half) for half in halves])
    weaker = (heads - rivals[:, None]).argmin(0)  # argmin picks NaN (an empty half) first
    held_out, held_out_rival = heads[weaker, range(len(weaker))], rivals[weaker]
    low, high, least_lead = _intervals(counts, rival, resamples, seed)
    is_enough = min(is_even.sum(), (~is_even).sum()) >= MIN_SENTENCES
    leads = numpy.round(held_out - held_out_rival, 9) >= MARGIN  # 0.6 - 0.5 is below 0.1 in floats
    everywhere = numpy.ones_like(is_even)
    return DataFrame(
        {
            "relation": counts.relation,
            "reading": counts.reading,
            "head": numpy.arange(counts.hits.shape[1]),
            "accuracy": _share(counts.hits, counts.arcs, everywhere),
            "low": low,
            "high": high,
            "arcs": counts.arcs.sum(),
            "baseline": BASELINES[best],
            "baseline_accuracy": _share(counts.baselines, counts.arcs, everywhere)[best],
            "held_out_accuracy": held_out,
            "held_out_baseline": held_out_rival,
            "counts": leads & (least_lead > 0) & is_enough,
            "even_accuracy": heads[0],
            "even_baseline": rivals[0],
            "odd_accuracy": heads[1],
            "odd_baseline": rivals[1],
        }
    )


def _share(hits: ndarray, arcs: ndarray, half: ndarray) -> ndarray:
    """Hits per arc over the sentences in `half`; NaN if there are none."""
    return numpy.asarray(hits[half].sum(0) / (arcs[half].sum() or numpy.nan))


def _intervals(
    counts: RelationHits, rival: Int[ndarray, " sentence"], resamples: int, seed: int
) -> Float[ndarray, "3 heads"]:
    """Lower and upper 95% bounds of each head's accuracy, and the lower bound of its lead."""
    rng = numpy.random.default_rng(
        [seed, zlib.crc32(f"{counts.relation} {counts.reading}".encode())]
    )
    hits, arcs = counts.hits.astype(numpy.float32), counts.arcs.astype(numpy.float32)
    shares, rival_shares, sentences = [], [], len(arcs)
    block = max(1, RESAMPLE_BLOCK // sentences)
    for first in range(0, resamples, block):
        number = min(block, resamples - first)
        draws = rng.integers(sentences, size=(number, sentences))
        draws += numpy.arange(number)[:, None] * sentences
        times_drawn = numpy.bincount(draws.ravel(), minlength=number * sentences)
        times = times_drawn.reshape(number, sentences).astype(numpy.float32)
        totals = times @ arcs
        shares.append(times @ hits / totals[:, None])
        rival_shares.append(times @ rival.astype(numpy.float32) / totals)
    share, rival_share = numpy.concatenate(shares), numpy.concatenate(rival_shares)
    ends = numpy.quantile(share, INTERVAL, axis=0)
    lead = numpy.quantile(share - rival_share[:, None], INTERVAL[:1], axis=0)
    return numpy.concatenate([ends, lead]).astype(numpy.float64)


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
        even, odd = (rows.iloc[_leader(rows, half)] for half in ("even_", "odd_"))
        accuracy, baseline = (
            float(numpy.mean([odd[f"even_{figure}"], even[f"odd_{figure}"]]))
            for figure in ("accuracy", "baseline")
        )
        best = rows.iloc[_leader(rows, "")].to_dict()
        best["counts"] = bool(best["counts"]) and round(accuracy - baseline, 9) >= MARGIN
        best["held_out_accuracy"], best["held_out_baseline"] = accuracy, baseline
        best["is_stable"] = (even["reading"], even[head]) == (odd["reading"], odd[head])
        best_rows.append(best)
    return DataFrame(best_rows, columns=columns)


def _leader(rows: DataFrame, half: str) -> int:
    """Index of the row with the largest lead over its baseline."""
    baseline = f"{half}baseline" if half else "baseline_accuracy"
    lead = (rows[f"{half}accuracy"] - rows[baseline]).to_numpy(float)
    return int(numpy.nan_to_num(lead, nan=-numpy.inf).argmax())
