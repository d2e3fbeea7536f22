"""Code and its output in Markdown pages, found, run and compared."""

import contextlib
import io
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwise.scans import scan as scanning

Block = tuple[str, str]
NUMBER = re.compile(r"-?\d+\.\d+")
LAST_DIGITS = 2
"""Units of its last digit by which a printed decimal may differ: processors round differently."""


def blocks(page: str) -> list[Block]:
    """Language and content of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def snippets(page: str) -> list[tuple[str, str]]:
    """Python blocks, each with the output block that follows it."""
    pairs = itertools.pairwise([*blocks(page), ("", "")])
    return [
        (code, output)
        for (language, code), (following, output) in pairs
        if (language, following) == ("python", "text")
    ]


SCANS: dict[str, scanning.Scan] = {}


@contextlib.contextmanager
def each_scan_once() -> Iterator[None]:
    """Scans that write nothing are made once, however many pages show them; none has gates."""

    def remembered(job: scanning.ScanJob, *, out: Path | None = None, **more: Any) -> scanning.Scan:
        if out is not None:
            return run(job, out=out, **more)
        key = json.dumps(job.fingerprint)
        SCANS[key] = SCANS.get(key) or run(job, **more)
        return SCANS[key]

    run, scanning.run_scan = scanning.run_scan, remembered
    try:
        yield
    finally:
        scanning.run_scan = run


def printed_by(snippet: str) -> str:
    """The output of a snippet."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, each_scan_once():
        exec(compile(snippet, "snippet", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def assert_prints_alike(got: str, want: str) -> None:
    """Fail unless the texts are the same but for the last digits of decimals."""
    assert NUMBER.sub("#", got) == NUMBER.sub("#", want)
    for one, other in zip(NUMBER.findall(got), NUMBER.findall(want), strict=True):
        digits = len(other.partition(".")[2])
        near = math.isclose(float(one), float(other), abs_tol=(LAST_DIGITS + 0.5) * 10**-digits)
        assert near, f"{one} where the page shows {other}"
