"""Each head's own slices of a layer's parameters.

The layer has one large matrix per projection; head `h` owns a slice of each. The slices are views:
writing to them changes the layer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from jaxtyping import Float
from torch import Tensor

from headwise.errors import ShapeError

if TYPE_CHECKING:
    from headwise.attention.layer import MultiHeadAttention


class HeadSlice(NamedTuple):
    """One head's matrices, so that `queries = x @ Wq + bq` and `output += mixed @ Wo`."""

    kv_head: int
    """The KV head that serves this head; several heads share one in grouped attention."""
    Wq: Float[Tensor, "d_model d_key"]
    Wk: Float[Tensor, "d_context d_key"]
    Wv: Float[Tensor, "d_context d_value"]
    Wo: Float[Tensor, "d_value d_model"]
    bq: Float[Tensor, " d_key"] | None
    bk: Float[Tensor, " d_key"] | None
    bv: Float[Tensor, " d_value"] | None


class HeadSlices(Sequence[HeadSlice]):
    """The heads of a layer, by number."""

    def __init__(self, layer: "MultiHeadAttention") -> None:
        """Views on the layer's live parameters."""
        self._layer = layer

    def __len__(self) -> int:
        """Number of query heads."""
        return self._layer.num_heads

    @overload
    def __getitem__(self, head: int) -> HeadSlice: ...
    @overload
    def __getitem__(self, head: slice) -> list[HeadSlice]: ...
    def __getitem__(self, head: int | slice) -> HeadSlice | list[HeadSlice]:
        """One head's slices, or a list of them."""
        if isinstance(head, slice):
            return [self[index] for index in range(len(self))[head]]
        if not -len(self) <= head < len(self):
            raise NoSuchSlice(f"head {head} is not in this layer: it has heads 0..{len(self) - 1}")
        layer = self._layer
        head %= len(self)
        kv_head = head // (layer.num_heads // layer.num_kv_heads)
        query, key = span(head, layer.d_key), span(kv_head, layer.d_key)
        value, mixed = span(kv_head, layer.d_value), span(head, layer.d_value)
        return HeadSlice(
            kv_head=kv_head,
            Wq=layer.Wq.weight[query].T,
            Wk=layer.Wk.weight[key].T,
            Wv=layer.Wv.weight[value].T,
            Wo=layer.Wo.weight[:, mixed].T,
            bq=None if layer.Wq.bias is None else layer.Wq.bias[query],
            bk=None if layer.Wk.bias is None else layer.Wk.bias[key],
            bv=None if layer.Wv.bias is None else layer.Wv.bias[value],
        )


class NoSuchSlice(ShapeError, IndexError):
    """A head number outside the layer."""


def span(index: int, width: int) -> slice:
    """Rows of a stacked matrix that belong to one head."""
    return slice(index * width, (index + 1) * width)
