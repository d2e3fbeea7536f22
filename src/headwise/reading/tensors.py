"""Checks the user's own tensors and turns them into batches.

`reader.py` makes batches from texts.
"""

import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import MaskError, OptionError, ShapeError
from headwise.reading.batch import (
    TEXT_STACKS,
    Batch,
    Inputs,
    TokenFacts,
    TokenKinds,
    input_prefix,
    real_tokens,
)
from headwise.reading.reader import token_limit

TEXT_INPUTS = (
    *("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask"),
    *("inputs_embeds", "decoder_inputs_embeds", "token_type_ids", "position_ids", "labels"),
)
"""Inputs of models that read only text; `Reader` makes the first four."""


def batch_from_tensors(
    tensors: Inputs, config: Any, kinds: TokenKinds | None = None, first: int = 0
) -> Batch:
    """A batch of the tensors; `first` is the index of its first sequence among all sequences.

    Without `kinds`, special tokens and punctuation are unknown.
    """
    by_prefix = {
        prefix: _token_facts(
            tensors.get(f"{prefix}input_ids"), real_tokens(config, tensors, stack), kinds
        )
        for prefix, stack in {"": "encoder", "decoder_": "decoder"}.items()
    }
    by_stack = {stack: by_prefix[input_prefix(config, stack)] for stack in TEXT_STACKS}
    tokens = {stack: facts for stack, facts in by_stack.items() if facts is not None}
    size = next(
        len(value) for value in tensors.values() if isinstance(value, Tensor) and value.dim()
    )
    return Batch(tensors, tokens, tuple(range(first, first + size)))


def _token_facts(
    ids: Tensor | None, is_real: Tensor | None, kinds: TokenKinds | None
) -> TokenFacts | None:
    if ids is None:
        return None if is_real is None else TokenFacts(is_real=is_real.cpu())
    if is_real is not None and len(is_real) != len(ids):
        return TokenFacts(is_real=is_real.cpu())
    ids = ids.cpu()
    is_real = torch.ones_like(ids, dtype=torch.bool) if is_real is None else is_real.cpu()
    return TokenFacts(ids=ids, is_real=is_real) if kinds is None else kinds.facts(ids, is_real)


def as_batches(inputs: Any) -> list[Inputs]:
    """The batches as a list; raises an error unless each of them maps names to tensors."""
    if isinstance(inputs, Mapping | Tensor) or not isinstance(inputs, Iterable):
        raise OptionError(
            f"inputs is a {type(inputs).__name__}: pass a list of mappings from the model's "
            "input names to tensors",
            option="inputs",
        )
    batches = list(inputs)
    for batch in batches:
        check_tensors(batch)
        for name, mask in batch.items():
            if name.endswith("attention_mask") and mask is not None and mask.dim() == 2:
                _check_padding(name, mask)
    return batches


def check_tensors(tensors: Any) -> None:
    """Raise an error unless `tensors` maps names to tensors and tokens are `[batch, position]`."""
    if not isinstance(tensors, Mapping):
        raise OptionError(
            f"a batch of inputs is a {type(tensors).__name__}: pass a list of mappings from the "
            "model's input names to tensors"
        )
    for name, tensor in tensors.items():
        is_tensor = tensor is None or isinstance(tensor, Tensor)
        if name.endswith(("input_ids", "attention_mask")) and not is_tensor:
            raise OptionError(f"{name} is a {type(tensor).__name__}: pass a tensor")
    if not any(isinstance(value, Tensor) and value.dim() for value in tensors.values()):
        raise OptionError(
            f"a batch of inputs has no tensor, only {', '.join(tensors) or 'nothing'}: pass the "
            "model's inputs by name"
        )
    for prefix in ("", "decoder_"):
        ids, mask = (tensors.get(f"{prefix}{name}") for name in ("input_ids", "attention_mask"))
        if ids is None:
            continue
        if ids.dim() != 2:
            raise ShapeError(
                f"{prefix}input_ids is {list(ids.shape)}: it must be [batch, position]"
            )
        if ids.is_floating_point():
            raise OptionError(f"{prefix}input_ids is {ids.dtype}: token ids must be whole numbers")
        # Models of several codebooks read several rows of tokens for each sequence of the mask.
        if mask is not None and (mask.shape[1:] != ids.shape[1:] or len(ids) % max(1, len(mask))):
            raise ShapeError(
                f"{prefix}attention_mask is {list(mask.shape)}: it must be {list(ids.shape)} like "
                "the tokens, 1 for a token and 0 for padding"
            )


def _check_padding(name: str, mask: Tensor) -> None:
    """Raise MaskError if a mask hides tokens between visible ones: distances would be wrong."""
    starts = mask.bool().int().diff(dim=1, prepend=torch.zeros_like(mask[:, :1]).int()) > 0
    if len(broken := (starts.sum(1) > 1).nonzero()[:, 0]):
        raise MaskError(
            f"{name} hides tokens between visible ones in sequence {int(broken[0])}: it may be 0 "
            "only before or after the tokens"
        )


def check_input_names(model: nn.Module, tensors: Inputs, *, is_strict: bool = False) -> None:
    """Raise OptionError if a name is not one of the model's inputs; `labels` is always allowed.

    Most models accept and ignore unknown names. For these, unless `is_strict`, an unknown name is
    an error only if it resembles the name of an input.
    """
    parameters = inspect.signature(model.forward).parameters
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [name for name, parameter in parameters.items() if parameter.kind in named]
    accepts_any = not is_strict and len(known) < len(parameters)
    for name in tensors:
        near = get_close_matches(name, known, n=1, cutoff=0.8)
        if name in known or name == "labels" or (accepts_any and not near):
            continue
        advice = f"did you mean {near[0]}?" if near else f"its inputs are {', '.join(known)}"
        raise OptionError(f"{type(model).__name__} has no input {name!r}: {advice}")


def non_text_inputs(tensors: Inputs, tokenizer: Any = None) -> list[str]:
    """Names of the inputs that are not text and that the tokenizer does not make from text."""
    known = {*TEXT_INPUTS, *getattr(tokenizer, "model_input_names", ())}
    return [name for name, value in tensors.items() if value is not None and name not in known]


def why_unreadable(config: Any, tensors: Inputs) -> str:
    """Reason why a model cannot read these tokens (too many, or unknown); "" if it can."""
    text_config = getattr(config, "text_config", None) or config
    size, limit = getattr(text_config, "vocab_size", None), token_limit(None, config)
    sizes = {"": size, "decoder_": getattr(config, "decoder_vocab_size", None) or size}
    for prefix, vocabulary in sizes.items():
        ids = tensors.get(f"{prefix}input_ids")
        if ids is None or ids.numel() == 0:
            continue
        lowest, highest, length = int(ids.min()), int(ids.max()), ids.shape[1]
        if vocabulary is not None and not 0 <= lowest <= highest < vocabulary:
            wrong = lowest if lowest < 0 else highest
            return (
                f"{prefix}input_ids has {wrong}, but the vocabulary is 0..{vocabulary - 1}: use "
                "the model's own tokenizer"
            )
        if limit is not None and length > limit:
            return (
                f"{prefix}input_ids has {length:,} positions, but the model reads at most "
                f"{limit:,}: pass fewer"
            )
    return ""
