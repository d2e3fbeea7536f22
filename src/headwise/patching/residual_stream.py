"""The residual stream: what each head writes into it, and proof that it adds up.

In: a model and the recorded calls of its modules. Out: the matrix by which each head's output is
written, and the parts of a block's output that are not heads. A model whose blocks do anything but
add their attention to their input is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.reading.batch import Inputs
from headwise.watching.calls import SiteCall
from headwise.watching.hooks import ModuleCall, record
from headwise.watching.partial_passes import Block, find_blocks
from headwise.watching.running import forward_batch

TOLERANCE = 1e3 * torch.finfo(torch.float32).eps
"""Largest difference between sums of the same parts, as a share of the sum; models in float64
round to float32 as well."""


def head_weights(call: SiteCall) -> Float[Tensor, "heads d_value d_model"]:
    """The matrix by which each head's output is written into the stream."""
    weight = call.output_weight
    if weight is None:
        raise ModelError(
            f"what {call.site.layer_name}'s heads write is unknown, because a gate or a norm comes "
            "between them and the output projection"
        )
    matrices: Tensor = weight.unflatten(0, (call.num_heads, -1))
    return matrices


@dataclass(frozen=True, eq=False)
class RecordedStream:
    """The calls of all modules of a model in one pass, by path."""

    model: nn.Module
    calls: Mapping[str, ModuleCall]
    blocks: tuple[Block, ...]

    def projection(self, block: Block) -> Float[Tensor, "batch position d_model"]:
        """Output of a block's attention."""
        (site,) = block.sites
        paths = {module: name for name, module in self.model.named_modules()}
        assert site.output_projection is not None
        output: Tensor = self.calls[paths[site.output_projection]].output
        return output

    def rest(self, block: Block) -> Float[Tensor, "batch position d_model"]:
        """Everything that a block adds to its input besides its attention.

        Some module in the block must output just that: its feed-forward layer. Otherwise, the
        block does not add its attention unchanged, and this raises ModelError.
        """
        call = self.calls[block.name]
        if len(block.sites) == 1 and block.sites[0].output_projection is not None:
            rest = call.output - call.input - self.projection(block)
            bound = TOLERANCE * float(call.output.abs().max())
            for name, inner in self.calls.items():
                output = inner.output
                if not name.startswith(f"{block.name}.") or not isinstance(output, Tensor):
                    continue
                if output.numel() == rest.numel():  # some modules merge batch and positions
                    output = output.view(rest.shape)
                    if float((output - rest).abs().max()) <= bound:
                        return output
        raise ModelError(
            f"{type(self.model).__name__} does not add the attention of {block.name} unchanged to "
            "its input, so what its heads write to later layers is unknown"
        )


@torch.no_grad()
def record_stream(model: nn.Module, inputs: Inputs) -> RecordedStream:
    """Run the model and record its modules.

    Raises ModelError if the model is in low precision: rounding would hide what does not add up.
    """
    dtype = next(model.parameters()).dtype
    if torch.finfo(dtype).bits < 32:
        raise ModelError(
            f"{type(model).__name__} is in {str(dtype).removeprefix('torch.')}, too coarse to "
            "check that what heads write adds up: load it in float32"
        )
    modules = {name: module for name, module in model.named_modules() if name}
    with record(modules) as calls:
        forward_batch(model, inputs)
    return RecordedStream(model, {call.name: call for call in calls}, find_blocks(model))
