"""Surgery: heads leave a model for good, and nothing else about it changes.

In: a model, and which of its heads to cut. Out: the same model with smaller projections, which says
what silencing those heads says, and a block in its config from which `standalone.reshape` gives a
fresh model the same shape. Everything is checked before the first change.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadId, check_head, parse_heads
from headwise.models.cut_modeling import replace_tensor, settle
from headwise.models.families import NUM_HEADS, NUM_KV_HEADS
from headwise.models.loaded import LoadedModel, as_module
from headwise.pruning.surgery import equivalence
from headwise.pruning.surgery.attention_layers import (
    AttentionLayer,
    KeptHeads,
    Slice,
    attributes,
    find_layers,
    kept_slices,
)
from headwise.watching.gates import check_layers
from headwise.watching.sites import find_sites

PARTS = ("parameters", "attributes", "configs", "biased", "emptied", "kept")
EMPTY: dict[str, Any] = {"format": 1} | {part: {} for part in PARTS}
"""The block of a model that nothing was cut from."""


@dataclass(frozen=True)
class Surgery:
    """What was cut from a model, and how far it then was from silencing the same heads."""

    heads: tuple[HeadId, ...]
    difference: float | None
    """Largest difference that was found; None where there were no inputs to look with."""
    parameters_before: int
    parameters_after: int
    kept: Mapping[str, tuple[int, ...]]
    """Of every layer the heads that it has, by their numbers in the uncut model."""


@dataclass(frozen=True)
class LayerCut:
    """What becomes of one layer."""

    layer: AttentionLayer
    heads: KeptHeads
    slices: list[Slice]


def cut(
    model: nn.Module | LoadedModel,
    heads: str | HeadId | Iterable[str | HeadId],
    *,
    inputs: Mapping[str, Tensor] | None = None,
) -> Surgery:
    """Remove heads in place; with `inputs`, undo it unless it equals silencing them.

    Heads are numbered as the model has them now; what is written into `model.config.headwise`, and
    `kept`, count in the uncut model. With `inputs` the model runs before, those heads silenced, and
    after; where the two differ by more than rounding an error is raised, and nothing has changed.

    headwise.cut(model, "L0H1 L2H3", inputs=tokens).difference
    """
    model, chosen = as_module(model), parse_heads(heads)
    changes = plan_slices(model, chosen)
    before = count_parameters(model)
    if not changes:
        kept = kept_heads(model, find_layers(model))
        return Surgery(chosen, None, before, before, kept)
    layers = layers_of(changes)
    with nullcontext() if inputs is None else equivalence.in_full_precision(model, inputs) as given:
        wanted = None if given is None else equivalence.silenced(model, chosen, layers, given)
        restore = snapshot(model, changes)
        difference = None
        try:
            apply_slices(model, changes)
            if wanted is not None and given is not None:
                difference = equivalence.difference(model, layers, given, wanted)
        except BaseException:
            restore()
            raise
    kept = kept_heads(model, find_layers(model))
    return Surgery(chosen, difference, before, count_parameters(model), kept)


def can_cut(model: nn.Module) -> str | None:
    """The reason why heads cannot be cut from this model; None if they can."""
    try:
        find_layers(model)
    except ModelError as error:
        return str(error)
    return None


def head_counts(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Query heads and KV heads that every layer has now, by the layer's name."""
    return {
        name: (layer.num_heads, layer.num_kv_heads)
        for layer in find_layers(model)
        for name in layer.names
    }


def layers_of(changes: list[LayerCut]) -> list[AttentionLayer]:
    """The layers that change."""
    return [change.layer for change in changes]


def count_parameters(model: nn.Module) -> int:
    """How many numbers the model learns, or would if it were allowed to."""
    return sum(parameter.numel() for parameter in model.parameters())


def plan_slices(model: nn.Module, chosen: tuple[HeadId, ...]) -> list[LayerCut]:
    """What becomes of every layer that loses a head; an error where that cannot be."""
    check_layers(chosen, find_sites(model))
    changes = []
    for layer in find_layers(model):
        gone = gone_from(layer, chosen)
        if gone:
            count = layer.num_heads
            kept = tuple(head for head in range(count) if head not in gone)
            heads = KeptHeads(count, layer.num_kv_heads, kept)
            check_groups(layer, heads)
            changes.append(LayerCut(layer, heads, kept_slices(layer, heads)))
    return changes


def gone_from(layer: AttentionLayer, chosen: tuple[HeadId, ...]) -> set[int]:
    """Numbers of the heads that go from a layer, checked to be there, and alike where shared."""
    by_name = {name: set[int]() for name in layer.names}
    for head in chosen:
        if head.layer_name in by_name:
            check_head(head, {head.layer_name: layer.num_heads})
            by_name[head.layer_name].add(head.head)
    gone = by_name[layer.names[0]]
    if any(others != gone for others in by_name.values()):
        raise OptionError(
            f"{' and '.join(layer.names)} share one module, so a head goes from all of them: "
            "cut the same heads in each"
        )
    return gone


