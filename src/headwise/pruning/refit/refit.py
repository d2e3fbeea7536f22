"""Refit: adjust output projections so that the remaining heads make up for the cut ones.

In: an uncut model, the cut one, examples to fit on, and examples of other registers to choose the
ridge with. Out: the cut model with adjusted output projections, and a `LayerFit` per projection.
A strong ridge changes the weights little; the limit corrects only the bias. Each layer gets the
ridge whose worst register is best. Layers are fitted in order, each on the outputs of the layers
refitted before it. A fit reduces the error in the residual stream after attention if the block adds
attention's output unchanged to its input, otherwise the error in attention's output. The variant
`wide` also fits the last linear layer of each feed-forward part. `normal_equations.py` solves the
least-squares problems.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.objectives.evaluation import count_heads
from headwise.objectives.objective import Sample
from headwise.progress import Progress, no_progress
from headwise.pruning.refit.normal_equations import Correction, NormalEquations
from headwise.pruning.refit.state_cache import StateCache
from headwise.pruning.stages import PruneStage
from headwise.pruning.surgery.output_biases import add_output_biases
from headwise.watching.hooks import ModuleCall, record
from headwise.watching.partial_passes import Block, can_replay, find_blocks, run_block
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.sites import Site, output_weight

RIDGES = (None, 1000.0, 100.0, 10.0, 1.0, 0.1)
"""Ridges tried in each layer; None corrects only the bias."""


@dataclass(frozen=True)
class LayerFit:
    """Result of refitting one linear layer."""

    layer: str
    kind: str
    """The part that was corrected: `weights`, `bias` alone, or `nothing` if none helped in every
    register not used for fitting."""
    ridge: float | None
    """None if the weights were not corrected."""
    before: float
    """Mean squared error in the worst register not used for fitting, without a correction."""
    after: float
    """Mean squared error in that register with the chosen correction."""
    is_residual: bool
    """Whether the target includes errors from earlier layers."""
    part: str = "attention"
    """`attention` or `feed-forward`."""


def refit(
    cut: nn.Module,
    uncut: nn.Module,
    fitting: Sequence[Sample],
    choosing: Mapping[str, Sequence[Sample]],
    *,
    variant: str = "full",
    progress: Progress = no_progress,
) -> tuple[LayerFit, ...]:
    """Refit the cut model's output projections in place, except in layers that never had heads.

    `choosing` has examples by register, to choose each layer's ridge with. `variant` is full, wide
    or bias. Projections without a bias get one, unless all would be zero.
    """
    biases = add_output_biases(cut)
    pair = _ModelPair(cut, uncut, {"": fitting, **choosing})
    fits = []
    for index in range(len(pair.cut.blocks)):
        progress(PruneStage.REFIT, index, len(pair.cut.blocks))
        parts = pair.attention(index) + (pair.feed_forward(index) if variant == "wide" else [])
        fits += [pair.refit_projection(index, part, variant) for part in parts]
        pair.cut.advance(index)
        pair.uncut.advance(index)
    biases.remove_if_zero()
    return tuple(fits)


class _BlockRunner:
    """Runs a model on samples, one block at a time."""

    def __init__(
        self, model: nn.Module, blocks: Sequence[Block], samples: Sequence[Sample]
    ) -> None:
        self.model, self.blocks, self.samples = model, blocks, samples
        self.states: dict[str, StateCache] = {}

    def run(self, index: int, number: int) -> Any:
        """Output of block `index` for sample `number`."""
        states = {stack: cache[number] for stack, cache in self.states.items()}
        return run_block(self.model, self.blocks, index, self.samples[number].inputs, states)

    def record(
        self, index: int, number: int, modules: Mapping[str, nn.Module]
    ) -> dict[str, ModuleCall]:
        """The first call of each of `modules` while block `index` runs for sample `number`."""
        with record(modules) as calls:
            self.run(index, number)
        return {call.name: call for call in reversed(calls)}

    def advance(self, index: int) -> None:
        """Store the outputs of block `index`, which are the inputs to the next block."""
        cache = self.states.setdefault(self.blocks[index].stack, StateCache(len(self.samples)))
        for number in range(len(self.samples)):
            cache[number] = self.run(index, number)


@dataclass(frozen=True, eq=False)
class _FittedProjection:
    """A linear layer to fit, with its modules in the cut and in the uncut model.

    `projection` is the layer; `stream` is the module whose input the layer's output is added to.
    """

    site: Site
    part: str
    is_residual: bool
    """Whether the block adds the layer's output to the stream, with both unchanged."""
    cut: Mapping[str, nn.Module]
    uncut: Mapping[str, nn.Module]


