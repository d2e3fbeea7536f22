"""Masks as structure: what may see what, told by transformers and laid out only when touched.

In: what a model asks of transformers' mask interface. Out: a tensor that stands for the whole mask
and carries its structure, so that attention can be computed without it. Whatever a model does with
such a tensor besides handing it on, it does with the real mask; what it writes into a view of one
(`mask[0][1] = False`) is lost, what it writes into the mask itself (`mask[0, 1] = False`) stays.
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
    """A mask in a few words: a band of key positions around each query, and padding."""

    before: int | None
    """Keys before its own position that a query sees, None = all."""
    after: int | None
    offset: int
    """Key position of the first query."""
    is_real: Bool[Tensor, "batch key"] | None
    """Which keys are no padding; None = all."""

    def rules(self) -> Rules:
        """The same in the words of `attend`."""
        rules: dict[str, Any] = {"window": (self.before, self.after), "offset": self.offset}
        if self.is_real is None:
            return Rules(**rules)
        lengths = right_padded_lengths(self.is_real)
        if lengths is not None:
            return Rules(lengths=lengths, **rules)
        return Rules(mask=self.is_real[:, None, None], **rules)


def right_padded_lengths(is_real: Bool[Tensor, "batch position"]) -> Tensor | None:
    """How many real positions each sequence begins with; None if padding stands before any."""
    lengths = is_real.sum(-1)
    starts = torch.arange(is_real.shape[1], device=is_real.device) < lengths[:, None]
    return lengths if torch.equal(starts, is_real) else None


class StructuredMask(Tensor):
    """A bool mask `[batch 1 query key]` that takes no memory until an operation needs it."""

    structure: Structure | None
    """None once somebody has written into the mask: it is then what `lay_out` gives."""
    lay_out: Callable[[], Tensor]

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        structure: Structure,
        lay_out: Callable[[], Tensor],
        device: torch.device | str | None = None,
    ) -> "StructuredMask":
        """A stand-in of that shape; `lay_out` makes the mask itself."""
        mask = torch.ones((), dtype=torch.bool, device=device).expand(*shape).as_subclass(cls)
        mask.structure, mask.lay_out = structure, lay_out
        return mask

    def settle(self) -> None:
        """Lay the mask out for good, so that what is written into it stays."""
        laid_out = self.lay_out().clone()
        self.structure, self.lay_out = None, lambda: laid_out

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Facts of the stand-in are facts of the mask; everything else gets the mask itself."""
        named = dict(kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            if func in FACTS or getattr(func, "__name__", "") == "__get__":
                fact = func(*args, **named)
                if not isinstance(fact, Tensor):  # such as `mask.T`
                    return fact
            if is_writing(func) or "out" in named:
                for value in tree_leaves((args, named)):
                    if isinstance(value, StructuredMask) and value.structure is not None:
                        value.settle()
            return func(*tree_map(real_mask, tuple(args)), **tree_map(real_mask, named))


FACTS = {Tensor.size, Tensor.dim, Tensor.__len__, Tensor.is_floating_point, Tensor.__hash__}


def is_writing(func: Callable[..., Any]) -> bool:
    """Whether a tensor's function changes the tensor in place, as its name says."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return name in ("__setitem__", "__set__") or name in IN_PLACE
    return name.endswith("_")


IN_PLACE = {f"__i{name}__" for name in ("and", "or", "xor", "add", "sub", "mul", "truediv", "pow")}


def real_mask(value: Any) -> Any:
    """The mask that a stand-in stands for; anything else as it is."""
    return value.lay_out() if isinstance(value, StructuredMask) else value


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
    """The mask function beside headwise's attention: structure where it is known, dense else."""
    options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    attention_mask = None if attention_mask is None else attention_mask.bool()

    def lay_out() -> Tensor:
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
        return lay_out()
    is_real = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if is_real is not None:
        is_real = is_real[:, kv_offset : kv_offset + kv_length]
        is_real = None if bool(is_real.all()) else is_real
    structure = Structure(*band, int(q_offset) - int(kv_offset), is_real)
    shape = (batch_size, 1, q_length, kv_length)
    return StructuredMask.of(shape, structure, lay_out, options.get("device"))


Band = tuple[int | None, int | None]


def band_of(mask_function: Callable[..., Any]) -> Band | None:
    """Keys before and after its own position that the function lets a query see; None = unknown.

    transformers builds its mask functions from a few named parts; a part that is not known here
    makes the whole function unknown, and the mask is laid out.
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
            return narrowest(band[0] for band in known), narrowest(band[1] for band in known)
    return None


def narrowest(bounds: Iterable[int | None]) -> int | None:
    """The smallest of some bounds, None being no bound."""
    return min((bound for bound in bounds if bound is not None), default=None)
