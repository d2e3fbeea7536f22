"""A batch: the tensors passed to a model, and facts about their tokens.

The facts are which tokens are real, special or punctuation, and where each token is repeated.
`reader.py` makes batches from texts, `tensors.py` from the user's own tensors.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headwise.reading.sound import find_silence

Inputs = Mapping[str, Tensor]
"""Arguments to a model's `forward`, by name."""

NO_LABEL = -100
"""The label that torch's losses ignore."""

TEXT_STACKS = ("", "text", "encoder", "decoder", "cross")
"""Stacks whose positions can be tokens, with or without padding."""

SOUND_STACKS = ("", "audio", "encoder", "cross")
"""Stacks whose keys can be parts of a sound."""

UNDECODABLE = "\ufffd"
"""The character that decoders write for bytes that do not form a whole character."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenFacts:
    """Facts about the tokens in a batch; an unknown fact, as without a tokenizer, is None."""

    is_real: Bool[Tensor, "batch position"]
    """False for padding, which occurs only before or after a sequence's tokens."""
    ids: Int[Tensor, "batch position"] | None = None
    is_special: Bool[Tensor, "batch position"] | None = None
    is_punctuation: Bool[Tensor, "batch position"] | None = None
    _keys: dict[tuple[int, torch.device], "KeyTokens"] = field(
        default_factory=dict, init=False, repr=False
    )

    @cached_property
    def spans(self) -> list[slice]:
        """Positions of the real tokens in each sequence."""
        starts = self.is_real.int().argmax(1)
        stops = self.is_real.shape[1] - self.is_real.flip(1).int().argmax(1)
        spans = torch.stack([starts, stops], 1).masked_fill(~self.is_real.any(1, keepdim=True), 0)
        return [slice(start, stop) for start, stop in spans.tolist()]

    def keys(self, sequence: int, device: torch.device) -> "KeyTokens | None":
        """Facts about a sequence's real tokens, cached for all layers; None if `ids` is None."""
        if self.ids is None:
            return None
        if (sequence, device) not in self._keys:
            span = self.spans[sequence]
            special, punctuation = (
                None if kind is None else kind[sequence, span].to(device)
                for kind in (self.is_special, self.is_punctuation)
            )
            ids = self.ids[sequence, span].to(device)
            self._keys[sequence, device] = KeyTokens(
                ids=ids, is_special=special, is_punctuation=punctuation
            )
        return self._keys[sequence, device]


@dataclass(frozen=True, eq=False)
class CopyIndex:
    """Positions sorted by token id; copies of a token keep their order in the text."""

    order: Int[Tensor, " key"]
    """Position at each rank."""
    rank: Int[Tensor, " key"]
    """Rank of each position."""
    begin: Int[Tensor, " key"]
    """Rank of the first copy of the token at each position."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyTokens:
    """Facts about the real tokens in one sequence; an unknown fact is None."""

    ids: Int[Tensor, " key"]
    is_special: Bool[Tensor, " key"] | None
    is_punctuation: Bool[Tensor, " key"] | None

    @cached_property
    def by_token(self) -> CopyIndex:
        """Lookup table for the copies of each token."""
        order = torch.argsort(self.ids, stable=True)
        in_order, ranks = self.ids[order], torch.arange(len(order), device=order.device)
        is_first = in_order.diff(prepend=in_order[:1] - 1) != 0
        rank, begin = torch.empty_like(order), torch.empty_like(order)
        rank[order] = ranks
        begin[order] = torch.where(is_first, ranks, 0).cummax(0).values
        return CopyIndex(order, rank, begin)


class TokenKinds:
    """Determines which of a tokenizer's tokens are special and which are punctuation."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special_ids = frozenset(tokenizer.all_special_ids)
        self._is_punctuation: dict[int, bool] = {}

    def facts(self, ids: Tensor, is_real: Tensor) -> TokenFacts:
        """Facts about the tokens in a batch."""
        special = torch.tensor(sorted(self.special_ids), dtype=ids.dtype)
        distinct, place = ids.unique(return_inverse=True)
        for token in distinct.tolist():
            if token not in self._is_punctuation:
                is_ordinary = token >= 0 and token not in self.special_ids
                text = self.tokenizer.decode([token]).strip() if is_ordinary else ""
                self._is_punctuation[token] = is_punctuation(text)
        flags = [self._is_punctuation[token] for token in distinct.tolist()]
        return TokenFacts(
            ids=ids,
            is_real=is_real,
            is_special=torch.isin(ids, special),
            is_punctuation=torch.tensor(flags, dtype=torch.bool)[place],
        )


