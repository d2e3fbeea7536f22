"""PromptPair: a clean prompt, a corrupted one, and the two words whose logits are compared.

In: a CSV, TSV or JSON lines file. Out: PromptPairs. `alignment.py` turns them into model inputs,
`tasks.py` has built-in ones.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from headwise.checks import check_characters
from headwise.errors import OptionError
from headwise.files import read_text
from headwise.formats import join_words

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""The character between columns, by suffix of the file."""
JSON_LINES = (".jsonl", ".json", ".ndjson")


@dataclass(frozen=True)
class PromptPair:
    """A clean and a corrupted prompt, the answer to the clean one, and the word to compare it with.

    Leading spaces of the answers count: after "gave the bag to", the answer is " Mary".
    """

    clean: str
    corrupted: str
    answer: str = ""
    """Word that a model should give after the clean prompt; empty if there are no answers."""
    instead: str = ""
    """Word to compare the answer with, normally the answer to the corrupted prompt."""

    def __post_init__(self) -> None:
        for name, text in asdict(self).items():
            if not isinstance(text, str):
                raise OptionError(f"{name} is a {type(text).__name__}: pass a str", option=name)
            check_characters(name, text)
        for name in REQUIRED:
            if not getattr(self, name).strip():
                raise OptionError(f"{name} is {getattr(self, name)!r}: give a prompt", option=name)
        for name, other in (("answer", "instead"), ("instead", "answer")):
            if getattr(self, name) and not getattr(self, other):
                raise OptionError(
                    f"{other} is {getattr(self, other)!r}, but {name} is {getattr(self, name)!r}: "
                    "give both words or neither",
                    option=other,
                )


REQUIRED = ("clean", "corrupted")
NAMES = tuple(field.name for field in fields(PromptPair))


def read_pairs(path: str | PathLike[str]) -> tuple[PromptPair, ...]:
    """Pairs from a file: CSV or TSV with a header, or JSON lines.

    The columns, or the keys of each line, are clean, corrupted and optionally answer and instead.
    Raises OptionError if the file cannot be read as such, with the number of the line.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in {*DELIMITERS, *JSON_LINES}:
        raise OptionError(
            f"{file} ends in {suffix or 'no suffix'!r}: pairs of prompts are read from "
            f"{join_words([*DELIMITERS, *JSON_LINES], 'or')} files"
        )
    text = read_text(file).removeprefix("\ufeff")
    is_table = suffix in DELIMITERS
    rows = _table_rows(text, DELIMITERS[suffix], file) if is_table else _json_rows(text, file)
    pairs = tuple(_pair(row, place) for row, place in rows)
    if not pairs:
        raise OptionError(
            f"{file} has no pairs of prompts: give one per "
            + ("row below the header" if is_table else "line")
        )
    return pairs


def _pair(row: Mapping[str, Any], place: str) -> PromptPair:
    try:
        return PromptPair(**row)
    except OptionError as err:
        raise OptionError(f"{place}: {err}") from err


def _check_names(names: Iterable[str], place: str, noun: str) -> None:
    listed = list(names)
    if missing := [name for name in REQUIRED if name not in listed]:
        raise OptionError(
            f"{place} has no {noun} {join_words(missing)}: its {noun}s are "
            f"{', '.join(listed) or 'empty'}, but {join_words(REQUIRED)} are needed"
        )
    if unknown := [name for name in listed if name not in NAMES]:
        raise OptionError(
            f"{place} has the unknown {noun} {', '.join(map(repr, unknown))}: use only "
            f"{join_words(NAMES)}"
        )
    if repeated := sorted({name for name in listed if listed.count(name) > 1}):
        raise OptionError(f"{place} has the {noun} {join_words(repeated)} twice: keep one")


def _table_rows(text: str, delimiter: str, file: Path) -> Iterator[tuple[dict[str, str], str]]:
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
    header: list[str] = []
    try:
        for cells in reader:
            place = f"{file}, line {reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                _check_names(header, place, "column")
                continue
            if len(cells) != len(header):
                raise OptionError(
                    f"{place} has {len(cells)} cells, but the header has {len(header)}: put "
                    "double quotes around texts that contain the separator"
                )
            yield dict(zip(header, cells, strict=True)), place
    except csv.Error as err:
        raise OptionError(
            f"{file}, line {reader.line_num} is not a table: {err}; write quotes inside texts twice"
        ) from err


def _json_rows(text: str, file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    for number, line in enumerate(text.split("\n"), 1):
        place = f"{file}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as err:
            raise OptionError(
                f"{place} is not JSON: {err}; write one object per line, with the keys "
                f"{join_words(NAMES)}"
            ) from err
        if not isinstance(row, dict):
            raise OptionError(
                f"{place} is a {type(row).__name__}, not an object: write "
                '{"clean": ..., "corrupted": ...}'
            )
        _check_names(row, place, "key")
        yield row, place
