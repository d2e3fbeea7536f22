"""The layer: four projections around `attend.mix`.

Its parameters have the textbook's names (Wq, Wk, Wv, Wo), so that a textbook class and this layer
can load each other's `state_dict`.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.attention.attend import CAUSAL, EVERY_KEY, attend_in_steps, mix
from headwise.attention.cache import KeyValueCache
from headwise.attention.positions import (
    Alibi,
    Position,
    RelativeBias,
    Rotary,
    alibi_slopes,
    angles_between,
    relative_buckets,
    rotary_frequencies,
    rotate,
    widest_dtype,
)
from headwise.attention.prepare import check_mask
from headwise.attention.rules import Rules, Window
from headwise.checks import whole_number
from headwise.errors import CacheError, OptionError, ShapeError

PROJECTIONS = ("Wq", "Wk", "Wv", "Wo")


class Sinks(nn.Module):
    """One learned logit per head. It takes a share of every softmax but carries no value."""

    def __init__(self, values: Float[Tensor, " heads"]) -> None:
        """Start at `values`; a sink of 0 acts like one more key with score 0."""
        super().__init__()
        self.values = nn.Parameter(values)

    def forward(self) -> Float[Tensor, " heads"]:
        """The logits."""
        return self.values


class Slopes(nn.Module):
    """ALiBi's slopes: constants that are neither saved with the weights nor cast to their dtype."""

    def __init__(self, num_heads: int) -> None:
        """Start with all heads; a tensor-parallel plan limits `heads` to those on the rank."""
        super().__init__()
        self.num_heads, self.heads = num_heads, slice(None)

    def forward(self, device: torch.device) -> Float[Tensor, " heads"]:
        """Each head's penalty per position of distance, in the device's widest dtype."""
        return alibi_slopes(self.num_heads)[self.heads].to(widest_dtype(device)).to(device)


class HeadSlice(NamedTuple):
    """One head's matrices, used as in `queries = x @ Wq + bq` and `output += mixed @ Wo`."""

    kv_head: int
    """The KV head that serves this head; several heads share one in grouped attention."""
    Wq: Float[Tensor, "d_model d_key"]
    Wk: Float[Tensor, "d_context d_key"]
    Wv: Float[Tensor, "d_context d_value"]
    Wo: Float[Tensor, "d_value d_model"]
    bq: Float[Tensor, " d_key"] | None
    bk: Float[Tensor, " d_key"] | None
    bv: Float[Tensor, " d_value"] | None


class NoSuchSlice(ShapeError, IndexError):
    """A head number that the layer does not have."""


class HeadSlices(Sequence[HeadSlice]):
    """Each head's slices of a layer's parameters, as views: writing to them changes the layer."""

    def __init__(self, layer: "MultiHeadAttention") -> None:
        self._layer = layer

    def __len__(self) -> int:
        return self._layer.num_heads

    @overload
    def __getitem__(self, head: int) -> HeadSlice: ...
    @overload
    def __getitem__(self, head: slice) -> list[HeadSlice]: ...
    def __getitem__(self, head: int | slice) -> HeadSlice | list[HeadSlice]:
        if isinstance(head, slice):
            return [self[index] for index in range(len(self))[head]]
        if not -len(self) <= head < len(self):
            raise NoSuchSlice(f"head {head} is not in this layer: it has heads 0..{len(self) - 1}")
        layer = self._layer
        head %= len(self)
        kv_head = head // (layer.num_heads // layer.num_kv_heads)
        Wq, bq = _head_rows(layer.Wq, head, layer.d_key)
        Wk, bk = _head_rows(layer.Wk, kv_head, layer.d_key)
        Wv, bv = _head_rows(layer.Wv, kv_head, layer.d_value)
        Wo = layer.Wo.weight.unflatten(1, (-1, layer.d_value))[:, head].T
        return HeadSlice(kv_head, Wq, Wk, Wv, Wo, bq, bk, bv)


def _head_rows(projection: nn.Linear, head: int, width: int) -> tuple[Tensor, Tensor | None]:
    rows = slice(head * width, (head + 1) * width)
    bias: Tensor | None = projection.bias
    return projection.weight[rows].T, None if bias is None else bias[rows]


