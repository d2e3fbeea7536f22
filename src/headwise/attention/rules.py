"""Rules: which keys a query may see in an attention computation, and how scores become weights.

`Rules` checks a caller's options as far as possible without the queries and keys; `prepare.py`
checks the rest.
"""

import math
import operator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.errors import MaskError, OptionError

Window = int | tuple[int | None, int | None]

PER_HEAD = {"slopes": ("heads",), "distance_bias": ("heads", "distances"), "sinks": ("heads",)}
"""Fields of Rules that have one entry per head, and their axes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rules:
    """Everything that shapes attention besides queries, keys and values.

    Query `i` is at key position `i + offset`. By default the last query is at the last key
    (bottom-right), which is what a cache needs; offset 0 is the top-left alignment of
    `scaled_dot_product_attention`.

    >>> Rules(is_causal=True, window=256).bounds
    (255, 0)
    """

    is_causal: bool = False
    """Whether each query sees only keys up to its own position."""
    window: Window | None = None
    """`w`: only keys less than `w` positions away; or `(before, after)`, where None = no bound."""
    lengths: Int[Tensor, " batch"] | None = None
    """Number of real keys in each right-padded sequence."""
    query_lengths: Int[Tensor, " batch"] | None = None
    """Number of real queries in each right-padded sequence; output rows after them are zeros."""
    offset: int | Int[Tensor, " batch"] | None = None
    """Key position of the first query; None = bottom-right."""
    mask: Tensor | None = None
    """Bool or 0/1 integer (True: may attend), or floating (added to scores); two to four axes."""
    slopes: Float[Tensor, " heads"] | None = None
    """ALiBi: each head's penalty per position of distance."""
    distance_bias: Float[Tensor, "heads distances"] | None = None
    """Bias for each `key - query`; the middle column is for 0, the end columns for all beyond."""
    scale: float | None = None
    """Factor on the scores; None = 1 / sqrt(d_key)."""
    softcap: float | None = None
    """Scores become `softcap * tanh(scores / softcap)`, before masks and biases."""
    sinks: Float[Tensor, " heads"] | None = None
    """One logit per head. It joins the softmax and carries no value."""
    dropout: float = 0.0
    """Probability of dropping each weight; the others are scaled up."""

    def __post_init__(self) -> None:
        for name in ("softcap", "dropout", "scale"):
            number = getattr(self, name)
            if number is not None and not hasattr(number, "__float__"):
                raise OptionError(f"{name} is {number!r}: give a number", option=name)
        if isinstance(self.scale, Tensor):
            raise OptionError(
                f"scale is a {type(self.scale).__name__}, whose gradient would be lost: give a "
                "number, or multiply a learned factor into the queries",
                option="scale",
            )
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise OptionError(
                f"softcap is {self.softcap}: it must be positive and finite, or None for no cap",
                option="softcap",
            )
        if not 0 <= self.dropout < 1:
            raise OptionError(f"dropout is {self.dropout}: it must be in [0, 1)", option="dropout")
        if self.mask is not None and not isinstance(self.mask, Tensor):
            raise MaskError(f"the mask is a {type(self.mask).__name__}: give a tensor")
        for name, axes in PER_HEAD.items():
            tensor = getattr(self, name)
            is_tensor = isinstance(tensor, Tensor)
            if tensor is not None and not (is_tensor and tensor.dim() == len(axes)):
                shape = list(tensor.shape) if is_tensor else f"a {type(tensor).__name__}"
                needed = f"give a tensor [{', '.join(axes)}]"
                raise OptionError(f"{name} is {shape}: {needed}", option=name)
        if self.distance_bias is not None and self.distance_bias.shape[-1] % 2 == 0:
            raise OptionError(
                f"distance_bias has {self.distance_bias.shape[-1]} columns: "
                "it needs an odd number, for distances -n to n"
            )
        _check_window(self.window)
        for name in ("lengths", "query_lengths"):
            if getattr(self, name) is not None:
                _check_integers(name, getattr(self, name))
        offset: Any = self.offset
        if isinstance(offset, Tensor):
            _check_integers("offset", offset)
        elif offset is not None and not isinstance(offset, int | torch.SymInt):
            if not hasattr(offset, "__index__"):
                raise OptionError(
                    f"offset is {offset!r}: give a whole number, or an integer tensor with one "
                    "number per sequence",
                    option="offset",
                )
            object.__setattr__(self, "offset", operator.index(offset))

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """How many keys before and after its own position a query may see; None = no bound."""
        if self.window is None:
            before, after = None, None
        elif isinstance(self.window, tuple):
            before, after = self.window
        else:
            before, after = self.window - 1, self.window - 1
        return (before, 0 if self.is_causal else after)

    @property
    def has_distances(self) -> bool:
        """Whether the bias on a score depends on the distance between query and key."""
        return self.slopes is not None or self.distance_bias is not None


