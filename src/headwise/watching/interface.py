"""Routing: a transformers model computes its attention here while somebody watches.

One attention function and one mask function are registered with transformers under a name of our
own. Inside `routed(model)` the model's configs name it; afterwards they name what they did before.
Who listens to a module, or changes what its heads give, is kept here per module.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.utils import output_capturing

from headwise.attention.attend import attend_in_steps, mix
from headwise.attention.kernels import can_be_read
from headwise.attention.rules import Rules, as_4d_mask, restrict_mask
from headwise.errors import ModelError
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.masks import StructuredMask, headwise_mask, real_mask
from headwise.watching.sites import Site

NAME = "headwise"

Change = Callable[[Tensor], Tensor]
"""From a layer's mixed values `[batch heads query d_value]` to what goes on in their place."""


@dataclass(eq=False)
class CallObserver:
    """Somebody who wants to see the calls of some places, or to change what their heads give."""

    each: Callable[[Call], None] | None = None
    change: Change | None = None
    needs_lse: bool = False
    waiting: tuple[AttentionCall, RemovableHandle] | None = field(default=None, repr=False)
    """A call whose output projection has not run yet, and the hook there."""

    def hear(self, call: AttentionCall, given: Float[Tensor, "batch query heads d_value"]) -> None:
        """Tell of a call once its output projection runs, and whether that gets the `given`."""
        projection = call.place.output_projection
        if projection is None:
            self.tell(call)
            return

        def project(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.settle(is_direct=bool(inputs) and are_same(inputs[0], given))

        # First of all, so as to hear what arrives before anybody changes it.
        self.waiting = call, projection.register_forward_pre_hook(project, prepend=True)

    def settle(self, *, is_direct: bool = False) -> None:
        """Tell of the call that waits, if one does; no projection that is a module has got it."""
        if (call := self.forget()) is not None:
            self.tell(call if is_direct else replace(call, is_direct=False))

    def forget(self) -> AttentionCall | None:
        """Stop waiting; the call that did."""
        if self.waiting is None:
            return None
        (call, hook), self.waiting = self.waiting, None
        hook.remove()
        return call

    def tell(self, call: AttentionCall) -> None:
        """Tell of a call now."""
        assert self.each is not None
        self.each(call)


def are_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers in the same order, whatever their shapes."""
    if one.numel() != other.numel() or not can_be_read(one):
        return one.numel() == other.numel()
    one, other = one.flatten(), other.to(one).flatten()
    return torch.equal(one, other) or torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


Entry = tuple[Site, CallObserver]

LISTENERS: WeakKeyDictionary[nn.Module, list[Entry]] = WeakKeyDictionary()
"""Of every module that is listened to, in the order in which they came."""

TURNS: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""How often a module that several layers share has computed since its loop began."""

ROUTED: dict[int, tuple[Any, str | None, int]] = {}
"""By its id, each config that we have set: the config, what it named before, and for how many."""


def headwise_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers asks for it, told to whoever listens to the module.

    The weights are worked out beside it for a model that is to return them.
    """
    if options.get("cache") is not None:
        raise ModelError(
            f"{type(module).__name__} cannot be watched under continuous batching: "
            "its keys are in a paged cache; generate without it"
        )
    rules = rules_of(module, query, key, attention_mask, options)
    rules = replace(rules, scale=scaling, dropout=dropout)
    entries = entries_now(module)
    for _, listener in entries:
        listener.settle()
    with_lse = any(listener.needs_lse for _, listener in entries)
    if with_lse:
        check_finite(entries[0][0], query, key)
    mixed, lse = mix(query, key, value, rules, with_lse=with_lse)
    given, heard = mixed, []
    for place, listener in entries:
        if listener.each is not None:
            call = AttentionCall(
                place=place,
                queries=query,
                keys=key,
                values=value,
                rules=rules,
                mixed=mixed,
                known_lse=lse,
            )
            heard.append((listener, call))
        if listener.change is not None:
            given = listener.change(given)
    given = given.transpose(1, 2).contiguous()
    for listener, call in reversed(heard):  # the last to wait is the first to be told
        listener.hear(call, given)
    weights = None
    if options.get("output_attentions") or records_weights():
        sure = replace(rules, dropout=0.0)
        weights = attend_in_steps(query, key, value, rules=sure).weights.to(query.dtype)
    return given, weights


def records_weights() -> bool:
    """Whether the model that runs is to return its weights, as transformers' recorder knows.

    Most models do not hand the wish down to where attention is computed.
    """
    recorder = getattr(output_capturing, "_active_collector", None)
    wanted = None if recorder is None else recorder.get()
    return any(name.endswith("attentions") for name in wanted or ())


def check_finite(place: Site, query: Tensor, key: Tensor) -> None:
    """Raise where queries or keys overflowed: torch's kernel gives zeros for some such rows.

    Sums are read at the speed of memory, and are not finite where a part of them is not.
    """
    if not can_be_read(query) or (query.sum() + key.sum()).isfinite():
        return
    if not (query.isfinite().all() and key.isfinite().all()):
        dtype = str(query.dtype).removeprefix("torch.")
        raise ModelError(
            f"{place.layer_name} cannot be measured: its queries or keys hold NaN or infinities in "
            f"{dtype}, and so would every result: load the model in a wider dtype"
        )


def entries_now(module: nn.Module) -> list[Entry]:
    """Who listens to the layer that the module computes at this moment."""
    entries = LISTENERS.get(module, [])
    if not any(place.loop for place, _ in entries):
        return entries
    turn = TURNS.get(module, 0)
    TURNS[module] = turn + 1
    return [entry for entry in entries if entry[0].turn == turn]


def rules_of(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Rules:
    """What transformers says of a call, in the words of `attend`."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    structure = mask.structure if isinstance(mask, StructuredMask) else None
    if mask is not None and structure is not None and mask.shape[2:] == (num_queries, num_keys):
        rules = structure.rules()
    elif mask is not None:
        rules = Rules(mask=additive_or_bool(real_mask(mask))[..., :num_keys])
    else:
        is_causal = options.get("is_causal")
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        rules = Rules(is_causal=bool(is_causal) and num_queries > 1, offset=0)
    bias = options.get("position_bias")
    if bias is not None:
        rules = with_bias(rules, bias[..., -num_queries:, :num_keys])
    return replace(rules, softcap=options.get("softcap"), sinks=options.get("s_aux"))


def additive_or_bool(mask: Tensor) -> Tensor:
    """The mask with four axes, and -inf for what models write as the smallest number they have."""
    mask = as_4d_mask(mask)
    if not mask.is_floating_point():
        return mask
    return mask.masked_fill(mask <= torch.finfo(mask.dtype).min, -torch.inf)


def with_bias(rules: Rules, bias: Tensor) -> Rules:
    """The rules with something added to the scores besides their mask."""
    if rules.mask is None:
        return replace(rules, mask=bias)
    if rules.mask.is_floating_point():
        return replace(rules, mask=rules.mask + bias)
    return replace(rules, mask=restrict_mask(bias, rules.mask))


@contextmanager
def routed(model: nn.Module, places: Iterable[Site]) -> Iterator[None]:
    """While it lasts the model, all its sub-models included, computes attention here.

    Parts of it that do not ask transformers' interface are set to `eager`, for they return their
    weights only then.
    """
    names = dict(implementations(model, places))
    for key, (config, name) in names.items():
        _, before, users = ROUTED.get(key, (config, config._attn_implementation_internal, 0))
        ROUTED[key] = (config, before, users + 1)
        config._attn_implementation_internal = name
    try:
        yield
    finally:
        for key, (config, _) in names.items():
            _, before, users = ROUTED.pop(key)
            if users > 1:
                ROUTED[key] = (config, before, users - 1)
            else:
                config._attn_implementation_internal = before


def implementations(
    model: nn.Module, places: Iterable[Site]
) -> Iterator[tuple[int, tuple[Any, str]]]:
    """Every config that a module of the model reads, by its id, and what it has to name."""
    around: dict[bool, set[str]] = {True: set(), False: set()}
    for place in places:
        parts = place.name.split(".")
        around[place.is_routed] |= {".".join(parts[:count]) for count in range(len(parts) + 1)}
    configs: dict[int, tuple[Any, set[bool]]] = {}
    for name, module in model.named_modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            kinds = configs.setdefault(id(config), (config, set()))[1]
            kinds |= {kind for kind, names in around.items() if name in names}
    default = bool(around[True])
    for key, (config, kinds) in configs.items():
        yield key, (config, NAME if True in (kinds or {default}) else "eager")


@dataclass
class Stance:
    """Compiled models run as they are written while anybody is here, in whatever order they go.

    What was compiled without listeners would tell them nothing, and torch cannot compile masks that
    are structure.
    """

    users: int = 0
    kept: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def as_written(self) -> Iterator[None]:
        """While it lasts, nothing is compiled, and nothing that was compiled is run."""
        with self.lock:
            if not self.users:
                self.kept = torch.compiler.set_stance("force_eager")
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if not self.users:
                    self.kept.__exit__(None, None, None)


STANCE = Stance()
"""torch has one for the whole process."""


@contextmanager
def listening(entries: list[Entry]) -> Iterator[None]:
    """While it lasts, each listener is told of every call of its place."""
    loops = {place.module: place.loop for place, _ in entries if place.loop is not None}
    hooks = [loop.register_forward_pre_hook(restarting(module)) for module, loop in loops.items()]
    for entry in entries:
        LISTENERS.setdefault(entry[0].module, []).append(entry)
    try:
        yield
        for _, listener in entries:
            listener.settle()
    finally:
        for hook in hooks:
            hook.remove()
        for entry in entries:
            entry[1].forget()
            kept = [one for one in LISTENERS[entry[0].module] if one is not entry]
            LISTENERS[entry[0].module] = kept
            if not kept:
                del LISTENERS[entry[0].module]


def restarting(module: nn.Module) -> Callable[..., None]:
    """A hook that begins to count the turns of a shared module anew."""

    def restart(*_: Any) -> None:
        TURNS[module] = 0

    return restart


AttentionInterface.register(NAME, headwise_attention)
AttentionMaskInterface.register(NAME, headwise_mask)