def why_not_refitted(model: nn.Module) -> str:
    """The reason why blocks of the model cannot be run and fitted one by one, and what works."""
    reason = "need more than the output of the block below" if find_blocks(model) else "are shared"
    return (
        f"the layers of {type(model).__name__} {reason}, so they cannot be refitted one after the "
        "other; choose bias or none"
    )


class _ModelPair:
    """Runs a cut and an uncut model on the same samples, one block at a time."""

    def __init__(
        self, cut: nn.Module, uncut: nn.Module, samples_by_register: Mapping[str, Sequence[Sample]]
    ) -> None:
        """Start before the first block. The samples under "" are for fitting."""
        samples = [sample for part in samples_by_register.values() for sample in part]
        self.samples = samples
        self.registers = [name for name, part in samples_by_register.items() for _ in part]
        blocks = find_blocks(uncut)
        if not can_replay(uncut, samples[0].inputs):
            raise OptionError(f"refit cannot be full or wide: {why_not_refitted(uncut)}")
        modules = {block.name: block.module for block in blocks}
        with torch.no_grad(), record(modules) as calls:  # text alone does not run vision blocks
            forward_batch(uncut, samples[0].inputs)
        used = {call.name for call in calls}
        self.cut, self.uncut = (
            _BlockRunner(
                model, [block for block in find_blocks(model) if block.name in used], samples
            )
            for model in (cut, uncut)
        )
        self.counts = count_heads(uncut, samples[0].inputs)

    def attention(self, index: int) -> list[_FittedProjection]:
        """Output projections of a block's attention layers, except layers that never had heads."""
        block, uncut = self.cut.blocks[index], self.uncut.blocks[index]
        parts = []
        for site, uncut_site in zip(block.sites, uncut.sites, strict=True):
            if site.layer_name in self.counts:
                modules, goal = (
                    {"stream": side.module, "projection": projection_at(place)}
                    for side, place in ((block, site), (uncut, uncut_site))
                )
                is_residual = len(block.sites) == 1 and self._adds_to_input(index, goal)
                parts.append(_FittedProjection(site, "attention", is_residual, modules, goal))
        return parts

    def _adds_to_input(self, index: int, modules: Mapping[str, nn.Module]) -> bool:
        """Whether the uncut block adds attention's output to its own input, with both unchanged."""
        inside = self.uncut.blocks[index].module.named_modules()
        every = {f"block.{path}": module for path, module in inside}
        calls = self.uncut.record(index, 0, {**every, **modules})
        total = calls["stream"].input + calls["projection"].output
        # If so, the sum is the input to some module in the block.
        return any(_is_close(total, state) for state in _inputs(calls).values())

    def feed_forward(self, index: int) -> list[_FittedProjection]:
        """The last linear layer of a block's feed-forward part, if one is found."""
        block, uncut = self.cut.blocks[index], self.uncut.blocks[index]
        attention = [site.module for site in uncut.sites]
        attention += [projection_at(site) for site in uncut.sites]
        calls = self.uncut.record(index, 0, dict(uncut.module.named_modules()))
        paths = find_feed_forward(uncut.module, calls, without=attention)
        if paths is None:
            return []
        modules, goal = (
            {name: side.module.get_submodule(path) for name, path in paths.items()}
            for side in (block, uncut)
        )
        return [_FittedProjection(block.sites[0], "feed-forward", True, modules, goal)]

    def refit_projection(self, index: int, fitted: _FittedProjection, variant: str) -> LayerFit:
        """Fit one projection, and apply the fit if it helps on examples not used for fitting."""
        weight, bias = output_weight(fitted.cut["projection"]), _bias(fitted.cut["projection"])
        sums = {
            name: NormalEquations(*weight.shape, has_bias=bias is not None)
            for name in dict.fromkeys(self.registers)
        }
        for number, sample in enumerate(self.samples):
            goal = self.uncut.record(index, number, fitted.uncut)
            calls = self.cut.record(index, number, fitted.cut)
            target: Tensor = goal["projection"].output
            if len(weight):
                concat, output = calls["projection"].input, calls["projection"].output
            else:  # a layer without heads outputs only its bias
                output = torch.zeros_like(target)
                concat = output[..., :0]
                output = output if bias is None else output + bias.detach()
            error = target - output
            if fitted.is_residual:
                error = error + (goal["stream"].input - calls["stream"].input)
            rows = real_queries(self.cut.model, sample.inputs, fitted.site.stack, error)
            sums[self.registers[number]].add(concat[rows], error[rows])
        fit, *held_out = sums.values()
        ridge, best, worst = best_correction(fit, held_out, variant)
        if best is not None:
            with torch.no_grad():
                weight.add_(best.weight.to(weight))
                if bias is not None:
                    bias.add_(best.bias.to(bias))
        kind = "nothing" if best is None else "bias" if ridge is None else "weights"
        before = worst.mean_square
        after = before if best is None else worst.error_left(best)
        name = fitted.site.layer_name
        return LayerFit(name, kind, ridge, before, after, fitted.is_residual, fitted.part)


