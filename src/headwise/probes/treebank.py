"""Read probe sentences from a CoNLL-U treebank (https://universaldependencies.org/format.html).

In: a file. Out: its sentences with at least one arc.

- A multi-word token ("didn't", "du") is one word, in its written form. Arcs between its parts are
  dropped; arcs to or from a part belong to the whole word.
- Empty nodes (8.1) are not part of the text and are dropped. Arcs to the root and `punct` arcs are
  also dropped.
- Subtypes of relations are dropped: `nsubj:pass` counts as `nsubj`.
- The text is the one in the comment `# text = ...` if it has the sentence's words; otherwise the
  words are joined with spaces.
- A comment `# register = ...` names a sentence's group. In a file without such comments, documents
  (`# newdoc`) are the groups if there are at least MIN_DOCUMENTS.
"""

from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

from headwise.errors import MissingPackage, OptionError
from headwise.files import read_text
from headwise.probes.sentences import Arc, ProbeSentence
from headwise.reading.words import locate_words

MIN_DOCUMENTS = 8
"""With fewer documents, splitting a treebank by document would give halves of unequal size."""
DOCUMENT = "document "


def as_sentences(source: str | PathLike[str] | Iterable[ProbeSentence]) -> list[ProbeSentence]:
    """A list of the ProbeSentences in `source`, which may be the path of a CoNLL-U file."""
    if isinstance(source, str | PathLike):
        sentences: list[Any] = read_treebank(Path(source))
        if not sentences:
            raise OptionError(f"{source} has no sentence with a relation: pass a CoNLL-U file")
        return sentences
    sentences = list(source) if isinstance(source, Iterable) else [source]
    for sentence in sentences:
        if not isinstance(sentence, ProbeSentence):
            raise OptionError(
                f"{sentence!r} is not a ProbeSentence: pass ProbeSentences or a CoNLL-U file"
            )
    return sentences


def read_treebank(path: Path) -> list[ProbeSentence]:
    """The sentences in a CoNLL-U file that have at least one arc."""
    if not path.is_file():
        raise OptionError(f"{path} is not a file: pass the path of a CoNLL-U file")
    try:
        from conllu import parse_incr
        from conllu.exceptions import ParseException
    except ImportError as err:
        raise MissingPackage("CoNLL-U files need the package conllu: pip install conllu") from err
    text, sentences, number = read_text(path), list[ProbeSentence](), 0
    try:
        for tokens in parse_incr(StringIO(text)):
            number += any(key.startswith("newdoc") for key in tokens.metadata)
            group = tokens.metadata.get("register") or f"{DOCUMENT}{number}"
            sentence = _build_sentence(list(tokens))
            written = (tokens.metadata.get("text") or "").strip()
            if locate_words(sentence.words, written) is None:
                written = ""
            sentences.append(replace(sentence, text=written, group=group))
    except (ParseException, OptionError) as err:
        place = _sentence_lines(text, len(sentences))
        raise OptionError(f"{path}, {place}, is not valid CoNLL-U: {err}") from err
    if number < MIN_DOCUMENTS:
        sentences = [
            replace(sentence, group="") if sentence.group.startswith(DOCUMENT) else sentence
            for sentence in sentences
        ]
    return [sentence for sentence in sentences if sentence.arcs]


def _sentence_lines(text: str, number: int) -> str:
    """Text that names the line numbers of the sentence with index `number`."""
    lines = enumerate(text.split("\n"), start=1)
    blocks = groupby(lines, key=lambda line: bool(line[1].strip()))
    sentences = [list(block) for is_sentence, block in blocks if is_sentence]
    first, last = sentences[number][0][0], sentences[number][-1][0]
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _build_sentence(tokens: list[Any]) -> ProbeSentence:
    words: list[str] = []
    word_of: dict[int, int] = {}  # number of a syntactic word -> index in `words`
    syntactic = []
    for token in tokens:
        if "deprel" not in token:
            raise OptionError(
                f"the line for {token.get('form')!r} has {len(token)} columns instead of 10"
            )
        if not token["form"]:
            raise OptionError(f"the line for word {token['id']} has no form")
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
                raise OptionError(f"the line for {token['form']!r} has no word number")
    arcs = []
    for token in syntactic:
        head, relation = token["head"], (token["deprel"] or "_").split(":")[0]
        if not head or relation in ("_", "punct"):  # the root, no annotation, or punctuation
            continue
        if head not in word_of:
            raise OptionError(
                f"the head of {token['form']!r} is {head}, but no word has that number"
            )
        dependent, governor = word_of[token["id"]], word_of[head]
        if dependent != governor:
            arcs.append(Arc(relation, dependent, governor))
    return ProbeSentence(tuple(words), tuple(arcs))
