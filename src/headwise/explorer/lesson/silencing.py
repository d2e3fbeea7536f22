"""How much a model's answer on one text changes when heads are silenced, one by one and together.

In: Facts. Out: effects in the objective's unit, for every head alone, for the least missed heads
together, and for as many random heads. Copies of the text share forward passes.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.explorer.lesson.facts import Facts, gates_for
from headwise.explorer.lesson.figures import NextFigure
from headwise.objectives.evaluation import ROOM
from headwise.objectives.losses import CustomLoss, Embedding, NextToken, read_logits
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress
from headwise.reading.batch import Inputs
from headwise.watching.gates import gate
from headwise.watching.running import in_evaluation

Silent = list[tuple[str, int]]
"""Heads to silence: name of the layer, number of the head."""
Unit = Literal["cosine", "nats", "loss"]
PASS_TOKENS = 256
"""Most tokens in one forward pass; a longer text has a pass of its own for every run."""
MAX_STEPS = 12
"""At most this many numbers of heads are silenced together."""
DRAWS = 10
NUM_NEXT = 5
STAGE = "Silencing heads"


@dataclass(frozen=True, eq=False)
class Effects:
    """The model's answer in several runs, each next to the unchanged one."""

    unit: Unit
    values: Float[Tensor, " run"]
    """Cosine with, or divergence from, the unchanged answer; or the loss."""
    effects: Float[Tensor, " run"]
    """How far the answer moved; 0 if it stays the same."""
    probabilities: Float[Tensor, "run token"] | None
    """Of the tokens in `likeliest`; None unless the model predicts the next token."""
    tops: Int[Tensor, " run"] | None
    """The likeliest token in each run."""
    top_probabilities: Float[Tensor, " run"] | None


@dataclass(frozen=True, eq=False)
class Baseline:
    """The unchanged answer, and the answer with all heads silent."""

    unit: Unit
    unchanged: float
    next: list[NextFigure]
    """The unchanged model's likeliest tokens; empty unless it predicts the next token."""
    top: int | None
    """The unchanged model's likeliest token."""
    silent: Effects
    """One run."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Effects of silencing every head alone, and many together."""

    heads: Silent
    alone: Effects
    order: list[int]
    """Indices of the heads, least missed first."""
    counts: list[int]
    """Numbers of heads silenced together."""
    together: Effects
    random: Effects
    """DRAWS runs for each count but the last, which is all heads."""
    baseline: Baseline


