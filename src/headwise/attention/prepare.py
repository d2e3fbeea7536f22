"""Preparation: turn queries, keys, values and `Rules` into `Computation`s, and join the results.

A padded batch becomes one computation, or one per sequence if padding would cost more than separate
calls. `paths.py` runs the computations; `bias.py` builds the bias on their scores.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.attention.rules import PER_HEAD, Band, Rules, as_4d_mask, mask_part, restrict_mask
from headwise.errors import MaskError, OptionError, PathError, ShapeError

CALL_PAIRS = 30_000
"""Number of query-key pairs, over all heads, that cost about as much as one more fused call."""


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """One attention computation, checked and ready to run; shared KV heads are not repeated."""

    queries: Float[Tensor, "batch heads query d_key"]
    keys: Float[Tensor, "batch kv_heads key d_key"]
    values: Float[Tensor, "batch kv_heads key d_value"]
    band: Band
    scale: float
    mask: Tensor | None
    rules: Rules
    """For slopes, distance_bias, softcap, sinks and dropout; the other fields hold the rest."""

    @classmethod
    def of(
        cls,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        rules: Rules,
        *,
        drops_hidden_keys: bool = False,
    ) -> "Computation":
        """A computation on tensors of matching shapes; lengths become part of the mask.

        `drops_hidden_keys` leaves out the keys that the band hides from every query.
        """
        (batch, heads, num_queries), num_keys = queries.shape[:3], keys.shape[2]
        for name in PER_HEAD:
            per_head = getattr(rules, name)
            if per_head is not None and per_head.shape[0] != heads:
                raise OptionError(
                    f"{name} is for {per_head.shape[0]} heads: the queries have {heads}",
                    option=name,
                )
        offset = rules.offset if batch else None
        offset = num_keys - num_queries if offset is None else offset
        assert not isinstance(offset, Tensor), "`prepare_call` separates such sequences"
        band = Band(*rules.bounds, offset)
        if not band.is_full:
            band = band.simplify(num_queries, num_keys)
        mask = None if rules.mask is None else check_mask(rules.mask, queries, num_keys)
        if rules.lengths is not None and batch:
            mask = restrict_mask(mask, _is_real(rules.lengths, "lengths", keys)[:, None, None])
        if rules.query_lengths is not None and batch:
            rows = _is_real(rules.query_lengths, "query_lengths", queries)
            mask = restrict_mask(mask, rows[:, None, :, None])
        if drops_hidden_keys and not band.is_full:
            low, high = band.keys_of(0, num_queries - 1, num_keys)
            if (low, high) != (0, num_keys):
                keys, values = keys[:, :, low:high], values[:, :, low:high]
                mask = mask_part(mask, keys=slice(low, high))
                band = replace(band, offset=band.offset - low).simplify(num_queries, high - low)
        scale = 1 / math.sqrt(queries.shape[-1]) if rules.scale is None else rules.scale
        if scale <= 0:  # the fused kernel scales after masking, which would flip the sign of -inf
            queries, scale = queries * scale, 1.0
        return cls(queries, keys, values, band, scale, mask, rules)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values."""
        return self.queries, self.keys, self.values

    def with_tensors(self, queries: Tensor, keys: Tensor, values: Tensor) -> "Computation":
        """The same computation on other queries, keys and values."""
        return replace(self, queries=queries, keys=keys, values=values)

    @property
    def groups(self) -> int:
        """Number of query heads per KV head."""
        return self.queries.shape[1] // self.keys.shape[1]

    @property
    def num_queries(self) -> int:
        """Number of rows in the weight matrix."""
        return self.queries.shape[2]

    @property
    def num_keys(self) -> int:
        """Number of columns in the weight matrix."""
        return self.keys.shape[2]

    @property
    def has_bias(self) -> bool:
        """Whether anything besides the band is added to the scores."""
        return self.mask is not None or self.rules.has_distances


