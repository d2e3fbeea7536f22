"""How far a cut model is from silencing the same heads, family by family.

In: names of tiny families. Out: plans that cut them, and the largest difference of their outputs.
`python -m tests.pruning.differences` prints one line per family.
"""

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headwise.errors import ModelError
from headwise.pruning.surgery.cut import cut, head_counts
from headwise.watching.gates import silence

from ..watching.tiny import BATCH, LENGTH, Inputs, build, in_dtype, inputs, output_of
from ..watching.tiny_configs import FAMILIES, Family
from .kin import KIN
from .modern import CUT

ALL = FAMILIES | KIN | CUT
IN_FLOAT32 = {"xglm"}
"""Families that transformers cannot run in float64."""


def tiny_of(family: Family) -> tuple[PreTrainedModel, Inputs]:
    """A model of the family, the same at every call, and inputs for it."""
    dtype = torch.float32 if family.name in IN_FLOAT32 else torch.float64
    return build(family, dtype), in_dtype(inputs(family, BATCH, LENGTH), dtype)


def names_in(layer: str, heads: Iterable[int]) -> list[str]:
    return [f"{layer}H{head}" for head in heads]


def every_head(model: PreTrainedModel) -> list[str]:
    """Names of all heads of the model."""
    return [
        name
        for layer, (count, _) in head_counts(model).items()
        for name in names_in(layer, range(count))
    ]


def mixed_plan(model: PreTrainedModel, *, empties: bool = False) -> list[str]:
    """A head of every group in a stack's first layer, and a whole group in its last layer.

    Without groups, one head in the first layer and two in the last. With `empties`, the first layer
    of every stack loses all heads. All of ALBERT's layers lose the same heads.
    """
    counts = head_counts(model)
    last = {name.rpartition("L")[0]: name for name in counts}
    is_shared = type(model).__name__.startswith("Albert")
    plan: list[str] = []
    for layer, (num_heads, num_kv_heads) in counts.items():
        group = num_heads // num_kv_heads
        first = range(1, num_heads, group) if group > 1 else range(1)
        end = range(num_heads - max(group, 2), num_heads) if num_kv_heads > 1 else range(2)
        if is_shared or layer.endswith("L0"):
            plan += names_in(layer, range(num_heads) if empties else first)
        elif layer == last[layer.rpartition("L")[0]]:
            plan += names_in(layer, end)
    return plan


@torch.no_grad()
def silenced_and_cut(
    model: PreTrainedModel, given: Inputs, plan: list[str]
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of the model as it is, with the heads silenced, and with them cut."""
    plain = output_of(model(**given))
    with silence(model, plan):
        silent = output_of(model(**given))
    cut(model, plan)
    return plain, silent, output_of(model(**given))


def difference(name: str, *, empties: bool = False) -> float:
    """The largest difference between silencing and cutting in one family."""
    model, given = tiny_of(ALL[name])
    _, silent, got = silenced_and_cut(model, given, mixed_plan(model, empties=empties))
    return (got - silent).abs().max().item()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in ALL:
        try:
            found = [difference(name, empties=empties) for empties in (False, True)]
            print(f"{name:24} {found[0]:.1e} {found[1]:.1e}")
        except ModelError as error:
            print(f"{name:24} {error}")
