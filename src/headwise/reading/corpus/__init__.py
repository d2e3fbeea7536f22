"""The corpus: a few pages of plain prose to measure heads on if the user gives no text.

Written for headwise. Names, numbers, quotations and phrases recur within a document, so heads that
look for repetition find some. Each text is a file in this folder.
"""

from pathlib import Path

NAMES = ("ferry", "bread", "bridge", "compiler", "heron", "light", "key", "telephone")
TEXTS = tuple(
    " ".join((Path(__file__).parent / f"{name}.txt").read_text("utf-8").split()) for name in NAMES
)
