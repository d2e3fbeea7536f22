"""The Python manual: prose that comes with Python, to calibrate on if the user gives no text.

In: the language reference in `pydoc_data` and the docstrings in the standard library, whose files
are read but never run. Out: documents, their sentences, and documents split into two parts. The
prose differs slightly between Python versions.
"""

import functools
import inspect
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from headwise.errors import OptionError
from headwise.formats import format_count

NO_MANUALS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
"""Folders of the standard library to skip: they contain tests or other packages."""
WORDS_IN_A_SENTENCE = range(5, 51)
SIGNS_IN_PROSE = 0.06
"""Prose has at most this share of characters other than letters, spaces, commas and full stops."""
GLUE_IN_PROSE = 0.2
"""Prose has at least this share of function words; lists of names and code have fewer."""
GLUE = frozenset(
    "a all an and any are as at be been but by can do does for from has have if in into is it its "
    "may more must no not of on one only or other out same should so such than that the their "
    "then there these they this those to up was we were when where which while will with would "
    "you your".split()
)

_LITERALS = re.compile(
    r'#[^\n]*|"""((?:[^\\"]|\\.|"(?!""))*)"""|\'\'\'(?:[^\\\']|\\.|\'(?!\'\'))*\'\'\''
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'',
    re.DOTALL,
)
"""Comments and strings in a Python file; group 1 is the text inside triple double quotes."""
_MARKS = re.compile(r":[\w:]+:(?=`)|`+|(?<![\w*])\*+(?=\w)|(?<=[^\s*])\*+(?![\w*])")
_QUOTED = re.compile(r"\"([^\"\s](?:[^\"]*[^\"\s])?)\"|(?<!\w)['`]([^'`\s]+)'(?!\w)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?[0-9a-z][.)])\s+", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<!cf\.)(?<![A-Z]\.)\s+(?=[A-Z])"
)
_UNFINISHED = re.compile(r"(?<=[.!?])\s+[A-Z][^.!?]*:$")
"""A final sentence that ends in a colon, to introduce a list or an example."""
_SIGNS = re.compile(r"[^\w\s,.]|[\d_]")
_CODE = re.compile(
    r"[\\=<>{}\[\]@$~^|]|\.\.|--|::|\w\*+\w|\w\(\w|https?:|Copyright"
    r"|^(?:Args|Examples?|Raises|Returns|See also|Usage):"
)


@functools.cache
def manual_texts() -> tuple[str, ...]:
    """Documents of prose, one per topic or module; no paragraph occurs twice."""
    sources: list[str] = []
    with suppress(ImportError):  # some systems package it separately
        from pydoc_data.topics import topics

        sources += [text for _, text in sorted(topics.items())]
    library = Path(sysconfig.get_path("stdlib"))
    for file in _modules(library) if library.is_dir() else ():
        literals = _LITERALS.finditer(file.read_text("utf-8", errors="replace"))
        docstrings = (inspect.cleandoc(literal[1]) for literal in literals if literal[1])
        sources.append("\n\n".join(docstrings))  # includes a few other triple-quoted strings
    texts = _unique_paragraphs("\n\n".join(_prose(text)) for text in sources)
    if not texts:
        raise OptionError("this Python comes without a manual to calibrate on: pass your own texts")
    return texts


def split_sentences(texts: Iterable[str]) -> tuple[str, ...]:
    """Sentences of five to fifty words, in the order of the texts and without repeats.

    >>> split_sentences(["See e.g. Dante on what\\nhell is like. Yes. The rest of it is quiet."])
    ('See e.g. Dante on what hell is like.', 'The rest of it is quiet.')
    """
    sentences: dict[str, str] = {}
    for text in texts:
        for paragraph in split_paragraphs(text):
            for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
                if len(sentence.split()) in WORDS_IN_A_SENTENCE:
                    sentences.setdefault(_gist(sentence), sentence)
    return tuple(sentences.values())


