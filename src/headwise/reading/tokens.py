"""Facts about the tokens of a sequence."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenFacts:
    """What is known of the tokens that attention was computed on; None for what is not."""

    is_real: Bool[Tensor, "batch position"]
    """False for padding, which may stand on either side and nowhere else."""
    ids: Int[Tensor, "batch position"] | None = None
    is_special: Bool[Tensor, "batch position"] | None = None
    """A tokenizer has to say which tokens are special, and which are punctuation."""
    is_punctuation: Bool[Tensor, "batch position"] | None = None

    def span(self, sequence: int) -> slice:
        """Where the real tokens of a sequence stand."""
        return self._spans[sequence]

    @cached_property
    def _spans(self) -> list[slice]:
        starts = self.is_real.int().argmax(1)
        stops = self.is_real.shape[1] - self.is_real.flip(1).int().argmax(1)
        spans = torch.stack([starts, stops], 1).masked_fill(~self.is_real.any(1, keepdim=True), 0)
        return [slice(start, stop) for start, stop in spans.tolist()]


Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class ByToken:
    """Positions put in order of their token, those of one token in the order of the text."""

    order: Int[Tensor, " key"]
    """Position of each place in the order."""
    rank: Int[Tensor, " key"]
    """Place of each position in the order."""
    begin: Int[Tensor, " key"]
    """Place in the order at which the token of each position begins."""

    @classmethod
    def of(cls, ids: Int[Tensor, " key"]) -> "ByToken":
        """The order of some tokens."""
        order = torch.argsort(ids, stable=True)
        in_order, places = ids[order], torch.arange(len(ids), device=ids.device)
        is_first = in_order.diff(prepend=in_order[:1] - 1) != 0
        rank, begin = torch.empty_like(order), torch.empty_like(order)
        rank[order] = places
        begin[order] = torch.where(is_first, places, 0).cummax(0).values
        return cls(order, rank, begin)


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyFacts:
    """What is known of the tokens of one sequence, padding left out."""

    ids: Int[Tensor, " key"]
    is_special: Bool[Tensor, " key"] | None
    """None where no tokenizer says which tokens are special, and which are punctuation."""
    is_punctuation: Bool[Tensor, " key"] | None

    @cached_property
    def by_token(self) -> ByToken:
        """Where copies of a token stand."""
        return ByToken.of(self.ids)

    @cached_property
    def has_copy(self) -> Bool[Tensor, " key"]:
        """Whether the same token stands earlier."""
        return self.by_token.rank > self.by_token.begin


@dataclass(frozen=True)
class Labels:
    """What stands at each position of the queries and of the keys."""

    queries: tuple[str, ...]
    keys: tuple[str, ...]
    is_special: tuple[bool, ...] = ()
    """Of the keys; empty where nothing is known."""
    word_of: tuple[int, ...] = ()
    """For each key the word it is a piece of, -1 for none; empty where nothing is known."""

    @property
    def is_self(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.queries == self.keys