class MultiHeadAttention(nn.Module):
    """Multi-head attention: `output = concat(heads) Wo`.

    Only `d_model` and `num_heads` are required. Heads may share keys and values (`num_kv_heads`),
    have other sizes (`d_key`, `d_value`), attend to another sequence (of width `d_context`), attend
    only backwards (`is_causal`) or only nearby (`window`). `bias` is True, False, or the names of
    the projections that have one.

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
        """Initialize weights from Xavier's uniform distribution, and biases to zero."""
        super().__init__()
        self.d_model = whole_number("d_model", d_model, least=1)
        self.num_heads = num_heads = whole_number("num_heads", num_heads, least=1)
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.num_kv_heads = whole_number("num_kv_heads", kv_heads, least=1)
        if num_heads % self.num_kv_heads:
            raise OptionError(
                f"num_heads {num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}: "
                "every KV head must serve the same number of heads"
            )
        if d_key is None and d_model % num_heads:
            raise OptionError(
                f"d_model {d_model} is not a multiple of num_heads {num_heads}: choose another "
                f"number of heads, or give d_key (for instance {d_model // num_heads})"
            )
        d_key = d_model // num_heads if d_key is None else d_key
        self.d_key = whole_number("d_key", d_key, least=1)
        self.d_value = whole_number("d_value", d_key if d_value is None else d_value, least=1)
        d_context = d_model if d_context is None else d_context
        self.d_context = whole_number("d_context", d_context, least=1)
        self.dropout, self.is_causal, self.window = dropout, is_causal, window
        self.softcap, self.position = softcap, position
        Rules(softcap=softcap, dropout=dropout, window=window)  # raises if one is out of range
        biased = _names_with_bias(bias)
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
            self.sinks = Sinks(torch.zeros(num_heads, device=device, dtype=dtype))
        match position:
            case RelativeBias():
                self.relative_bias = nn.Embedding(
                    position.num_buckets, num_heads, device=device, dtype=dtype
                )
            case Alibi():
                self.slopes = Slopes(num_heads)
            case Rotary():
                rotary_frequencies(position, self.d_key)  # raises if they do not fit together
            case _ if position is not None:
                raise OptionError(
                    f"position is {position!r}: give Rotary(), Alibi(), RelativeBias() or None"
                )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new projection weights; set all biases and sinks to 0, and norm gains to 1."""
        for projection in (self.Wq, self.Wk, self.Wv, self.Wo):
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
        """Each head's own Wq, Wk, Wv and Wo, as views of the live parameters."""
        return HeadSlices(self)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: Float[Tensor, "batch key d_context"] | None = None,
        *,
        mask: Tensor | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
        cache: KeyValueCache | None = None,
        gates: Float[Tensor, "*batch heads"] | None = None,
        need_weights: bool = False,
    ) -> (
        Float[Tensor, "batch query d_model"]
        | tuple[Float[Tensor, "batch query d_model"], Float[Tensor, "batch heads query key"]]
    ):
        """The layer's output and, with `need_weights`, the weights of every head.

        `mask`: bool or 0/1 (True: may attend), or floating (added to scores), with two to four
        axes. `lengths`: number of real positions in each right-padded sequence (of the context, if
        given). `gates`: factor on each head's output; 0 silences the head. The last query is at the
        last key, counting cached keys.
        """
        self._check_call(x, context, lengths, cache)
        source = x if context is None else context
        queries, keys, values = self.project(x, source, 0 if cache is None else cache.seen)
        if gates is not None:
            gates = _check_gates(gates, queries)
        rules = self.make_rules(mask, lengths, is_self=context is None, device=x.device)
        if cache is not None:
            if mask is not None:
                check_mask(mask, queries, cache.length_after(keys.shape[2]))
            cache.belong_to(self)
            keys, values = cache.append(keys, values)
        weights: Tensor | None = None
        if need_weights:
            steps = attend_in_steps(queries, keys, values, rules=rules)
            mixed, weights = steps.mixed, steps.weights
        else:
            mixed = mix(queries, keys, values, rules).output
        if gates is not None:
            mixed = mixed * gates.to(mixed.dtype)
        output: Tensor = self.Wo(mixed.transpose(1, 2).flatten(2))
        return output if weights is None else (output, weights)

    def project(
        self,
        x: Float[Tensor, "batch query d_model"],
        source: Float[Tensor, "batch key d_context"],
        seen: int = 0,
    ) -> tuple[
        Float[Tensor, "batch heads query d_key"],
        Float[Tensor, "batch kv_heads key d_key"],
        Float[Tensor, "batch kv_heads key d_value"],
    ]:
        """Queries, keys and values as passed to attention, for positions from `seen` on."""
        queries = self.Wq(x).unflatten(-1, (-1, self.d_key)).transpose(1, 2)
        keys = self.Wk(source).unflatten(-1, (-1, self.d_key)).transpose(1, 2)
        values = self.Wv(source).unflatten(-1, (-1, self.d_value)).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            queries, keys = self.q_norm(queries), self.k_norm(keys)
        if isinstance(self.position, Rotary):
            num_queries, num_keys, layout = queries.shape[2], keys.shape[2], self.position.layout
            if num_queries > num_keys:
                raise ShapeError(
                    f"{num_queries} queries and {num_keys} keys: rotary positions need at least as "
                    "many keys as queries"
                )
            cos, sin = angles_between(self.position, self.d_key, seen, seen + num_keys, queries)
            keys = rotate(keys, cos, sin, layout=layout)
            last = slice(num_keys - num_queries, None)  # the last query is at the last key
            queries = rotate(queries, cos[last], sin[last], layout=layout)
        return queries, keys, values

    def make_rules(
        self, mask: Tensor | None, lengths: Tensor | None, *, is_self: bool, device: torch.device
    ) -> Rules:
        """Attention rules for a call of the layer with this mask and these lengths."""
        options = (self.window, self.slopes, self.relative_bias, self.softcap, self.sinks)
        dropout = self.dropout if self.training else 0.0
        if mask is None and lengths is None and not dropout and options == (None,) * len(options):
            return CAUSAL if self.is_causal else EVERY_KEY
        distance_bias: Tensor | None = None
        if self.relative_bias is not None:
            assert isinstance(self.position, RelativeBias)
            reach = self.position.max_distance
            ahead = torch.arange(-reach, reach + 1, device=device)
            buckets = relative_buckets(ahead, self.position, is_causal=self.is_causal)
            distance_bias = self.relative_bias(buckets).T
        return Rules(
            is_causal=self.is_causal,
            window=self.window,
            lengths=lengths,
            query_lengths=lengths if is_self else None,
            mask=mask,
            slopes=None if self.slopes is None else self.slopes(device),
            distance_bias=distance_bias,
            softcap=self.softcap,
            sinks=None if self.sinks is None else self.sinks(),
            dropout=dropout,
        )

    def _check_call(
        self, x: Tensor, context: Tensor | None, lengths: Tensor | None, cache: KeyValueCache | None
    ) -> None:
        if x.dim() != 3 or x.shape[2] != self.d_model:
            raise ShapeError(
                f"x is {list(x.shape)}: this layer needs [batch, position, d_model {self.d_model}]"
            )
        if context is None and self.d_context != self.d_model:
            raise ShapeError(
                f"context is missing: this layer needs a context of width {self.d_context}"
            )
        if context is not None:
            if context.dim() != 3 or context.shape[2] != self.d_context:
                raise ShapeError(
                    f"context is {list(context.shape)}: this layer needs [batch, position, "
                    f"d_context {self.d_context}]; pass a mask as mask=..."
                )
            if lengths is not None and (self.is_causal or self.window or self.position):
                raise OptionError(
                    "lengths of a context cannot be combined with is_causal, window or position: "
                    "the last query is at the last position of the context, padding included"
                )
        if cache is None:
            return
        if not isinstance(cache, KeyValueCache):
            raise CacheError(f"cache is {cache!r}: give GrowingCache(), FixedCache or RollingCache")
        if context is not None:
            raise OptionError("cache and context are both set: a cache is for self-attention")
        if lengths is not None:
            raise OptionError(
                "lengths and cache are both set: right padding would come between cached keys; "
                "pad on the left and give a mask"
            )
        if cache.window is not None:
            before, _ = Rules(window=self.window).bounds
            if before is None or before >= cache.window:
                reach = "all positions" if before is None else f"{before + 1} positions"
                raise CacheError(
                    f"this cache has a window of {cache.window}, but the layer attends to {reach}: "
                    "use a cache that keeps more"
                )

    def extra_repr(self) -> str:
        """Sizes and options that differ from their defaults."""
        options = {
            "d_model": (self.d_model, None),
            "num_heads": (self.num_heads, None),
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
        return ", ".join(
            f"{name}={value}" for name, (value, default) in options.items() if value != default
        )


def _names_with_bias(bias: bool | Collection[str]) -> Collection[str]:
    if isinstance(bias, bool):
        return PROJECTIONS if bias else ()
    if not isinstance(bias, Collection):
        raise OptionError(f"bias is {bias!r}: give True, False or names of projections")
    names = (bias,) if isinstance(bias, str) else bias
    unknown = [name for name in names if name not in PROJECTIONS]
    if unknown:
        raise OptionError(
            f"bias has unknown names {', '.join(unknown)}: choose from {', '.join(PROJECTIONS)}"
        )
    return names


def _check_gates(gates: Tensor, queries: Tensor) -> Float[Tensor, "#batch heads 1 1"]:
    """The gates, which may differ between sequences, in a shape that multiplies the output."""
    if not isinstance(gates, Tensor):
        raise OptionError(
            f"gates is a {type(gates).__name__}: give a tensor [heads] or [batch, heads]"
        )
    batch, heads = queries.shape[:2]
    if gates.shape not in ((heads,), (batch, heads), (1, heads)):
        raise ShapeError(
            f"gates are {list(gates.shape)}: give [heads {heads}] or [batch {batch}, heads {heads}]"
        )
    return gates.view(-1, heads, 1, 1)
