"""trace(): record every step of one attention layer, headwise's own or a model's.

In: a layer and its input, or a model and a text. Out: a Trace.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.attention.layer import MultiHeadAttention
from headwise.errors import ModelError, OptionError
from headwise.heads import HeadId, abbreviate, parse_heads
from headwise.models.loaded import Source, open_model
from headwise.models.modalities import check_reads_text
from headwise.reading.batch import Batch, TokenKinds
from headwise.reading.labels import token_labels
from headwise.reading.reader import Reader
from headwise.reading.tensors import batch_from_tensors, check_tensors
from headwise.tracing import layer_trace
from headwise.tracing.record import Trace
from headwise.watching.calls import AttentionCall, Call, at_least_float32, check_weights_fit
from headwise.watching.hooks import record
from headwise.watching.running import forward_batch, in_evaluation, real_queries
from headwise.watching.sites import Site, find_sites


def trace(
    source: Source,
    inputs: Tensor | str | Mapping[str, Tensor],
    *,
    layer: int | None = None,
    stack: str | None = None,
    heads: int | str | HeadId | Sequence[int | str | HeadId] | None = None,
    tokenizer: Any = None,
    mask: Tensor | None = None,
) -> Trace:
    """Record every step of one layer's attention, and what each head adds to the output.

    Either `source` is a `MultiHeadAttention` and `inputs` its input tensor, or `source` is a
    transformers model or its name and `inputs` a text or the model's input tensors by name. `layer`
    and `stack` choose one of the model's layers (default: the first). `heads` (default: all) are
    numbers in that layer, or names such as `"L2H0 L2H3"`, which also choose the layer.
    """
    choice = LayerChoice.parse(layer, stack, heads)
    if isinstance(source, MultiHeadAttention):
        if not isinstance(inputs, Tensor):
            raise OptionError(
                f"inputs is a {type(inputs).__name__}: to trace a layer, pass a tensor [batch, "
                "position, d_model]"
            )
        if choice.layer not in (None, 0) or choice.stack is not None:
            raise OptionError(
                f"layer is {choice.layer} and stack {choice.stack!r}: they choose a model's layer, "
                "but source is a single layer; omit both"
            )
        if tokenizer is not None:
            raise OptionError("tokenizer is set: a single layer reads no text; omit tokenizer")
        return layer_trace.trace_layer(source, inputs, heads=choice.heads, mask=mask)
    if mask is not None:
        raise OptionError("mask is set: a model makes its own; pass attention_mask in inputs")
    if not isinstance(inputs, Tensor | str | Mapping):
        raise OptionError(f"inputs is a {type(inputs).__name__}: pass one text, or tensors by name")
    return _trace_model(source, inputs, choice, tokenizer)


@dataclass(frozen=True)
class LayerChoice:
    """A layer of a model and some of its heads."""

    layer: int | None = None  # None for the first layer of the stack that has attention
    stack: str | None = None  # None for the first stack that runs
    heads: tuple[int, ...] | None = None  # None for all heads

    @classmethod
    def parse(
        cls, layer: int | None = None, stack: str | None = None, heads: Any = None
    ) -> "LayerChoice":
        """Parse a choice of layer and heads; names of heads also choose the layer.

        >>> LayerChoice.parse(heads="L2H0 L2H3")
        LayerChoice(layer=2, stack=None, heads=(0, 3))
        """
        if heads is None:
            return cls(layer, stack)
        numbers = _head_numbers(heads)
        if numbers is not None:
            return cls(layer, stack, numbers)
        named = parse_heads(heads)
        layers = sorted({head.layer_name for head in named})
        if len(layers) > 1:
            raise OptionError(
                f"heads is {heads!r}, in layers {', '.join(layers)}: choose heads in one layer",
                option="heads",
            )
        first = named[0]
        if layer not in (None, first.layer) or (first.stack and stack not in (None, first.stack)):
            raise OptionError(
                f"{first} is not in the layer chosen by layer and stack: omit them, the head's "
                "name is enough"
            )
        return cls(first.layer, first.stack or stack, tuple(head.head for head in named))


def _head_numbers(heads: Any) -> tuple[int, ...] | None:
    """Head numbers from a number, several numbers or a text such as "0,3"; None for names."""
    if isinstance(heads, str):
        if "L" in heads:
            return None
        parts: list[Any] = heads.split(",")
    else:
        parts = list(heads) if isinstance(heads, Iterable) else [heads]
        if any(isinstance(part, str | HeadId) for part in parts):
            return None
    try:
        if not parts:
            raise ValueError
        return tuple(int(part) if isinstance(part, str) else operator.index(part) for part in parts)
    except (ValueError, TypeError) as err:
        rule = "give names such as L2H0, or numbers such as 0,3; omit heads for all"
        raise OptionError(f"heads is {heads!r}: {rule}", option="heads") from err


@torch.no_grad()
def _trace_model(
    source: Source, inputs: Tensor | str | Mapping[str, Tensor], choice: LayerChoice, tokenizer: Any
) -> Trace:
    from headwise.models.loading import LoadOptions  # these import transformers: seconds
    from headwise.watching.failures import explain_failures
    from headwise.watching.watch import watch

    needs_tokenizer = isinstance(inputs, str) and tokenizer is None
    loaded = open_model(source, tokenizer, options=LoadOptions(needs_tokenizer=needs_tokenizer))
    model = loaded.model
    sites = find_sites(model)
    if isinstance(inputs, str):
        check_reads_text(loaded)
    batch = _read_inputs(model, inputs, loaded.tokenizer)
    site = _choose_site(model, sites, batch, choice)
    projection = site.output_projection
    if projection is None:
        raise ModelError(f"{site.name} cannot be traced: its output projection is unknown")
    calls: list[Call] = []

    def keep(call: Call) -> None:
        if (call.stack, call.layer) == (site.stack, site.layer):
            calls.append(call)

    modules = {"attention": site.module, "projection": projection}
    with (
        in_evaluation(model),
        record(modules) as recorded,
        watch(model, keep),
        explain_failures(model, batch.inputs),
    ):
        forward_batch(model, batch.inputs)
    if not calls:
        raise ModelError(f"{site.name} did not run: pass the inputs that its stack reads")
    call = calls[0]
    if call.output_weight is None:
        raise ModelError(
            f"{site.name} cannot be traced: its output projection does not read the outputs of its "
            "heads as they are, because of a gate, a norm or another branch; use headwise scan"
        )
    attention, projected = (
        [each for each in recorded if each.name == name][site.call_index] for name in modules
    )
    output, bias = projected.output, getattr(projection, "bias", None)
    tensors = {"input": attention.input} if attention.input.dim() == 3 else {}
    num_kv_heads, special, checks = call.num_heads, dict[str, str](), dict[str, Any]()
    if isinstance(call, AttentionCall):
        check_weights_fit(call.mixed.shape[:3].numel() * call.num_keys, site)
        tensors |= layer_trace.steps_of_call(call.queries, call.keys, call.values, call.rules)
        num_kv_heads, d_key = call.keys.shape[1::2]
        special = layer_trace.formulas(call.rules, d_key)
        checks["difference"] = layer_trace.compare_with_reference(call, output, bias)
        checks["compared"] = "the layer as it ran and a reference computed head by head"
    else:
        dtype = at_least_float32(call.mixed)
        tensors |= {"weights": call.weights().to(dtype), "mixed": call.mixed.to(dtype)}
        name = type(site.module).__name__
        checks["notes"] = (f"{name} only returns its weights: there are no scores",)
    stack = f"{site.stack}." if site.stack else ""
    is_real = real_queries(model, batch.inputs, site.stack, output)
    return Trace.of(
        tensors | {"output": output},
        call.output_weight,
        bias,
        title=f"{loaded.name}, {stack}layer {site.layer}",
        labels=token_labels(batch, site.stack, loaded.tokenizer, call.num_queries, call.num_keys),
        heads=choice.heads,
        num_kv_heads=num_kv_heads,
        formulas=special,
        prefix=f"{stack}L{site.layer}",
        is_real=None if is_real.all() else is_real,
        **checks,
    )


def _read_inputs(
    model: nn.Module, inputs: Tensor | str | Mapping[str, Tensor], tokenizer: Any
) -> Batch:
    if isinstance(inputs, str):
        if tokenizer is None:
            raise OptionError("inputs is a text, but there is no tokenizer: pass one, or tensors")
        reader = Reader(tokenizer, model.config)
        return reader.whole_text(inputs, next(model.parameters()).device)
    tensors = {"input_ids": inputs} if isinstance(inputs, Tensor) else inputs
    check_tensors(tensors)
    kinds = None if tokenizer is None else TokenKinds(tokenizer)
    return batch_from_tensors(tensors, model.config, kinds)


def _choose_site(
    model: nn.Module, sites: Sequence[Site], batch: Batch, choice: LayerChoice
) -> Site:
    """The site of the chosen layer, by default in the first stack that runs."""
    from headwise.watching.failures import explain_failures
    from headwise.watching.watch import watch

    stacks = list(dict.fromkeys(site.stack for site in sites))
    stack = stacks[0] if choice.stack is None else choice.stack
    if choice.stack is None and len(stacks) > 1:
        computing: set[str] = set()  # some inputs skip a stack
        observed = watch(model, lambda call: computing.add(call.stack))
        with in_evaluation(model), observed, explain_failures(model, batch.inputs):
            forward_batch(model, batch.inputs)
        stack = next((name for name in stacks if name in computing), stack)
    if stack not in stacks:
        names = "one stack, without a name" if stacks == [""] else f"stacks {', '.join(stacks)}"
        raise OptionError(f"stack is {stack!r}: the model has {names}", option="stack")
    by_layer = {site.layer: site for site in sites if site.stack == stack}
    layer = min(by_layer) if choice.layer is None else choice.layer
    if layer not in by_layer:
        numbers = sorted(by_layer)
        is_complete = numbers == list(range(len(numbers)))
        names = f"0..{numbers[-1]}" if is_complete else abbreviate(list(map(str, numbers)))
        of = f" of {stack}" if stack else ""
        raise OptionError(
            f"layer is {layer}: the layers{of} with attention are {names}", option="layer"
        )
    return by_layer[layer]
