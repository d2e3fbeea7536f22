"""Direct effect: what each head writes into the logits itself, not through later layers.

In: the runs of a batch of pairs, for a decoder-only model. Out: for every head, its part of the
logit difference between `answer` and `instead` in the clean run, and the parts that are not heads.
The sum of all is checked against the logit difference. The scale of the final norm, which depends
on the whole stream, counts as constant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.heads import HeadId
from headwise.patching.frozen_norm import FrozenNorm
from headwise.patching.residual_stream import TOLERANCE, RecordedStream, head_weights, record_stream
from headwise.patching.runs import PairRuns
from headwise.watching.hooks import ModuleCall


@dataclass(frozen=True, eq=False)
class DirectEffects:
    """Parts of the logit difference of the clean run."""

    heads: Float[Tensor, "heads pairs"]
    others: Mapping[str, Float[Tensor, " pairs"]]
    """Parts of the embedding, the feed-forward layers and the biases."""
    total: Float[Tensor, " pairs"]
    """The logit difference, before any cap or scale on the logits."""

    @property
    def sum(self) -> Float[Tensor, " pairs"]:
        """The sum of all parts, which equals `total` up to rounding."""
        return self.heads.sum(0) + torch.stack([*self.others.values()]).sum(0)


@torch.no_grad()
def direct_effects(runs: PairRuns, heads: Sequence[HeadId]) -> DirectEffects:
    """Each head's own part of the logit difference at the answer's position of clean prompts."""
    batch = runs.batch
    model: Any = runs.model
    assert batch.answer is not None and batch.instead is not None
    unembedding = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    stream = record_stream(model, batch.clean)
    if not isinstance(unembedding, nn.Linear) or not stream.blocks:
        raise ModelError(f"{type(model).__name__} has no layers that are followed by logits")
    rows = torch.arange(len(batch.position))

    def at_answer(states: Float[Tensor, "batch position *size"]) -> Tensor:
        return states[rows, batch.position]

    written = {
        HeadId(call.layer, head, call.stack): at_answer(call.mixed[:, head]) @ weight
        for call in runs.calls["noise"]
        for head, weight in enumerate(head_weights(call))
    }
    from_heads = torch.stack([*written.values()]).sum(0)
    blocks = stream.blocks
    rest = torch.stack([at_answer(stream.rest(block)) for block in blocks])
    attention = torch.stack([at_answer(stream.projection(block)) for block in blocks])
    parts = {
        "embedding": at_answer(stream.calls[blocks[0].name].input),
        "feed-forward": rest.sum(0),
        "biases": attention.sum(0) - from_heads,
    }
    final = _final_norm(stream, unembedding)
    norm = FrozenNorm.of(model.get_submodule(final.name), from_heads + sum(parts.values()))
    direction = unembedding.weight[batch.answer] - unembedding.weight[batch.instead]

    def difference(part: Float[Tensor, "batch d_model"]) -> Float[Tensor, " batch"]:
        return (part * direction).sum(-1).double().cpu()

    constant = difference(norm.bias.expand(direction.shape))
    if unembedding.bias is not None:
        bias = unembedding.bias[batch.answer] - unembedding.bias[batch.instead]
        constant = constant + bias.double().cpu()
    others = {name: difference(norm.contribution(part)) for name, part in parts.items()}
    others["biases"] = others["biases"] + constant
    logits = unembedding(at_answer(final.output))
    total = logits[rows, batch.answer] - logits[rows, batch.instead]
    effects = DirectEffects(
        torch.stack([difference(norm.contribution(written[head])) for head in heads]),
        others,
        total.double().cpu(),
    )
    error = float((effects.sum - effects.total).abs().max())
    if error > TOLERANCE * float(effects.heads.abs().sum(0).max() + effects.total.abs().max()):
        raise ModelError(
            f"the direct effects of {type(model).__name__}'s heads and its other parts add up to "
            f"another logit difference, with an error of {error:.2g} logits"
        )
    return effects


def _final_norm(stream: RecordedStream, unembedding: nn.Linear) -> ModuleCall:
    """The call of the innermost module that outputs what the logits are computed from."""
    modules = dict(stream.model.named_modules())
    (read,) = (call.input for name, call in stream.calls.items() if modules[name] is unembedding)
    for name in reversed([*stream.calls]):
        call, output = stream.calls[name], stream.calls[name].output
        is_leaf = not [*modules[name].children()] and isinstance(output, Tensor)
        if is_leaf and output.dim() == 3 and torch.equal(output[:, -1], read[:, -1]):
            return call
    raise ModelError(
        f"{type(stream.model).__name__} computes its logits from states that no norm returns"
    )
