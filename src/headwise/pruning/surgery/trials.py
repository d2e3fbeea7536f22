"""Trials: which attributes a layer's forward reads, found by cutting heads from copies of it.

In: a copy of an attention layer, and the numbers of each head. Out: `HeadFacts` with which a cut
copy computes the same as a copy with silent heads, or an Inseparable error with the reason.
"""

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headwise.models.exported_modeling import attend_with_part
from headwise.pruning.surgery.attention_layers import (
    AttentionLayer,
    Bias,
    HeadFacts,
)
from headwise.pruning.surgery.guesses import guess_settings
from headwise.pruning.surgery.shrink import EMPTY, LayerCut, shrink
from headwise.watching.attention_copy import AttentionCopy, CopyRun
from headwise.watching.discovery import (
    HeadMap,
    Inseparable,
    quantised_part,
)
from headwise.watching.module_paths import is_inside, join_path, path_inside

POSITION_BIAS, FIRST = "position_bias", "has_relative_attention_bias"
"""T5's argument for the bias, and its attribute that says whether a module computes it."""
SHARED_BIAS = "relative_attention_bias"
"""The parameter from which T5's first layer computes the bias of all layers."""
TOLERANCE = torch.finfo(torch.float32).eps ** 0.5
"""Largest difference that still counts as rounding, relative to the largest number: half of the
digits. A wrong cut mixes up random weights, so it changes the first digit."""


def find_facts(layer: AttentionCopy, heads: HeadMap) -> HeadFacts:
    """Facts that pass every trial. Raises Inseparable if there are none."""
    facts = HeadFacts(
        heads=heads,
        module=layer.path,
        output=layer.output,
        attributes={},
        configs={},
        biases=_find_biases(layer, heads),
    )
    trials = {kept: _silenced(layer, kept) for kept in _trial_cuts(heads)}
    problems: list[str] = []
    for attributes, configs in guess_settings(layer, heads):
        guess = replace(facts, attributes=attributes, configs=configs)
        problem = _first_problem(layer, guess, trials)
        if not problem:
            return _with_ending(layer, guess)
        problems.append(problem)
    reason = _norm_over_heads(layer, heads) or quantised_part(layer.module)
    raise Inseparable(reason or _shared_projection(layer, heads) or problems[0])