class Mixed(NamedTuple):
    """Mixed values of all heads and, if requested, the log-sum-exp of each row."""

    output: Float[Tensor, "batch heads query d_value"]
    lse: Float[Tensor, "batch heads query"] | None


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """An attention call split into computations: one for the whole batch, or one per sequence."""

    computations: Iterator[Computation]
    """Made one at a time, so that the backward pass handles one sequence after the other."""
    queries: Float[Tensor, "batch heads query d_key"]
    rules: Rules
    why_apart: str | None
    """Reason why each sequence has its own computation; None if all share one."""

    def join(self, results: Sequence[Mixed]) -> Mixed:
        """The results as one padded batch, in which each sink has taken its share of every row."""
        batch, heads, num_queries = self.queries.shape[:3]
        if self.why_apart is not None:
            outputs, lses = [], []
            for output, lse in results:
                # Token-major, as the kernels write it, so that one copy assembles the batch.
                padding = (num_queries - output.shape[2], heads)
                outputs += [output[0].transpose(0, 1), output.new_zeros(*padding, output.shape[3])]
                if lse is not None:
                    lses += [lse[0].transpose(0, 1), lse.new_full(padding, -math.inf)]
            shape = (batch, num_queries)
            output = torch.cat(outputs).unflatten(0, shape).transpose(1, 2)
            lse = torch.cat(lses).unflatten(0, shape).transpose(1, 2) if lses else None
        else:
            output, lse = results[0]
            if self.rules.query_lengths is not None and batch:
                is_padding = ~_is_real(self.rules.query_lengths, "query_lengths", self.queries)
                output = output.masked_fill(is_padding[:, None, :, None], 0.0)
                lse = None if lse is None else lse.masked_fill(is_padding[:, None], -math.inf)
        if self.rules.sinks is None:
            return Mixed(output, lse)
        assert lse is not None
        share, lse = add_sinks(lse, self.rules.sinks)
        return Mixed(output * share.to(output.dtype), lse)


def prepare_call(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rules: Rules,
    *,
    path: str | None = None,
    keeps_padding: bool = False,
) -> Prepared:
    """Check one attention call and split it into computations that all have the same dtype.

    With `keeps_padding`, every computation includes the padded queries and keys.
    """
    queries, keys, values = check_qkv(queries, keys, values)
    has_own_offsets = isinstance(rules.offset, Tensor)
    is_ragged = rules.lengths is not None or rules.query_lengths is not None or has_own_offsets
    lengths, why_apart = None, None
    if is_ragged and queries.shape[0]:
        if can_be_read(queries):
            lengths = rows, columns = _read_lengths(rules, queries, keys)
            if min(columns) == keys.shape[2]:  # full lengths would only add a dense mask
                rules = replace(rules, lengths=None)
            if min(rows) == queries.shape[2]:
                rules = replace(rules, query_lengths=None)
        if has_own_offsets:
            why_apart = "each sequence has its own offset"
        elif path == "ragged":
            why_apart = "path 'ragged' was requested"
        elif lengths is not None and path is None and not keeps_padding:
            why_apart = _why_apart(queries, keys, *lengths)
    elif path == "ragged":
        raise PathError("path 'ragged' cannot compute this: it needs lengths")
    shared = rules
    if rules.query_lengths is not None and not keeps_padding:
        # Padding rows are computed and then zeroed: a mask over keys only is smaller.
        shared = replace(rules, query_lengths=None)
    pieces = iter([(queries, keys, values, shared)])
    if why_apart is not None and keeps_padding:
        full = [queries.shape[2]] * len(queries), [keys.shape[2]] * len(keys)
        pieces = _separate(queries, keys, values, rules, full)
    elif why_apart is not None:
        lengths = lengths or _read_lengths(rules, queries, keys)
        rules = replace(rules, lengths=None, query_lengths=None)
        pieces = _separate(queries, keys, values, rules, lengths)
    parts = (Computation.of(*piece, drops_hidden_keys=not keeps_padding) for piece in pieces)
    return Prepared(parts, queries, rules, why_apart)


