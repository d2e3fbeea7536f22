"""Watch: record every attention computation of a transformers model as it runs.

In: a model. Out: an `AttentionCall` for each layer inside a `with` block, or a `WeightsCall` for
modules that only return their weights. The model's results stay the same.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from headwise.errors import ModelError, warn_user
from headwise.formats import format_count
from headwise.models.loaded import LoadedModel, as_module
from headwise.watching.calls import Call
from headwise.watching.interface import CallObserver, Entry, observe_routed
from headwise.watching.output_check import check_outputs
from headwise.watching.returned_weights import ReturnedWeights
from headwise.watching.routing import route_attention
from headwise.watching.sites import Site, find_sites


@dataclass(frozen=True)
class Watched:
    """A watched model's attention layers, and the calls recorded so far."""

    sites: tuple[Site, ...]
    calls: list[Call] = field(default_factory=list)
    """All calls since the block began; empty if a function was passed as `each`."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Layers that ran, but whose weights cannot be read, with the reason."""

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
    called: set[Site] = set()

    def keep(call: Call) -> None:
        called.add(call.site)
        if each is None:
            watched.calls.append(call.snapshot())
        else:
            each(call)

    def refuse(site: Site, reason: str) -> None:
        watched.left_out[site.layer_name] = f"{site.description}: {reason}"

    observer = CallObserver(each=keep, needs_lse=needs_lse, refuse=refuse)
    entries = [(site, observer) for site in watched.sites]
    with observe(model, watched.sites, entries), _record_runs(watched.sites) as ran:
        yield watched
    if ran and not called and not watched.left_out:
        raise ModelError(
            f"{type(model).__name__} cannot be watched: {ran[0].description} ran, but did not use "
            "transformers' attention interface, although its code names it"
        )
    _check_left_out(model, watched, has_calls=bool(called))


@contextmanager
def _record_runs(sites: tuple[Site, ...]) -> Iterator[list[Site]]:
    """Collect the sites whose modules run inside the block, except those without heads."""
    ran: list[Site] = []
    with ExitStack() as hooks:
        for site in sites:
            if site.is_routed and "forward" not in vars(site.module):  # replaced without heads
                keep = partial(_keep_site, ran, site)
                hooks.enter_context(site.module.register_forward_hook(keep))
        yield ran


def _keep_site(ran: list[Site], site: Site, *_: object) -> None:
    if site not in ran:
        ran.append(site)


@contextmanager
def observe(model: nn.Module, sites: tuple[Site, ...], entries: list[Entry]) -> Iterator[None]:
    """Attach observers to some of the model's `sites` inside the block, routed or not."""
    returning = [entry for entry in entries if not entry[0].is_routed]
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
            reader = ReturnedWeights(
                site, observer.each, observer.change, observer.refuse, is_known=not site.is_guess
            )
            stack.enter_context(reader.attached())
        yield


def _check_left_out(model: nn.Module, watched: Watched, *, has_calls: bool) -> None:
    """Warn about layers whose weights could not be read; raise ModelError if there are no others.

    A model that did not run has neither.
    """
    if not watched.left_out:
        return
    reasons = "; ".join(dict.fromkeys(watched.left_out.values()))
    if not has_calls:
        raise ModelError(f"{type(model).__name__} cannot be watched: {reasons}")
    warn_user(f"{type(model).__name__} is only partly watched: {reasons}")
