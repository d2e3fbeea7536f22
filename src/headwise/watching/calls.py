"""Calls: one layer's attention computation, exactly as the model ran it.

In: the model's queries, keys, values and rules, or the weights if a module returns only these.
Out: `lse`, `attend` and `weight_at`, which do not build the full weight matrix.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.attention.attend import attend, attend_in_steps, attend_with_lse
from headwise.attention.bias import bias_of_pairs
from headwise.attention.prepare import Computation
from headwise.attention.rules import Rules, mask_part, restrict_mask
from headwise.errors import ModelError, OptionError, ShapeError
from headwise.watching.sequence_weights import LOWEST, SequenceWeights
from headwise.watching.sites import Site, output_weight

LARGEST_WEIGHTS = 2 << 30
"""Maximum size, in bytes, of a weight matrix that `weights()` returns."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteCall:
    """Base class of all calls: a site in the model and the outputs of its heads."""

    site: Site
    mixed: Float[Tensor, "batch heads query d_value"]
    """Each head's weighted mean of the values, before any gate."""
    is_direct: bool = True
    """Whether the output projection reads `mixed` as it is, not through a gate or a norm."""

    def __repr__(self) -> str:
        batch, heads, queries = self.mixed.shape[:3]
        sizes = f"batch {batch}, heads {heads}, query {queries}"
        return f"{type(self).__name__}({self.site.layer_name}, {sizes})"

    @property
    def layer(self) -> int:
        """Layer number, starting at 0."""
        return self.site.layer

    @property
    def stack(self) -> str:
        """Name of the layer's stack; "" in a model with one stack."""
        return self.site.stack

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self.mixed.shape[1]

    @property
    def num_queries(self) -> int:
        """Number of queries per sequence, padding included."""
        return self.mixed.shape[2]

    @cached_property
    def output_weight(self) -> Float[Tensor, "concat d_model"] | None:
        """The output projection's matrix; None if it is unknown or `mixed` is not its input."""
        if self.site.output_projection is None or not self.is_direct:
            return None
        weight = output_weight(self.site.output_projection).detach()
        fits = weight.shape[0] == self.mixed.shape[1] * self.mixed.shape[-1]
        return weight if fits else None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttentionCall(SiteCall):
    """One layer's attention on one batch, with keys and values per KV head."""

    queries: Float[Tensor, "batch heads query d_key"]
    keys: Float[Tensor, "batch kv_heads key d_key"]
    values: Float[Tensor, "batch kv_heads key d_value"]
    rules: Rules
    known_lse: Float[Tensor, "batch heads query"] | None = None

    @property
    def num_keys(self) -> int:
        """Number of keys per sequence, padding included."""
        return self.keys.shape[2]

    @cached_property
    def lse(self) -> Float[Tensor, "batch heads query"]:
        """Log of each row's softmax denominator; -inf where a row sees no key."""
        if self.known_lse is not None:
            return self.known_lse
        rules = self._rules_without_dropout
        return attend_with_lse(self.queries, self.keys, self.values, rules=rules)[1]

    def attend(
        self, features: Float[Tensor, "#batch #kv_heads key width"]
    ) -> Float[Tensor, "batch heads query width"]:
        """Sum of `features` over the keys, weighted by each row's attention."""
        wide = at_least_float32(self.keys)
        queries, keys = self.queries.to(wide), self.keys.to(wide)
        return attend(queries, keys, features.to(wide), rules=self._rules_without_dropout)

    def weight_at(
        self, query: Int[Tensor, " pairs"], key: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "batch heads pairs"]:
        """Single weights, one for each pair of query and key positions."""
        query = _check_positions(query, self.num_queries, "query")
        key = _check_positions(key, self.num_keys, "key")
        computation, wide = self._computation, at_least_float32(self.keys)
        group = self.num_heads // self.keys.shape[1]
        keys = computation.keys[:, :, key].repeat_interleave(group, 1).to(wide)
        scores = (computation.queries[:, :, query].to(wide) * keys).sum(-1) * computation.scale
        if self.rules.softcap is not None:
            scores = self.rules.softcap * torch.tanh(scores / self.rules.softcap)
        bias = bias_of_pairs(computation, query, key)
        if bias is not None:
            scores = scores + bias
        lse = self.lse[:, :, query]
        return (scores - lse.masked_fill(lse == -torch.inf, -LOWEST)).exp()

    def snapshot(self) -> "AttentionCall":
        """This call with copies of any keys and values that the model's cache may overwrite."""
        return replace(self, keys=_copy_if_written(self.keys), values=_copy_if_written(self.values))

    @cached_property
    def _rules_without_dropout(self) -> Rules:
        return replace(self.rules, dropout=0.0)

    @cached_property
    def _computation(self) -> Computation:
        return Computation.of(self.queries, self.keys, self.values, self._rules_without_dropout)

    def weights(self) -> Float[Tensor, "batch heads query key"]:
        """All weights; raises OptionError if they take more than `LARGEST_WEIGHTS` bytes."""
        check_weights_fit(self.queries.shape[:3].numel() * self.num_keys, self.site)
        rules = self._rules_without_dropout
        return attend_in_steps(self.queries, self.keys, self.values, rules=rules).weights

    def sequence(self, index: int, queries: slice, keys: slice) -> SequenceWeights:
        """One sequence's weights in float32 or wider; its real tokens are `queries` and `keys`."""
        wide, row = at_least_float32(self.queries), slice(index, index + 1)
        queries = slice(*queries.indices(self.num_queries))
        keys = slice(*keys.indices(self.num_keys))
        mask = mask_part(self.rules.mask, row, queries, keys)
        if self.rules.lengths is not None and keys.stop > (length := self.rules.lengths[index]):
            positions = torch.arange(keys.start, keys.stop, device=self.keys.device)
            mask = restrict_mask(mask, (positions < length)[None, None, None])
        if mask is not None and mask.dtype == torch.bool and mask.all():
            mask = None
        rules = replace(
            self._rules_without_dropout,
            mask=None if mask is None else mask.detach(),
            offset=self._computation.band.offset + queries.start - keys.start,
            lengths=None,
            query_lengths=None,
        )
        return SequenceWeights(
            computation=Computation.of(
                self.queries[row, :, queries].detach().to(wide),
                self.keys[row, :, keys].detach().to(wide),
                self.values[row, :, keys].detach().to(wide),
                rules,
            ),
            mixed=self.mixed[index, :, queries].detach().to(wide),
            lse=self.lse[index, :, queries].detach().to(wide),
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WeightsCall(SiteCall):
    """One layer's attention on one batch, from a module that returns only its weights."""

    known_weights: Float[Tensor, "batch heads query key"]

    @property
    def num_keys(self) -> int:
        """Number of keys per sequence, padding included."""
        return self.known_weights.shape[3]

    def snapshot(self) -> "WeightsCall":
        """This call itself, because nothing overwrites its weights."""
        return self

    @property
    def lse(self) -> Float[Tensor, "batch heads query"]:
        """Raises ModelError: weights do not reveal the softmax denominators."""
        raise ModelError(
            f"{self.site.layer_name} has no log-sum-exps: {type(self.site.module).__name__} does "
            "not use transformers' attention interface; use `attend`, `weight_at` or `weights`"
        )

    def attend(
        self, features: Float[Tensor, "#batch #heads key width"]
    ) -> Float[Tensor, "batch heads query width"]:
        """Sum of `features` over the keys, weighted by each row's attention."""
        wide = at_least_float32(self.known_weights)
        return self.known_weights.to(wide) @ features.to(wide)

    def weight_at(
        self, query: Int[Tensor, " pairs"], key: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "batch heads pairs"]:
        """Single weights, one for each pair of query and key positions."""
        query = _check_positions(query, self.num_queries, "query")
        return self.known_weights[:, :, query, _check_positions(key, self.num_keys, "key")]

    def weights(self) -> Float[Tensor, "batch heads query key"]:
        """All weights; if the model is in training mode, dropout has already been applied."""
        return self.known_weights

    def sequence(self, index: int, queries: slice, keys: slice) -> SequenceWeights:
        """One sequence's weights in float32 or wider; its real tokens are `queries` and `keys`."""
        wide = at_least_float32(self.known_weights)
        return SequenceWeights(
            mixed=self.mixed[index, :, queries].detach().to(wide),
            known_weights=self.known_weights[index, :, queries, keys].detach().to(wide),
        )


Call = AttentionCall | WeightsCall


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The tensor's dtype, or float32 if that is more precise."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _copy_if_written(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if it was ever written to and may be written to again."""
    return tensor.clone() if tensor.is_inference() or tensor._version > 0 else tensor


def _check_positions(
    positions: Int[Tensor, " pairs"], count: int, name: str
) -> Int[Tensor, " pairs"]:
    """Map negative positions to `0..count - 1`; raise ShapeError if one is out of range."""
    if len(positions) and not -count <= int(positions.min()) <= int(positions.max()) < count:
        low, high = int(positions.min()), int(positions.max())
        raise ShapeError(
            f"{name} positions range from {low} to {high}: they must be in 0..{count - 1}, or "
            "negative to count from the end"
        )
    return positions % count if count else positions


def check_weights_fit(count: int, site: Site) -> None:
    """Raise OptionError if `count` weights take more than `LARGEST_WEIGHTS` bytes."""
    if count * 4 > LARGEST_WEIGHTS:
        raise OptionError(
            f"the weights of {site.layer_name} would take {count * 4 / 2**30:.1f} GiB: use "
            "`attend`, `weight_at` or a shorter text instead"
        )
