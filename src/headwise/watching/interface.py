"""Interface: computes a transformers model's attention while the model is watched.

In: transformers' attention call. Out: its result, and an `AttentionCall` for each observer of the
module. Inside `route_attention` (routing.py) the model uses the functions registered here.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
from headwise.watching.routing import (
    IMPLEMENTATION,
    NAMES,
    WithBoolMasks,
    WithFloatMasks,
    config_of,
)
from headwise.watching.sites import Site

Change = Callable[[Tensor], Tensor]
"""Maps a layer's head outputs `[batch heads query d_value]` to the outputs to use instead."""


@dataclass(eq=False)
class CallObserver:
    """Receives the calls at some sites, or changes the outputs of the heads there."""

    each: Callable[[Call], None] | None = None
    change: Change | None = None
    needs_lse: bool = False
    refuse: Callable[[Site, str], None] | None = None
    """Receives a site whose calls cannot be read, and the reason; None to raise ModelError."""
    pending: tuple[AttentionCall, RemovableHandle] | None = field(default=None, repr=False)
    """A call whose output projection has not run yet, and the hook on that projection."""

    def hold(self, call: AttentionCall, output: Float[Tensor, "batch query heads d_value"]) -> None:
        """Keep a call until its output projection runs, to check whether this reads `output`."""
        assert self.each is not None
        projection = call.site.output_projection
        if projection is None:
            self.each(call)
            return

        def project(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.release(is_direct=bool(inputs) and _are_equal(inputs[0], output))

        # Run before all other hooks, because they may change the input.
        self.pending = call, projection.register_forward_pre_hook(project, prepend=True)

    def release(self, *, is_direct: bool = False) -> None:
        """Pass on the pending call, if any; by default, as one whose projection never ran."""
        if (call := self.drop()) is not None and self.each is not None:
            self.each(call if is_direct else replace(call, is_direct=False))

    def drop(self) -> AttentionCall | None:
        """Remove the pending call and its hook, and return the call."""
        if self.pending is None:
            return None
        (call, hook), self.pending = self.pending, None
        hook.remove()
        return call


def _are_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same numbers in the same order; True if they cannot be read."""
    if first.numel() != second.numel():
        return False
    if not can_be_read(first):
        return True
    first, second = first.flatten(), second.to(first).flatten()
    is_equal = torch.equal(first, second)
    return is_equal or torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


Entry = tuple[Site, CallObserver]

OBSERVERS: WeakKeyDictionary[nn.Module, list[Entry]] = WeakKeyDictionary()
"""Observers of each module, in the order in which they were attached."""

CALL_COUNTS: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""Number of calls of each shared module since its layer loop began."""


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
    """Attention with the signature that transformers expects; notifies the module's observers."""
    if options.get("cache") is not None:
        raise ModelError(
            f"{type(module).__name__} cannot be watched under continuous batching, because its "
            "keys are in a paged cache: generate without continuous batching"
        )
    query = query.expand(max(len(query), len(key)), -1, -1, -1)  # some share learned queries
    rules = _read_rules(module, query, key, attention_mask, options)
    rules = replace(rules, scale=scaling, dropout=dropout)
    entries = _current_entries(module)
    for _, observer in entries:
        observer.release()
    with_lse = any(observer.needs_lse for _, observer in entries)
    if with_lse:
        check_finite(entries[0][0], query, key)
    mixed, lse = mix(query, key, value, rules, with_lse=with_lse)
    output = mixed
    for _, observer in entries:
        if observer.change is not None:
            output = observer.change(output)
    output = output.transpose(1, 2).contiguous()
    for site, observer in reversed(entries):  # hooks are prepended, so the last one runs first
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
            observer.hold(call, output)
    weights = None
    if options.get("output_attentions") or _returns_weights():
        certain = replace(rules, dropout=0.0)
        weights = attend_in_steps(query, key, value, rules=certain).weights.to(query.dtype)
    return output, weights


def _returns_weights() -> bool:
    """Whether transformers records weights; most models do not pass on `output_attentions`."""
    recorder = getattr(output_capturing, "_active_collector", None)
    outputs = None if recorder is None else recorder.get()
    return any(name.endswith("attentions") for name in outputs or ())


def check_finite(site: Site, query: Tensor, key: Tensor) -> None:
    """Raise ModelError if queries or keys are not finite: torch's kernel would return zeros."""
    if not can_be_read(query) or (query.sum() + key.sum()).isfinite():  # summing is much faster
        return
    if not (query.isfinite().all() and key.isfinite().all()):
        dtype = str(query.dtype).removeprefix("torch.")
        raise ModelError(
            f"{site.layer_name} cannot be measured: its queries or keys have NaN or infinity in "
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
    """Convert transformers' arguments to rules for `attend`."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    make_rules = mask.make_rules if isinstance(mask, StructuredMask) else None
    if mask is None:
        is_causal = options.get("is_causal")
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        name = getattr(config_of(module), IMPLEMENTATION, None)
        is_causal = is_causal and name != "eager"  # which ignores it
        rules = Rules(is_causal=bool(is_causal) and num_queries > 1, offset=0)
    elif make_rules is not None and mask.shape[2:] == (num_queries, num_keys):
        rules = make_rules()
    else:
        dense = as_4d_mask(real_mask(mask))[..., :num_keys]
        if dense.is_floating_point():  # models use their dtype's smallest number as -inf
            hidden = dense <= torch.finfo(dense.dtype).min
            hides_all = hidden.all(-1, keepdim=True) & dense.isfinite()  # such rows are uniform
            dense = dense.masked_fill(hidden & ~hides_all, -torch.inf)
        rules = Rules(mask=dense)
    bias = options.get("position_bias")
    if bias is not None:
        bias = bias[..., -num_queries:, :num_keys]
        if rules.mask is not None and rules.mask.is_floating_point():
            bias = rules.mask + bias
        elif rules.mask is not None:
            bias = restrict_mask(bias, rules.mask)
        rules = replace(rules, mask=bias)
    return replace(rules, softcap=options.get("softcap"), sinks=options.get("s_aux"))


@contextmanager
def observe_routed(entries: list[Entry]) -> Iterator[None]:
    """Inside the block, notify each observer of every call at its site."""
    loops = {site.module: site.layer_loop for site, _ in entries if site.layer_loop is not None}
    with ExitStack() as hooks:
        for module, loop in loops.items():
            restart = partial(_restart_count, module)
            hooks.enter_context(loop.register_forward_pre_hook(restart))
        for entry in entries:
            OBSERVERS.setdefault(entry[0].module, []).append(entry)
            hooks.callback(_remove_entry, entry)
        yield
        for _, observer in entries:
            observer.release()


@contextmanager
def pause_observers(model: nn.Module) -> Iterator[None]:
    """Inside the block, no observer of the model is notified or changes anything."""
    paused = {module: OBSERVERS.pop(module) for module in model.modules() if module in OBSERVERS}
    try:
        yield
    finally:
        OBSERVERS.update(paused)


def _restart_count(shared: nn.Module, *_: Any) -> None:
    CALL_COUNTS[shared] = 0


def _remove_entry(entry: Entry) -> None:
    module, observer = entry[0].module, entry[1]
    observer.drop()
    others = [other for other in OBSERVERS.pop(module) if other is not entry]
    if others:
        OBSERVERS[module] = others


for _kind in (WithBoolMasks, WithFloatMasks):
    AttentionInterface.register(NAMES[_kind], headwise_attention)
    _mask = partial(headwise_mask, is_float=_kind is WithFloatMasks)
    AttentionMaskInterface.register(NAMES[_kind], _mask)
