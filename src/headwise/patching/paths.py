"""Paths: how much of a receiver's work comes straight from each head of earlier layers.

In: the runs of a batch of pairs and a receiver, one head. Out: the change of the metric if the
receiver's queries, keys or values alone see a sender's output of the other run (path patching:
Wang et al. 2022, arxiv.org/abs/2211.00593). Everything between the two stays as it was, so only
the direct path counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.attention.attend import attend
from headwise.errors import ModelError, OptionError
from headwise.heads import HeadId
from headwise.objectives.objective import Sample
from headwise.objectives.recorded_pass import record_pass
from headwise.patching.exact import MOST_TOKENS
from headwise.patching.residual_stream import RecordedStream, head_weights, record_stream
from headwise.patching.runs import PairRuns
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.gates import HeadOutputs
from headwise.watching.partial_passes import run_block
from headwise.watching.watch import watch

INPUTS = ("query", "key", "value")
"""Inputs of a receiver that a sender can write to."""


def earlier_heads(receiver: HeadId, heads: Sequence[HeadId]) -> list[HeadId]:
    """The heads that can write into the receiver's input: those of earlier layers of its stack."""
    senders = [
        head for head in heads if head.stack == receiver.stack and head.layer < receiver.layer
    ]
    if receiver not in heads:
        raise OptionError(f"{receiver} is not a head of this model", option="receiver")
    if not senders:
        raise OptionError(
            f"{receiver} is in the first layer, so no head writes into it: choose a later one",
            option="receiver",
        )
    return senders


@torch.no_grad()
def patch_paths(
    runs: PairRuns,
    direction: str,
    outputs: HeadOutputs,
    receiver: HeadId,
    senders: Sequence[HeadId],
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, Float[Tensor, "senders pairs"]]:
    """Change of the metric for each input of the receiver and each sender."""
    evaluation, base = runs.evaluation(direction), runs.base(direction).cpu()
    recorded = record_pass(evaluation, evaluation.samples[0])
    stream = record_stream(runs.model, runs.inputs(direction))
    own = next(
        call for call in runs.calls[direction] if call.site.layer_name == receiver.layer_name
    )
    if not isinstance(own, AttentionCall):
        raise ModelError(f"{receiver.layer_name} returns only its weights: choose another receiver")
    copies, pairs = max(1, MOST_TOKENS // recorded.num_tokens), len(base)
    changes = {name: torch.zeros(len(senders), pairs, dtype=torch.float64) for name in INPUTS}
    writes = _writes(runs, direction, outputs, stream)
    for start in range(0, len(senders), copies):
        report(start)
        some = senders[start : start + copies]
        added = torch.cat([writes(sender) for sender in some])
        sample = evaluation.samples[0].repeated(len(some))
        read = _read_with(stream, sample, receiver, added)
        for name, mixed in _receiver_outputs(own, read, len(some)).items():
            result, _ = recorded.outputs_without(
                [(receiver,)] * len(some), HeadOutputs({(own.stack, own.layer): mixed})
            )
            values = runs.objective.values(result).double().cpu().view(len(some), -1)
            changes[name][start : start + len(some)] = values - base
    return changes


def _writes(
    runs: PairRuns, direction: str, outputs: HeadOutputs, stream: RecordedStream
) -> Callable[[HeadId], Float[Tensor, "batch position d_model"]]:
    """A function that returns what patching a sender adds to the residual stream."""
    calls = {call.site.layer_name: call for call in runs.calls[direction]}
    for block in stream.blocks:
        stream.rest(block)  # raises unless the block adds its attention unchanged

    def write(sender: HeadId) -> Tensor:
        call: Call = calls[sender.layer_name]
        change = outputs.of(call.site)[:, sender.head] - call.mixed[:, sender.head]
        return change @ head_weights(call)[sender.head]

    return write


def _read_with(
    stream: RecordedStream, sample: Sample, receiver: HeadId, added: Tensor
) -> AttentionCall:
    """The receiver's attention call if `added` is added to its block's input."""
    names = [
        [site.layer_name for site in block.sites].count(receiver.layer_name)
        for block in stream.blocks
    ]
    index = names.index(1)
    block = stream.blocks[index]
    before = stream.calls[stream.blocks[index - 1].name]
    copies = len(added) // len(before.output)
    state = before.output.repeat(copies, 1, 1) + added
    result = (state, *before.result[1:]) if isinstance(before.result, tuple) else state
    with watch(stream.model) as watched:
        run_block(stream.model, stream.blocks, index, sample.inputs, {block.stack: result})
    (call,) = (call for call in watched.calls if call.site.layer_name == receiver.layer_name)
    assert isinstance(call, AttentionCall)
    return call


def _receiver_outputs(
    own: AttentionCall, read: AttentionCall, copies: int
) -> Mapping[str, Float[Tensor, "batch heads query d_value"]]:
    """The layer's outputs if one of its inputs is as in `read`, and the others as in `own`."""
    mine = {
        "query": own.queries.repeat(copies, 1, 1, 1),
        "key": own.keys.repeat(copies, 1, 1, 1),
        "value": own.values.repeat(copies, 1, 1, 1),
    }
    theirs = {"query": read.queries, "key": read.keys, "value": read.values}
    rules = replace(read.rules, dropout=0.0)
    outputs = {}
    for name in INPUTS:
        inputs = mine | {name: theirs[name]}
        outputs[name] = attend(inputs["query"], inputs["key"], inputs["value"], rules=rules)
    return outputs
