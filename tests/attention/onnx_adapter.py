"""ONNX adapter: the conformance cases of ONNX's operators, and headwise's answers to them.

In: the case generators that the onnx package carries. Out: cases as tensors, and for each case the
outputs that headwise computes. It only translates names, layouts and conventions.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx.backend.test.case.node.attention import Attention
from onnx.backend.test.case.node.rotaryembedding import RotaryEmbedding
from torch import Tensor

from headwise.attention.attend import attend, attend_in_steps
from headwise.attention.positions import rotate
from headwise.attention.rules import Rules

STEP_OF_MODE = ("scores", "capped", "biased", "weights")
"""The step that each `qk_matmul_output_mode` requests."""


@dataclass(frozen=True, slots=True)
class OnnxCase:
    """One node, its inputs and the outputs that ONNX expects, named as in the operator's schema."""

    name: str
    attributes: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]


def collect_cases(generators: type) -> list[OnnxCase]:
    """The cases that the class's export functions pass to `expect`, seeded as ONNX seeds them."""
    cases: list[OnnxCase] = []

    def expect(
        node: onnx.NodeProto,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        name: str,
        **_: object,
    ) -> None:
        cases.append(read_case(node, inputs, outputs, name))

    state = np.random.get_state()
    with patch.object(sys.modules[generators.__module__], "expect", expect):
        for name, export in vars(generators).items():
            if name.startswith("export"):
                np.random.seed(0)
                export()
    np.random.set_state(state)
    return cases


def read_case(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], name: str
) -> OnnxCase:
    """The case with the schema's defaults for attributes that the node does not set."""
    schema = onnx.defs.get_schema(node.op_type)
    return OnnxCase(
        name,
        default_attributes(schema) | values_of(node.attribute),
        by_place(schema.inputs, node.input, inputs),
        by_place(schema.outputs, node.output, outputs),
    )


def default_attributes(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    """Attributes that have a default value, with that value."""
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    return values_of([default for default in defaults if default.name])


def values_of(attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
    """Plain values by name."""
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in attributes}


def by_place(
    places: Sequence[onnx.defs.OpSchema.FormalParameter],
    used: Sequence[str],
    arrays: Sequence[np.ndarray],
) -> dict[str, Tensor]:
    """The arrays by the names of their slots; ONNX gives a missing one an empty name."""
    names = [place.name for place, name in zip(places, used, strict=False) if name]
    return {name: as_tensor(array) for name, array in zip(names, arrays, strict=True)}


def as_tensor(array: np.ndarray) -> Tensor:
    """The array as a tensor of the same dtype; torch does not know numpy's bfloat16."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(array)


def answer_attention(case: OnnxCase, *, path: str | None = None) -> dict[str, Tensor]:
    """Every output of an `Attention` case, by headwise."""
    case_inputs, options = case.inputs, case.attributes
    queries = split_heads(case_inputs["Q"], options.get("q_num_heads"))
    keys = split_heads(case_inputs["K"], options.get("kv_num_heads"))
    values = split_heads(case_inputs["V"], options.get("kv_num_heads"))
    if "past_key" in case_inputs:
        keys = torch.cat([case_inputs["past_key"], keys], 2)
        values = torch.cat([case_inputs["past_value"], values], 2)
    dtype = queries.dtype
    # headwise computes the softmax in float32 at least, and in float64 for float64 tensors.
    wide = options.get("softmax_precision") == onnx.TensorProto.DOUBLE
    tensors = [tensor.double() if wide else tensor for tensor in (queries, keys, values)]
    rules = rules_of(case, queries.shape[2], keys.shape[2])
    output = attend(*tensors, rules=rules, path=path).to(dtype)
    answers = {
        "Y": output if case_inputs["Q"].dim() == 4 else join_heads(output),
        "present_key": keys,
        "present_value": values,
    }
    if "qk_matmul_output" in case.outputs:
        step = STEP_OF_MODE[options["qk_matmul_output_mode"]]
        steps = attend_in_steps(*tensors, rules=rules)
        answers["qk_matmul_output"] = getattr(steps, step).to(dtype)
    return {name: answers[name] for name in case.outputs}


def rules_of(case: OnnxCase, num_queries: int, num_keys: int) -> Rules:
    """The case's attributes and optional inputs as headwise's arguments."""
    case_inputs, options = case.inputs, case.attributes
    lengths = case_inputs.get("nonpad_kv_seqlen")
    if lengths is not None:
        offset: int | Tensor = lengths - num_queries
    else:
        offset = case_inputs["past_key"].shape[2] if "past_key" in case_inputs else 0
    sides = options["left_window_size"], options["right_window_size"]
    before, after = (None if side == -1 else side for side in sides)
    return Rules(
        is_causal=options["is_causal"] == 1,
        window=(before, after),
        lengths=lengths,
        offset=offset,
        mask=mask_of(case_inputs["attn_mask"], num_keys) if "attn_mask" in case_inputs else None,
        scale=options.get("scale"),
        softcap=options["softcap"] or None,
    )


def mask_of(mask: Tensor, num_keys: int) -> Tensor:
    """The mask with four axes: ONNX aligns axes at the right, and blocks keys past a short mask."""
    blocked = False if mask.dtype == torch.bool else -math.inf
    mask = F.pad(mask, (0, num_keys - mask.shape[-1]), value=blocked)
    return mask[(None,) * (4 - mask.dim())]


def answer_rotary(case: OnnxCase) -> dict[str, Tensor]:
    """The output of a `RotaryEmbedding` case, by headwise."""
    case_inputs, options = case.inputs, case.attributes
    x = split_heads(case_inputs["X"], options.get("num_heads"))
    cos, sin = case_inputs["cos_cache"], case_inputs["sin_cache"]
    if "position_ids" in case_inputs:
        cos, sin = cos[case_inputs["position_ids"]], sin[case_inputs["position_ids"]]
    assert 2 * cos.shape[-1] == (options["rotary_embedding_dim"] or x.shape[-1])
    rotated = rotate(x, cos, sin, layout="interleaved" if options["interleaved"] else "half")
    return {"Y": rotated if case_inputs["X"].dim() == 4 else join_heads(rotated)}


def split_heads(tensor: Tensor, num_heads: int | None) -> Tensor:
    """`[batch heads position size]` from itself or from `[batch position heads*size]`."""
    if tensor.dim() == 4:
        return tensor
    assert num_heads is not None
    return tensor.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(tensor: Tensor) -> Tensor:
    """`[batch position heads*size]` from `[batch heads position size]`."""
    return tensor.transpose(1, 2).flatten(2)


ATTENTION_CASES = collect_cases(Attention)
ROTARY_CASES = collect_cases(RotaryEmbedding)
