"""Watch: record every attention computation of a transformers model as it runs.

In: a model. Out: an `AttentionCall` for each layer inside a `with` block, or a `WeightsCall` for
modules that only return their weights. The model's results stay the same.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError, warn_user
from headwise.formats import format_count
from headwise.models.loaded import LoadedModel, as_module
from headwise.watching.calls import Call, WeightsCall
from headwise.watching.interface import CallObserver, Change, Entry, observe_routed
from headwise.watching.output_check import check_outputs
from headwise.watching.routing import route_attention
from headwise.watching.sites import Site, find_sites


@dataclass(frozen=True)
class Watched:
    """A watched model's attention layers, and the calls recorded so far."""

    sites: tuple[Site, ...]
    calls: list[Call] = field(default_factory=list)
    """All calls since the block began; empty if a function was passed as `each`."""

    def __repr__(self) -> str:
        layers = format_count(len(self.sites), "attention layer")
        return f"Watched({layers}, {format_count(len(self.calls), 'call')})"

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)


@contextmanager
def watch(
    model: nn.Module | LoadedModel,
    each: Callable[[Call], None] | None = None,
    *,
    needs_lse: bool = False,
) -> Iterator[Watched]:
    """Record every attention computation of the model inside the block.

    Calls are collected in `watched.calls`, with their queries, keys and values. If `each` is
    given, it receives every call instead; to keep one, use `call.snapshot()`. `needs_lse` computes
    `call.lse` along with the output. If a module does not use transformers' attention interface
    but returns its weights, these are used instead, with a warning.

    with headwise.watch(model) as watched:
        model(**inputs)
    watched.calls[3].weights()  # [batch heads query key] for the fourth layer
    """
    model = as_module(model)
    watched = Watched(find_sites(model))
    observer = CallObserver(
        each=each or (lambda call: watched.calls.append(call.snapshot())), needs_lse=needs_lse
    )
    with observe(model, watched.sites, [(site, observer) for site in watched.sites]):
        yield watched


@contextmanager
def observe(model: nn.Module, sites: tuple[Site, ...], entries: list[Entry]) -> Iterator[None]:
    """Attach observers to some of the model's `sites` inside the block, routed or not."""
    returning = [entry for entry in entries if not entry[0].is_routed and _num_heads(entry[0])]
    names = sorted({type(site.module).__name__ for site, observer in returning if observer.each})
    if names:
        warn_user(
            f"{type(model).__name__}'s {', '.join(names)} does not use transformers' attention "
            "interface: its own full weights are read instead, which takes memory for every "
            "query-key pair and leaves out value-weighted measures"
        )
    with ExitStack() as stack:
        if entries:
            stack.enter_context(route_attention(model, sites))
            stack.enter_context(check_outputs(model, sites))
        stack.enter_context(observe_routed([entry for entry in entries if entry[0].is_routed]))
        for site, observer in returning:
            if observer.each is not None:
                stack.enter_context(_watch_returned_weights(site, observer.each))
            if observer.change is not None:
                change = partial(_change_input, site, observer.change)
                stack.enter_context(_projection(site).register_forward_pre_hook(change))
        yield


@contextmanager
def _watch_returned_weights(site: Site, each: Callable[[Call], None]) -> Iterator[None]:
    """Inside the block, pass `each` every call of a module that returns its weights.

    The heads' outputs are the input to the output projection, which may run before or after the
    module returns.
    """
    parts: dict[str, Tensor] = {}

    def begin(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        parts.clear()
        signature = inspect.signature(module.forward)
        if "output_attentions" not in signature.parameters:
            return args, kwargs
        bound = signature.bind(*args, **kwargs)
        bound.arguments["output_attentions"] = True
        return bound.args, bound.kwargs

    def end(module: nn.Module, _: Any, outputs: Any) -> None:
        parts["known_weights"] = _find_weights(outputs, site)
        notify()

    def project(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        parts["mixed"] = _split_heads(inputs[0], site)
        notify()

    def notify() -> None:
        if len(parts) == 2:
            known_weights, mixed = parts.pop("known_weights"), parts.pop("mixed")
            each(WeightsCall(site=site, known_weights=known_weights, mixed=mixed))

    with (
        site.module.register_forward_pre_hook(begin, with_kwargs=True),
        site.module.register_forward_hook(end),
        # Run before all other hooks, because they may change the heads' outputs.
        _projection(site).register_forward_pre_hook(project, prepend=True),
    ):
        yield


def _change_input(
    site: Site, change: Change, _: nn.Module, inputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The inputs to an output projection, with the heads' outputs changed."""
    changed = change(_split_heads(inputs[0], site))
    return (changed.transpose(1, 2).flatten(2), *inputs[1:])


def _projection(site: Site) -> nn.Module:
    if site.output_projection is None:
        raise ModelError(f"{site.description} cannot be watched: its output projection is unknown")
    return site.output_projection


def _split_heads(
    concat: Float[Tensor, "batch query concat"], site: Site
) -> Float[Tensor, "batch heads query d_value"]:
    heads: Tensor = concat.unflatten(-1, (_num_heads(site), -1)).transpose(1, 2)
    return heads


def _num_heads(site: Site) -> int:
    if site.num_heads is None:
        raise ModelError(f"{site.description} cannot be watched: its number of heads is unknown")
    return site.num_heads


def _find_weights(outputs: Any, site: Site) -> Float[Tensor, "batch heads query key"]:
    """The weights among a module's outputs: a tensor with four axes, the second for the heads."""
    for output in outputs if isinstance(outputs, tuple | list) else (outputs,):
        if (
            isinstance(output, Tensor)
            and output.is_floating_point()
            and output.dim() == 4
            and output.shape[1] == _num_heads(site)
        ):
            return output
    raise ModelError(f"{site.description} cannot be watched: it returned no weights")
