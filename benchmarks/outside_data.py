"""Readers for public data sets in their usual formats, as ProbeSentences or scored pairs.

- `.conllu`: dependencies, read by headwise; and coreference, if MISC has `Entity=` as in GUM.
- bracketed sentences, as in WinoBias: `[The nurse] told the driver that [she] was late.`
- `.tsv` with GAP's columns: a text, a pronoun and two names with offsets.
- SICK: tab-separated, with the columns sentence_A, sentence_B and relatedness_score.
- STS: tab-separated lines of score, sentence, sentence.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from conllu import TokenList, parse

from headwise import Arc, ProbeSentence

COREFERENCE = "coreference"
PERSONAL = frozenset("he him his she her hers it its they them their theirs".split())
SENTENCES_BACK = 2
_WORD = re.compile(r"\w+(?:[-'.,]\w+)*|[^\w\s]")
_MENTION = re.compile(r"\((?P<open>\w+)-(?P<type>[a-z]+)[^()]*(?P<single>\))?|(?P<close>\w+)\)")
_BRACKETED = re.compile(r"\[([^\]]+)\]")
_NUMBERED = re.compile(r"^\d+\s+(?=.*\[)")


class ScoredPair(NamedTuple):
    """Two sentences, and how similar people find them."""

    first: str
    second: str
    score: float


@dataclass(frozen=True)
class Mention:
    """A mention of an entity: the word that stands for it, among the words of a document."""

    entity: str
    kind: str
    word: int
    is_pronoun: bool


def read_pairs(path: Path) -> list[ScoredPair]:
    """The pairs of a SICK or STS file; empty if it has another format."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row]
    if rows and "relatedness_score" in rows[0]:
        columns = [
            rows[0].index(name) for name in ("sentence_A", "sentence_B", "relatedness_score")
        ]
        picked = [
            [row[column] for column in columns] for row in rows[1:] if len(row) > max(columns)
        ]
        return [ScoredPair(first, second, float(score)) for first, second, score in picked]
    pairs = []
    for row in rows:
        if len(row) >= 3 and re.fullmatch(r"\d+(\.\d+)?", row[0]):
            pairs.append(ScoredPair(row[1], row[2], float(row[0])))
    return pairs if len(pairs) == len(rows) else []


def read_bracketed(path: Path) -> list[ProbeSentence]:
    """Sentences in which brackets mark two mentions of one person, the second a pronoun.

    The other candidate is a noun that other sentences of the file mark.
    """
    lines = [_NUMBERED.sub("", line) for line in path.read_text("utf-8").splitlines()]
    split = [_BRACKETED.split(line) for line in lines]
    marked = [parts for parts in split if len(parts) == 5]  # before, first, between, second, after
    nouns = {parts[1].split()[-1].lower() for parts in marked if parts[1].split()}
    sentences = []
    for parts in marked:
        words = [_WORD.findall(part) for part in parts]
        if len(words[3]) != 1 or words[3][0].lower() not in PERSONAL or not words[1]:
            continue
        gold, source = len(words[0]) + len(words[1]) - 1, sum(map(len, words[:3]))
        every = [word for part in words for word in part]
        others = [
            index
            for index, word in enumerate(every)
            if word.lower() in nouns - PERSONAL and index != gold
        ]
        if len(others) == 1 and source not in (gold, *others):
            arc = Arc(COREFERENCE, source, gold, tuple(sorted((gold, *others))))
            sentences.append(ProbeSentence(tuple(every), (arc,)))
    return sentences


def read_gap(path: Path) -> list[ProbeSentence]:
    """Passages in GAP's format in which one of two names is the pronoun's antecedent."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t")
        if not {"Text", "Pronoun-offset", "A-coref", "B-coref"} <= set(reader.fieldnames or ()):
            return []
        rows = list(reader)
    sentences = []
    for row in rows:
        is_gold = {name: row[f"{name}-coref"].upper() == "TRUE" for name in "AB"}
        if is_gold["A"] == is_gold["B"]:
            continue
        words = list(_WORD.finditer(row["Text"]))
        place = {char: number for number, word in enumerate(words) for char in range(*word.span())}
        ends = {name: int(row[f"{name}-offset"]) + len(row[name]) - 1 for name in "AB"}
        source = place.get(int(row["Pronoun-offset"]))
        candidates = {name: place.get(end) for name, end in ends.items()}
        if source is None or None in candidates.values():
            continue
        gold = candidates["A" if is_gold["A"] else "B"]
        both = tuple(sorted(word for word in candidates.values() if word is not None))
        if gold is None or len({source, *both}) < 3:
            continue
        arc = Arc(COREFERENCE, source, gold, both)
        sentences.append(ProbeSentence(tuple(word[0] for word in words), (arc,), row["Text"]))
    return sentences


def read_entities(path: Path) -> list[ProbeSentence]:
    """Passages of a CoNLL-U file with entities: a pronoun and the last mention of each candidate.

    Candidates are entities of the pronoun's kind (person, object ...) that a noun or name mentions
    in the same sentence or the two before it. A passage has one pronoun.
    """
    passages, document = [], list[TokenList]()
    for sentence in parse(path.read_text("utf-8")):
        if any(key.startswith("newdoc") for key in sentence.metadata):
            document = []
        document.append(sentence)
        passages += _passages(document[-1 - SENTENCES_BACK :])
    return passages


def _passages(sentences: list[TokenList]) -> Iterator[ProbeSentence]:
    words: list[str] = []
    mentions: list[Mention] = []
    start = 0
    for sentence in sentences:
        start = len(mentions)
        tokens = [token for token in sentence if isinstance(token["id"], int)]
        mentions += _mentions(tokens, len(words))
        words += [token["form"] for token in tokens]
    for pronoun in mentions[start:]:
        if not pronoun.is_pronoun:
            continue
        last = {
            mention.entity: mention.word
            for mention in mentions
            if mention.word < pronoun.word
            and mention.kind == pronoun.kind
            and not mention.is_pronoun
        }
        if pronoun.entity in last and len(set(last.values())) == len(last) > 1:
            candidates = tuple(sorted(last.values()))
            arc = Arc(COREFERENCE, pronoun.word, last[pronoun.entity], candidates)
            yield ProbeSentence(tuple(words), (arc,))


def _mentions(tokens: list[dict], offset: int) -> Iterator[Mention]:
    """The mentions in one sentence, in the order in which they end."""
    open_mentions: dict[str, list[tuple[str, int]]] = {}
    for index, token in enumerate(tokens):
        for mark in _MENTION.finditer((token["misc"] or {}).get("Entity", "") or ""):
            if mark["open"]:
                open_mentions.setdefault(mark["open"], []).append((mark["type"], index))
            entity = mark["close"] or (mark["open"] if mark["single"] else None)
            if entity and open_mentions.get(entity):
                kind, first = open_mentions[entity].pop()
                yield _mention(entity, kind, tokens[first : index + 1], first + offset)


def _mention(entity: str, kind: str, span: list[dict], start: int) -> Mention:
    numbers = {token["id"] for token in span}
    heads = [at for at, token in enumerate(span) if token["head"] not in numbers]
    head = heads[0] if heads else len(span) - 1
    is_pronoun = span[head]["upos"] in ("PRON", "DET")
    is_personal = is_pronoun and span[head]["form"].lower() in PERSONAL
    return Mention(entity, kind if is_personal or not is_pronoun else "", start + head, is_pronoun)
