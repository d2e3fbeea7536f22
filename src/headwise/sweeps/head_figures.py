"""Trained model, held-out sequences -> HeadFigures: sharpness, roles and weight on the answers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headwise.attention.attend import attend
from headwise.attention.layer import MultiHeadAttention
from headwise.measures.counter import HeadCounter, RowChoice, make_measures
from headwise.measures.head_sums import HeadSums
from headwise.reading.batch import Batch, TokenFacts
from headwise.scans.tables import head_table
from headwise.sweeps.task import NOWHERE, TaskExamples
from headwise.watching.calls import AttentionCall
from headwise.watching.hooks import record
from headwise.watching.sites import Site

SEQUENCES = 16
"""Number of held-out sequences that heads are measured on."""


@dataclass(frozen=True)
class HeadFigures:
    """Measurements of one head of a trained model; sharpness and roles are those of a scan."""

    head: str
    roles: tuple[str, ...]
    entropy: float
    """0 if the head attends to a single position, 1 if it attends to all positions equally."""
    largest: float
    """Mean over queries of the largest weight."""
    looks: dict[str, float]
    """Mean weight on the position of the answer, by question."""


@torch.inference_mode()
def measure_heads(
    model: nn.Module, examples: TaskExamples, questions: tuple[str, ...]
) -> tuple[HeadFigures, ...]:
    """Figures for every head, layer by layer."""
    examples = examples[:SEQUENCES]
    ids = examples.symbols[..., 0]
    none = torch.zeros_like(ids, dtype=torch.bool)
    facts = TokenFacts(ids=ids, is_real=~none, is_special=none, is_punctuation=none)
    batch = Batch(inputs={}, tokens={"": facts}, indices=tuple(range(len(ids))))
    sums = HeadSums()
    counter = HeadCounter(sums, make_measures(), RowChoice("all"), compares=False)
    has_place = examples.places != NOWHERE
    answer_weights: list[list[float]] = []
    for call in _attention_calls(model, examples.symbols):
        counter.add(call, batch)
        weights = call.weights()
        keys = examples.places.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1, -1)
        on_answers = weights.gather(3, keys) * has_place[:, None]
        answer_weights += (on_answers.sum((0, 2)) / has_place.sum((0, 1))).tolist()
    table = head_table(sums, {})
    return tuple(
        HeadFigures(
            head=str(head),
            roles=tuple(row["roles"]),
            entropy=float(row["normalised_entropy"]),
            largest=float(row["confidence"]),
            looks={
                name: weight
                for name, weight in zip(questions, weights_by_question, strict=True)
                if math.isfinite(weight)  # NaN for a question whose answers have no position
            },
        )
        for head, (_, row), weights_by_question in zip(
            table.heads, table.df.iterrows(), answer_weights, strict=True
        )
    )


def _attention_calls(
    model: nn.Module, symbols: Int[Tensor, "batch position symbol"]
) -> Iterator[AttentionCall]:
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }
    with record(layers) as module_calls:
        model(symbols)
    for number, call in enumerate(module_calls):
        layer = layers[call.name]
        queries, keys, values = layer.project(call.input, call.input)
        rules = layer.make_rules(None, None, is_self=True, device=queries.device)
        yield AttentionCall(
            site=Site("", number, call.name, layer, layer.Wo, is_routed=False),
            queries=queries,
            keys=keys,
            values=values,
            rules=rules,
            mixed=attend(queries, keys, values, rules=rules),
        )
