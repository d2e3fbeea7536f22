"""Routing: which attention implementation each of a model's configs names inside a block.

In: a model and its sites. Out: the same model, whose modules find headwise's attention and masks in
transformers' interface. Neither is defined here: see interface.py and masks.py.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from headwise.watching.module_paths import path_and_parents
from headwise.watching.sites import Site

NAME = "headwise"
IMPLEMENTATION = "_attn_implementation_internal"
"""Attribute of a config with the name of its attention implementation."""


class Routed(str):
    """Name of headwise's attention in a config, equal to the implementation that it stands in for.

    Some modules compare the name in their config with "sdpa" or "eager", to build the masks that
    these expect; headwise's masks follow the same conventions.
    """

    stands_for: str
    native: str | None = None
    """Name that the config has outside the block."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == self.stands_for

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class WithBoolMasks(Routed):
    """headwise's attention with bool masks, as sdpa has them."""

    stands_for = "sdpa"


class WithFloatMasks(Routed):
    """headwise's attention with masks to add to the scores, as eager attention has them."""

    stands_for = "eager"


class WithWeights(Routed):
    """The eager attention of modules that return their weights."""

    stands_for = "eager"


NAMES = {WithBoolMasks: NAME, WithFloatMasks: f"{NAME}_float_masks", WithWeights: "eager"}
"""Names under which transformers finds the attention and the masks of each kind."""

CHANGES: dict[Hashable, tuple[Callable[[], None], int]] = {}
"""Changes that blocks can share: for each, the function that undoes it and how many share it."""
CHANGES_LOCK = threading.Lock()


@contextmanager
def route_attention(model: nn.Module, sites: Iterable[Site]) -> Iterator[None]:
    """Inside the block, the model and its sub-models use `headwise_attention`, uncompiled.

    Modules that do not use transformers' interface are set to `eager`, so that they return their
    weights. Compiled code would miss later observers, and torch cannot compile structured masks.
    """
    with ExitStack() as stack:
        stack.enter_context(_shared_change("stance", _stop_compiling))
        for config, name in _implementations(model, sites):
            remember = partial(_remember_implementation, config)
            stack.enter_context(_shared_change(id(config), remember))
            setattr(config, IMPLEMENTATION, name)
        yield


@contextmanager
def use_implementation(model: nn.Module, name: str | None = None) -> Iterator[None]:
    """Inside the block, a routed model uses its own implementation, or `name` where it routes."""
    names = {}
    for module in model.modules():
        config = config_of(module)
        current = getattr(config, IMPLEMENTATION, None)
        if isinstance(current, Routed):
            names[id(config)] = config, current
            is_routed = not isinstance(current, WithWeights)
            setattr(config, IMPLEMENTATION, name if name and is_routed else current.native)
    try:
        yield
    finally:
        for config, current in names.values():
            setattr(config, IMPLEMENTATION, current)


def _stop_compiling() -> Callable[[], None]:
    stance = torch.compiler.set_stance("force_eager")
    return partial(stance.__exit__, None, None, None)


def _remember_implementation(config: Any) -> Callable[[], None]:
    return partial(setattr, config, IMPLEMENTATION, getattr(config, IMPLEMENTATION))


@contextmanager
def _shared_change(key: Hashable, change: Callable[[], Callable[[], None]]) -> Iterator[None]:
    """Call `change` unless another block already has; undo it when the last such block ends."""
    with CHANGES_LOCK:
        undo, users = CHANGES.get(key) or (change(), 0)
        CHANGES[key] = undo, users + 1
    try:
        yield
    finally:
        with CHANGES_LOCK:
            undo, users = CHANGES.pop(key)
            if users > 1:
                CHANGES[key] = undo, users - 1
            else:
                undo()


def _implementations(model: nn.Module, sites: Iterable[Site]) -> Iterator[tuple[Any, Routed]]:
    """Every config to change, with the name of the attention implementation to set in it.

    The config of modules without routed attention is left alone, unless they have to return their
    weights, or make masks for routed attention that it could not read.
    """
    modules = dict(model.named_modules())
    of_sites: dict[bool, set[int]] = {True: set(), False: set()}
    for site in sites:
        parents = (config_of(modules[name]) for name in path_and_parents(site.name))
        of_sites[site.is_routed].add(id(next((config for config in parents if config), None)))
    configs = {id(config): config for module in modules.values() if (config := config_of(module))}
    for key, config in configs.items():
        native = native_name(config)
        if key in of_sites[True] or native not in (None, "eager", "sdpa"):
            bypasses = getattr(config, "reorder_and_upcast_attn", False)  # GPT-2, if eager
            is_eager = native == "eager" and not bypasses
            yield config, _routed_name(WithFloatMasks if is_eager else WithBoolMasks, native)
        elif key in of_sites[False]:
            yield config, _routed_name(WithWeights, native)


def config_of(module: nn.Module) -> Any:
    """The module's config if it names an attention implementation, otherwise None."""
    config = vars(module).get("config")  # torch's own lookup of missing names is slow
    return config if hasattr(config, IMPLEMENTATION) else None


def native_name(config: Any) -> str | None:
    """Name of the implementation that the config has outside the block."""
    name: str | None = getattr(config, IMPLEMENTATION, None)
    return name.native if isinstance(name, Routed) else name


def _routed_name(kind: type[Routed], native: str | None) -> Routed:
    name = kind(NAMES[kind])
    name.native = native
    return name
