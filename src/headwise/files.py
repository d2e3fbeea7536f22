"""Read files with clear errors, write them so that none is ever half written, and lock folders."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwise.errors import OptionError, OutputError


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file; raises OptionError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise OptionError(f"{path} is not UTF-8 text: {err.reason} at byte {err.start}") from err
    except OSError as err:
        raise OptionError(f"{path} cannot be read: {err.strerror}") from err


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file; raises OptionError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as err:
        raise OptionError(f"{path} cannot be read: {err.strerror}") from err


def write_aside(path: Path, content: bytes | str) -> None:
    """Write `content` to a temporary file next to `path`, then move it into place.

    If the process is killed, `path` is either the old file or the new one. If `path` is a symbolic
    link, its target is replaced; output to a device is appended.
    """
    content = content.encode() if isinstance(content, str) else content
    place = resolve_target(path)
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        # Standard output counts as a device, even when it is redirected to a file.
        is_output = str(path).startswith(("/dev/", "/proc/"))
        if is_output or (path.exists() and not path.is_file()):
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


def resolve_target(path: Path) -> Path:
    """The file or folder that `path` refers to, with links followed."""
    try:
        place = path.resolve()
        if place.is_symlink():
            raise RuntimeError("its links form a loop")
        return place
    except (OSError, RuntimeError) as err:  # RuntimeError: a loop of links
        reason = getattr(err, "strerror", None) or err
        raise OutputError(f"{path} cannot be written: {reason}") from err


def make_folder(path: Path) -> None:
    """Make a folder and its parents if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise OutputError(f"{path} cannot be created: {err.strerror}") from err


def cache_folder() -> Path | None:
    """The folder for results that can be computed again; None if the user has no home.

    The first that is set of `HEADWISE_CACHE` and `XDG_CACHE_HOME`, or the system's own place.
    """
    if own := os.environ.get("HEADWISE_CACHE"):
        return Path(own).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # relative ones are invalid by the XDG specification
        places = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", "~")}
        try:
            base = Path(places.get(sys.platform, "~/.cache")).expanduser()
        except RuntimeError:
            return None
    return base / "headwise"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a lock on `folder` inside the block.

    Raises OutputError if the folder is already locked, by this process or another. The lock is a
    file next to the folder, removed at the end; if it cannot be created, the block runs unlocked.
    """
    from filelock import FileLock, Timeout  # here, because importing it takes 60 ms

    place = resolve_target(folder)
    file = place.with_name(f".{place.name}.lock")
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout as err:
        if file.exists():  # if not, files cannot be created here, as in /proc
            raise OutputError(
                f"another process is writing {folder}: wait for it, or choose another folder"
            ) from err
    except OSError:  # a file system without locks, or a folder that is not writable
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows only deletes it on release
                file.unlink()
            lock.release()
