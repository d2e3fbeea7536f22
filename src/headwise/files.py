"""Files that are never half there: written beside their place and moved into it when whole."""

import os
from pathlib import Path


def write_aside(path: Path, content: bytes | str) -> None:
    """Write beside the place and move there: a stop at any moment leaves the old or the new."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
