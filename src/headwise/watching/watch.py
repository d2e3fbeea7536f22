"""Watch: every attention computation of a transformers model, as it happens.

In: a model. Out: `AttentionCall`s while a `with` block lasts; the model computes what it computes
without it, and is afterwards what it was before, whatever happened inside.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError, warn_user
from headwise.formats import format_count
from headwise.models.loaded import LoadedModel, as_module
from headwise.watching.calls import Call, WeightsCall
from headwise.watching.interface import STANCE, CallObserver, Change, listening, routed
from headwise.watching.sites import Site, find_sites


@dataclass(frozen=True)
class Watched:
    """A model under watch: where its attention happens, and what has happened so far."""

    places: tuple[Site, ...]
    calls: list[Call] = field(default_factory=list)
    """Every call since the block began, if no function of your own takes them."""

    def __repr__(self) -> str:
        """One line: how much there is."""
        layers = format_count(len(self.places), "attention layer")
        return f"Watched({layers}, {format_count(len(self.calls), 'call')})"

    def __iter__(self) -> Iterator[Call]:
        """The calls so far."""
        return iter(self.calls)

    def keep(self, call: Call) -> None:
        """Add a call that is to stay as it is, whatever a cache does later."""
        self.calls.append(call.kept())


@contextmanager
def watch(
    model: nn.Module | LoadedModel,
    each: Callable[[Call], None] | None = None,
    *,
    needs_lse: bool = False,
) -> Iterator[Watched]:
    """While it lasts, every attention computation of the model is told.

    `each` is called with each of them and may drop it, or keep its `call.kept()`; without it they
    are kept, with their queries, keys and values, in `watched.calls`. Models whose modules do not
    ask transformers' attention interface, but return their weights, are served from those, with a
    warning.

    with headwise.watch(model) as watched:
        model(**inputs)
    watched.calls[3].weights()  # [batch heads query key] of the fourth layer
    """
    model = as_module(model)
    places = find_sites(model)
    watched = Watched(places)
    listener = CallObserver(each=each or watched.keep, needs_lse=needs_lse)
    with attached(model, places, [(place, listener) for place in places]):
        yield watched


@contextmanager
def attached(
    model: nn.Module, places: tuple[Site, ...], entries: list[tuple[Site, CallObserver]]
) -> Iterator[None]:
    """While it lasts, listeners are told of their places' calls, whatever kind these are.

    `places` are all of the model's, `entries` those that are listened to.
    """
    told = [entry for entry in entries if entry[0].is_routed]
    overheard = [entry for entry in entries if not entry[0].is_routed and heads_of(entry[0])]
    shown = sorted({type(place.module).__name__ for place, one in overheard if one.each})
    if shown:
        warn_of_weights(model, shown)
    with ExitStack() as stack:
        if entries:
            stack.enter_context(STANCE.as_written())
            stack.enter_context(routed(model, places))
        stack.enter_context(listening(told))
        for place, listener in overheard:
            if listener.each is not None:
                stack.enter_context(watch_returned_weights(place, listener.each))
            if listener.change is not None:
                stack.enter_context(changing(place, listener.change))
        yield


def warn_of_weights(model: nn.Module, names: list[str]) -> None:
    """Say that a model is served from its own weights, and what that costs."""
    warn_user(
        f"{type(model).__name__}'s {', '.join(names)} does not ask transformers' attention "
        "interface: its own full weights are read instead, which takes memory for every "
        "query-key pair and leaves value-weighted measures out"
    )


@contextmanager
def watch_returned_weights(place: Site, each: Callable[[Call], None]) -> Iterator[None]:
    """While it lasts, a module that returns its weights tells its calls.

    Its output holds the weights, its output projection's input is what its heads give; which comes
    first depends on whether the projection is a part of it.
    """
    heard: dict[str, Tensor] = {}

    def begin(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        heard.clear()
        return asking_for_weights(module, args, kwargs)

    def end(module: nn.Module, _: Any, outputs: Any) -> None:
        heard["weights"] = weights_among(outputs, place)
        tell()

    def project(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        heard["mixed"] = heads_apart(inputs[0], place)
        tell()

    def tell() -> None:
        if len(heard) == 2:
            call = WeightsCall(place=place, shown=heard["weights"], mixed=heard["mixed"])
            heard.clear()
            each(call)

    hooks = [
        place.module.register_forward_pre_hook(begin, with_kwargs=True),
        place.module.register_forward_hook(end),
        # First of all, so as to hear what the heads give before anybody changes it.
        projection_of(place).register_forward_pre_hook(project, prepend=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def changing(place: Site, change: Change) -> Iterator[None]:
    """While it lasts, what the heads of an unrouted module give is changed before it is mixed."""

    def project(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        changed = change(heads_apart(inputs[0], place))
        return (changed.transpose(1, 2).flatten(2), *inputs[1:])

    hook = projection_of(place).register_forward_pre_hook(project)
    try:
        yield
    finally:
        hook.remove()


def projection_of(place: Site) -> nn.Module:
    """The place's output projection, without which an unrouted module tells too little."""
    if place.output_projection is None:
        raise ModelError(f"{described(place)} cannot be watched: its output projection is unknown")
    return place.output_projection


def heads_apart(
    concat: Float[Tensor, "batch query concat"], place: Site
) -> Float[Tensor, "batch heads query d_value"]:
    """The input of an output projection, head by head."""
    apart: Tensor = concat.unflatten(-1, (heads_of(place), -1)).transpose(1, 2)
    return apart


def heads_of(place: Site) -> int:
    """The number of heads that an attention module says it has."""
    if place.num_heads is None:
        raise ModelError(
            f"{described(place)} cannot be watched: it does not say how many heads it has"
        )
    return place.num_heads


def asking_for_weights(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What a module is called with, and that it shall return its weights if that can be said."""
    signature = inspect.signature(module.forward)
    if "output_attentions" not in signature.parameters:
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    bound.arguments["output_attentions"] = True
    return bound.args, bound.kwargs


def weights_among(outputs: Any, place: Site) -> Float[Tensor, "batch heads query key"]:
    """The weights in what an attention module returns: four axes, one of them its heads."""
    for output in outputs if isinstance(outputs, tuple | list) else (outputs,):
        if (
            isinstance(output, Tensor)
            and output.is_floating_point()
            and output.dim() == 4
            and output.shape[1] == heads_of(place)
        ):
            return output
    raise ModelError(f"{described(place)} cannot be watched: it returned no weights")


def described(place: Site) -> str:
    """The place's path and class, for a message."""
    return f"{place.name} ({type(place.module).__name__})"
