"""Gates: factors that scale each head's output before the output projection mixes the heads.

In: a model and the heads to silence, or a gate for every head. Out: the same model, gated inside a
`with` block. A model's own gate or norm on the heads' outputs is applied after these gates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import OptionError
from headwise.heads import HeadId, Heads, abbreviate, check_head, check_layer, parse_heads
from headwise.models.loaded import LoadedModel, as_module
from headwise.reading.batch import Inputs
from headwise.watching.calls import Call
from headwise.watching.interface import CallObserver
from headwise.watching.running import forward_batch, in_evaluation, real_queries
from headwise.watching.sites import Site, find_sites
from headwise.watching.watch import observe, watch


@dataclass(frozen=True)
class MeanOutputs:
    """Mean output of each head; silencing with these means keeps each head's average output."""

    by_layer: Mapping[tuple[str, int], Float[Tensor, "*batch_and_heads d_value"]]

    def of(self, site: Site) -> Float[Tensor, "*batch_and_heads d_value"]:
        """Mean outputs of one layer's heads."""
        if (site.stack, site.layer) not in self.by_layer:
            raise OptionError(
                f"means has no {site.layer_name}: measure that layer with mean_outputs too",
                option="means",
            )
        return self.by_layer[site.stack, site.layer]

    def scaled(self, share: float) -> "MeanOutputs":
        """The mean outputs times `share`."""
        return MeanOutputs({layer: share * mean for layer, mean in self.by_layer.items()})

    def averaged(self, sets: Iterable[Sequence[str]]) -> "MeanOutputs":
        """The mean outputs, the same in all layers of a set, which share their weights."""
        by_layer = dict(self.by_layer)
        for names in sets:
            heads = [HeadId.parse(f"{name}H0") for name in names]
            keys = [(head.stack, head.layer) for head in heads]
            mean = torch.stack([self.by_layer[key] for key in keys]).mean(0)
            by_layer |= dict.fromkeys(keys, mean)
        return MeanOutputs(by_layer)


@dataclass(frozen=True)
class HeadOutputs(MeanOutputs):
    """Output of each head at every position of one batch, to put in place of those of another run.

    A batch that repeats this one several times gets the outputs repeated as often.
    """

    by_layer: Mapping[tuple[str, int], Float[Tensor, "batch heads query d_value"]]

    def of(self, site: Site) -> Float[Tensor, "batch heads query d_value"]:
        """Outputs of one layer's heads."""
        return super().of(site)


@contextmanager
def silence(
    model: nn.Module | LoadedModel, heads: Heads, *, means: MeanOutputs | None = None
) -> Iterator[None]:
    """Silence heads inside the block: each outputs zeros, or its mean output if `means` is given.

    with headwise.silence(model, ["L3H11"]):
        model(**inputs)
    """
    model = as_module(model)
    sites = find_sites(model)
    silenced = parse_heads(heads)
    check_layers(silenced, sites)
    entries = []
    for site in sites:
        if numbers := [head.head for head in silenced if head.layer_name == site.layer_name]:
            if site.num_heads is not None:
                _check_heads(numbers, site, site.num_heads)
            mean = None if means is None else means.of(site)
            change = partial(_replace_heads, site, numbers, mean)
            entries.append((site, CallObserver(change=change)))
    with observe(model, sites, entries):
        yield


@contextmanager
def gate(
    model: nn.Module | LoadedModel,
    gates: Mapping[str, Float[Tensor, "*batch heads"]],
    *,
    means: MeanOutputs | None = None,
) -> Iterator[None]:
    """Multiply heads' outputs by gates inside the block; the gates can be trained.

    `gates` maps layer names (`L3` or `encoder.L3`) to tensors `[heads]` or `[batch, heads]`;
    other layers do not change. With `means`, a gate moves a head's output towards its mean instead
    of towards zero.

    gates = {"L0": torch.ones(12, requires_grad=True)}
    with headwise.gate(model, gates):
        loss(model(**inputs)).backward()
    """
    if not isinstance(gates, Mapping) or not all(isinstance(g, Tensor) for g in gates.values()):
        raise OptionError(
            "gates must be a mapping from layer names to tensors, such as {'L0': torch.ones(12)}",
            option="gates",
        )
    model = as_module(model)
    sites = find_sites(model)
    by_name = {site.layer_name: site for site in sites}
    entries = []
    for name, factors in gates.items():
        if name not in by_name:
            raise OptionError(
                f"{name} is not a layer of this model: its layers are {abbreviate(list(by_name))}"
            )
        site = by_name[name]
        change = partial(scale_heads, site, factors, None if means is None else means.of(site))
        entries.append((site, CallObserver(change=change)))
    with observe(model, sites, entries):
        yield


