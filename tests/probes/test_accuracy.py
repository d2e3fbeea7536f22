"""Planted heads are found, their twins are not, and knowing a distance is not enough."""

import functools
import zlib

import numpy
import pandas
import pytest
from hypothesis import given, strategies as st
from pandas.testing import assert_frame_equal

from headwise.probes.accuracy import (
    BASELINES,
    BEST_COLUMNS,
    COLUMNS,
    RelationHits,
    _discoveries,
    best_heads,
    make_table,
)
from headwise.probes.builtin import RELATIONS, builtin_sentences

from .planted import GOLD, NAMES, score

SENTENCES = builtin_sentences()
WITH_CANDIDATES = {
    arc.relation for sentence in SENTENCES for arc in sentence.arcs if arc.candidates
}
POSITIONAL = range(4, len(NAMES))


@functools.cache
def table(is_causal: bool) -> pandas.DataFrame:
    return score(SENTENCES, is_causal=is_causal).table()


def counting(frame: pandas.DataFrame, reading: str) -> set[tuple[str, str]]:
    """Relations and planted heads that count for them."""
    rows = frame[frame["counts"] & (frame["reading"] == reading)]
    return {
        (relation, NAMES[head])
        for relation, head in zip(rows["relation"], rows["head"], strict=True)
    }


def test_the_table_has_a_row_for_each_relation_reading_and_head() -> None:
    frame = table(False)
    assert tuple(frame.columns) == COLUMNS
    rows = 3 * len(RELATIONS) - len(WITH_CANDIDATES)  # which have no governor reading
    assert len(frame) == rows * len(NAMES)
    assert not frame.duplicated(["relation", "reading", "head"]).any()
    assert not frame.isna().any(axis=None)


def test_only_a_head_that_knows_a_relation_counts_for_it() -> None:
    frame = table(False)
    assert counting(frame, "dependent") == {(relation, "gold") for relation in RELATIONS}


def test_a_head_that_looks_back_at_its_dependents_counts_in_the_other_readings() -> None:
    frame = table(False)
    assert counting(frame, "column") == {(relation, "backward") for relation in RELATIONS}
    assert counting(frame, "governor") == {
        (relation, "backward") for relation in RELATIONS if relation not in WITH_CANDIDATES
    }


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_shuffled_twin_counts_for_nothing(is_causal: bool) -> None:
    frame = table(is_causal)
    twins = frame[frame["head"].isin([NAMES.index("twin"), NAMES.index("noise")])]
    assert not twins["counts"].any()


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_head_that_knows_a_distance_or_a_place_counts_for_nothing(is_causal: bool) -> None:
    frame = table(is_causal)
    assert not frame[frame["head"].isin(POSITIONAL)]["counts"].any()


def test_a_causal_model_is_judged_on_what_it_can_see() -> None:
    frame = table(True)
    readings = frame.groupby("relation")["reading"].agg(set).to_dict()
    assert readings["determiner-noun"] == {"governor", "column"}
    gold = frame[(frame["head"] == GOLD) & (frame["reading"] == "dependent")]
    assert (gold["accuracy"] == 1).all()
    assert gold["counts"].all()


def test_an_offset_head_is_as_good_as_its_baseline() -> None:
    frame = table(False)
    rows = frame[(frame["baseline"].isin(NAMES)) & (frame["reading"] != "column")]
    same = rows[[NAMES[h] == b for h, b in zip(rows["head"], rows["baseline"], strict=True)]]
    assert len(same) == 2 * (len(RELATIONS) - len(WITH_CANDIDATES))
    assert (same["accuracy"] == same["baseline_accuracy"]).all()


def test_the_best_head_of_every_relation_is_the_one_that_knows() -> None:
    best = best_heads(table(False))
    assert tuple(best.columns) == BEST_COLUMNS
    assert list(best["relation"]) == sorted(RELATIONS)
    assert set(best["head"]) <= {NAMES.index("gold"), NAMES.index("backward")}
    assert best["counts"].all()
    assert (best["held_out_accuracy"] > 0.95).all()
    assert (best["held_out_baseline"] < 0.55).all()


