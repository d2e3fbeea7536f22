"""Find layers: runs the experiments that tell which layers of a model heads can be cut from.

In: a model, and inputs for it or None. Out: an `AttentionLayer` for every attention module that can
be cut, and the reason for every other one. Modules of the same structure share their facts, so a
model with many equal layers is examined once, and copies of it not at all.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headwise.errors import ModelError
from headwise.models.families import find_family
from headwise.pruning.surgery.attention_layers import AttentionLayer, HeadFacts
from headwise.pruning.surgery.structures import model_structure, module_structure
from headwise.pruning.surgery.trials import SHARED_BIAS, find_facts, passes_bias_on
from headwise.reading.batch import Inputs
from headwise.watching.attention_copy import (
    AttentionCopy,
    RecordedCalls,
    copy_attention,
    record_calls,
)
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.discovery import (
    HeadMap,
    Inseparable,
    TooShort,
    find_reader,
    locate_heads,
    quantised_part,
)
from headwise.watching.interface import CallObserver, Entry, observe_routed
from headwise.watching.module_paths import (
    common_ancestor,
    is_inside,
    join_path,
    path_and_parents,
    path_inside,
)
from headwise.watching.routing import route_attention
from headwise.watching.sample_inputs import sample_inputs
from headwise.watching.sites import Site, find_sites

LEVELS = 2
"""How many modules around an attention module are searched for its output projection."""
MOST_REMEMBERED = 1000


@dataclass(frozen=True)
class FoundLayers:
    """A model's attention layers: those that heads can be cut from, and why not from others."""

    layers: tuple[AttentionLayer, ...]
    refused: Mapping[str, str]
    """A sentence for every layer that heads cannot be cut from, by its name."""

    def check(self, names: Iterable[str]) -> None:
        """Raise ModelError if heads cannot be cut from one of these layers."""
        for name in names:
            if name in self.refused:
                raise ModelError(self.refused[name])


@dataclass(frozen=True)
class _Examined:
    """An attention module, and the layers that it serves."""

    sites: tuple[Site, ...]
    path: str
    model: nn.Module
    base: nn.Module

    @property
    def module(self) -> nn.Module:
        return self.sites[0].module

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(site.layer_name for site in self.sites)

    def unit_paths(self) -> list[str]:
        """Paths of the module and of the modules around it."""
        return list(islice(path_and_parents(self.path), LEVELS + 1))

    def refusal(self, reason: str) -> str:
        """The sentence that says why heads cannot be cut from this module."""
        where = f"{type(self.module).__name__} ({self.sites[0].name})"
        return f"heads of {type(self.model).__name__} cannot be cut: {where}: {reason}"


_FACTS: dict[Any, tuple[int, HeadFacts] | str] = {}
"""For each structure, how far above the module its unit is, and the facts; or a reason."""


_SHARED_KEYS: dict[Any, dict[str, str]] = {}
"""For each structure of a whole model, layers with the same keys as another layer, by name."""


def find_layers(model: nn.Module, inputs: Inputs | None = None) -> FoundLayers:
    """Every attention layer, in model order. Raises ModelError if heads cannot be cut from any."""
    found = examine_layers(model, inputs)
    if not found.layers:
        raise ModelError(next(iter(found.refused.values())))
    return found


def examine_layers(model: nn.Module, inputs: Inputs | None = None) -> FoundLayers:
    """Every attention layer, in model order, even if heads cannot be cut from any.

    A model of a new structure runs once: on `inputs`, or on a small input made for it.
    """
    base: Any = getattr(model, "base_model", model)
    if not hasattr(model, "config"):
        find_sites(model)
        raise ModelError(
            f"heads of {type(model).__name__} cannot be cut: it has no config, which would "
            "describe the cut"
        )
    if len(_FACTS) > MOST_REMEMBERED:
        _FACTS.clear()
        _SHARED_KEYS.clear()
    examined, refused = _list_modules(model, base)
    unknown = [one for one in examined if not _is_empty(one) and _signature(one) not in _FACTS]
    key = model_structure(model, tuple(name for one in examined for name in one.names))
    if unknown or key not in _SHARED_KEYS:
        missed, shared = _examine(model, base, unknown, inputs)
        if any(base.get_submodule(one.path) is not one.module for one in examined):
            return examine_layers(model, inputs)  # BigBird-Pegasus replaces modules on short texts
        refused |= missed
        if shared is not None:
            _SHARED_KEYS.setdefault(key, shared)
    pairs = _SHARED_KEYS.get(key, {})
    for one in examined:
        partners = [pairs[name] for name in one.names if name in pairs]
        if partners:
            reason = f"it shares its keys and values with {partners[0]}"
            refused |= dict.fromkeys(one.names, one.refusal(reason))
    layers = []
    for one in examined:
        if any(name in refused for name in one.names):
            continue
        facts = _empty_facts(one) if _is_empty(one) else _FACTS[_signature(one)]
        if isinstance(facts, str):
            refused |= dict.fromkeys(one.names, one.refusal(facts))
            continue
        unit = one.unit_paths()[facts[0]]
        layers.append(AttentionLayer(one.names, base, unit, facts[1]))
    return FoundLayers(tuple(layers), refused)


