"""Tokens: facts about the tokens of a batch and of one sequence.

In: token ids and a tokenizer. Out: which tokens are real, special or punctuation, and where the
copies of each are.
"""

import unicodedata
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

UNDECODABLE = "\ufffd"
"""The character that decoders write for bytes that are not a whole character."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenFacts:
    """Facts about the tokens of a batch; None for unknown ones."""

    is_real: Bool[Tensor, "batch position"]
    """False for padding, which is only before or after a sequence's tokens."""
    ids: Int[Tensor, "batch position"] | None = None
    is_special: Bool[Tensor, "batch position"] | None = None
    """None without a tokenizer, as is `is_punctuation`."""
    is_punctuation: Bool[Tensor, "batch position"] | None = None
    _keys: dict[tuple[int, torch.device], "KeyTokens"] = field(
        default_factory=dict, init=False, repr=False
    )

    @cached_property
    def spans(self) -> list[slice]:
        """Positions of the real tokens of each sequence."""
        starts = self.is_real.int().argmax(1)
        stops = self.is_real.shape[1] - self.is_real.flip(1).int().argmax(1)
        spans = torch.stack([starts, stops], 1).masked_fill(~self.is_real.any(1, keepdim=True), 0)
        return [slice(start, stop) for start, stop in spans.tolist()]

    def keys(self, sequence: int, device: torch.device) -> "KeyTokens | None":
        """The real tokens of one sequence, one object for all layers; None if ids are unknown."""
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
    """Positions sorted by token, copies of a token in the order of the text."""

    order: Int[Tensor, " key"]
    """Position at each rank."""
    rank: Int[Tensor, " key"]
    """Rank of each position."""
    begin: Int[Tensor, " key"]
    """Rank of the first copy of each position's token."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyTokens:
    """Facts about the real tokens of one sequence."""

    ids: Int[Tensor, " key"]
    is_special: Bool[Tensor, " key"] | None
    """None without a tokenizer, as is `is_punctuation`."""
    is_punctuation: Bool[Tensor, " key"] | None

    @cached_property
    def by_token(self) -> CopyIndex:
        """Where the copies of each token are."""
        order = torch.argsort(self.ids, stable=True)
        in_order, ranks = self.ids[order], torch.arange(len(order), device=order.device)
        is_first = in_order.diff(prepend=in_order[:1] - 1) != 0
        rank, begin = torch.empty_like(order), torch.empty_like(order)
        rank[order] = ranks
        begin[order] = torch.where(is_first, ranks, 0).cummax(0).values
        return CopyIndex(order, rank, begin)

    @cached_property
    def has_copy(self) -> Bool[Tensor, " key"]:
        """Whether the same token occurs earlier."""
        return self.by_token.rank > self.by_token.begin


class TokenKinds:
    """Which of a tokenizer's tokens are special, and which are punctuation."""

    def __init__(self, tokenizer: Any) -> None:
        """Look up the special tokens; punctuation is decided when a token first occurs."""
        self.tokenizer = tokenizer
        self.special_ids = frozenset(tokenizer.all_special_ids)
        self._is_punctuation: dict[int, bool] = {}

    def facts(self, ids: Tensor, is_real: Tensor) -> TokenFacts:
        """Facts about the tokens of a batch."""
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
    """Whether a text has only punctuation marks and symbols, and no undecodable bytes.

    >>> [is_punctuation(text) for text in ("...", "a.", "", "\\ufffd")]
    [True, False, False, False]
    """
    return bool(text) and all(
        unicodedata.category(mark)[0] in "PS" and mark != UNDECODABLE for mark in text
    )
