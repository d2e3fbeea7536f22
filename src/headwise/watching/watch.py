"""Watch: every attention computation of a transformers model, as it happens.

In: a model. Out: `AttentionCall`s while a `with` block lasts; the model computes what it computes
without it, and is afterwards what it was before, whatever happened inside.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headwise.errors import ModelError
from headwise.watching.calls import Call, ShownCall
from headwise.watching.places import Place, find_places
from headwise.watching.routing import Listener, listening, routed


@dataclass(frozen=True)
class Watched:
    """A model under watch: where its attention happens, and what has happened so far."""

    places: tuple[Place, ...]
    calls: list[Call] = field(default_factory=list)
    """Every call since the block began, if no function of your own takes them."""

    def __iter__(self) -> Iterator[Call]:
        """The calls so far."""
        return iter(self.calls)


@contextmanager
def watch(
    model: nn.Module,
    each: Callable[[Call], None] | None = None,
    *,
    needs_lse: bool = False,
) -> Iterator[Watched]:
    """While it lasts, every attention computation of the model is told.

    `each` is called with each of them and may drop it; without it they are kept, with their
    queries, keys and values, in `watched.calls`. Models whose modules do not ask transformers'
    attention interface, but return their weights, are served from those, with a warning.

    with headwise.watch(model) as watched:
        model(**inputs)
    watched.calls[3].weights()  # [batch heads query key] of layer 3
    """
    places = find_places(model)
    watched = Watched(places)
    listener = Listener(each=each or watched.calls.append, needs_lse=needs_lse)
    with attached(model, places, listener):
        yield watched


@contextmanager
def attached(model: nn.Module, places: tuple[Place, ...], listener: Listener) -> Iterator[None]:
    """While it lasts, the listener is told of the places' calls, whatever kind they are."""
    shown = tuple(place for place in places if not place.is_routed)
    with ExitStack() as stack:
        if len(shown) < len(places):
            stack.enter_context(routed(model))
        stack.enter_context(listening(places, listener))
        if shown and listener.each is not None:
            warn_of_weights(model, shown)
        for place in shown:
            stack.enter_context(overheard(place, listener))
        yield


def warn_of_weights(model: nn.Module, places: tuple[Place, ...]) -> None:
    """Say that a model is served from its own weights, and what that costs."""
    names = sorted({type(place.module).__name__ for place in places})
    warnings.warn(
        f"{type(model).__name__}'s {', '.join(names)} does not ask transformers' attention "
        "interface: its own full weights are read instead, which takes memory for every "
        "query-key pair and leaves value-weighted measures out",
        stacklevel=6,
    )


@contextmanager
def overheard(place: Place, listener: Listener) -> Iterator[None]:
    """While it lasts, a module that returns its weights is watched and gated by hooks.

    Its output projection's input is what its heads give; its output holds the weights.
    """
    projection = place.output_projection
    if projection is None:
        raise ModelError(
            f"{place.name} ({type(place.module).__name__}) cannot be watched: "
            "its output projection is not known"
        )
    heard: list[Tensor] = []
    told: list[Tensor] = []

    def before_projection(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if listener.each is not None:
            heard.append(inputs[0])
        if listener.change is None:
            return None
        num_heads = heads_of(place.module)
        mixed = inputs[0].unflatten(-1, (num_heads, -1)).transpose(1, 2)
        return (listener.change(mixed).transpose(1, 2).flatten(2), *inputs[1:])

    def after_module(_: nn.Module, inputs: Any, outputs: Any) -> None:
        if listener.each is None:
            return
        weights = weights_among(outputs)
        if weights is None:
            raise ModelError(
                f"{place.name} ({type(place.module).__name__}) cannot be watched: "
                "it returned no weights"
            )
        told.append(weights)

    def when_both(*_: Any) -> None:
        if listener.each is not None and heard and told:
            weights, mixed = told.pop(), heard.pop()
            mixed = mixed.unflatten(-1, (weights.shape[1], -1)).transpose(1, 2)
            listener.each(ShownCall(place=place, shown=weights, mixed=mixed))

    hooks = [
        projection.register_forward_pre_hook(before_projection),
        place.module.register_forward_hook(after_module),
        place.module.register_forward_hook(when_both),
        projection.register_forward_hook(when_both),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def heads_of(module: nn.Module) -> int:
    """The number of heads that an attention module says it has."""
    for name in ("num_attention_heads", "num_heads", "n_heads"):
        if hasattr(module, name):
            return int(getattr(module, name))
    raise ModelError(f"{type(module).__name__} does not say how many heads it has")


def weights_among(outputs: Any) -> Float[Tensor, "batch heads query key"] | None:
    """The weights in what an attention module returns: four axes, every row a share."""
    for output in outputs if isinstance(outputs, tuple | list) else (outputs,):
        if isinstance(output, Tensor) and output.dim() == 4 and output.is_floating_point():
            return output
    return None
