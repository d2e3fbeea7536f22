"""From an arc to the questions it asks of a head, and what is answered without any head.

In: a sentence. Out: for each reading of each arc who asks, who may be answered and which answer
is gold; and which of the baselines, knowing positions and how many tokens each word has, hit it.
Weights are left to scoring.py.

A reading is a way to look an arc up in a map of weights (rows look, columns are looked at):

    dependent   the row of the dependent: does it look most at its governor?
    governor    the row of the governor: does it look most at its dependent?
    column      the column of the dependent: is its governor the one that looks at it most?

Left out are questions with fewer than two possible answers, `governor` for arcs with candidates
(they answer the dependent's question, not the governor's), and, in causal models, what a row
cannot see: the later words, and with candidates every question of which one candidate is later.
For a column it is the reverse: only later rows can look at it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from headwise.probes.sentences import Arc, ProbeSentence

ArcReading = Literal["dependent", "governor", "column"]
READINGS: tuple[ArcReading, ...] = ("dependent", "governor", "column")

OFFSETS = (-3, -2, -1, 1, 2, 3)
BASELINES = (
    *(f"offset {offset:+d}" for offset in OFFSETS),
    "first word",
    "last word",
    "most pieces, first",
    "most pieces, last",
    "first candidate",
    "last candidate",
    "nearest candidate",
)


@dataclass(frozen=True)
class ArcQuestion:
    """Word `source` asks; `gold` is the right one of `choices`, places in the sentence."""

    relation: str
    reading: ArcReading
    source: int
    gold: int
    choices: tuple[int, ...]
    has_candidates: bool


def ask(arc: Arc, reading: ArcReading, num_words: int, *, is_causal: bool) -> ArcQuestion | None:
    """The question that one reading of an arc asks; None if it is left out."""
    if reading == "governor" and arc.candidates:
        return None
    source, gold = arc.dependent, arc.governor
    if reading == "governor":
        source, gold = gold, source
    seen = range(num_words)
    if is_causal:
        seen = range(source + 1, num_words) if reading == "column" else range(source)
    choices = arc.candidates or tuple(word for word in seen if word != source)
    if len(choices) < 2 or gold not in seen or any(choice not in seen for choice in choices):
        return None
    return ArcQuestion(arc.relation, reading, source, gold, choices, bool(arc.candidates))


def questions(sentence: ProbeSentence, *, is_causal: bool) -> Iterator[ArcQuestion]:
    """Every question that the sentence asks of one head."""
    for arc, reading in product(sentence.arcs, READINGS):
        question = ask(arc, reading, len(sentence.words), is_causal=is_causal)
        if question is not None:
            yield question


def guesses(question: ArcQuestion, pieces: Sequence[int] | None = None) -> tuple[bool, ...]:
    """Which of the BASELINES hit the gold answer; `pieces` is how many tokens each word has.

    Offsets, the first and the last word answer questions over the whole sentence, candidates those
    over candidates; the other kind never hits. Of two candidates equally near, the earlier counts
    as the nearest. "most pieces" is what a head answers that looks everywhere alike, for a word
    gets the weights of all its tokens: the first or the last of those that have as many.
    """
    places = sorted(question.choices)
    nearest = min(places, key=lambda place: abs(place - question.source))
    by_offset = [question.gold - question.source == offset for offset in OFFSETS]
    by_end = [question.gold == places[0], question.gold == places[-1]]
    by_size = [False, False] if pieces is None else by_pieces(question, pieces)
    if question.has_candidates:
        return (*[False] * (len(OFFSETS) + 2), *by_size, *by_end, question.gold == nearest)
    return (*by_offset, *by_end, *by_size, False, False, False)


def by_pieces(question: ArcQuestion, pieces: Sequence[int]) -> list[bool]:
    """Whether the first, and the last, of the choices with most tokens is the gold answer.

    In a column all rows look at the same tokens, and their number says nothing.
    """
    if question.reading == "column":
        return [False, False]
    most = max(pieces[word] for word in question.choices)
    found = sorted(word for word in question.choices if pieces[word] == most)
    return [question.gold == found[0], question.gold == found[-1]]
