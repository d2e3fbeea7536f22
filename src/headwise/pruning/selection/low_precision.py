"""Low precision: a bfloat16 copy of a large model, in which heads are chosen in less time.

In: an evaluation of a float32 model. Out: the same evaluation of the copy, or of the model itself
if a copy would not be faster. Rounding moves the measured costs of all heads by nearly the same
amount, so it hardly changes their order. Everything that is reported, fitted or written is computed
with the model itself.
"""

import copy
import os
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from headwise.attention.processor import SAFE_SETTING, low_precision_is_safe
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.registers import RegisterEvaluation

CHOOSE_DTYPES = ("auto", "float32", "bfloat16")
"""Types that heads can be chosen in; `auto` is bfloat16 for large models if that is faster here."""
LARGE = 50_000_000
"""Number of parameters from which `auto` makes a copy. Smaller models take seconds in float32."""


def choosing_dtype(model: nn.Module, dtype: str = "auto") -> str:
    """The dtype to choose heads in: `dtype`, or for `auto` the one that is faster here."""
    weights = list(model.parameters())
    if any(weight.dtype != torch.float32 for weight in weights):
        return "float32"  # the model stays as it is
    if dtype != "auto":
        return dtype
    is_large = sum(weight.numel() for weight in weights) >= LARGE
    on_cpu = all(weight.device.type == "cpu" for weight in weights)
    return "bfloat16" if is_large and on_cpu and multiplies_bfloat16_fast() else "float32"


def choosing_registers(registers: RegisterEvaluation, dtype: str = "auto") -> RegisterEvaluation:
    """The evaluation to choose heads by, compared with the output of the model that it runs."""
    model = registers.whole.model
    if choosing_dtype(model, dtype) == "float32":
        return registers
    model = copy.deepcopy(model).bfloat16()
    parts = {name: part.with_model(model) for name, part in registers.parts.items()}
    return RegisterEvaluation({name: _compared_with_itself(part) for name, part in parts.items()})


@torch.no_grad()
def _compared_with_itself(part: Evaluation) -> Evaluation:
    objective = part.objective
    if not objective.needs_reference:
        return part
    outputs = [objective.output(part.model, sample.inputs) for sample in part.samples]
    pairs = zip(part.samples, outputs, strict=True)
    samples = tuple(replace(sample, reference=output) for sample, output in pairs)
    return replace(part, samples=samples)


@cache
def multiplies_bfloat16_fast() -> bool:
    """Whether the processor has instructions for bfloat16 products, and can be trusted with them.

    With AMX or AVX-512 BF16, a pass of a model takes about a quarter of its time in float32.
    """
    has = torch.cpu.get_capabilities()
    if has.get("amx_bf16", False):  # some virtual machines advertise it, but crash
        return SAFE_SETTING[0] not in os.environ and low_precision_is_safe()
    return bool(has.get("avx512_bf16", False))
