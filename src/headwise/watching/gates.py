"""Gates: factors on what each head gives, before the output projection mixes the heads.

In: a model and which heads to silence, or a gate for every head. Out: the same model, whose heads
are gated while a `with` block lasts. Acting on the projection's output instead would be wrong: by
then the heads are mixed. Where a model has a gate or a norm of its own between its heads and the
projection, ours come before it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadId, Heads, abbreviate, check_head, check_layer, parse_heads
from headwise.models.loaded import LoadedModel, as_module
from headwise.reading.batch import Inputs
from headwise.watching.calls import Call
from headwise.watching.interface import CallObserver, Change
from headwise.watching.running import forward_batch, in_evaluation, real_queries
from headwise.watching.sites import Site, find_sites
from headwise.watching.watch import attached, watch


@dataclass(frozen=True)
class MeanOutputs:
    """What each head gives on average: a stand-in for a silenced head that moves nothing else."""

    by_layer: Mapping[tuple[str, int], Float[Tensor, "heads d_value"]]

    def of(self, place: Site) -> Float[Tensor, "heads d_value"]:
        """The means of one layer's heads."""
        if (place.stack, place.layer) not in self.by_layer:
            raise OptionError(f"there are no mean outputs of {place.layer_name}: measure it too")
        return self.by_layer[place.stack, place.layer]


@contextmanager
def silence(
    model: nn.Module | LoadedModel,
    heads: Heads,
    *,
    means: MeanOutputs | None = None,
) -> Iterator[None]:
    """While it lasts, these heads give nothing; with `means`, what they give on average.

    with headwise.silence(model, ["L3H11"]):
        model(**inputs)
    """
    model = as_module(model)
    places = find_sites(model)
    chosen = parse_heads(heads)
    check_layers(chosen, places)
    entries = []
    for place in places:
        mine = [one.head for one in chosen if belongs(one, place)]
        if mine:
            if place.num_heads is not None:
                check_heads(mine, place, place.num_heads)
            mean = None if means is None else means.of(place)
            entries.append((place, CallObserver(change=replacing(mine, mean, place))))
    with attached(model, places, entries):
        yield


@contextmanager
def gate(
    model: nn.Module | LoadedModel,
    gates: Mapping[str, Float[Tensor, "*batch heads"]],
    *,
    means: MeanOutputs | None = None,
) -> Iterator[None]:
    """While it lasts, every layer's heads are multiplied by its gates, which may be learned.

    Gates are named by layer, `L3` or `encoder.L3`, and are the same for the whole batch or one row
    for each of its sequences; a layer without gates stays as it is. With `means`, what a gate takes
    away is made up for by what the head gives on average.

    gates = {"L0": torch.ones(12, requires_grad=True)}
    with headwise.gate(model, gates):
        loss(model(**inputs)).backward()
    """
    if not isinstance(gates, Mapping) or not all(isinstance(g, Tensor) for g in gates.values()):
        raise OptionError("gates are tensors by layer: give a dict such as {'L0': torch.ones(12)}")
    model = as_module(model)
    places = find_sites(model)
    named = {place.layer_name: place for place in places}
    unknown = [name for name in gates if name not in named]
    if unknown:
        raise OptionError(
            f"{unknown[0]} is no layer of this model: its layers are {abbreviate(list(named))}"
        )
    entries = [
        (
            named[name],
            CallObserver(
                change=multiplying(factors, name, None if means is None else means.of(named[name]))
            ),
        )
        for name, factors in gates.items()
    ]
    with attached(model, places, entries):
        yield


def mean_outputs(model: nn.Module | LoadedModel, batches: Iterable[Inputs]) -> MeanOutputs:
    """What each head gives on average over the real tokens of some batches of model inputs.

    Nothing is dropped meanwhile, also in a model that is being trained.
    """
    model = as_module(model)
    sums: dict[tuple[str, int], Tensor] = {}
    counts: dict[tuple[str, int], float] = {}
    inputs: Inputs = {}

    def add(call: Call) -> None:
        mixed = call.mixed.double()
        share = real_queries(model, inputs, call.stack, mixed[:, 0]).to(mixed)
        key, total = (call.stack, call.layer), (mixed * share[:, None, :, None]).sum((0, 2))
        sums[key] = sums[key] + total if key in sums else total
        counts[key] = counts.get(key, 0.0) + share.sum().item()

    with torch.no_grad(), in_evaluation(model), watch(model, add):
        for inputs in batches:
            check_inputs(inputs)
            forward_batch(model, inputs)
    if not counts:
        raise OptionError("mean_outputs was given no batch: give at least one")
    if not all(counts.values()):
        raise OptionError("mean_outputs was given padding alone: give batches with tokens")
    return MeanOutputs({key: sums[key] / counts[key] for key in sums})


def check_inputs(inputs: object) -> None:
    """Raise unless this is one batch of what a model reads."""
    if not isinstance(inputs, Mapping):
        raise OptionError(
            f"mean_outputs takes a list of batches, and one of them is a {type(inputs).__name__}: "
            "give what the model reads by name, as in [tokenizer(texts, return_tensors='pt')]"
        )


def replacing(heads: list[int], mean: Tensor | None, place: Site) -> Change:
    """A change that puts zeros, or the means, in the place of some heads' outputs."""

    def change(mixed: Tensor) -> Tensor:
        check_heads(heads, place, mixed.shape[1])
        is_silent = torch.zeros(mixed.shape[1], dtype=torch.bool, device=mixed.device)
        is_silent[heads] = True
        instead = mixed.new_zeros(()) if mean is None else fitting(mean, mixed, place.layer_name)
        return torch.where(is_silent[:, None, None], instead, mixed)

    return change


def multiplying(gates: Tensor, name: str, mean: Tensor | None = None) -> Change:
    """A change that multiplies each head's output by its gate, or moves it towards its mean."""

    def change(mixed: Tensor) -> Tensor:
        if gates.shape not in ((mixed.shape[1],), (1, mixed.shape[1]), mixed.shape[:2]):
            batch, heads = mixed.shape[:2]
            raise OptionError(
                f"the gates of {name} are {list(gates.shape)}: give [heads {heads}], or "
                f"[batch {batch}, heads {heads}]"
            )
        factors = gates.to(mixed)[..., None, None]
        if mean is None:
            return mixed * factors
        return mixed * factors + fitting(mean, mixed, name) * (1 - factors)

    return change


def fitting(mean: Tensor, mixed: Tensor, name: str) -> Float[Tensor, "heads 1 d_value"]:
    """The means of a layer's heads, ready to take their place."""
    if mean.shape != mixed.shape[1::2]:
        heads, size = mixed.shape[1::2]
        raise OptionError(
            f"the mean outputs of {name} are {list(mean.shape)}, and its heads give [heads "
            f"{heads}, d_value {size}]: measure them on this model"
        )
    return mean.to(mixed)[:, None]


def check_heads(heads: list[int], place: Site, count: int) -> None:
    """Raise where a layer with so many heads does not have all of these."""
    check_head(HeadId(place.layer, max(heads), place.stack), {place.layer_name: count})


def check_layers(heads: Iterable[HeadId], places: tuple[Site, ...]) -> None:
    """Raise where a head names a layer that the model does not have."""
    names = [place.layer_name for place in places]
    for head in heads:
        check_layer(head, names)


def belongs(head: HeadId, place: Site) -> bool:
    """Whether the head is one of the place's."""
    return (head.stack, head.layer) == (place.stack, place.layer)
