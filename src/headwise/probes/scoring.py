"""Count how often each head finds the gold relations in sentences, given its attention weights.

In: sentences, and the weights of all heads between their words, with heads in a fixed order. Out:
hits per sentence, relation, reading and head, as arrays that can be saved and merged, or as the
table from accuracy.py, which compares heads with baselines.

A reading is a way to look up an arc in a map of weights, in which each row attends and each column
is attended to:

    dependent   the row of the dependent: does it attend most to its governor?
    governor    the row of the governor: does it attend most to its dependent?
    column      the column of the dependent: does its governor attend to it most?

Questions with fewer than two possible answers are skipped, and so is `governor` for arcs with
candidates (they answer the dependent's question, not the governor's). In a causal model a row only
sees earlier words: later words are not possible answers, and questions with a later answer or
candidate are skipped. For a column it is the reverse: only later rows can attend to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import numpy
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from pandas import DataFrame
from torch import Tensor

from headwise.probes.accuracy import BASELINES, OFFSETS, REACHES, RelationHits, make_table
from headwise.probes.sentences import Arc, ProbeSentence

ArcReading = Literal["dependent", "governor", "column"]
READINGS: tuple[ArcReading, ...] = ("dependent", "governor", "column")


@dataclass(frozen=True)
class ArcQuestion:
    """Which of the words `choices` belongs to the word `source`? The answer is `gold`."""

    relation: str
    reading: ArcReading
    source: int
    gold: int
    choices: tuple[int, ...]
    has_candidates: bool


def make_question(
    arc: Arc, reading: ArcReading, num_words: int, *, is_causal: bool
) -> ArcQuestion | None:
    """The question that a reading asks about an arc; None if it is skipped."""
    source, gold = arc.dependent, arc.governor
    if reading == "governor":
        if arc.candidates:
            return None
        source, gold = gold, source
    visible = range(num_words)
    if is_causal:
        visible = range(source + 1, num_words) if reading == "column" else range(source)
    choices = arc.candidates or tuple(word for word in visible if word != source)
    if len(choices) < 2 or not {gold, *choices} <= set(visible):
        return None
    return ArcQuestion(arc.relation, reading, source, gold, choices, bool(arc.candidates))


def sentence_questions(sentence: ProbeSentence, *, is_causal: bool) -> Iterator[ArcQuestion]:
    """Every question about a sentence, by arc and reading."""
    for arc, reading in product(sentence.arcs, READINGS):
        if question := make_question(arc, reading, len(sentence.words), is_causal=is_causal):
            yield question


def baseline_hits(question: ArcQuestion, pieces: Sequence[int] | None = None) -> tuple[bool, ...]:
    """Which of the BASELINES give the gold answer; `pieces` is the number of tokens in each word.

    Offsets and the first and last word answer questions about the whole sentence; the first, last
    and nearest candidate answer questions with candidates. If two candidates are equally near, the
    earlier one counts as nearest. "most pieces" is the first or last of the words with the most
    tokens: the answer of a head with equal weights everywhere, because a word gets the weights of
    all its tokens. "most pieces within" is the nearest of the longest words in reach, which a head
    with a sliding window may favor in the same way.
    """
    gold, choices = question.gold, sorted(question.choices)
    by_offset = [gold - question.source == offset for offset in OFFSETS]
    by_end = [gold == choices[0], gold == choices[-1]]
    by_pieces = [False] * (2 + len(REACHES))
    if pieces is not None and not (question.has_candidates and question.reading == "column"):
        most = max(pieces[word] for word in choices)
        longest = [word for word in choices if pieces[word] == most]
        guesses = (longest[0], longest[-1], *_longest_in_reach(question, pieces))
        by_pieces = [gold == guess for guess in guesses]
    if question.has_candidates:
        nearest = min(choices, key=lambda word: abs(word - question.source))
        return (*[False] * (len(OFFSETS) + 2), *by_pieces, *by_end, gold == nearest)
    return (*by_offset, *by_end, *by_pieces, False, False, False)


def _longest_in_reach(question: ArcQuestion, pieces: Sequence[int]) -> list[int | None]:
    """For each of REACHES, the nearest of the longest choices in reach; None if there is none."""
    choices, guesses = set(question.choices), dict[int, int | None]()
    for step in (-1, 1):
        longest = None
        for reach in range(step, step * (max(REACHES) + 1), step):
            word = question.source + reach
            if word in choices and (longest is None or pieces[word] > pieces[longest]):
                longest = word
            guesses[reach] = longest
    return [guesses[reach] for reach in REACHES]


def head_hits(
    weights: Float[Tensor, "heads word word"], questions: Sequence[ArcQuestion]
) -> Bool[Tensor, "question heads"]:
    """Whether the gold answer gets more weight than every other choice; a tie is a miss."""
    maps = {reading: weights.mT if reading == "column" else weights for reading in READINGS}
    rows = torch.stack([maps[each.reading][:, each.source] for each in questions])
    is_rival = numpy.zeros((len(questions), weights.shape[-1]), dtype=bool)
    for number, question in enumerate(questions):
        is_rival[number, list(question.choices)] = True
        is_rival[number, question.gold] = False
    rivals = torch.from_numpy(is_rival).to(weights.device)[:, None]
    gold = [question.gold for question in questions]
    return rows[range(len(gold)), :, gold] > rows.masked_fill(~rivals, 0).amax(-1)


class _Key(NamedTuple):
    sentence: int
    relation: str
    reading: str


class _Tally(NamedTuple):
    arcs: int
    hits: ndarray  # heads
    baselines: ndarray  # baseline


class RelationScores:
    """Hits of every head, and of the baselines, on the sentences added so far."""

    def __init__(self, num_heads: int, *, is_causal: bool) -> None:
        """Start with no sentences; `is_causal` skips questions about words a row cannot see."""
        self.num_heads, self.is_causal = num_heads, is_causal
        self._tallies: dict[_Key, _Tally] = {}

    def add(
        self,
        sentence_index: int,
        sentence: ProbeSentence,
        weights: Float[Tensor, "heads word word"],
        pieces: Sequence[int] | None = None,
    ) -> None:
        """Count one sentence under an unused index.

        `pieces` is the number of tokens in each word, for the "most pieces" baselines.
        """
        questions = list(sentence_questions(sentence, is_causal=self.is_causal))
        if not questions:
            return
        hits = head_hits(weights, questions).cpu().numpy()
        baselines = numpy.array([baseline_hits(question, pieces) for question in questions])
        keys = [_Key(sentence_index, question.relation, question.reading) for question in questions]
        for key in dict.fromkeys(keys):
            rows = [number for number, other in enumerate(keys) if other == key]
            self._tallies[key] = _Tally(
                len(rows),
                hits[rows].sum(0, dtype=numpy.uint16),
                baselines[rows].sum(0, dtype=numpy.uint16),
            )

    def merge(self, other: "RelationScores") -> None:
        """Add counts from the same model on other sentences; the order does not matter."""
        self._tallies |= other._tallies

    def state(self) -> dict[str, ndarray]:
        """All counts, sorted by sentence, as arrays for `numpy.savez`."""
        keys = sorted(self._tallies)
        tallies = [self._tallies[key] for key in keys]
        hits = numpy.array([tally.hits for tally in tallies], dtype=numpy.uint16)
        baselines = numpy.array([tally.baselines for tally in tallies], dtype=numpy.uint16)
        return {
            "sentence": numpy.array([key.sentence for key in keys], dtype=numpy.int64),
            "relation": numpy.array([key.relation for key in keys], dtype=numpy.str_),
            "reading": numpy.array([key.reading for key in keys], dtype=numpy.str_),
            "arcs": numpy.array([tally.arcs for tally in tallies], dtype=numpy.int64),
            "hits": hits.reshape(-1, self.num_heads),
            "baselines": baselines.reshape(-1, len(BASELINES)),
            "is_causal": numpy.array(self.is_causal),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, ndarray]) -> "RelationScores":
        """The scores saved by `state()`."""
        scores = cls(state["hits"].shape[1], is_causal=bool(state["is_causal"]))
        keys = zip(*(state[field].tolist() for field in _Key._fields), strict=True)
        tallies = zip(state["arcs"].tolist(), state["hits"], state["baselines"], strict=True)
        for key, (arcs, hits, baselines) in zip(keys, tallies, strict=True):
            scores._tallies[_Key(*key)] = _Tally(arcs, hits, baselines)
        return scores

    def found_by(self, head: int, relation: str, reading: str) -> list[int]:
        """Sentences in which a head finds every arc of a relation, and the best baseline none."""
        asked = {key: each for key, each in self._tallies.items() if key[1:] == (relation, reading)}
        if not asked:
            return []
        best = numpy.sum([each.baselines for each in asked.values()], axis=0).argmax()
        return [
            key.sentence
            for key, each in sorted(asked.items())
            if each.hits[head] == each.arcs and each.baselines[best] == 0
        ]

    def table(
        self, halves: Sequence[int] | None = None, *, resamples: int = 1000, seed: int = 0
    ) -> DataFrame:
        """One row per relation, reading and head, with the accuracy of the best baseline.

        `halves` has the half, 0 or 1, of each sentence index; by default, indices take turns.
        """
        state, groups = self.state(), []
        index = state["sentence"]
        half = index % 2 if halves is None else numpy.array(halves, dtype=numpy.int64)[index]
        for relation, reading in sorted({key[1:] for key in self._tallies}):
            rows = (state["relation"] == relation) & (state["reading"] == reading)
            counts = (state[field][rows] for field in RelationHits._fields[3:])
            groups.append(RelationHits(relation, reading, half[rows], *counts))
        return make_table(groups, resamples=resamples, seed=seed)
