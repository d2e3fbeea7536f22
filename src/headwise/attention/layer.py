"""The layer: four projections around the functional core, and nothing that the core does already.

In: `[batch, position, d_model]`. Out: the same shape. Parameters carry the textbook's names, Wq,
Wk, Wv, Wo, so that a textbook class and this layer load each other's `state_dict`.
"""

from collections.abc import Collection

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.attention.attend import CAUSAL, EVERY_KEY, attend_in_steps, mix
from headwise.attention.cache import Cache
from headwise.attention.head_slices import HeadSlices
from headwise.attention.positions import (
    Alibi,
    Position,
    RelativeBias,
    Rotary,
    alibi_slopes,
    angles_between,
    check_rotary,
    relative_buckets,
    rotary_frequencies,
    rotate,
    widest_dtype,
)
from headwise.attention.prepare import check_mask, check_shape
from headwise.attention.rules import Rules, Window, check_counts_of, check_window
from headwise.errors import CacheError, OptionError, ShapeError

PROJECTIONS = ("Wq", "Wk", "Wv", "Wo")


class Sinks(nn.Module):
    """One learned logit a head that takes a share of every softmax and carries no value."""

    def __init__(
        self,
        num_heads: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Zeros: at first a sink counts like one more key of score 0."""
        super().__init__()
        self.values = nn.Parameter(torch.zeros(num_heads, device=device, dtype=dtype))

    def forward(self) -> Float[Tensor, " heads"]:
        """The logits."""
        return self.values


class Slopes(nn.Module):
    """ALiBi's slopes: fixed, so neither saved with the weights nor rounded to their dtype."""

    def __init__(self, num_heads: int) -> None:
        """The slopes of all heads; a tensor-parallel plan leaves each rank its own."""
        super().__init__()
        self.num_heads, self.heads = num_heads, slice(None)

    def forward(self, device: torch.device) -> Float[Tensor, " heads"]:
        """Penalty per position of distance, in the widest dtype of the device."""
        return alibi_slopes(self.num_heads)[self.heads].to(widest_dtype(device)).to(device)


class MultiHeadAttention(nn.Module):
    """Multi-head attention: `output = concat(heads) Wo`.

    Only `d_model` and `num_heads` are needed. Heads may share keys and values (`num_kv_heads`),
    have sizes of their own (`d_key`, `d_value`), look at another sequence (`d_context` wide), look
    back only (`is_causal`), or near only (`window`). `bias` is True, False, or the names of the
    projections that have one.

    >>> layer = MultiHeadAttention(512, 8)
    >>> layer(torch.zeros(2, 5, 512)).shape
    torch.Size([2, 5, 512])
    """

    def __init__(  # noqa: PLR0913 - the one place where all options of the layer meet
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        d_key: int | None = None,
        d_value: int | None = None,
        d_context: int | None = None,
        bias: bool | Collection[str] = True,
        dropout: float = 0.0,
        is_causal: bool = False,
        window: Window | None = None,
        position: Position | None = None,
        softcap: float | None = None,
        qk_norm: bool = False,
        sinks: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Fresh weights, Xavier-uniform; biases at zero."""
        super().__init__()
        self.d_model, self.num_heads = d_model, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        check_counts(d_model=d_model, num_heads=num_heads, num_kv_heads=self.num_kv_heads)
        check_sharing(num_heads, self.num_kv_heads)
        self.d_key = own_size(d_model, num_heads) if d_key is None else d_key
        self.d_value = self.d_key if d_value is None else d_value
        self.d_context = d_model if d_context is None else d_context
        check_counts(d_key=self.d_key, d_value=self.d_value, d_context=self.d_context)
        self.dropout, self.is_causal, self.window = dropout, is_causal, window
        self.softcap, self.position = softcap, position
        check_window(window)
        Rules(softcap=softcap, dropout=dropout)
        biased = biased_projections(bias)
        sizes = {
            "Wq": (d_model, self.num_heads * self.d_key),
            "Wk": (self.d_context, self.num_kv_heads * self.d_key),
            "Wv": (self.d_context, self.num_kv_heads * self.d_value),
            "Wo": (self.num_heads * self.d_value, d_model),
        }
        self.Wq, self.Wk, self.Wv, self.Wo = (
            nn.Linear(*sizes[name], bias=name in biased, device=device, dtype=dtype)
            for name in PROJECTIONS
        )
        self.q_norm, self.k_norm = (
            nn.RMSNorm(self.d_key, device=device, dtype=dtype) if qk_norm else None for _ in "qk"
        )
        self.sinks, self.slopes, self.relative_bias = None, None, None
        if sinks:
            self.sinks = Sinks(num_heads, device=device, dtype=dtype)
        match position:
            case RelativeBias():
                self.relative_bias = nn.Embedding(
                    position.num_buckets, num_heads, device=device, dtype=dtype
                )
            case Alibi():
                self.slopes = Slopes(num_heads)
            case Rotary():
                rotary_frequencies(position, check_rotary(position, self.d_key))
            case _ if position is not None:
                raise OptionError(
                    f"position is {position!r}: give Rotary(), Alibi(), RelativeBias() or None"
                )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projections anew; biases and sinks at 0, norms at 1."""
        for name in PROJECTIONS:
            projection: nn.Linear = getattr(self, name)
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        for learned in (self.sinks, self.relative_bias):
            for parameter in () if learned is None else learned.parameters():
                nn.init.zeros_(parameter)
        for norm in (self.q_norm, self.k_norm):
            if norm is not None:
                norm.reset_parameters()

    @property
    def heads(self) -> HeadSlices:
        """Each head's own Wq, Wk, Wv and Wo, as views on the live parameters."""
        return HeadSlices(self)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: Float[Tensor, "batch key d_context"] | None = None,
        *,
        mask: Tensor | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
        cache: Cache | None = None,
        gates: Float[Tensor, "*batch heads"] | None = None,
        need_weights: bool = False,
    ) -> (
        Float[Tensor, "batch query d_model"]
        | tuple[Float[Tensor, "batch query d_model"], Float[Tensor, "batch heads query key"]]
    ):
        """Each position's mix of what its heads see; with `need_weights` also every head's weights.

        `mask`: bool or 0/1 (True may attend) or floating (added), two to four axes. `lengths`: real
        positions of each right-padded sequence (of the context, if there is one). `gates`: a factor
        on each head's share, 0 silences it. The last query stands at the last key, cached keys
        included.
        """
        self._check(x, context, lengths=lengths, cache=cache)
        source = x if context is None else context
        queries, keys, values = self.projected(x, source, 0 if cache is None else cache.seen)
        if gates is not None:
            gates = check_gates(gates, queries)
        rules = self.rules_for(mask, lengths, is_self=context is None, device=x.device)
        if cache is not None:
            if mask is not None:
                check_mask(mask, queries, cache.held_after(keys.shape[2]))
            cache.belong_to(self)
            keys, values = cache.append(keys, values)
        if need_weights:
            steps = attend_in_steps(queries, keys, values, rules=rules)
            return self._output(steps.mixed, gates), steps.weights
        return self._output(mix(queries, keys, values, rules).output, gates)

    def projected(
        self,
        x: Float[Tensor, "batch query d_model"],
        source: Float[Tensor, "batch key d_context"],
        seen: int = 0,
    ) -> tuple[
        Float[Tensor, "batch heads query d_key"],
        Float[Tensor, "batch kv_heads key d_key"],
        Float[Tensor, "batch kv_heads key d_value"],
    ]:
        """Queries, keys and values as attention gets them, after `seen` cached positions."""
        queries = split_heads(self.Wq(x), self.d_key)
        keys = split_heads(self.Wk(source), self.d_key)
        values = split_heads(self.Wv(source), self.d_value)
        if self.q_norm is not None and self.k_norm is not None:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        if isinstance(self.position, Rotary):
            queries, keys = self._rotated(queries, keys, self.position, seen)
        return queries, keys, values

    def _output(self, mixed: Tensor, gates: Tensor | None) -> Tensor:
        if gates is not None:
            mixed = mixed * gates.to(mixed.dtype)
        output: Tensor = self.Wo(mixed.transpose(1, 2).flatten(2))
        return output

    def rules_for(
        self,
        mask: Tensor | None,
        lengths: Tensor | None,
        *,
        is_self: bool,
        device: torch.device,
    ) -> Rules:
        """What the layer's attention obeys on such an input, which lies on the device."""
        own = (self.window, self.slopes, self.relative_bias, self.softcap, self.sinks)
        dropout = self.dropout if self.training else 0.0
        if mask is None and lengths is None and not dropout and own == (None,) * len(own):
            return CAUSAL if self.is_causal else EVERY_KEY
        return Rules(
            is_causal=self.is_causal,
            window=self.window,
            lengths=lengths,
            query_lengths=lengths if is_self else None,
            mask=mask,
            slopes=None if self.slopes is None else self.slopes(device),
            distance_bias=self._distance_bias(device),
            softcap=self.softcap,
            sinks=None if self.sinks is None else self.sinks(),
            dropout=dropout,
        )

    def _distance_bias(self, device: torch.device) -> Float[Tensor, "heads distances"] | None:
        if self.relative_bias is None:
            return None
        assert isinstance(self.position, RelativeBias)
        reach = self.position.max_distance
        ahead = torch.arange(-reach, reach + 1, device=device)
        buckets = relative_buckets(ahead, self.position, is_causal=self.is_causal)
        table: Tensor = self.relative_bias(buckets)
        return table.T

    def _rotated(
        self, queries: Tensor, keys: Tensor, rotary: Rotary, seen: int
    ) -> tuple[Tensor, Tensor]:
        num_queries, new = queries.shape[2], keys.shape[2]
        if num_queries > new:
            raise ShapeError(
                f"rotary positions need at least as many keys as queries; got {num_queries} "
                f"queries and {new} keys"
            )
        cos, sin = angles_between(rotary, self.d_key, seen, seen + new, queries)
        keys = rotate(keys, cos, sin, layout=rotary.layout)
        last = slice(new - num_queries, None)  # the last query stands at the last key
        return rotate(queries, cos[last], sin[last], layout=rotary.layout), keys

    def _check(
        self, x: Tensor, context: Tensor | None, *, lengths: Tensor | None, cache: Cache | None
    ) -> None:
        if x.dim() != 3 or x.shape[2] != self.d_model:
            raise ShapeError(
                f"x is {list(x.shape)}; this layer takes [batch, position, d_model {self.d_model}]"
            )
        if context is None and self.d_context != self.d_model:
            raise ShapeError(
                f"this layer attends to a context {self.d_context} wide; call it with x and context"
            )
        if context is not None:
            if context.dim() != 3 or context.shape[2] != self.d_context:
                raise ShapeError(
                    f"context is {list(context.shape)}; this layer takes [batch, position, "
                    f"d_context {self.d_context}] (a mask is passed as mask=...)"
                )
            if cache is not None:
                raise OptionError("a cache is for self-attention: it cannot take a context")
            if lengths is not None and (self.is_causal or self.window or self.position):
                raise OptionError(
                    "lengths of a context do not go with is_causal, window or position: "
                    "queries stand at the end of the context, which padding would move"
                )
        if lengths is not None:
            check_counts_of("lengths", lengths)
            check_shape(lengths, "lengths", x.shape[0])
        if cache is not None and (isinstance(cache, type) or not isinstance(cache, Cache)):
            raise CacheError(f"cache is {cache!r}: give GrowingCache(), FixedCache or RollingCache")
        if cache is not None and cache.window is not None:
            before, _ = Rules(window=self.window).bounds
            if before is None or before >= cache.window:
                looks = "all positions" if before is None else f"{before + 1} positions"
                raise CacheError(
                    f"this cache holds a window of {cache.window}; the layer looks at {looks}"
                )
        if cache is not None and lengths is not None:
            raise OptionError(
                "lengths do not go with a cache: right padding would stand between cached keys; "
                "pad on the left and give a mask"
            )

    def extra_repr(self) -> str:
        """The sizes and options that are not the default."""
        parts = [f"d_model={self.d_model}", f"num_heads={self.num_heads}"]
        options = {
            "num_kv_heads": (self.num_kv_heads, self.num_heads),
            "d_key": (self.d_key, self.d_model // self.num_heads),
            "d_value": (self.d_value, self.d_key),
            "d_context": (self.d_context, self.d_model),
            "dropout": (self.dropout, 0.0),
            "is_causal": (self.is_causal, False),
            "window": (self.window, None),
            "position": (self.position, None),
            "softcap": (self.softcap, None),
        }
        parts += [f"{name}={value}" for name, (value, usual) in options.items() if value != usual]
        return ", ".join(parts)


def split_heads(
    projected: Float[Tensor, "batch position stacked"], width: int
) -> Float[Tensor, "batch heads position {width}"]:
    """One large projection as heads of `width`, without copying; how many there are follows."""
    heads: Tensor = projected.unflatten(-1, (-1, width))
    return heads.transpose(1, 2)


def check_counts(**counts: int) -> None:
    """Raise unless every count is a positive whole number."""
    for name, count in counts.items():
        if not hasattr(count, "__index__"):
            raise OptionError(f"{name} is {count!r}: give a whole number")
    if min(counts.values()) < 1:
        given = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise OptionError(f"{given}: all must be at least 1")


def check_sharing(num_heads: int, num_kv_heads: int) -> None:
    """Raise unless heads share KV heads evenly."""
    if num_heads % num_kv_heads:
        raise OptionError(
            f"num_heads {num_heads} is not a multiple of num_kv_heads {num_kv_heads}: "
            "each KV head must serve as many heads as the next"
        )


def own_size(d_model: int, num_heads: int) -> int:
    """d_model / num_heads, the usual size of a head."""
    if d_model % num_heads:
        raise OptionError(
            f"d_model {d_model} is not a multiple of num_heads {num_heads}: "
            f"choose another number of heads, or give d_key (for instance {d_model // num_heads})"
        )
    return d_model // num_heads


def biased_projections(bias: bool | Collection[str]) -> Collection[str]:
    """Names of the projections that have a bias."""
    if isinstance(bias, bool):
        return PROJECTIONS if bias else ()
    if not isinstance(bias, Collection):
        raise OptionError(f"bias is {bias!r}: give True, False or names of projections")
    names = (bias,) if isinstance(bias, str) else bias
    unknown = [name for name in names if name not in PROJECTIONS]
    if unknown:
        raise OptionError(
            f"bias names {', '.join(unknown)}: the projections are {', '.join(PROJECTIONS)}"
        )
    return names


def check_gates(gates: Tensor, queries: Tensor) -> Float[Tensor, "#batch heads 1 1"]:
    """The gates, one a head or one a sequence and head, ready to multiply."""
    if not isinstance(gates, Tensor):
        raise OptionError(
            f"gates is a {type(gates).__name__}: give a tensor [heads] or [batch, heads]"
        )
    batch, heads = queries.shape[:2]
    if gates.shape not in ((heads,), (batch, heads), (1, heads)):
        raise ShapeError(
            f"gates are {list(gates.shape)}; give [heads {heads}] or [batch {batch}, heads {heads}]"
        )
    return gates.view(-1, heads, 1, 1)
