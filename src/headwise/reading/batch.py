"""A batch: the tensors that a model is called with, and the tokens that each stack reads.

In: tensors, and a config that says whether there is a decoder. Out: `Batch`, and which positions
are real. Made from texts by `reader.py`, from a user's own tensors by `tensors.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from headwise.reading.tokens import TokenFacts

Inputs = Mapping[str, Tensor]
"""Arguments of a model's `forward`, by name."""

NO_LABEL = -100
"""The label that torch's losses ignore."""

TEXT_STACKS = ("", "text", "encoder", "decoder", "cross")
"""Stacks whose positions may be tokens, padded or not."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs of a model, and the facts known about their tokens."""

    inputs: Inputs
    tokens: Mapping[str, TokenFacts]
    """By stack; only "" if all stacks read the same tokens. Empty if the inputs have no tokens."""
    indices: tuple[int, ...]
    """Number of each sequence among all that are read; random rows are drawn by it."""

    def key_tokens(self, stack: str, size: int) -> TokenFacts | None:
        """Facts about the `size` keys of a stack; None if the keys are not tokens of this batch."""
        facts = self.tokens.get("" if set(self.tokens) == {""} else stack)
        return facts if facts is not None and facts.is_real.shape[1] == size else None

    def query_tokens(self, stack: str, size: int) -> TokenFacts | None:
        """Facts about the `size` queries of a stack; None if they are not tokens of this batch."""
        return self.key_tokens(query_stack(stack), size)

    @property
    def num_tokens(self) -> int:
        """Number of real tokens in the first stack that reads tokens; 0 if none does."""
        with_ids = (facts for facts in self.tokens.values() if facts.ids is not None)
        return next((int(facts.is_real.sum()) for facts in with_ids), 0)


def query_stack(stack: str) -> str:
    """The stack whose positions are a stack's queries: the decoder for cross attention."""
    return "decoder" if stack == "cross" else stack


def real_tokens(config: Any, inputs: Inputs, stack: str) -> Bool[Tensor, "batch position"] | None:
    """True for real positions of a stack, False for padding; None if the inputs have no mask.

    For cross attention these are its keys, which the encoder outputs.
    """
    if stack not in TEXT_STACKS:
        return None
    mask = inputs.get(f"{input_prefix(config, stack)}attention_mask")
    if mask is None and stack == "decoder" and makes_tokens_of_labels(config, inputs):
        labels = inputs.get("labels")
        mask = None if labels is None else labels != NO_LABEL
    return mask.bool() if mask is not None and mask.dim() == 2 else None


def input_prefix(config: Any, stack: str) -> str:
    """Prefix of the names of a stack's inputs: `decoder_` or nothing."""
    return "decoder_" if stack == "decoder" and has_decoder(config) else ""


def makes_tokens_of_labels(config: Any, inputs: Inputs) -> bool:
    """Whether the model shifts the labels to make its decoder's tokens, as it does without them."""
    has_tokens = any(name in inputs for name in ("decoder_input_ids", "decoder_inputs_embeds"))
    return has_decoder(config) and not has_tokens


def has_decoder(config: Any) -> bool:
    """Whether the model has an encoder and a decoder, each with its own tokens."""
    return bool(getattr(config, "is_encoder_decoder", False))
