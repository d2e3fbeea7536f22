"""Refit: output projections fitted anew, so that the heads that are left make up for those cut.

In: an uncut model, the cut one, and text to fit on and to choose the ridge on. Out: the cut model
with other output projections, layer after layer, each fitted on what the layers refitted before it
give. Closed form, no gradients. Fitted is what the residual stream lacks after the layer's
attention, where the model adds that to its input as it is; else what the attention's output lacks.
The variant `wide` fits what feed-forward parts end in, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.objectives.evaluation import count_heads
from headwise.objectives.objective import Sample
from headwise.progress import Progress, no_progress
from headwise.pruning.importance.partial_passes import (
    Block,
    find_blocks,
    record_blocks,
    run_block,
)
from headwise.pruning.refit.normal_equations import Correction, NormalEquations
from headwise.pruning.refit.state_cache import StateCache
from headwise.pruning.stages import PruneStage
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.sites import Site, find_sites, output_weight

LINEAR = ("Linear", "Conv1D")
"""Classes of linear layers, by name: GPT-2's is transformers' own."""


@dataclass(frozen=True)
class FeedForward:
    """Paths within a block."""

    projection: str
    """The linear layer that the feed-forward part ends in."""
    stream: str
    """The module whose input its output is added to."""


def find_feed_forward(
    block: nn.Module, run: Callable[[], Any], *, without: tuple[nn.Module, ...] = ()
) -> FeedForward | None:
    """The feed-forward part of a block while `run` runs it; None where none is seen.

    `without` are modules that are known to be something else, with all that is in them.
    """
    known = {id(part) for one in without for part in one.modules()}
    given, made = heard(block, run)
    sums = [*given.values(), *([made[""]] if "" in made else [])]
    for name, module in reversed(list(block.named_modules())):
        if type(module).__name__ not in LINEAR or id(module) in known or name not in made:
            continue
        for stream, state in given.items():
            if state.shape != made[name].shape:
                continue
            whole = state + made[name]
            if any(is_same(whole, one) for one in sums):
                return FeedForward(name, stream)
    return None


def heard(block: nn.Module, run: Callable[[], Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What every module of a block is given first, and what it makes of it, by its path."""
    given: dict[str, Tensor] = {}
    made: dict[str, Tensor] = {}
    hooks = []
    for name, module in block.named_modules():

        def enter(_: nn.Module, args: tuple[Any, ...], name: str = name) -> None:
            if args and isinstance(args[0], Tensor):
                given.setdefault(name, args[0].detach())

        def leave(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, Tensor):
                made.setdefault(name, first.detach())

        hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return given, made


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal but for rounding."""
    if one.shape != other.shape:
        return False
    near = 16 * torch.finfo(one.dtype).eps * float(one.abs().max())
    return float((one - other).abs().max()) <= near


Variant = Literal["full", "wide", "scale", "bias"]
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Tried in each layer, and no correction at all; the one that does best on other text is taken."""


@dataclass(frozen=True)
class LayerFit:
    """What became of one layer."""

    layer: str
    ridge: float | None
    """None where no correction did better on text that was not fitted on."""
    before: float
    """Mean squared error on that text without a correction."""
    after: float
    is_residual: bool
    """Whether errors of the layers below were fitted, too."""
    part: str = "attention"
    """Or feed-forward."""


def refit(
    cut: nn.Module,
    uncut: nn.Module,
    fitting: Sequence[Sample],
    choosing: Sequence[Sample],
    *,
    variant: Variant = "full",
    progress: Progress = no_progress,
) -> tuple[LayerFit, ...]:
    """Refit every output projection of the cut model in place; what became of each layer.

    Layers that had no head in the uncut model either are left as they are.
    """
    check_variant(cut, variant)
    pair = ModelPair(cut, uncut, [*fitting, *choosing], len(fitting))
    found = []
    for index in range(len(pair.blocks)):
        progress(PruneStage.REFIT, index, len(pair.blocks))
        found += [pair.refit_joint(index, one, variant) for one in pair.attention(index)]
        if variant == "wide":
            found += [pair.refit_joint(index, one, variant) for one in pair.feed_forward(index)]
        pair.move_on(index)
    return tuple(found)


def check_variant(model: nn.Module, variant: str) -> None:
    """Raise where there is nothing that the variant could refit."""
    if variant == "bias" and all(parts_of(place)[1] is None for place in find_sites(model)):
        raise OptionError(
            f"{type(model).__name__}'s output projections have no bias to refit: choose full or "
            "scale"
        )


