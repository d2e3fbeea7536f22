"""Record: trace whatever is given, one of our own layers or a model.

In: a layer and its input, or a model and a text. Out: a `Trace`. Nothing is printed here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from headwise.attention.layer import MultiHeadAttention
from headwise.errors import OptionError
from headwise.tracing.layers import trace_layer
from headwise.tracing.trace import Trace
from headwise.watching.models import Source


def trace(
    source: Source,
    given: Tensor | str | Mapping[str, Tensor],
    *,
    layer: int = 0,
    stack: str | None = None,
    heads: Sequence[int] | None = None,
    tokenizer: Any = None,
    mask: Tensor | None = None,
) -> Trace:
    """Every step of one layer's attention, with what each head adds to the output.

    `source` is a `MultiHeadAttention`, and `given` its input; or a transformers model or its name,
    and a text or the tensors it takes. `layer` and `stack` choose among the model's layers.
    """
    if isinstance(source, MultiHeadAttention):
        if not isinstance(given, Tensor):
            raise OptionError(
                f"a layer is traced on a tensor [batch, position, d_model], not on a "
                f"{type(given).__name__}"
            )
        if layer != 0 or stack is not None:
            raise OptionError(
                f"this is one layer: layer and stack, given as {layer} and {stack!r}, choose among "
                "a model's"
            )
        return trace_layer(source, given, heads=heads, mask=mask)
    if mask is not None:
        raise OptionError("a model makes its own mask: give it attention_mask among its tensors")
    if not isinstance(given, Tensor | str | Mapping):
        raise OptionError(
            f"a model reads a text or tensors by name, not a {type(given).__name__}: trace one "
            "text at a time"
        )
    from headwise.tracing.models import trace_model  # and with it transformers, which takes seconds

    return trace_model(source, given, layer=layer, stack=stack, heads=heads, tokenizer=tokenizer)
