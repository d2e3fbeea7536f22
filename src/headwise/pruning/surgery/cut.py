"""Cut: remove heads from a model's weights; nothing else about the model changes.

In: a model and the heads to cut. Out: the same model with smaller projections, whose outputs equal
those with the heads silenced, and a block in its config that describes the cut. From that block,
`models/exported_modeling.py` gives a new model the same shapes. Every check that does not run the
model comes before the first change.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadId, check_head, parse_heads
from headwise.models.exported_modeling import apply_block, replace_tensor
from headwise.models.loaded import LoadedModel, as_module
from headwise.pruning.surgery.attention_layers import (
    AttentionLayer,
    KeptHeads,
    Slice,
    count_attributes,
    find_layers,
    kept_slices,
    size_attributes,
)
from headwise.pruning.surgery.layer_outputs import layer_outputs
from headwise.watching.equivalence import check_equivalence, in_full_precision
from headwise.watching.gates import check_layers, silence
from headwise.watching.sites import find_sites

PARTS = ("parameters", "attributes", "configs", "biased", "emptied", "kept")
EMPTY: dict[str, Any] = {"format": 1} | {part: {} for part in PARTS}
"""The config block of an uncut model."""


@dataclass(frozen=True)
class Surgery:
    """The heads cut from a model, and how much the result differs from silencing them."""

    heads: tuple[HeadId, ...]
    difference: float | None
    """Largest difference in any output from silencing the heads; None without inputs."""
    parameters_before: int
    parameters_after: int
    kept: Mapping[str, tuple[int, ...]]
    """Heads that each layer still has, numbered as in the uncut model."""


@dataclass(frozen=True)
class LayerCut:
    """The heads that one layer keeps, and the slices that keep them."""

    layer: AttentionLayer
    heads: KeptHeads
    slices: list[Slice]


def cut(
    model: nn.Module | LoadedModel,
    heads: str | HeadId | Iterable[str | HeadId],
    *,
    inputs: Mapping[str, Tensor] | None = None,
) -> Surgery:
    """Remove heads from the model in place; with `inputs`, check that this equals silencing them.

    `heads` use the model's current numbers; the result's `kept` and `model.config.headwise` use the
    uncut model's. With `inputs`, the model runs twice: with the heads silenced, and with them
    removed. If the outputs differ by more than rounding, restores the model and raises ModelError.

    headwise.cut(model, "L0H1 L2H3", inputs=tokens).difference
    """
    model, chosen = as_module(model), parse_heads(heads)
    cuts = plan_slices(model, chosen)
    before, difference = count_parameters(model), None
    if not cuts:
        return Surgery(chosen, None, before, before, _kept_heads(model))
    layers = [layer_cut.layer for layer_cut in cuts]
    with nullcontext() if inputs is None else in_full_precision(model, inputs) as full_inputs:
        expected = {}
        if full_inputs is not None:
            with silence(model, chosen):
                expected = layer_outputs(model, layers, full_inputs)
        with _restore_on_error(model, cuts):
            _apply_slices(model, cuts)
            if full_inputs is not None:
                actual = layer_outputs(model, layers, full_inputs)
                problem = (
                    f"{type(model).__name__} was not cut, because the result would differ from "
                    "silencing the heads"
                )
                difference = check_equivalence(model, actual, expected, problem)
    return Surgery(chosen, difference, before, count_parameters(model), _kept_heads(model))


def head_counts(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Number of query heads and number of KV heads in each layer, from the weights' shapes."""
    return {
        name: (layer.num_heads, layer.num_kv_heads)
        for layer in find_layers(model)
        for name in layer.names
    }


def count_parameters(model: nn.Module) -> int:
    """Number of parameters, including frozen ones."""
    return sum(parameter.numel() for parameter in model.parameters())


