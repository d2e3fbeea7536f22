"""Running: a model called once, with no more work than what is wanted of it takes.

In: a model and its inputs. Out: its output. Nothing is kept for a next token.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

NOTHING = -100
"""A label that is none: torch's own mark for positions without a loss."""
Inputs = Mapping[str, Tensor]
"""What a model reads, by the names that it gives them."""


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


TEXT_STACKS = ("", "text", "encoder", "decoder", "cross")
"""Stacks whose positions may be tokens with padding among them."""


def real_queries(
    model: nn.Module, inputs: Inputs, stack: str, values: Float[Tensor, "batch query *size"]
) -> Bool[Tensor, "batch query"]:
    """Which queries of a stack are no padding; all of them where nothing tells them apart.

    `values` are anything that was computed of the queries.
    """
    found = real_tokens(config_of(model), inputs, stack_of_queries(stack))
    if found is not None and found.shape == values.shape[:2]:
        return found.to(values.device)
    return torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)


def stack_of_queries(stack: str) -> str:
    """The stack whose positions a stack's queries are: in cross attention, the decoder's."""
    return "decoder" if stack == "cross" else stack


def real_tokens(config: Any, inputs: Inputs, stack: str) -> Bool[Tensor, "batch position"] | None:
    """Which of a stack's positions are no padding; None where the inputs do not say.

    Those of cross attention are its keys, which the encoder makes.
    """
    if stack not in TEXT_STACKS:
        return None
    mask = inputs.get(f"{prefix_of(config, stack)}attention_mask")
    if mask is None and stack == "decoder" and makes_tokens_of_labels(config, inputs):
        labels = inputs.get("labels")
        mask = None if labels is None else labels != NOTHING
    return mask.bool() if mask is not None and mask.dim() == 2 else None


def prefix_of(config: Any, stack: str) -> str:
    """How the names of the inputs begin that a stack's tokens are given by."""
    return "decoder_" if stack == "decoder" and has_decoder(config) else ""


def makes_tokens_of_labels(config: Any, inputs: Inputs) -> bool:
    """Whether a decoder's tokens are made of the labels, as they are where none are given."""
    is_given = any(name in inputs for name in ("decoder_input_ids", "decoder_inputs_embeds"))
    return has_decoder(config) and not is_given


def has_decoder(config: Any) -> bool:
    """Whether a model has an encoder and a decoder, each with tokens of its own."""
    return bool(getattr(config, "is_encoder_decoder", False))


def config_of(model: nn.Module) -> Any:
    """What a model says of itself; None where it says nothing."""
    return getattr(model, "config", None)
