"""Trace whatever is given, one of our own layers or a model.

In: a layer and its input, or a model and a text. Out: a `Trace`. Nothing is printed here.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from headwise.attention.layer import MultiHeadAttention
from headwise.errors import OptionError
from headwise.heads import HeadId, parse_heads
from headwise.models.loaded import Source
from headwise.tracing.layer_trace import trace_layer
from headwise.tracing.record import Trace

Heads = int | str | HeadId | Sequence[int | str | HeadId]
"""Some heads of one layer, by number in it or by names that say the layer, too."""


def trace(
    source: Source,
    given: Tensor | str | Mapping[str, Tensor],
    *,
    layer: int | None = None,
    stack: str | None = None,
    heads: Heads | None = None,
    tokenizer: Any = None,
    mask: Tensor | None = None,
) -> Trace:
    """Every step of one layer's attention, with what each head adds to the output.

    `source` is a `MultiHeadAttention`, and `given` its input; or a transformers model or its name,
    and a text or the tensors it takes. `layer` and `stack` choose among the model's layers, the
    first if left out. `heads` are numbers in that layer, or names that say the layer, too, such as
    `"L2H0 L2H3"`; all if left out.
    """
    place = chosen_of(layer, stack, heads)
    if isinstance(source, MultiHeadAttention):
        if not isinstance(given, Tensor):
            raise OptionError(
                f"a layer is traced on a tensor [batch, position, d_model], not on a "
                f"{type(given).__name__}"
            )
        if place.layer != 0 or place.stack is not None:
            raise OptionError(
                f"this is one layer: layer and stack, given as {place.layer} and {place.stack!r}, "
                "choose among a model's"
            )
        if tokenizer is not None:
            raise OptionError("this is one layer, which reads no text: leave tokenizer out")
        return trace_layer(source, given, heads=place.heads, mask=mask)
    if mask is not None:
        raise OptionError("a model makes its own mask: give it attention_mask among its tensors")
    if not isinstance(given, Tensor | str | Mapping):
        raise OptionError(
            f"a model reads a text or tensors by name, not a {type(given).__name__}: trace one "
            "text at a time"
        )
    from headwise.tracing.models import trace_model  # and with it transformers, which takes seconds

    return trace_model(source, given, **place._asdict(), tokenizer=tokenizer)


class Chosen(NamedTuple):
    """What of a model is traced."""

    layer: int
    stack: str | None
    heads: Sequence[int] | None


def chosen_of(layer: int | None, stack: str | None, heads: Any, *, dashes: str = "") -> Chosen:
    """What is named: heads by number in a layer, or by names that say the layer, too.

    `dashes` stand before the names of options in what is refused: a command has them.
    """
    if heads is None:
        return Chosen(layer or 0, stack, None)
    numbers = numbers_in(heads, f"{dashes}heads")
    if numbers == []:
        raise OptionError(f"{dashes}heads is {heads!r}, which names none: leave it out for all")
    if numbers is not None:
        return Chosen(layer or 0, stack, numbers)
    named = parse_heads(heads)
    layers = sorted({head.layer_name for head in named})
    if len(layers) > 1:
        raise OptionError(f"{dashes}heads names {', '.join(layers)}: a trace is of one layer")
    first = named[0]
    if layer not in (None, first.layer) or (first.stack and stack not in (None, first.stack)):
        raise OptionError(
            f"{first} is not in the layer that {dashes}layer and {dashes}stack name: leave these "
            "out"
        )
    return Chosen(first.layer, first.stack or stack, [head.head for head in named])


def numbers_in(heads: Any, option: str) -> list[int] | None:
    """Heads by their numbers: one, several, or a text of them with commas; None if by names."""
    if isinstance(heads, str):
        if "L" in heads:
            return None
        parts: list[Any] = heads.split(",")
    else:
        parts = list(heads) if isinstance(heads, Iterable) else [heads]
        if any(isinstance(part, str | HeadId) for part in parts):
            return None
    try:
        return [int(part) if isinstance(part, str) else operator.index(part) for part in parts]
    except (ValueError, TypeError) as err:
        raise OptionError(
            f"{option} is {heads!r}: give names such as L2H0, or numbers such as 0,3"
        ) from err
