"""The corpus: general English in twelve registers and rough text, written for headwise.

In: the text files in this folder, one per register. Out: documents. Every document has a title,
paragraphs and sentences, and was written as a whole, so names and phrases recur as in real ones.
A thirteenth register, `rough`, has what else models meet: code, records such as tables and logs,
notes and lists, badly spaced text, verse and plays. The titles of its documents name these kinds.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from headwise.errors import OptionError
from headwise.reading.python_manual import manual_texts

PROSE = (
    *("news", "encyclopedia", "fiction", "dialogue", "letters", "reviews", "instructions"),
    *("questions", "captions", "science", "law", "speech"),
)
"""Registers with sentences, ordered so that neighbours differ; alternate ones form two halves."""
ROUGH, MANUAL = "rough", "manual"
ROUGH_KINDS = ("code", "records", "notes", "spaced", "verse")
REGISTERS = (*PROSE, ROUGH)
MANUAL_WORDS, MANUAL_DOCUMENTS = 5_000, 60
TITLE = "# "
SCAN_DOCUMENTS = 3
SCAN_WORDS = 60
"""Words per document in the default text of a scan."""


@dataclass(frozen=True)
class Document:
    """A document of the corpus: its paragraphs are tuples of sentences."""

    register: str
    title: str
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of all paragraphs."""
        return tuple(sentence for paragraph in self.paragraphs for sentence in paragraph)

    @property
    def text(self) -> str:
        """The whole text, with blank lines between paragraphs; rough text keeps its lines."""
        joint = "\n" if self.register == ROUGH else " "
        return "\n\n".join(joint.join(paragraph) for paragraph in self.paragraphs)


def corpus(registers: str | Sequence[str] = REGISTERS) -> dict[str, tuple[str, ...]]:
    """The built-in texts: for each register, its documents.

    A further register, `manual`, is the prose in Python's own documentation.

    >>> {name: len(texts) > 4 for name, texts in corpus(["news", "law"]).items()}
    {'news': True, 'law': True}
    """
    names = [registers] if isinstance(registers, str) else list(registers)
    return {
        name: manual_texts()
        if name == MANUAL
        else tuple(document.text for document in documents(name))
        for name in names
    }


def rough_texts() -> dict[str, tuple[str, ...]]:
    """The documents of the register `rough`, by kind."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in ROUGH_KINDS}
    for document in documents(ROUGH):
        by_kind[document.title.partition(":")[0]].append(document.text)
    return {kind: tuple(texts) for kind, texts in by_kind.items()}


def calibration_texts() -> dict[str, tuple[str, ...]]:
    """The text that heads are judged by if the user gives none: every register, and the manual.

    The manual is much longer than a register, so only about MANUAL_WORDS words of it are used.
    """
    manual, words = manual_texts(), 0
    part = []
    for text in manual[:: max(1, len(manual) // MANUAL_DOCUMENTS)]:
        if words < MANUAL_WORDS:
            part.append(text)
            words += len(text.split())
    return corpus() | {MANUAL: tuple(part)}


@functools.cache
def documents(register: str) -> tuple[Document, ...]:
    """The documents of a register, in the order of its file."""
    if register not in REGISTERS:
        raise OptionError(
            f"{register!r} is not a register: choose from {', '.join((*REGISTERS, MANUAL))}",
            option="registers",
        )
    text = (Path(__file__).parent / f"{register}.txt").read_text("utf-8")
    return tuple(_split_documents(register, text))


def _split_documents(register: str, text: str) -> Iterator[Document]:
    for block in f"\n{text}".split(f"\n{TITLE}")[1:]:
        title, _, body = block.partition("\n")
        paragraphs = [part.strip("\n").split("\n") for part in body.split("\n\n")]
        filled = (tuple(lines) for lines in paragraphs if any(lines))
        yield Document(register, title, tuple(filled))


@functools.cache
def scan_texts() -> tuple[str, ...]:
    """The text that a scan reads by default: the start of some documents of every prose register.

    Whole paragraphs, about SCAN_WORDS words per document.
    """
    return tuple(
        _start_of(document) for register in PROSE for document in _spread(documents(register))
    )


def _spread(items: Sequence[Document]) -> Sequence[Document]:
    """SCAN_DOCUMENTS documents, evenly distributed over a register."""
    return items[:: math.ceil(len(items) / SCAN_DOCUMENTS)]


def _start_of(document: Document) -> str:
    paragraphs = document.text.split("\n\n")
    sizes = accumulate(len(paragraph.split()) for paragraph in paragraphs)
    count = next((at for at, size in enumerate(sizes, 1) if size >= SCAN_WORDS), len(paragraphs))
    return "\n\n".join(paragraphs[:count])
