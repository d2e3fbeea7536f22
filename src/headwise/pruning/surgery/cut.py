"""Cut: remove heads from a model's weights; nothing else about the model changes.

In: a model and the heads to cut. Out: the same model with smaller projections, whose outputs equal
those with the heads silenced, and a block in its config that describes the cut. From that block,
`models/exported_modeling.py` gives a new model the same shapes. Every check that does not run the
model comes before the first change.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadId, abbreviate, check_head, parse_heads
from headwise.models.load_errors import one_sentence
from headwise.models.loaded import LoadedModel, as_module
from headwise.pruning.surgery.attention_layers import AttentionLayer, KeptHeads
from headwise.pruning.surgery.find_layers import find_layers, remember_facts
from headwise.pruning.surgery.layer_outputs import layer_outputs
from headwise.pruning.surgery.shrink import EMPTY, LayerCut, shrink
from headwise.reading.batch import Inputs
from headwise.watching.equivalence import check_equivalence, in_full_precision
from headwise.watching.gates import check_layers, silence
from headwise.watching.routing import route_attention
from headwise.watching.sites import find_sites


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
    cuts = plan_slices(model, chosen, inputs)
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
                actual = _run_cut(model, layers, full_inputs)
                problem = (
                    f"{type(model).__name__} was not cut, because the result would differ from "
                    "silencing the heads"
                )
                difference = check_equivalence(model, actual, expected, problem)
    return Surgery(chosen, difference, before, count_parameters(model), _kept_heads(model))


def _run_cut(
    model: nn.Module, layers: Sequence[AttentionLayer], inputs: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Outputs of the cut model. Raises ModelError if it does not run."""
    try:
        with route_attention(model, find_sites(model)):  # as silencing does
            return layer_outputs(model, layers, inputs)
    except (RuntimeError, ValueError, IndexError) as err:
        raise ModelError(
            f"{type(model).__name__} was not cut, because it does not run without these heads: "
            f"{one_sentence(err)}"
        ) from err


def head_counts(model: nn.Module, inputs: Inputs | None = None) -> dict[str, tuple[int, int]]:
    """Number of query heads and number of KV heads in each layer that can be cut."""
    return {
        name: (layer.num_heads, layer.num_kv_heads)
        for layer in find_layers(model, inputs).layers
        for name in layer.names
    }


def count_parameters(model: nn.Module) -> int:
    """Number of parameters, including frozen ones."""
    return sum(parameter.numel() for parameter in model.parameters())


def plan_slices(
    model: nn.Module, heads: Iterable[HeadId], inputs: Inputs | None = None
) -> list[LayerCut]:
    """A `LayerCut` for every layer that loses a head. Raises if these heads cannot be cut."""
    heads = tuple(heads)
    check_layers(heads, find_sites(model))
    found = find_layers(model, inputs)
    found.check(head.layer_name for head in heads)
    cuts = []
    for layer in found.layers:
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
        if not remaining and layer.facts.ending is None:
            raise OptionError(
                f"{layer.names[0]} cannot lose all of its heads, because "
                f"{type(layer.module).__name__} does more than attend: keep at least one"
            )
        cuts.append(LayerCut.of(layer, remaining))
    return cuts


def _lost_heads(layer: AttentionLayer, heads: Iterable[HeadId]) -> set[int]:
    """Heads that a module loses. Raises if one is unknown, or if layers that share it differ."""
    by_name = {name: set[int]() for name in layer.names}
    for head in heads:
        if head.layer_name in by_name:
            check_head(head, {head.layer_name: layer.num_heads})
            by_name[head.layer_name].add(head.head)
    lost = by_name[layer.names[0]]
    every = set[int]().union(*by_name.values())
    missing = [f"{name}H{head}" for name in by_name for head in sorted(every - by_name[name])]
    if missing:
        raise OptionError(
            f"{abbreviate(list(layer.names))} share one module, so a cut removes a head from all "
            f"of them: also cut {abbreviate(missing)}"
        )
    return lost


def _apply_slices(model: Any, cuts: list[LayerCut]) -> None:
    block = copy.deepcopy(getattr(model.config, "headwise", None) or EMPTY)
    shrink(cuts[0].layer.base, cuts, block)
    model.config.headwise = block
    for layer_cut in cuts:
        remember_facts(layer_cut.layer, layer_cut.layer.facts.after(layer_cut.heads.kept))


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
