"""Calls: one attention computation of one layer as it happened, ready to be asked about.

In: the real queries, keys and values of a model with the rules they met under, or the weights of a
model that shows nothing else. Out: answers that need no full matrix. It knows no model.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.attention.attend import attend, attend_in_steps, attend_with_lse
from headwise.attention.bias import bias_of_pairs
from headwise.attention.prepare import Computation
from headwise.attention.rules import Rules, as_4d_mask, restrict_mask
from headwise.errors import ModelError, OptionError, ShapeError
from headwise.heads import HeadId
from headwise.watching.sequence_weights import LOWEST, SequenceWeights
from headwise.watching.sites import Site, output_weight

LARGEST_WEIGHTS = 2 << 30
"""Bytes of a weight matrix that is still handed out whole."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacedCall:
    """What every call has: a place in the model, and what the heads there gave."""

    place: Site
    mixed: Float[Tensor, "batch heads query d_value"]
    """Each head's mean of the values, before any gate."""
    is_direct: bool = True
    """Whether the output projection gets just that: some models put a gate or a norm between."""

    def __repr__(self) -> str:
        """One line: which layer it is of, and how large."""
        batch, heads, queries = self.mixed.shape[:3]
        sizes = f"batch {batch}, heads {heads}, query {queries}"
        return f"{type(self).__name__}({self.place.layer_name}, {sizes})"

    @property
    def layer(self) -> int:
        """Its layer, counted from 0."""
        return self.place.layer

    @property
    def stack(self) -> str:
        """The stack it belongs to, "" in a model with one stack."""
        return self.place.stack

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.mixed.shape[1]

    @property
    def num_queries(self) -> int:
        """Queries of each sequence, padding included."""
        return self.mixed.shape[2]

    @cached_property
    def output_weight(self) -> Float[Tensor, "concat d_model"] | None:
        """The output projection as a matrix from all heads' outputs.

        None if it is not known, or if it does not get these outputs as they are.
        """
        if self.place.output_projection is None or not self.is_direct:
            return None
        weight = output_weight(self.place.output_projection).detach()
        fits = weight.shape[0] == self.mixed.shape[1] * self.mixed.shape[-1]
        return weight if fits else None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AttentionCall(PlacedCall):
    """One layer's attention on one batch; heads that share keys are not repeated."""

    queries: Float[Tensor, "batch heads query d_key"]
    keys: Float[Tensor, "batch kv_heads key d_key"]
    values: Float[Tensor, "batch kv_heads key d_value"]
    rules: Rules
    known_lse: Float[Tensor, "batch heads query"] | None = field(default=None, repr=False)

    @property
    def num_keys(self) -> int:
        """Keys of each sequence, padding included."""
        return self.keys.shape[2]

    @cached_property
    def lse(self) -> Float[Tensor, "batch heads query"]:
        """Question 1: the log of each row's softmax denominator; -inf where it sees no key."""
        if self.known_lse is not None:
            return self.known_lse
        return attend_with_lse(self.queries, self.keys, self.values, rules=self._sure)[1]

    def attend(
        self, features: Float[Tensor, "#batch #kv_heads key width"]
    ) -> Float[Tensor, "batch heads query width"]:
        """Question 2: the mean of any features of the keys under each row's weights."""
        wide = at_least_float32(self.keys)
        queries, keys = self.queries.to(wide), self.keys.to(wide)
        return attend(queries, keys, features.to(wide), rules=self._sure)

    def weight_at(
        self, query: Int[Tensor, " pairs"], key: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "batch heads pairs"]:
        """Question 3: single weights, each pair a query position and a key position."""
        query = checked_positions(query, self.queries.shape[2], "query")
        key = checked_positions(key, self.keys.shape[2], "key")
        task, wide = self._task, at_least_float32(self.keys)
        group = self.num_heads // self.keys.shape[1]
        picked = task.keys[:, :, key].repeat_interleave(group, 1)
        scores = (task.queries[:, :, query].to(wide) * picked.to(wide)).sum(-1) * task.scale
        if self.rules.softcap is not None:
            scores = self.rules.softcap * torch.tanh(scores / self.rules.softcap)
        bias = bias_of_pairs(task, query, key)
        if bias is not None:
            scores = scores + bias
        lse = self.lse[:, :, query]
        return (scores - lse.masked_fill(lse == -torch.inf, -LOWEST)).exp()

    def kept(self) -> "AttentionCall":
        """The same for later: keys and values that a cache writes into are copied."""
        return replace(self, keys=unwritten(self.keys), values=unwritten(self.values))

    @cached_property
    def _sure(self) -> Rules:
        """The rules without chance: no measure asks what dropout left over."""
        return replace(self.rules, dropout=0.0)

    @cached_property
    def _task(self) -> Computation:
        return Computation.of(self.queries, self.keys, self.values, self._sure)

    def weights(self) -> Float[Tensor, "batch heads query key"]:
        """Every weight, if they fit: `heads x query x key` numbers for each sequence."""
        batch, heads, query = self.queries.shape[:3]
        check_size(batch * heads * query * self.keys.shape[2], self.layer, self.stack)
        return attend_in_steps(self.queries, self.keys, self.values, rules=self._sure).weights

    def sequence(self, index: int, queries: slice, keys: slice) -> SequenceWeights:
        """One sequence of the batch, some of its queries and keys, in float32 at least.

        Give the spans of its real tokens. It carries no gradients.
        """
        wide, picked = at_least_float32(self.queries), slice(index, index + 1)
        queries = slice(*queries.indices(self.queries.shape[2]))
        keys = slice(*keys.indices(self.keys.shape[2]))
        rules = replace(
            self._sure,
            mask=self._mask_of(index, queries, keys),
            offset=self._task.band.offset + queries.start - keys.start,
            lengths=None,
            query_lengths=None,
        )
        return SequenceWeights(
            task=Computation.of(
                self.queries[picked, :, queries].detach().to(wide),
                self.keys[picked, :, keys].detach().to(wide),
                self.values[picked, :, keys].detach().to(wide),
                rules,
            ),
            mixed=self.mixed[index, :, queries].detach().to(wide),
            lse=self.lse[index, :, queries].detach().to(wide),
            shown=None,
        )

    def _mask_of(self, index: int, queries: slice, keys: slice) -> Tensor | None:
        """One sequence's mask for some queries and keys; None where it blocks nothing."""
        mask = None if self.rules.mask is None else as_4d_mask(self.rules.mask).detach()
        if mask is not None:
            mask = mask[index : index + 1] if len(mask) > 1 else mask
            mask = mask[:, :, queries] if mask.shape[2] > 1 else mask
            mask = mask[..., keys] if mask.shape[3] > 1 else mask
        if self.rules.lengths is not None and keys.stop > (length := self.rules.lengths[index]):
            positions = torch.arange(keys.start, keys.stop, device=self.keys.device)
            mask = restrict_mask(mask, (positions < length)[None, None, None])
        return None if mask is not None and mask.dtype == torch.bool and mask.all() else mask


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WeightsCall(PlacedCall):
    """One layer's attention of a module that shows its weights, and neither keys nor values."""

    shown: Float[Tensor, "batch heads query key"]

    @property
    def num_keys(self) -> int:
        """Keys of each sequence, padding included."""
        return self.shown.shape[3]

    def kept(self) -> "WeightsCall":
        """The same for later."""
        return self

    @property
    def lse(self) -> Float[Tensor, "batch heads query"]:
        """Not to be had: a weight does not say how large its row's sum was."""
        raise ModelError(
            f"{self.place.layer_name} shows its weights and no scores: it has no log-sum-exps "
            f"({type(self.place.module).__name__} does not ask transformers' attention interface)"
        )

    def attend(
        self, features: Float[Tensor, "#batch #heads key width"]
    ) -> Float[Tensor, "batch heads query width"]:
        """Question 2: the mean of any features of the keys under each row's weights."""
        wide = at_least_float32(self.shown)
        return self.shown.to(wide) @ features.to(wide)

    def weight_at(
        self, query: Int[Tensor, " pairs"], key: Int[Tensor, " pairs"]
    ) -> Float[Tensor, "batch heads pairs"]:
        """Question 3: single weights, each pair a query position and a key position."""
        num_queries, num_keys = self.shown.shape[2:]
        query = checked_positions(query, num_queries, "query")
        return self.shown[:, :, query, checked_positions(key, num_keys, "key")]

    def weights(self) -> Float[Tensor, "batch heads query key"]:
        """Every weight; in training, after dropout."""
        return self.shown

    def sequence(self, index: int, queries: slice, keys: slice) -> SequenceWeights:
        """One sequence of the batch, some of its queries and keys, in float32 at least."""
        wide = at_least_float32(self.shown)
        return SequenceWeights(
            task=None,
            mixed=self.mixed[index, :, queries].detach().to(wide),
            lse=None,
            shown=self.shown[index, :, queries, keys].detach().to(wide),
        )


Call = AttentionCall | WeightsCall


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The tensor's dtype, or float32 where that is more precise."""
    return torch.promote_types(tensor.dtype, torch.float32)


def unwritten(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where something has been written into it and may be again."""
    is_written = tensor.is_inference() or tensor._version > 0
    return tensor.clone() if is_written else tensor


def checked_positions(
    positions: Int[Tensor, " pairs"], count: int, name: str
) -> Int[Tensor, " pairs"]:
    """The positions, each of which must be one of so many; negative ones count from the end."""
    if len(positions) and not -count <= int(positions.min()) <= int(positions.max()) < count:
        low, high = int(positions.min()), int(positions.max())
        raise ShapeError(
            f"{name} positions run from {low} to {high}; they must lie in 0..{count - 1}, or count "
            "from the end"
        )
    return positions % count if count else positions


def check_size(numbers: int, layer: int, stack: str = "") -> None:
    """Raise where so many weights are too many to be handed out."""
    if numbers * 4 > LARGEST_WEIGHTS:
        name = HeadId(layer, 0, stack).layer_name
        raise OptionError(
            f"the weights of {name} would take {numbers * 4 / 2**30:.1f} GiB: ask for "
            "`attend`, `weight_at` or a shorter text instead"
        )