class Silencer:
    """Runs the model on the lesson's text with heads silenced."""

    def __init__(self, facts: Facts, progress: Progress, total: int) -> None:
        self.facts, self.scored = facts, facts.scored
        end = prompt_end(facts)
        self.inputs = {name: value[:, :end] for name, value in facts.text.inputs.items()}
        self.progress, self.done, self.total = progress, 0, total
        self.before = self._outputs([[]])
        self.tokens: list[int] = []
        if isinstance(self.scored.objective, NextToken):
            count = min(NUM_NEXT, self.before.shape[-1])
            self.tokens = self.before[0].topk(count).indices.tolist()

    def run(self, runs: Sequence[Silent]) -> Effects:
        """Effects of silencing each list of heads."""
        after, before = self._outputs(runs), self.before
        objective = self.scored.objective
        if isinstance(objective, Embedding):
            cosines = (after * before).sum(-1).clamp(-1, 1)
            return Effects("cosine", cosines, 1 - cosines, None, None, None)
        if isinstance(objective, CustomLoss):
            return Effects("loss", after, (after - before).abs(), None, None, None)
        unchanged, silent = before.log_softmax(-1), after.log_softmax(-1)
        divergence = (unchanged.exp() * (unchanged - silent)).sum(-1).clamp(min=0)
        values = divergence.reshape(len(runs), -1).mean(1)
        if not self.tokens:
            return Effects("nats", values, values, None, None, None)
        top = silent.max(-1)
        shown = silent[:, self.tokens].exp()
        return Effects("nats", values, values, shown, top.indices, top.values.exp())

    def baseline(self) -> Baseline:
        """The unchanged answer, and the answer with all heads silent."""
        objective, facts = self.scored.objective, self.facts
        unchanged = 1.0 if isinstance(objective, Embedding) else 0.0
        if isinstance(objective, CustomLoss):
            unchanged = float(self.before[0])
        shares = self.before[0].softmax(-1)[self.tokens].tolist() if self.tokens else []
        pairs = zip(self.tokens, shares, strict=True)
        likeliest = [facts.token(token, share) for token, share in pairs]
        silent = self.run([all_heads(facts)])
        return Baseline(silent.unit, unchanged, likeliest, next(iter(self.tokens), None), silent)

    def _outputs(self, runs: Sequence[Silent]) -> Tensor:
        config: Any = self.scored.model.config
        vocabulary = getattr(config.get_text_config(), "vocab_size", 1)
        length = self.inputs["input_ids"].numel()
        size = max(1, min(PASS_TOKENS // length, ROOM // (length * vocabulary)))
        outputs = []
        for start in range(0, len(runs), size):
            part = list(runs[start : start + size])
            copies = {name: value.repeat(len(part), 1) for name, value in self.inputs.items()}
            with gate(self.scored.model, gates_for(self.facts.layers, part)):
                outputs.append(_output_to_compare(self.scored, copies).double())
            self.done += len(part)
            self.progress(STAGE, min(self.done, self.total), self.total)
        return torch.cat(outputs)


def prompt_end(facts: Facts) -> int:
    """Number of tokens that the model reads.

    A model that predicts the next token reads up to the last word, if marks follow that word.
    """
    pieces = facts.text.stage.pieces
    if not isinstance(facts.scored.objective, NextToken) or pieces[-1].kind == "word":
        return len(pieces)
    words = [at for at, word in enumerate(facts.words) if word.kind == "word"]
    start = facts.text.groups[words[-1]][0] if words else 0
    return start if start > 1 else len(pieces)


def _output_to_compare(scored: ScoredModel, inputs: Inputs) -> Tensor:
    """The objective's output, or the model's logits; for a causal model, of the last token."""
    if isinstance(scored.objective, Embedding | CustomLoss):
        return scored.objective.output(scored.model, inputs)
    logits = read_logits(scored.model, inputs)
    return logits[:, -1] if isinstance(scored.objective, NextToken) else logits


def all_heads(facts: Facts) -> Silent:
    """Every head of the model."""
    return [(layer, head) for layer, count in facts.layers.items() for head in range(count)]


def measure_baseline(facts: Facts) -> Baseline:
    """Run the model unchanged, and with all heads silent."""
    with torch.no_grad(), in_evaluation(facts.scored.model):
        return Silencer(facts, no_progress, 2).baseline()


def measure_silencing(facts: Facts, progress: Progress) -> Measured:
    """Silence every head alone, then the least missed ones together, then random ones."""
    heads = all_heads(facts)
    counts = step_counts(len(heads))
    total = 2 + len(heads) + len(counts) + DRAWS * (len(counts) - 1)
    with torch.no_grad(), in_evaluation(facts.scored.model):
        silencer = Silencer(facts, progress, total)
        baseline = silencer.baseline()
        alone = silencer.run([[head] for head in heads])
        order = alone.effects.argsort(stable=True).tolist()
        together = silencer.run([[heads[at] for at in order[:count]] for count in counts])
        draw = random.Random(0)
        random_runs = [draw.sample(heads, count) for count in counts[:-1] for _ in range(DRAWS)]
        drawn = silencer.run(random_runs or [heads])
    return Measured(heads, alone, order, counts, together, drawn, baseline)


def step_counts(num_heads: int) -> list[int]:
    """Numbers of heads to silence together, in about equal steps, up to all of them.

    >>> step_counts(3), step_counts(72)
    ([1, 2, 3], [6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 72])
    """
    steps = min(num_heads, MAX_STEPS)
    return [round(num_heads * step / steps) for step in range(1, steps + 1)]
