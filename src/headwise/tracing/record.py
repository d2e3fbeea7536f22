"""Record: the steps of one layer's attention, taken from our own layer or from a watched model.

In: a layer and its input, or a model and a text. Out: a `Trace`. Nothing is printed here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.attention.core import attend_in_steps
from headwise.attention.layer import MultiHeadAttention
from headwise.attention.ragged import own_mask
from headwise.attention.reference import head_steps, layer_by_definition
from headwise.attention.rules import Rules
from headwise.errors import ModelError, OptionError, ShapeError
from headwise.measures.reading import Batch, Reader, given_batches
from headwise.tracing.maps import Labels
from headwise.tracing.tokens import labels_of
from headwise.tracing.trace import STEPS, Step, Trace, checked_heads
from headwise.watching.calls import AttentionCall, Call, at_least_float32, check_size
from headwise.watching.loading import LoadedModel, load_model
from headwise.watching.places import Place, find_places
from headwise.watching.watch import watch

AXES = {
    "input": "batch position d_model",
    "queries": "batch heads query d_key",
    "keys": "batch kv_heads key d_key",
    "values": "batch kv_heads key d_value",
    "scores": "batch heads query key",
    "scaled": "batch heads query key",
    "masked": "batch heads query key",
    "weights": "batch heads query key",
    "mixed": "batch heads query d_value",
    "concat": "batch query concat",
    "Wo": "concat d_model",
    "contributions": "batch heads query d_model",
    "output": "batch query d_model",
}


UNBIASED = {"output": "concat Wo"}
"""Formulas of a layer whose Wo has no bias."""


def trace(
    source: nn.Module | LoadedModel | str,
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
            raise OptionError("a layer is traced on a tensor [batch, position, d_model]")
        if layer != 0 or stack is not None:
            raise OptionError("this is one layer: layer and stack choose among a model's")
        return trace_layer(source, given, heads=heads, mask=mask)
    if mask is not None:
        raise OptionError("a model makes its own mask: give it attention_mask among its tensors")
    if not isinstance(given, Tensor | str | Mapping):
        raise OptionError(
            f"a model reads a text or tensors by name, not a {type(given).__name__}: trace one "
            "text at a time"
        )
    title = type(source).__name__
    source = load_model(source) if isinstance(source, str) else source
    if isinstance(source, LoadedModel):
        tokenizer, title = tokenizer or source.tokenizer, source.name
        source = source.model
    place = chosen_place(source, layer, stack)
    batch = batch_of(source, given, tokenizer)
    return trace_model(source, batch, place, heads=heads, tokenizer=tokenizer, title=title)


@torch.no_grad()
def trace_layer(
    layer: MultiHeadAttention,
    x: Float[Tensor, "*batch position d_model"],
    *,
    heads: Sequence[int] | None = None,
    mask: Tensor | None = None,
    tokens: Sequence[str] | None = None,
) -> Trace:
    """One of our own layers on its input."""
    x = x[None] if x.dim() == 2 else x
    if x.dim() != 3 or x.shape[-1] != layer.d_model:
        raise ShapeError(
            f"x is {list(x.shape)}; this layer takes [batch, position, d_model {layer.d_model}]"
        )
    if x.numel() == 0 or x.dtype != layer.Wq.weight.dtype:
        raise ShapeError(
            f"x is {list(x.shape)} of {x.dtype}; this layer takes at least one position of "
            f"{layer.Wq.weight.dtype}"
        )
    if tokens is not None and len(tokens) != x.shape[1]:
        raise ShapeError(f"{len(tokens)} tokens name {x.shape[1]} positions")
    was_training = layer.training
    layer.eval()
    try:
        output = layer(x, mask=mask)
        projected = layer.projected(x, x)
        rules = layer.rules_for(mask, None, is_self=True)
        by_head = torch.stack(
            [
                layer_by_definition(layer, one, mask=own_mask(mask, index)).output
                for index, one in enumerate(x)
            ]
        )
    finally:
        layer.train(was_training)
    found = {"input": x, **steps_of(*projected, rules)}
    names = tuple(tokens or map(str, range(x.shape[1])))
    return make_trace(
        found | {"output": output},
        layer.Wo.weight.detach().T,
        layer.Wo.bias,
        title=f"{type(layer).__name__}({layer.d_model}, {layer.num_heads})",
        labels=Labels(names, names),
        heads=heads,
        num_kv_heads=layer.num_kv_heads,
        difference=float((output - by_head).abs().max()),
        compared="each head's own small Wq, Wk, Wv and Wo against one large matrix each",
    )


def steps_of(queries: Tensor, keys: Tensor, values: Tensor, rules: Rules) -> dict[str, Tensor]:
    """Every step from queries to mixed values."""
    wide = at_least_float32(queries)
    queries, keys, values = (part.detach().to(wide) for part in (queries, keys, values))
    steps = attend_in_steps(queries, keys, values, rules=rules)
    group = queries.shape[1] // keys.shape[1]
    return {
        "queries": queries,
        "keys": keys,
        "values": values,
        "scores": queries @ keys.repeat_interleave(group, 1).mT,
        "scaled": steps.capped,
        "masked": steps.biased,
        "weights": steps.weights,
        "mixed": steps.mixed,
    }


def make_trace(  # noqa: PLR0913 - one field of the record each
    found: dict[str, Tensor],
    output_weight: Float[Tensor, "concat d_model"],
    bias: Tensor | None,
    *,
    title: str,
    labels: Labels,
    heads: Sequence[int] | None,
    num_kv_heads: int,
    prefix: str = "L0",
    **more: Any,
) -> Trace:
    """The record of a layer's steps, with the concat and each head's contribution worked out."""
    mixed = found["mixed"]
    num_heads, wide, dtype = mixed.shape[1], mixed.dtype, found["output"].dtype
    parts = output_weight.detach().to(wide).unflatten(0, (num_heads, -1))
    found = {
        **found,
        "concat": mixed.transpose(1, 2).flatten(2),
        "Wo": parts.flatten(0, 1),
        "contributions": mixed @ parts,
        "output": found["output"].detach().to(wide),
    }
    group = num_heads // num_kv_heads
    return Trace(
        title=title,
        steps={
            name: Step(name, tuple(AXES[name].split()), found[name].detach(), formula)
            for name, formula in (STEPS | ({} if bias is not None else UNBIASED)).items()
            if name in found
        },
        heads=checked_heads(heads, num_heads),
        kv_head_of=tuple(head // group for head in range(num_heads)),
        labels=labels,
        bias=None if bias is None else bias.detach().to(wide),
        rounding=torch.finfo(dtype).eps,
        prefix=prefix,
        **more,
    )


def batch_of(model: nn.Module, given: Tensor | str | Mapping[str, Tensor], tokenizer: Any) -> Batch:
    """What the model is called with, and what is known of its tokens."""
    if isinstance(given, str):
        if tokenizer is None:
            raise OptionError("a text is read by a tokenizer: give one, or the tensors themselves")
        reader = Reader(tokenizer, model.config)
        windows = reader.windows([given])
        if len(windows) > 1:
            raise OptionError(
                f"the text is longer than the {reader.length:,} tokens that the model takes: "
                "trace a part of it"
            )
        return reader.batch(windows, next(model.parameters()).device)
    tensors = {"input_ids": given} if isinstance(given, Tensor) else given
    return next(given_batches([tensors], model.config, tokenizer))


def chosen_place(model: nn.Module, layer: int, stack: str | None) -> Place:
    """The place of one layer; without a stack, in the model's first."""
    places = find_places(model)
    stacks = list(dict.fromkeys(place.stack for place in places))
    wanted = stacks[0] if stack is None else stack
    if wanted not in stacks:
        there = "one, without a name" if stacks == [""] else ", ".join(stacks)
        raise OptionError(f"there is no stack {stack!r}: the model has {there}")
    for place in places:
        if (place.stack, place.layer) == (wanted, layer):
            return place
    last = max(place.layer for place in places if place.stack == wanted)
    raise OptionError(f"there is no layer {layer}: the model has layers 0..{last}")


