"""Records of a cut, made by hand."""

from dataclasses import replace
from typing import Any

from headwise.heads import parse_heads
from headwise.pruning.export.sizes import Sizes
from headwise.pruning.record import ModelFacts, PruneRecord, Quality, Score, TextPart, TextUse
from headwise.pruning.settings import Amount, PruneSettings

BEFORE = Sizes(13, 13, 2_000_000, 8 << 20, 400_000, 0, 5_000_000, 61)
AFTER = Sizes(11, 11, 1_500_000, 6 << 20, 300_000, 0, 4_000_000, 61)


def score(loss: float) -> Score:
    """A loss and the corresponding cosine."""
    return Score(loss, 0.01, 1 - loss)


QUALITY = Quality(
    objective="distance",
    unit="cosine",
    uncut=score(0.0),
    cut=score(0.25),
    random_mean=score(0.35),
    random=(score(0.3), score(0.4)),
    refitted=score(0.0625),
    floor=score(0.5),
)


def text_use(source: str = "given") -> TextUse:
    """The same text for every step."""
    return TextUse(source, *[TextPart(1233, 4096, "4,096 tokens", "0" * 64)] * 4)


def prune_record(**changes: Any) -> PruneRecord:
    """A cut of two heads of thirteen."""
    record = PruneRecord(
        amount=Amount(cut=2),
        model=ModelFacts("small"),
        heads_cut=parse_heads("L0H3 L2H0"),
        method="rounds",
        settings=PruneSettings(),
        text=text_use(),
        before=BEFORE,
        after=AFTER,
        quality=QUALITY,
        cut_against_silenced=0.0,
        versions={"headwise": "0.1.0"},
    )
    return replace(record, **changes)
