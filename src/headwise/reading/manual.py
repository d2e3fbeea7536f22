"""Manual: prose that comes with every Python, for calibration when no text is given.

In: the language reference in `pydoc_data` and the docstrings of the standard library, whose files
are read and never run. Out: documents of paragraphs, their sentences, and documents in two halves.
What they say differs a little from one Python to the next. It knows no tokens and no model.
"""

import functools
import inspect
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from headwise.errors import OptionError
from headwise.formats import format_count

NO_MANUALS = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
"""Folders of the library's that are not its own, or hold tests."""
WORDS_IN_A_SENTENCE = range(5, 51)
SIGNS_IN_PROSE = 0.06
"""Most share of what is no letter, space, comma or stop: tables and code have more."""
GLUE_IN_PROSE = 0.2
"""Least share of words that only join others: lists of names and code have less."""
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
"""Comments and texts of a Python file; the first group is what three double quotes enclose."""
_MARKS = re.compile(r":[\w:]+:(?=`)|`+|(?<![\w*])\*+(?=\w)|(?<=[^\s*])\*+(?![\w*])")
_QUOTED = re.compile(r"\"([^\"\s](?:[^\"]*[^\"\s])?)\"|(?<!\w)['`]([^'`\s]+)'(?!\w)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?[0-9a-z][.)])\s+", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<!cf\.)(?<![A-Z]\.)\s+(?=[A-Z])"
)
_UNFINISHED = re.compile(r"(?<=[.!?])\s+[A-Z][^.!?]*:$")
"""A last sentence that announces what a document of prose leaves out."""
_SIGNS = re.compile(r"[^\w\s,.]|[\d_]")
_CODE = re.compile(
    r"[\\=<>{}\[\]@$~^|]|\.\.|--|::|\w\*+\w|\w\(\w|https?:|Copyright"
    r"|^(?:Args|Examples?|Raises|Returns|See also|Usage):"
)


@functools.cache
def manual_texts() -> tuple[str, ...]:
    """Documents of prose, a topic or a module each; paragraphs apart by blank lines, each once."""
    library = Path(sysconfig.get_path("stdlib"))
    files = _modules(library) if library.is_dir() else []
    read = [*_topics(), *map(_docstrings, files)]
    texts = each_paragraph_once("\n\n".join(_prose(text)) for text in read)
    if not texts:
        raise OptionError("this Python has no manual to calibrate on: give texts of your own")
    return texts


def sentences_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Single sentences of five to fifty words, each once, in the order of the texts.

    >>> sentences_of(["See e.g. Dante on what\\nhell is like. Yes. The rest of it is quiet."])
    ('See e.g. Dante on what hell is like.', 'The rest of it is quiet.')
    """
    found: dict[str, str] = {}
    for text in texts:
        for paragraph in paragraphs_of(text):
            for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
                if len(sentence.split()) in WORDS_IN_A_SENTENCE:
                    found.setdefault(_gist(sentence), sentence)
    return tuple(found.values())


def split_documents(
    texts: Iterable[str], *, held_out: float = 0.25, seed: int = 0
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Documents to choose and fit on, and others held out: about that share of all characters.

    No paragraph is in both. A single document is split between paragraphs.
    """
    if not 0 < held_out < 1:
        raise OptionError(f"held_out must be a share between 0 and 1, not {held_out}")
    texts = tuple(texts)
    parts = [part for text in texts for part in paragraphs_of(text)]
    if len(parts) > 1:  # else, in a huge text, there is no need to look for what came before
        documents = each_paragraph_once(texts)
        if len(documents) > 1:
            return _split(documents, held_out, seed)
        parts = [part for text in documents for part in paragraphs_of(text)]
    if len(parts) < 2:
        raise OptionError(
            f"a text of {format_count(len(parts), 'paragraph')} cannot be split into one to fit on "
            "and one held out: give several documents, or paragraphs with blank lines between them"
        )
    fitted, rest = _split(parts, held_out, seed)
    return ("\n\n".join(fitted),), ("\n\n".join(rest),)


def each_paragraph_once(texts: Iterable[str]) -> tuple[str, ...]:
    """The same documents without paragraphs that came before, and without empty documents."""
    seen: set[str] = set()
    kept = []
    for text in texts:
        new = []
        for part in paragraphs_of(text):
            gist = _gist(part)
            if gist not in seen:
                seen.add(gist)
                new.append(part)
        kept.append("\n\n".join(new))
    return tuple(filter(None, kept))


def paragraphs_of(text: str) -> list[str]:
    """The paragraphs of a document: what has blank lines between."""
    return [part.strip() for part in _BLANK.split(text) if part.strip()]


def _gist(text: str) -> str:
    """What two paragraphs share that differ in marks, case and line ends alone."""
    return " ".join(re.findall(r"\w+", text.casefold())) or text.strip()


def _split(
    units: Sequence[str], held_out: float, seed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The units in two halves, neither empty: as near to the share as the shuffled order comes."""
    order = random.Random(seed).sample(range(len(units)), len(units))
    sizes = list(accumulate(len(units[place]) for place in order))
    wanted = held_out * sizes[-1]
    count = min(range(1, len(units)), key=lambda count: abs(sizes[count - 1] - wanted))
    rest = set(order[:count])
    chosen = tuple(unit for place, unit in enumerate(units) if place not in rest)
    return chosen, tuple(units[place] for place in sorted(rest))


def _topics() -> list[str]:
    """The language reference, a text a topic; nothing in a Python that comes without."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return []
    return [text for _, text in sorted(topics.items())]


def _modules(folder: Path) -> Iterator[Path]:
    """Python files in a folder and below, sorted; those of tests and of others left out."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.suffix == ".py":
            yield entry
        elif entry.is_dir() and entry.name not in NO_MANUALS:
            yield from _modules(entry)


def _docstrings(file: Path) -> str:
    """Whatever a file has in three double quotes: docstrings, and a little that is not prose."""
    source = file.read_text("utf-8", errors="replace")
    enclosed = (found[1] for found in _LITERALS.finditer(source))
    return "\n\n".join(inspect.cleandoc(text) for text in enclosed if text)


def _prose(text: str) -> Iterator[str]:
    """Those paragraphs of a manual that read as prose, each on one line."""
    for block in _BLANK.split(text):
        for part in _BULLET.split(block):
            line = _UNFINISHED.sub("", " ".join(part.split()))
            line = _MARKS.sub("", _QUOTED.sub(r"\1\2", line))
            if reads_as_prose(line):
                yield line


def reads_as_prose(line: str) -> bool:
    """Whether a paragraph is made of English sentences, not of code, grammar, names or tables.

    >>> reads_as_prose("The rest of it is quiet."), reads_as_prose("int x, float y, str z.")
    (True, False)
    """
    words = line.split()
    if len(words) < WORDS_IN_A_SENTENCE.start or not line[0].isupper() or line[-1] not in ".!?":
        return False
    if _CODE.search(line) or len(_SIGNS.findall(line)) > SIGNS_IN_PROSE * len(line):
        return False
    glue = sum(word.strip(".,;:()").lower() in GLUE for word in words)
    return glue >= GLUE_IN_PROSE * len(words)
