"""Shrink: slices a module's parameters and sets the attributes that its forward reads.

In: a base module, the cuts of its layers, and a config block. Out: the module in its new shape, and
the block that describes it; `models/exported_modeling.py` gives a new model the same shape.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.models.exported_modeling import apply_block, replace_tensor
from headwise.pruning.surgery.attention_layers import (
    AttentionLayer,
    KeptHeads,
    Slice,
    changed_sizes,
    kept_slices,
)
from headwise.watching.module_paths import join_path

PARTS = ("parameters", "attributes", "configs", "biased", "emptied", "kept")
EMPTY: dict[str, Any] = {"format": 1} | {part: {} for part in PARTS}
"""The config block of an uncut model."""


@dataclass(frozen=True)
class LayerCut:
    """The heads that one layer keeps, and the slices that keep them."""

    layer: AttentionLayer
    heads: KeptHeads
    slices: list[Slice]

    @classmethod
    def of(cls, layer: AttentionLayer, kept: tuple[int, ...]) -> "LayerCut":
        """The cut that keeps these heads."""
        heads = KeptHeads(layer.num_heads, layer.num_kv_heads, kept)
        return cls(layer, heads, kept_slices(layer, kept))


def shrink(base: nn.Module, cuts: list[LayerCut], block: dict[str, Any]) -> None:
    """Slice the parameters of `base` and add the cuts to `block`."""
    for layer_cut in cuts:
        _describe_cut(layer_cut, block)
    with torch.no_grad():
        for part in (part for layer_cut in cuts for part in layer_cut.slices):
            owner, _, name = part.path.rpartition(".")
            module = base.get_submodule(owner)
            old: Tensor = getattr(module, name)
            rows = torch.tensor(part.kept, dtype=torch.long, device=old.device)
            new = old.detach().index_select(part.axis, rows)
            replace_tensor(module, name, new)
            block["parameters"][part.path] = list(new.shape)
    apply_block(base, block)


def _describe_cut(layer_cut: LayerCut, block: dict[str, Any]) -> None:
    """Add one layer's cut to the block, without the new shapes of its parameters."""
    layer, heads, path = layer_cut.layer, layer_cut.heads, layer_cut.layer.path
    facts, attributes = layer.facts, block["attributes"]
    before = block["kept"].get(layer.names[0], range(heads.num_heads))
    kept = [before[head] for head in heads.kept]  # numbers in the uncut model
    block["kept"] |= dict.fromkeys(layer.names, kept)
    for part in layer_cut.slices:
        if part.attribute:
            owner = part.path.rpartition(".")[0]
            attributes.setdefault(owner, {})[part.attribute] = len(part.kept)
    attributes.setdefault(path, {})
    for name, value in changed_sizes(facts.attributes, heads).items():
        owner, _, attribute = join_path(layer.unit, name).rpartition(".")
        attributes.setdefault(owner, {})[attribute] = value
    if facts.configs:
        block["configs"][path] = changed_sizes(facts.configs, heads)
    (earlier, *_) = block["biased"].pop(path, [{"total": heads.num_heads}])
    own = {"total": earlier["total"], "heads": kept}
    biases = [asdict(bias) | own for bias in facts.biases]
    if not kept:
        passed_on = [bias for bias in biases if bias["is_passed_on"]]
        block["emptied"][path] = dict(facts.ending or {}) | (
            {"passes": passed_on[0]} if passed_on else {}
        )
    elif biases:
        block["biased"][path] = biases
