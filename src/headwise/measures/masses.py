"""Masses: how much attention goes to the first tokens, to special tokens and to punctuation."""

from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from headwise.measures.measure import MassMeasure, with_value_columns
from headwise.measures.sequence_view import RowLayout, SequenceView

FIRST = {"first": 1, "first4": 4}
"""Number of tokens in each class of first tokens."""


class Masses(MassMeasure):
    """`sum_k A[q,k]` over a class of keys, and the share of these keys in `sum_k A[q,k] |v_k Wo|`.

    The share is of the value-weighted attention of https://arxiv.org/abs/2004.10102.
    """

    columns: ClassVar[dict[str, str]] = with_value_columns(
        {
            "first": "Mean weight on the first token, over the later rows that may see it, 0 to 1.",
            "first4": "Mean weight on the first four tokens, over the later rows that may see them "
            "all, 0 to 1.",
            "special": "Mean weight on special tokens such as [CLS], [SEP] or BOS, over the rows "
            "that may see one, 0 to 1.",
            "punctuation": "Mean weight on punctuation, over the rows that may see some, 0 to 1.",
        }
    )

    def features(self, view: SequenceView) -> dict[str, Tensor]:
        """A mask of keys for each class, and that mask times the lengths of the keys' values."""
        classes = key_classes(view.layout)
        features = {name: keys[None] for name, keys in classes.items()}
        if view.value_norms is not None:
            features["value_norm"] = view.value_norms
            for name, keys in classes.items():
                features[f"value_{name}"] = keys * view.value_norms
        return features

    def rows(self, view: SequenceView) -> dict[str, Tensor]:
        """The rows that may see a key of each class; for first tokens, all of them, from behind."""
        layout = view.layout

        def find() -> dict[str, Tensor]:
            classes = key_classes(layout)
            counts = view.count_seen(torch.stack(list(classes.values())))
            least = [FIRST.get(name, 1) for name in classes]
            sees = {
                name: (count >= number).all(0)
                for name, count, number in zip(classes, counts, least, strict=True)
            }
            behind = {} if layout.is_cross else FIRST
            return sees | {
                name: sees[name] & (layout.places >= size) for name, size in behind.items()
            }

        return layout.once("rows of classes", find)


def key_classes(layout: RowLayout) -> dict[str, Bool[Tensor, " key"]]:
    """The keys in each class; without a tokenizer, only the classes of first tokens."""

    def find() -> dict[str, Tensor]:
        position = torch.arange(layout.num_keys, device=layout.rows.device)
        classes = {name: position < size for name, size in FIRST.items()}
        if layout.tokens is not None and layout.tokens.is_special is not None:
            classes["special"] = layout.tokens.is_special
        if layout.tokens is not None and layout.tokens.is_punctuation is not None:
            classes["punctuation"] = layout.tokens.is_punctuation
        return classes

    return layout.once("classes", find)