def remember_facts(layer: AttentionLayer, facts: HeadFacts) -> None:
    """Store the facts of a layer that was cut, so that it need not be examined again."""
    levels = len(facts.module.split(".")) if facts.module else 0
    _FACTS[module_structure(layer.base, layer.path)] = levels, facts


def _list_modules(model: nn.Module, base: nn.Module) -> tuple[list[_Examined], dict[str, str]]:
    paths = {id(module): path for path, module in base.named_modules()}
    sites_by_module: dict[int, list[Site]] = {}
    for site in find_sites(model):
        sites_by_module.setdefault(id(site.module), []).append(site)
    examined, refused = [], dict[str, str]()
    for key, sites in sites_by_module.items():
        one = _Examined(tuple(sites), paths.get(key, ""), model, base)
        family = find_family(one.module)
        if key not in paths:
            reason = f"it is outside {type(base).__name__}, the only part to cut heads from"
        elif family is not None and family.refusal:
            reason = family.refusal
        else:
            examined.append(one)
            continue
        refused |= dict.fromkeys(one.names, one.refusal(reason))
    return examined, refused


def _is_empty(one: _Examined) -> bool:
    block = getattr(getattr(one.model, "config", None), "headwise", None) or {}
    return one.path in block.get("emptied", {})


def _empty_facts(one: _Examined) -> tuple[int, HeadFacts]:
    output, units = _output_path(one) or one.path, one.unit_paths()
    ancestor = common_ancestor(one.path, output)
    level = units.index(ancestor) if ancestor in units else len(units) - 1
    module, projection = (path_inside(path, units[level]) for path in (one.path, output))
    return level, HeadFacts(HeadMap(0, 0, ()), module, projection, attributes={}, configs={})


def _output_path(one: _Examined) -> str | None:
    projection = one.sites[0].output_projection
    paths = (path for path, module in one.base.named_modules() if module is projection)
    return next(paths, None)


def _signature(one: _Examined) -> Any:
    return module_structure(one.base, one.path)


def _examine(
    model: nn.Module, base: nn.Module, unknown: list[_Examined], inputs: Inputs | None
) -> tuple[dict[str, str], dict[str, str] | None]:
    """Find the facts of modules of unknown structure, one of each structure.

    Returns a sentence for every layer that the inputs did not reach, and for every layer that has
    the same keys as another one, the name of that layer; None if the model did not run.
    """
    groups: dict[Any, list[_Examined]] = {}
    for one in unknown:
        groups.setdefault(_signature(one), []).append(one)
    missed: dict[str, str] = {}
    if any(parameter.is_meta for parameter in model.parameters()):
        reason = "its weights are on the meta device: load them before you cut"
        return {name: one.refusal(reason) for one in unknown for name in one.names}, None
    sites, keys = find_sites(model), dict[str, Tensor]()
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        route_attention(model, sites),
    ):
        with observe_routed(list(_keep_keys(sites, keys))):
            calls, problem = _record(model, base, groups, inputs)
        for signature, members in groups.items():
            reached = [one for one in members if calls.of(one.path) is not None]
            if not reached:
                for one in members:
                    missed |= dict.fromkeys(one.names, one.refusal(problem))
                continue
            try:
                _FACTS[signature] = _find(reached[0], calls)
            except TooShort as reason:
                for one in members:
                    missed |= dict.fromkeys(one.names, one.refusal(str(reason)))
            except Inseparable as reason:
                _FACTS[signature] = str(reason)
    return missed, _equal_keys(keys) if calls.has_run else None


