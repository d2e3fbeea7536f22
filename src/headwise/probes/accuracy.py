"""From counts of hits to a table of heads, beside what simple guesses achieve.

In: hits of heads and baselines per sentence, for each relation and reading. Out: accuracies with
95% intervals, and which heads count. Sentences and weights are left to scoring.py.

A head is judged in each half of the sentences against the baseline that the other half chose.
Sentences fall into two halves, those with an even and those with an odd index.

- In each half the baseline is the one that was best in the *other* half.
- `held_out_accuracy` and `held_out_baseline` are those of the half in which the head leads its
  baseline by less: had the head been chosen where it looked better, this is how it fares elsewhere.
- A head `counts` where it leads by at least MARGIN there (so in both halves), where the lower end
  of the interval of its lead over all sentences lies above 0, and where each half holds at least
  LEAST sentences.
- `best_heads` names one head per relation, and for its held-out figures chooses again in each half
  and judges that choice in the other: the best of many heads looks better than it is only in the
  sentences that it was chosen on.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy
import pandas
from jaxtyping import Float, Int, Shaped
from numpy import ndarray
from pandas import DataFrame

from headwise.errors import OptionError
from headwise.probes.questions import BASELINES

MARGIN = 0.10  # Voita 2019, https://arxiv.org/abs/1905.09418: a syntactic head leads by 10 points
LEAST = 10  # with fewer sentences in a half a single one is worth more than the margin
INTERVAL = (0.025, 0.975)
DRAWN_AT_ONCE = 10_000_000  # numbers; 40 MB as float32

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
    """One row per relation, reading and head; empty, with the same columns, if `groups` is."""
    if resamples < 1:
        raise OptionError(f"resamples is {resamples}: an interval needs at least 1")
    frames = [_rows(counts, resamples, seed) for counts in groups]
    if not frames:
        return DataFrame(columns=list(COLUMNS))
    return pandas.concat(frames, ignore_index=True)[list(COLUMNS)]


def _rows(counts: RelationHits, resamples: int, seed: int) -> DataFrame:
    """The table of one relation and reading."""
    best = int(counts.baselines.sum(0).argmax())
    is_even = counts.sentence % 2 == 0
    rival = _held_out_baseline(counts, is_even)
    heads = numpy.stack([_share(counts.hits, counts.arcs, half) for half in (is_even, ~is_even)])
    rivals = numpy.stack([_share(rival, counts.arcs, half) for half in (is_even, ~is_even)])
    weaker = (heads - rivals[:, None]).argmin(0)  # NaN, an empty half, is the least
    held_out, held_out_rival = heads[weaker, range(len(weaker))], rivals[weaker]
    low, high, least_lead = _intervals(counts, rival, resamples, seed)
    is_enough = min(is_even.sum(), (~is_even).sum()) >= LEAST
    leads = numpy.round(held_out - held_out_rival, 9) >= MARGIN  # 0.6 - 0.5 is a tenth
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
    asked = arcs[half].sum()
    return numpy.asarray(hits[half].sum(0) / (asked if asked else numpy.nan))


def _held_out_baseline(counts: RelationHits, is_even: ndarray) -> Int[ndarray, " sentence"]:
    """Hits a sentence of the baseline that was best in the half the sentence is not in."""
    best = {half: counts.baselines[is_even == half].sum(0).argmax() for half in (True, False)}
    chosen = numpy.where(is_even, best[False], best[True])
    hits: ndarray = counts.baselines[numpy.arange(len(chosen)), chosen].astype(numpy.int64)
    return hits


def _resampled(sentences: int, resamples: int, rng: numpy.random.Generator) -> Iterator[ndarray]:
    """How often each sentence is drawn, `[resample, sentence]`, a block of resamples at a time."""
    block = max(1, DRAWN_AT_ONCE // sentences)
    for first in range(0, resamples, block):
        number = min(block, resamples - first)
        drawn = rng.integers(sentences, size=(number, sentences))
        drawn += numpy.arange(number)[:, None] * sentences
        times = numpy.bincount(drawn.ravel(), minlength=number * sentences)
        yield times.reshape(number, sentences).astype(numpy.float32)


def _intervals(
    counts: RelationHits, rival: Int[ndarray, " sentence"], resamples: int, seed: int
) -> Float[ndarray, "3 heads"]:
    """Both ends of the interval of each head's accuracy, and the lower end of that of its lead."""
    rng = numpy.random.default_rng(
        [seed, zlib.crc32(f"{counts.relation} {counts.reading}".encode())]
    )
    hits, arcs = counts.hits.astype(numpy.float32), counts.arcs.astype(numpy.float32)
    shares, rival_shares = [], []
    for times in _resampled(len(arcs), resamples, rng):
        asked = times @ arcs
        shares.append(times @ hits / asked[:, None])
        rival_shares.append(times @ rival.astype(numpy.float32) / asked)
    share, rival_share = numpy.concatenate(shares), numpy.concatenate(rival_shares)
    ends = numpy.quantile(share, INTERVAL, axis=0)
    lead = numpy.quantile(share - rival_share[:, None], INTERVAL[:1], axis=0)
    return numpy.concatenate([ends, lead]).astype(numpy.float64)


def best_heads(frame: DataFrame, *, head: str = "head") -> DataFrame:
    """For each relation the head that leads its baseline most, over all readings.

    `accuracy` is that head's own, and flattered by the choice. The held-out figures are not: they
    choose in one half, judge in the other, and average the two. `is_stable` says that both halves
    chose the same head and reading. The head `counts` where it does in the table and the held-out
    figures are MARGIN apart too.
    """
    columns = [head if column == "head" else column for column in BEST_COLUMNS]
    relations = sorted(set(frame["relation"]))
    rows = [_best(frame[frame["relation"] == name], head) for name in relations]
    return DataFrame(rows, columns=columns)


def _best(rows: DataFrame, head: str) -> dict[str, Any]:
    """The strongest head of one relation, with the figures of the choice itself."""
    picked = {half: rows.iloc[_leader(rows, f"{half}_")] for half in ("even", "odd")}
    judged = {"even": picked["odd"], "odd": picked["even"]}
    accuracy, baseline = (
        float(numpy.mean([row[f"{half}_{figure}"] for half, row in judged.items()]))
        for figure in ("accuracy", "baseline")
    )
    best = rows.iloc[_leader(rows, "")].to_dict()
    best["counts"] = bool(best["counts"]) and round(accuracy - baseline, 9) >= MARGIN
    best["held_out_accuracy"], best["held_out_baseline"] = accuracy, baseline
    choices = {(row["reading"], row[head]) for row in picked.values()}
    best["is_stable"] = len(choices) == 1
    return {str(name): value for name, value in best.items()}


def _leader(rows: DataFrame, half: str) -> int:
    """Place of the row that leads its baseline most."""
    baseline = f"{half}baseline" if half else "baseline_accuracy"
    lead = (rows[f"{half}accuracy"] - rows[baseline]).to_numpy(float)
    return int(numpy.nan_to_num(lead, nan=-numpy.inf).argmax())