@dataclass(frozen=True, eq=False)
class Ears:
    """Where one model is listened to."""

    stream: nn.Module
    """Its input is what the projection's output is added to."""
    projection: nn.Module


@dataclass(frozen=True, eq=False)
class FittedProjection:
    """One linear layer in both models."""

    layer: str
    part: str
    own: Ears
    goal: Ears
    is_residual: bool
    """Whether the model goes on with the stream plus the output, as they are."""
    head_size: int
    stack: str


@torch.no_grad()
def running(model: nn.Module, blocks: Sequence[Block], sample: Sample) -> list[Block]:
    """Those blocks that a sample passes through: text alone never meets a model's eyes."""
    with record_blocks(blocks) as found:
        forward_batch(model, sample.inputs)
    return [block for block in blocks if block in found.blocks]


class ModelPair:
    """A cut and an uncut model that read the same text, one block at a time."""

    def __init__(
        self, cut: nn.Module, uncut: nn.Module, samples: Sequence[Sample], num_fitting: int
    ) -> None:
        """Before the first block; the first `num_fitting` samples are fitted on."""
        self.cut, self.uncut, self.samples, self.num_fitting = cut, uncut, samples, num_fitting
        self.uncut_blocks = running(uncut, find_blocks(uncut, find_sites(uncut)), samples[0])
        names = {block.name for block in self.uncut_blocks}
        self.blocks = [one for one in find_blocks(cut, find_sites(cut)) if one.name in names]
        if not self.blocks:
            raise OptionError(
                f"{type(cut).__name__} cannot be refitted: its layers share their weights"
            )
        self.states: dict[str, StateCache] = {}
        self.uncut_states: dict[str, StateCache] = {}
        self.counts = count_heads(uncut, samples[0].inputs)

    def run(self, index: int, number: int) -> Any:
        """The cut model's block on one sample."""
        sample, states = self.samples[number], at(self.states, number)
        return run_block(self.cut, self.blocks, index, sample.inputs, states)

    def run_uncut(self, index: int, number: int) -> Any:
        """The uncut model's."""
        sample, states = self.samples[number], at(self.uncut_states, number)
        return run_block(self.uncut, self.uncut_blocks, index, sample.inputs, states)

    def move_on(self, index: int) -> None:
        """Both models through one block."""
        stack = self.blocks[index].stack
        for states, run in ((self.states, self.run), (self.uncut_states, self.run_uncut)):
            for number in range(len(self.samples)):
                state = run(index, number)
                states.setdefault(stack, StateCache(len(self.samples)))[number] = state

    def attention(self, index: int) -> list[FittedProjection]:
        """The output projections of a block's attention; not of layers that never had a head."""
        block, goal = self.blocks[index], self.uncut_blocks[index]
        found = []
        for place, theirs in zip(block.sites, goal.sites, strict=True):
            if place.layer_name not in self.counts:
                continue
            weight, _ = parts_of(theirs)
            found.append(
                FittedProjection(
                    layer=place.layer_name,
                    part="attention",
                    own=Ears(block.module, projection_of(place)),
                    goal=Ears(goal.module, projection_of(theirs)),
                    is_residual=len(block.sites) == 1 and self.adds_to_state(index, theirs),
                    head_size=weight.shape[0] // self.counts[theirs.layer_name][0],
                    stack=place.stack,
                )
            )
        return found

    def feed_forward(self, index: int) -> list[FittedProjection]:
        """The linear layer that a block's feed-forward part ends in, where one is seen."""
        block, goal = self.blocks[index], self.uncut_blocks[index]
        known = [place.module for place in goal.sites]
        known += [projection_of(place) for place in goal.sites]
        found = find_feed_forward(
            goal.module, lambda: self.run_uncut(index, 0), without=tuple(known)
        )
        if found is None:
            return []
        own, theirs = (
            Ears(one.get_submodule(found.stream), one.get_submodule(found.projection))
            for one in (block.module, goal.module)
        )
        first = block.sites[0]
        return [
            FittedProjection(first.layer_name, "feed-forward", own, theirs, True, 1, first.stack)
        ]

    def refit_joint(self, index: int, joint: FittedProjection, variant: Variant) -> LayerFit:
        """Fit one projection and change it, if that helps on text not fitted on."""
        weight, bias = output_weight(joint.own.projection), bias_of(joint.own.projection)
        fitted, held = (NormalEquations(*weight.shape, has_bias=bias is not None) for _ in "ab")
        for number, sample in enumerate(self.samples):
            with hearing(joint.goal) as goal:
                self.run_uncut(index, number)
            with hearing(joint.own) as own:
                self.run(index, number)
            if not len(weight):
                own.concat, own.output = nothing_from(goal.output, bias)
            lacking = goal.output - own.output
            if joint.is_residual:
                lacking = lacking + (goal.state - own.state)
            rows = real_queries(self.cut, sample.inputs, joint.stack, lacking)
            (fitted if number < self.num_fitting else held).add(own.concat[rows], lacking[rows])
        ridge, best = best_correction(fitted, held, weight, variant, joint.head_size)
        if ridge is not None:
            add_to(weight, bias, best)
        before, after = held.error_left(none_of(held)), held.error_left(best)
        return LayerFit(joint.layer, ridge, before, after, joint.is_residual, joint.part)

    def adds_to_state(self, index: int, place: Site) -> bool:
        """Whether what the block goes on with is its input plus the attention's output, as it is.

        Seen in the uncut model: some module of the block is given just that sum.
        """
        block = self.uncut_blocks[index]
        with hearing(Ears(block.module, projection_of(place))) as own:
            given, _ = heard(block.module, lambda: self.run_uncut(index, 0))
        return any(is_same(own.state + own.output, one) for one in given.values())


