"""Running: a model called once, with no more work than what is wanted of it takes.

In: a model and its inputs. Out: its output. Nothing is kept for a next token.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.reading.batch import Inputs, makes_tokens_of_labels, query_stack, real_tokens


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """While it lasts no module of the model drops anything; each is afterwards in its own mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def forward(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output, computed without a cache."""
    return model(**inputs, **taken(model, use_cache=False))


def forward_batch(model: nn.Module, inputs: Inputs) -> None:
    """Let a model read for what its layers do; what it would say next is left out.

    The logits of one position are computed where the model lets itself be told so: in a small
    model with a large vocabulary, all of them take as long as many layers. Labels are left out, for
    there is no loss of one position.
    """
    model(**read_by(model, inputs), **taken(model, use_cache=False, logits_to_keep=1))


def without_labels(inputs: Inputs) -> Inputs:
    """What the model is given: labels are what it is measured by."""
    return {name: value for name, value in inputs.items() if name != "labels"}


def read_by(model: nn.Module, inputs: Inputs) -> Inputs:
    """What the model's layers read: not the labels, unless a decoder's tokens are made of them."""
    return inputs if makes_tokens_of_labels(config_of(model), inputs) else without_labels(inputs)


def taken(model: nn.Module, **options: Any) -> dict[str, Any]:
    """Those options that the model takes."""
    known = inspect.signature(model.forward).parameters
    return {name: value for name, value in options.items() if name in known}


def real_queries(
    model: nn.Module, inputs: Inputs, stack: str, values: Float[Tensor, "batch query *size"]
) -> Bool[Tensor, "batch query"]:
    """Which queries of a stack are no padding; all of them where nothing tells them apart.

    `values` are anything that was computed of the queries.
    """
    found = real_tokens(config_of(model), inputs, query_stack(stack))
    if found is not None and found.shape == values.shape[:2]:
        return found.to(values.device)
    return torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)


def config_of(model: nn.Module) -> Any:
    """What a model says of itself; None where it says nothing."""
    return getattr(model, "config", None)