SENTENCES_EACH, NUM_HEADS = 31, 7


def random_counts(
    seed: int, *, heads: int = NUM_HEADS, sentences: int = SENTENCES_EACH
) -> RelationHits:
    rng = numpy.random.default_rng(seed)
    arcs = rng.integers(1, 4, sentences)
    return RelationHits(
        "obj",
        "head",
        rng.permutation(97)[:sentences] % 2,
        arcs,
        rng.binomial(arcs[:, None], 0.4, (sentences, heads)).astype(numpy.uint16),
        rng.binomial(arcs[:, None], 0.3, (sentences, len(BASELINES))).astype(numpy.uint16),
    )


def one_table(counts: RelationHits, resamples: int = 23) -> pandas.DataFrame:
    return make_table([counts], resamples=resamples, seed=5)


@given(st.integers(0, 10_000), st.permutations(range(NUM_HEADS)))
def test_permuting_heads_permutes_rows_and_nothing_else(seed: int, order: list[int]) -> None:
    counts = random_counts(seed)
    want = one_table(counts).iloc[order].drop(columns="head").reset_index(drop=True)
    got = one_table(counts._replace(hits=counts.hits[:, order])).drop(columns="head")
    assert_frame_equal(got, want)


@given(st.integers(0, 10_000))
def test_figures_are_those_of_the_definition(seed: int) -> None:
    counts = random_counts(seed)
    frame = one_table(counts)
    leads = numpy.zeros(counts.hits.shape, dtype=int)
    is_replicated = numpy.ones(NUM_HEADS, dtype=bool)
    for number in (0, 1):
        half = counts.half == number
        best_elsewhere = counts.baselines[~half].sum(0).argmax()
        rival = counts.baselines[half, best_elsewhere].astype(int)
        baseline = rival.sum() / counts.arcs[half].sum()
        accuracy = counts.hits[half].sum(0) / counts.arcs[half].sum()
        numpy.testing.assert_allclose(frame[f"half{number}_accuracy"], accuracy)
        numpy.testing.assert_allclose(frame[f"half{number}_baseline"], baseline)
        leads[half] = counts.hits[half].astype(int) - rival[:, None]
        is_replicated &= [chance_of_leading(column) <= 0.05 for column in leads[half].T]
    numpy.testing.assert_allclose(frame["p_value"], [chance_of_leading(c) for c in leads.T])
    numpy.testing.assert_allclose(frame["accuracy"], counts.hits.sum(0) / counts.arcs.sum())
    best = counts.baselines.sum(0)
    assert (frame["baseline"] == BASELINES[best.argmax()]).all()
    numpy.testing.assert_allclose(frame["baseline_accuracy"], best.max() / counts.arcs.sum())
    lead = frame["accuracy"] - frame["baseline_accuracy"]
    assert not frame["counts"][(lead < 0.0999) | ~is_replicated].any()


def chance_of_leading(leads: numpy.ndarray) -> float:
    """Share of all ways to toss a coin per sentence that have at least as many leads."""
    wins, tosses = int((leads > 0).sum()), int((leads != 0).sum())
    ways = [1.0]  # number of ways to have 0, 1, ... heads, toss by toss
    for _ in range(tosses):
        ways = [a + b for a, b in zip([*ways, 0.0], [0.0, *ways], strict=True)]
    return sum(ways[wins:]) / 2**tosses