def _keep_keys(sites: Iterable[Site], keys: dict[str, Tensor]) -> Iterator[Entry]:
    """Observers that keep the keys of each layer's first call."""

    def keep(call: Call) -> None:
        if isinstance(call, AttentionCall):
            keys.setdefault(call.site.layer_name, call.keys.detach())

    for site in sites:
        if site.is_routed and site.layer_loop is None:
            yield replace(site, output_projection=None), CallObserver(each=keep)


def _equal_keys(keys: Mapping[str, Tensor]) -> dict[str, str]:
    """Layers with the same keys as another layer, and the name of that layer."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in keys.items():
        if tensor.any():
            groups.setdefault((tensor.shape, tensor.double().sum().item()), []).append(name)
    pairs = [(first, other) for names in groups.values() for first in names for other in names]
    return {
        first: other
        for first, other in pairs
        if first != other and torch.equal(keys[first], keys[other])
    }


def _record(
    model: nn.Module,
    base: nn.Module,
    groups: Mapping[Any, list[_Examined]],
    inputs: Inputs | None,
) -> tuple[RecordedCalls, str]:
    """The calls of the modules, and the reason why some of them did not run.

    Without inputs, the model runs on small ones made for it; if these do not reach a module, so do
    the smaller models that contain it.
    """
    everyone = [one for members in groups.values() for one in members]
    calls = RecordedCalls()
    paths = {path for one in everyone for path in one.unit_paths()}
    problem = "the inputs do not reach it"
    if inputs is not None:
        record_calls(model, base, paths, inputs, calls)
    parts = _models_around(model, base, everyone)
    samples = ((part, sample) for part in parts for sample in sample_inputs(part))
    for part, sample in samples:
        is_complete = all(any(calls.of(one.path) for one in same) for same in groups.values())
        if calls.has_run and is_complete:
            break
        try:
            record_calls(part, base, paths, sample, calls)
        except Exception as error:  # a foreign forward may raise anything
            problem = f"{type(part).__name__} does not run on it: {error}"
    return calls, f"no input could be made from the config ({problem}): pass inputs="


def _models_around(model: nn.Module, base: nn.Module, everyone: list[_Examined]) -> list[nn.Module]:
    """The whole model, then every smaller model of transformers that contains attention."""
    parts = {
        path: base.get_submodule(path) for one in everyone for path in path_and_parents(one.path)
    }
    models = [part for part in parts.values() if isinstance(part, PreTrainedModel)]
    return list(dict.fromkeys([model, *models]))


def _find(one: _Examined, calls: RecordedCalls) -> tuple[int, HeadFacts]:
    """The facts of a module, and how far above it its unit is. Raises Inseparable."""
    layer, level = _copy(one, calls)
    try:
        shared = (SHARED_BIAS,) if passes_bias_on(one.module) else ()
        heads = locate_heads(layer, untouched=shared)
        _check_parts(layer, heads)
        return level, find_facts(layer, heads)
    except Inseparable:
        raise
    except Exception as error:  # a foreign forward may raise anything outside its model
        raise Inseparable(
            f"an experiment on a copy of it failed: {type(error).__name__}: {error}"
        ) from error


def _copy(one: _Examined, calls: RecordedCalls) -> tuple[AttentionCopy, int]:
    """A copy of the smallest unit that contains the module and its output projection."""
    site, output = one.sites[0], _output_path(one)
    if output is None:
        problem = quantised_part(one.module)
        if problem or not site.is_routed:
            raise Inseparable(problem or "its output projection is unknown")
    for level, unit in enumerate(one.unit_paths()):
        arguments = calls.of(unit)
        if arguments is None:
            continue
        path = output
        if path is None:
            reader = find_reader(
                copy_attention(one.base, unit, one.path, one.path, site, arguments)
            )
            path = None if reader is None else join_path(unit, reader)
        if path is not None and is_inside(path, unit):
            return copy_attention(one.base, unit, one.path, path, site, arguments), level
    raise Inseparable("no linear layer around it reads the output of its heads")


def _check_parts(layer: AttentionCopy, heads: HeadMap) -> None:
    for axis in heads.axes:
        owner, _, name = axis.path.rpartition(".")
        tensor: Tensor | None = getattr(layer.unit.get_submodule(owner), name, None)
        if not isinstance(tensor, nn.Parameter):
            kind = type(layer.unit.get_submodule(owner)).__name__
            raise Inseparable(f"{owner} is a {kind}, whose {name} cannot be sliced")
