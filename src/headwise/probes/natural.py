"""Natural sentences with gold relations: the evidence that roles rest on.

In: the files in the folder gold. Out: ProbeSentences.

- treebank.conllu: sentences of the corpus in Universal Dependencies, annotated twice.
- coreference.txt: running text in which every mention of some people or things is marked.
- balanced_coreference.txt: passages in which neither position nor grammar gives the antecedent
  away, half of them in pairs that differ in a few words.
- concepts.txt: sentences with a word, a related word, and an unrelated one of the same kind.

In coreference.txt, `[Stoll|2]` is a mention of the second entity and `{she|2}` a pronoun for it. In
the last two files, `{it}` marks the word that is asked about, `[*dog]` the answer and `[cat]`
another candidate; `^` marks the subject of a clause, so that a test can check how often a subject
is the answer. Lines without a blank line between them are a pair.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from headwise.probes.sentences import Arc, ProbeSentence
from headwise.probes.treebank import read_treebank

GOLD = Path(__file__).parent / "gold"
COREFERENCE, BALANCED, CONCEPTS = "coreference", "balanced-coreference", "related-concepts"
_ENTITY = re.compile(
    r"\[(?P<word>[^\[\]|]+)\|(?P<entity>\d+)\]|\{(?P<pronoun>[^{}|]+)\|(?P<of>\d+)\}"
)
_CHOICE = re.compile(r"\{(?P<source>[^{}]+)\}|\[(?P<flags>[*^]*)(?P<candidate>[^\[\]]+)\]")
WORD_GROUPS = ("word", "pronoun", "source", "candidate")
_WORD = re.compile(r"\w+(?:[-'.,]\w+)*|[^\w\s]")


@functools.cache
def natural_sentences() -> tuple[ProbeSentence, ...]:
    """The sentences that roles rest on: treebank, running text and related concepts."""
    return (
        *read_treebank(GOLD / "treebank.conllu"),
        *_balance(
            parse_running_text(line, f"{COREFERENCE} {number}")
            for number, line in enumerate(_groups("coreference.txt"))
        ),
        *_read_passages("concepts.txt", CONCEPTS),
    )


@functools.cache
def balanced_sentences() -> tuple[ProbeSentence, ...]:
    """Passages in which neither position nor grammar gives away what a pronoun stands for."""
    return tuple(_read_passages("balanced_coreference.txt", BALANCED))


def _read_passages(name: str, relation: str) -> Iterator[ProbeSentence]:
    for number, group in enumerate(_groups(name)):
        for line in group.split("\n"):
            yield parse_passage(line, relation, f"{relation} {number}")


def _balance(sentences: Iterable[ProbeSentence]) -> Iterator[ProbeSentence]:
    """Leave out arcs so that the nearest candidate is the antecedent in half of them.

    In running text it is the antecedent more often, and a head that looks at the nearest name would
    be hard to tell from one that follows the story. Every second passage is balanced by itself,
    because `split_in_two` puts these into one half.
    """
    turns = cycle([0, 1])
    turn, lead = next(turns), [0, 0]  # arcs that the nearest candidate answers, less the others
    for sentence in sentences:
        arcs = []
        for arc in sentence.arcs:
            is_nearest = arc.governor == max(arc.candidates)
            if not is_nearest or lead[turn] <= 0:
                arcs.append(arc)
                lead[turn] += 1 if is_nearest else -1
        if arcs:
            yield replace(sentence, arcs=tuple(arcs))
            turn = next(turns)


def _groups(name: str) -> list[str]:
    """Parts of a file between blank lines."""
    return (GOLD / name).read_text("utf-8").strip().split("\n\n")


def parse_running_text(marked: str, group: str = "") -> ProbeSentence:
    """A passage with an arc for every pronoun that follows a noun or name of another candidate.

    A candidate is the last mention of an entity by a noun or name. A pronoun is skipped if another
    marked pronoun comes between it and the last of these, since it may refer back through that one.

    >>> sentence = parse_running_text("[Ann|1] rang [Eve|2]. {She|1} was ill, but {she|1} came.")
    >>> [(sentence.words[arc.dependent], arc.candidates) for arc in sentence.arcs]
    [('She', (0, 2))]
    """
    text, starts = _strip_marks(_ENTITY, marked)
    words, word_at = _split_words(text)
    last: dict[str, int] = {}
    arcs, follows_noun = [], False
    for mark, start in starts:
        if mark["entity"]:
            last[mark["entity"]], follows_noun = word_at[start], True
        elif follows_noun:
            if mark["of"] in last and len(last) > 1:
                candidates = tuple(sorted(last.values()))
                arcs.append(Arc(COREFERENCE, word_at[start], last[mark["of"]], candidates))
            follows_noun = False
    return ProbeSentence(words, tuple(arcs), text, group)


def parse_passage(marked: str, relation: str, group: str = "") -> ProbeSentence:
    """A passage with one arc: `{source}`, `[*gold]` and `[candidate]` are marked.

    >>> sentence = parse_passage("[Ann] rang [*Eve], because {she} was ill.", "coreference")
    >>> sentence.words[5], sentence.arcs[0].governor, sentence.arcs[0].candidates
    ('she', 2, (0, 2))
    """
    text, starts = _strip_marks(_CHOICE, marked)
    words, word_at = _split_words(text)
    (source,) = (word_at[start] for mark, start in starts if mark["source"])
    (gold,) = (word_at[start] for mark, start in starts if "*" in (mark["flags"] or ""))
    candidates = tuple(word_at[start] for mark, start in starts if mark["candidate"])
    return ProbeSentence(words, (Arc(relation, source, gold, candidates),), text, group)


def _strip_marks(
    pattern: re.Pattern[str], marked: str
) -> tuple[str, list[tuple[re.Match[str], int]]]:
    """The plain text, and each mark with the position at which its word starts there."""
    text, end, starts = "", 0, []
    for mark in pattern.finditer(marked):
        text += marked[end : mark.start()]
        starts.append((mark, len(text)))
        text += next(filter(None, (mark.groupdict().get(name) for name in WORD_GROUPS)))
        end = mark.end()
    return text + marked[end:], starts


def _split_words(text: str) -> tuple[tuple[str, ...], dict[int, int]]:
    """The words, and the number of the word at each character."""
    words = list(_WORD.finditer(text))
    word_at = {char: number for number, word in enumerate(words) for char in range(*word.span())}
    return tuple(word[0] for word in words), word_at
