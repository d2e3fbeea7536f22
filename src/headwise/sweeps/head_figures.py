"""Heads: what each head of a trained model does, by the measures of a scan and by the truth.

In: a model of a sweep and sequences it never saw. Out: figures of every head: how sharp it is, its
roles, and how much of its attention rests where the answer to each question stands.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.attention.attend import attend
from headwise.attention.layer import MultiHeadAttention
from headwise.measures.counter import HeadCounter, RowChoice, default_measures
from headwise.reading.batch import Batch
from headwise.reading.tokens import TokenFacts
from headwise.scans.sums import ScanSums
from headwise.scans.tables import head_table, relations
from headwise.sweeps.model import SweepModel
from headwise.sweeps.task import NOWHERE, Examples
from headwise.watching.calls import AttentionCall
from headwise.watching.sites import Site

SEQUENCES = 16
"""Of the held-out ones, so many are measured."""


@dataclass(frozen=True)
class HeadFigures:
    """One head of a trained model."""

    head: str
    roles: tuple[str, ...]
    entropy: float
    """Normalised: 0 looks at one place, 1 at all alike."""
    largest: float
    """Mean of its largest weight."""
    looks: dict[str, float]
    """Mean weight where the answer to each question stands."""


@torch.inference_mode()
def figures_of_heads(model: SweepModel, examples: Examples) -> tuple[HeadFigures, ...]:
    """Every head's figures, layer by layer."""
    some = examples[:SEQUENCES]
    calls = calls_of(model, some.symbols)
    batch = batch_of(some.symbols[..., 0])
    tally = ScanSums()
    count = HeadCounter(tally, default_measures(), RowChoice("all"), compares=False)
    for call in calls:
        count.add(call, batch)
    table = head_table(tally, relations(tally), {})
    looks = [row for call in calls for row in looks_of(call, some.places).tolist()]
    questions = model.task.questions
    return tuple(
        HeadFigures(
            head=str(head),
            roles=tuple(row["roles"]),
            entropy=float(row["normalised_entropy"]),
            largest=float(row["confidence"]),
            looks={
                name: share
                for name, share in zip(questions, shares, strict=True)
                if math.isfinite(share)
            },
        )
        for head, (_, row), shares in zip(table.heads, table.df.iterrows(), looks, strict=True)
    )


def calls_of(
    model: SweepModel, symbols: Int[Tensor, "batch position symbol"]
) -> list[AttentionCall]:
    """What the attention of every layer computes."""
    calls: list[AttentionCall] = []

    def keep(module: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
        assert isinstance(module, MultiHeadAttention)
        queries, keys, values = module.projected(given[0], given[0])
        rules = module.rules_for(None, None, is_self=True, device=queries.device)
        number = len(calls)
        place = Site("", number, f"layers.{number}.attention", module, module.Wo, is_routed=False)
        mixed = attend(queries, keys, values, rules=rules)
        call = AttentionCall(
            place=place, queries=queries, keys=keys, values=values, rules=rules, mixed=mixed
        )
        calls.append(call)

    attentions = [one for one in model.modules() if isinstance(one, MultiHeadAttention)]
    hooks = [one.register_forward_pre_hook(keep) for one in attentions]
    try:
        model.states(symbols)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def batch_of(ids: Int[Tensor, "batch position"]) -> Batch:
    """Sequences without padding, none of whose symbols is special."""
    nothing = torch.zeros_like(ids, dtype=torch.bool)
    facts = TokenFacts(ids=ids, is_real=~nothing, is_special=nothing, is_punctuation=nothing)
    return Batch(inputs={}, tokens={"": facts}, indices=tuple(range(len(ids))))


def looks_of(
    call: AttentionCall, places: Int[Tensor, "batch position question"]
) -> Float[Tensor, "heads question"]:
    """Mean weight of each head where the answers stand; NaN for a question without places."""
    weights = call.weights()
    is_known = places != NOWHERE
    where = places.clamp(min=0)[:, None].expand(-1, weights.shape[1], -1, -1)
    found = weights.gather(3, where) * is_known[:, None]
    return found.sum((0, 2)) / is_known.sum((0, 1))
