"""Lesson effects: what a model's output loses when one head of a layer is silent.

In: a subject, what it reads, and a layer. Out: for each head how far the output moves from the
untouched one. All heads are silenced in one pass, each in a copy of the text of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.explorer.lesson.token_text import visible
from headwise.explorer.what_if import token_name
from headwise.objectives.evaluation import ROOM
from headwise.objectives.losses import CustomLoss, Embedding, NextToken, read_logits
from headwise.pruning.setting import Subject
from headwise.watching.gates import gate

NUM_NEXT = 5
"""Next tokens that are shown."""


@dataclass(frozen=True)
class Continuation:
    """A token that a causal model would go on with, and its probability with each head silent."""

    token: str
    probability: float
    without: tuple[float, ...]


@dataclass(frozen=True)
class Effects:
    """How far the output moves without each head."""

    unit: str
    """`cosine`, `nats` or `loss`."""
    values: tuple[float, ...]
    """In that unit: cosine to the untouched output, divergence from it, or the loss without."""
    sizes: tuple[float, ...]
    """The same as a distance, 0 for no effect: one less the cosine, divergence, change of loss."""
    next: tuple[Continuation, ...] = ()
    """Of a causal model, what it would go on with, most likely first."""

    @property
    def ranked(self) -> list[int]:
        """Heads, the one that is missed most first."""
        return sorted(range(len(self.sizes)), key=lambda head: -self.sizes[head])


def silenced_one_by_one(
    subject: Subject, inputs: Mapping[str, Tensor], layer: str, num_heads: int
) -> Effects:
    """What the output becomes without each head of a layer, by what the model is for."""
    gates = torch.cat([torch.ones(1, num_heads), 1 - torch.eye(num_heads)])
    objective = subject.objective
    size = copies_at_once(subject, inputs)
    outputs = torch.cat(
        [gated(subject, inputs, layer, part) for part in gates.split(size)]
    ).double()
    untouched, silent = outputs[0], outputs[1:]
    if isinstance(objective, Embedding):
        cosines = (silent * untouched).sum(-1).clamp(-1, 1).tolist()
        return Effects("cosine", tuple(cosines), tuple(1 - one for one in cosines))
    if isinstance(objective, CustomLoss):
        changes = (silent - untouched).abs().tolist()
        return Effects("loss", tuple(silent.tolist()), tuple(changes))
    before, after = untouched.log_softmax(-1), silent.log_softmax(-1)
    apart = (before.exp() * (before - after)).sum(-1).clamp(min=0)
    sizes = tuple(apart.flatten(1).mean(1).tolist() if apart.dim() > 1 else apart.tolist())
    is_causal = isinstance(objective, NextToken)
    return Effects("nats", sizes, sizes, next_tokens(subject, before, after) if is_causal else ())


def gated(
    subject: Subject, inputs: Mapping[str, Tensor], layer: str, gates: Float[Tensor, "copies heads"]
) -> Tensor:
    """What is compared of the output, a row for each row of gates.

    Of a causal model it is the prediction of the next token, after the last one of the text.
    """
    copies = {name: value.repeat(len(gates), 1) for name, value in inputs.items()}
    with gate(subject.model, {layer: gates}):
        if isinstance(subject.objective, Embedding | CustomLoss):
            return subject.objective.output(subject.model, copies)
        logits = read_logits(subject.model, copies)
        return logits[:, -1] if isinstance(subject.objective, NextToken) else logits


def copies_at_once(subject: Subject, inputs: Mapping[str, Tensor]) -> int:
    """Copies of the text whose output is not too large."""
    config: Any = subject.model.config
    words = getattr(config.get_text_config(), "vocab_size", 1)
    return max(1, ROOM // (inputs["input_ids"].numel() * words))


def next_tokens(
    subject: Subject, before: Float[Tensor, " word"], after: Float[Tensor, "heads word"]
) -> tuple[Continuation, ...]:
    """The most likely next tokens, and how likely they are without each head."""
    found = []
    for token in before.topk(min(NUM_NEXT, len(before))).indices.tolist():
        name = visible(token_name(subject, token))
        without = tuple(after[:, token].exp().tolist())
        found.append(Continuation(name, float(before[token].exp()), without))
    return tuple(found)