def projection_at(site: Site) -> nn.Module:
    """A site's output projection. Raises ModelError if it is unknown."""
    if site.output_projection is None:
        raise ModelError(f"{site.name} cannot be refitted: its output projection is unknown")
    return site.output_projection


def _bias(projection: nn.Module) -> Tensor | None:
    bias = getattr(projection, "bias", None)
    return bias if isinstance(bias, Tensor) else None


def best_correction(
    fitted: NormalEquations, held_out: Sequence[NormalEquations], variant: str
) -> tuple[float | None, Correction | None, NormalEquations]:
    """The ridge and correction that leave the least share of the error in the worst register.

    The correction is None if all would increase the error in some register. Also returns the rows
    of the register that is worst with the chosen correction.
    """

    def share_left(rows: NormalEquations, correction: Correction) -> float:
        before = rows.mean_square
        share = rows.error_left(correction) / before if before else math.inf
        return math.inf if math.isnan(share) else share

    best: tuple[float | None, Correction | None, NormalEquations] = (None, None, held_out[0])
    least = 1.0
    for ridge in (None,) if variant == "bias" else RIDGES:
        if not fitted.rows:
            break
        correction = fitted.solve(ridge)
        worst = max(held_out, key=lambda rows: share_left(rows, correction))
        if share_left(worst, correction) < least:
            least = share_left(worst, correction)
            best = (ridge, correction, worst)
    return best


def find_feed_forward(
    block: nn.Module, calls: Mapping[str, ModuleCall], *, without: Iterable[nn.Module] = ()
) -> dict[str, str] | None:
    """Paths in `block` of the last feed-forward linear layer and of its stream; None if not found.

    The layer's output is added to the input of the stream module. `calls` are the calls of the
    block's modules, by path. Ignores the modules in `without` and everything inside them.
    """
    ignored = {id(part) for module in without for part in module.modules()}
    modules = dict(block.named_modules())  # outer modules first
    inputs = _inputs({name: calls[name] for name in modules if name in calls})
    outputs = {name: call.output for name, call in calls.items() if isinstance(call.output, Tensor)}
    sums = [*inputs.values(), *([outputs[""]] if "" in outputs else [])]
    for name, module in reversed(modules.items()):
        is_linear = type(module).__name__ in ("Linear", "Conv1D")  # GPT-2 uses transformers' Conv1D
        if not is_linear or id(module) in ignored or name not in outputs:
            continue
        for stream, state in inputs.items():
            if state.shape == outputs[name].shape and any(
                _is_close(state + outputs[name], total) for total in sums
            ):
                return {"projection": name, "stream": stream}
    return None


def _inputs(calls: Mapping[str, ModuleCall]) -> dict[str, Tensor]:
    arguments = {name: call.args[0] for name, call in calls.items() if call.args}
    return {name: value.detach() for name, value in arguments.items() if isinstance(value, Tensor)}


def _is_close(total: Tensor, state: Tensor) -> bool:
    if total.shape != state.shape:
        return False
    bound = 16 * torch.finfo(total.dtype).eps * float(total.abs().max())
    return float((total - state).abs().max()) <= bound
