"""Refit: adjust output projections so that the remaining heads make up for the cut ones.

In: an uncut model, the cut one, and examples to fit on and to choose the ridge on. Out: the cut
model with changed output projections and a `LayerFit` per projection. Layers are fitted in order,
each on the outputs of the layers refitted before it, in closed form. The target is the error of the
residual stream after attention if the block adds attention's output to its input unchanged, else
the error of attention's output. The variant `wide` also fits the last linear layer of feed-forward
parts. The sums are in `normal_equations.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.objectives.evaluation import count_heads
from headwise.objectives.objective import Sample
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.partial_passes import Block, find_blocks, run_block
from headwise.pruning.refit.normal_equations import Correction, NormalEquations
from headwise.pruning.refit.state_cache import StateCache
from headwise.pruning.stages import PruneStage
from headwise.watching.hooks import ModuleCall, record
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.sites import Site, find_sites, output_weight

Variant = Literal["full", "wide", "bias"]
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridges tried in each layer; the best one on examples that were not fitted on is used."""


@dataclass(frozen=True)
class LayerFit:
    """Result of refitting one linear layer."""

    layer: str
    ridge: float | None
    """None if no correction helped on examples that were not fitted on."""
    before: float
    """Mean squared error on these examples without a correction."""
    after: float
    """Mean squared error on these examples with the chosen correction."""
    is_residual: bool
    """Whether the target includes errors of the layers below."""
    part: str = "attention"
    """`attention` or `feed-forward`."""


def refit(
    cut: nn.Module,
    uncut: nn.Module,
    fitting: Sequence[Sample],
    choosing: Sequence[Sample],
    *,
    variant: Variant = "full",
    progress: Progress = no_progress,
) -> tuple[LayerFit, ...]:
    """Refit every output projection of the cut model in place.

    Skips layers that have no heads in the uncut model either.
    """
    check_variant(cut, variant)
    pair = ModelPair(cut, uncut, [*fitting, *choosing], len(fitting))
    fits = []
    for index in range(len(pair.blocks)):
        progress(PruneStage.REFIT, index, len(pair.blocks))
        fits += [pair.refit_projection(index, one, variant) for one in pair.attention(index)]
        if variant == "wide":
            fits += [pair.refit_projection(index, one, variant) for one in pair.feed_forward(index)]
        pair.advance(index)
    return tuple(fits)


def check_variant(model: nn.Module, variant: str) -> None:
    """Raise OptionError if the variant has nothing to refit in this model."""
    sites = find_sites(model)
    if variant == "bias" and all(_bias(projection_at(site)) is None for site in sites):
        raise OptionError(
            f"refit is 'bias': {type(model).__name__}'s output projections have no bias; use full",
            option="refit",
        )


@dataclass(frozen=True, eq=False)
class FittedProjection:
    """One linear layer, `projection`, in both models, and the module with its residual stream.

    The projection's output is added to the input of `stream`.
    """

    layer: str
    part: str
    stack: str
    is_residual: bool
    """Whether the model continues with the plain sum of stream and output."""
    own: Mapping[str, nn.Module]
    """`stream` and `projection` of the cut model."""
    uncut: Mapping[str, nn.Module]
    """`stream` and `projection` of the uncut model."""


