"""Models: the steps of one layer of a watched model.

In: a transformers model, what it reads, and which layer. Out: a `Trace`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.attention.reference import head_steps
from headwise.errors import ModelError, OptionError
from headwise.models.loaded import Source, open_model
from headwise.reading.batch import Batch
from headwise.reading.labels import token_labels
from headwise.reading.reader import Reader
from headwise.reading.tensors import batches_from_tensors
from headwise.tracing.layer_trace import formulas_of, make_trace, steps_of
from headwise.tracing.record import Trace
from headwise.watching.calls import AttentionCall, Call, at_least_float32, check_weights_fit
from headwise.watching.hooks import record
from headwise.watching.running import forward_batch, in_evaluation, real_queries
from headwise.watching.sites import Site, find_sites
from headwise.watching.watch import watch


def trace_model(
    source: Source,
    given: Tensor | str | Mapping[str, Tensor],
    *,
    layer: int,
    stack: str | None,
    heads: Sequence[int] | None,
    tokenizer: Any,
) -> Trace:
    """One layer of a model, or of the model of a name, on a text or on the tensors it takes."""
    loaded = open_model(source, tokenizer)
    model, tokenizer = loaded.model, loaded.tokenizer
    places = find_sites(model)
    batch = batch_of(model, given, tokenizer)
    place = chosen_place(model, places, batch, layer, stack)
    return trace_place(model, batch, place, heads=heads, tokenizer=tokenizer, title=loaded.name)


def batch_of(model: nn.Module, given: Tensor | str | Mapping[str, Tensor], tokenizer: Any) -> Batch:
    """What the model is called with, and what is known of its tokens."""
    if isinstance(given, str):
        if tokenizer is None:
            raise OptionError("a text is read by a tokenizer: give one, or the tensors themselves")
        reader = Reader(tokenizer, model.config)
        return reader.one(given, next(model.parameters()).device)
    tensors = {"input_ids": given} if isinstance(given, Tensor) else given
    return next(batches_from_tensors([tensors], model.config, tokenizer))


def chosen_place(
    model: nn.Module, places: Sequence[Site], batch: Batch, layer: int, stack: str | None
) -> Site:
    """The place of one layer; without a stack, in the first that what is read goes through."""
    stacks = list(dict.fromkeys(place.stack for place in places))
    if stack is None:
        wanted = stacks[0] if len(stacks) == 1 else first_stack(model, batch, stacks)
    else:
        wanted = stack
    if wanted not in stacks:
        there = "one, without a name" if stacks == [""] else ", ".join(stacks)
        raise OptionError(f"there is no stack {stack!r}: the model has {there}")
    for place in places:
        if (place.stack, place.layer) == (wanted, layer):
            return place
    last = max(place.layer for place in places if place.stack == wanted)
    of = f" of {wanted}" if wanted else ""
    raise OptionError(f"there is no layer {layer}: the model has layers 0..{last}{of}")


@torch.no_grad()
def first_stack(model: nn.Module, batch: Batch, stacks: Sequence[str]) -> str:
    """The first of the stacks that computes when the model reads the batch: not all always do."""
    computing: set[str] = set()
    with in_evaluation(model), watch(model, lambda call: computing.add(call.stack)):
        forward_batch(model, batch.inputs)
    return next((stack for stack in stacks if stack in computing), stacks[0])


@torch.no_grad()
def trace_place(
    model: nn.Module,
    batch: Batch,
    place: Site,
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

    modules = {"attention": place.module, "projection": projection}
    with in_evaluation(model), record(modules) as recorded, watch(model, each):
        forward_batch(model, batch.inputs)
    if not calls:
        raise ModelError(f"{place.name} did not compute: the model was not given what it reads")
    call = calls[0]
    if call.output_weight is None:
        raise ModelError(
            f"{place.name} cannot be traced: its output projection does not fit, or does not get "
            "what its heads give"
        )
    found: dict[str, Tensor] = {}
    attention, projected = (
        [one for one in recorded if one.name == name][place.call_index] for name in modules
    )
    if attention.input.dim() == 3:
        found["input"] = attention.input
    output, formulas = projected.output, {}
    if isinstance(call, AttentionCall):
        check_weights_fit(call.mixed.shape[:3].numel() * call.num_keys, place)
        found |= steps_of(call.queries, call.keys, call.values, call.rules)
        formulas = formulas_of(call.rules, call.keys.shape[-1])
    else:
        wide = at_least_float32(call.mixed)
        found |= {"weights": call.weights().to(wide), "mixed": call.mixed.to(wide)}
    stack = f"{place.stack}." if place.stack else ""
    made = make_trace(
        found | {"output": output},
        call.output_weight,
        bias,
        title=f"{title}, {stack}layer {place.layer}",
        labels=token_labels(batch, place.stack, tokenizer, call.num_queries, call.num_keys),
        heads=heads,
        num_kv_heads=call.keys.shape[1] if isinstance(call, AttentionCall) else call.num_heads,
        formulas=formulas,
        prefix=f"{stack}L{place.layer}",
    )
    is_real = real_queries(model, batch.inputs, place.stack, output)
    made = replace(made, is_real=None if is_real.all() else is_real)
    if not isinstance(call, AttentionCall):
        note = f"{type(place.module).__name__} shows its weights alone: no scores"
        return replace(made, notes=(note,))
    return replace(
        made,
        difference=by_heads(call, output, bias),
        compared="the layer as it ran and head by head in plain steps",
    )


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
