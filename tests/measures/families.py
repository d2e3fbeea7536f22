"""A tiny family's attention as the model's own eager code gives it, ready to be measured by hand.

In: a family's name and how its batch is padded. Out: the batch as headwise reads it, with flags for
its tokens, and for each stack, layer and sequence a `Case` from eager code alone. Only the values
come from a watched run, and are first compared with the eager outputs.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from headwise.reading.batch import Batch
from headwise.reading.tensors import batch_from_tensors
from headwise.watching.calls import AttentionCall
from headwise.watching.watch import watch

from ..attention.tolerance import assert_same
from ..watching.helpers import ROUNDINGS
from ..watching.tiny import (
    Inputs,
    attention_modules,
    eager_weights,
    in_dtype,
    output_projection,
    ragged,
    stack_of,
    tiny,
)
from ..watching.tiny_configs import EOS, FAMILIES, SPECIAL, Family
from .definitions import Case, every_column

LENGTHS = (7, 13, 1)
UNPADDED = 2
WORDS = 11
"""Different ordinary tokens, few enough for repeats."""
Place = tuple[str, int, int]
"""A stack, a layer and a sequence of the batch."""


class Measured(NamedTuple):
    """A model, a batch for it, its eager attention, and all columns computed from that."""

    family: Family
    model: PreTrainedModel
    batch: Batch
    cases: dict[Place, Case]
    columns: dict[Place, dict[str, Tensor]]


def precision(family: Family) -> torch.dtype:
    """The coarsest dtype on the way: Llama's kin round their norms and rotations to float32."""
    is_exact = family.softmax_in == torch.float64 and family.name != "gpt_oss"
    return torch.float64 if is_exact else torch.float32


@cache
def measured(name: str, padding: str) -> Measured:
    """The family on a batch that is not padded, or padded on the right or on the left."""
    family = FAMILIES[name]
    transformers.logging.set_verbosity_error()  # unrouted families warn that they do not switch
    if padding == "none":
        model, inputs = tiny(name, batch=UNPADDED)
    else:
        dtype = family.softmax_in
        model, _ = tiny(name, dtype=dtype)
        inputs, _ = ragged(name, LENGTHS, padding, dtype=dtype)
    inputs = in_dtype(few_words(inputs), model.dtype)
    batch = flagged(inputs, model.config)
    cases = cases_of(family, model, batch)
    columns = {place: every_column(case) for place, case in cases.items()}
    return Measured(family, model, batch, cases, columns)


def few_words(inputs: Inputs) -> Inputs:
    """The inputs with ordinary tokens that repeat."""
    return {
        name: torch.where(part >= SPECIAL, SPECIAL + part % WORDS, part)
        if name.endswith("input_ids")
        else part
        for name, part in inputs.items()
    }


def flagged(inputs: Inputs, config: PreTrainedConfig) -> Batch:
    """The batch with some tokens called special, and others punctuation."""
    batch = batch_from_tensors(inputs, config)
    tokens = {
        stack: replace(
            facts,
            is_special=(facts.ids == SPECIAL) | (facts.ids == EOS),
            is_punctuation=(facts.ids == SPECIAL + 1) | (facts.ids == SPECIAL + 2),
        )
        for stack, facts in batch.tokens.items()
    }
    return replace(batch, tokens=tokens)


class Eager(NamedTuple):
    """One layer's attention on a batch."""

    weights: Tensor
    concat: Tensor
    projection: Tensor


def eager_layers(family: Family, model: PreTrainedModel, inputs: Inputs) -> dict[str, list[Eager]]:
    """Weights, what arrives at the output projection, and its matrix, by the model itself."""
    arrived: dict[str, list[tuple[Tensor, Tensor]]] = {stack: [] for stack in family.stacks}
    with ExitStack() as hooks:
        for name in attention_modules(model, family):
            projection = output_projection(model, family, name)
            is_conv = type(projection).__name__ == "Conv1D"
            matrix = projection.weight if is_conv else projection.weight.T
            to = arrived[stack_of(name, family)]
            hook = projection.register_forward_pre_hook(
                lambda _, args, to=to, matrix=matrix: to.append((args[0], matrix.detach()))
            )
            hooks.enter_context(hook)
        weights = eager_weights(model, inputs)
    return {
        stack: [
            Eager(part, *rest) for part, rest in zip(weights[stack], arrived[stack], strict=True)
        ]
        for stack in family.stacks
    }


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore the warning that a model's own weights are read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*its own full weights are read instead")
        yield


def watched_values(model: PreTrainedModel, inputs: Inputs) -> dict[tuple[str, int], Tensor]:
    """The values `[batch heads key d_value]` of every layer that has them in its calls."""
    values = {}
    with quiet(), torch.no_grad(), watch(model) as seen:
        model(**inputs)
    for call in seen.calls:
        if isinstance(call, AttentionCall):
            group = call.num_heads // call.values.shape[1]
            values[call.stack, call.layer] = call.values.repeat_interleave(group, 1)
    return values


def real(batch: Batch, stack: str, row: int, size: int) -> Tensor:
    """True for real positions, False for padding."""
    facts = batch.tokens.get(stack)
    return torch.ones(size, dtype=torch.bool) if facts is None else facts.is_real[row]


def cases_of(family: Family, model: PreTrainedModel, batch: Batch) -> dict[Place, Case]:
    """A case for every stack, layer and sequence."""
    values = watched_values(model, batch.inputs)
    return {
        (stack, layer, row): case_of(family, batch, (stack, layer, row), eager, values)
        for stack, layers in eager_layers(family, model, batch.inputs).items()
        for layer, eager in enumerate(layers)
        for row in range(len(batch.indices))
    }


def case_of(
    family: Family,
    batch: Batch,
    place: Place,
    eager: Eager,
    values: dict[tuple[str, int], Tensor],
) -> Case:
    stack, layer, row = place
    weights = eager.weights[row].double()
    num_heads, num_queries, num_keys = weights.shape
    queries = real(batch, "decoder" if stack == "cross" else stack, row, num_queries)
    keys = real(batch, stack, row, num_keys)
    weights = weights[:, queries][:, :, keys]
    mixed = eager.concat[row].reshape(num_queries, num_heads, -1).transpose(0, 1)[:, queries]
    layer_values = values.get((stack, layer))
    row_values = None if layer_values is None else layer_values[row][:, keys].double()
    if row_values is not None:
        dtype = eager.concat.dtype if precision(family) == torch.float64 else torch.float32
        assert_same(weights @ row_values, mixed, roundings=ROUNDINGS, dtype=dtype)
    facts = batch.tokens.get(stack)
    is_causal = stack in ("decoder", "text") or family.kind == "decoder"
    allowed = torch.ones_like(weights[0], dtype=torch.bool)
    if is_causal:
        allowed = allowed.tril()
    if family.reach and (reach := family.reach[layer]) is not None:
        allowed = allowed.tril(reach).triu(-reach)
    assert not weights[:, ~allowed].any()
    return Case(
        weights=weights,
        allowed=allowed,
        mixed=mixed.double(),
        projection=eager.projection.double().unflatten(0, (num_heads, -1)),
        values=row_values,
        ids=None if facts is None else facts.ids[row, keys],
        is_special=None if facts is None else facts.is_special[row, keys],
        is_punctuation=None if facts is None else facts.is_punctuation[row, keys],
        is_cross=stack == "cross",
        is_causal=is_causal,
    )