def _read_lengths(rules: Rules, queries: Tensor, keys: Tensor) -> tuple[list[int], list[int]]:
    """Numbers of real queries and keys in each sequence, read from the device only once."""

    def read(name: str, lengths: Tensor | None, padded: Tensor) -> list[int]:
        batch, size = padded.shape[0], padded.shape[2]
        if lengths is None:
            return [size] * batch
        _check_shape(lengths, name, batch)
        counts: list[int] = lengths.tolist()
        if not 0 <= min(counts) <= max(counts) <= size:
            raise ShapeError(
                f"{name} run from {min(counts)} to {max(counts)}: they must be in 0..{size}"
            )
        return counts

    columns = read("lengths", rules.lengths, keys)
    if rules.query_lengths is rules.lengths and queries.shape[2] == keys.shape[2]:
        return columns, columns  # each read waits for the device
    return read("query_lengths", rules.query_lengths, queries), columns


def _why_apart(queries: Tensor, keys: Tensor, rows: list[int], columns: list[int]) -> str | None:
    """Reason to compute sequences one by one; None if one masked call is better."""
    (batch, heads, num_queries), num_keys = queries.shape[:3], keys.shape[2]
    pairs = sum(row * column for row, column in zip(rows, columns, strict=True))
    padded = batch * num_queries * num_keys
    if heads * (padded - pairs) <= batch * CALL_PAIRS:
        return None
    return f"{1 - pairs / padded:.0%} of the padded work is padding"


def _separate(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rules: Rules,
    lengths: tuple[list[int], list[int]],
) -> Iterator[tuple[Tensor, Tensor, Tensor, Rules]]:
    """Tensors and rules for each sequence, cut to the lengths of that sequence."""
    batch, offset = len(queries), rules.offset
    if isinstance(offset, Tensor):
        _check_shape(offset, "offset", batch)
        offsets = offset.tolist()
    else:
        offsets = [keys.shape[2] - queries.shape[2] if offset is None else offset] * batch
    mask = None if rules.mask is None else check_mask(rules.mask, queries, keys.shape[2])
    # Split once: the backward pass of a slice fills a gradient as large as the whole batch.
    tensors = zip(queries.split(1), keys.split(1), values.split(1), strict=True)
    for index, (query, key, value) in enumerate(tensors):
        sequence = slice(index, index + 1)
        rows, columns = slice(lengths[0][index]), slice(lengths[1][index])
        own_rules = replace(
            rules,
            lengths=None if rules.lengths is None else rules.lengths[sequence],
            query_lengths=None if rules.query_lengths is None else rules.query_lengths[sequence],
            offset=offsets[index],
            mask=mask_part(mask, sequence, rows, columns),
        )
        yield query[:, :, rows], key[:, :, columns], value[:, :, columns], own_rules