@torch.no_grad()
def trace_model(
    model: nn.Module,
    batch: Batch,
    place: Place,
    *,
    heads: Sequence[int] | None,
    tokenizer: Any,
    title: str,
) -> Trace:
    """One layer of a watched model."""
    projection = place.output_projection
    bias = getattr(projection, "bias", None)
    if projection is None:
        raise ModelError(f"{place.name} cannot be traced: its output projection is unknown")
    calls: list[Call] = []

    def each(call: Call) -> None:
        if (call.stack, call.layer) == (place.stack, place.layer):
            calls.append(call)

    was_training = model.training
    model.eval()
    try:
        with Overheard(place, projection) as heard, watch(model, each):
            model(**batch.inputs)
    finally:
        model.train(was_training)
    if not calls:
        raise ModelError(f"{place.name} did not compute: the model was not given what it reads")
    call = calls[0]
    if call.output_weight is None:
        raise ModelError(f"{place.name} cannot be traced: its output projection does not fit")
    found: dict[str, Tensor] = {}
    if heard.inputs:
        found["input"] = heard.inputs[place.turn]
    more: dict[str, Any] = {}
    if isinstance(call, AttentionCall):
        check_size(call.mixed.shape[2] * call.keys.shape[2] * call.num_heads * 4, call.layer)
        found |= steps_of(call.queries, call.keys, call.values, call.rules)
        more["compared"] = "head by head from the same queries, keys and values, in plain steps"
        more["difference"] = by_heads(call, heard.outputs[place.turn], bias)
    else:
        wide = at_least_float32(call.mixed)
        found |= {"weights": call.weights().to(wide), "mixed": call.mixed.to(wide)}
        more["notes"] = (f"{type(place.module).__name__} shows its weights alone: no scores",)
    stack = f"{place.stack}." if place.stack else ""
    return make_trace(
        found | {"output": heard.outputs[place.turn]},
        call.output_weight,
        bias,
        title=f"{title}, {stack}layer {place.layer}",
        labels=labels_of(batch, place.stack, tokenizer, call),
        heads=heads,
        num_kv_heads=call.keys.shape[1] if isinstance(call, AttentionCall) else call.num_heads,
        prefix=f"{stack}L{place.layer}",
        **more,
    )


