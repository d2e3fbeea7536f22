"""Mistakes in how a command is called, each as one sentence.

In: the error that the parser of the command line raised. Out: what is wrong and where to look.
"""

import re
from difflib import get_close_matches
from typing import Any

from typer.exceptions import TyperException

NUMBERS = {"integer": "a whole number", "float": "a number", "number": "a number"}
"""Kinds of values as the parser calls them, in plain words."""


def sentence_of(error: TyperException) -> str:
    """What is wrong with the command line, in one sentence."""
    raised: Any = error
    path = getattr(getattr(raised, "ctx", None), "command_path", "headwise")
    known = getattr(raised, "possibilities", None)
    if known is not None:
        near = get_close_matches(raised.option_name, known, cutoff=0.7)
        advice = f"did you mean {near[0]}?" if near else f"{path} --help lists those it has"
        return f"{path} has no option {raised.option_name}: {advice}"
    said = in_plain_words(raised.format_message().strip().removesuffix("."), path)
    return said if ": " in said else f"{said}: {path} --help says what it takes"


def in_plain_words(said: str, path: str) -> str:
    """A message of the parser as headwise would write it."""
    for pattern, words in (
        (r"No such command ('[^']+')\. Did", r"there is no command \1: did"),
        (r"No such command ('[^']+')", r"there is no command \1"),
        (r"Got unexpected extra argument\(s\) \((.*)\)", rf"{path} has no use for \1"),
        (r"Value error, ", ""),
    ):
        said = re.sub(pattern, words, said)
    wanted = r"Input should be a valid (\w+).*"
    said = re.sub(wanted, lambda kind: f"give {NUMBERS.get(kind[1], kind[1])}", said)
    return said[:1].lower() + said[1:]
