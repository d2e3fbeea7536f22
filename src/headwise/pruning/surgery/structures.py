"""Structures: keys that are equal for modules, or models, that are built alike.

In: a module or a model. Out: a hashable key. What experiments find depends only on the structure,
so it holds for all layers and copies with the same key.
"""

import json
from typing import Any

from torch import nn

POSITIONS = ("layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "training")
"""Attributes that differ from layer to layer without changing the structure."""
UNRELATED = ("headwise", "dtype", "torch_dtype", "architectures", "_attn_implementation")
"""Settings that do not change the structure of attention."""


def module_structure(base: nn.Module, path: str) -> Any:
    """Everything that tells an attention module's structure from that of another one."""
    module = base.get_submodule(path)
    parent = base.get_submodule(path.rpartition(".")[0])
    tensors = tuple(
        (name, tuple(tensor.shape), tensor.is_floating_point(), type(tensor))
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    )
    classes = tuple((name, type(part)) for name, part in module.named_modules())
    simple = (bool, int, float, str, type(None), list, tuple)
    values = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, simple) and name not in POSITIONS and name[0] != "_"
    }
    config = getattr(module, "config", None)
    own = (
        {name: value for name, value in vars(config).items() if name != "shared"}
        if hasattr(config, "shared")
        else {}
    )
    shared: Any = getattr(config, "shared", config)
    settings = shared.to_dict() if hasattr(shared, "to_dict") else {}
    settings = {name: value for name, value in settings.items() if name not in UNRELATED}
    forward = "forward" in vars(module)
    text = json.dumps([values, own, settings], sort_keys=True, default=str)
    return type(parent), type(module), forward, tensors, classes, text


def model_structure(model: Any, names: tuple[str, ...]) -> Any:
    """Everything that tells a model's structure from that of another one, cut or not."""
    settings = model.config.to_dict() if hasattr(model.config, "to_dict") else {}
    settings = {name: value for name, value in settings.items() if name not in UNRELATED}
    return type(model), names, json.dumps(settings, sort_keys=True, default=str)
