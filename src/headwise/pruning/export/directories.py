"""Directories: write a directory under a temporary name, then move it into place.

In: the path to write a model to. Out: a directory to fill. Even if the process is killed, the
path has the old model, the new one, or nothing. Only a model is ever replaced.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from headwise.errors import OptionError, OutputError
from headwise.files import lock_folder, resolve_target
from headwise.models.load_errors import one_sentence

PART, OLD = "headwise-part", "headwise-old"
"""Suffixes for a new directory that is not in place yet, and for an old one that was moved away."""
MODEL_FILES = re.compile(
    r".+\.(json|safetensors|py|md|model|onnx|data|csv|svg|jinja|gguf|spm|bpe|tiktoken)"
    r"|(vocab|merges|LICENSE|USE_POLICY|NOTICE)\.txt|\.gitattributes|LICENSE|NOTICE"
)
"""Names of files found in model directories, including those that `prune` writes."""
MODEL_FOLDERS = re.compile(r"\d+_\w+")  # sentence-transformers modules, such as 1_Pooling


@contextmanager
def replace_directory(out: Path, *, force: bool) -> Iterator[Path]:
    """Yield a directory to fill, which replaces `out` at the end of the block unless that fails."""
    with _lock_destination(out, force=force) as place:
        part = _temporary_name(place, PART)
        try:
            part.mkdir()
            yield part
            _move_into_place(part, place)
        except (OSError, SafetensorError) as error:
            raise OutputError(f"{out} cannot be written: {one_sentence(error)}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _temporary_name(place: Path, kind: str) -> Path:
    return place.with_name(f".{place.name}.{os.getpid()}.{kind}")


def check_destination(out: Path, *, force: bool) -> None:
    """Raise unless a model can be written to `out`; `force` allows an existing one to be replaced.

    If a killed process left `out` moved away, first move it back.
    """
    with _lock_destination(out, force=force):
        pass


@contextmanager
def _lock_destination(out: Path, *, force: bool) -> Iterator[Path]:
    place = resolve_target(out)  # keep a link and replace its target
    if not place.parent.is_dir():
        raise OptionError(f"{out} cannot be written: there is no folder {place.parent}")
    if not os.access(place.parent, os.W_OK):  # raise before the long work starts
        raise OutputError(f"{out} cannot be written: no permission to write in {place.parent}")
    with lock_folder(place):
        _check_content(out, place, force=force)
        yield place


def _check_content(out: Path, place: Path, *, force: bool) -> None:
    """Clear what a killed process left, then raise if `out` must not be replaced."""
    for old in _leftovers(place, OLD):
        if place.exists():
            _remove(old)
        else:
            old.rename(place)
    for part in _leftovers(place, PART):
        shutil.rmtree(part, ignore_errors=True)
    if out.is_dir() and any(out.iterdir()):
        if not _is_model(out):
            raise OutputError(
                f"{out} is not replaced, even with force: it is neither empty nor a model; choose "
                "another path"
            )
        if not force:
            raise OutputError(
                f"{out} is an existing model: choose another path, or replace it with --force "
                "(force=True in Python)"
            )
        for entry in sorted(out.iterdir()):
            names = MODEL_FOLDERS if entry.is_dir() else MODEL_FILES
            if not names.fullmatch(entry.name):  # would be deleted along with the model
                raise OutputError(
                    f"{out} is not replaced, even with force: it contains {entry.name}, which is "
                    "not part of a model; choose another path"
                )
    elif out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file, but a model needs a directory: choose another path")


def _is_model(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    has_weights = any(any(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin"))
    return isinstance(config, dict) and "model_type" in config and has_weights


def _leftovers(place: Path, kind: str) -> list[Path]:
    name = re.compile(rf"\.{re.escape(place.name)}\.\d+\.(gone\.)?{kind}")
    return sorted(entry for entry in place.parent.iterdir() if name.fullmatch(entry.name))


def _move_into_place(part: Path, place: Path) -> None:
    """Move `part` to `place`, then remove whatever was there before."""
    for path in (*part.rglob("*"), part):
        flush(path)
    old = _temporary_name(place, OLD)
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
        _remove(old)


def _remove(old: Path) -> None:
    """Remove a replaced directory. Rename it first: a half-deleted one must never be moved back."""
    renamed = old.with_name(f"{old.name.removesuffix(OLD)}gone.{PART}")
    old.rename(renamed)
    shutil.rmtree(renamed)


def file_sizes(folder: Path) -> dict[str, int]:
    """Size in bytes of every file in a folder and its subfolders, by path relative to `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(file.relative_to(folder)): file.stat().st_size for file in files}


def flush(path: Path) -> None:
    """Flush a file or a folder to disk."""
    if os.name == "nt":  # Windows can flush neither folders nor files opened for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
