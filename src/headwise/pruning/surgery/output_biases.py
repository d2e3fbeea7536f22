"""Output biases: give every output projection a bias, so that a refit can correct its mean output.

In: a model whose heads can be cut. Out: the same model with biases of zero, and a config that
describes them. If a setting of the config adds such biases, it is turned on, so that transformers
can still build a uniform cut; the config's block lists every added bias.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headwise.models.exported_folder import BLOCK, BUILD_ERRORS, empty_model
from headwise.models.exported_modeling import replace_tensor
from headwise.pruning.surgery.attention_layers import AttentionLayer
from headwise.pruning.surgery.find_layers import find_layers
from headwise.pruning.surgery.shrink import EMPTY
from headwise.watching.module_paths import path_and_parents
from headwise.watching.sites import output_weight

BIAS_SETTINGS = ("attention_out_bias", "attention_bias")
"""Settings that add biases to output projections in some families. They are tried out, because
`attention_bias` does so in Llama, but not in GLM; Seed-OSS has both settings."""


@dataclass(frozen=True, eq=False)
class AddedBiases:
    """Modules that got a bias of zeros, and the parts of the model's config that changed."""

    model: Any
    modules: tuple[Any, ...]
    setting: str
    """Name of the config's setting that was turned on; "" if there is none."""
    block: dict[str, Any] | None
    """The config's block before the biases were added."""

    def remove_if_zero(self) -> None:
        """Remove the biases and restore the config if all biases are still zero."""
        if not self.modules or any(module.bias.any() for module in self.modules):
            return
        for module in self.modules:
            module.bias = None
        if self.setting:
            setattr(self.model.config, self.setting, False)
        setattr(self.model.config, BLOCK, self.block)
        if self.block is None:
            delattr(self.model.config, BLOCK)


def add_output_biases(model: nn.Module) -> AddedBiases:
    """Add a bias of zeros to every output projection that has none; outputs stay the same.

    If a setting of the config adds these biases, it is turned on, and every other module that it
    adds a bias to gets zeros as well.
    """
    layers = find_layers(model).layers
    base = layers[0].base
    config: Any = model.config
    block = getattr(config, BLOCK, None)
    lacking = [path for path in _output_paths(layers) if base.get_submodule(path).bias is None]
    if not lacking:
        return AddedBiases(model, (), "", block)
    setting, paths = _biases_by_setting(model, layers, lacking)
    modules = tuple(base.get_submodule(path) for path in paths)
    new_block = copy.deepcopy(block or EMPTY)
    for path, module in zip(paths, modules, strict=True):
        weight = output_weight(module)
        replace_tensor(module, "bias", weight.new_zeros(weight.shape[1]))
        new_block["parameters"][f"{path}.bias"] = [weight.shape[1]]
    if setting:
        setattr(config, setting, True)
    setattr(config, BLOCK, new_block)
    return AddedBiases(model, modules, setting, block)


def _output_paths(layers: Sequence[AttentionLayer]) -> list[str]:
    return list(dict.fromkeys(layer.output for layer in layers))


def _biases_by_setting(
    model: Any, layers: Sequence[AttentionLayer], lacking: list[str]
) -> tuple[str, list[str]]:
    """A setting that adds a bias to all of `lacking`, and the paths of all modules it adds one to.

    Returns "" and `lacking` if there is no such setting, or if it also adds biases elsewhere than
    in attention.
    """
    attention = {layer.path for layer in layers} | {*_output_paths(layers)}
    for setting in BIAS_SETTINGS:
        if not isinstance(model, PreTrainedModel) or getattr(model.config, setting, True):
            continue
        config = copy.deepcopy(model.config)
        setattr(config, setting, True)
        try:
            built: Any = empty_model(type(model), config, model.dtype)
        except BUILD_ERRORS:
            continue
        existing = dict(layers[0].base.named_parameters())
        names = [name for name, _ in built.base_model.named_parameters() if name not in existing]
        paths = [name.removesuffix(".bias") for name in names if name.endswith(".bias")]
        is_in_attention = all(attention.intersection(path_and_parents(path)) for path in paths)
        if len(paths) == len(names) and is_in_attention and {*lacking} <= {*paths}:
            return setting, paths
    return "", lacking
