"""Run by two ranks: a layer sharded over both must equal the same layer in one process."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from attention.tolerance import assert_same
from headwise import Alibi, MultiHeadAttention, RelativeBias, Rotary, tensor_parallel_plan

CASES = {
    "plain": {},
    "grouped rotary": {"num_kv_heads": 2, "is_causal": True, "position": Rotary()},
    "free sizes": {"d_key": 6, "d_value": 10, "bias": ("Wq", "Wo")},
    "sinks and norms": {"sinks": True, "qk_norm": True, "is_causal": True},
    "alibi": {"position": Alibi(), "is_causal": True},
    "relative bias": {"position": RelativeBias(num_buckets=8, max_distance=16)},
    "window": {"window": 3, "is_causal": True},
}
ROUNDINGS = 8 * 40 + 3 * 7 * 4
"""Four projections there and back, each a sum over d_model; batch, positions and heads."""


def build(case: str) -> MultiHeadAttention:
    """The case's layer with every parameter random, the same on all ranks."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(40, 4, **CASES[case], dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=40**-0.5)  # so that sums over d_model are of size 1
    return layer


def check(case: str) -> None:
    """Output, input gradient and every parameter's gradient agree with one process."""
    alone, sharded = build(case), build(case)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(sharded, mesh, tensor_parallel_plan(sharded, mesh.size()))
    torch.manual_seed(1)
    x = torch.randn(3, 7, 40, dtype=torch.float64)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = [layer(x) for layer, x in zip((alone, sharded), inputs, strict=True)]
    for output in outputs:
        output.square().sum().backward()
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    local = sharded.Wq.weight.to_local().shape[0]
    assert local * mesh.size() == alone.Wq.weight.shape[0], "the heads were not sharded"
    for (name, whole), part in zip(alone.named_parameters(), sharded.parameters(), strict=True):
        assert part.grad is not None, name
        gradient = part.grad.full_tensor() if isinstance(part.grad, DTensor) else part.grad
        assert_same(gradient, whole.grad, roundings=ROUNDINGS, name=f"{case}: gradient of {name}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for case in CASES:
        check(case)
    if dist.get_rank() == 0:
        sys.stdout.write(f"{len(CASES)} cases agree\n")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # joining gloo's threads sometimes aborts the process
