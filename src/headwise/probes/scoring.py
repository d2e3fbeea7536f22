"""How often each head answers the questions of probe sentences, kept so that it can be merged.

In: sentences and the weights between their words, all heads of a model in one fixed order. Out:
hits per sentence, relation, reading and head; as plain arrays, or as a table. questions.py builds
the questions, accuracy.py compares heads with baselines.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from pandas import DataFrame
from torch import Tensor

from headwise.errors import OptionError, ShapeError
from headwise.probes.accuracy import RelationHits, make_table
from headwise.probes.questions import BASELINES, ArcQuestion, guesses, questions
from headwise.probes.sentences import ProbeSentence

FIELDS = ("seen", "sentence", "relation", "reading", "arcs", "hits", "baselines", "is_causal")


class _Key(NamedTuple):
    sentence: int
    relation: str
    reading: str


class _Tally(NamedTuple):
    arcs: int
    hits: ndarray  # heads
    baselines: ndarray  # baseline


def answers(
    weights: Float[Tensor, "heads word word"], asked: Sequence[ArcQuestion]
) -> Bool[Tensor, "question heads"]:
    """Whether the gold answer gets more than every other choice; a tie is wrong, all zeros too."""
    rows = torch.stack(
        [
            weights[:, :, question.source]
            if question.reading == "column"
            else weights[:, question.source]
            for question in asked
        ]
    )  # question heads word
    is_rival = numpy.zeros((len(asked), weights.shape[-1]), dtype=bool)
    for number, question in enumerate(asked):
        is_rival[number, list(question.choices)] = True
        is_rival[number, question.gold] = False
    rivals = torch.from_numpy(is_rival).to(weights.device)[:, None]
    gold = torch.tensor([question.gold for question in asked], device=weights.device)
    won = rows.gather(-1, gold[:, None, None].expand(-1, weights.shape[0], 1)).squeeze(-1)
    return won > rows.masked_fill(~rivals, 0).amax(-1)


class RelationScores:
    """Hits of every head, and of the baselines, on the sentences added so far."""

    def __init__(self, num_heads: int, *, is_causal: bool) -> None:
        """Nothing counted yet; `is_causal` leaves out what a row cannot see."""
        self.num_heads, self.is_causal = num_heads, is_causal
        self._seen: set[int] = set()
        self._tallies: dict[_Key, _Tally] = {}

    def add(
        self,
        sentence_index: int,
        sentence: ProbeSentence,
        weights: Float[Tensor, "heads word word"],
        pieces: Sequence[int] | None = None,
    ) -> None:
        """Count one sentence; its index says which half it belongs to, and is used once.

        `pieces` is how many tokens each of its words has, which one of the baselines goes by.
        """
        want = (self.num_heads, len(sentence.words), len(sentence.words))
        if tuple(weights.shape) != want:
            raise ShapeError(
                f"weights are {list(weights.shape)}: {self.num_heads} heads and a sentence of "
                f"{len(sentence.words)} words need {list(want)}"
            )
        self._see({sentence_index})
        asked = list(questions(sentence, is_causal=self.is_causal))
        if not asked:
            return
        hits = answers(weights, asked).cpu().numpy()
        guessed = numpy.array([guesses(question, pieces) for question in asked])
        keys = [_Key(sentence_index, question.relation, question.reading) for question in asked]
        for key in dict.fromkeys(keys):
            rows = [number for number, other in enumerate(keys) if other == key]
            self._tallies[key] = _Tally(
                len(rows),
                hits[rows].sum(0, dtype=numpy.uint16),
                guessed[rows].sum(0, dtype=numpy.uint16),
            )

    def _see(self, sentences: set[int]) -> None:
        twice = sorted(sentences & self._seen)
        if twice:
            raise OptionError(
                f"sentence {twice[0]} was counted before: give every sentence an index of its own"
            )
        self._seen |= sentences

    def merge(self, other: "RelationScores") -> None:
        """Count what the other has counted too; the order of merging changes nothing."""
        mine, theirs = (self.num_heads, self.is_causal), (other.num_heads, other.is_causal)
        if mine != theirs:
            raise OptionError(
                f"these scores are of (num_heads, is_causal) = {mine}, the others of {theirs}: "
                "merge scores of one model"
            )
        self._see(other._seen)
        self._tallies |= other._tallies

    def state(self) -> dict[str, ndarray]:
        """Everything counted, sorted by sentence, as arrays that `numpy.savez` keeps."""
        keys = sorted(self._tallies)
        tallies = [self._tallies[key] for key in keys]
        return {
            "seen": numpy.array(sorted(self._seen), dtype=numpy.int64),
            "sentence": numpy.array([key.sentence for key in keys], dtype=numpy.int64),
            "relation": numpy.array([key.relation for key in keys], dtype=numpy.str_),
            "reading": numpy.array([key.reading for key in keys], dtype=numpy.str_),
            "arcs": numpy.array([tally.arcs for tally in tallies], dtype=numpy.int64),
            "hits": _stacked([tally.hits for tally in tallies], self.num_heads),
            "baselines": _stacked([tally.baselines for tally in tallies], len(BASELINES)),
            "is_causal": numpy.array(self.is_causal),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, ndarray]) -> "RelationScores":
        """The scores that `state()` described."""
        missing = [field for field in FIELDS if field not in state]
        if missing:
            raise OptionError(f"the state lacks {', '.join(missing)}: it must hold all of {FIELDS}")
        scores = cls(state["hits"].shape[1], is_causal=bool(state["is_causal"]))
        scores._seen = {int(sentence) for sentence in state["seen"]}
        keys = zip(state["sentence"], state["relation"], state["reading"], strict=True)
        tallies = zip(state["arcs"], state["hits"], state["baselines"], strict=True)
        for (sentence, relation, reading), (arcs, hits, baselines) in zip(
            keys, tallies, strict=True
        ):
            key = _Key(int(sentence), str(relation), str(reading))
            scores._tallies[key] = _Tally(int(arcs), hits, baselines)
        return scores

    def table(self, resamples: int = 1000, seed: int = 0) -> DataFrame:
        """One row per relation, reading and head, with the accuracy of simple guesses."""
        state = self.state()
        groups = []
        for relation, reading in sorted({key[1:] for key in self._tallies}):
            rows = (state["relation"] == relation) & (state["reading"] == reading)
            per_sentence = (state[field][rows] for field in RelationHits._fields[2:])
            groups.append(RelationHits(relation, reading, *per_sentence))
        return make_table(groups, resamples=resamples, seed=seed)


def _stacked(rows: Sequence[ndarray], width: int) -> ndarray:
    return numpy.array(rows, dtype=numpy.uint16).reshape(len(rows), width)
