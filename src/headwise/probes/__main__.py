"""What positions alone achieve on the built-in sentences: python -m headwise.probes.

In: nothing. Out: a table in Markdown, a row a relation.
"""

from collections.abc import Sequence

import numpy

from headwise.probes.builtin import RELATIONS, builtin_sentences
from headwise.probes.questions import BASELINES, OFFSETS, READINGS, ArcReading, ask, guesses
from headwise.probes.sentences import ProbeSentence

TITLES = (
    *("relation", "sentences", "chance", "best offset", "first", "last", "nearest"),
    *("any reading", "if causal"),
)


def shares(
    sentences: Sequence[ProbeSentence],
    relation: str,
    reading: ArcReading,
    *,
    is_causal: bool = False,
) -> dict[str, float]:
    """Share of the questions that each baseline answers; nothing where none can be asked."""
    asked = [
        ask(arc, reading, len(sentence.words), is_causal=is_causal)
        for sentence in sentences
        for arc in sentence.arcs
        if arc.relation == relation
    ]
    hits = [guesses(question) for question in asked if question is not None]
    return dict(zip(BASELINES, numpy.mean(hits, axis=0).tolist(), strict=True)) if hits else {}


def highest_share(
    sentences: Sequence[ProbeSentence], relation: str, *, is_causal: bool = False
) -> float:
    """What the best baseline answers in the reading that suits it most."""
    return max(
        share
        for reading in READINGS
        for share in shares(sentences, relation, reading, is_causal=is_causal).values()
    )


def baseline_table(sentences: Sequence[ProbeSentence]) -> str:
    """Baselines on the row of the dependent, then the best one of any reading."""
    lines = ["| " + " | ".join(TITLES) + " |", "|" + "---|" * len(TITLES)]
    for relation in RELATIONS:
        arcs = [a for sentence in sentences for a in sentence.arcs if a.relation == relation]
        found = shares(sentences, relation, "dependent")
        offset = max(BASELINES[: len(OFFSETS)], key=found.__getitem__)
        if arcs[0].candidates:
            chance = numpy.mean([1 / len(arc.candidates) for arc in arcs])
            places = [f"{chance:.0%}", "", *(f"{found[name]:.0%}" for name in BASELINES[-3:])]
        else:
            ends = (f"{found[name]:.0%}" for name in ("first word", "last word"))
            places = ["", f"{offset.removeprefix('offset ')}: {found[offset]:.0%}", *ends, ""]
        best = [f"{highest_share(sentences, relation, is_causal=c):.0%}" for c in (False, True)]
        lines.append("| " + " | ".join([relation, str(len(arcs)), *places, *best]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(baseline_table(builtin_sentences()))
