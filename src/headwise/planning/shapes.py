"""Sizes of a model's attention -> Shape, complete and checked; `plans` computes its costs."""

import math
import re
from dataclasses import dataclass

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.formats import format_count

LARGEST_SIZE = 1 << 24
"""Larger than any model's width or number of heads: anything above it is treated as a typo."""
_SIZES = re.compile(
    r"(?P<d_model>\d{1,9})/(?P<num_heads>\d{1,9})"
    r"(:(?P<num_kv_heads>\d{1,9}))?(x(?P<num_layers>\d{1,9}))?",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the attention in one stack of layers."""

    d_model: int
    num_heads: int
    num_kv_heads: int
    d_key: int
    d_value: int
    num_layers: int
    num_distinct: int | None = None
    """Number of distinct sets of weights if layers share them; None if every layer has its own."""
    is_causal: bool = True
    window: int | None = None
    """Number of keys that a query sees in a local layer, including its own; None if all. For a
    bidirectional model this is the full width, half of it on either side."""
    num_local: int = 0
    """Number of layers in which queries see only the window; in the others they see all keys."""
    bias_in: bool = False
    """Whether Wq, Wk and Wv have a bias."""
    bias_out: bool = False
    """Whether Wo has a bias."""
    has_qk_norm: bool = False
    """Whether each head's queries and keys are normalised, with one scale per dimension."""
    norms_span_heads: bool = False
    """Whether query and key norms span all heads, with a scale for every dimension of each head."""
    norms_shift: bool = False
    """Whether the query and key norms have a shift for every scale."""
    has_sinks: bool = False
    """Whether each head has a learned logit that belongs to no key."""
    context: int | None = None
    """Longest sequence that the model was designed for, in positions."""

    def __post_init__(self) -> None:
        """Check every size; raise OptionError for sizes that no model can have."""
        for name in ("d_model", "num_heads", "num_kv_heads", "d_key", "d_value", "num_layers"):
            object.__setattr__(self, name, model_size(name, getattr(self, name)))
        if self.num_heads % self.num_kv_heads:
            raise OptionError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} KV heads evenly: choose "
                f"the number of KV heads from {', '.join(map(str, divisors(self.num_heads)))}"
            )
        if self.window is not None:
            object.__setattr__(self, "window", whole_number("window", self.window, least=1))
        if self.num_distinct is not None:
            whole_number("num_distinct", self.num_distinct, least=1, most=self.num_layers)
        whole_number("num_local", self.num_local, least=0, most=self.num_layers)

    @property
    def group(self) -> int:
        """Number of query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def sizes(self) -> str:
        """Width, heads, KV heads and layers as `shape_of_sizes` reads them: 4096/32:8x32."""
        kv_heads = "" if self.group == 1 else f":{self.num_kv_heads}"
        layers = "" if self.num_layers == 1 else f"x{self.num_layers}"
        return f"{self.d_model}/{self.num_heads}{kv_heads}{layers}"

    @property
    def head_size(self) -> str:
        """d_key, followed by d_value if it differs."""
        return str(self.d_key) if self.d_key == self.d_value else f"{self.d_key} / {self.d_value}"

    @property
    def summary(self) -> str:
        """The main sizes in one line."""
        kv_heads = "" if self.group == 1 else f" over {format_count(self.num_kv_heads, 'KV head')}"
        local = ""
        if self.window is not None and self.num_local:
            count = "all" if self.num_local == self.num_layers else str(self.num_local)
            local = f", {count} of them with a window of {self.window:,}"
        heads = f"{format_count(self.num_heads, 'head')} of {self.head_size}{kv_heads}"
        layers = f"{format_count(self.num_layers, 'layer')}{local}"
        return f"d_model {self.d_model:,}, {heads}, {layers}"


def make_shape(
    *,
    d_model: int,
    num_heads: int,
    num_kv_heads: int | None = None,
    d_key: int | None = None,
    d_value: int | None = None,
    num_layers: int = 1,
    window: int | None = None,
) -> Shape:
    """A shape with textbook defaults: `d_model` is divided evenly among the heads."""
    d_model, num_heads = model_size("d_model", d_model), model_size("num_heads", num_heads)
    if d_key is None:
        if d_model % num_heads:
            raise OptionError(
                f"{num_heads} heads cannot share a d_model of {d_model} evenly: choose the "
                f"number of heads from {', '.join(map(str, divisors(d_model)))}, or give d_key"
            )
        d_key = d_model // num_heads
    return Shape(
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=num_heads if num_kv_heads is None else num_kv_heads,
        d_key=d_key,
        d_value=d_key if d_value is None else d_value,
        num_layers=num_layers,
        window=window,
        num_local=0 if window is None else num_layers,
    )


def shape_of_sizes(text: str) -> Shape | None:
    """The shape that sizes such as 768/12x12 describe; None for any other text.

    >>> shape_of_sizes("4096/32:8x32").summary
    'd_model 4,096, 32 heads of 128 over 8 KV heads, 32 layers'
    """
    match = _SIZES.fullmatch(text)
    if match is None:
        return None
    return make_shape(**{name: int(size) for name, size in match.groupdict().items() if size})


def model_size(name: str, size: int) -> int:
    """`size` as an int; raises OptionError if no model has such a width or count."""
    return whole_number(name, size, least=1, most=LARGEST_SIZE)


def divisors(number: int) -> list[int]:
    """Every divisor of `number`, in ascending order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})