def is_punctuation(text: str) -> bool:
    """Whether a text consists only of punctuation marks and symbols, without undecodable bytes.

    >>> [is_punctuation(text) for text in ("...", "a.", "", "\\ufffd")]
    [True, False, False, False]
    """
    return bool(text) and all(
        unicodedata.category(mark)[0] in "PS" and mark != UNDECODABLE for mark in text
    )


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs to a model, and the known facts about their tokens."""

    inputs: Inputs
    tokens: Mapping[str, TokenFacts]
    """Facts by stack, or only under "" if all stacks read the same tokens; empty without tokens."""
    indices: tuple[int, ...]
    """Index of each sequence among all sequences read; the random choice of rows depends on it."""
    _silence: dict[int, Tensor | None] = field(default_factory=dict, init=False, repr=False)

    def key_tokens(self, stack: str, size: int) -> TokenFacts | None:
        """Facts about a stack's `size` keys; None if the keys are not tokens in this batch."""
        facts = self.tokens.get("" if set(self.tokens) == {""} else stack)
        return facts if facts is not None and facts.is_real.shape[1] == size else None

    def query_tokens(self, stack: str, size: int) -> TokenFacts | None:
        """Facts about a stack's `size` queries; None if they are not tokens in this batch."""
        return self.key_tokens(query_stack(stack), size)

    def silence(self, size: int) -> Bool[Tensor, "batch position"] | None:
        """True for each of `size` positions of a sound that is silence; None without a sound."""
        if size not in self._silence:
            self._silence[size] = find_silence(self.inputs, size)
        return self._silence[size]

    @property
    def num_tokens(self) -> int:
        """Number of real tokens in the first stack that reads tokens; 0 if none does."""
        with_ids = (facts for facts in self.tokens.values() if facts.ids is not None)
        return next((int(facts.is_real.sum()) for facts in with_ids), 0)


def query_stack(stack: str) -> str:
    """The stack whose tokens are a stack's queries: the decoder for cross-attention, or itself."""
    return "decoder" if stack == "cross" else stack


def real_tokens(config: Any, inputs: Inputs, stack: str) -> Bool[Tensor, "batch position"] | None:
    """True for a stack's real positions, False for padding; None if the inputs have no mask.

    For cross-attention, the positions are those of its keys, which come from the encoder.
    """
    if stack not in TEXT_STACKS:
        return None
    mask = inputs.get(f"{input_prefix(config, stack)}attention_mask")
    if mask is None and stack == "decoder" and makes_tokens_of_labels(config, inputs):
        labels = inputs.get("labels")
        mask = None if labels is None else labels != NO_LABEL
    return mask.bool() if mask is not None and mask.dim() == 2 else None


def input_prefix(config: Any, stack: str) -> str:
    """Prefix of the names of a stack's inputs: "decoder_" or ""."""
    return "decoder_" if stack == "decoder" and has_decoder(config) else ""


def makes_tokens_of_labels(config: Any, inputs: Inputs) -> bool:
    """Whether the model must shift labels to get decoder tokens, because the inputs have none."""
    has_tokens = any(name in inputs for name in ("decoder_input_ids", "decoder_inputs_embeds"))
    return has_decoder(config) and not has_tokens


def has_decoder(config: Any) -> bool:
    """Whether the model has an encoder and a decoder, each with its own tokens."""
    return bool(getattr(config, "is_encoder_decoder", False))
