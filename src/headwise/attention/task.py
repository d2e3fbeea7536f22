"""Computation: queries, keys and values with their rules, checked; what every path computes.

In: tensors and `Rules`. Out: a `Computation` whose sizes agree and whose structure is as simple as
possible, and the bias it adds to any tile of the scores. How it is computed: see paths, kernels.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.attention.kernels import can_be_read
from headwise.attention.rules import Rules, as_4d_mask
from headwise.errors import MaskError, OptionError, ShapeError


@dataclass(frozen=True, slots=True)
class Band:
    """Key positions a query may see: `before` its own to `after` it, None = no bound.

    Query `i` stands at key position `i + offset`.
    """

    before: int | None
    after: int | None
    offset: int

    @property
    def is_full(self) -> bool:
        """Every query sees every key."""
        return self.before is None and self.after is None

    @property
    def is_causal(self) -> bool:
        """Every query sees all keys up to its own position; the first stands at key 0 or later."""
        return self.before is None and self.after == 0 and self.offset >= 0

    def keys_of(self, first: int, last: int, num_keys: int) -> tuple[int, int]:
        """Half-open range of keys that any of the queries `first..last` may see."""
        low = 0 if self.before is None else first + self.offset - self.before
        high = num_keys if self.after is None else last + self.offset + self.after + 1
        low = min(max(low, 0), num_keys)
        return low, max(min(high, num_keys), low)

    def range_of(
        self, rows: Int[Tensor, " query"], num_keys: int
    ) -> tuple[Int[Tensor, " query"], Int[Tensor, " query"]]:
        """Half-open range of keys that each of some queries may see."""
        places = rows + self.offset
        low, high = torch.zeros_like(places), torch.full_like(places, num_keys)
        if self.before is not None:
            low = (places - self.before).clamp(0, num_keys)
        if self.after is not None:
            high = (places + self.after + 1).clamp(0, num_keys)
        return low, torch.maximum(low, high)

    def simplified(self, num_queries: int, num_keys: int) -> "Band":
        """The same band without the bounds that block nothing."""
        before, after = self.before, self.after
        if before is not None and num_queries - 1 + self.offset - before <= 0:
            before = None
        if after is not None and self.offset + after >= num_keys - 1:
            after = None
        return Band(before, after, self.offset)

    def visible(self, queries: Tensor, keys: Tensor) -> Bool[Tensor, "query key"]:
        """Whether query position i may see key position k, for all pairs."""
        ahead = keys - (queries + self.offset)[:, None]
        allowed = torch.ones_like(ahead, dtype=torch.bool)
        if self.before is not None:
            allowed &= ahead >= -self.before
        if self.after is not None:
            allowed &= ahead <= self.after
        return allowed


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """One attention computation, checked and ready; heads grouped over `kv_heads` as they came."""

    queries: Float[Tensor, "batch heads query d_key"]
    keys: Float[Tensor, "batch kv_heads key d_key"]
    values: Float[Tensor, "batch kv_heads key d_value"]
    band: Band
    scale: float
    mask: Tensor | None
    rules: Rules
    """For slopes, distance_bias, softcap, sinks and dropout; the rest is resolved above."""

    @property
    def groups(self) -> int:
        """Query heads served by each KV head."""
        return self.queries.shape[1] // self.keys.shape[1]

    @property
    def num_queries(self) -> int:
        """Rows of the weight matrix."""
        return self.queries.shape[2]

    @property
    def num_keys(self) -> int:
        """Columns of the weight matrix."""
        return self.keys.shape[2]

    @property
    def has_bias(self) -> bool:
        """Something other than structure is added to the scores."""
        return (
            self.mask is not None
            or self.rules.slopes is not None
            or self.rules.distance_bias is not None
        )


def make_task(queries: Tensor, keys: Tensor, values: Tensor, rules: Rules) -> Computation:
    """Rules and tensors as one checked task; the rules hold no lengths, and one offset for all."""
    values = check_sizes(queries, keys, values)
    num_queries, num_keys = queries.shape[2], keys.shape[2]
    offset = num_keys - num_queries if rules.offset is None else rules.offset
    assert not isinstance(offset, Tensor), "sequences with their own offsets come one by one"
    band = Band(*rules.bounds, offset)
    if not band.is_full:
        band = band.simplified(num_queries, num_keys)
    mask = None if rules.mask is None else checked_mask(rules.mask, queries, num_keys)
    scale = 1 / math.sqrt(queries.shape[-1]) if rules.scale is None else rules.scale
    if scale <= 0:  # the fused kernel scales after it has blocked, which turns -inf around
        queries, scale = queries * scale, 1.0
    return Computation(queries, keys, values, band, scale, mask, rules)


def drop_hidden_keys(task: Computation) -> Computation:
    """The task without the keys that no query can see."""
    if task.band.is_full:
        return task
    low, high = task.band.keys_of(0, task.num_queries - 1, task.num_keys)
    if (low, high) == (0, task.num_keys):
        return task
    mask = task.mask
    if mask is not None and mask.shape[-1] != 1:
        mask = mask[..., low:high]
    band = replace(task.band, offset=task.band.offset - low)
    return replace(
        task,
        keys=task.keys[:, :, low:high],
        values=task.values[:, :, low:high],
        mask=mask,
        band=band.simplified(task.num_queries, high - low),
    )


def shapes_of(queries: Tensor, keys: Tensor, values: Tensor) -> str:
    """What was given, for a message."""
    shapes = [list(tensor.shape) for tensor in (queries, keys, values)]
    return "got queries {}, keys {}, values {}".format(*shapes)


def are_tensors(queries: object, keys: object, values: object) -> bool:
    """Whether all three are tensors."""
    return isinstance(queries, Tensor) and isinstance(keys, Tensor) and isinstance(values, Tensor)


def check_axes(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Raise unless all three have the four axes of attention."""
    if not are_tensors(queries, keys, values):
        kinds = ", ".join(type(one).__name__ for one in (queries, keys, values))
        raise ShapeError(f"attention takes tensors; queries, keys and values are {kinds}")
    if not queries.dim() == keys.dim() == values.dim() == 4:
        got = shapes_of(queries, keys, values)
        raise ShapeError(f"attention takes [batch, heads, position, size] tensors; {got}")


