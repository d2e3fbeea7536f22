"""Maps: labelled weights of some heads, optionally by word or without special tokens or sink."""

from dataclasses import dataclass, replace
from itertools import compress

import torch
from jaxtyping import Float
from torch import Tensor

from headwise.errors import OptionError
from headwise.reading.labels import Labels
from headwise.reading.words import NO_WORD, merge_pieces


@dataclass(frozen=True, eq=False)
class Maps:
    """Attention weights of some heads, with labels."""

    weights: Float[Tensor, "heads query key"]
    heads: tuple[str, ...]
    labels: Labels

    def first(self, count: int) -> "Maps":
        """The maps of the first `count` heads."""
        return replace(self, weights=self.weights[:count], heads=self.heads[:count])

    def by_word(self) -> "Maps":
        """Maps with the tokens of each word merged, and without special tokens."""
        labels = self.labels
        if not labels.word_of or not labels.is_self:
            raise OptionError(
                "words are unknown: they need a text read by a tokenizer, and the same tokens as "
                "queries and keys; show tokens instead"
            )
        words = [""] * (max(labels.word_of) + 1)
        for token, word in zip(labels.keys, labels.word_of, strict=True):
            if word != NO_WORD:
                words[word] += token
        names = tuple(words)
        return replace(
            self,
            weights=merge_pieces(self.weights, labels.word_of),
            labels=Labels(names, names, (False,) * len(names), tuple(range(len(names)))),
        )

    def without_special(self) -> "Maps":
        """Maps without special tokens; rows are not rescaled."""
        labels = self.labels
        if not labels.is_special:
            return self
        ordinary = [not special for special in labels.is_special]
        keys, word_of = tuple(compress(labels.keys, ordinary)), compress(labels.word_of, ordinary)
        weights, queries = self.weights[:, :, torch.tensor(ordinary)], labels.queries
        if labels.is_self:
            weights, queries = weights[:, torch.tensor(ordinary)], keys
        labels = Labels(queries, keys, (False,) * len(keys), tuple(word_of))
        return replace(self, weights=weights, labels=labels)

    def without_sink(self) -> "Maps":
        """Maps without weight on the first key; rows are rescaled to sum to 1."""
        weights = self.weights.clone()
        weights[:, :, 0] = 0
        totals = weights.sum(-1, keepdim=True)
        return replace(self, weights=weights / totals.masked_fill(totals == 0, 1))
