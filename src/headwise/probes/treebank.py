"""Any treebank in CoNLL-U (https://universaldependencies.org/format.html) as probe sentences.

In: a file. Out: its sentences, one after the other, never all at once. This module refuses to
know what the relations mean.

- A multi-word token ("didn't", "du") is one word, with the form that was written: its parts have
  no place of their own in the text. Arcs between its parts are dropped; arcs that leave a part
  or lead to one are the whole word's.
- Empty nodes (8.1) were never written, and are dropped; so are arcs to the root.
- A relation keeps its subtype (`nsubj:pass`); asked for by its base name (`nsubj`) it is found.
"""

from collections.abc import Collection, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from headwise.errors import MissingPackage, OptionError
from headwise.probes.sentences import Arc, ProbeSentence

PUNCTUATION = "punct"


class _Lines:
    """A text file that knows which of its lines hold the sentence read last."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.number, self.first, self.is_between = file, 0, 1, True

    def read(self) -> str:
        """What is left of the file; conllu asks for it to be there and reads line by line."""
        return self.file.read()

    def __iter__(self) -> Iterator[str]:
        for line in self.file:
            self.number += 1
            if line.strip() and self.is_between:
                self.first = self.number
            self.is_between = not line.strip()
            yield line

    @property
    def sentence(self) -> str:
        """Where the last sentence stands, in words."""
        last = self.number - self.is_between
        return f"lines {self.first} to {last}" if last > self.first else f"line {self.first}"


def base_name(relation: str) -> str:
    """The relation without its subtype.

    >>> base_name("nsubj:pass")
    'nsubj'
    """
    return relation.split(":")[0]


def read_treebank(
    path: str | PathLike[str],
    *,
    relations: str | Collection[str] | None = None,
    with_subtypes: bool = True,
    with_punctuation: bool = False,
) -> Iterator[ProbeSentence]:
    """The sentences of a CoNLL-U file that hold at least one arc, read as they are asked for.

    `relations` are those to keep, each by its full or its base name, one alone as it is; all where
    left out. Without subtypes an arc is named by its base name. Arcs to punctuation are dropped
    unless asked for.
    """
    if not Path(path).is_file():
        raise OptionError(f"{path} is not a file: give the path of a CoNLL-U file")
    wanted = {relations} if isinstance(relations, str) else relations

    def is_wanted(relation: str) -> bool:
        names = {relation, base_name(relation)}
        is_kept = with_punctuation or PUNCTUATION not in names
        return is_kept and (wanted is None or not names.isdisjoint(wanted))

    def kept() -> Iterator[ProbeSentence]:
        for sentence in _sentences(Path(path)):
            arcs = tuple(
                arc if with_subtypes else Arc(base_name(arc.relation), arc.dependent, arc.governor)
                for arc in sentence.arcs
                if is_wanted(arc.relation)
            )
            if arcs:
                yield ProbeSentence(sentence.words, arcs)

    return kept()


def as_sentences(given: str | PathLike[str] | Iterable[ProbeSentence]) -> list[ProbeSentence]:
    """Sentences as they are given, or those of a CoNLL-U file without subtypes of relations."""
    if isinstance(given, str | PathLike):
        found = list(read_treebank(given, with_subtypes=False))
        if not found:
            raise OptionError(f"{given} has no sentence with a relation: give a CoNLL-U file")
        return found
    sentences: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    wrong = [one for one in sentences if not isinstance(one, ProbeSentence)]
    if wrong:
        raise OptionError(
            f"{wrong[0]!r} is not a ProbeSentence: give ProbeSentences, or a CoNLL-U file"
        )
    return sentences


def _sentences(path: Path) -> Iterator[ProbeSentence]:
    """Every sentence with every arc; an error names the file and the lines."""
    try:
        from conllu import parse_incr
        from conllu.exceptions import ParseException
    except ImportError as err:
        raise MissingPackage("CoNLL-U files need the package conllu: pip install conllu") from err
    try:
        opened = path.open(encoding="utf-8")
    except OSError as err:
        raise OptionError(f"{path} cannot be read: {err.strerror}") from err
    with opened as file:
        lines = _Lines(file)
        try:
            for tokens in parse_incr(lines):  # type: ignore[arg-type]  # it needs lines, no file
                yield _sentence(list(tokens))
        except (ParseException, OptionError) as err:
            raise OptionError(f"{path}, {lines.sentence}, is not CoNLL-U: {err}") from err
        except UnicodeDecodeError as err:
            raise OptionError(f"{path} is not UTF-8 after line {lines.number}: {err}") from err


def _sentence(tokens: list[Any]) -> ProbeSentence:
    """One sentence with every arc between two of its words."""
    words: list[str] = []
    word_of: dict[int, int] = {}  # from the number of a syntactic word to its place in `words`
    syntactic = []
    for token in tokens:
        if "deprel" not in token:
            raise OptionError(f"the line of {token.get('form')!r} has {len(token)} columns, not 10")
        if not token["form"]:
            raise OptionError(f"the line of word {token['id']} has no form")
        match token["id"]:
            case int(number):
                syntactic.append(token)
                if number not in word_of:
                    word_of[number] = len(words)
                    words.append(token["form"])
            case (int(first), "-", int(last)):
                word_of |= dict.fromkeys(range(first, last + 1), len(words))
                words.append(token["form"])
            case None:
                raise OptionError(f"the line of {token['form']!r} has no number")
    arcs = (_arc(token, word_of) for token in syntactic)
    return ProbeSentence(tuple(words), tuple(arc for arc in arcs if arc is not None))


def _arc(token: Any, word_of: dict[int, int]) -> Arc | None:
    """The arc of one syntactic word; None for the root, without annotation, or inside a word."""
    governor, relation = token["head"], token["deprel"]
    if not governor or relation in (None, "", "_"):
        return None
    if governor not in word_of:
        raise OptionError(
            f"the head of {token['form']!r} is {governor}, and no word has that number"
        )
    dependent = word_of[token["id"]]
    return None if dependent == word_of[governor] else Arc(relation, dependent, word_of[governor])