def check_qkv(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Raise ShapeError if the tensors do not fit together; return them, ready for a computation.

    Under autocast they get its dtype. The values are expanded to the keys' batch and heads.
    """
    tensors = (queries, keys, values)
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        kinds = ", ".join(type(tensor).__name__ for tensor in tensors)
        raise ShapeError(f"queries, keys and values are {kinds}: attention takes tensors")

    def misfit(reason: str) -> ShapeError:
        shapes = (list(tensor.shape) for tensor in tensors)
        return ShapeError("queries {}, keys {}, values {}: ".format(*shapes) + reason)

    if not queries.dim() == keys.dim() == values.dim() == 4:
        raise misfit("attention takes [batch, heads, position, size]")
    if is_autocast(queries):
        dtype = torch.get_autocast_dtype(queries.device.type)
        queries, keys, values = (
            tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors
        )
    batch, kv_heads, num_keys, d_key = keys.shape
    if queries.shape[0] != batch or queries.shape[3] != d_key or values.shape[2] != num_keys:
        raise misfit("queries and keys must share batch and d_key, keys and values their positions")
    if d_key == 0:
        raise misfit("heads of size 0 have no scores")
    if kv_heads == 0 or queries.shape[1] % kv_heads:
        raise misfit(f"{queries.shape[1]} heads cannot share {kv_heads} KV heads evenly")
    if values.shape[:2] != keys.shape[:2]:
        if values.shape[0] not in (1, batch) or values.shape[1] not in (1, kv_heads):
            raise misfit("values must have the keys' batch and KV heads, or 1")
        values = values.expand(batch, kv_heads, -1, -1)
    if not queries.dtype == keys.dtype == values.dtype or not queries.is_floating_point():
        raise ShapeError(
            f"queries, keys and values are {queries.dtype}, {keys.dtype}, {values.dtype}: "
            "attention needs one floating dtype for all"
        )
    return queries, keys, values


def is_transformed() -> bool:
    """Whether a `torch.func` transform or forward-mode AD is on: fused kernels support neither."""
    if torch.compiler.is_compiling():
        return False
    in_transform = torch._C._functorch.peek_interpreter_stack() is not None
    return in_transform or torch.autograd.forward_ad._current_level >= 0


def can_be_read(tensor: Tensor) -> bool:
    """Whether the tensor's values are known now, not only when a graph runs."""
    return not (torch.compiler.is_compiling() or is_transformed() or tensor.device.type == "meta")


def is_autocast(tensor: Tensor) -> bool:
    """Whether autocast is on for the tensor's device."""
    device = tensor.device.type
    return device != "meta" and torch.is_autocast_enabled(device)


def check_mask(mask: Tensor, queries: Tensor, num_keys: int) -> Tensor:
    """The mask as bool or float with four axes, each of size 1 or the computation's size."""
    is_integer = not mask.is_floating_point() and mask.dtype != torch.bool
    if is_integer and can_be_read(mask) and bool((mask * mask != mask).any()):
        raise MaskError(
            f"the mask is {mask.dtype} with numbers from {int(mask.min())} to {int(mask.max())}: "
            "an integer mask must contain only 1 (may attend) and 0 (may not); use a floating "
            "dtype for a mask to add to the scores"
        )
    result = as_4d_mask(mask)
    sizes = (*queries.shape[:3], num_keys)
    if any(size not in (1, full) for size, full in zip(result.shape, sizes, strict=True)):
        hint = ""
        if mask.shape == (queries.shape[0], num_keys):
            hint = "; pass a key mask per sequence as mask[:, None, :]"
        raise MaskError(
            f"the mask is {list(mask.shape)}: it must fit [batch {sizes[0]}, heads {sizes[1]}, "
            f"query {sizes[2]}, key {sizes[3]}]{hint}"
        )
    return result


def _check_shape(tensor: Tensor, name: str, batch: int) -> None:
    if tensor.shape != (batch,):
        raise ShapeError(f"{name} is {list(tensor.shape)}: it must be [batch {batch}]")


def _is_real(lengths: Tensor, name: str, padded: Tensor) -> Bool[Tensor, "batch position"]:
    """Which positions of padded queries or keys are real: those within the sequence's length."""
    _check_shape(lengths, name, padded.shape[0])
    positions = torch.arange(padded.shape[2], device=padded.device)
    return positions < lengths.to(padded.device)[:, None]


def add_sinks(
    lse: Float[Tensor, "batch heads query"], sinks: Float[Tensor, " heads"]
) -> tuple[Float[Tensor, "batch heads query 1"], Float[Tensor, "batch heads query"]]:
    """Share of each row's softmax that the sink leaves to the keys, and the lse with the sink."""
    logits = sinks[:, None].to(lse.dtype)
    lowest = logits.clamp(min=torch.finfo(lse.dtype).min)  # -inf (closed sink) may give NaN
    joint = torch.where(logits == -math.inf, lse, torch.logaddexp(lse, lowest))
    return torch.sigmoid(lse - lowest)[..., None], joint
