"""Masks: the masks that a model requests, expressed as rules and made dense only when needed.

In: a model's call of transformers' mask interface. Out: a tensor with the mask's shape that carries
rules, so that attention needs no dense mask; any other operation on the tensor uses one.
Writes to the mask (`mask[0, 1] = False`) persist; writes to a view (`mask[0][1] = False`) do not.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from transformers import masking_utils
from transformers.masking_utils import eager_mask, sdpa_mask

from headwise.attention.rules import Rules


class StructuredMask(Tensor):
    """A mask `[batch 1 query key]` that takes no memory until it is used."""

    make_rules: Callable[[], Rules] | None
    """Returns rules that are equivalent to the mask; None once the mask has been written to."""
    make_dense: Callable[[], Tensor]

    def drop_rules(self) -> None:
        """Make the mask permanently dense, so that writes to it persist."""
        dense = self.make_dense().clone()
        self.make_rules, self.make_dense = None, lambda: dense

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Look up shape and dtype without the dense mask; run everything else on the dense mask."""
        named = dict(kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            if func in FACTS or getattr(func, "__name__", "") == "__get__":
                fact = func(*args, **named)
                if not isinstance(fact, Tensor):  # tensors such as `mask.T` need the dense mask
                    return fact
            if _is_in_place(func) or "out" in named:
                for value in tree_leaves((args, named)):
                    if isinstance(value, StructuredMask) and value.make_rules is not None:
                        value.drop_rules()
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
    """The dense mask of a `StructuredMask`; any other value is returned unchanged."""
    return value.make_dense() if isinstance(value, StructuredMask) else value


def headwise_mask(  # noqa: PLR0913 - transformers' arguments, and one
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    *,
    is_float: bool = False,
    **options: Any,
) -> Tensor | None:
    """A mask for transformers: structured if `mask_function` is known, otherwise dense.

    It is bool (True: may attend) or, with `is_float`, is added to the scores. None if sdpa, or with
    `is_float` eager attention, gets no mask either: sdpa then decides by the module's `is_causal`.
    """
    sizes = (batch_size, q_length, kv_length, q_offset, kv_offset)
    mask_of = eager_mask if is_float else sdpa_mask
    attention_mask = None if attention_mask is None else attention_mask.bool()
    band = band_of(mask_function)
    if band is None:
        dense: Tensor | None = mask_of(*sizes, mask_function, attention_mask, **options)
        return dense
    skips_causal = options.pop("allow_is_causal_skip", True) and not is_float
    skips_full = options.pop("allow_is_bidirectional_skip", False)
    never = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}

    def make_dense() -> Tensor:
        mask = mask_of(*sizes, mask_function, attention_mask, **options, **never)
        assert isinstance(mask, Tensor), "skips are disabled above"
        return mask

    @cache
    def make_rules() -> Rules:
        rules: dict[str, Any] = {"window": band, "offset": int(q_offset) - int(kv_offset)}
        is_real = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if is_real is not None:
            is_real = is_real[:, kv_offset : kv_offset + kv_length]
            lengths = is_real.sum(-1)
            positions = torch.arange(is_real.shape[1], device=is_real.device)
            if not torch.equal(positions < lengths[:, None], is_real):
                rules["mask"] = is_real[:, None, None]
            elif not bool(is_real.all()):
                rules["lengths"] = lengths
        return Rules(**rules)

    before, after = band
    is_whole = before is None or before >= kv_length
    is_skipped = (skips_causal and q_length in (1, kv_length)) if after == 0 else skips_full
    if is_whole and is_skipped and make_rules().mask is None and make_rules().lengths is None:
        return None
    dtype = options.get("dtype", torch.float32) if is_float else torch.bool
    value = torch.ones((), dtype=dtype, device=options.get("device"))
    mask = value.expand(batch_size, 1, q_length, kv_length).as_subclass(StructuredMask)
    mask.make_rules, mask.make_dense = make_rules, make_dense
    return mask


Band = tuple[int | None, int | None]


def band_of(mask_function: Callable[..., Any]) -> Band | None:
    """Number of keys a query may see before and after its own position; None if unknown."""
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
            parts = inside["mask_functions"]
            bands = [band for band in map(band_of, parts) if band is not None]
            if len(bands) == len(parts):
                return _narrowest(band[0] for band in bands), _narrowest(band[1] for band in bands)
    return None


def _narrowest(bounds: Iterable[int | None]) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
