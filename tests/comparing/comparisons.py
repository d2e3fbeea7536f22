"""Comparisons with round figures, for tests of sentences, tables and pages."""

import math
from typing import Any

from headwise.comparing.comparison import Comparison, TextComparison
from headwise.objectives.evaluation import Estimate
from headwise.pruning.export.sizes import Speed
from headwise.pruning.record import ModelFacts

from ..pruning.records import prune_record


def text_of(
    name: str, added: float, error: float, *, before: float | None = 2.0, **figures: Any
) -> TextComparison:
    """A text on which the second model adds a loss; without `before`, the loss is a distance."""
    old = None if before is None else Estimate(before, 0.25)
    new = Estimate((before or 0) + added, 0.25 if before else error)
    return TextComparison(
        name=name,
        examples=12,
        tokens=500,
        loss_before=old,
        loss_after=new,
        quality_before=None if old is None else perplexity(old),
        quality_after=Estimate(1 - added, error) if old is None else perplexity(new),
        loss_added=Estimate(added, error),
        **figures,
    )


def perplexity(loss: Estimate) -> Estimate:
    value = math.exp(min(loss.value, 700))
    return Estimate(value, value * loss.error)


def causal(own: tuple[float, float] | None = None, **changes: Any) -> Comparison:
    """Two causal models: captions suffer most; `own` is the loss added on the user's text."""
    agreement = {"agreement": Estimate(0.875, 0.0125), "divergence": Estimate(0.0625, 0.003)}
    given = {
        "objective": "next-token loss",
        "unit": "perplexity",
        "own_text": None if own is None else text_of("your text", *own, **agreement),
        "registers": (
            text_of("news", 0.005, 0.002, **agreement),
            text_of("captions", math.log(1.018), 0.004, **agreement),
        ),
        "all_registers": text_of("all registers", 0.0125, 0.0025, **agreement),
    }
    return comparison_of(**given | changes)


def embedding(own: tuple[float, float] | None = None, **changes: Any) -> Comparison:
    """Two embedding models: news suffers most."""
    kept = {"before": None, "neighbours_kept": Estimate(0.75, 0.0125)}
    given = {
        "objective": "cosine distance of embeddings",
        "unit": "cosine",
        "own_text": None if own is None else text_of("your text", *own, **kept),
        "registers": (
            text_of("news", 0.0625, 0.002, **kept),
            text_of("captions", 0.03125, 0.004, **kept),
        ),
        "all_registers": text_of("all registers", 0.046875, 0.003, **kept),
        "num_neighbours": 10,
    }
    return comparison_of(**given | changes)


def comparison_of(**parts: Any) -> Comparison:
    record = prune_record()
    given = {
        "model_before": ModelFacts("small"),
        "model_after": ModelFacts("smaller"),
        "before": record.before,
        "after": record.after,
        "speed": (Speed(batch=16, positions=512, before=2.0, after=1.0, ratio=2.0, spread=0.1),),
        "max_tokens": 2048,
        "seed": 0,
        "versions": {"headwise": "0.1.0"},
    }
    return Comparison(**given | parts)