def at(states: Mapping[str, StateCache], number: int) -> dict[str, Any]:
    """What the last block of every stack gave for one sample."""
    return {stack: shelf[number] for stack, shelf in states.items()}


@dataclass(eq=False)
class Heard:
    """What passed through one projection in one pass."""

    state: Tensor = field(default_factory=lambda: torch.zeros(0))
    """What its output is added to."""
    concat: Tensor = field(default_factory=lambda: torch.zeros(0))
    output: Tensor = field(default_factory=lambda: torch.zeros(0))


@contextmanager
def hearing(ears: Ears) -> Iterator[Heard]:
    """While it lasts, what goes through a projection, and what its output is added to."""
    found = Heard()

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.state = args[0] if args else kwargs["hidden_states"]

    def project(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        found.concat, found.output = args[0].detach(), output.detach()

    hooks = [
        ears.stream.register_forward_pre_hook(enter, with_kwargs=True),
        ears.projection.register_forward_hook(project),
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def nothing_from(like: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """What goes into and comes out of the projection of a layer without heads."""
    nothing = torch.zeros_like(like)
    return nothing[..., :0], nothing if bias is None else nothing + bias.detach()


def projection_of(place: Site) -> nn.Module:
    """A place's output projection."""
    if place.output_projection is None:
        raise ModelError(f"{place.name} cannot be refitted: its output projection is unknown")
    return place.output_projection


def parts_of(place: Site) -> tuple[Tensor, Tensor | None]:
    """The output projection's matrix `[concat d_model]` and its bias, to be changed in place."""
    projection = projection_of(place)
    return output_weight(projection), bias_of(projection)


def bias_of(projection: nn.Module) -> Tensor | None:
    """A linear layer's bias."""
    bias = getattr(projection, "bias", None)
    return bias if isinstance(bias, Tensor) else None


def best_correction(
    fitted: NormalEquations, held: NormalEquations, weight: Tensor, variant: Variant, size: int
) -> tuple[float | None, Correction]:
    """The correction that does best on rows it was not fitted on, and its ridge; none at all if
    none does better than nothing."""
    none = none_of(held)
    if not fitted.rows:
        return None, none
    if variant in ("full", "wide"):
        found = {ridge: fitted.solve(ridge) for ridge in RIDGES}
    elif variant == "scale":
        found = {0.0: fitted.solve_scales(weight, len(weight) // size)}
    else:
        found = {0.0: fitted.solve_bias()}
    ridge = min(found, key=lambda one: held.error_left(found[one]))
    if not held.error_left(found[ridge]) < held.error_left(none):  # so that NaN is refused, too
        return None, none
    return ridge, found[ridge]


def none_of(held: NormalEquations) -> Correction:
    """No change."""
    return Correction(torch.zeros_like(held.cross), torch.zeros_like(held.error_sum))


@torch.no_grad()
def add_to(weight: Tensor, bias: Tensor | None, found: Correction) -> None:
    """Change a projection."""
    weight.add_(found.weight.to(weight))
    if bias is not None:
        bias.add_(found.bias.to(bias))