class Overheard:
    """What goes into an attention module, and what its output projection gives, call by call."""

    def __init__(self, place: Place, projection: nn.Module) -> None:
        """Nothing yet."""
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self._place, self._projection = place, projection

    def __enter__(self) -> "Overheard":
        """Begin to listen."""
        self._hooks = [
            self._place.module.register_forward_pre_hook(self._hear_input, with_kwargs=True),
            self._projection.register_forward_hook(self._hear_output),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        for hook in self._hooks:
            hook.remove()

    def _hear_input(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for one in (*args, *kwargs.values()):
            if isinstance(one, Tensor) and one.is_floating_point() and one.dim() == 3:
                self.inputs.append(one)
                return

    def _hear_output(self, _: nn.Module, __: Any, output: Tensor) -> None:
        self.outputs.append(output)


def by_heads(call: AttentionCall, output: Tensor, bias: Tensor | None) -> float:
    """Largest difference of a layer's output from one computed head by head, in plain steps."""
    assert call.output_weight is not None
    wide, rules = at_least_float32(call.mixed), call.rules
    parts = call.output_weight.to(wide).unflatten(0, (call.num_heads, -1))
    group = call.num_heads // call.keys.shape[1]
    found = torch.zeros_like(output, dtype=wide)
    for sequence in range(len(call.queries)):
        for head in range(call.num_heads):
            step = head_steps(
                call.queries[sequence, head].to(wide),
                call.keys[sequence, head // group].to(wide),
                call.values[sequence, head // group].to(wide),
                rules=rules,
                batch=sequence,
                head=head,
            )
            found[sequence] += step.mixed @ parts[head]
    if bias is not None:
        found += bias.detach()
    return float((found - output.detach()).abs().max())
