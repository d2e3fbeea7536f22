"""For tests of commands: a text of words that tiny models know, and options for a small cut."""

import random
from pathlib import Path

WORDS = [f"w{number}" for number in range(7, 101)]
SMALL = ("--choose-tokens", 60, "--fit-tokens", 120, "--held-tokens", 60, "--no-speed")


def write_text(path: Path) -> None:
    """Forty paragraphs, the same at every call."""
    rng = random.Random(5)
    paragraphs = [" ".join(rng.choices(WORDS, k=rng.randrange(12, 25))) for _ in range(40)]
    path.write_text("\n\n".join(paragraphs), encoding="utf-8")