class ModelPair:
    """A cut and an uncut model that read the same examples, one block at a time."""

    def __init__(
        self, cut: nn.Module, uncut: nn.Module, samples: Sequence[Sample], num_fitting: int
    ) -> None:
        """Start before the first block; the first `num_fitting` samples are fitted on."""
        self.cut, self.uncut, self.samples, self.num_fitting = cut, uncut, samples, num_fitting
        blocks = {block.name: block for block in find_blocks(uncut, find_sites(uncut))}
        modules = {name: block.module for name, block in blocks.items()}
        with torch.no_grad(), record(modules) as calls:  # text does not run a vision model's blocks
            forward_batch(uncut, samples[0].inputs)
        used = {call.name for call in calls}
        self.uncut_blocks = [block for name, block in blocks.items() if name in used]
        own_blocks = find_blocks(cut, find_sites(cut))
        self.blocks = [block for block in own_blocks if block.name in used]
        if not self.blocks:
            raise OptionError(
                f"{type(cut).__name__} cannot be refitted: its layers share their weights"
            )
        self.states: dict[str, StateCache] = {}
        self.uncut_states: dict[str, StateCache] = {}
        self.counts = count_heads(uncut, samples[0].inputs)

    def run(self, index: int, number: int) -> Any:
        """Output of the cut model's block `index` for sample `number`."""
        return self._run(self.cut, self.blocks, self.states, index, number)

    def run_uncut(self, index: int, number: int) -> Any:
        """Output of the uncut model's block `index` for sample `number`."""
        return self._run(self.uncut, self.uncut_blocks, self.uncut_states, index, number)

    def _run(
        self,
        model: nn.Module,
        blocks: Sequence[Block],
        caches: Mapping[str, StateCache],
        index: int,
        number: int,
    ) -> Any:
        states = {stack: cache[number] for stack, cache in caches.items()}
        return run_block(model, blocks, index, self.samples[number].inputs, states)

    def advance(self, index: int) -> None:
        """Store the outputs of block `index` of both models, the inputs of the next block."""
        stack = self.blocks[index].stack
        for caches, run in ((self.states, self.run), (self.uncut_states, self.run_uncut)):
            for number in range(len(self.samples)):
                state = run(index, number)
                caches.setdefault(stack, StateCache(len(self.samples)))[number] = state

    def attention(self, index: int) -> list[FittedProjection]:
        """Output projections of a block's attention, except in layers that never had a head."""
        block, uncut = self.blocks[index], self.uncut_blocks[index]
        return [
            FittedProjection(
                layer=site.layer_name,
                part="attention",
                stack=site.stack,
                is_residual=len(block.sites) == 1 and self._adds_to_input(index, uncut_site),
                own={"stream": block.module, "projection": projection_at(site)},
                uncut={"stream": uncut.module, "projection": projection_at(uncut_site)},
            )
            for site, uncut_site in zip(block.sites, uncut.sites, strict=True)
            if site.layer_name in self.counts
        ]

    def _adds_to_input(self, index: int, site: Site) -> bool:
        """Whether the block adds attention's output to its own input without changing either.

        Then some module of the uncut block reads that sum.
        """
        block = self.uncut_blocks[index].module
        with record({"stream": block, "projection": projection_at(site)}) as calls:
            modules = _record_block(block, lambda: self.run_uncut(index, 0))
        seen = {call.name: call for call in calls}
        total = seen["stream"].input + seen["projection"].output
        return any(_is_close(total, state) for state in _inputs(modules).values())

    def feed_forward(self, index: int) -> list[FittedProjection]:
        """The last linear layer of a block's feed-forward part, if one is found."""
        block, uncut = self.blocks[index], self.uncut_blocks[index]
        attention = [site.module for site in uncut.sites]
        attention += [projection_at(site) for site in uncut.sites]
        found = find_feed_forward(
            uncut.module, lambda: self.run_uncut(index, 0), without=tuple(attention)
        )
        if found is None:
            return []
        own, goal = (
            {
                "stream": module.get_submodule(found.stream),
                "projection": module.get_submodule(found.projection),
            }
            for module in (block.module, uncut.module)
        )
        first = block.sites[0]
        return [FittedProjection(first.layer_name, "feed-forward", first.stack, True, own, goal)]

    def refit_projection(self, index: int, fitted: FittedProjection, variant: Variant) -> LayerFit:
        """Fit one projection, and change it if that helps on examples that were not fitted on."""
        weight, bias = output_weight(fitted.own["projection"]), _bias(fitted.own["projection"])
        fit, held_out = (NormalEquations(*weight.shape, has_bias=bias is not None) for _ in "ab")
        for number, sample in enumerate(self.samples):
            with record(fitted.uncut) as calls:
                self.run_uncut(index, number)
            goal = {call.name: call for call in calls}
            with record(fitted.own) as calls:
                self.run(index, number)
            own = {call.name: call for call in calls}
            wanted: Tensor = goal["projection"].output
            if len(weight):
                concat, output = own["projection"].input, own["projection"].output
            else:  # a layer without heads outputs the bias
                output = torch.zeros_like(wanted)
                concat = output[..., :0]
                output = output if bias is None else output + bias.detach()
            error = wanted - output
            if fitted.is_residual:
                error = error + (goal["stream"].input - own["stream"].input)
            rows = real_queries(self.cut, sample.inputs, fitted.stack, error)
            (fit if number < self.num_fitting else held_out).add(concat[rows], error[rows])
        ridge, best = best_correction(fit, held_out, variant)
        if ridge is not None:
            with torch.no_grad():
                weight.add_(best.weight.to(weight))
                if bias is not None:
                    bias.add_(best.bias.to(bias))
        before, after = held_out.error_left(held_out.no_correction()), held_out.error_left(best)
        return LayerFit(fitted.layer, ridge, before, after, fitted.is_residual, fitted.part)


