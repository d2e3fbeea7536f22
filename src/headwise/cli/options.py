"""Options that several commands have, and what is read from them."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwise.checks import check_characters
from headwise.errors import OptionError
from headwise.files import read_text
from headwise.formats import join_words

if TYPE_CHECKING:
    from headwise.models.loading import LoadOptions

Model = Annotated[str, typer.Argument(help="minilm, smollm2, a directory, or a model hub's id.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16, float64, or auto: as saved.")]
Device = Annotated[str, typer.Option(help="Device that the model runs on.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
RemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def with_head(dtype: str, device: str, revision: str | None, trust: bool) -> "LoadOptions":
    """How a model is loaded together with what it predicts with."""
    return replace(without_head(dtype, device, revision, trust), keeps_head=True)


def without_head(dtype: str, device: str, revision: str | None, trust: bool) -> "LoadOptions":
    """How a model is loaded of which only the layers are wanted."""
    from headwise.models.loading import LoadOptions

    return LoadOptions(dtype=dtype, device=device, revision=revision, allows_remote_code=trust)


def check_sentence(text: str | None) -> None:
    """Raise where a sentence is empty, or the name of a file: other commands read those."""
    if text is None:
        return
    if not text.strip():
        raise OptionError("the text is empty: give --text some words")
    check_characters("--text", text)
    if is_there(text) and Path(text).is_file():
        raise OptionError(
            f"--text takes a sentence here, and {text} is a file: give the sentence itself, "
            f'as in --text "$(cat {text})"'
        )


def is_there(name: str) -> bool:
    """Whether there is a file or folder of that name; a text that is too long for one has none."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def refuse(why: str, options: Mapping[str, object]) -> None:
    """Raise if any of the options was given: what would be left unheard is a mistake.

    Where there is no reason why, every one of them is heard.
    """
    given = [name for name, value in options.items() if value is not None and value is not False]
    if why and given:
        raise OptionError(f"{why}: leave {join_words(given)} out")


def number_in(text: str, option: str, works: str = "a whole number") -> int:
    """The number that an option was given as; `works` says what else may be given."""
    try:
        return int(text)
    except ValueError as err:
        raise OptionError(f"{option} is {text!r}: give {works}") from err


def texts_of(names: list[str] | None) -> list[str] | None:
    """The texts of the files; None where none was named."""
    if names is None:
        return None
    texts = [text_of(name) for name in names]
    if not any(text.strip() for text in texts):
        raise OptionError(
            f"{join_words(names)} {'hold' if len(names) > 1 else 'holds'} no text: give "
            "files with some words"
        )
    return texts


def text_of(name: str) -> str:
    """The text of one file, or of standard input."""
    if name != "-":
        if " " in name and not is_there(name):
            raise OptionError(
                f"--text is {name!r}, and there is no file of that name: give a file, or - to "
                "read standard input"
            )
        return read_text(name)
    if sys.stdin is None:
        raise OptionError("standard input is closed: give --text a file")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as err:
        raise OptionError(
            f"standard input is not UTF-8 text: {err.reason} at byte {err.start}"
        ) from err
