"""Masks: transformers' mask requests as structure, made dense only on first use.

In: a model's request to transformers' mask interface. Out: a tensor with the mask's shape that
carries its structure, so that attention is computed without the full mask. Any operation on it uses
the dense mask instead. Writes into the mask (`mask[0, 1] = False`) stay; writes into a view of it
(`mask[0][1] = False`) are lost.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from transformers import masking_utils
from transformers.masking_utils import sdpa_mask

from headwise.attention.rules import Rules


@dataclass(frozen=True)
class Structure:
    """A mask as a band of key positions around each query, and padding."""

    before: int | None
    """Number of keys before its own position that a query sees; None for all."""
    after: int | None
    offset: int
    """Key position of the first query."""
    is_real: Bool[Tensor, "batch key"] | None
    """True for real keys, False for padding; None if all keys are real."""

    def rules(self) -> Rules:
        """The structure as rules for `attend`."""
        rules: dict[str, Any] = {"window": (self.before, self.after), "offset": self.offset}
        if self.is_real is None:
            return Rules(**rules)
        lengths = right_padded_lengths(self.is_real)
        if lengths is not None:
            return Rules(lengths=lengths, **rules)
        return Rules(mask=self.is_real[:, None, None], **rules)


def right_padded_lengths(is_real: Bool[Tensor, "batch position"]) -> Tensor | None:
    """Number of real positions of each sequence; None if padding precedes any of them."""
    lengths = is_real.sum(-1)
    starts = torch.arange(is_real.shape[1], device=is_real.device) < lengths[:, None]
    return lengths if torch.equal(starts, is_real) else None


class StructuredMask(Tensor):
    """A bool mask `[batch 1 query key]` that takes no memory until it is used."""

    structure: Structure | None
    """None once the mask was written into: then only `make_dense` has its values."""
    make_dense: Callable[[], Tensor]

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        structure: Structure,
        make_dense: Callable[[], Tensor],
        device: torch.device | str | None = None,
    ) -> "StructuredMask":
        """A mask of this shape and structure; `make_dense` returns its values."""
        mask = torch.ones((), dtype=torch.bool, device=device).expand(*shape).as_subclass(cls)
        mask.structure, mask.make_dense = structure, make_dense
        return mask

    def drop_structure(self) -> None:
        """Make the mask dense for good, so that writes into it stay."""
        dense = self.make_dense().clone()
        self.structure, self.make_dense = None, lambda: dense

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Answer shape and dtype without the dense mask; run everything else on the dense mask."""
        named = dict(kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            if func in FACTS or getattr(func, "__name__", "") == "__get__":
                fact = func(*args, **named)
                if not isinstance(fact, Tensor):  # such as `mask.T`
                    return fact
            if _is_in_place(func) or "out" in named:
                for value in tree_leaves((args, named)):
                    if isinstance(value, StructuredMask) and value.structure is not None:
                        value.drop_structure()
            return func(*tree_map(real_mask, tuple(args)), **tree_map(real_mask, named))


FACTS = {Tensor.size, Tensor.dim, Tensor.__len__, Tensor.is_floating_point, Tensor.__hash__}


def _is_in_place(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return name in IN_PLACE if name.startswith("__") else name.endswith("_")


IN_PLACE = {
    *("__setitem__", "__set__"),
    *(f"__i{name}__" for name in ("and", "or", "xor", "add", "sub", "mul", "truediv", "pow")),
}


def real_mask(value: Any) -> Any:
    """The dense mask of a `StructuredMask`; any other value is returned as it is."""
    return value.make_dense() if isinstance(value, StructuredMask) else value


def headwise_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Mask function for transformers: structured if the mask function is known, otherwise dense."""
    options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    attention_mask = None if attention_mask is None else attention_mask.bool()

    def make_dense() -> Tensor:
        mask = sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            int(q_offset),
            kv_offset,
            mask_function,
            attention_mask,
            **options,
        )
        assert isinstance(mask, Tensor), "skips are not allowed above"
        return mask

    band = band_of(mask_function)
    if band is None:
        return make_dense()
    is_real = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if is_real is not None:
        is_real = is_real[:, kv_offset : kv_offset + kv_length]
        is_real = None if bool(is_real.all()) else is_real
    structure = Structure(*band, int(q_offset) - int(kv_offset), is_real)
    shape = (batch_size, 1, q_length, kv_length)
    return StructuredMask.of(shape, structure, make_dense, options.get("device"))


Band = tuple[int | None, int | None]


def band_of(mask_function: Callable[..., Any]) -> Band | None:
    """Keys before and after its own position that a query may see; None if unknown.

    transformers combines its mask functions from a few named parts. If one part is unknown, the
    whole function is, and the mask is dense.
    """
    if getattr(mask_function, "__module__", None) != masking_utils.__name__:
        return None
    inside = inspect.getclosurevars(mask_function).nonlocals
    match mask_function.__qualname__.removesuffix(".<locals>.inner_mask"):
        case "causal_mask_function":
            return None, 0
        case "bidirectional_mask_function":
            return None, None
        case "sliding_window_overlay":
            return inside["sliding_window"] - 1, None
        case "sliding_window_bidirectional_overlay":
            return inside["sliding_window"], inside["sliding_window"]
        case "and_masks.<locals>.and_mask":
            bands = [band_of(part) for part in inside["mask_functions"]]
            known = [band for band in bands if band is not None]
            if len(known) < len(bands):
                return None
            return _narrowest(band[0] for band in known), _narrowest(band[1] for band in known)
    return None


def _narrowest(bounds: Iterable[int | None]) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
