"""The interface: a transformers model computes its attention here while it is watched.

In: transformers' attention call. Out: its result, and an `AttentionCall` for each observer of the
module. One attention function and one mask function are registered with transformers under the name
`headwise`; inside `route_attention` the model's configs use that name.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.utils import output_capturing

from headwise.attention.attend import attend_in_steps, mix
from headwise.attention.prepare import can_be_read
from headwise.attention.rules import Rules, as_4d_mask, restrict_mask
from headwise.errors import ModelError
from headwise.watching.calls import AttentionCall, Call
from headwise.watching.masks import StructuredMask, headwise_mask, real_mask
from headwise.watching.sites import Site

NAME = "headwise"

Change = Callable[[Tensor], Tensor]
"""Maps a layer's head outputs `[batch heads query d_value]` to the outputs to use instead."""


@dataclass(eq=False)
class CallObserver:
    """Receives the calls of some sites, or changes the outputs of their heads."""

    each: Callable[[Call], None] | None = None
    change: Change | None = None
    needs_lse: bool = False
    pending: tuple[AttentionCall, RemovableHandle] | None = field(default=None, repr=False)
    """A call whose output projection has not run yet, and the hook on that projection."""

    def hold(self, call: AttentionCall, output: Float[Tensor, "batch query heads d_value"]) -> None:
        """Keep a call until its output projection runs, to see whether `output` is its input."""
        projection = call.site.output_projection
        if projection is None:
            self.notify(call)
            return

        def project(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.release(is_direct=bool(inputs) and _are_equal(inputs[0], output))

        # Before all other hooks, which may change the input.
        self.pending = call, projection.register_forward_pre_hook(project, prepend=True)

    def release(self, *, is_direct: bool = False) -> None:
        """Pass the pending call on, if there is one; not direct if its projection never ran."""
        if (call := self.drop()) is not None:
            self.notify(call if is_direct else replace(call, is_direct=False))

    def drop(self) -> AttentionCall | None:
        """Remove the pending call and its hook, and return the call."""
        if self.pending is None:
            return None
        (call, hook), self.pending = self.pending, None
        hook.remove()
        return call

    def notify(self, call: AttentionCall) -> None:
        """Pass a call to `each`."""
        assert self.each is not None
        self.each(call)


def _are_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same numbers in the same order, whatever their shapes."""
    if first.numel() != second.numel() or not can_be_read(first):
        return first.numel() == second.numel()
    first, second = first.flatten(), second.to(first).flatten()
    is_equal = torch.equal(first, second)
    return is_equal or torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


Entry = tuple[Site, CallObserver]

OBSERVERS: WeakKeyDictionary[nn.Module, list[Entry]] = WeakKeyDictionary()
"""Observers of each module, in the order in which they were attached."""

CALL_COUNTS: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""Calls of each shared module since its layer loop began."""

ROUTED: dict[int, tuple[Any, str | None, int]] = {}
"""Changed configs by id: the config, its own implementation, and how many blocks use ours."""


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
    """Attention in transformers' signature, passed to the module's observers.

    Weights are computed separately, and only if the model is to return them.
    """
    if options.get("cache") is not None:
        raise ModelError(
            f"{type(module).__name__} cannot be watched under continuous batching, because its "
            "keys are in a paged cache: generate without it"
        )
    rules = _read_rules(module, query, key, attention_mask, options)
    rules = replace(rules, scale=scaling, dropout=dropout)
    entries = _current_entries(module)
    for _, observer in entries:
        observer.release()
    with_lse = any(observer.needs_lse for _, observer in entries)
    if with_lse:
        check_finite(entries[0][0], query, key)
    mixed, lse = mix(query, key, value, rules, with_lse=with_lse)
    output, calls = mixed, []
    for site, observer in entries:
        if observer.each is not None:
            call = AttentionCall(
                site=site,
                queries=query,
                keys=key,
                values=value,
                rules=rules,
                mixed=mixed,
                known_lse=lse,
            )
            calls.append((observer, call))
        if observer.change is not None:
            output = observer.change(output)
    output = output.transpose(1, 2).contiguous()
    for observer, call in reversed(calls):  # hooks are prepended: the last one runs first
        observer.hold(call, output)
    weights = None
    if options.get("output_attentions") or _returns_weights():
        certain = replace(rules, dropout=0.0)
        weights = attend_in_steps(query, key, value, rules=certain).weights.to(query.dtype)
    return output, weights


def _returns_weights() -> bool:
    """Whether the running model is to return its weights, by transformers' own recorder.

    Most models do not pass `output_attentions` down to the attention function.
    """
    recorder = getattr(output_capturing, "_active_collector", None)
    outputs = None if recorder is None else recorder.get()
    return any(name.endswith("attentions") for name in outputs or ())


def check_finite(site: Site, query: Tensor, key: Tensor) -> None:
    """Raise ModelError if queries or keys overflowed: torch's kernel returns zeros for such rows.

    A sum runs at the speed of memory, and is not finite if one of its terms is not.
    """
    if not can_be_read(query) or (query.sum() + key.sum()).isfinite():
        return
    if not (query.isfinite().all() and key.isfinite().all()):
        dtype = str(query.dtype).removeprefix("torch.")
        raise ModelError(
            f"{site.layer_name} cannot be measured: its queries or keys have NaN or infinities in "
            f"{dtype}, so every result would be NaN; load the model in a wider dtype"
        )


def _current_entries(module: nn.Module) -> list[Entry]:
    entries = OBSERVERS.get(module, [])
    if not any(site.layer_loop for site, _ in entries):
        return entries
    index = CALL_COUNTS.get(module, 0)
    CALL_COUNTS[module] = index + 1
    return [entry for entry in entries if entry[0].call_index == index]


def _read_rules(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
) -> Rules:
    """transformers' arguments as rules for `attend`."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    structure = mask.structure if isinstance(mask, StructuredMask) else None
    if mask is not None and structure is not None and mask.shape[2:] == (num_queries, num_keys):
        rules = structure.rules()
    elif mask is not None:
        rules = Rules(mask=_as_mask(real_mask(mask))[..., :num_keys])
    else:
        is_causal = options.get("is_causal")
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        rules = Rules(is_causal=bool(is_causal) and num_queries > 1, offset=0)
    bias = options.get("position_bias")
    if bias is not None:
        rules = _add_bias(rules, bias[..., -num_queries:, :num_keys])
    return replace(rules, softcap=options.get("softcap"), sinks=options.get("s_aux"))


def _as_mask(mask: Tensor) -> Tensor:
    """A 4D mask with -inf where the model wrote its dtype's smallest number."""
    mask = as_4d_mask(mask)
    if not mask.is_floating_point():
        return mask
    return mask.masked_fill(mask <= torch.finfo(mask.dtype).min, -torch.inf)


def _add_bias(rules: Rules, bias: Tensor) -> Rules:
    if rules.mask is None:
        return replace(rules, mask=bias)
    if rules.mask.is_floating_point():
        return replace(rules, mask=rules.mask + bias)
    return replace(rules, mask=restrict_mask(bias, rules.mask))


@contextmanager
def route_attention(model: nn.Module, sites: Iterable[Site]) -> Iterator[None]:
    """Make the model and its sub-models compute attention here inside the block.

    Parts that do not use transformers' interface are set to `eager`: only then do they return
    their weights.
    """
    names = dict(_implementations(model, sites))
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


def _implementations(
    model: nn.Module, sites: Iterable[Site]
) -> Iterator[tuple[int, tuple[Any, str]]]:
    """Every config that a module of the model reads, by id, with the implementation to set."""
    around: dict[bool, set[str]] = {True: set(), False: set()}
    for site in sites:
        parts = site.name.split(".")
        around[site.is_routed] |= {".".join(parts[:count]) for count in range(len(parts) + 1)}
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
    """Turns compilation off while any watch is active, in whatever order watches end.

    Code that was compiled without observers would not notify them, and torch cannot compile
    structured masks.
    """

    users: int = 0
    setting: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def eager_mode(self) -> Iterator[None]:
        """Run everything uncompiled inside the block."""
        with self.lock:
            if not self.users:
                self.setting = torch.compiler.set_stance("force_eager")
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if not self.users:
                    self.setting.__exit__(None, None, None)


STANCE = Stance()
"""One for the whole process, as torch's own stance."""


@contextmanager
def observe_routed(entries: list[Entry]) -> Iterator[None]:
    """Notify each observer of every call at its site inside the block."""
    loops = {site.module: site.layer_loop for site, _ in entries if site.layer_loop is not None}
    hooks = [
        loop.register_forward_pre_hook(partial(_restart_count, module))
        for module, loop in loops.items()
    ]
    for entry in entries:
        OBSERVERS.setdefault(entry[0].module, []).append(entry)
    try:
        yield
        for _, observer in entries:
            observer.release()
    finally:
        for hook in hooks:
            hook.remove()
        for entry in entries:
            entry[1].drop()
            module = entry[0].module
            OBSERVERS[module] = [other for other in OBSERVERS[module] if other is not entry]
            if not OBSERVERS[module]:
                del OBSERVERS[module]


def _restart_count(shared: nn.Module, *_: Any) -> None:
    CALL_COUNTS[shared] = 0


AttentionInterface.register(NAME, headwise_attention)
AttentionMaskInterface.register(NAME, headwise_mask)
