"""Clean and corrupted runs of tiny models of every family, on random tokens."""

from typing import Any

import torch
from torch import Tensor, nn

from headwise.heads import HeadId
from headwise.patching.alignment import PairBatch
from headwise.patching.metrics import Metric
from headwise.patching.runs import PairRuns, run_pairs
from headwise.reading.batch import Inputs

from ..pruning.tiny_models import assert_close
from ..watching.tiny import tiny
from ..watching.tiny_configs import FAMILIES

TEXT = [name for name in FAMILIES if "input_ids" in tiny(name)[1]]
"""Families that read tokens."""


class SumOfOutputs(Metric):
    """A metric that every model has: a fixed random projection of its last hidden states."""

    name = "projection"
    unit = "projection"

    def output(self, model: nn.Module, inputs: Inputs, batch: PairBatch) -> Tensor:
        result: Any = model(**inputs)
        states = getattr(result, "logits", None)
        if states is None:
            states = getattr(result, "last_hidden_state", None)
        if states is None:
            states = result.text_embeds
        return states.flatten(1).double()  # type: ignore[no-any-return]

    def values(self, output: Tensor, clean: Tensor | None, batch: PairBatch) -> Tensor:
        weights = torch.linspace(-1, 1, output.shape[1], dtype=output.dtype)
        return output @ weights


def batch_of(name: str, share: float = 1.0) -> tuple[nn.Module, PairBatch]:
    """A model and a batch of pairs that differ in one token."""
    model, inputs = tiny(name)
    clean = {key: value for key, value in inputs.items() if key != "labels"}
    ids = clean["input_ids"]
    changed = ids.clone()
    changed[:, 4] = (ids[:, 4] - 5 + 3) % 7 + 5
    corrupted = {**clean, "input_ids": changed}
    count, length = ids.shape
    answers = torch.arange(count) + 6
    return model, PairBatch(
        indices=tuple(range(count)),
        clean=clean,
        corrupted=corrupted,
        position=torch.full((count,), length - 1),
        answer=answers,
        instead=answers + 1,
        tokens=(),
    )


def runs_of(name: str, metric: Metric | None = None) -> PairRuns:
    """Both runs of a tiny model."""
    model, batch = batch_of(name)
    return run_pairs(model, batch, metric or SumOfOutputs())


def heads_of(runs: PairRuns) -> list[HeadId]:
    """Every head that ran."""
    return [
        HeadId(call.layer, head, call.stack)
        for call in runs.calls["noise"]
        for head in range(call.num_heads)
    ]


def assert_same(got: Tensor, want: Tensor) -> None:
    """Equal up to the rounding of a pass; many families round to float32 even in float64."""
    assert_close(got.double(), want.double(), torch.float32)
