"""Direct paths: what a receiver reads changes exactly by what its senders write."""

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadId
from headwise.objectives.recorded_pass import record_pass
from headwise.patching.paths import earlier_heads, patch_paths
from headwise.patching.runs import PairRuns
from headwise.watching.gates import HeadOutputs, gate
from headwise.watching.watch import watch

from ..watching.helpers import allow_weights
from .tiny_runs import assert_same, heads_of, runs_of

pytestmark = allow_weights


def by_hand(runs: PairRuns, sender: HeadId, receiver: HeadId, name: str) -> Tensor:
    """The change of the metric, with full passes: freeze every layer between, patch the sender."""
    calls = runs.calls["noise"]
    frozen = {(call.stack, call.layer): call.mixed for call in calls}
    own, theirs = calls[sender.layer].mixed.clone(), runs.calls["denoise"][sender.layer].mixed
    own[:, sender.head] = theirs[:, sender.head]
    mlps = [
        runs.model.get_submodule(f"model.layers.{layer}.mlp") for layer in range(receiver.layer)
    ]
    outputs: dict[nn.Module, Tensor] = {}

    def keep(module: nn.Module, _: object, result: Tensor) -> None:
        outputs[module] = result

    hooks = [mlp.register_forward_hook(keep) for mlp in mlps]
    with torch.no_grad():
        runs.model(**runs.batch.clean)
    for hook in hooks:
        hook.remove()
    hooks = [
        mlp.register_forward_hook(lambda module, _, __: outputs[module])  # type: ignore[arg-type]
        for mlp in mlps
    ]
    layers = {call.site.layer_name: call for call in calls if call.layer < receiver.layer}
    gates = {layer: torch.zeros(call.num_heads) for layer, call in layers.items()}
    patched = HeadOutputs({**frozen, (sender.stack, sender.layer): own})
    with torch.no_grad(), watch(runs.model) as watched, gate(runs.model, gates, means=patched):
        runs.model(**runs.batch.clean)
    for hook in hooks:
        hook.remove()
    read, mine = watched.calls[receiver.layer], calls[receiver.layer]
    parts = {"query": mine.queries, "key": mine.keys, "value": mine.values}  # type: ignore[union-attr]
    plural = {"query": "queries", "key": "keys", "value": "values"}[name]
    parts[name] = getattr(read, plural)
    groups = parts["query"].shape[1] // parts["key"].shape[1]
    scale = parts["query"].shape[-1] ** -0.5
    scores = parts["query"] @ parts["key"].repeat_interleave(groups, 1).mT * scale
    length = scores.shape[-1]
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    real = runs.batch.clean["attention_mask"].bool()[:, None, None]
    scores = scores.masked_fill(hidden | ~real, -torch.inf)
    mixed = scores.softmax(-1).nan_to_num() @ parts["value"].repeat_interleave(groups, 1)
    outputs_of = HeadOutputs({(receiver.stack, receiver.layer): mixed})
    evaluation = runs.evaluation("noise")
    recorded = record_pass(evaluation, evaluation.samples[0])
    result, _ = recorded.outputs_without([(receiver,)], outputs_of)
    return runs.objective.values(result) - runs.clean


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_a_path_equals_freezing_everything_between_by_hand(name: str) -> None:
    runs = runs_of("llama")
    heads, receiver = heads_of(runs), HeadId(2, 1)
    senders = earlier_heads(receiver, heads)
    changes = patch_paths(runs, "noise", runs.replacements("noise"), receiver, senders)
    for sender in senders[::3]:
        row = changes[name][senders.index(sender)]
        assert_same(row, by_hand(runs, sender, receiver, name))


def test_a_sender_that_does_not_change_has_no_path() -> None:
    runs = runs_of("gpt2")
    own = HeadOutputs({(call.stack, call.layer): call.mixed for call in runs.calls["noise"]})
    heads, receiver = heads_of(runs), HeadId(2, 0)
    senders = earlier_heads(receiver, heads)
    changes = patch_paths(runs, "noise", own, receiver, senders)
    assert all(float(rows.abs().max()) < 1e-6 for rows in changes.values())
    real = patch_paths(runs, "noise", runs.replacements("noise"), receiver, senders)
    assert all(float(rows.abs().max()) > 1e-6 for rows in real.values())


def test_receivers_in_the_first_layer_and_unknown_ones_are_named() -> None:
    heads = heads_of(runs_of("llama"))
    with pytest.raises(OptionError, match="L0H1 is in the first layer"):
        earlier_heads(HeadId(0, 1), heads)
    with pytest.raises(OptionError, match="L9H1 is not a head"):
        earlier_heads(HeadId(9, 1), heads)
