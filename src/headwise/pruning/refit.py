"""Refit: output projections fitted anew, so that the heads that are left make up for those cut.

In: an uncut model, the cut one, and text to fit on and to choose the ridge on. Out: the cut model
with other output projections, layer after layer, each fitted on what the layers refitted before it
give. Closed form, no gradients. Fitted is what the residual stream lacks after the layer's
attention, where the model adds that to its input as it is; else what the attention's output lacks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headwise.errors import ModelError, OptionError
from headwise.pruning.ablation import Progress, quiet
from headwise.pruning.blocks import Block, States, find_blocks, run_block, stack_of
from headwise.pruning.normal import Correction, NormalEquations
from headwise.pruning.objective import Sample
from headwise.pruning.task import count_heads
from headwise.watching.gates import layer_name
from headwise.watching.places import Place, find_places, output_weight

Variant = Literal["full", "scale", "bias"]
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
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


def refit(
    cut: nn.Module,
    uncut: nn.Module,
    fitting: Sequence[Sample],
    choosing: Sequence[Sample],
    *,
    variant: Variant = "full",
    progress: Progress = quiet,
) -> tuple[LayerFit, ...]:
    """Refit every output projection of the cut model in place; what became of each layer.

    Layers that had no head in the uncut model either are left as they are.
    """
    pair = Pair(cut, uncut, [*fitting, *choosing], len(fitting))
    found = []
    for index in range(len(pair.blocks)):
        found += [pair.refit_place(index, place, variant) for place in pair.places_of(index)]
        pair.move_on(index)
        progress("refitting layers", index + 1, len(pair.blocks))
    return tuple(found)


class Pair:
    """A cut and an uncut model that read the same text, one block at a time."""

    def __init__(
        self, cut: nn.Module, uncut: nn.Module, samples: Sequence[Sample], num_fitting: int
    ) -> None:
        """Before the first block; the first `num_fitting` samples are fitted on."""
        self.cut, self.uncut, self.samples, self.num_fitting = cut, uncut, samples, num_fitting
        self.blocks = find_blocks(cut, find_places(cut))
        self.uncut_blocks = find_blocks(uncut, find_places(uncut))
        if not self.blocks:
            raise OptionError(
                f"{type(cut).__name__} cannot be refitted: its layers share their weights"
            )
        self.states: list[States] = [{} for _ in samples]
        self.uncut_states: list[States] = [{} for _ in samples]
        self.counts = count_heads(uncut, samples[0].inputs)

    def places_of(self, index: int) -> list[Place]:
        """The attention of a block, without layers that had no head before the cut."""
        return [one for one in self.blocks[index].places if layer_name(one) in self.counts]

    def move_on(self, index: int) -> None:
        """Both models through one block."""
        stack = stack_of(self.blocks[index])
        for number, sample in enumerate(self.samples):
            self.states[number][stack] = run_block(
                self.cut, self.blocks, index, sample.inputs, self.states[number]
            )
            self.uncut_states[number][stack] = run_block(
                self.uncut, self.uncut_blocks, index, sample.inputs, self.uncut_states[number]
            )

    def refit_place(self, index: int, place: Place, variant: Variant) -> LayerFit:
        """Fit one output projection and change it, if that helps on text not fitted on."""
        block, goal_block = self.blocks[index], self.uncut_blocks[index]
        theirs = goal_block.places[block.places.index(place)]
        weight, bias = parts_of(place)
        fitted, held = (NormalEquations(*weight.shape, has_bias=bias is not None) for _ in "ab")
        is_residual = len(block.places) == 1 and self.adds_to_state(index, theirs)
        for number, sample in enumerate(self.samples):
            with hearing(goal_block, theirs) as goal:
                run_block(
                    self.uncut, self.uncut_blocks, index, sample.inputs, self.uncut_states[number]
                )
            with hearing(block, place) as own:
                run_block(self.cut, self.blocks, index, sample.inputs, self.states[number])
            if not len(weight):
                own.concat, own.output = nothing_from(goal.output, bias)
            lacking = goal.output - own.output
            if is_residual:
                lacking = lacking + (goal.state - own.state)
            rows = real_rows(sample, lacking)
            (fitted if number < self.num_fitting else held).add(own.concat[rows], lacking[rows])
        size = parts_of(theirs)[0].shape[0] // self.counts[layer_name(theirs)][0]
        ridge, best = chosen(fitted, held, weight, variant, size)
        if ridge is not None:
            add_to(weight, bias, best)
        return LayerFit(
            layer_name(place),
            ridge,
            held.error_left(none_of(held)),
            held.error_left(best),
            is_residual,
        )

    def adds_to_state(self, index: int, place: Place) -> bool:
        """Whether what the block goes on with is its input plus the attention's output, as it is.

        Seen in the uncut model: some module of the block is given just that sum.
        """
        block, sample = self.uncut_blocks[index], self.samples[0]
        given: list[Tensor] = []

        def hear(_: nn.Module, args: tuple[Any, ...]) -> None:
            given.extend(one for one in args if isinstance(one, Tensor))

        hooks = [one.register_forward_pre_hook(hear) for one in block.module.modules()]
        try:
            with hearing(block, place) as heard:
                run_block(self.uncut, self.uncut_blocks, index, sample.inputs, self.uncut_states[0])
        finally:
            for hook in hooks:
                hook.remove()
        total = heard.state + heard.output
        near = 16 * torch.finfo(total.dtype).eps * float(total.abs().max())
        return any(
            one.shape == total.shape and float((one - total).abs().max()) <= near for one in given
        )


@dataclass(eq=False)
class Heard:
    """What passed through one layer in one pass."""

    state: Tensor = field(default_factory=lambda: torch.zeros(0))
    """What came into the block."""
    concat: Tensor = field(default_factory=lambda: torch.zeros(0))
    output: Tensor = field(default_factory=lambda: torch.zeros(0))


@contextmanager
def hearing(block: Block, place: Place) -> Iterator[Heard]:
    """While it lasts, what comes into a block and through its attention's output projection."""
    heard = Heard()

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard.state = args[0] if args else kwargs["hidden_states"]

    def project(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        heard.concat, heard.output = args[0].detach(), output.detach()

    assert place.output_projection is not None
    hooks = [
        block.module.register_forward_pre_hook(enter, with_kwargs=True),
        place.output_projection.register_forward_hook(project),
    ]
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


def nothing_from(like: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """What goes into and comes out of the projection of a layer without heads."""
    nothing = torch.zeros_like(like)
    return nothing[..., :0], nothing if bias is None else nothing + bias.detach()


def parts_of(place: Place) -> tuple[Tensor, Tensor | None]:
    """The output projection's matrix `[concat d_model]` and its bias, to be changed in place."""
    if place.output_projection is None:
        raise ModelError(f"{place.name} cannot be refitted: its output projection is unknown")
    bias = getattr(place.output_projection, "bias", None)
    return output_weight(place.output_projection), bias


def chosen(
    fitted: NormalEquations, held: NormalEquations, weight: Tensor, variant: Variant, size: int
) -> tuple[float | None, Correction]:
    """The correction that does best on rows it was not fitted on, and its ridge; none at all if
    none does better than nothing."""
    none = none_of(held)
    if not fitted.rows:
        return None, none
    if variant == "full":
        found = {ridge: fitted.solve(ridge) for ridge in RIDGES}
    elif variant == "scale":
        found = {0.0: fitted.solve_scales(weight, len(weight) // size)}
    else:
        found = {0.0: fitted.solve_bias()}
    ridge = min(found, key=lambda one: held.error_left(found[one]))
    if held.error_left(found[ridge]) >= held.error_left(none):
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


def real_rows(sample: Sample, values: Tensor) -> Tensor:
    """Which positions of `[batch position ...]` values are no padding."""
    for name in ("attention_mask", "decoder_attention_mask"):
        mask = sample.inputs.get(name)
        if mask is not None and mask.shape == values.shape[:2]:
            return mask.bool()
    return torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
