"""Mistakes in how a command is called, each as one sentence.

In: the error that the parser of the command line raised. Out: what is wrong and where to look.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from typer.exceptions import TyperException

NUMBERS = {"integer": "a whole number", "float": "a number", "number": "a number"}
"""Kinds of values as the parser calls them, in plain words."""


def sentence_of(error: TyperException, called: str) -> str:
    """What is wrong with the command line, in one sentence; `called` is the command's full name.

    Empty where nothing is: a command without arguments that has printed its help.
    """
    raised: Any = error
    path = getattr(getattr(raised, "ctx", None), "command_path", called)
    known = getattr(raised, "possibilities", None)
    if known is not None:
        near = get_close_matches(raised.option_name, known, cutoff=0.7)
        advice = f"did you mean {near[0]}?" if near else f"{path} --help lists its options"
        return f"{path} has no option {raised.option_name}: {advice}"
    said = in_plain_words(raised.format_message().strip().removesuffix("."), path)
    given = what_was_given(error)
    if given and repr(given) not in said:
        said = f"{said}, not {given!r}"
    if not said:
        return ""
    return said if ": " in said else f"{said}: {path} --help says what it takes"


OF_A_SETTING = re.compile(r"(num_)?(\w+) is (?=-?[\d.]|inf|nan|'|\"|None|True|False)")
"""How the library begins what it says of a setting: its name, and a value as Python writes it."""


def with_option(said: str, command: Any, words: Sequence[str]) -> str:
    """What the library says of a setting, said of the option if one of `words` gave it by that."""
    begun = OF_A_SETTING.match(said)
    given = {word.partition("=")[0] for word in words}
    for one in command.params:
        if begun is not None and begun[2] == one.name and given & set(one.opts):
            return f"{one.opts[0]} is {said[begun.end() :]}"
    return said


def what_was_given(error: TyperException) -> str:
    """The value that could not be read, where the parser knows it."""
    errors: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return str(errors[0].get("input", "")) if errors else ""


def in_plain_words(said: str, path: str) -> str:
    """A message of the parser as headwise would write it."""
    for pattern, words in (
        (r"No such command ('[^']+')\. Did", r"there is no command \1: did"),
        (r"No such command ('[^']+')", r"there is no command \1"),
        (r"Got unexpected extra argument\(s\) \((.*)\)", rf"{path} does not take \1"),
        (r"Value error, ", ""),
    ):
        said = re.sub(pattern, words, said)
    wanted = r"Input should be a valid (\w+).*"
    said = re.sub(wanted, lambda kind: f"give {NUMBERS.get(kind[1], kind[1])}", said)
    return said[:1].lower() + said[1:]
