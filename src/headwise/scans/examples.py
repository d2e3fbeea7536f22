"""One sentence for each finding: a place where a head does what its role says.

In: the roles of all heads, the hits in every sentence, and the sentences. Out: for each head and
role a sentence, the word that looks and the word it looks at.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from headwise.heads import HeadId
from headwise.probes.scoring import RelationScores
from headwise.probes.sentences import Arc, ProbeSentence
from headwise.reading.words import join_with_spaces, locate_words
from headwise.roles import RELATIONAL
from headwise.scans.gold_sentences import GoldSentences

_SENTENCE_END = re.compile(r"(?<=[.!?\"])\s+(?=[A-Z\"])")
FAR = 4
"""Examples have words this far apart, if there are any: farther than the baselines look."""


@dataclass(frozen=True)
class FoundArc:
    """A sentence, and the start and end of the word that looks and of the word it looks at."""

    text: str
    looks: tuple[int, int]
    at: tuple[int, int]


def find_examples(
    df: pd.DataFrame, relations: Mapping[str, RelationScores], gold: Mapping[str, GoldSentences]
) -> dict[str, dict[str, Any]]:
    """For each head and each of its roles that rests on sentences, a FoundArc as JSON values."""
    examples: dict[str, dict[str, Any]] = {}
    numbers = df.groupby("stack", sort=False).cumcount()
    for number, row in zip(numbers, df.to_dict("records"), strict=True):
        for role in RELATIONAL:
            if role not in row["roles"]:
                continue
            relation, reading, source = (
                row[f"{role}_{name}"] for name in ("relation", "reading", "source")
            )
            found = relations[f"{source}|{row['stack']}"].found_by(number, relation, reading)
            if found:
                head = str(HeadId(row["layer"], row["head"], row["stack"]))
                sentences = [gold[source].sentences[index] for index in found]
                example = _best_example(sentences, relation, is_upward=reading == "dependent")
                examples.setdefault(head, {})[role] = asdict(example)
    return examples


def _best_example(
    sentences: Sequence[ProbeSentence], relation: str, *, is_upward: bool
) -> FoundArc:
    """The shortest example whose words are far apart; the shortest of all if none are."""
    arcs = [
        (abs(arc.dependent - arc.governor) < FAR, _cut_out(sentence, arc, is_upward=is_upward))
        for sentence in sentences
        for arc in sentence.arcs
        if arc.relation == relation
    ]
    return min(arcs, key=lambda pair: (pair[0], len(pair[1].text)))[1]


def _cut_out(sentence: ProbeSentence, arc: Arc, *, is_upward: bool) -> FoundArc:
    """The sentences around the two words, from the word that looks to the other."""
    text = sentence.text or join_with_spaces(sentence.words)
    spans = locate_words(sentence.words, text)
    assert spans is not None, "a ProbeSentence checks its text"
    looks, at = (spans[arc.dependent], spans[arc.governor])
    if not is_upward:
        looks, at = at, looks
    first, last = min(looks[0], at[0]), max(looks[1], at[1])
    start = max((end.end() for end in _SENTENCE_END.finditer(text, 0, first + 1)), default=0)
    stop = next((end.start() for end in _SENTENCE_END.finditer(text, last)), len(text))
    return FoundArc(
        text[start:stop],
        (looks[0] - start, looks[1] - start),
        (at[0] - start, at[1] - start),
    )
