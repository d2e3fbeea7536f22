"""Any treebank in CoNLL-U (https://universaldependencies.org/format.html) as probe sentences.

In: a file. Out: its sentences, read one at a time.

- A multi-word token ("didn't", "du") is one word, in its written form. Arcs between its parts are
  dropped; arcs to or from a part belong to the whole word.
- Empty nodes (8.1) are not part of the text and are dropped; so are arcs to the root.
- A relation keeps its subtype (`nsubj:pass`); its base name (`nsubj`) selects it too.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

from headwise.errors import MissingPackage, OptionError
from headwise.probes.sentences import Arc, ProbeSentence

PUNCTUATION = "punct"


class _Lines:
    """A text file that knows the line numbers of the sentence read last."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.number, self.first, self.is_between = file, 0, 1, True

    def read(self) -> str:
        """Required by conllu, which then iterates over the lines instead."""
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
        last = self.number - self.is_between
        return f"lines {self.first} to {last}" if last > self.first else f"line {self.first}"


def read_treebank(
    path: str | PathLike[str],
    *,
    relations: str | Collection[str] | None = None,
    with_subtypes: bool = True,
    with_punctuation: bool = False,
) -> Iterator[ProbeSentence]:
    """Yield the sentences of a CoNLL-U file that have at least one arc.

    `relations` selects one relation or several, by full or base name (default: all). With
    `with_subtypes=False`, arcs are named by the base name. Punctuation is dropped unless
    `with_punctuation`.
    """
    if not Path(path).is_file():
        raise OptionError(f"{path} is not a file: pass the path of a CoNLL-U file")
    selected = {relations} if isinstance(relations, str) else relations

    def matching() -> Iterator[ProbeSentence]:
        for sentence in _read_sentences(Path(path)):
            arcs = []
            for arc in sentence.arcs:
                base_name = arc.relation.split(":")[0]
                if base_name == PUNCTUATION and not with_punctuation:
                    continue
                if selected is None or not {arc.relation, base_name}.isdisjoint(selected):
                    name = arc.relation if with_subtypes else base_name
                    arcs.append(replace(arc, relation=name))
            if arcs:
                yield ProbeSentence(sentence.words, tuple(arcs))

    return matching()


def as_sentences(source: str | PathLike[str] | Iterable[ProbeSentence]) -> list[ProbeSentence]:
    """ProbeSentences as a list, or those of a CoNLL-U file, relations without subtypes."""
    if isinstance(source, str | PathLike):
        sentences: list[Any] = list(read_treebank(source, with_subtypes=False))
        if not sentences:
            raise OptionError(f"{source} has no sentence with a relation: pass a CoNLL-U file")
        return sentences
    sentences = list(source) if isinstance(source, Iterable) else [source]
    for sentence in sentences:
        if not isinstance(sentence, ProbeSentence):
            raise OptionError(
                f"{sentence!r} is not a ProbeSentence: pass ProbeSentences, or a CoNLL-U file"
            )
    return sentences


def _read_sentences(path: Path) -> Iterator[ProbeSentence]:
    """Every sentence with every arc; an error states the file and the lines."""
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
            for tokens in parse_incr(lines):  # type: ignore[arg-type]  # it only iterates over lines
                yield _build_sentence(list(tokens))
        except (ParseException, OptionError) as err:
            raise OptionError(f"{path}, {lines.sentence}, is not CoNLL-U: {err}") from err
        except UnicodeDecodeError as err:
            raise OptionError(f"{path} is not UTF-8 after line {lines.number}: {err}") from err


def _build_sentence(tokens: list[Any]) -> ProbeSentence:
    words: list[str] = []
    word_of: dict[int, int] = {}  # number of a syntactic word -> index in `words`
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
    """The arc of one syntactic word; None for the root, without annotation, or within a word."""
    governor, relation = token["head"], token["deprel"]
    if not governor or relation in (None, "", "_"):
        return None
    if governor not in word_of:
        raise OptionError(
            f"the head of {token['form']!r} is {governor}, but no word has that number"
        )
    dependent = word_of[token["id"]]
    return None if dependent == word_of[governor] else Arc(relation, dependent, word_of[governor])
