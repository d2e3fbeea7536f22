"""Positions: rotary angles, ALiBi slopes, and learned relative biases.

`layer.py` rotates queries and keys by the angles, and adds the other two to the scores.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.attention.prepare import is_transformed
from headwise.errors import OptionError, ShapeError

RotaryLayout = Literal["half", "interleaved"]
ScalingKind = Literal["linear", "ntk", "llama3", "yarn"]
LAYOUTS, SCALINGS = get_args(RotaryLayout), get_args(ScalingKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryScaling:
    """How rotary frequencies are reduced so that a model works beyond its training length.

    `linear` divides every frequency by `factor`; `ntk` raises the base, which reduces the slowest
    ones most; `llama3` and `yarn` divide only slow frequencies, those that make few full turns
    within `original_length` (https://arxiv.org/abs/2309.00071).
    """

    kind: ScalingKind
    factor: float
    original_length: int = 8192
    low_frequency: float = 1.0
    """llama3: frequencies with fewer turns in the original length than this are divided."""
    high_frequency: float = 4.0
    """llama3: frequencies with more turns than this are unchanged."""
    beta_fast: float = 32.0
    """yarn: frequencies with more turns than this in the original length are unchanged."""
    beta_slow: float = 1.0
    """yarn: frequencies with fewer turns than this are divided."""
    attention_factor: float | None = None
    """yarn: factor on the rotated queries and keys; None = 0.1 ln(factor) + 1."""

    def __post_init__(self) -> None:
        _check_name("the kind of rotary scaling", self.kind, SCALINGS)
        for name in ("factor", "original_length"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} is {getattr(self, name)}: it must be positive")
        if not 0 < self.low_frequency < self.high_frequency:
            raise OptionError(
                f"low_frequency is {self.low_frequency} and high_frequency {self.high_frequency}: "
                "both must be positive, and low_frequency must be the smaller one"
            )
        if not 0 < self.beta_slow <= self.beta_fast:
            raise OptionError(
                f"beta_slow is {self.beta_slow} and beta_fast {self.beta_fast}: both must be "
                "positive, and beta_slow must not be the larger one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """Queries and keys rotated by their position (https://arxiv.org/abs/2104.09864)."""

    base: float = 10_000.0
    d_rotary: int | None = None
    """How many channels are rotated in each head, starting with the first; None = all."""
    layout: RotaryLayout = "half"
    """Channels that form a pair: `half` (i, i + d/2) as in Llama, `interleaved` (2i, 2i + 1)."""
    scaling: RotaryScaling | None = None

    def __post_init__(self) -> None:
        _check_name("the rotary layout", self.layout, LAYOUTS)
        if not self.base > 1:
            raise OptionError(f"the rotary base is {self.base}: it must be more than 1")
        if self.scaling is not None and not isinstance(self.scaling, RotaryScaling):
            raise OptionError(f"the rotary scaling is {self.scaling!r}: give a RotaryScaling(...)")


def _check_name(what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise OptionError(f"{what} is {name!r}: choose from {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Alibi:
    """A penalty proportional to distance, one slope per head (https://arxiv.org/abs/2108.12409)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeBias:
    """A learned bias per head and bucket of distances, as in T5 (https://arxiv.org/abs/1910.10683)."""

    num_buckets: int = 32
    max_distance: int = 128
    """All distances from this one on share the last bucket."""

    def __post_init__(self) -> None:
        count = self.num_buckets
        if count < 4 or count % 2 or self.max_distance <= count // 2:
            raise OptionError(
                f"num_buckets is {count} and max_distance {self.max_distance}: "
                "num_buckets must be even and at least 4, max_distance more than half of it"
            )


Position = Rotary | Alibi | RelativeBias


def rotary_frequencies(rotary: Rotary, d_key: int) -> tuple[Float[Tensor, " pairs"], float]:
    """Radians per position for each channel pair, and the factor on the rotated channels."""
    d_rotary = d_key if rotary.d_rotary is None else rotary.d_rotary
    if d_rotary % 2 or not 0 < d_rotary <= d_key:
        raise OptionError(
            f"{d_rotary} channels cannot be rotated in pairs in a head of {d_key}: "
            "d_rotary must be even and at most d_key"
        )
    exponents = torch.arange(0, d_rotary, 2, dtype=torch.float64, device="cpu") / d_rotary
    frequencies = rotary.base**-exponents
    scaling = rotary.scaling
    if scaling is None:
        return frequencies, 1.0
    match scaling.kind:
        case "linear":
            return frequencies / scaling.factor, 1.0
        case "ntk":
            if d_rotary == 2:
                raise OptionError(
                    "ntk scaling needs more than 2 rotary channels: the fastest pair is not scaled"
                )
            base = rotary.base * scaling.factor ** (d_rotary / (d_rotary - 2))
            return base**-exponents, 1.0
        case "llama3":
            # Slow frequencies are divided, fast ones kept, and those in between blended.
            turns = scaling.original_length * frequencies / (2 * math.pi)
            reach = scaling.high_frequency - scaling.low_frequency
            fast_share = ((turns - scaling.low_frequency) / reach).clamp(0, 1)
            return torch.lerp(frequencies / scaling.factor, frequencies, fast_share), 1.0
        case "yarn":
            # The same, but blended by a ramp over the channel pairs.
            log_base = 2 * math.log(rotary.base)
            fast, slow = (
                d_rotary * math.log(scaling.original_length / (turns * 2 * math.pi)) / log_base
                for turns in (scaling.beta_fast, scaling.beta_slow)
            )
            low, high = max(math.floor(fast), 0), min(math.ceil(slow), d_rotary - 1)
            ramp = (torch.arange(d_rotary // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)
            blended = torch.lerp(frequencies, frequencies / scaling.factor, ramp.clamp(0, 1))
            factor = scaling.attention_factor
            if factor is None:
                factor = 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0
            return blended, factor


def rotary_angles(
    rotary: Rotary,
    d_key: int,
    positions: Int[Tensor, "*axes position"],
    dtype: torch.dtype = torch.float32,
) -> tuple[Float[Tensor, "*axes position pairs"], Float[Tensor, "*axes position pairs"]]:
    """Cosine and sine for each position and channel pair, on the device of `positions`."""
    frequencies, factor = rotary_frequencies(rotary, d_key)
    device = positions.device
    if widest_dtype(device) != torch.float64:
        positions = positions.cpu()
    angles = positions[..., None].double() * frequencies.to(positions.device)
    cos, sin = (angles.cos() * factor).to(dtype), (angles.sin() * factor).to(dtype)
    return cos.to(device), sin.to(device)


def widest_dtype(device: torch.device) -> torch.dtype:
    """The most precise floating dtype that a device supports: Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


@lru_cache(maxsize=8)
def angle_table(
    rotary: Rotary, d_key: int, room: int, device: torch.device, dtype: torch.dtype
) -> tuple[Float[Tensor, "position pairs"], Float[Tensor, "position pairs"]]:
    """`rotary_angles` for the first `room` positions, cached for all layers."""
    with torch.inference_mode(False):  # a table made in inference must also work in training
        return rotary_angles(rotary, d_key, torch.arange(room, device=device), dtype)


def angles_between(
    rotary: Rotary, d_key: int, first: int, last: int, like: Tensor
) -> tuple[Float[Tensor, "position pairs"], Float[Tensor, "position pairs"]]:
    """`rotary_angles` for positions `first..last` (half-open), to rotate tensors such as `like`."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    is_real = type(like) is Tensor and not is_transformed()  # not a tracing placeholder
    if torch.compiler.is_compiling() or not is_real:
        positions = torch.arange(first, last, device=like.device)
        return rotary_angles(rotary, d_key, positions, dtype)
    room = 1 << (max(last, 64) - 1).bit_length()
    cos, sin = angle_table(rotary, d_key, room, like.device, dtype)
    return cos[first:last], sin[first:last]


def rotate(
    x: Float[Tensor, "batch heads position width"],
    cos: Float[Tensor, "*batch position pairs"],
    sin: Float[Tensor, "*batch position pairs"],
    *,
    layout: RotaryLayout = "half",
) -> Float[Tensor, "batch heads position width"]:
    """`x` with its first channels rotated by the angles, pair by pair, and the others unchanged."""
    _check_name("the rotary layout", layout, LAYOUTS)
    pairs = cos.shape[-1]
    if 2 * pairs > x.shape[-1]:
        raise ShapeError(f"{pairs} rotary pairs need {2 * pairs} channels, but x has {x.shape[-1]}")
    if cos.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    rotated, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if layout == "half":
        first, second = rotated[..., :pairs], rotated[..., pairs:]
    else:
        first, second = rotated[..., 0::2], rotated[..., 1::2]
    both = (first * cos - second * sin, second * cos + first * sin)
    rotated = torch.cat(both, -1) if layout == "half" else torch.stack(both, -1).flatten(-2)
    rotated = rotated.to(x.dtype)
    return rotated if rest.shape[-1] == 0 else torch.cat([rotated, rest], -1)


def alibi_slopes(num_heads: int) -> Float[Tensor, " heads"]:
    """Each head's penalty per position: a geometric series, plus values in between if needed.

    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039], dtype=torch.float64)
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * power, 2)]
    return torch.tensor((slopes + between)[:num_heads], dtype=torch.float64, device="cpu")


def relative_buckets(
    ahead: Int[Tensor, " distances"], bias: RelativeBias, *, is_causal: bool
) -> Int[Tensor, " distances"]:
    """T5's bucket for each `key - query`: one per small distance, wider and wider beyond that."""
    num_buckets = bias.num_buckets if is_causal else bias.num_buckets // 2
    side = torch.zeros_like(ahead) if is_causal else (ahead > 0) * num_buckets
    distance = (-ahead).clamp(min=0) if is_causal else ahead.abs()
    exact = num_buckets // 2
    span = math.log(bias.max_distance / exact)
    logs = torch.log(distance.clamp(min=1).float() / exact) / span
    far = exact + (logs * (num_buckets - exact)).long()
    return side + torch.where(distance < exact, distance, far.clamp(max=num_buckets - 1))
