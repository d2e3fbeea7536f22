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
    """Each head's own part of the logit difference at the last position of the clean prompts."""
    batch = runs.batch
    model: Any = runs.model
    assert batch.answer is not None and batch.instead is not None
    unembedding = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    stream = record_stream(model, batch.clean)
    if not isinstance(unembedding, nn.Linear) or not stream.blocks:
        raise ModelError(f"{type(model).__name__} has no layers that are followed by logits")
    bias = unembedding.bias
    direction = unembedding.weight[batch.answer] - unembedding.weight[batch.instead]
    written = {
        HeadId(call.layer, head, call.stack): output
        for call in runs.calls["noise"]
        for head, output in enumerate(
            (call.mixed[:, :, -1:].transpose(0, 1) @ head_weights(call)[:, None])[:, :, 0]
        )
    }
    first = stream.calls[stream.blocks[0].name].input
    rest = torch.stack([stream.rest(block)[:, -1] for block in stream.blocks]).sum(0)
    added = torch.stack([stream.projection(block)[:, -1] for block in stream.blocks]).sum(0)
    parts = {
        "embedding": first[:, -1],
        "feed-forward": rest,
        "biases": added - torch.stack([*written.values()]).sum(0),
    }
    (final,) = (call for name, call in stream.calls.items() if _at(model, name) is unembedding)
    norm = FrozenNorm.of(_final_norm(stream, final.input), sum(parts.values()) + _total(written))
    others = {name: (norm.contribution(part) * direction).sum(-1) for name, part in parts.items()}
    others["biases"] = others["biases"] + (norm.bias * direction).sum(-1)
    if bias is not None:
        others["biases"] = others["biases"] + bias[batch.answer] - bias[batch.instead]
    logits, rows = final.output[:, -1], torch.arange(len(direction))
    effects = DirectEffects(
        torch.stack([(norm.contribution(written[head]) * direction).sum(-1) for head in heads])
        .double()
        .cpu(),
        {name: part.double().cpu() for name, part in others.items()},
        (logits[rows, batch.answer] - logits[rows, batch.instead]).double().cpu(),
    )
    size = float(effects.heads.abs().sum(0).max() + effects.total.abs().max())
    error = float((effects.sum - effects.total).abs().max())
    if error > TOLERANCE * size:
        raise ModelError(
            f"the direct effects of {type(model).__name__}'s heads and its other parts add up to "
            f"another logit difference, with an error of {error:.2g} logits"
        )
    return effects


def _total(written: Mapping[HeadId, Tensor]) -> Tensor:
    return torch.stack([*written.values()]).sum(0)


def _at(model: nn.Module, path: str) -> nn.Module:
    return model.get_submodule(path)


def _final_norm(
    stream: RecordedStream, states: Float[Tensor, "batch position d_model"]
) -> nn.Module:
    """The innermost module that outputs the `states` that the logits are computed from."""
    for name in reversed([*stream.calls]):
        call = stream.calls[name]
        is_leaf = not [*_at(stream.model, name).children()]
        if (
            is_leaf
            and isinstance(call.output, Tensor)
            and call.output.shape[-1] == states.shape[-1]
        ):
            if torch.equal(call.output[:, -1], states[:, -1]):
                return _at(stream.model, name)
    raise ModelError(
        f"{type(stream.model).__name__} computes its logits from states that no norm returns"
    )