def projection_at(site: Site) -> nn.Module:
    """A site's output projection; ModelError if it is unknown."""
    if site.output_projection is None:
        raise ModelError(f"{site.name} cannot be refitted: its output projection is unknown")
    return site.output_projection


def _bias(projection: nn.Module) -> Tensor | None:
    bias = getattr(projection, "bias", None)
    return bias if isinstance(bias, Tensor) else None


def best_correction(
    fitted: NormalEquations, held_out: NormalEquations, variant: Variant
) -> tuple[float | None, Correction]:
    """The correction with the smallest error on held-out rows, and its ridge.

    The ridge is None, and the correction zero, if no correction helps.
    """
    unchanged = held_out.no_correction()
    if not fitted.rows:
        return None, unchanged
    if variant == "bias":
        corrections = {0.0: fitted.solve_bias()}
    else:
        corrections = {ridge: fitted.solve(ridge) for ridge in RIDGES}
    errors = {ridge: held_out.error_left(one) for ridge, one in corrections.items()}
    ridge = min(errors, key=lambda one: errors[one])
    if not errors[ridge] < held_out.error_left(unchanged):  # so that NaN does not count as better
        return None, unchanged
    return ridge, corrections[ridge]


@dataclass(frozen=True)
class FeedForward:
    """Paths of two modules within a block."""

    projection: str
    """The last linear layer of the feed-forward part."""
    stream: str
    """The module whose input the projection's output is added to."""


def find_feed_forward(
    block: nn.Module, run: Callable[[], Any], *, without: tuple[nn.Module, ...] = ()
) -> FeedForward | None:
    """The feed-forward part of a block, recognized while `run` runs the block; None if not found.

    Ignores the modules in `without` and everything inside them.
    """
    ignored = {id(part) for module in without for part in module.modules()}
    calls = _record_block(block, run)
    inputs = _inputs(calls)
    outputs = {name: call.output for name, call in calls.items() if _is_tensor(call.output)}
    sums = [*inputs.values(), *([outputs[""]] if "" in outputs else [])]
    for name, module in reversed(list(block.named_modules())):
        is_linear = type(module).__name__ in ("Linear", "Conv1D")  # GPT-2 has transformers' Conv1D
        if not is_linear or id(module) in ignored or name not in outputs:
            continue
        for stream, state in inputs.items():
            if state.shape == outputs[name].shape and any(
                _is_close(state + outputs[name], total) for total in sums
            ):
                return FeedForward(name, stream)
    return None


def _record_block(block: nn.Module, run: Callable[[], Any]) -> dict[str, ModuleCall]:
    """The first call of every module of a block, by path, outer modules first."""
    modules = dict(block.named_modules())
    with record(modules) as calls:
        run()
    first = {call.name: call for call in reversed(calls)}
    return {name: first[name] for name in modules if name in first}


def _inputs(calls: Mapping[str, ModuleCall]) -> dict[str, Tensor]:
    """First positional argument of each call, if it is a tensor."""
    return {
        name: call.args[0].detach()
        for name, call in calls.items()
        if call.args and _is_tensor(call.args[0])
    }


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_close(total: Tensor, state: Tensor) -> bool:
    """Whether two tensors are equal except for rounding."""
    if total.shape != state.shape:
        return False
    bound = 16 * torch.finfo(total.dtype).eps * float(total.abs().max())
    return float((total - state).abs().max()) <= bound
