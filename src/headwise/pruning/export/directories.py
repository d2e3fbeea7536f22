"""Directories: one that is written aside and moved into its place when it is whole.

In: where a model shall stand. Out: a directory to fill. Whenever the process is killed, the place
holds the old model, the new one, or nothing. Only a model is ever replaced.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from headwise.errors import OptionError, OutputError
from headwise.files import resolve_target
from headwise.models.load_errors import one_sentence

PART, OLD = "headwise-part", "headwise-old"
"""How directories end that are not yet, or no longer, in their place."""


@contextmanager
def replace_directory(out: Path, *, force: bool) -> Iterator[Path]:
    """A directory to fill, which takes the place of `out` when all has gone well, else is gone.

    Whenever the process is killed, `out` is the old directory, the new one, or not there; what is
    left beside it is put right by the next `check_destination` for it.
    """
    place = resolve_target(out)  # a link stays one, what it leads to is replaced
    check_destination(out, force=force)
    part = temporary_name(place, PART)
    try:
        part.mkdir()
        with locked(part):
            yield part
            move_into_place(part, place)
    except (OSError, SafetensorError) as error:
        raise OutputError(f"{out} cannot be written: {one_sentence(error)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def temporary_name(place: Path, kind: str) -> Path:
    """Where this process keeps a directory that is not in its place."""
    return place.with_name(f".{place.name}.{os.getpid()}.{kind}")


def check_destination(out: Path, *, force: bool) -> None:
    """Raise unless a directory may be written there; only a model is ever replaced.

    A model that a killed process had moved away is put back first: it is in the way as any other.
    """
    place = resolve_target(out)
    parent = place.parent
    if not parent.is_dir():
        raise OptionError(f"{out} cannot be written: there is no folder {parent}")
    if not os.access(parent, os.W_OK):  # told before the long work, not after it
        raise OutputError(f"{out} cannot be written: you may not write in {parent}")
    clear_leftovers(place)
    if out.is_dir() and any(out.iterdir()):
        if not is_model(out):
            raise OutputError(
                f"{out} holds something other than a model and is not replaced, even by force: "
                "choose another place"
            )
        if not force:
            raise OutputError(
                f"{out} holds a model already: choose another place, or give --force (force=True)"
            )
        if (other := foreign_to(out)) is not None:  # it would go with the model
            raise OutputError(
                f"{out} holds {other} beside a model, and is not replaced, even by force: choose "
                "another place"
            )
    elif out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file, and a model is written as a directory")


OF_MODELS = re.compile(
    r".+\.(json|safetensors|py|md|model|onnx|data|csv|svg|jinja|gguf)|(vocab|merges)\.txt"
    r"|\.gitattributes|LICENSE(\.txt)?"
)
"""Files that models' directories hold, those that `prune` writes among them."""


def foreign_to(folder: Path) -> str | None:
    """The first thing in a model's directory that is no part of a model; None if all is."""
    for one in sorted(folder.iterdir()):
        names = r"\d+_\w+" if one.is_dir() else OF_MODELS  # sentence-transformers: 1_Pooling
        if re.fullmatch(names, one.name) is None:
            return one.name
    return None


def is_model(folder: Path) -> bool:
    """Whether a directory is a model's: a config that names its type, and weights."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    has_weights = any(any(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin"))
    return isinstance(config, dict) and "model_type" in config and has_weights


def clear_leftovers(place: Path) -> None:
    """Remove what killed processes left beside the place; put back a model they had moved away."""
    for old in leftovers(place, OLD):
        if not place.exists():
            old.rename(place)
        else:
            remove(old)
    for part in leftovers(place, PART):
        with suppress(BlockingIOError), locked(part):
            shutil.rmtree(part, ignore_errors=True)


def leftovers(place: Path, kind: str) -> list[Path]:
    """Directories of one kind that `temporary_name` named for this very place."""
    name = re.compile(rf"\.{re.escape(place.name)}\.\d+\.(gone\.)?{kind}")
    return sorted(one for one in place.parent.iterdir() if name.fullmatch(one.name))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While it lasts, no other process has the folder; raises if one does.

    Nor does one take it for a leftover.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def move_into_place(part: Path, place: Path) -> None:
    """Put the written directory where it belongs; what was there goes when the new one stands."""
    for one in (*files_in(part), *(one for one in part.rglob("*") if one.is_dir()), part):
        flush(one)
    old = temporary_name(place, OLD)
    is_replaced = place.is_dir() and any(place.iterdir())
    if is_replaced:
        place.rename(old)
    try:
        part.rename(place)
    except OSError:
        if is_replaced:
            old.rename(place)
        raise
    flush(place.parent)
    if is_replaced:
        remove(old)


def remove(old: Path) -> None:
    """Remove a directory that was replaced; half removed, it is never put back."""
    gone = old.with_name(f"{old.name.removesuffix(OLD)}gone.{PART}")
    old.rename(gone)
    shutil.rmtree(gone)


def files_in(folder: Path) -> list[Path]:
    """Every file in a folder and the folders in it, in the order of their names."""
    return sorted(one for one in folder.rglob("*") if one.is_file())


def flush(path: Path) -> None:
    """Let a file or a folder reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
