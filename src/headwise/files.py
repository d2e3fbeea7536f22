"""Files: read with a sentence for what is wrong with them, and never left half written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwise.errors import OptionError, OutputError


def read_text(path: str | Path) -> str:
    """The text of a file of the user's."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise OptionError(f"{path} is not UTF-8 text: {err.reason} at byte {err.start}") from err
    except OSError as err:
        raise OptionError(f"{path} cannot be read: {err.strerror}") from err


def read_bytes(path: str | Path) -> bytes:
    """What a file holds."""
    try:
        return Path(path).read_bytes()
    except OSError as err:
        raise OptionError(f"{path} cannot be read: {err.strerror}") from err


def write_aside(path: Path, content: bytes | str) -> None:
    """Write beside the place and move there: a stop at any moment leaves the old or the new.

    A link stays one, and what it leads to is replaced; a device is written to as it is.
    """
    content = content.encode() if isinstance(content, str) else content
    place = resolved(path)
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        if is_device(path):
            with path.open("ab") as device:
                device.write(content)
            return
        part.write_bytes(content)
        part.replace(place)
    except OSError as err:
        raise OutputError(f"{path} cannot be written: {err.strerror or err}") from err
    finally:
        with suppress(OSError):
            part.unlink()


def is_device(path: Path) -> bool:
    """Whether a path is a device's; standard output is one, even where it is a file for now."""
    return str(path).startswith(("/dev/", "/proc/")) or (path.exists() and not path.is_file())


def resolved(path: Path) -> Path:
    """The place that a path leads to."""
    try:
        place = path.resolve()
        if place.is_symlink():
            raise RuntimeError("its links lead to each other")
        return place
    except (OSError, RuntimeError) as err:  # links that lead to each other
        reason = getattr(err, "strerror", None) or err
        raise OutputError(f"{path} cannot be written: {reason}") from err


def make_folder(path: Path) -> None:
    """Make a folder and those that it is in, where they are not there already."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise OutputError(f"{path} cannot be made: {err.strerror}") from err


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from locking `folder` inside the block.

    Raises OutputError if another process, or this one, has locked it. The lock is a file beside
    the folder, removed at the end; where none can be made, the block runs without a lock.
    """
    from filelock import FileLock, Timeout  # here, because importing it takes 60 ms

    place = resolved(folder)
    file = place.with_name(f".{place.name}.lock")
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout as err:
        raise OutputError(
            f"another process is writing {folder}: wait for it, or choose another folder"
        ) from err
    except OSError:  # a file system without locks, or a place that cannot be written
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows only deletes it on release
                file.unlink()
            lock.release()