def check_sizes(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The values, spread over batch and KV heads; raises where the three tensors cannot meet."""

    def got() -> str:
        return shapes_of(queries, keys, values)

    check_axes(queries, keys, values)
    batch, kv_heads, num_keys, d_key = keys.shape
    if queries.shape[0] != batch or queries.shape[3] != d_key or values.shape[2] != num_keys:
        raise ShapeError(
            f"queries and keys must share batch and d_key, keys and values their positions; {got()}"
        )
    if d_key == 0:
        raise ShapeError(f"heads of size 0 have no scores; {got()}")
    if kv_heads == 0 or queries.shape[1] % kv_heads:
        raise ShapeError(
            f"{queries.shape[1]} heads cannot share {kv_heads} KV heads evenly; {got()}"
        )
    if values.shape[:2] != keys.shape[:2]:
        if values.shape[0] not in (1, batch) or values.shape[1] not in (1, kv_heads):
            raise ShapeError(f"values must have the keys' batch and KV heads, or 1; {got()}")
        values = values.expand(batch, kv_heads, -1, -1)
    if not queries.dtype == keys.dtype == values.dtype:
        raise ShapeError(
            f"queries, keys and values must share a dtype; got {queries.dtype}, {keys.dtype}, "
            f"{values.dtype}"
        )
    if not queries.is_floating_point():
        raise ShapeError(
            f"queries, keys and values are {queries.dtype}: attention takes floating numbers"
        )
    return values


def checked_mask(mask: Tensor, queries: Tensor, num_keys: int) -> Tensor:
    """The mask with four axes, each 1 or the task's own size."""
    is_integer = not mask.is_floating_point() and mask.dtype != torch.bool
    if is_integer and can_be_read(mask) and bool((mask * mask != mask).any()):
        raise MaskError(
            f"the mask is {mask.dtype} and holds numbers from {int(mask.min())} to "
            f"{int(mask.max())}: integers are 1 for may attend and 0 for may not; a mask that is "
            "added to the scores is floating"
        )
    result = as_4d_mask(mask)
    wanted = (*queries.shape[:3], num_keys)
    if any(got not in (1, want) for got, want in zip(result.shape, wanted, strict=True)):
        hint = ""
        if mask.shape == (queries.shape[0], num_keys):
            hint = "; a mask of keys per sequence is mask[:, None, :]"
        raise MaskError(
            f"the mask is {list(mask.shape)}; it must fit [batch {wanted[0]}, heads {wanted[1]}, "
            f"query {wanted[2]}, key {wanted[3]}]{hint}"
        )
    return result


def bias_tile(
    task: Computation, first: int, last: int, low: int, high: int
) -> Float[Tensor, "#batch #heads query key"] | None:
    """What is added to the scores of queries `first..last` and keys `low..high`: -inf blocks.

    Half-open ranges. None where nothing is added. Float32 for the half-precision dtypes.
    """
    rows = torch.arange(first, last, device=task.queries.device)
    return bias_of(task, rows, slice(first, last), low, high)


def bias_at(
    task: Computation, rows: Int[Tensor, " query"], low: int, high: int
) -> Float[Tensor, "#batch #heads query key"] | None:
    """`bias_tile` of queries that need not be neighbours."""
    return bias_of(task, rows, rows, low, high)


def bias_of_pairs(
    task: Computation, query: Int[Tensor, " pairs"], key: Int[Tensor, " pairs"]
) -> Float[Tensor, "#batch #heads pairs"] | None:
    """`bias_tile` of single pairs of a query and a key, in memory linear in their number."""
    part: Tensor | None = None
    if task.mask is not None:
        rows = query if task.mask.shape[2] > 1 else torch.zeros_like(query)
        columns = key if task.mask.shape[3] > 1 else torch.zeros_like(key)
        part = task.mask[:, :, rows, columns]
    visible = None if task.band.is_full else task.band.visible(query, key[:, None])[:, 0]
    far = distance_tile(task, query, key[:, None])
    return summed_bias(task, part, None if far is None else far[..., 0], visible)


def bias_of(
    task: Computation, rows: Tensor, picked: slice | Tensor, low: int, high: int
) -> Float[Tensor, "#batch #heads query key"] | None:
    """What is added to the scores of some rows, `picked` from the mask, and keys `low..high`."""
    columns = torch.arange(low, high, device=task.queries.device)
    part: Tensor | None = None
    if task.mask is not None:
        part = task.mask if task.mask.shape[2] == 1 else task.mask[:, :, picked]
        part = part if task.mask.shape[3] == 1 else part[..., low:high]
    visible = None if task.band.is_full else task.band.visible(rows, columns)
    bias = summed_bias(task, part, distance_tile(task, rows, columns), visible)
    return None if bias is None else bias.expand(-1, -1, rows.shape[0], high - low)


def summed_bias(
    task: Computation, mask: Tensor | None, by_distance: Tensor | None, visible: Tensor | None
) -> Tensor | None:
    """Parts of a mask, of what distances add and of what the band shows, as one bias."""
    dtype = bias_dtype(task)
    bias: Tensor | None = None
    if mask is not None:
        bias = blocked_to_bias(mask, dtype) if mask.dtype == torch.bool else mask.to(dtype)
    if by_distance is not None:
        bias = by_distance if bias is None else bias + by_distance
    if visible is not None:
        if bias is None:
            bias = blocked_to_bias(visible[None, None], dtype)
        else:
            bias = bias.masked_fill(~visible, -math.inf)
    return bias


def blocked_to_bias(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where allowed, -inf elsewhere."""
    return torch.zeros((), dtype=dtype, device=allowed.device).where(allowed, -math.inf)


def distance_tile(
    task: Computation, rows: Tensor, columns: Tensor
) -> Float[Tensor, "1 heads query key"] | None:
    """ALiBi and relative bias of every pair, from the distance between key and query."""
    if task.rules.slopes is None and task.rules.distance_bias is None:
        return None
    dtype = bias_dtype(task)
    ahead = columns - (rows + task.band.offset)[:, None]
    tile = torch.zeros((), dtype=dtype, device=ahead.device)
    if task.rules.slopes is not None:
        slopes = check_per_head(task, task.rules.slopes, "slopes")
        tile = tile - slopes[:, None, None].to(dtype) * ahead.abs()
    if task.rules.distance_bias is not None:
        table = check_per_head(task, task.rules.distance_bias, "distance_bias")
        reach = table.shape[-1] // 2
        tile = tile + table.to(dtype)[:, ahead.clamp(-reach, reach) + reach]
    return tile[None]


def bias_dtype(task: Computation) -> torch.dtype:
    """What biases are added up in: at least single precision."""
    return torch.promote_types(task.queries.dtype, torch.float32)


def check_per_head(task: Computation, tensor: Tensor, name: str) -> Tensor:
    """The tensor, which must have one row a query head."""
    if tensor.shape[0] != task.queries.shape[1]:
        raise OptionError(
            f"{name} is for {tensor.shape[0]} heads; the queries have {task.queries.shape[1]}"
        )
    return tensor
