"""Layer outputs: what a model and some of its attention layers return on an input.

In: a model, its attention layers and inputs. Out: outputs by name, to compare before and after a
cut. `watching/equivalence.py` compares them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headwise.pruning.surgery.attention_layers import AttentionLayer
from headwise.watching.hooks import record
from headwise.watching.running import in_evaluation


def layer_outputs(
    model: nn.Module, layers: Sequence[AttentionLayer], inputs: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Outputs of `layers`, then of the model, by name; the model runs without dropout.

    For a module that serves several layers, the output is that of its last call.
    """
    modules = {
        " and ".join(layer.names): layer.base.get_submodule(
            layer.path if layer.has_output_inside else layer.output
        )
        for layer in layers
    }
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        in_evaluation(model),
        record(modules) as calls,
    ):
        torch.default_generator.manual_seed(0)  # some models mask or sample at random
        result: Any = model(**inputs)
    if isinstance(result, Tensor):
        result = {"output": result}
    elif isinstance(result, tuple | list):
        result = {f"output {number}": output for number, output in enumerate(result)}
    return {call.name: call.output for call in calls} | {
        f"the model's {name}": output
        for name, output in result.items()
        if isinstance(output, Tensor) and output.is_floating_point()
    }