def check_groups(layer: AttentionLayer, heads: KeptHeads) -> None:
    """Raise unless all KV heads that stay keep equally many query heads."""
    sizes = Counter(head // heads.group for head in heads.kept)
    if len(set(sizes.values())) > 1:
        raise OptionError(
            f"{layer.names[0]} has {heads.num_heads} heads in groups of {heads.group} that share "
            f"keys and values, and this cut would leave {', '.join(map(str, sizes.values()))} of "
            "them: cut whole groups, or the same number of heads in every group"
        )


def apply_slices(model: Any, changes: list[LayerCut]) -> None:
    """Slice the parameters, and write the block that says so."""
    base = changes[0].layer.base
    block = merged(model, changes)
    with torch.no_grad():
        for change in changes:
            for one in change.slices:
                carry_out_slice(base, one)
    for change in changes:
        for one in change.slices:
            block["parameters"][one.path] = list(tensor_at(base, one.path).shape)
    settle(base, block)
    model.config.headwise = block


def carry_out_slice(base: nn.Module, one: Slice) -> None:
    """Put what stays of a parameter in its place."""
    owner, _, name = one.path.rpartition(".")
    old = tensor_at(base, one.path)
    kept = torch.tensor(one.kept, dtype=torch.long, device=old.device)
    replace_tensor(base.get_submodule(owner), name, old.detach().index_select(one.axis, kept))


def tensor_at(base: nn.Module, path: str) -> Tensor:
    """The parameter of that path."""
    owner, _, name = path.rpartition(".")
    tensor = getattr(base.get_submodule(owner), name)
    assert isinstance(tensor, Tensor)
    return tensor


def merged(model: Any, changes: list[LayerCut]) -> dict[str, Any]:
    """The block of the model as it will be; shapes are still those of earlier cuts."""
    block = copy.deepcopy(getattr(model.config, "headwise", None) or EMPTY)
    for change in changes:
        layer, path = change.layer, change.layer.path
        kept = originals(block, layer, change.heads)
        block["kept"] |= dict.fromkeys(layer.names, kept)
        said = attributes(layer, change.heads)
        for one in change.slices:
            owner = one.path.rpartition(".")[0]
            if one.attribute:
                block["attributes"].setdefault(owner, {})[one.attribute] = len(one.kept)
        block["attributes"].setdefault(path, {}).update(said)
        if layer.family.asks_config:
            block["configs"][path] = config_answers(layer, change.heads)
        bias = bias_facts(block, change, kept)
        block["biased"].pop(path, None)
        if not kept:
            block["emptied"][path] = emptied_facts(layer, bias)
        elif bias:
            block["biased"][path] = bias
    return block


def originals(block: dict[str, Any], layer: AttentionLayer, heads: KeptHeads) -> list[int]:
    """The kept heads by their numbers in the uncut model."""
    before = block["kept"].get(layer.names[0], range(heads.num_heads))
    return [before[head] for head in heads.kept]


def config_answers(layer: AttentionLayer, heads: KeptHeads) -> dict[str, int]:
    """What a module's own config shall say of heads, of what the model's says something of."""
    known = dict.fromkeys(NUM_HEADS, len(heads.kept))
    known |= dict.fromkeys(NUM_KV_HEADS, len(heads.kept_kv))
    return {name: value for name, value in known.items() if hasattr(layer.module.config, name)}


def bias_facts(block: dict[str, Any], change: LayerCut, kept: list[int]) -> dict[str, Any]:
    """Which part of a bias for all heads is a layer's; nothing where there is no such bias."""
    layer = change.layer
    if layer.family.bias is None:
        return {}
    before = block["biased"].get(layer.path, {"total": change.heads.num_heads})
    return asdict(layer.family.bias) | {"total": before["total"], "heads": kept}


def emptied_facts(layer: AttentionLayer, bias: dict[str, Any]) -> dict[str, Any]:
    """What a module without heads does, for `standalone`."""
    family = layer.family
    inside = family.output.replace("/", ".") if layer.has_output_inside else None
    facts: dict[str, Any] = {"projection": inside}
    optional = {"after": list(family.after), "norm": family.norm}
    facts |= {name: value for name, value in optional.items() if value}
    if family.residual is not None:
        facts["residual"] = family.residual
    if bias and bias["is_passed_on"]:
        facts["passes"] = bias
    return facts


def kept_heads(model: Any, layers: tuple[AttentionLayer, ...]) -> dict[str, tuple[int, ...]]:
    """Of every layer the heads that it has, by their numbers in the uncut model."""
    written = (getattr(model.config, "headwise", None) or EMPTY)["kept"]
    return {
        name: tuple(written.get(name, range(layer.num_heads)))
        for layer in layers
        for name in layer.names
    }


def snapshot(model: Any, changes: list[LayerCut]) -> Callable[[], None]:
    """A function that makes the model what it is now; it keeps the old parameters alive."""
    base = changes[0].layer.base
    paths = {change.layer.path for change in changes}
    paths |= {one.path.rpartition(".")[0] for change in changes for one in change.slices}
    modules = [base.get_submodule(path) for path in paths]
    states = [
        {name: dict(value) if name in OWN_DICTS else value for name, value in vars(one).items()}
        for one in modules
    ]
    had_block, block = hasattr(model.config, "headwise"), getattr(model.config, "headwise", None)

    def restore() -> None:
        for module, state in zip(modules, states, strict=True):
            vars(module).clear()
            vars(module).update(state)
        if had_block:
            model.config.headwise = block
        elif hasattr(model.config, "headwise"):
            del model.config.headwise

    return restore


OWN_DICTS = ("_parameters", "_buffers")
"""Dictionaries of a module that change when a parameter is replaced."""