def _trial_cuts(heads: HeadMap) -> list[tuple[int, ...]]:
    """Heads to keep in each trial: without a whole group, and with fewer heads in every group."""
    group = heads.num_heads // heads.num_kv_heads
    cuts = []
    if heads.num_kv_heads > 1:
        cuts.append(tuple(head for head in range(heads.num_heads) if head // group != 1))
    if group > 1:
        cuts.append(tuple(head for head in range(heads.num_heads) if head % group != 1))
    return cuts


def _first_problem(
    layer: AttentionCopy, facts: HeadFacts, trials: Mapping[tuple[int, ...], tuple[Tensor, ...]]
) -> str:
    """The first difference between a cut copy and a silenced one; "" if there is none."""
    for kept, expected in trials.items():
        problem = _problem(layer, facts, kept, expected)
        if problem:
            return problem
    return ""


def _problem(
    layer: AttentionCopy, facts: HeadFacts, kept: tuple[int, ...], expected: tuple[Tensor, ...]
) -> str:
    trial = layer.again()
    block = _block_of(trial)
    try:
        shrink(trial.unit, [LayerCut.of(AttentionLayer(("",), trial.unit, "", facts), kept)], block)
        with torch.no_grad():
            actual = trial.run_plain()
    except Exception as error:  # a forward may raise anything if its sizes do not fit
        name = type(layer.module).__name__
        return f"{name} cannot run with fewer heads: {type(error).__name__}: {error}"
    return _difference(actual, expected)


def _block_of(layer: AttentionCopy) -> dict[str, Any]:
    """The block of a copy; a module that was cut before may receive biases for all of its heads."""
    block = copy.deepcopy(EMPTY)
    forward = vars(layer.module).get("forward")
    if isinstance(forward, partial) and forward.func is attend_with_part:
        parts = forward.args[1]
        block["biased"][layer.path], block["kept"][""] = parts, parts[0]["heads"]
    return block


def _difference(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> str:
    if len(actual) < 1 or actual[0].shape != expected[0].shape:
        return "without a head, its output has another shape"
    for one, other in zip(actual, expected, strict=False):
        if one.shape != other.shape:  # weights, which have fewer heads now
            continue
        scale = other.abs().nan_to_num(0, 0, 0).max().item() if other.numel() else 0.0
        if not torch.allclose(one, other, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
            gap = (one - other).abs().nan_to_num(0).max().item()
            return f"without a head, its output differs by {gap:.2g} from silencing the head"
    return ""


@torch.no_grad()
def _silenced(layer: AttentionCopy, kept: tuple[int, ...]) -> tuple[Tensor, ...]:
    """The outputs of a copy whose other heads are silent."""

    def silence_others(mixed: Tensor) -> Tensor:
        is_kept = torch.zeros(mixed.shape[1], dtype=torch.bool, device=mixed.device)
        is_kept[list(kept)] = True
        shape = (1, -1, *[1] * (mixed.dim() - 2))
        return torch.where(is_kept.view(shape), mixed, mixed.new_zeros(()))

    return layer.run(silence_others).outputs


def _find_biases(layer: AttentionCopy, heads: HeadMap) -> tuple[Bias, ...]:
    """Arguments of the module with numbers of each head, such as a bias on the scores."""
    names = list(inspect.signature(type(layer.module).forward).parameters)[1:]
    if passes_bias_on(layer.module):
        return (Bias(POSITION_BIAS, names.index(POSITION_BIAS), axis=1, is_passed_on=True),)
    return tuple(
        Bias(axis.path, place=names.index(axis.path), axis=axis.axis)
        for axis in heads.arguments
        if axis.path in names
    )


def passes_bias_on(module: nn.Module) -> bool:
    """Whether a stack's first module computes a bias for all heads of all layers, as in T5."""
    takes = inspect.signature(type(module).forward).parameters
    return hasattr(module, "compute_bias") and POSITION_BIAS in takes and hasattr(module, FIRST)


def _norm_over_heads(layer: AttentionCopy, heads: HeadMap) -> str:
    """The reason if a norm over the queries or keys of all heads ties the heads together."""
    divided = {axis.path for axis in heads.axes}
    lengths = {
        module.weight.shape[0]
        for path, module in layer.unit.named_modules()
        if isinstance(module, nn.Linear) and join_path(path, "weight") not in divided
    }
    for axis in heads.axes:
        owner, _, name = axis.path.rpartition(".")
        module: Any = layer.unit.get_submodule(owner)
        is_norm = "norm" in type(module).__name__.lower() and name == "weight"
        if is_norm and len(axis.owners) in lengths and module.weight.dim() == 1:
            return (
                f"its norms of queries and keys span all heads: {owner} mixes the heads, so each "
                "depends on all others"
            )
    return ""


def _shared_projection(layer: AttentionCopy, heads: HeadMap) -> str:
    """The reason if all heads depend on what one projection computes for each."""
    widths = {len(axis.owners) for axis in heads.axes}
    for path, module in layer.module.named_modules():
        name = join_path(layer.path, path, "weight")
        is_wide = isinstance(module, nn.Linear) and module.out_features in widths
        if is_wide and name in heads.shared:
            return f"every head depends on all outputs of {path}, so none can be cut alone"
    return ""


def _with_ending(layer: AttentionCopy, facts: HeadFacts) -> HeadFacts:
    """The facts with a description of the module without heads, if one passes the trial."""
    run = layer.run()
    ending = _describe_ending(layer, run)
    complete = replace(facts, ending=ending)
    problem = _problem(layer, complete, (), _silenced(layer, ()))
    return replace(facts, ending=None) if problem else complete


def _describe_ending(layer: AttentionCopy, run: CopyRun) -> dict[str, Any]:
    """How the module makes its output of what the projection returns."""
    names = list(inspect.signature(type(layer.module).forward).parameters)
    if not is_inside(layer.output, layer.path):
        return {"projection": None, "input": names[1]}
    projection = path_inside(layer.output, layer.path)
    ending: dict[str, Any] = {"projection": projection, "input": names[1]}
    result = run.result
    ending["returns"] = len(result) if isinstance(result, tuple | list) else 0
    first = result[0] if isinstance(result, tuple | list) else result
    (_, _, state), *others = run.after
    hidden = next(iter(run.arguments.values()))
    after = []
    for name, read, output in others:
        if _is_same(read, state):
            after.append(name)
        elif _is_same(read, state + hidden if state.shape == hidden.shape else state):
            ending["norm"] = name
        else:
            continue
        state = output
    if after:
        ending["after"] = after
    for place, name in enumerate(names[1:]):
        argument = run.arguments.get(name)
        if argument is not None and argument.shape == state.shape and not _is_same(first, state):
            if _is_same(first, state + argument):
                ending["residual"] = place
    return ending


def _is_same(first: Any, second: Tensor) -> bool:
    return (
        isinstance(first, Tensor)
        and first.shape == second.shape
        and bool(torch.allclose(first, second, rtol=TOLERANCE, atol=TOLERANCE))
    )
