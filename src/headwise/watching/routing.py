"""Routing: a transformers model computes its attention here while somebody watches.

One attention function and one mask function are registered with transformers under a name of our
own. Inside `routed(model)` the model's configs name it; afterwards they name what they did before.
Who listens to a module, or changes what its heads give, is kept here per module.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from headwise.attention.core import run
from headwise.attention.rules import Rules
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.masks import StructuredMask, headwise_mask
from headwise.watching.places import Place

NAME = "headwise"

Change = Callable[[Tensor], Tensor]
"""From a layer's mixed values `[batch heads query d_value]` to what its projection gets instead."""


@dataclass(eq=False)
class Listener:
    """Somebody who wants to see the calls of some places, or to change what their heads give."""

    each: Callable[[Call], None] | None = None
    change: Change | None = None
    needs_lse: bool = False


LISTENERS: WeakKeyDictionary[nn.Module, list[tuple[Place, Listener]]] = WeakKeyDictionary()
"""Of every module that is listened to, in the order in which they came."""

TURNS: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""How often a module that several layers share has computed."""

ROUTED: dict[int, tuple[Any, str | None, int]] = {}
"""By its id, each config that names us: the config, what it named before, and for how many."""


def headwise_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers asks for it, told to whoever listens to the module."""
    rules = rules_of(module, query, key, attention_mask, options)
    rules = replace(rules, scale=scaling, dropout=dropout)
    listening = LISTENERS.get(module, [])
    with_lse = any(listener.needs_lse for _, listener in listening)
    mixed, lse = run(query, key, value, rules, with_lse=with_lse)
    if listening:
        turn = TURNS.get(module, 0)
        TURNS[module] = turn + 1
        mixed = tell(listening, turn, mixed, query, key, value, rules, lse)
    return mixed.transpose(1, 2).contiguous(), None


def tell(  # noqa: PLR0913 - the parts of one call
    listening: list[tuple[Place, Listener]],
    turn: int,
    mixed: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    rules: Rules,
    lse: Tensor | None,
) -> Tensor:
    """Show the call to each listener; what the last change leaves goes on into the model."""
    for place, listener in listening:
        if turn % place.turns != place.turn:
            continue
        if listener.each is not None:
            listener.each(
                AttentionCall(
                    place=place,
                    queries=queries,
                    keys=keys,
                    values=values,
                    rules=rules,
                    mixed=mixed,
                    known_lse=lse,
                )
            )
        if listener.change is not None:
            mixed = listener.change(mixed)
    return mixed


def rules_of(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Rules:
    """What transformers says of a call, in the words of `attend`."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    if isinstance(mask, StructuredMask):
        rules = mask.structure.rules()
    elif mask is not None:
        rules = Rules(mask=additive_or_bool(mask)[..., :num_keys])
    else:
        is_causal = options.get("is_causal")
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        rules = Rules(is_causal=bool(is_causal) and num_queries > 1, offset=0)
    bias = options.get("position_bias")
    if bias is not None:
        rules = with_bias(rules, bias[..., -num_queries:, :num_keys])
    return replace(rules, softcap=options.get("softcap"), sinks=options.get("s_aux"))


def additive_or_bool(mask: Tensor) -> Tensor:
    """The mask with -inf for what models write as the smallest number of their dtype."""
    if not mask.is_floating_point():
        return mask
    return mask.masked_fill(mask <= torch.finfo(mask.dtype).min, -torch.inf)


def with_bias(rules: Rules, bias: Tensor) -> Rules:
    """The rules with something added to the scores besides their mask."""
    if rules.mask is None:
        return replace(rules, mask=bias)
    if rules.mask.is_floating_point():
        return replace(rules, mask=rules.mask + bias)
    return replace(rules, mask=bias.masked_fill(~rules.mask, -torch.inf))


@contextmanager
def routed(model: nn.Module) -> Iterator[None]:
    """While it lasts the model, all its sub-models included, computes attention here."""
    configs = {id(config): config for config in configs_of(model)}
    for key, config in configs.items():
        _, before, users = ROUTED.get(key, (config, config._attn_implementation_internal, 0))
        ROUTED[key] = (config, before, users + 1)
        config._attn_implementation_internal = NAME
    try:
        yield
    finally:
        for key, config in configs.items():
            _, before, users = ROUTED.pop(key)
            if users > 1:
                ROUTED[key] = (config, before, users - 1)
            else:
                config._attn_implementation_internal = before


def configs_of(model: nn.Module) -> Iterator[Any]:
    """Every transformers config that some module of the model reads."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            yield config


@contextmanager
def listening(places: tuple[Place, ...], listener: Listener) -> Iterator[None]:
    """While it lasts, the listener is told of every call of these places."""
    entries = [(place, listener) for place in places]
    for entry in entries:
        LISTENERS.setdefault(entry[0].module, []).append(entry)
    try:
        yield
    finally:
        for entry in entries:
            kept = [one for one in LISTENERS[entry[0].module] if one is not entry]
            LISTENERS[entry[0].module] = kept
            if not kept:
                del LISTENERS[entry[0].module]


AttentionInterface.register(NAME, headwise_attention)
AttentionMaskInterface.register(NAME, headwise_mask)
