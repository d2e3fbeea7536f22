"""Records of a cut, made by hand."""

from dataclasses import replace
from typing import Any

from headwise.heads import parse_heads
from headwise.pruning.export.sizes import Sizes
from headwise.pruning.record import (
    CutScores,
    ModelFacts,
    PruneRecord,
    Quality,
    Score,
    TextPart,
    TextUse,
)
from headwise.pruning.settings import Amount, PruneSettings
from headwise.pruning.text_sets import OWN_TEXT

BEFORE = Sizes(13, 13, 2_000_000, 8 << 20, 400_000, 0, 5_000_000, 61)
AFTER = Sizes(11, 11, 1_500_000, 6 << 20, 300_000, 0, 4_000_000, 61)


def score(loss: float, error: float = 0.01) -> Score:
    """A loss and the corresponding cosine."""
    return Score(loss, error, 1 - loss, error)


def cut_scores(uncut: float, cut: float, final: float, error: float = 0.01) -> CutScores:
    """Scores with these losses."""
    return CutScores(*(score(loss, error) for loss in (uncut, cut, final)))


QUALITY = Quality(
    objective="distance",
    unit="cosine",
    scores=cut_scores(0.0, 0.25, 0.0625),
    registers={OWN_TEXT: cut_scores(0.0, 0.25, 0.0625)},
    random=(score(0.3), score(0.35), score(0.4)),
    random_lead=0.2875,
    random_lead_se=0.02,
    correction="full",
    floor=score(0.5),
)
"""A cut whose refit helped, on the user's text."""


def text_use(*registers: str) -> TextUse:
    """The same text for every step; the user's if no registers are named."""
    part = TextPart(registers or (OWN_TEXT,), 1233, 4096, "4,096 tokens", "0" * 64)
    return TextUse(*[part] * 5)


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