def split_documents(
    texts: Iterable[str],
    *,
    held_out: float = 0.25,
    seed: int = 0,
    keeps_whole: bool = False,
    least: int = 1,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Documents to fit on, and held-out documents with about `held_out` of all characters.

    No paragraph is in both parts. The first part has at least `least` documents; if there are too
    few, all are split between paragraphs, of which it then has at least `least`. With
    `keeps_whole`, no document is changed or split, and only repeated documents are left out.
    """
    texts = tuple(texts)
    if keeps_whole:
        examples = tuple({_gist(text): text for text in texts if text.strip()}.values())
        if len(examples) <= least:
            count = format_count(len(examples), "example")
            raise OptionError(f"{count} cannot be divided into {least + 1} parts: pass more")
        return _split(examples, held_out, seed, least)
    parts = [part for text in texts for part in split_paragraphs(text)]
    if len(parts) > 1:  # a single paragraph may be huge, but has no repeats
        documents = _unique_paragraphs(texts)
        if len(documents) > least:
            return _split(documents, held_out, seed, least)
        parts = [part for text in documents for part in split_paragraphs(text)]
    if len(parts) <= least:
        raise OptionError(
            f"a text of {format_count(len(parts), 'paragraph')} cannot be divided into {least + 1} "
            "parts: pass several documents, or put blank lines between paragraphs"
        )
    fitted, rest = _split(parts, held_out, seed, least)
    return ("\n\n".join(fitted),), ("\n\n".join(rest),)


def _unique_paragraphs(texts: Iterable[str]) -> tuple[str, ...]:
    """The documents without repeated paragraphs and without empty documents."""
    seen: set[str] = set()
    documents = []
    for text in texts:
        new = []
        for part in split_paragraphs(text):
            gist = _gist(part)
            if gist not in seen:
                seen.add(gist)
                new.append(part)
        documents.append("\n\n".join(new))
    return tuple(filter(None, documents))


def split_paragraphs(text: str) -> list[str]:
    """Split a document into paragraphs at blank lines."""
    return [part.strip() for part in _BLANK.split(text) if part.strip()]


def _gist(text: str) -> str:
    """A text's words in lower case: equal for texts that differ only in punctuation and case."""
    return " ".join(re.findall(r"\w+", text.casefold())) or text.strip()


def _split(
    units: Sequence[str], held_out: float, seed: int, least: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Two random parts of `units`: one with at least `least` of them, and one with at least one.

    The second has about `held_out` of the characters.
    """
    order = random.Random(seed).sample(range(len(units)), len(units))
    sizes = list(accumulate(len(units[place]) for place in order))
    target = held_out * sizes[-1]
    counts = range(1, len(units) - least + 1)
    count = min(counts, key=lambda count: abs(sizes[count - 1] - target))
    rest = set(order[:count])
    chosen = tuple(unit for place, unit in enumerate(units) if place not in rest)
    return chosen, tuple(units[place] for place in sorted(rest))


def _modules(folder: Path) -> Iterator[Path]:
    """Python files in a folder and its subfolders, sorted, except tests and other packages."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.suffix == ".py":
            yield entry
        elif entry.is_dir() and entry.name not in NO_MANUALS:
            yield from _modules(entry)


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of a manual that read as prose, each on one line."""
    for block in _BLANK.split(text):
        for part in _BULLET.split(block):
            line = _UNFINISHED.sub("", " ".join(part.split()))
            line = _MARKS.sub("", _QUOTED.sub(r"\1\2", line))
            if _reads_as_prose(line):
                yield line


def _reads_as_prose(line: str) -> bool:
    """Whether a paragraph consists of English sentences, not code, grammar, names or tables.

    >>> _reads_as_prose("The rest of it is quiet."), _reads_as_prose("int x, float y, str z.")
    (True, False)
    """
    words = line.split()
    if len(words) < WORDS_IN_A_SENTENCE.start or not line[0].isupper() or line[-1] not in ".!?":
        return False
    if _CODE.search(line) or len(_SIGNS.findall(line)) > SIGNS_IN_PROSE * len(line):
        return False
    glue = sum(word.strip(".,;:()").lower() in GLUE for word in words)
    return glue >= GLUE_IN_PROSE * len(words)