def plan_slices(model: nn.Module, heads: Iterable[HeadId]) -> list[LayerCut]:
    """A `LayerCut` for every layer that loses a head. Raises if these heads cannot be cut."""
    heads = tuple(heads)
    check_layers(heads, find_sites(model))
    cuts = []
    for layer in find_layers(model):
        lost = _lost_heads(layer, heads)
        if not lost:
            continue
        remaining = tuple(head for head in range(layer.num_heads) if head not in lost)
        kept = KeptHeads(layer.num_heads, layer.num_kv_heads, remaining)
        sizes = Counter(head // kept.group for head in remaining).values()
        if len(set(sizes)) > 1:
            raise OptionError(
                f"{layer.names[0]} has {kept.num_heads} heads in groups of {kept.group} that share "
                f"keys and values, but this cut would leave groups of {sorted(sizes)}: cut whole "
                "groups, or the same number of heads in every group"
            )
        cuts.append(LayerCut(layer, kept, kept_slices(layer, kept)))
    return cuts


def _lost_heads(layer: AttentionLayer, heads: Iterable[HeadId]) -> set[int]:
    """Heads that a module loses. Raises if one is unknown, or if layers that share it differ."""
    by_name = {name: set[int]() for name in layer.names}
    for head in heads:
        if head.layer_name in by_name:
            check_head(head, {head.layer_name: layer.num_heads})
            by_name[head.layer_name].add(head.head)
    lost = by_name[layer.names[0]]
    if any(others != lost for others in by_name.values()):
        raise OptionError(
            f"{' and '.join(layer.names)} share one module, so a cut removes a head from all of "
            "them: cut the same heads in each"
        )
    return lost


def _apply_slices(model: Any, cuts: list[LayerCut]) -> None:
    base = cuts[0].layer.base
    block = _describe_cut(model, cuts)
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
    model.config.headwise = block


def _describe_cut(model: Any, cuts: list[LayerCut]) -> dict[str, Any]:
    """The model's config block after these cuts, without the new shapes of the parameters."""
    block = copy.deepcopy(getattr(model.config, "headwise", None) or EMPTY)
    for layer_cut in cuts:
        layer, heads, path = layer_cut.layer, layer_cut.heads, layer_cut.layer.path
        before = block["kept"].get(layer.names[0], range(heads.num_heads))
        kept = [before[head] for head in heads.kept]  # numbers in the uncut model
        block["kept"] |= dict.fromkeys(layer.names, kept)
        for part in layer_cut.slices:
            if part.attribute:
                owner = block["attributes"].setdefault(part.path.rpartition(".")[0], {})
                owner[part.attribute] = len(part.kept)
        attributes = block["attributes"].setdefault(path, {})
        attributes |= count_attributes(layer.module, heads) | size_attributes(layer, heads)
        if layer.family.reads_config:
            block["configs"][path] = count_attributes(layer.module.config, heads)
        bias = {}
        if layer.family.bias is not None:
            total = block["biased"].get(path, {"total": heads.num_heads})["total"]
            bias = asdict(layer.family.bias) | {"total": total, "heads": kept}
        block["biased"].pop(path, None)
        if not kept:
            block["emptied"][path] = _empty_layer(layer, bias)
        elif bias:
            block["biased"][path] = bias
    return block


def _empty_layer(layer: AttentionLayer, bias: dict[str, Any]) -> dict[str, Any]:
    """Settings from which `exported_modeling` computes a module without heads."""
    family = layer.family
    inside = family.output.replace("/", ".") if layer.has_output_inside else None
    optional = {
        "after": list(family.after) or None,
        "norm": family.norm or None,
        "residual": family.residual,
        "passes": bias if bias and bias["is_passed_on"] else None,
    }
    known = {name: value for name, value in optional.items() if value is not None}
    return {"projection": inside, **known}


def _kept_heads(model: Any) -> dict[str, tuple[int, ...]]:
    cut_layers = (getattr(model.config, "headwise", None) or EMPTY)["kept"]
    return {
        name: tuple(cut_layers.get(name, range(num_heads)))
        for name, (num_heads, _) in head_counts(model).items()
    }


@contextmanager
def _restore_on_error(model: Any, cuts: list[LayerCut]) -> Iterator[None]:
    """Restore the model if the block raises. The old parameters stay in memory until then."""
    paths = {layer_cut.layer.path for layer_cut in cuts}
    paths |= {part.path.rpartition(".")[0] for layer_cut in cuts for part in layer_cut.slices}
    modules = [cuts[0].layer.base.get_submodule(path) for path in paths]
    copied = ("_parameters", "_buffers")  # replacing a parameter changes these dictionaries
    states = [
        {name: dict(value) if name in copied else value for name, value in vars(module).items()}
        for module in modules
    ]
    config = dict(vars(model.config))
    try:
        yield
    except BaseException:
        for module, state in zip(modules, states, strict=True):
            vars(module).clear()
            vars(module).update(state)
        vars(model.config).clear()
        vars(model.config).update(config)
        raise
