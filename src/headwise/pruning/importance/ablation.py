"""Ablation: what the loss becomes when heads give nothing, or what they give on average.

In: a task and units of heads. Out: the loss that each unit's silence adds, exactly, with a standard
error over examples. Layers below the silenced one are not computed again, and several units of a
layer are silenced in one pass, each in a copy of the batch of its own.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.heads import HeadCounts
from headwise.objectives.evaluation import Estimate, Evaluation, ratio
from headwise.objectives.objective import Sample
from headwise.pruning.importance.partial_passes import (
    Block,
    Recording,
    find_blocks,
    recorded,
    skip_blocks,
)
from headwise.pruning.units import Unit
from headwise.watching.gates import MeanOutputs, gate

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many steps of it are done, and how many there are.

Of no steps it is a remark: how much work there is.
"""

ROOM = 100_000_000
"""Numbers that a model's output for all copies of a batch may have: 400 MB in float32."""
MOST_TOKENS = 8192
"""Of all copies of a batch: more in one pass is no faster."""


def untold(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


def ablate(
    task: Evaluation,
    units: Sequence[Unit],
    counts: HeadCounts,
    *,
    means: MeanOutputs | None = None,
    progress: Progress = untold,
) -> list[Estimate]:
    """Loss that each unit adds when it is silent, in the unit of the task's mean loss."""
    places = task.places
    blocks = find_blocks(task.model, places)
    changes, weights = [], []
    for number, sample in enumerate(task.samples):
        progress("silencing heads one by one", number, len(task.samples))
        found = Ablated(task, sample, counts, means=means, blocks=blocks)
        changes.append(found.changes(units))
        weights.append(found.weights)
    sums, weight = torch.cat(changes, 1), torch.cat(weights)
    return [ratio(row, weight) for row in sums]


class Ablated:
    """One batch whose heads are silenced in turn."""

    def __init__(
        self,
        task: Evaluation,
        sample: Sample,
        counts: HeadCounts,
        *,
        means: MeanOutputs | None,
        blocks: Sequence[Block],
    ) -> None:
        """Run the batch once as it is."""
        self.task, self.sample, self.counts, self.means = task, sample, counts, means
        with torch.no_grad(), recorded(blocks) as self.recording:
            output = task.objective.output(task.model, sample.inputs)
        losses = task.objective.losses(output, sample)
        self.base, self.weights = losses.sums.double().cpu(), losses.weights.double().cpu()
        self.size = output.numel()
        self.begins = begins_of(self.recording, blocks)

    def changes(self, units: Sequence[Unit]) -> Float[Tensor, "units batch"]:
        """What each unit's silence adds to the summed loss of each example."""
        found = torch.zeros(len(units), len(self.sample), dtype=torch.float64)
        by_layer: dict[str, list[int]] = {}
        for index, unit in enumerate(units):
            by_layer.setdefault(unit.layer, []).append(index)
        for layer, indices in by_layer.items():
            for start in range(0, len(indices), self.copies):
                part = indices[start : start + self.copies]
                found[part] = self.silenced(layer, [units[index] for index in part])
        return found

    @property
    def copies(self) -> int:
        """How many copies of the batch fit into one pass."""
        states = [one[0] if isinstance(one, tuple) else one for one in self.recording.outputs]
        held = states or self.sample.inputs.values()  # of pictures, inputs have other axes
        tokens = max(value.shape[:2].numel() for value in held)
        return max(1, min(ROOM // self.size, MOST_TOKENS // tokens))

    @torch.no_grad()
    def silenced(self, layer: str, units: Sequence[Unit]) -> Float[Tensor, "units batch"]:
        """The same for units of one layer, in one pass."""
        copies, batch = len(units), len(self.sample)
        gates = torch.ones(copies, batch, self.counts[layer][0])
        for row, unit in enumerate(units):
            gates[row, :, [head.head for head in unit.heads]] = 0
        sample, task = self.sample.repeated(copies), self.task
        with (
            skip_blocks(self.recording, self.begins.get(layer, 0), batch=batch, copies=copies),
            gate(task.model, {layer: gates.flatten(0, 1)}, means=self.means),
        ):
            output = task.objective.output(task.model, sample.inputs)
        sums = task.objective.losses(output, sample).sums.double().cpu()
        return sums.view(copies, batch) - self.base


def begins_of(recording: Recording, blocks: Sequence[Block]) -> dict[str, int]:
    """For each layer, the number of blocks that ran before the one it is in."""
    if len(recording.blocks) != len(blocks):
        return {}  # a block ran twice, or not at all: every pass begins at the beginning
    return {
        place.layer_name: index
        for index, block in enumerate(recording.blocks)
        for place in block.places
    }