def _check_window(window: Window | None) -> None:
    sides = window if isinstance(window, tuple) else (window,)
    least = 0 if isinstance(window, tuple) else 1
    are_counts = all(
        side is None or (hasattr(side, "__index__") and side >= least) for side in sides
    )
    if not are_counts or (isinstance(window, tuple) and len(window) != 2):
        raise OptionError(
            f"window is {window}: it must be a positive number of keys, or a pair (before, after) "
            "in which each is None or at least 0",
            option="window",
        )


def _check_integers(name: str, counts: Any) -> None:
    is_tensor = isinstance(counts, Tensor)
    if is_tensor and not counts.is_floating_point() and counts.dtype != torch.bool:
        return
    kind = str(counts.dtype) if is_tensor else repr(counts)
    raise OptionError(
        f"{name} is {kind}: give an integer tensor with one number per sequence", option=name
    )


@dataclass(frozen=True, slots=True)
class Band:
    """Keys a query may see, from `before` positions back to `after` ahead; None = no bound.

    Query `i` is at key position `i + offset`.
    """

    before: int | None
    after: int | None
    offset: int

    @property
    def is_full(self) -> bool:
        """Whether every query sees every key."""
        return self.before is None and self.after is None

    @property
    def is_causal(self) -> bool:
        """Whether every query sees all keys up to its own, and the first is at key 0 or later."""
        return self.before is None and self.after == 0 and self.offset >= 0

    @property
    def is_triangle(self) -> bool:
        """Whether the band is causal from the first key on, as a fused kernel's flag means it."""
        return self.is_causal and self.offset == 0

    def keys_of(self, first: int, last: int, num_keys: int) -> tuple[int, int]:
        """Half-open range of keys that any of the queries `first..last` may see."""
        low = 0 if self.before is None else first + self.offset - self.before
        high = num_keys if self.after is None else last + self.offset + self.after + 1
        low = min(max(low, 0), num_keys)
        return low, max(min(high, num_keys), low)

    def range_of(
        self, rows: Int[Tensor, " query"], num_keys: int
    ) -> tuple[Int[Tensor, " query"], Int[Tensor, " query"]]:
        """Half-open range of keys that each of the queries `rows` may see."""
        positions = rows + self.offset
        low, high = torch.zeros_like(positions), torch.full_like(positions, num_keys)
        if self.before is not None:
            low = (positions - self.before).clamp(0, num_keys)
        if self.after is not None:
            high = (positions + self.after + 1).clamp(0, num_keys)
        return low, torch.maximum(low, high)

    def simplify(self, num_queries: int, num_keys: int) -> "Band":
        """The band without the bounds that block nothing."""
        before, after = self.before, self.after
        if before is not None and num_queries - 1 + self.offset - before <= 0:
            before = None
        if after is not None and self.offset + after >= num_keys - 1:
            after = None
        return Band(before, after, self.offset)

    def sees(self, ahead: Int[Tensor, "*pairs"]) -> Bool[Tensor, "*pairs"]:
        """For each pair, whether the query may see a key `ahead` positions after its own."""
        allowed = torch.ones_like(ahead, dtype=torch.bool)
        if self.before is not None:
            allowed &= ahead >= -self.before
        if self.after is not None:
            allowed &= ahead <= self.after
        return allowed


def restrict_mask(mask: Tensor | None, allowed: Tensor) -> Tensor:
    """A bool or additive mask that hides what `mask` hides and the pairs that are not `allowed`."""
    if mask is None:
        return allowed
    if mask.dtype == torch.bool:
        return mask & allowed
    return mask.masked_fill(~allowed, -torch.inf)


def as_4d_mask(mask: Tensor) -> Tensor:
    """The mask as bool (True: may attend) or float, `[#batch #heads query key]`."""
    if not 2 <= mask.dim() <= 4:
        raise MaskError(
            f"the mask has {mask.dim()} axes {list(mask.shape)}: give [query, key], "
            "[batch, query, key] or [batch, heads, query, key]"
        )
    if not mask.is_floating_point() and mask.dtype != torch.bool:
        mask = mask != 0
    if mask.dim() == 3:
        return mask[:, None]
    return mask[None, None] if mask.dim() == 2 else mask


def mask_part(
    mask: Tensor | None,
    batch: slice = slice(None),
    queries: slice = slice(None),
    keys: slice = slice(None),
) -> Tensor | None:
    """Part of a mask `[#batch #heads #query #key]`; axes of size 1 are kept."""
    if mask is None:
        return None
    mask = as_4d_mask(mask)
    mask = mask if mask.shape[0] == 1 else mask[batch]
    mask = mask if mask.shape[2] == 1 else mask[:, :, queries]
    return mask if mask.shape[3] == 1 else mask[..., keys]
