"""Running: one forward pass of a model, without a key-value cache or other unnecessary work."""

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
    """Put the model in eval mode inside the block, then restore each module's own mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def without_weight_gradients(model: nn.Module) -> Iterator[None]:
    """Turn off the weights' gradients inside the block, which halves the memory needed."""
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in trainable:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)


def forward(model: nn.Module, inputs: Inputs, **options: Any) -> Any:
    """The model's output, computed without a cache; it ignores options that it does not know."""
    return model(**inputs, **_filter_options(model, use_cache=False, **options))


def forward_batch(model: nn.Module, inputs: Inputs) -> None:
    """Run the model's layers on a batch, and compute as few logits as possible.

    If the model supports it, it computes the logits of one position only: with a large vocabulary,
    all logits take as long as many layers. Labels are left out, because their loss needs all.
    """
    options = _filter_options(model, use_cache=False, logits_to_keep=1)
    model(**layer_inputs(model, inputs), **options)


def without_labels(inputs: Inputs) -> Inputs:
    """The inputs except labels."""
    return {name: value for name, value in inputs.items() if name != "labels"}


def layer_inputs(model: nn.Module, inputs: Inputs) -> Inputs:
    """The inputs that the layers read: labels only if the model makes decoder tokens of them."""
    config = getattr(model, "config", None)
    return inputs if makes_tokens_of_labels(config, inputs) else without_labels(inputs)


def _filter_options(model: nn.Module, **options: Any) -> dict[str, Any]:
    """The options that the model's `forward` accepts."""
    parameters = inspect.signature(model.forward).parameters
    return {name: value for name, value in options.items() if name in parameters}


def real_queries(
    model: nn.Module, inputs: Inputs, stack: str, values: Float[Tensor, "batch query *size"]
) -> Bool[Tensor, "batch query"]:
    """True for a stack's real queries, False for padding; all True if the inputs have no mask."""
    is_real = real_tokens(getattr(model, "config", None), inputs, query_stack(stack))
    if is_real is not None and is_real.shape == values.shape[:2]:
        return is_real.to(values.device)
    return torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
