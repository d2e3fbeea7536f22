"""headwise against the conformance cases of ONNX's `Attention` and `RotaryEmbedding` operators."""

import math
from dataclasses import replace

import onnx
import pytest
import torch
from torch import Tensor

from headwise.attention.paths import PATHS
from headwise.errors import PathError

from .onnx_adapter import (
    ATTENTION_CASES,
    ROTARY_CASES,
    OnnxCase,
    answer_attention,
    answer_rotary,
    default_attributes,
)

HALF_CASES = [case for case in ATTENTION_CASES if case.outputs["Y"].element_size() == 2]

TRANSLATED = (
    *("is_causal", "left_window_size", "right_window_size", "scale", "softcap"),
    *("qk_matmul_output_mode", "attn_mask", "past_key", "nonpad_kv_seqlen"),
)
"""Attributes and inputs that can be ignored and still leave something to compute."""


def params(cases: list[OnnxCase]) -> list[object]:
    """One parameter per case, with ONNX's name as its id."""
    return [pytest.param(case, id=case.name) for case in cases]


def allowed_error(case: OnnxCase, name: str) -> float:
    """Largest difference from ONNX's output that rounding explains.

    Scores sum over d_key, softmax and mixing over the keys: n = d_key + keys roundings of at most
    eps / 2 each, relative to the result because the cases' scores are of order 1. Rounding errors
    have no common sign, so they add up to sqrt(n) eps / 2 (https://doi.org/10.1137/18M1226312), and
    both sides make them: ONNX computes every step in the case's own dtype, half precision too. What
    is only copied is copied exactly, and a rotated channel is the sum of two products.
    """
    expected = case.outputs[name]
    if name.startswith("present"):
        roundings = 0
    elif "cos_cache" in case.inputs:
        roundings = 2
    else:
        num_heads = case.attributes.get("kv_num_heads", 1)
        num_keys = sum(
            case.inputs[key].shape[-2] for key in ("K", "past_key") if key in case.inputs
        )
        roundings = case.inputs["K"].shape[-1] // num_heads + num_keys
    size = expected[expected.isfinite()].abs().max().item()
    return torch.finfo(expected.dtype).eps * math.sqrt(roundings) * size


def assert_answers(case: OnnxCase, answers: dict[str, Tensor]) -> None:
    """Every output has ONNX's dtype, shape and values; zeros of ONNX are exactly zero."""
    assert answers.keys() == case.outputs.keys()
    for name, expected in case.outputs.items():
        allowed = allowed_error(case, name)
        torch.testing.assert_close(
            answers[name],
            expected,
            rtol=0,
            atol=allowed,
            msg=lambda text, name=name: f"{case.name}, {name}: {text}",
        )
        assert (answers[name][expected == 0] == 0).all(), f"{case.name}, {name}: zeros differ"


def without(case: OnnxCase, ignored: str) -> OnnxCase:
    """The case without one input or attribute; its expected outputs stay."""
    inputs = {name: tensor for name, tensor in case.inputs.items() if name != ignored}
    attributes = {name: value for name, value in case.attributes.items() if name != ignored}
    defaults = default_attributes(onnx.defs.get_schema("Attention"))
    return replace(case, inputs=inputs, attributes=defaults | attributes)


@pytest.mark.parametrize("case", params(ATTENTION_CASES))
def test_attention_answers_as_onnx_does(case: OnnxCase) -> None:
    assert_answers(case, answer_attention(case))


@pytest.mark.parametrize("case", params(ROTARY_CASES))
def test_rotary_positions_answer_as_onnx_does(case: OnnxCase) -> None:
    assert_answers(case, answer_rotary(case))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_answers_every_case_it_takes(path: str) -> None:
    taken = 0
    for case in ATTENTION_CASES:
        try:
            answers = answer_attention(case, path=path)
        except PathError:
            continue
        assert_answers(case, answers)
        taken += 1
    assert taken > 0


@pytest.mark.parametrize("case", params(HALF_CASES))
def test_half_precision_is_as_near_to_float64_as_onnx(case: OnnxCase) -> None:
    wide = {
        name: tensor.double() if tensor.is_floating_point() else tensor
        for name, tensor in case.inputs.items()
    }
    truth = answer_attention(replace(case, inputs=wide))
    answers = answer_attention(case)
    for name, expected in case.outputs.items():
        ours, theirs = ((answer - truth[name]).abs().max() for answer in (answers[name], expected))
        last_rounding = torch.finfo(expected.dtype).eps / 2 * truth[name].abs().max()
        assert ours <= theirs + last_rounding, name


def test_every_case_of_onnx_is_tested() -> None:
    names = [case.name for case in ATTENTION_CASES + ROTARY_CASES]
    assert (len(ATTENTION_CASES), len(ROTARY_CASES)) == (93, 8)
    assert len(set(names)) == len(names)
    assert {case.outputs["Y"].dtype for case in ATTENTION_CASES} == {
        torch.float32,
        torch.float16,
        torch.bfloat16,
    }


def test_a_case_fails_on_one_wrong_number_in_any_output() -> None:
    for case in ATTENTION_CASES + ROTARY_CASES:
        for name, expected in case.outputs.items():
            wrong = expected.clone()
            place = expected.isfinite().flatten().nonzero()[-1]
            error = 2 * allowed_error(case, name) or torch.finfo(expected.dtype).eps
            wrong.view(-1)[place] += error
            with pytest.raises(AssertionError, match=f"{case.name}, {name}"):
                assert_answers(case, case.outputs | {name: wrong})


def test_a_case_fails_on_another_dtype_shape_or_set_of_outputs() -> None:
    case = ATTENTION_CASES[0]
    output = case.outputs["Y"]
    for wrong in ({"Y": output.double()}, {"Y": output[:1]}, {}, {"Y": output, "more": output}):
        with pytest.raises(AssertionError):
            assert_answers(case, wrong)


@pytest.mark.parametrize("ignored", TRANSLATED)
def test_no_part_of_a_case_can_be_ignored(ignored: str) -> None:
    blind = [without(case, ignored) for case in ATTENTION_CASES]
    with pytest.raises(AssertionError):
        for case in blind:
            assert_answers(case, answer_attention(case))