def mean_outputs(model: nn.Module | LoadedModel, batches: Iterable[Inputs]) -> MeanOutputs:
    """Mean output of each head over the real tokens in `batches`, without dropout."""
    model = as_module(model)
    sums: dict[tuple[str, int], Tensor] = {}
    counts: dict[tuple[str, int], float] = {}
    inputs: Inputs = {}

    def add(call: Call) -> None:
        mixed = call.mixed.double()
        is_real = real_queries(model, inputs, call.stack, mixed[:, 0]).to(mixed)
        key, total = (call.stack, call.layer), (mixed * is_real[:, None, :, None]).sum((0, 2))
        sums[key] = sums[key] + total if key in sums else total
        counts[key] = counts.get(key, 0.0) + is_real.sum().item()

    with torch.no_grad(), in_evaluation(model), watch(model, add):
        for inputs in batches:
            if not isinstance(inputs, Mapping):
                raise OptionError(
                    f"batches contains a {type(inputs).__name__}: pass a list of mappings from "
                    "the names of the model's inputs to tensors, such as "
                    "[tokenizer(texts, return_tensors='pt')]",
                    option="batches",
                )
            forward_batch(model, inputs)
    if not counts:
        raise OptionError("batches is empty: pass at least one batch", option="batches")
    if not all(counts.values()):
        raise OptionError("batches contains only padding: pass tokens too", option="batches")
    return MeanOutputs({key: sums[key] / counts[key] for key in sums})


def _replace_heads(site: Site, heads: list[int], mean: Tensor | None, mixed: Tensor) -> Tensor:
    """`mixed` with the outputs of `heads` replaced by zeros, or by `mean` if given."""
    _check_heads(heads, site, mixed.shape[1])
    is_silent = torch.zeros(mixed.shape[1], dtype=torch.bool, device=mixed.device)
    is_silent[heads] = True
    new = mixed.new_zeros(()) if mean is None else _fit_mean(mean, mixed, site)
    return torch.where(is_silent[:, None, None], new, mixed)


def scale_heads(site: Site, gates: Tensor, mean: Tensor | None, mixed: Tensor) -> Tensor:
    """`mixed` times the gates; with `mean`, the rest of each output comes from the head's mean."""
    batch, heads = mixed.shape[:2]
    if gates.shape not in ((heads,), (1, heads), (batch, heads)):
        raise OptionError(
            f"the gates for {site.layer_name} have shape {list(gates.shape)}, but it runs on "
            f"[batch {batch}, heads {heads}]: use that shape or [heads {heads}], or batches of one "
            "example"
        )
    factors = gates.to(mixed)[..., None, None]
    if mean is None:
        return mixed * factors
    return mixed * factors + _fit_mean(mean, mixed, site) * (1 - factors)


def _fit_mean(
    mean: Tensor, mixed: Tensor, site: Site
) -> Float[Tensor, "*batch heads query_or_one d_value"]:
    heads, size = mixed.shape[1::2]
    if mean.dim() == 4 and mean.shape[1:] == mixed.shape[1:] and not len(mixed) % len(mean):
        return mean.to(mixed).repeat(len(mixed) // len(mean), 1, 1, 1)
    if mean.shape != (heads, size):
        raise OptionError(
            f"the mean outputs for {site.layer_name} have shape {list(mean.shape)}, but its heads "
            f"output [heads {heads}, d_value {size}]: measure the means on this model"
        )
    return mean.to(mixed)[:, None]


def check_layers(heads: Iterable[HeadId], sites: tuple[Site, ...]) -> None:
    """Raise OptionError if a head's layer is not one of `sites`."""
    names = [site.layer_name for site in sites]
    for head in heads:
        check_layer(head, names)


def _check_heads(heads: list[int], site: Site, count: int) -> None:
    check_head(HeadId(site.layer, max(heads), site.stack), {site.layer_name: count})
