"""Shape: the sizes of a model that decide what its heads cost.

In: sizes, of which only the width, the heads and the layers must be given. Out: all of them,
checked. What follows from them is the business of `costs`.
"""

import math
import re
from dataclasses import dataclass

from headwise.checks import whole_number
from headwise.errors import OptionError
from headwise.formats import format_count

LARGEST_SIZE = 1 << 24
"""Beyond any model's width or number of heads: what is larger is a slip of the finger."""
_SIZES = re.compile(r"(\d{1,9})/(\d{1,9})(?::(\d{1,9}))?(?:x(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the attention of one stack of layers."""

    d_model: int
    num_heads: int
    num_kv_heads: int
    d_key: int
    d_value: int
    num_layers: int
    num_distinct: int | None = None
    """Layers with weights of their own, where layers share them; None = all."""
    is_causal: bool = True
    window: int | None = None
    """Keys that a query of a local layer sees, its own included; None = all. For a bidirectional
    model this is the whole width, half of it on either side."""
    num_local: int = 0
    """Layers that see a window only; the others see everything."""
    bias_in: bool = False
    """Whether Wq, Wk and Wv have a bias."""
    bias_out: bool = False
    has_qk_norm: bool = False
    """Whether each head's queries and keys are normalised, with one scale a dimension."""
    norms_span_heads: bool = False
    """Whether those norms are of all heads together, with a scale for each dimension of each."""
    norms_shift: bool = False
    """Whether those norms have a shift beside every scale."""
    has_sinks: bool = False
    """Whether each head has a learned logit that no key answers to."""
    context: int | None = None
    """Positions that the model was made for."""

    def __post_init__(self) -> None:
        """Refuse what no model can be."""
        for name in ("d_model", "num_heads", "num_kv_heads", "d_key", "d_value", "num_layers"):
            object.__setattr__(self, name, checked_size(name, getattr(self, name)))
        if self.num_heads % self.num_kv_heads:
            raise OptionError(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} KV heads evenly: give "
                f"one of {', '.join(map(str, divisors(self.num_heads)))}"
            )
        if self.window is not None:
            object.__setattr__(self, "window", whole_number("window", self.window))
            if self.window < 1:
                raise OptionError(f"the window is {self.window}: a query sees at least its own key")
        if self.num_distinct is not None and not 1 <= self.num_distinct <= self.num_layers:
            raise OptionError(
                f"{self.num_layers} layers cannot share {self.num_distinct} sets of weights"
            )
        if not 0 <= self.num_local <= self.num_layers:
            raise OptionError(f"{self.num_local} of {self.num_layers} layers cannot be local")

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def sizes(self) -> str:
        """Width, heads, KV heads and layers as `shape_of_sizes` reads them: 4096/32:8x32."""
        kv_heads = "" if self.group == 1 else f":{self.num_kv_heads}"
        layers = "" if self.num_layers == 1 else f"x{self.num_layers}"
        return f"{self.d_model}/{self.num_heads}{kv_heads}{layers}"

    @property
    def size_of_heads(self) -> str:
        """d_key; and d_value, where it is another."""
        return str(self.d_key) if self.d_key == self.d_value else f"{self.d_key} / {self.d_value}"

    @property
    def words(self) -> str:
        """The shape in a line."""
        served = "" if self.group == 1 else f" over {format_count(self.num_kv_heads, 'KV head')}"
        local = ""
        if self.window is not None and self.num_local:
            which = "all" if self.num_local == self.num_layers else str(self.num_local)
            local = f", {which} of them with a window of {self.window:,}"
        heads = f"{format_count(self.num_heads, 'head')} of {self.size_of_heads}{served}"
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
    """A shape in which what is left out follows the textbook: heads share out the width."""
    d_model, num_heads = checked_size("d_model", d_model), checked_size("num_heads", num_heads)
    if d_key is None:
        if d_model % num_heads:
            raise OptionError(
                f"{num_heads} heads cannot share a d_model of {d_model} evenly: give one of "
                f"{', '.join(map(str, divisors(d_model)))} heads, or a d_key of their own"
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
    """The shape that sizes name; None for a text that is none of these.

    >>> shape_of_sizes("4096/32:8x32").words
    'd_model 4,096, 32 heads of 128 over 8 KV heads, 32 layers'
    """
    found = _SIZES.fullmatch(text)
    if found is None:
        return None
    d_model, heads, kv_heads, layers = (None if one is None else int(one) for one in found.groups())
    assert d_model is not None and heads is not None, "the pattern asks for both"
    return make_shape(
        d_model=d_model,
        num_heads=heads,
        num_kv_heads=kv_heads,
        num_layers=1 if layers is None else layers,
    )


def checked_size(name: str, size: int) -> int:
    """A size, as Python's own number; raises where no model has such a one."""
    size = whole_number(name, size)
    if not 1 <= size <= LARGEST_SIZE:
        raise OptionError(f"{name} is {size:,}: it must be from 1 to {LARGEST_SIZE:,}", option=name)
    return size


def divisors(number: int) -> list[int]:
    """Every number that divides it, in order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [one for one in range(1, math.isqrt(number) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})