def test_corrected_p_values_are_those_of_benjamini_and_hochberg() -> None:
    """Their example: 15 p-values, of which four are significant at 0.05."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
    p_values += [0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    order = numpy.random.default_rng(0).permutation(len(p_values))
    significant = _discoveries(numpy.array(p_values)[order])
    assert sorted(numpy.array(p_values)[order][significant]) == p_values[:4]


def test_trying_more_heads_makes_the_test_stricter() -> None:
    counts = perfect(numpy.arange(20))  # the smallest chance is 2^-20
    assert one_table(counts)["counts"].all()
    blind = numpy.zeros((20, 100_000))
    more = counts._replace(hits=numpy.concatenate([counts.hits, blind], axis=1))
    assert not one_table(more, resamples=1)["counts"].any()


def test_the_interval_is_that_of_resampled_sentences() -> None:
    counts, resamples = random_counts(3), 37
    rng = numpy.random.default_rng([5, zlib.crc32(b"obj head")])
    shares = []
    for _ in range(resamples):
        sample = rng.integers(SENTENCES_EACH, size=SENTENCES_EACH)
        shares.append(counts.hits[sample].sum(0) / counts.arcs[sample].sum())
    low, high = numpy.quantile(shares, (0.025, 0.975), axis=0)
    frame = one_table(counts, resamples)
    eps = 4 * numpy.finfo(numpy.float32).eps
    numpy.testing.assert_allclose(frame["low"], low, rtol=eps)
    numpy.testing.assert_allclose(frame["high"], high, rtol=eps)


def test_blocks_of_resamples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    in_one_block = one_table(random_counts(3))
    monkeypatch.setattr("headwise.probes.accuracy.RESAMPLE_BLOCK", 5 * SENTENCES_EACH)
    assert_frame_equal(one_table(random_counts(3)), in_one_block)


def perfect(sentences: numpy.ndarray) -> RelationHits:
    """One head that is always right where no baseline ever is; sentences take turns."""
    ones, zeros = numpy.ones((len(sentences), 1)), numpy.zeros((len(sentences), len(BASELINES)))
    arcs = numpy.ones(len(sentences), dtype=numpy.int64)
    return RelationHits("obj", "governor", sentences % 2, arcs, ones, zeros)


def test_a_head_counts_from_twenty_arcs() -> None:
    assert one_table(perfect(numpy.arange(20)))["counts"].all()
    assert not one_table(perfect(numpy.arange(19)))["counts"].any()


def test_a_head_that_leads_in_one_half_only_does_not_count() -> None:
    counts = perfect(numpy.arange(41))
    counts.hits[counts.half == 1] = 0
    frame = one_table(counts)
    assert frame["accuracy"].item() > 0.5
    assert frame["p_value"].item() < 0.001
    assert not frame["counts"].any()


def test_a_lead_of_exactly_the_margin_is_enough() -> None:
    counts = perfect(numpy.arange(2000))
    number = numpy.arange(2000)
    counts.hits[:, 0] = number % 20 < 12  # 0.6 in both halves
    counts.baselines[:, 2] = number % 20 < 10  # 0.5 in both halves
    assert one_table(counts)["counts"].all()
    counts.baselines[0:2, 2], counts.baselines[18:20, 2] = 1, 1  # 0.501
    assert not one_table(counts)["counts"].any()


def test_an_empty_half_leaves_nothing_held_out() -> None:
    frame = one_table(perfect(numpy.arange(0, 60, 2)))
    assert frame["half1_accuracy"].isna().all()
    assert not frame["counts"].any()
    best = best_heads(frame)
    assert best["held_out_accuracy"].isna().all()
    assert not best["counts"].any()


def test_the_best_of_many_blind_heads_is_not_flattered() -> None:
    rng = numpy.random.default_rng(0)
    sentences, heads = 101, 499
    counts = perfect(numpy.arange(sentences))
    counts = counts._replace(hits=rng.binomial(1, 0.5, (sentences, heads)))
    counts.baselines[:, 2] = rng.binomial(1, 0.5, sentences)
    (best,) = best_heads(one_table(counts, 199)).to_dict("records")
    assert best["accuracy"] > 0.6  # on the sentences that it was chosen on
    assert abs(best["held_out_accuracy"] - 0.5) < 0.1
    assert not best["counts"]
    assert not best["is_stable"]


def test_an_empty_table_has_the_same_columns() -> None:
    empty = make_table([], resamples=1, seed=0)
    assert tuple(empty.columns) == COLUMNS
    assert tuple(best_heads(empty).columns) == BEST_COLUMNS
