"""Runs: the clean and the corrupted run of a batch of prompt pairs, and what to patch with.

In: a model, a batch and a metric. Out: both runs' values of the metric, and for each direction the
run to patch and the head outputs to put into it: the other run's, or what heads would output if
they looked where they look in the other run, or carried what they carry there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.attention.attend import attend
from headwise.errors import ModelError, OptionError
from headwise.heads import HeadCounts
from headwise.objectives.evaluation import Evaluation, count_heads
from headwise.objectives.objective import Sample
from headwise.patching.alignment import PairBatch
from headwise.patching.metrics import Metric, MetricObjective
from headwise.reading.batch import Inputs
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.gates import HeadOutputs
from headwise.watching.watch import watch

DIRECTIONS = ("denoise", "noise")
"""Denoising patches the corrupted run with clean outputs, noising the clean run with corrupted."""
PARTS = ("output", "pattern", "value")
"""The parts of a head to patch: its output, only where it looks, or only what it carries."""


@dataclass(frozen=True, eq=False)
class PairRuns:
    """Both runs of a batch, without gradients."""

    model: nn.Module
    batch: PairBatch
    metric: Metric
    clean_output: Tensor
    corrupted_output: Tensor

    @cached_property
    def calls(self) -> Mapping[str, tuple[Call, ...]]:
        """Every attention call of the run that each direction patches; see `forget_calls`."""
        return {
            direction: _watch_run(self.model, self.inputs(direction), self.batch, self.metric)[1]
            for direction in ("noise", "denoise")
        }

    def forget_calls(self) -> None:
        """Free the memory of `calls`; they are computed again when they are needed."""
        vars(self).pop("calls", None)

    @cached_property
    def counts(self) -> HeadCounts:
        """Number of heads and KV heads in each layer."""
        return count_heads(self.model, self.batch.clean)

    @property
    def objective(self) -> MetricObjective:
        """The metric on this batch."""
        return MetricObjective(self.metric, self.batch, self.clean_output)

    @cached_property
    def clean(self) -> Float[Tensor, " batch"]:
        """The metric of the clean run."""
        return self.objective.values(self.clean_output).double()

    @cached_property
    def corrupted(self) -> Float[Tensor, " batch"]:
        """The metric of the corrupted run."""
        return self.objective.values(self.corrupted_output).double()

    def inputs(self, direction: str) -> Inputs:
        """The inputs of the run to patch."""
        return self.batch.corrupted if direction == "denoise" else self.batch.clean

    def base(self, direction: str) -> Float[Tensor, " batch"]:
        """The metric of the run to patch."""
        return self.corrupted if direction == "denoise" else self.clean

    def evaluation(self, direction: str) -> Evaluation:
        """The run to patch, as an evaluation with a single sample."""
        sample = Sample(self.inputs(direction))
        return Evaluation(self.model, self.objective, (sample,))

    def replacements(
        self,
        direction: str,
        *,
        part: str = "output",
        positions: Sequence[int] | None = None,
        order: Sequence[int] | None = None,
    ) -> HeadOutputs:
        """Outputs to put into the run to patch.

        They differ from the run's own only at `positions`; None for all. `order` takes the outputs
        of each pair from another pair of the batch, as a control.
        """
        other = "noise" if direction == "denoise" else "denoise"
        is_patched, by_layer = self.is_patched(positions), {}
        for mine, theirs in zip(self.calls[direction], self.calls[other], strict=True):
            source = theirs if order is None else _reordered(theirs, order)
            outputs = _outputs_with(mine, source, part)
            if is_patched is not None:
                outputs = torch.where(is_patched.to(outputs.device), outputs, mine.mixed)
            by_layer[mine.stack, mine.layer] = outputs
        return HeadOutputs(by_layer)

    def is_patched(self, positions: Sequence[int] | None) -> Bool[Tensor, "query 1"] | None:
        """True for the positions to patch; None if these are all.

        Raises OptionError for a position that the prompts do not have.
        """
        if positions is None:
            return None
        length = self.batch.length
        for position in positions:
            if not -length <= position < length:
                raise OptionError(
                    f"position {position} is not in a prompt of {length} tokens: use 0 to "
                    f"{length - 1}, or negative numbers to count from the end",
                    option="positions",
                )
        is_patched = torch.zeros(length, 1, dtype=torch.bool)
        is_patched[list(positions)] = True
        return is_patched


def _reordered(call: Call, order: Sequence[int]) -> Call:
    """The call with the pairs of its batch in another order."""
    index = list(order)
    if not isinstance(call, AttentionCall):
        weights = call.known_weights[index]
        return replace(call, mixed=call.mixed[index], known_weights=weights)
    mask = call.rules.mask
    if mask is not None and mask.dim() == 4 and len(mask) > 1:
        mask = mask[index]
    return replace(
        call,
        queries=call.queries[index],
        keys=call.keys[index],
        values=call.values[index],
        mixed=call.mixed[index],
        rules=replace(call.rules, mask=mask),
        known_lse=None,
    )


def _outputs_with(
    mine: Call, theirs: Call, part: str
) -> Float[Tensor, "batch heads query d_value"]:
    """The outputs of a layer's heads with a part of another run; no weight matrix is built."""
    if part == "output":
        return theirs.mixed
    if not isinstance(mine, AttentionCall) or not isinstance(theirs, AttentionCall):
        raise ModelError(
            f"{mine.site.layer_name} returns only its weights, so patterns and values cannot be "
            "patched apart: patch the output"
        )
    looks, carries = (theirs, mine) if part == "pattern" else (mine, theirs)
    rules = replace(looks.rules, dropout=0.0)
    return attend(looks.queries, looks.keys, carries.values, rules=rules)


def run_pairs(model: nn.Module, batch: PairBatch, metric: Metric) -> PairRuns:
    """Run the model on the clean and on the corrupted prompts of a batch."""
    clean, noise = _watch_run(model, batch.clean, batch, metric)
    corrupted, denoise = _watch_run(model, batch.corrupted, batch, metric)
    runs = PairRuns(model, batch, metric, clean, corrupted)
    vars(runs)["calls"] = {"noise": noise, "denoise": denoise}
    return runs


@torch.no_grad()
def _watch_run(
    model: nn.Module, inputs: Inputs, batch: PairBatch, metric: Metric
) -> tuple[Tensor, tuple[Call, ...]]:
    """The output of a run that the metric reads, and the run's attention calls."""
    with watch(model) as watched:
        output = metric.output(model, inputs, batch)
    return output, tuple(_check_calls(watched.calls))


def _check_calls(calls: Iterable[Call]) -> Iterable[Call]:
    """Yield the calls; raise ModelError if a layer has several."""
    seen = set()
    for call in calls:
        if call.site.layer_name in seen:
            raise ModelError(
                f"{call.site.description} runs several times per pass, so its heads cannot be "
                "patched"
            )
        seen.add(call.site.layer_name)
        yield call
