"""Readers for public data sets in their usual formats: ProbeSentences, scored pairs, documents.

- `.conllu`: dependencies, read by headwise; coreference, if MISC has `Entity=` as in GUM; and whole
  documents, if `# newdoc` says where they begin.
- bracketed sentences, as in WinoBias: `[The nurse] told the driver that [she] was late.`
- `.tsv` with GAP's columns: a text, a pronoun and two names with offsets.
- SICK: tab-separated, with the columns sentence_A, sentence_B and relatedness_score.
- STS: tab-separated, with the columns score, sentence1 and sentence2, or without names of columns:
  score, sentence, sentence, which may come after genre, file, year and number.
- `.txt` in no other format: one document.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from conllu import TokenList, parse

from headwise import Arc, ProbeSentence
from headwise.files import read_text

COREFERENCE = "coreference"
PERSONAL = frozenset("he him his she her hers it its they them their theirs".split())
SENTENCES_BACK = 2
TABULAR = {".tsv", ".txt", ".csv"}
"""Parts of the names of files that may have pairs or bracketed sentences, such as .txt.dev."""
GAP_COLUMNS = {"Text", "Pronoun-offset", "A-coref", "B-coref"}
PAIR_COLUMNS = (
    ("sentence_A", "sentence_B", "relatedness_score"),
    ("sentence1", "sentence2", "score"),
)
"""Names of the columns of SICK and STS."""
SCORE_COLUMNS = (0, 4)
"""Places of the score in STS files that do not name their columns; the sentences follow it."""
_NUMBER = re.compile(r"\d+(\.\d+)?")
_COMMENT = re.compile(r"#\s*(newdoc|newpar|text)(?:\s+id)?\s*(?:=\s*(.*))?")
_REGISTER = re.compile(r"[A-Z]\w*?_([a-z]+)_.+")
_WORD = re.compile(r"\w+(?:[-'.,]\w+)*|[^\w\s]")
_MENTION = re.compile(r"\((?P<open>\w+)-(?P<type>[a-z]+)[^()]*(?P<single>\))?|(?P<close>\w+)\)")
_BRACKETED = re.compile(r"\[([^\]]+)\]")
_NUMBERED = re.compile(r"^\d+\s+(?=.*\[)")


class ScoredPair(NamedTuple):
    """Two sentences, and how similar people find them."""

    first: str
    second: str
    score: float


class OutsideDocument(NamedTuple):
    """A whole text, and its register if the name of the document states one, else ""."""

    register: str
    text: str


@dataclass(frozen=True)
class Mention:
    """A mention of an entity: the word that stands for it, among the words of a document."""

    entity: str
    kind: str
    word: int
    is_pronoun: bool


def read_pairs(path: Path) -> list[ScoredPair]:
    """The pairs of a SICK or STS file; empty if it has another format."""
    rows = [line.split("\t") for line in read_text(path).split("\n") if line.strip()]
    if not rows:
        return []
    for names in PAIR_COLUMNS:
        if set(names) <= set(rows[0]):
            return list(_scored_pairs(rows[1:], [rows[0].index(name) for name in names]))
    for column in SCORE_COLUMNS:
        pairs = list(_scored_pairs(rows, [column + 1, column + 2, column]))
        if len(pairs) == len(rows):
            return pairs
    return []


def _scored_pairs(rows: list[list[str]], columns: list[int]) -> Iterator[ScoredPair]:
    """The pairs in the rows that have all columns and a number as the score."""
    for row in rows:
        if len(row) > max(columns) and _NUMBER.fullmatch(row[columns[2]]):
            yield ScoredPair(row[columns[0]], row[columns[1]], float(row[columns[2]]))


def read_documents(path: Path) -> list[OutsideDocument]:
    """The documents of a CoNLL-U file, or a text file as one document, without one-word documents.

    A blank line separates the paragraphs of a document.
    """
    text = read_text(path)
    documents = list(_treebank_documents(text))
    if path.suffix != ".conllu":
        documents = [OutsideDocument("", text)]
    return [document for document in documents if len(document.text.split()) > 1]


def _treebank_documents(text: str) -> Iterator[OutsideDocument]:
    """The documents in the comments of a CoNLL-U file."""
    documents: list[tuple[str, list[list[str]]]] = []
    for line in text.split("\n"):
        comment = _COMMENT.fullmatch(line)
        if comment and comment[1] == "newdoc":
            name = _REGISTER.fullmatch(comment[2] or "")
            documents.append((name[1] if name else "", [[]]))
        elif comment and documents:
            paragraphs = documents[-1][1]
            if comment[1] == "newpar":
                paragraphs.append([])
            elif comment[2]:
                paragraphs[-1].append(comment[2])
    for register, paragraphs in documents:
        joined = (" ".join(sentences) for sentences in paragraphs if sentences)
        yield OutsideDocument(register, "\n\n".join(joined))


def read_bracketed(path: Path) -> list[ProbeSentence]:
    """Sentences in which brackets mark two mentions of one person, the second a pronoun.

    The other candidate is a noun that other sentences of the file mark.
    """
    lines = [_NUMBERED.sub("", line) for line in read_text(path).splitlines()]
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
    text = read_text(path)
    if not GAP_COLUMNS <= set(text.partition("\n")[0].split("\t")):
        return []
    sentences = []
    for row in csv.DictReader(io.StringIO(text), delimiter="\t"):
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
    for sentence in parse(read_text(path)):
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
