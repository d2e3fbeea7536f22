"""Files: read with a sentence for what is wrong with them, and never left half written."""

import os
from pathlib import Path

from headwise.errors import OptionError


def read_text(path: str | Path) -> str:
    """The text of a file of the user's."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise OptionError(f"{path} is not UTF-8 text: {err.reason} at byte {err.start}") from err
    except OSError as err:
        raise OptionError(f"{path} cannot be read: {err.strerror}") from err


def write_aside(path: Path, content: bytes | str) -> None:
    """Write beside the place and move there: a stop at any moment leaves the old or the new."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
