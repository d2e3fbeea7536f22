"""Calls: one attention computation of one layer as it happened, ready to be asked about.

In: the real queries, keys and values of a model with the rules they met under, or the weights of a
model that shows nothing else. Out: answers that need no full matrix. It knows no model.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.attention.core import attend, attend_in_steps, attend_with_lse
from headwise.attention.kernels import fold_groups, unfold_groups
from headwise.attention.ragged import lengths_as_mask
from headwise.attention.rules import Rules, four_axes
from headwise.attention.task import Task, bias_at, bias_of_pairs, make_task
from headwise.errors import ModelError, OptionError
from headwise.watching.places import Place, output_weight

LOWEST = -1e30
"""Stands for the log of 0: its exponential is 0 in every dtype, and twice it is finite."""
LARGEST_WEIGHTS = 2 << 30
"""Bytes of a weight matrix that is still handed out whole."""
COUNTED_AT_ONCE = 1 << 22
"""Query-key pairs, over all heads, whose masks are looked through at a time."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenFacts:
    """What is known of the tokens that attention was computed on."""

    ids: Int[Tensor, "batch position"]
    is_real: Bool[Tensor, "batch position"]
    """False for padding, which may stand on either side and nowhere else."""
    is_special: Bool[Tensor, "batch position"]
    is_punctuation: Bool[Tensor, "batch position"]

    def span(self, sequence: int) -> slice:
        """Where the real tokens of a sequence stand."""
        real = self.is_real[sequence].nonzero()[:, 0]
        if len(real) == 0:
            return slice(0, 0)
        return slice(int(real[0]), int(real[-1]) + 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionCall:
    """One layer's attention on one batch; heads that share keys are not repeated."""

    place: Place
    queries: Float[Tensor, "batch heads query d_key"]
    keys: Float[Tensor, "batch kv_heads key d_key"]
    values: Float[Tensor, "batch kv_heads key d_value"]
    rules: Rules
    mixed: Float[Tensor, "batch heads query d_value"]
    """Each head's mean of the values: the input of the output projection, before any gate."""
    known_lse: Float[Tensor, "batch heads query"] | None = field(default=None, repr=False)

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
        return self.queries.shape[1]

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

    @cached_property
    def _sure(self) -> Rules:
        """The rules without chance: no measure asks what dropout left over."""
        return replace(self.rules, dropout=0.0)

    @cached_property
    def _task(self) -> Task:
        rules = lengths_as_mask(self._sure, self.queries, self.keys)
        return make_task(self.queries, self.keys, self.values, rules)

    def weights(self) -> Float[Tensor, "batch heads query key"]:
        """Every weight, if they fit: `heads x query x key` numbers for each sequence."""
        batch, heads, query = self.queries.shape[:3]
        check_size(batch * heads * query * self.keys.shape[2], self.layer)
        return attend_in_steps(self.queries, self.keys, self.values, rules=self._sure).weights

    @cached_property
    def output_weight(self) -> Float[Tensor, "concat d_model"] | None:
        """The output projection as a matrix from all heads' outputs; None if it is not known."""
        return known_output_weight(self.place, self.mixed)

    def sequence(self, index: int, queries: slice, keys: slice) -> "Sequence":
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
        return Sequence(
            task=make_task(
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
        mask = None if self.rules.mask is None else four_axes(self.rules.mask).detach()
        if mask is not None:
            mask = mask[index : index + 1] if len(mask) > 1 else mask
            mask = mask[:, :, queries] if mask.shape[2] > 1 else mask
            mask = mask[..., keys] if mask.shape[3] > 1 else mask
        if self.rules.lengths is not None and keys.stop > (length := self.rules.lengths[index]):
            positions = torch.arange(keys.start, keys.stop, device=self.keys.device)
            is_real = (positions < length)[None, None, None]
            if mask is None:
                mask = is_real
            elif mask.dtype == torch.bool:
                mask = mask & is_real
            else:
                mask = mask.masked_fill(~is_real, -torch.inf)
        return None if mask is not None and mask.dtype == torch.bool and mask.all() else mask


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownCall:
    """One layer's attention of a module that shows its weights, and neither keys nor values."""

    place: Place
    shown: Float[Tensor, "batch heads query key"]
    mixed: Float[Tensor, "batch heads query d_value"]

    @property
    def layer(self) -> int:
        """Its layer, counted from 0."""
        return self.place.layer

    @property
    def stack(self) -> str:
        """The stack it belongs to."""
        return self.place.stack

    @property
    def num_heads(self) -> int:
        """Heads."""
        return self.shown.shape[1]

    @property
    def lse(self) -> Float[Tensor, "batch heads query"]:
        """Not to be had: a weight does not say how large its row's sum was."""
        raise ModelError(
            f"layer {self.layer} shows its weights and no scores: it has no log-sum-exps "
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
        return self.shown[:, :, query, key]

    def weights(self) -> Float[Tensor, "batch heads query key"]:
        """Every weight; in training, after dropout."""
        return self.shown

    @cached_property
    def output_weight(self) -> Float[Tensor, "concat d_model"] | None:
        """The output projection as a matrix from all heads' outputs; None if it is not known."""
        return known_output_weight(self.place, self.mixed)

    def sequence(self, index: int, queries: slice, keys: slice) -> "Sequence":
        """One sequence of the batch, some of its queries and keys, in float32 at least."""
        wide = at_least_float32(self.shown)
        return Sequence(
            task=None,
            mixed=self.mixed[index, :, queries].detach().to(wide),
            lse=None,
            shown=self.shown[index, :, queries, keys].detach().to(wide),
        )


Call = AttentionCall | ShownCall


def at_least_float32(tensor: Tensor) -> torch.dtype:
    """The tensor's dtype, or float32 where that is more precise."""
    return torch.promote_types(tensor.dtype, torch.float32)


def known_output_weight(place: Place, mixed: Tensor) -> Tensor | None:
    """The matrix of the place's output projection, where it fits the heads' outputs."""
    if place.output_projection is None:
        return None
    weight = output_weight(place.output_projection).detach()
    return weight if weight.shape[0] == mixed.shape[1] * mixed.shape[-1] else None


def check_size(numbers: int, layer: int) -> None:
    """Raise where so many weights are too many to be handed out."""
    if numbers * 4 > LARGEST_WEIGHTS:
        raise OptionError(
            f"the weights of layer {layer} would take {numbers * 4 / 2**30:.1f} GiB: ask for "
            "`attend`, `weight_at` or a shorter text instead"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Sequence:
    """One sequence of a call, whose weights are computed a tile at a time."""

    task: Task | None
    mixed: Float[Tensor, "heads query d_value"]
    lse: Float[Tensor, "heads query"] | None
    shown: Float[Tensor, "heads query key"] | None

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.mixed.shape[0]

    @property
    def num_queries(self) -> int:
        """Rows of its weight matrix."""
        return self.mixed.shape[1]

    @property
    def num_keys(self) -> int:
        """Columns of its weight matrix."""
        if self.shown is not None:
            return self.shown.shape[-1]
        assert self.task is not None
        return self.task.num_keys

    @property
    def values(self) -> Float[Tensor, "kv_heads key d_value"] | None:
        """The values, where the model shows them."""
        return None if self.task is None else self.task.values[0]

    @property
    def offset(self) -> int:
        """Key position of the first query."""
        return self.num_keys - self.num_queries if self.task is None else self.task.band.offset

    def keys_seen(self, first: int, last: int) -> tuple[int, int]:
        """Half-open range of keys that any of the rows `first..last` may see."""
        if self.task is None:
            return 0, self.num_keys
        return self.task.band.keys_of(first, last, self.num_keys)

    def log_weights(
        self, rows: Int[Tensor, " query"], low: int, high: int, room: Tensor | None = None
    ) -> Float[Tensor, "heads query key"]:
        """Log of the weights of some rows for the keys `low..high`, written into `room` if given.

        What a row does not see has a log so low that its weight is 0; it is finite, so that
        weights times logs are numbers.
        """
        if self.shown is not None:
            return self.shown[:, rows, low:high].log().clamp_(min=LOWEST)
        assert self.task is not None and self.lse is not None
        task, kv_heads = self.task, self.task.keys.shape[1]
        picked = as_run(rows)
        queries = fold_groups(task.queries[:, :, picked] * task.scale, kv_heads)[0]
        keys = task.keys[0, :, low:high]
        lse = self.lse[:, picked]
        lse = lse.masked_fill(lse == -torch.inf, -LOWEST)  # such a row has no weights at all
        shape = (kv_heads, queries.shape[1], high - low)
        room = None if room is None else room[: math.prod(shape)].view(shape)
        if task.rules.softcap is None:
            start = -fold_groups(lse[None, ..., None], kv_heads)[0]
            logs = torch.baddbmm(start, queries, keys.mT, out=room)
            logs = unfold_groups(logs[None], self.num_heads)[0]
        else:
            scores = torch.bmm(queries, keys.mT, out=room)
            scores = unfold_groups(scores[None], self.num_heads)[0]
            logs = scores.div_(task.rules.softcap).tanh_().mul_(task.rules.softcap)
            logs -= lse[..., None]
        if task.has_bias:
            bias = bias_at(task, rows, low, high)
            assert bias is not None
            logs += bias[0].clamp(min=LOWEST)
        elif len(rows):
            self._hide(logs, rows, low, high)
        return logs

    def _hide(self, logs: Tensor, rows: Tensor, low: int, high: int) -> None:
        """Lower the logs of what lies outside the band; only the edges of a tile can."""
        assert self.task is not None
        band = self.task.band
        first, last = (int(row) + band.offset for row in rows.aminmax())
        places = (rows + band.offset)[:, None]
        if band.after is not None and first + band.after + 1 < high:
            start = max(low, first + band.after + 1)
            is_hidden = torch.arange(start, high, device=rows.device) > places + band.after
            logs[:, :, start - low :].masked_fill_(is_hidden, LOWEST)
        if band.before is not None and low < last - band.before:
            end = min(high, last - band.before)
            is_hidden = torch.arange(low, end, device=rows.device) < places - band.before
            logs[:, :, : end - low].masked_fill_(is_hidden, LOWEST)

    def count_seen(self, rows: Int[Tensor, " query"]) -> Float[Tensor, "heads query"]:
        """How many keys each row may see."""
        if self.task is None:
            assert self.shown is not None
            return (self.shown[:, rows] > 0).sum(-1).to(self.mixed.dtype)
        band, last = self.task.band, self.num_keys - 1
        if self.task.mask is None:
            low, high = torch.zeros_like(rows), torch.full_like(rows, last)
            if band.before is not None:
                low = (rows + band.offset - band.before).clamp(min=0)
            if band.after is not None:
                high = (rows + band.offset + band.after).clamp(max=last)
            seen = (high - low + 1).clamp(min=0)
            return seen.to(self.mixed.dtype).expand(self.num_heads, -1)
        size = max(1, COUNTED_AT_ONCE // (self.num_heads * self.num_keys))
        counts = [self._count_unblocked(part) for part in rows.split(size)]
        return torch.cat(counts, -1).to(self.mixed.dtype).expand(self.num_heads, -1)

    def _count_unblocked(self, rows: Tensor) -> Int[Tensor, "#heads query"]:
        assert self.task is not None
        bias = bias_at(self.task, rows, 0, self.num_keys)
        assert bias is not None
        return (bias[0] > -torch.inf).sum(-1)


def as_run(rows: Int[Tensor, " query"]) -> slice | Tensor:
    """The rows as a slice, which copies nothing, if they are neighbours in order."""
    if len(rows) and bool((rows.diff() == 1).all()):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
