"""Tensor parallelism: a plan from which PyTorch's `parallelize_module` shards a layer's heads.

Each rank keeps whole heads with the KV heads that serve them; one all-reduce after Wo sums their
outputs. Each rank then accepts `gates` and returns weights only for its own heads.
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
)

from headwise.attention.layer import MultiHeadAttention, Sinks, Slopes
from headwise.errors import OptionError


class _ShardSinks(ParallelStyle):
    """Gives each rank the sinks of its own heads."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        assert isinstance(module, Sinks)
        sharded = distribute_tensor(module.values, device_mesh, [Shard(0)])
        module.values = nn.Parameter(sharded, module.values.requires_grad)
        module.register_forward_hook(lambda module, inputs, sinks: sinks.to_local())
        return module


class _ShardSlopes(ParallelStyle):
    """Gives each rank the slopes of its own heads."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        assert isinstance(module, Slopes)
        heads_per_rank = module.num_heads // device_mesh.size()
        first = heads_per_rank * device_mesh.get_local_rank()
        module.heads = slice(first, first + heads_per_rank)
        return module


def tensor_parallel_plan(layer: MultiHeadAttention, ranks: int) -> dict[str, ParallelStyle]:
    """Parallel styles, by submodule, that shard the layer's heads and KV heads over `ranks` ranks.

    >>> sorted(tensor_parallel_plan(MultiHeadAttention(64, 4), 2))
    ['Wk', 'Wo', 'Wq', 'Wv']
    """
    for name, count in (("num_heads", layer.num_heads), ("num_kv_heads", layer.num_kv_heads)):
        if ranks < 1 or count % ranks:
            raise OptionError(
                f"{name} {count} cannot be divided over {ranks} ranks: each rank needs whole heads"
            )
    plan: dict[str, ParallelStyle] = {
        "Wq": ColwiseParallel(),
        "Wk": ColwiseParallel(),
        "Wv": ColwiseParallel(),
        "Wo": RowwiseParallel(),
    }
    if layer.sinks is not None:
        plan["sinks"] = _ShardSinks()
    if layer.slopes is not None:
        plan["slopes"] = _ShardSlopes()
    if layer.relative_bias is not None:
        plan["relative_bias"] = ColwiseParallel()
    if layer.q_norm is not None:
        # Each rank normalizes its own heads, all with the same gains: the heads are the "sequence".
        plan["q_norm"] = SequenceParallel(sequence_dim=1, use_local_output=True)
        plan["k_norm"] = SequenceParallel(sequence_dim=1, use_local_output=True)
    return plan
