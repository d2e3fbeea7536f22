"""Options shared by several commands, and checks of their values."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from headwise.checks import check_characters
from headwise.errors import OptionError
from headwise.files import read_text
from headwise.formats import join_words
from headwise.reading.text_files import split_file

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.models.loaded import LoadedModel
    from headwise.objectives.losses import Embedding

Model = Annotated[str, Argument(help="minilm, smollm2, a directory, a GGUF file, or a hub id.")]
Dtype = Annotated[str, Option(help="float32, bfloat16, float16, float64, or auto (as saved).")]
Device = Annotated[str, Option(help="Device to run the model on.")]
Revision = Annotated[str | None, Option(help="Branch, tag or commit on the hub.")]
RemoteCode = Annotated[
    bool, Option("--trust-remote-code", help="Run code that comes with the model.")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
TextFiles = Annotated[
    list[str] | None,
    Option(metavar="FILE", help="Text file to read, or - for standard input. May be repeated."),
]
Lines = Annotated[
    bool, Option("--lines", help="Read each line of the text files as an example of its own.")
]
Field = Annotated[
    str | None,
    Option(metavar="NAME", help="Text files are JSON lines: read this field of each line."),
]
Images = Annotated[
    list[Path] | None,
    Option(
        "--image", metavar="FILE", help="Picture, for a model that reads images. May be repeated."
    ),
]
Sounds = Annotated[
    list[Path] | None,
    Option(
        "--audio", metavar="FILE", help="WAV file, for a model that reads sound. May be repeated."
    ),
]
Pooling = Annotated[
    str | None,
    Option(help="Embedding models: mean or cls (default: as the model's own files say)."),
]
Seed = Annotated[int, Option(help="Seed for all random choices.")]
Force = Annotated[bool, Option("--force", help="Replace existing output.")]


def check_sentence(text: str | None) -> None:
    """Raise OptionError if `text` is empty, not UTF-8, or the name of a file."""
    if text is None:
        return
    if not text.strip():
        raise OptionError("--text is empty: give some words")
    check_characters("--text", text)
    if is_there(text) and Path(text).is_file():
        raise OptionError(
            f"--text takes a sentence here, but {text} is a file: give the sentence itself, "
            f'as in --text "$(cat {text})"'
        )


def is_there(name: str) -> bool:
    """Whether a file or folder called `name` exists; False if `name` is too long for a path."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def refuse(why: str, options: Mapping[str, object]) -> None:
    """Raise OptionError if one of `options` is set and there is a reason, `why`, to omit it."""
    names = [name for name, value in options.items() if value is not None and value is not False]
    if why and names:
        raise OptionError(f"{why}: leave out {join_words(names)}")


def parse_number(text: str, option: str, works: str = "a whole number") -> int:
    """An option's value as a whole number; the error message says that `works` is accepted."""
    try:
        return int(text)
    except ValueError as err:
        raise OptionError(f"{option} is {text!r}: give {works}") from err


def embedding_of(pooling: str | None) -> "Embedding | None":
    """The objective that --pooling asks for; None if it is not given."""
    from headwise.objectives.losses import Embedding

    return None if pooling is None else Embedding(pooling)


def texts_of(
    names: list[str] | None, *, by_line: bool = False, field: str | None = None
) -> list[str] | None:
    """Documents in the named files, with - for standard input; None if `names` is None.

    Prints to standard error how a file was read, unless it is one plain text.
    """
    if names is None:
        refuse("--lines and --field say how to read --text", {"--lines": by_line, "--field": field})
        return None
    if by_line and field is not None:
        raise OptionError("--lines and --field both say how to read --text: give one of them")
    if field == "":
        raise OptionError("--field is empty: name the field of each JSON line that has the text")
    parts = [split_file(_text_of(name), name, by_line=by_line, field=field or "") for name in names]
    documents = [text for texts, _ in parts for text in texts]
    if not any(text.strip() for text in documents):
        raise OptionError(
            f"{join_words(names)} {'contain' if len(names) > 1 else 'contains'} no text: give "
            "files that contain words"
        )
    for _, remark in parts:
        if remark:
            typer.echo(f"headwise: {remark}", err=True)
    return documents


def media_of(
    loaded: "LoadedModel",
    images: list[Path] | None,
    sounds: list[Path] | None,
    texts: Sequence[str] | None,
) -> "list[dict[str, Tensor]] | None":
    """A batch for each picture and sound, with their texts; None if there are neither.

    Raises OptionError for a model that cannot read text if there are neither.
    """
    from headwise.models.modalities import check_reads_text
    from headwise.models.processors import media_inputs

    if not images and not sounds:
        check_reads_text(loaded)
        return None
    return media_inputs(loaded, images=images or (), sounds=sounds or (), texts=texts)


def _text_of(name: str) -> str:
    if name != "-":
        if " " in name and not is_there(name):
            raise OptionError(
                f"--text is {name!r}, but there is no file with that name: give a file, or - for "
                "standard input"
            )
        return read_text(name)
    if sys.stdin is None:
        raise OptionError("standard input is closed: pass a file to --text")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as err:
        raise OptionError(
            f"standard input is not UTF-8 text: {err.reason} at byte {err.start}"
        ) from err
