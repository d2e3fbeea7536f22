"""Input kinds: which differences between inputs can make a model take another path.

In: the arguments of a model's call. Out: an `InputKind` and lengths, for `output_check.py`, which
compares watched with unwatched outputs once for each kind.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from headwise.watching.routing import config_of, native_name

Arguments = Mapping[str, Any]
"""Arguments of a call by the names of the model's parameters; those that are None are left out."""
TOKENS = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
LIBRARIES = ("torch.", "transformers.modeling_", "transformers.generation")
"""Modules whose classes are parents of models, and know all implementations."""
CACHES = ("past_key_values", "cache_params")


@dataclass(frozen=True)
class InputKind:
    """Facts about a call that a model may branch on, except lengths."""

    caller: int
    """The module that is called: the model, or a part of it."""
    tensors: frozenset[tuple[str, int, torch.dtype]]
    """Names, numbers of axes and dtypes."""
    padding: tuple[bool, ...]
    """Whether any sequence's first, last or other position is hidden, for every mask."""
    cache: str
    """Class of the key-value cache; "" without one, and if it is empty also "empty"."""


def bind_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: Arguments) -> dict[str, Any]:
    """The arguments by name."""
    names = _parameter_names(type(module).forward) if args else ()
    return dict(zip(names, args, strict=False)) | dict(kwargs)


@cache
def _parameter_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(forward).parameters)[1:]


def kind_of(module: nn.Module, arguments: Arguments) -> InputKind:
    """The kind of these inputs."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    masks = [value for name, value in sorted(tensors.items()) if name.endswith("attention_mask")]
    past, length = _cache_of(arguments), cache_length(arguments)
    return InputKind(
        caller=id(module),
        tensors=frozenset((name, value.dim(), value.dtype) for name, value in tensors.items()),
        padding=tuple(hidden for mask in masks for hidden in _hidden_positions(mask)),
        cache="" if past is None else f"{type(past).__name__}{'' if length else ' empty'}",
    )


def _hidden_positions(mask: Tensor) -> list[bool]:
    if mask.dim() != 2 or not mask.numel():
        return []
    is_hidden = mask == 0
    facts = [is_hidden[:, 0].any(), is_hidden[:, -1].any(), is_hidden.any()]
    hidden: list[bool] = torch.stack(facts).tolist()
    return hidden


def num_positions(arguments: Arguments) -> int:
    """Number of positions per sequence, cached ones included; 0 if there are no tokens."""
    tokens = [arguments[name] for name in TOKENS if isinstance(arguments.get(name), Tensor)]
    longest = max((part.shape[1] for part in tokens if part.dim() > 1), default=0)
    return longest + cache_length(arguments)


def input_sizes(arguments: Arguments) -> dict[str, int]:
    """Numbers per sequence in every tensor, by name, and the length of the cache."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    sizes = {name: value.shape[value.dim() > 1 :].numel() for name, value in tensors.items()}
    return sizes | {"": num_positions(arguments)}


def cache_length(arguments: Arguments) -> int:
    """Number of positions in the key-value cache; 0 without one."""
    count = getattr(_cache_of(arguments), "get_seq_length", None)
    return 0 if count is None else int(count())


def _cache_of(arguments: Arguments) -> Any:
    return next((arguments[name] for name in CACHES if arguments.get(name) is not None), None)


def config_numbers(model: nn.Module) -> frozenset[int]:
    """Whole numbers in the model's configs: one of them, such as a window, may change the code."""
    numbers = set[int]()
    for module in model.modules():
        if (config := config_of(module)) is not None:
            for value in vars(config).values():
                values = value if isinstance(value, list | tuple) else [value]
                numbers |= {number for number in values if type(number) is int}
    return frozenset(numbers)


def compares_names(model: nn.Module) -> bool:
    """Whether code of the model may treat headwise's implementation unlike the model's own.

    In plain comparisons headwise's name equals "sdpa"; in a set of names it does not.
    """
    names = {native_name(config) for module in model.modules() if (config := config_of(module))}
    is_usual = names <= {None, "sdpa"}
    classes = {base for module in model.modules() for base in type(module).__mro__}
    own = [kind for kind in classes if not kind.__module__.startswith(LIBRARIES)]
    codes = [is_plain for kind in own for is_plain in _name_comparisons(vars(kind).values())]
    return any(not (is_usual and is_plain) for is_plain in codes)


def _name_comparisons(functions: Iterable[Any]) -> Iterator[bool]:
    """Whether each of the functions that compare implementations by name does so plainly."""
    for function in functions:
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None and "_attn_implementation" in code.co_names:
            sets = [const for const in code.co_consts if isinstance(const, frozenset)]
            texts = {text for const in (*code.co_consts, *sets) for text in _texts(const)}
            if texts & {"eager", "sdpa", "flex_attention", "flash_attention_2"}:
                yield not sets and "startswith" not in code.co_names


def _texts(const: Any) -> list[str]:
    parts = const if isinstance(const, tuple | frozenset) else [const]
    return [part for part in parts if isinstance(part, str)]
