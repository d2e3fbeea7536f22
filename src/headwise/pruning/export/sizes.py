"""Proof: what a cut took away, counted and timed.

In: a model before and after. Out: parameters, bytes, KV-cache bytes, multiply-adds, and how long
both take side by side. Nothing here trusts a mask: it looks at the weights that are there.
"""

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headwise.heads import HeadCounts
from headwise.models.families import family_of
from headwise.reading.batch import Inputs
from headwise.watching.running import forward
from headwise.watching.sites import find_sites, output_weight

POSITIONS = 512
"""Tokens of a sequence that multiply-adds and speed are of, or the model's limit."""


CACHED = ("", "decoder", "text")
"""Stacks whose keys and values are kept for every token that is generated."""


@dataclass(frozen=True)
class Sizes:
    """What a model is made of."""

    heads: int
    kv_heads: int
    parameters: int
    bytes: int
    attention_parameters: int
    cache_bytes_per_token: int
    """Of keys and values, or of the latent vector that they are made from, in the model's own
    dtype; 0 for a model that keeps none."""
    attention_multiply_adds: int
    """Of all attention layers for a sequence of `positions` tokens."""
    positions: int


def sizes_of(model: nn.Module, counts: HeadCounts, *, positions: int = POSITIONS) -> Sizes:
    """What the model is made of as it is now; `counts` are its heads by layer."""
    places = find_sites(model)
    parameters = {id(one): one for one in model.parameters()}
    parts = [attention_parameters(place.module, place.output_projection) for place in places]
    unique = {id(one): one for part in parts for one in part}
    weights = sum(one.numel() for one in unique.values())
    products = cache = 0
    dtype = next(model.parameters()).dtype
    for place in places:
        num_heads, num_kv_heads = counts.get(place.layer_name, (0, 0))
        if num_heads and place.output_projection is not None:
            d_value = output_weight(place.output_projection).shape[0] // num_heads
            d_key = key_size(place.module, d_value)
            products += num_heads * (d_key + d_value) * positions * positions
            if place.stack in CACHED:
                own = latent_size(place.module) or num_kv_heads * (d_key + d_value)
                cache += own * dtype.itemsize
    matrices = sum(one.numel() for one in unique.values() if one.dim() > 1)
    return Sizes(
        heads=sum(heads for heads, _ in counts.values()),
        kv_heads=sum(kv_heads for _, kv_heads in counts.values()),
        parameters=sum(one.numel() for one in parameters.values()),
        bytes=sum(one.numel() * one.element_size() for one in parameters.values()),
        attention_parameters=weights,
        cache_bytes_per_token=cache if keeps_cache(model) else 0,
        attention_multiply_adds=matrices * positions + products,
        positions=positions,
    )


def attention_parameters(module: nn.Module, projection: nn.Module | None) -> Iterable[Any]:
    """The parameters of an attention module and of its output projection, which may lie outside."""
    found = list(module.parameters())
    return found if projection is None else [*found, *projection.parameters()]


def key_size(module: nn.Module, d_value: int) -> int:
    """How many numbers a key of an attention module has."""
    family = family_of(module)
    return int(getattr(module, family.key_size)) if family and family.key_size else d_value


def latent_size(module: nn.Module) -> int:
    """How many numbers it keeps of a token instead of keys and values; 0 where it keeps these."""
    family = family_of(module)
    return len(module.get_parameter(f"{family.latent}.weight")) if family and family.latent else 0


def keeps_cache(model: nn.Module) -> bool:
    """Whether the model generates token by token, from keys and values that it keeps."""
    can = getattr(model, "can_generate", None)
    return bool(can()) if callable(can) else False


@dataclass(frozen=True)
class Speed:
    """How long two models take for the same input, measured in turns."""

    batch: int
    positions: int
    before: float
    """Median seconds of the uncut model."""
    after: float
    ratio: float
    """Median over turns of the uncut model's time over the cut one's: above 1 is faster."""
    spread: float
    """Half the range of the middle half of these ratios."""


@torch.no_grad()
def time_both(before: nn.Module, after: nn.Module, inputs: Inputs, *, turns: int = 5) -> Speed:
    """Time both models on the same input, one after the other, again and again."""
    for model in (before, after):
        forward(model, inputs)
    pairs = []
    for turn in range(turns):
        order = (before, after) if turn % 2 == 0 else (after, before)
        taken = {id(model): seconds(model, inputs) for model in order}
        pairs.append((taken[id(before)], taken[id(after)]))
    ratios = [one / other for one, other in pairs]
    quarters = statistics.quantiles(ratios, n=4) if turns > 1 else [ratios[0]] * 3
    first = next(iter(inputs.values()))
    return Speed(
        batch=first.shape[0],
        positions=first.shape[1],
        before=statistics.median(one for one, _ in pairs),
        after=statistics.median(other for _, other in pairs),
        ratio=statistics.median(ratios),
        spread=(quarters[2] - quarters[0]) / 2,
    )


def seconds(model: nn.Module, inputs: Inputs) -> float:
    """How long one pass takes."""
    is_apart = any(one.is_cuda for one in model.parameters())
    wait = torch.cuda.synchronize if is_apart else int
    wait()
    start = time.perf_counter()
    forward(model, inputs)
    wait()
    return time.perf_counter() - start


RENEWED = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
"""Inputs that `full_batch` makes anew; it leaves out kinds of tokens, which are then all alike."""


def untimed_inputs(inputs: Inputs) -> list[str]:
    """Inputs without which a full batch is none that the model takes."""
    if "input_ids" not in inputs:
        return list(inputs)
    return [name for name in inputs if name not in (*RENEWED, "token_type_ids")]


def full_batch(inputs: Inputs, batch: int, positions: int) -> Inputs:
    """A batch of that size without padding, from the ids of a smaller one."""
    ids = inputs["input_ids"].flatten()
    needed = batch * positions
    many = ids.repeat(-(-needed // len(ids)))[:needed].view(batch, positions)
    found = {"input_ids": many, "attention_mask": torch.ones_like(many)}
    if "decoder_input_ids" in inputs:
        found |= {f"decoder_{name}": value for name, value in found.items()}
    return found
