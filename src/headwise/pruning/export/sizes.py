"""Sizes: how large and how fast a model is before and after a cut.

In: the uncut and the cut model. Out: parameters, bytes, KV-cache bytes, multiply-adds, and the run
times of both models, which take turns. A head that is only silenced still counts.
"""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headwise.heads import HeadCounts
from headwise.reading.batch import Inputs
from headwise.watching.running import forward
from headwise.watching.sites import find_sites, output_weight

POSITIONS = 512
"""Sequence length for multiply-adds and speed, unless the model's limit is lower."""
BATCHES = (1, 4)
"""Batch sizes to time, reduced if their outputs would not fit in memory."""
KEY_SIZE = "qk_head_dim"
"""Attribute that stores the width of a key in modules whose values have another width."""
LATENT = "kv_a_proj_with_mqa"
"""The projection whose output is cached instead of keys and values, in modules that have one."""
CACHED_STACKS = ("", "decoder", "text")
"""Stacks whose keys and values are cached for every generated token."""


@dataclass(frozen=True)
class Sizes:
    """Heads, parameters, memory and multiply-adds of a model."""

    heads: int
    kv_heads: int
    parameters: int
    bytes: int
    attention_parameters: int
    cache_bytes_per_token: int
    """Bytes for keys and values, or for the latent vector they are computed from, in the model's
    dtype; 0 for a model without a cache."""
    attention_multiply_adds: int
    """Total over all attention layers, for one sequence of `positions` tokens."""
    positions: int


def sizes_of(model: nn.Module, counts: HeadCounts, *, positions: int = POSITIONS) -> Sizes:
    """Sizes of the model as it is now; `counts` are its head counts by layer."""
    sites = find_sites(model)
    attention = {id(weight): weight for site in sites for weight in site.module.parameters()}
    products = cache = 0
    dtype = next(model.parameters()).dtype
    for site in sites:
        num_heads, num_kv_heads = counts.get(site.layer_name, (0, 0))
        projection = site.output_projection
        if projection is None:
            continue
        attention |= {id(weight): weight for weight in projection.parameters()}
        if not num_heads:
            continue
        d_key = d_value = output_weight(projection).shape[0] // num_heads
        d_key = int(getattr(site.module, KEY_SIZE, d_key))
        products += num_heads * (d_key + d_value) * positions * positions
        if site.stack in CACHED_STACKS:
            width = num_kv_heads * (d_key + d_value)
            latent = getattr(site.module, LATENT, None)
            if isinstance(latent, nn.Module):
                width = len(latent.get_parameter("weight"))
            cache += width * dtype.itemsize
    can_generate: Any = getattr(model, "can_generate", None)
    matrices = sum(weight.numel() for weight in attention.values() if weight.dim() > 1)
    return Sizes(
        heads=sum(heads for heads, _ in counts.values()),
        kv_heads=sum(kv_heads for _, kv_heads in counts.values()),
        parameters=sum(weight.numel() for weight in model.parameters()),
        bytes=sum(weight.nbytes for weight in model.parameters()),
        attention_parameters=sum(weight.numel() for weight in attention.values()),
        cache_bytes_per_token=cache if can_generate and can_generate() else 0,
        attention_multiply_adds=matrices * positions + products,
        positions=positions,
    )


@dataclass(frozen=True)
class Speed:
    """Run times of two models that took turns on the same input."""

    batch: int
    positions: int
    before: float
    """Median time of the uncut model in seconds."""
    after: float
    """Median time of the cut model in seconds."""
    ratio: float
    """Median ratio of the uncut to the cut model's time; above 1, the cut model is faster."""
    spread: float
    """Half the interquartile range of the ratios."""


@torch.no_grad()
def time_both(before: nn.Module, after: nn.Module, inputs: Inputs, *, turns: int = 5) -> Speed:
    """Time both models on the same input, `turns` times in alternating order."""
    for model in (before, after):
        forward(model, inputs)
    pairs = []
    for turn in range(turns):
        order = (before, after) if turn % 2 == 0 else (after, before)
        seconds = {id(model): _seconds(model, inputs) for model in order}
        pairs.append((seconds[id(before)], seconds[id(after)]))
    ratios = [uncut / cut for uncut, cut in pairs]
    quarters = statistics.quantiles(ratios, n=4) if turns > 1 else [ratios[0]] * 3
    first = next(iter(inputs.values()))
    return Speed(
        batch=first.shape[0],
        positions=first.shape[1],
        before=statistics.median(uncut for uncut, _ in pairs),
        after=statistics.median(cut for _, cut in pairs),
        ratio=statistics.median(ratios),
        spread=(quarters[2] - quarters[0]) / 2,
    )


def time_batches(
    before: nn.Module, after: nn.Module, inputs: Inputs, *, positions: int, most_tokens: int
) -> tuple[Speed, ...]:
    """Time both models on batches of each size in BATCHES, of at most `most_tokens` tokens.

    Each sequence has `positions` tokens, taken from `inputs`.
    """
    most = max(1, most_tokens // positions)
    return tuple(
        time_both(before, after, full_batch(inputs, batch, positions))
        for batch in dict.fromkeys(min(batch, most) for batch in BATCHES)
    )


def _seconds(model: nn.Module, inputs: Inputs) -> float:
    is_on_gpu = any(weight.is_cuda for weight in model.parameters())
    wait = torch.cuda.synchronize if is_on_gpu else int
    wait()
    start = time.perf_counter()
    forward(model, inputs)
    wait()
    return time.perf_counter() - start


GENERATED = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
"""Inputs that `full_batch` creates. Without token types, a model uses the same type throughout."""


def inputs_beyond_tokens(inputs: Inputs) -> list[str]:
    """Names of inputs that `full_batch` cannot create; a model that needs them is not timed."""
    if "input_ids" not in inputs:
        return list(inputs)
    return [name for name in inputs if name not in (*GENERATED, "token_type_ids")]


def full_batch(inputs: Inputs, batch: int, positions: int) -> Inputs:
    """A batch of `batch` unpadded sequences of `positions` tokens, made by repeating the ids."""
    ids = inputs["input_ids"].flatten()
    needed = batch * positions
    repeated = ids.repeat(-(-needed // len(ids)))[:needed].view(batch, positions)
    full = {"input_ids": repeated, "attention_mask": torch.ones_like(repeated)}
    if "decoder_input_ids" in inputs:
        full |= {f"decoder_{name}": value for name, value in full.items()}
    return full
