"""Pictures of large matrices: one pixel per number, as a PNG that a page can contain.

In: rows of numbers. Out: a data URI. Positive numbers are blue, negative ones orange, zero white;
numbers that are not finite are grey.
"""

import base64
import math
import struct
import zlib
from collections.abc import Sequence

POSITIVE, NEGATIVE, GREY = (0x16, 0x50, 0xB8), (0xC6, 0x53, 0x00), (0xB8, 0xBE, 0xC8)
"""Ends of the scale in red, green and blue. Both can be told apart by colour-blind readers."""
STEPS = 127
"""Number of shades in each direction."""
_ZERO = STEPS
_NOT_FINITE = 2 * STEPS + 1
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def matrix_uri(values: Sequence[Sequence[float]], largest: float) -> str:
    """The matrix as a data URI; `largest` has the full colour."""
    rows = b"".join(b"\0" + bytes(_shade(value, largest) for value in row) for row in values)
    size = struct.pack(">IIBBBBB", len(values[0]), len(values), 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", size),
        (b"PLTE", b"".join(map(bytes, _palette()))),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    png = _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in chunks)
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def scale_colours() -> tuple[str, str, str]:
    """Colours of the smallest number, of zero and of the largest number, for a legend."""
    return _hex(NEGATIVE), "#ffffff", _hex(POSITIVE)


def _shade(value: float, largest: float) -> int:
    """Index of a number's colour in the palette."""
    if not math.isfinite(value):
        return _NOT_FINITE
    share = 0.0 if largest == 0 else min(1.0, abs(value) / largest)
    step = round(STEPS * math.sqrt(share))
    return _ZERO + (step if value > 0 else -step)


def _palette() -> list[tuple[int, ...]]:
    negative = [_mix(NEGATIVE, step / STEPS) for step in range(STEPS, 0, -1)]
    positive = [_mix(POSITIVE, step / STEPS) for step in range(STEPS + 1)]
    return [*negative, *positive, GREY]


def _mix(colour: tuple[int, ...], share: float) -> tuple[int, ...]:
    return tuple(round(255 + (part - 255) * share) for part in colour)


def _hex(colour: tuple[int, ...]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)
