"""Heads of large models are chosen in bfloat16 where that is fast, and in float32 elsewhere."""

from collections.abc import Mapping

import pytest
import torch
from torch import nn

from headwise.attention.processor import SAFE_SETTING
from headwise.errors import OptionError
from headwise.objectives.evaluation import Evaluation
from headwise.objectives.losses import Embedding
from headwise.objectives.registers import RegisterEvaluation
from headwise.pruning.selection import low_precision
from headwise.pruning.selection.low_precision import (
    choosing_dtype,
    choosing_registers,
    multiplies_bfloat16_fast,
)
from headwise.pruning.settings import PruneSettings
from headwise.pruning.setup import cut_search

from ..tiny_models import assert_unchanged, model_of, plain, state_of, task_of


def pretend(monkeypatch: pytest.MonkeyPatch, *, is_fast: bool, large: int) -> None:
    monkeypatch.setattr(low_precision, "multiplies_bfloat16_fast", lambda: is_fast)
    monkeypatch.setattr(low_precision, "LARGE", large)


@pytest.mark.parametrize(
    ("is_fast", "large", "dtype"),
    [(True, 1, "bfloat16"), (True, 10**9, "float32"), (False, 1, "float32")],
)
def test_auto_is_bfloat16_for_large_models_on_processors_that_multiply_it_fast(
    monkeypatch: pytest.MonkeyPatch, is_fast: bool, large: int, dtype: str
) -> None:
    pretend(monkeypatch, is_fast=is_fast, large=large)
    assert choosing_dtype(model_of("llama").float()) == dtype


def test_the_dtype_that_was_asked_for_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, is_fast=True, large=1)
    assert choosing_dtype(model_of("llama").float(), "float32") == "float32"
    pretend(monkeypatch, is_fast=False, large=10**9)
    assert choosing_dtype(model_of("llama").float(), "bfloat16") == "bfloat16"


def test_a_model_in_another_dtype_stays_as_it_is() -> None:
    registers = registers_of(model_of("llama").double())
    assert choosing_registers(registers, "bfloat16") is registers


def registers_of(model: nn.Module) -> RegisterEvaluation:
    part = Evaluation.of_batches(model, task_of("llama").objective, [plain("llama")])
    return RegisterEvaluation({"given": part})


def test_the_copy_is_in_bfloat16_and_the_model_unchanged() -> None:
    model = model_of("llama").float()
    before, registers = state_of(model), registers_of(model)
    chosen = choosing_registers(registers, "bfloat16")
    assert {weight.dtype for weight in chosen.whole.model.parameters()} == {torch.bfloat16}
    assert registers.whole.model is model
    assert_unchanged(model, before)


def test_outputs_are_compared_with_those_of_the_copy_itself() -> None:
    model = model_of("bert").float().base_model
    part = Evaluation.of_batches(model, Embedding(), [plain("bert")])
    chosen = choosing_registers(RegisterEvaluation({"given": part}), "bfloat16")
    (sample,), copied = chosen.whole.samples, chosen.whole.model
    assert sample.reference is not None
    assert torch.equal(sample.reference, Embedding().output(copied, sample.inputs))
    assert part.samples[0].reference is not sample.reference


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_heads_are_searched_for_in_the_dtype_of_the_settings(dtype: str) -> None:
    search = cut_search(registers_of(model_of("llama").float()), PruneSettings(choose_dtype=dtype))
    assert next(search.evaluation.model.parameters()).dtype == getattr(torch, dtype)


@pytest.mark.parametrize(
    ("features", "is_safe", "is_fast"),
    [
        ({"avx512_bf16": True}, False, True),
        ({"amx_bf16": True, "avx512_bf16": True}, True, True),
        ({"amx_bf16": True, "avx512_bf16": True}, False, False),
        ({"avx2": True}, True, False),
    ],
)
def test_processors_need_instructions_that_work(
    monkeypatch: pytest.MonkeyPatch, features: Mapping[str, bool], is_safe: bool, is_fast: bool
) -> None:
    monkeypatch.delenv(SAFE_SETTING[0], raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features)
    monkeypatch.setattr(low_precision, "low_precision_is_safe", lambda: is_safe)
    multiplies_bfloat16_fast.cache_clear()
    assert multiplies_bfloat16_fast() is is_fast
    multiplies_bfloat16_fast.cache_clear()


def test_unknown_dtypes_are_named() -> None:
    with pytest.raises(OptionError, match=r"choose_dtype is 'half'.*bfloat16"):
        PruneSettings(choose_dtype="half")
